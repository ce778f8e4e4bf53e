//! The program: sources of its settings, the check of its files, and exit codes.

use std::path::Path;
use std::process::{Command, Output};

use headwater_inference::testing::TinyNetwork;

/// A file with the bundle of a network made from the seed.
fn bundle_file(folder: &Path, name: &str, seed: u64) -> String {
    let path = folder.join(name);
    std::fs::write(&path, TinyNetwork { seed, ..TinyNetwork::default() }.bundle()).unwrap();
    path.to_str().unwrap().to_owned()
}

fn cloud(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_headwater-cloud"))
        .args(["--http-listen", "127.0.0.1:0", "--engine", "tract"])
        .args(arguments)
        .env_remove("HEADWATER_CLOUD_NEXT_BUNDLE")
        .envs(environment.iter().copied())
        .output()
        .unwrap()
}

#[test]
fn the_next_bundle_is_named_by_flag_environment_or_file() {
    let folder = tempfile::tempdir().unwrap();
    let [of_file, of_environment, of_flag] =
        ["of-file.hwb", "of-environment.hwb", "of-flag.hwb"].map(|name| bundle_file(folder.path(), name, 2));
    let bundle = bundle_file(folder.path(), "a.hwb", 1);
    let file = folder.path().join("cloud.toml");
    std::fs::write(&file, format!("next_bundle = \"{of_file}\"\n")).unwrap();
    let base = ["--check-config", "--bundle", &bundle, "--config", file.to_str().unwrap()];
    let with_flag = [&base[..], &["--next-bundle", &of_flag]].concat();
    let environment = [("HEADWATER_CLOUD_NEXT_BUNDLE", of_environment.as_str())];
    for (arguments, environment, value, origin) in [
        (&base[..], &[][..], of_file.as_str(), "# file"),
        (&base, &environment, &of_environment, "# environment HEADWATER_CLOUD_NEXT_BUNDLE"),
        (&with_flag, &environment, &of_flag, "# flag --next-bundle"),
        (&base[..3], &[], "is not set", "# default"),
    ] {
        let output = cloud(arguments, environment);
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let line = text.lines().find(|line| line.contains("next_bundle")).unwrap();
        assert!(line.contains(value) && line.ends_with(origin), "{line}");
    }
}

#[test]
fn checked_settings_are_a_file_that_the_program_accepts() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = bundle_file(folder.path(), "a.hwb", 1);
    let first = cloud(&["--check-config", "--bundle", &bundle, "--http-max-samples", "3"], &[]);
    assert!(first.status.success(), "{first:?}");
    let file = folder.path().join("cloud.toml");
    std::fs::write(&file, &first.stdout).unwrap();
    let second = cloud(&["--check-config", "--config", file.to_str().unwrap()], &[]);
    assert!(second.status.success(), "{second:?}");
    let settings = |output: &Output| String::from_utf8_lossy(&output.stdout).parse::<toml::Table>().unwrap();
    assert_eq!(settings(&first), settings(&second));
}

#[test]
fn checked_settings_name_every_file_that_cannot_be_opened() {
    let arguments = ["--check-config", "--bundle", "none.hwb", "--next-bundle", "no-next.hwb"];
    let output = cloud(&arguments, &[]);
    let log = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{log}");
    assert!(log.contains("none.hwb") && log.contains("no-next.hwb"), "{log}");
}

#[test]
fn an_old_flag_is_refused_naming_the_new_one() {
    let output = cloud(&["--bundle", "a.hwb", "--most-requests", "3"], &[]);
    let log = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{log}");
    assert!(log.contains("max_requests") || log.contains("max-requests"), "{log}");
}

#[test]
fn the_same_network_twice_ends_with_2() {
    let folder = tempfile::tempdir().unwrap();
    let [current, next] = ["a.hwb", "b.hwb"].map(|name| bundle_file(folder.path(), name, 1));
    let output = cloud(&["--bundle", &current, "--next-bundle", &next], &[]);
    let log = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{log}");
    assert!(log.contains("next_bundle: expected the bundle of another network"), "{log}");
}
