//! The crate from outside: the shipped samples, class folders, regions.

mod class_folders;
mod regions;
mod shipped;
