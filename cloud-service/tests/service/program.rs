//! The program itself: where the next network is named, and when it is refused.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use headwater_inference::testing::TinyNetwork;

/// A bundle, twice.
fn twice(folder: &Path) -> [PathBuf; 2] {
    ["a.hwb", "b.hwb"].map(|name| {
        let path = folder.join(name);
        std::fs::write(&path, TinyNetwork::default().bundle()).unwrap();
        path
    })
}

fn cloud(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_headwater-cloud"))
        .args(["--listen", "127.0.0.1:0", "--engine", "tract"])
        .args(arguments)
        .env_remove("HEADWATER_CLOUD_NEXT_BUNDLE")
        .envs(environment.iter().copied())
        .output()
        .unwrap()
}

#[test]
fn the_next_bundle_is_named_by_flag_environment_or_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cloud.toml");
    std::fs::write(&file, "next_bundle = \"of-file.hwb\"\n").unwrap();
    let base = ["--check-config", "--bundle", "a.hwb", "--config", file.to_str().unwrap()];
    let with_flag = [&base[..], &["--next-bundle", "of-flag.hwb"]].concat();
    let environment = [("HEADWATER_CLOUD_NEXT_BUNDLE", "of-environment.hwb")];
    for (arguments, environment, value, origin) in [
        (&base[..], &[][..], "of-file.hwb", "file"),
        (&base, &environment, "of-environment.hwb", "environment"),
        (&with_flag, &environment, "of-flag.hwb", "flag"),
        (&base[..3], &[], "", "not set"),
    ] {
        let output = cloud(arguments, environment);
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let line = text.lines().find(|line| line.contains("next_bundle")).unwrap();
        assert!(line.contains(value) && line.contains(origin), "{line}");
    }
}

#[test]
fn the_same_network_twice_ends_with_2() {
    let folder = tempfile::tempdir().unwrap();
    let [current, next] = twice(folder.path()).map(|path| path.to_str().unwrap().to_owned());
    let output = cloud(&["--bundle", &current, "--next-bundle", &next], &[]);
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{words}");
    assert!(words.contains("next_bundle: expected the bundle of another network"), "{words}");
}
