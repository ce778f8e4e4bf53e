//! The crate from outside: the shipped samples, class folders.

mod class_folders;
mod shipped;
