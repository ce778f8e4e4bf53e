//! Hashes of the data set as it was when the first network was trained.
//!
//! The hashes never change. A mismatch means that reported numbers no longer belong to the data: undo the change, and keep the hash.

use std::path::PathBuf;

use sha2::{Digest, Sha256};

use super::*;
use crate::Part;
use crate::data_set::DataSet;

const DRAWN: &str = "510e11766ca6b26acdf1e05daa5140bc8eb1af71afac47caa2b9a460860828e7";
const REAL: &str = "20830959d8ddfde9a77e78e6eacd70de509c90a4b6b83974b026875f67757c2c";

/// Hash over the views of the first samples of each part: one byte 0 or 1 (in view), then the pixels.
fn hash(data: &Fashion6Cam, samples: usize) -> String {
    let mut hash = Sha256::new();
    let mut pixels = vec![0; VIEW_BYTES];
    for part in [Part::Train, Part::Validation, Part::Test] {
        for (index, slot) in (0..samples).flat_map(|index| (0..SLOTS).map(move |slot| (index, slot))) {
            let in_view = data.view_into(part, index, slot, &mut pixels);
            hash.update([u8::from(in_view)]);
            if in_view {
                hash.update(&pixels);
            }
        }
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The data set of the real files, where they exist.
fn real() -> Option<Fashion6Cam> {
    let root = std::env::var_os("HEADWATER_DATA").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data")),
        PathBuf::from,
    );
    let dir = root.join("fashion-mnist");
    dir.is_dir().then(|| Fashion6Cam::open(&dir).expect("the folder is there, so it must be sound"))
}

#[test]
fn views_of_drawn_figures_are_frozen() {
    assert_eq!(hash(&Fashion6Cam::drawn(50, 50, 50), 50), DRAWN);
}

#[test]
fn views_of_real_articles_are_frozen() {
    match real() {
        Some(data) => assert_eq!(hash(&data, 50), REAL),
        None => println!(
            "left out: no Fashion-MNIST found; set HEADWATER_DATA to the folder that holds `fashion-mnist`"
        ),
    }
}
