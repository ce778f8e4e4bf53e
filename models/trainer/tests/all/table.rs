//! `headwater-train table` as a command, on drawn figures: runs, pages, and files that were changed in between.

use std::path::Path;
use std::process::{Command, Output};

use crate::program::ended;

const EXPERIMENT: &str = r#"
title = "small"
about = "A test."
network = "network.toml"
seeds = [1]
missing = 1
data = { name = "drawn", limit_train = 256 }
simple = { nearest_neighbour = 8, presence_pattern = true }
changes = { recipe = { epochs = 1, workers = 1 } }
rows = [{ name = "masked" }, { name = "black", absent = "black" }]
"#;

fn table(dir: &Path, out: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headwater-train"));
    command.current_dir(dir).env_remove("HEADWATER_DATA");
    command.args(["table", "small.toml", "--runs", "runs", "--out", out]);
    command.output().expect("the program starts")
}

fn experiment(text: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("network.toml"), include_str!("../../../networks/ddnn-c-published.toml"))
        .unwrap();
    std::fs::write(dir.path().join("small.toml"), text).unwrap();
    dir
}

#[track_caller]
fn check(output: &Output, code: i32, expected: &str) {
    ended(output, code, &[expected]);
}

#[test]
fn a_page_is_made_again_from_logits_and_what_changed_is_named() {
    let dir = experiment(EXPERIMENT);
    let first = table(dir.path(), "page.md");
    check(&first, 0, "2 runs, 2 to train");
    let page = std::fs::read_to_string(dir.path().join("page.md")).unwrap();
    for expected in ["| masked |", "| black |", "without 5", "nearest neighbour in raw pixels (8 samples)"] {
        assert!(page.contains(expected), "{expected}: {page}");
    }
    let again = table(dir.path(), "page.md");
    check(&again, 0, "2 runs, 0 to train");
    assert_eq!(std::fs::read_to_string(dir.path().join("page.md")).unwrap(), page);

    // A damaged file of logits is refused by its name.
    let file = dir.path().join("runs/rows/masked/seed-1/logits/test-without-3.hwlogits");
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&file, &bytes).unwrap();
    check(&table(dir.path(), "page.md"), 1, "test-without-3.hwlogits: its SHA-256 does not fit");
    // Logits of another run in place of this run's are refused.
    std::fs::copy(dir.path().join("runs/rows/black/seed-1/logits/test-without-3.hwlogits"), &file).unwrap();
    check(&table(dir.path(), "page.md"), 1, "expected those of run");
    // Logits of another presence pattern of the same run are refused too.
    std::fs::copy(dir.path().join("runs/rows/masked/seed-1/logits/test-without-4.hwlogits"), &file).unwrap();
    check(&table(dir.path(), "page.md"), 1, "expected those of run");
    // Without the file the run is completed again, from its checkpoint.
    std::fs::remove_file(&file).unwrap();
    check(&table(dir.path(), "page.md"), 0, "2 runs, 1 to train");
    assert_eq!(std::fs::read_to_string(dir.path().join("page.md")).unwrap(), page);

    // The run is also completed again if any other file of the run is missing, or if its marker is cut off.
    let logits = dir.path().join("runs/rows/masked/seed-1/logits");
    for lost in ["calibration.hwlogits", "val.hwlogits", "done.json"] {
        std::fs::remove_file(logits.join(lost)).unwrap();
        check(&table(dir.path(), "page.md"), 0, "2 runs, 1 to train");
        assert_eq!(std::fs::read_to_string(dir.path().join("page.md")).unwrap(), page, "{lost}");
    }
    std::fs::write(logits.join("done.json"), "[0.1, 0").unwrap();
    check(&table(dir.path(), "page.md"), 0, "2 runs, 1 to train");

    // A command is refused while another command works on the same runs.
    let lock = std::fs::File::options().write(true).open(dir.path().join("runs/lock")).unwrap();
    lock.lock().unwrap();
    check(&table(dir.path(), "page.md"), 2, "expected no other command at work on these runs");
    drop(lock);

    // A changed data path is refused: the folder holds the run of the old path.
    std::fs::write(
        dir.path().join("small.toml"),
        EXPERIMENT.replace("\"drawn\"", "\"drawn\", path = \"elsewhere\""),
    )
    .unwrap();
    check(&table(dir.path(), "page.md"), 1, "of another spec, recipe, seed or data");

    // A changed recipe is refused: the folder holds the run of the old recipe.
    std::fs::write(dir.path().join("small.toml"), EXPERIMENT.replace("epochs = 1", "epochs = 2")).unwrap();
    check(&table(dir.path(), "page.md"), 1, "of another spec, recipe, seed or data");
}

#[test]
fn mistakes_of_an_experiment_are_usage_errors() {
    for (from, to, expected) in [
        ("missing = 1", "mising = 1", "mising: no such key"),
        ("name = \"drawn\"", "name = \"drawn\", folds = 2", "expected no fold"),
        ("name = \"drawn\"", "name = \"imagenet\"", "found `imagenet`"),
        ("network.toml", "nothing.toml", "nothing.toml"),
        ("missing = 1", "missing = 6", "missing: expected less than the 6 devices"),
        ("\"masked\"", "\"äö\"", "found \"äö\""),
        ("\"masked\"", "\"a | b\"", "found \"a | b\""),
        ("\"masked\"", "\"Black!\"", "found [\"Black!\", \"black\"]"),
    ] {
        let dir = experiment(&EXPERIMENT.replace(from, to));
        check(&table(dir.path(), "page.md"), 2, expected);
    }
    let dir = experiment(EXPERIMENT);
    check(&table(dir.path(), "nowhere/page.md"), 2, "expected a file in a folder that exists");
    check(&table(dir.path(), "small.toml"), 2, "expected a page, NAME.md, found small.toml");
}
