//! `headwater sign`: signs a bundle with a private key. Tiers that have the public key accept no unsigned bundle.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use headwater_identity::{read_signing_key, write_signing_key};
use headwater_inference::bundle::{Release, SigningKey};
use headwater_protocol::SiteId;
use headwater_transport::{PUBLIC_MODE, replace_file};

use crate::{print, shipped};

/// Arguments of `headwater sign`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  headwater sign --new-key signing.key                  make a key; its public half is printed
  headwater sign --key signing.key --release 3 network.hwb
                                                        sign the file in place, as release 3
  headwater sign --key signing.key --release 3 --site north --site south network.hwb
                                                        for two sites alone
  headwater-device --trusted-keys 5f3c... ...            take bundles of this key alone
The signature covers network.json and policy.json, by their hashes the sections, the release and the sites; report.json and training weights are not covered.
A program with `release_file` refuses releases before the one that it used last: a later bundle needs a higher number.")]
pub struct SignArgs {
    /// Make a key in this file, and print its public half.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["key", "bundle"])]
    pub new_key: Option<PathBuf>,
    /// File of the key that signs.
    #[arg(long, value_name = "FILE", required_unless_present = "new_key")]
    pub key: Option<PathBuf>,
    /// Number of the release, higher than the release of every earlier bundle of the group.
    #[arg(long, value_name = "N", required_unless_present = "new_key", value_parser = clap::value_parser!(u64).range(1..))]
    pub release: Option<u64>,
    /// Site that may take the bundle; given several times for several. Left out: every site may.
    #[arg(long, value_name = "SITE")]
    pub site: Vec<SiteId>,
    /// Bundle to sign.
    #[arg(required_unless_present = "new_key")]
    pub bundle: Option<PathBuf>,
    /// Write the signed bundle here, instead of in place.
    #[arg(long, short, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// A key or bundle that cannot be read or written; [`BadUsage`](crate::BadUsage) for missing arguments.
pub fn run(args: &SignArgs) -> Result<()> {
    if let Some(path) = &args.new_key {
        write_signing_key(path)?;
        let key = SigningKey::from_pkcs8(&read_signing_key(path)?)?;
        return print(&format!("{}\n", key.verifying_key()));
    }
    let (Some(key), Some(number), Some(path)) = (&args.key, args.release, &args.bundle) else {
        let expected = "expected --key FILE, --release N and a bundle, or --new-key FILE";
        return Err(crate::BadUsage(expected.into()).into());
    };
    let release = Release::new(number, args.site.iter().cloned());
    let sites = match release.sites() {
        [] => String::new(),
        sites => format!(" for {}", sites.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
    };
    let key = SigningKey::from_pkcs8(&read_signing_key(key)?)?;
    let bundle = shipped::open_bundle(Some(path))?;
    let out = args.out.as_ref().unwrap_or(path);
    if std::fs::metadata(out).is_ok_and(|found| !found.is_file()) {
        bail!(
            "{}: expected a new file or a regular one, found something else; nothing was written",
            out.display()
        );
    }
    replace_file(out, bundle.signed(&key, release), PUBLIC_MODE)
        .with_context(|| out.display().to_string())?;
    let (network, policy) = (bundle.network_id().short(), bundle.policy_id());
    print(&format!(
        "{}: network {network}, policy {policy}, release {number}{sites}, signed by {}\n",
        out.display(),
        key.verifying_key()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signed_bundle_replaces_no_socket_and_no_device() {
        let folder = tempfile::tempdir().unwrap();
        let (key, bundle) = (folder.path().join("signing.key"), folder.path().join("network.hwb"));
        let out = folder.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&out).unwrap();
        std::fs::write(&bundle, shipped::BUNDLE).unwrap();
        let nothing =
            SignArgs { new_key: None, key: None, release: None, site: Vec::new(), bundle: None, out: None };
        run(&SignArgs { new_key: Some(key.clone()), ..nothing.clone() }).unwrap();
        let sign = |out: PathBuf| {
            run(&SignArgs {
                key: Some(key.clone()),
                release: Some(1),
                bundle: Some(bundle.clone()),
                out: Some(out),
                ..nothing.clone()
            })
        };
        let error = sign(out).unwrap_err().to_string();
        assert!(error.contains("socket: expected a new file or a regular one"), "{error}");
        sign(folder.path().join("signed.hwb")).unwrap();
    }
}
