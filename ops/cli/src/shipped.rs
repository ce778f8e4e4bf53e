//! Bundle and frames inside the program, so that the demo runs without files.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use anyhow::{Context, bail};
use headwater_inference::bundle::Bundle;
use headwater_inference::policy::{Policy, PolicyChanges};

use crate::BadUsage;

/// Bundle of configuration (c), trained on `fashion-6cam`; see `models/shipped/README.md`.
pub(crate) const BUNDLE: &[u8] = include_bytes!("../../../models/shipped/fashion-6cam.hwb");

/// 300 test samples of `fashion-6cam`; see `io/samples/shipped/README.md`.
pub(crate) const FRAMES: &[u8] = include_bytes!("../../../io/samples/shipped/fashion-6cam-300.tar.gz");

/// Opens a bundle, the shipped one by default.
pub(crate) fn open_bundle(path: Option<&Path>) -> anyhow::Result<Bundle> {
    match path {
        Some(path) => open_file(path),
        None => Bundle::from_bytes(BUNDLE).context("opening the shipped bundle"),
    }
}

/// The policy of a bundle, with the changes of the file that `--policy` names.
pub(crate) fn policy(bundle: &Bundle, file: Option<&Path>) -> anyhow::Result<Policy> {
    let Some(file) = file else { return Ok(bundle.policy().clone()) };
    fs::metadata(file).with_context(|| format!("reading the policy {}", file.display()))?;
    let policy = PolicyChanges::policy_of(file, bundle.policies());
    Ok(policy.map_err(|mistake| BadUsage(format!("--policy {mistake}")))?.0)
}

/// Name of the first file in every bundle; the bundle begins with these bytes.
const FIRST_MEMBER: &[u8] = b"network.json\0";

/// Opens a bundle file. If the file is no bundle, the error says what was found.
fn open_file(path: &Path) -> anyhow::Result<Bundle> {
    let shown = path.display();
    let of = || format!("opening the bundle {shown}");
    let kind = fs::metadata(path).with_context(of)?.file_type();
    // Opening a pipe would wait until another program writes into it.
    if !kind.is_file() {
        bail!("{shown}: not a bundle: expected a .hwb file, found {}", crate::special_file(kind));
    }
    let mut start = Vec::new();
    let file = File::open(path).with_context(of)?;
    file.take(FIRST_MEMBER.len() as u64).read_to_end(&mut start).with_context(of)?;
    if start.is_empty() {
        bail!("{shown}: not a bundle: expected a .hwb file, found an empty one");
    }
    if !FIRST_MEMBER.starts_with(&start) {
        let found = String::from_utf8_lossy(&start);
        bail!("{shown}: not a bundle: expected a .hwb file, found one that begins with {found:?}");
    }
    Bundle::open(path).with_context(of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_another_kind_is_no_bundle_and_a_missing_one_is_named_once() {
        let folder = tempfile::tempdir().unwrap();
        let error = |name: &str, content: Option<&[u8]>| {
            let path = folder.path().join(name);
            content.into_iter().for_each(|content| fs::write(&path, content).unwrap());
            format!("{:#}", open_bundle(Some(&path)).unwrap_err())
        };
        let missing = error("none.hwb", None);
        assert_eq!(missing.matches("No such file").count(), 1, "{missing}");
        let other = error("policy.toml", Some(b"window_ms = 40\n"));
        assert!(
            other.contains("not a bundle: expected a .hwb file, found one that begins with \"window_ms"),
            "{other}"
        );
        assert!(error("empty", Some(b"")).contains("found an empty one"));
        let cut = error("cut.hwb", Some(&BUNDLE[..1000]));
        assert!(cut.contains("cut off"), "{cut}");
        assert!(format!("{:#}", open_bundle(Some(folder.path())).unwrap_err()).contains("found a folder"));
        assert!(open_bundle(None).is_ok());
    }
}
