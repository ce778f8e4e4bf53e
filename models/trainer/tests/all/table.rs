//! `headwater-train table` as a command, on drawn figures: runs, pages, and files that were changed in between.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::program::{DRAWN, ended, run_on};

const EXPERIMENT: &str = r#"
title = "small"
about = "A test."
network = "network.toml"
seeds = [1]
missing = 1
reference = "black"
data = { name = "drawn", limit_train = 256 }
simple = { nearest_neighbour = 8, presence_pattern = true }
changes = { recipe = { epochs = 1, workers = 1 } }
rows = [{ name = "masked" }, { name = "black", absent = "black" }]
"#;

fn command(dir: &Path, file: &str, out: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headwater-train"));
    command.current_dir(dir).env_remove("HEADWATER_DATA");
    command.args(["table", file, "--runs", "runs", "--out", out]);
    command
}

fn table(dir: &Path, out: &str) -> Output {
    command(dir, "small.toml", out).output().expect("the program starts")
}

fn experiment(text: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let network = include_str!("../../../networks/ddnn-c-published.toml");
    // The table takes the labels from the data.
    let network: Vec<&str> = network.lines().filter(|line| !line.starts_with("labels = ")).collect();
    std::fs::write(dir.path().join("network.toml"), network.join("\n")).unwrap();
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
    let sections = ["Accuracy", "Compared run by run", "Missing devices", "Without such a network"];
    let sections = sections.map(|head| format!("## {head}\n"));
    let cells = ["| masked |", "| black |", "without 5", "nearest neighbour in raw pixels (8 samples)"];
    for expected in cells.into_iter().chain(sections.iter().map(String::as_str)) {
        assert!(page.contains(expected), "{expected}: {page}");
    }
    let spec = std::fs::read_to_string(dir.path().join("runs/rows/masked/seed-1/spec.toml")).unwrap();
    assert!(spec.contains("\nlabels = [\"t-shirt/top\", "), "{spec}");
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
fn a_killed_table_given_again_trains_only_the_runs_that_were_not_done_and_gives_the_same_page() {
    let models = concat!("\"", env!("CARGO_MANIFEST_DIR"), "/..");
    let text = include_str!("../../../../experiments/quick.toml").replace("\"../models", models);
    let text = text.replace("limit_train = 1000", "limit_train = 256");
    let [whole, killed] = [experiment(&text), experiment(&text)];
    check(&table(whole.path(), "page.md"), 0, "4 runs, 4 to train");

    let is_done = |(row, seed): &(&str, u64)| {
        let file = format!("runs/rows/absent-views-{row}/seed-{seed}/logits/done.json");
        killed.path().join(file).exists()
    };
    let done = || {
        let all = [("black", 1), ("black", 2), ("masked", 1), ("masked", 2)];
        all.iter().filter(|&run| is_done(run)).count()
    };
    let mut child = command(killed.path(), "small.toml", "page.md");
    let mut child = child.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while done() == 0 && child.try_wait().unwrap().is_none() {
        thread::sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let left = 4 - done();
    assert!(left < 4, "no run ended before the table was killed");
    check(&table(killed.path(), "page.md"), 0, &format!("4 runs, {left} to train"));
    let [whole, killed] =
        [whole, killed].map(|dir| std::fs::read_to_string(dir.path().join("page.md")).unwrap());
    assert_eq!(whole, killed);
}

/// A second experiment, on class folders: rows of two view sizes.
const SIZED: &str = r#"
title = "sized"
about = "Another test."
network = "network.toml"
seeds = [1]
data = { name = "folders", path = "photos" }
changes = { recipe = { epochs = 1, workers = 1 } }
rows = [{ name = "whole" }, { name = "half", network = { device = { input = [3, 16, 16] } } }]
"#;

/// The folder of a collection of the small experiment and of a second one.
fn collection(second: &str) -> tempfile::TempDir {
    let dir = experiment(EXPERIMENT);
    std::fs::write(dir.path().join("sized.toml"), second).unwrap();
    let text = "title = \"Both\"\nabout = \"Two.\"\nexperiments = [\"small.toml\", \"sized.toml\"]\n";
    std::fs::write(dir.path().join("both.toml"), text).unwrap();
    dir
}

#[test]
fn several_experiments_have_one_page_one_object_of_figures_and_a_folder_of_runs_each() {
    let dir = collection(SIZED);
    let photos = dir.path().join("photos");
    ended(&run_on(&DRAWN, &["convert", "--limit", "160", "--out", photos.to_str().unwrap()]), 0, &[]);
    let output = command(dir.path(), "both.toml", "page.md").output().unwrap();
    ended(&output, 0, &["small: 2 runs, 2 to train", "sized: 2 runs, 2 to train"]);
    let page = std::fs::read_to_string(dir.path().join("page.md")).unwrap();
    assert!(page.starts_with("# Both\n\nTwo.\n\n## small\n"), "{page}");
    for expected in ["\n## sized\n", "\n### Accuracy\n", "| masked |", "| whole |", "| half |"] {
        assert!(page.contains(expected), "{expected}: {page}");
    }
    let figures = std::fs::read(dir.path().join("page.json")).unwrap();
    let figures: Value = serde_json::from_slice(&figures).unwrap();
    for (name, row) in [("small", "masked"), ("sized", "half")] {
        assert_eq!(figures[name].as_array().map(Vec::len), Some(2), "{name}");
        assert!(dir.path().join("runs").join(name).join("rows").join(row).is_dir(), "{name}");
    }
}

#[test]
fn a_row_that_does_not_fit_the_data_is_refused_before_anything_is_trained() {
    let labels = "changes = { network = { network = { labels = [\"a\", \"b\"] } },";
    let second = EXPERIMENT.replace("changes = {", labels);
    let dir = collection(&second);
    let output = command(dir.path(), "both.toml", "page.md").output().unwrap();
    ended(&output, 2, &["row \"masked\": network.labels: expected [\"t-shirt/top\", "]);
    assert!(!dir.path().join("runs/small/rows").exists());
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
    check(&table(dir.path(), "nowhere/page.md"), 2, "expected the folder nowhere to be there");
    check(&table(dir.path(), "small.toml"), 2, "expected a page, NAME.md, found small.toml");
}
