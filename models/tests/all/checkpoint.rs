//! Checkpoints survive torn and foreign files.

use std::fs;
use std::path::{Path, PathBuf};

use headwater_models::layers::State;
use headwater_models::training::{Checkpoint, Moments, Progress};
use headwater_protocol::Exit;

/// An empty folder of that name.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

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
    }
}

#[test]
fn a_checkpoint_comes_back_bit_by_bit_and_two_are_kept() {
    let folder = folder("kept");
    for step in 1..=5 {
        checkpoint(step).write(&folder, "run").unwrap();
    }
    let (found, skipped) = Checkpoint::newest(&folder, "run").unwrap();
    assert_eq!(found.unwrap(), checkpoint(5));
    assert!(skipped.is_empty());
    assert_eq!(files(&folder).len(), 2);
}

#[test]
fn a_torn_checkpoint_is_skipped_for_the_one_before() {
    let folder = folder("torn");
    checkpoint(1).write(&folder, "run").unwrap();
    checkpoint(2).write(&folder, "run").unwrap();
    let newest = files(&folder).pop().unwrap();
    let bytes = fs::read(&newest).unwrap();
    for bad in [&bytes[..0], &bytes[..20], &bytes[..bytes.len() - 1]] {
        fs::write(&newest, bad).unwrap();
        let (found, skipped) = Checkpoint::newest(&folder, "run").unwrap();
        assert_eq!(found.unwrap(), checkpoint(1));
        assert_eq!(skipped.len(), 1);
    }
}

#[test]
fn a_checkpoint_of_another_run_is_refused() {
    let folder = folder("other");
    checkpoint(1).write(&folder, "one").unwrap();
    let error = Checkpoint::newest(&folder, "two").unwrap_err().to_string();
    assert!(error.contains("expected run two, found run one"), "{error}");
}

#[test]
fn progress_written_before_the_other_exits_existed_is_read_and_written_unchanged() {
    let progress = r#"{"epoch":1,"step_in_epoch":2,"step":9,"figures":{"samples":32,"loss":0.5,"local":20,"cloud":21},"epochs":[{"epoch":1,"loss":2.5,"train_local":0.25,"train_cloud":0.5,"validation":{"devices":[0.5,0.75],"local":0.125,"cloud":0.375},"learning_rate":0.5}],"seconds":1.5}"#;
    let read: Progress = serde_json::from_str(progress).unwrap();
    assert_eq!((read.sums.correct[Exit::LOCAL], read.epochs[0].validation.exits[Exit::CLOUD]), (20, 0.375));
    assert_eq!(serde_json::to_string(&read).unwrap(), progress);
}
