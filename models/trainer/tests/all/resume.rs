//! The real binary, killed with SIGKILL in the middle and started again, ends with the same weights.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use headwater_training::checkpoint::Checkpoint;
use headwater_training::experiment::RunInfo;

/// Recipe of the runs; networks with edges export the best epoch.
fn recipe(folder: &Path) -> PathBuf {
    let file = folder.join("recipe.toml");
    let export = if folder.ends_with("ddnn-f.toml") { "export = \"best\" # " } else { "export = " };
    let text = headwater_training::recipe::DEFAULT
        .replace("export = ", export)
        .replace("epochs = ", "epochs = 2 # ")
        .replace("batch = ", "batch = 16 # ")
        .replace("steps = ", "steps = 3 # ");
    std::fs::write(&file, text).unwrap();
    file
}

fn command(network: &str, folder: &Path, run: &str) -> Command {
    let network = Path::new(env!("CARGO_MANIFEST_DIR")).join("../networks").join(network);
    let mut command = Command::new(env!("CARGO_BIN_EXE_headwater-train"));
    command.args(["train", "--data", "drawn", "--data-dir", ".", "--limit-train", "160", "--network"]);
    command.arg(network);
    command.arg("--recipe").arg(recipe(folder)).arg("--out").arg(folder.join(run));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn weights(folder: &Path) -> Checkpoint {
    let info: RunInfo = serde_json::from_slice(&std::fs::read(folder.join("run.json")).unwrap()).unwrap();
    Checkpoint::newest(folder, &info.identity).unwrap().0.expect("a finished run has a checkpoint")
}

fn checkpoints(folder: &Path) -> usize {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    files.filter(|file| file.path().extension().is_some_and(|extension| extension == "hwck")).count()
}

#[test]
fn a_run_killed_halfway_and_started_again_ends_with_the_same_weights() {
    check("ddnn-c.toml");
}

#[test]
fn a_run_with_edges_killed_halfway_and_started_again_ends_with_the_same_weights() {
    check("ddnn-f.toml");
}

#[track_caller]
fn check(network: &str) {
    let command = |folder: &Path, run| command(network, folder, run);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("resume").join(network);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    assert!(command(&folder, "whole").status().unwrap().success());

    let killed = folder.join("killed");
    let mut child = command(&folder, "killed").spawn().unwrap();
    // The kill may fall anywhere after the first checkpoint.
    while checkpoints(&killed) == 0 && child.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!killed.join("bundle.hwb").exists(), "the run ended before it was killed");
    assert!(command(&folder, "killed").arg("--resume").status().unwrap().success());

    let (whole, resumed) = (weights(&folder.join("whole")), weights(&killed));
    assert!(
        whole.state == resumed.state && whole.moments == resumed.moments && whole.best == resumed.best,
        "weights differ after a resume"
    );
    assert_eq!(whole.progress.epochs, resumed.progress.epochs);
    assert_eq!(whole.progress.best, resumed.progress.best);
    assert_eq!(whole.best.is_some(), network == "ddnn-f.toml");
    let bundle = |run: &str| std::fs::read(folder.join(run).join("bundle.hwb")).unwrap().len();
    assert!(bundle("whole") > 0 && bundle("killed") > 0);

    let other = command(&folder, "killed").args(["--seed", "99"]).output().unwrap();
    assert_eq!(other.status.code(), Some(2), "a folder with another run is refused");
}
