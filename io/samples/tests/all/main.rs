//! The crate from outside: the shipped samples, class folders, regions.

mod class_folders;
mod regions;
mod shipped;

use std::path::{Path, PathBuf};

/// A folder of data; `None` if there is no such folder.
fn data(folder: &str) -> Option<PathBuf> {
    let root = std::env::var_os("HEADWATER_DATA")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"), PathBuf::from);
    let dir = Some(root.join(folder)).filter(|dir| dir.is_dir());
    if dir.is_none() {
        println!("left out: no {folder} found; set HEADWATER_DATA to the folder that holds `{folder}`");
    }
    dir
}
