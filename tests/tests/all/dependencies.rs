//! Dependencies of the project: licences, sources and import directions, read from `cargo metadata`, and the lints that must be on.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

/// Licences that a dependency may have.
const LICENCES: [&str; 15] = [
    "MIT",
    "MIT-0",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "MPL-2.0",
    "Unicode-3.0",
    "Zlib",
    "CC0-1.0",
    "BSL-1.0",
    "0BSD",
    "Unlicense",
    "CDLA-Permissive-2.0",
    "bzip2-1.0.6",
];

/// Each of our crates, with the names (without `headwater-`) of those of our crates that it may import. `ARCHITECTURE.md` draws them.
const ALLOWED: &[(&str, &str)] = &[
    ("headwater-build-features", ""),
    ("headwater-protocol", ""),
    ("headwater-kernels", ""),
    ("headwater-map-coder", ""),
    ("headwater-transport", ""),
    ("headwater-telemetry", "protocol transport"),
    ("headwater-toml-file", ""),
    ("headwater-settings", "protocol transport telemetry toml-file"),
    ("headwater-inference", "protocol kernels map-coder toml-file"),
    ("headwater-samples", "protocol"),
    ("headwater-link", "transport"),
    ("headwater-identity", "protocol transport"),
    ("headwater-spec", "protocol kernels inference toml-file"),
    ("headwater-calibration", "protocol inference samples toml-file"),
    ("headwater-training", "protocol kernels map-coder inference samples spec calibration toml-file"),
    ("headwater-experiments", "protocol inference samples spec calibration training toml-file"),
    ("headwater-train", "build-features protocol inference samples spec calibration training experiments"),
    ("headwater-end-device", "protocol kernels inference samples link transport telemetry settings"),
    ("headwater-edge-aggregator", "toml-file protocol kernels inference link transport telemetry settings"),
    ("headwater-cloud-service", "protocol kernels inference transport telemetry settings"),
    (
        "headwater-group",
        "protocol kernels inference samples link transport telemetry settings end-device edge-aggregator \
         cloud-service",
    ),
    (
        "headwater",
        "toml-file build-features protocol inference samples link transport telemetry settings identity \
         end-device edge-aggregator cloud-service group",
    ),
    (
        "headwater-tests",
        "protocol kernels map-coder inference samples link transport telemetry settings end-device \
         edge-aggregator cloud-service group",
    ),
];

fn cargo(arguments: &str) -> String {
    let output = Command::new(env!("CARGO"))
        .args(arguments.split(' '))
        .args(["--locked", "--offline", "--manifest-path"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "cargo {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("cargo prints UTF-8")
}

fn metadata() -> Value {
    serde_json::from_str(&cargo("metadata --format-version 1")).expect("cargo metadata prints JSON")
}

fn packages(metadata: &Value) -> &[Value] {
    metadata["packages"].as_array().expect("a list of packages")
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// Our crates and their normal and build dependencies on every platform, each as a line `name version|licence`.
fn linked() -> String {
    cargo("tree --workspace --target all --edges normal,build --prefix none --format {p}|{l}")
}

#[test]
fn every_dependency_has_a_licence_we_may_use() {
    let mut refused = BTreeSet::new();
    // `cargo tree` prints a blank line between the members of the workspace.
    for line in linked().lines().filter(|line| !line.is_empty()) {
        let (package, licence) = line.trim_end_matches(" (*)").split_once('|').expect("the format asked for");
        let allowed = spdx::Expression::parse_mode(licence, spdx::ParseMode::LAX).is_ok_and(|expression| {
            expression.evaluate(|term| term.license.id().is_some_and(|id| LICENCES.contains(&id.name)))
        });
        if !allowed {
            refused.insert(format!("{package}: {licence:?}"));
        }
    }
    assert!(refused.is_empty(), "licences not on the list: {refused:#?}");
}

#[test]
fn every_dependency_comes_from_the_registry_or_from_here() {
    let metadata = metadata();
    for package in packages(&metadata) {
        if let Some(source) = package["source"].as_str() {
            assert!(source.starts_with("registry+"), "{} comes from {source}", text(package, "name"));
        }
    }
}

#[test]
fn our_crates_import_in_one_direction_only() {
    let metadata = metadata();
    let allowed: BTreeMap<_, _> = ALLOWED.iter().copied().collect();
    for package in packages(&metadata).iter().filter(|package| package["source"].is_null()) {
        let name = text(package, "name");
        let allowed = allowed.get(name).unwrap_or_else(|| panic!("{name} is not in the list of crates"));
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            // Only normal dependencies are checked: tests and build scripts may import more.
            let imported = text(dependency, "name").strip_prefix("headwater-");
            if let Some(imported) = imported.filter(|_| dependency["kind"].is_null()) {
                let is_allowed = allowed.split(' ').any(|allowed| allowed == imported);
                assert!(is_allowed, "{name} imports {imported}");
            }
        }
    }
}

#[test]
fn only_the_training_crate_links_burn() {
    let metadata = metadata();
    for package in packages(&metadata).iter().filter(|package| package["source"].is_null()) {
        let burns = package["dependencies"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|dependency| dependency["kind"].is_null())
            .any(|dependency| text(dependency, "name").starts_with("burn"));
        let name = text(package, "name");
        assert!(!burns || name == "headwater-training", "{name} links burn");
    }
}

fn read(path: &std::path::Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn clippy_refuses_more_than_five_parameters_in_every_crate() {
    let root = headwater_tests::shipped::root();
    let toml = |path: &std::path::Path| read(path).parse::<toml::Table>().expect("TOML");
    assert_eq!(toml(&root.join("clippy.toml"))["too-many-arguments-threshold"].as_integer(), Some(5));
    // The lint `too_many_arguments` is in clippy's group `all`.
    let workspace = toml(&root.join("Cargo.toml"));
    assert_eq!(workspace["workspace"]["lints"]["clippy"]["all"]["level"].as_str(), Some("warn"));
    let metadata = metadata();
    for package in packages(&metadata).iter().filter(|package| package["source"].is_null()) {
        let manifest = toml(text(package, "manifest_path").as_ref());
        assert_eq!(manifest["lints"]["workspace"].as_bool(), Some(true), "{}", text(package, "name"));
    }
}

#[test]
fn a_new_variant_fails_to_compile_where_inference_does_not_handle_it() {
    let library = read(&headwater_tests::shipped::root().join("core/inference/src/lib.rs"));
    assert!(library.contains("#![warn(clippy::wildcard_enum_match_arm)]"));
}
