//! The crate from outside: the shipped samples, class folders, the order of the modules.

mod class_folders;
mod layers;
mod shipped;
