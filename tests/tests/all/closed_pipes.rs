//! Output of the programs to a pipe that its reader has closed, and output without passwords.

use std::process::{Output, Stdio};

use headwater_tests::{programs, shipped};

fn output(program: &str, arguments: &[&str], stdout: Stdio) -> Output {
    let mut command = programs::command(program);
    command.args(arguments).env_remove("RUST_LOG").stdin(Stdio::null()).stdout(stdout);
    command.stderr(Stdio::piped()).output().expect("the program starts")
}

#[track_caller]
fn check_closed_pipe(program: &str, arguments: &[&str]) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let found = output(program, arguments, writer.into());
    let stderr = String::from_utf8_lossy(&found.stderr);
    assert_eq!((found.status.code(), &*stderr), (Some(0), ""), "{program} {arguments:?}");
}

#[test]
fn a_reader_that_closes_the_pipe_is_no_error() {
    let bundle = shipped::bundle_path().display().to_string();
    let frames = shipped::frames_path().display().to_string();
    for program in
        ["headwater-device", "headwater-aggregator", "headwater-cloud", "headwater", "headwater-train"]
    {
        check_closed_pipe(program, &["--help"]);
        check_closed_pipe(program, &["--version"]);
    }
    let check = ["--check-config", "--log-filter", "error", "--bundle", &bundle];
    let device = ["--site", "s", "--group", "g", "--id", "i", "--slot", "0", "--source-path", &frames];
    check_closed_pipe("headwater-device", &[&check[..], &device].concat());
    check_closed_pipe("headwater-aggregator", &check);
    check_closed_pipe("headwater-cloud", &[&check[..], &["--engine", "tract"]].concat());
    check_closed_pipe("headwater", &["inspect"]);
}

#[test]
fn no_program_repeats_the_password_of_an_address() {
    let secret = "mqtt://user:s3cret@host";
    for (program, arguments) in [
        ("headwater", &["demo", "--broker", secret][..]),
        ("headwater", &["demo", secret]),
        ("headwater-device", &["--broker-address", secret]),
        ("headwater-aggregator", &[secret]),
        ("headwater-cloud", &["--broker-address", secret]),
    ] {
        let found = output(program, arguments, Stdio::piped());
        let text = [found.stdout, found.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        assert_eq!(found.status.code(), Some(2), "{program} {arguments:?}: {text}");
        assert!(!text.is_empty() && !text.contains("s3cret"), "{program} {arguments:?}: {text}");
    }
}
