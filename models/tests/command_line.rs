//! What the command says when it is used wrongly.

use std::path::Path;
use std::process::{Command, Output};

const NETWORK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/networks/ddnn-c.toml");

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_headwater-train")).args(arguments).output().unwrap()
}

#[track_caller]
fn refuses(arguments: &[&str], message: &str) {
    let output = run(arguments);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains(message), "expected {message:?} in {text:?}");
}

#[test]
fn a_spec_that_does_not_fit_is_refused_with_file_and_line() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("zero.toml");
    std::fs::write(&file, std::fs::read_to_string(NETWORK).unwrap().replace("count = 6", "count = 0"))
        .unwrap();
    let file = file.to_str().unwrap();
    refuses(
        &["train", "--network", file, "--data", "drawn", "--data-dir", "."],
        &format!("{file}:10: device.count: expected 1 to 32 device slots, found 0"),
    );
}

#[test]
fn a_spec_for_other_data_is_refused() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("five.toml");
    std::fs::write(&file, std::fs::read_to_string(NETWORK).unwrap().replace("count = 6", "count = 5"))
        .unwrap();
    let arguments = ["train", "--network", file.to_str().unwrap(), "--data", "drawn", "--data-dir", "."];
    refuses(&arguments, "device.count: expected 6 as in the data, found 5");
}

#[test]
fn a_missing_data_folder_an_unknown_data_set_and_a_missing_file_are_named() {
    refuses(&["train", "--network", NETWORK, "--data-dir", "/nowhere"], "/nowhere");
    let of = |data| ["train", "--network", NETWORK, "--data", data, "--data-dir", "/nowhere"];
    refuses(
        &of("imagenet"),
        "data set: expected one of fashion-6cam, fashion-mnist, mnist, cifar-10, eth80, folders, found `imagenet`",
    );
    refuses(&of("mnist"), "data set mnist: found neither `train-images-idx3-ubyte.gz` nor");
    refuses(&["train", "--network", "none.toml", "--data-dir", "."], "none.toml");
    refuses(&["eval", "none.hwb", "--data-dir", "."], "none.hwb");
}

#[test]
fn help_teaches() {
    let output = run(&["--help"]);
    let text = String::from_utf8_lossy(&output.stdout);
    for word in ["train", "eval", "export", "parity", "single-camera", "Examples", "Exit codes"] {
        assert!(text.contains(word), "no {word:?} in the help");
    }
}
