//! A damaged checkpoint is skipped for the one before; a checkpoint of another run or version is refused.

use std::fs;
use std::path::{Path, PathBuf};

use headwater_training::checkpoint::{Checkpoint, Progress};
use headwater_training::layers::State;
use headwater_training::optimiser::Moments;

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn checkpoint(step: u64) -> Checkpoint {
    Checkpoint {
        progress: Progress { step, epoch: 1, seconds: 0.1 + 0.2, ..Progress::default() },
        state: State {
            parameters: vec![0.1, -0.0, f32::MIN_POSITIVE / 2.0],
            statistics: vec![1.0 / 3.0],
            coding: None,
        },
        moments: Moments { first: vec![1e-30; 3], second: vec![2.0; 3] },
        outer_velocity: if step == 5 { vec![0.5; 3] } else { Vec::new() },
        best: None,
    }
}

#[test]
fn a_checkpoint_comes_back_bit_by_bit_and_two_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    for step in 1..=5 {
        checkpoint(step).write(folder.path(), "run").unwrap();
    }
    let (found, skipped) = Checkpoint::newest(folder.path(), "run").unwrap();
    assert_eq!(found.unwrap(), checkpoint(5));
    assert!(skipped.is_empty());
    assert_eq!(files(folder.path()).len(), 2);
}

#[test]
fn a_torn_checkpoint_is_skipped_for_the_one_before() {
    let folder = tempfile::tempdir().unwrap();
    checkpoint(1).write(folder.path(), "run").unwrap();
    checkpoint(2).write(folder.path(), "run").unwrap();
    let newest = files(folder.path()).pop().unwrap();
    let bytes = fs::read(&newest).unwrap();
    for bad in [&bytes[..0], &bytes[..20], &bytes[..bytes.len() - 1]] {
        fs::write(&newest, bad).unwrap();
        let (found, skipped) = Checkpoint::newest(folder.path(), "run").unwrap();
        assert_eq!(found.unwrap(), checkpoint(1));
        assert_eq!(skipped.len(), 1);
    }
}

#[test]
fn a_checkpoint_of_another_run_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    checkpoint(1).write(folder.path(), "one").unwrap();
    let error = Checkpoint::newest(folder.path(), "two").unwrap_err().to_string();
    assert!(error.contains("expected run two, found run one"), "{error}");
}

#[test]
fn a_checkpoint_of_another_version_is_refused_by_name_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    checkpoint(1).write(folder.path(), "run").unwrap();
    let file = files(folder.path()).remove(0);
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, [&b"HWCKPT01"[..], &bytes[8..]].concat()).unwrap();
    let error = Checkpoint::newest(folder.path(), "run").unwrap_err().to_string();
    for part in ["expected form HWCKPT02, found form HWCKPT01", "choose another --out"] {
        assert!(error.contains(part), "{error}");
    }
}
