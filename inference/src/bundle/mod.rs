//! The bundle: one file with everything that a network needs to run. Every change to it is detected.
//!
//! A plain tar. Members, in this order:
//!
//! | member | contents | covered by |
//! | --- | --- | --- |
//! | `network.json` | the [manifest](crate::manifest); its SHA-256 is the network id | `hashes.json` |
//! | `policy.json` | the [policy](crate::policy) | `hashes.json` |
//! | `<section>.onnx` or `<section>.onnx.deflate` | one for each section, stored or deflated, whichever is smaller | `network.json` |
//! | `<section>.packed` | after its ONNX, for a binary section: the [packed form](headwater_kernels::Section) | `network.json` |
//! | `report.json` | training run and metrics; optional | `hashes.json` |
//! | `hashes.json` | SHA-256 of the members that `network.json` does not cover | written anew and compared |
//!
//! Hashes are over the bytes as stored. Members determine the rest of the file (headers, padding, end, `hashes.json`), and a reader
//! accepts no other bytes. So a truncated or altered bundle is refused before any of it is used. The hashes do not prove who made the
//! bundle; a signature would.
//!
//! A tier may have a bundle with its own sections only: same `network.json`, same network id, fewer members.

mod archive;
mod deflate;
mod error;
mod hashes;
mod networks;
#[cfg(test)]
mod tests;
mod writer;

use std::borrow::Cow;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::Path;

use headwater_protocol::{NetworkId, PolicyId};

use crate::manifest::{NetworkManifest, SectionManifest};
use crate::policy::Policy;

pub use error::BundleError;
pub use networks::{Generation, Networks, NetworksError, PerNetwork};
pub use writer::BundleWriter;

/// Largest bundle that is read, in bytes.
pub const MAX_BUNDLE_BYTES: u64 = 256 << 20;

/// Largest `network.json`, `policy.json`, `report.json` or `hashes.json`, in bytes.
pub const MAX_JSON_BYTES: u64 = 16 << 20;

const NETWORK: &str = "network.json";
const POLICY: &str = "policy.json";
const REPORT: &str = "report.json";
const HASHES: &str = "hashes.json";

/// A bundle in memory, verified to the last byte.
#[derive(Clone, Debug)]
pub struct Bundle {
    bytes: Vec<u8>,
    manifest: NetworkManifest,
    network_id: NetworkId,
    policy: Policy,
    policy_id: PolicyId,
    /// Position in `bytes` of each section of the manifest; `None` for one that is not in this bundle.
    sections: Vec<Option<StoredSection>>,
    report: Option<serde_json::Value>,
}

/// One section of a bundle: its manifest and its forms.
#[derive(Clone, Debug)]
pub struct SectionBytes<'a> {
    /// Manifest of the section.
    pub manifest: &'a SectionManifest,
    /// The ONNX file, inflated.
    pub onnx: Cow<'a, [u8]>,
    /// The packed form, where the section has one.
    pub packed: Option<&'a [u8]>,
}

#[derive(Clone, Debug)]
struct StoredSection {
    member: String,
    range: Range<usize>,
    deflated: bool,
    /// Member and range of the packed form.
    packed: Option<(String, Range<usize>)>,
}

impl Bundle {
    /// Reads and verifies a bundle file.
    ///
    /// # Errors
    /// [`BundleError::Read`] when the file cannot be read, else as [`Bundle::from_bytes`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, BundleError> {
        let path = path.as_ref();
        let read = |source| BundleError::Read { path: path.to_owned(), source };
        let file = File::open(path).map_err(read)?;
        let length = file.metadata().map_err(read)?.len();
        check_limit("the bundle", MAX_BUNDLE_BYTES, length)?;
        let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
        // The limit holds again for a file that grows or that has no length.
        file.take(MAX_BUNDLE_BYTES + 1).read_to_end(&mut bytes).map_err(read)?;
        Self::verified(bytes)
    }

    /// Verifies a bundle in memory.
    ///
    /// # Errors
    /// [`BundleError`] with the member, the expected and the found value, for a bundle that is cut off, altered, over a limit, out of
    /// order or contradictory.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, BundleError> {
        check_limit("the bundle", MAX_BUNDLE_BYTES, bytes.len() as u64)?;
        Self::verified(bytes.to_vec())
    }

    fn verified(bytes: Vec<u8>) -> Result<Self, BundleError> {
        check_limit("the bundle", MAX_BUNDLE_BYTES, bytes.len() as u64)?;
        let members = archive::read(&bytes)?;
        let verified = hashes::verify(&bytes, &members)?;
        let manifest = parse_manifest(verified.network)?;
        let policy: Policy = parse(POLICY, verified.policy)?;
        policy.check()?;
        let report = verified.report.map(|stored| parse(REPORT, stored)).transpose()?;
        let sections = find_sections(&bytes, &manifest, verified.sections)?;
        let (network_id, policy_id) = (hashes::network_id(verified.network), Policy::id_of(verified.policy));
        Ok(Self { manifest, network_id, policy, policy_id, sections, report, bytes })
    }

    /// Manifest of the network.
    pub fn manifest(&self) -> &NetworkManifest {
        &self.manifest
    }

    /// SHA-256 of `network.json` as stored.
    pub fn network_id(&self) -> NetworkId {
        self.network_id
    }

    /// The policy in the bundle.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Id of [`Bundle::policy`].
    pub fn policy_id(&self) -> PolicyId {
        self.policy_id
    }

    /// The training report, if there is one.
    pub fn report(&self) -> Option<&serde_json::Value> {
        self.report.as_ref()
    }

    /// Bytes of the whole file.
    pub fn stored_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Size of a section in the file; `None` for one that is not in this bundle.
    pub fn stored_section_bytes(&self, name: &str) -> Option<usize> {
        self.stored_section(name).ok().map(|(_, stored)| stored.range.len())
    }

    /// Size of a section's packed form; `None` for a section without one or not in this bundle.
    pub fn packed_section_bytes(&self, name: &str) -> Option<usize> {
        let (_, stored) = self.stored_section(name).ok()?;
        stored.packed.as_ref().map(|(_, range)| range.len())
    }

    /// A section, inflated.
    ///
    /// # Errors
    /// [`BundleError::NotInBundle`] or [`BundleError::UnknownSection`] for a section that is not in the bundle or not in the network;
    /// [`BundleError::Inflate`] or [`BundleError::Oversize`] for one that was deflated wrongly.
    pub fn section(&self, name: &str) -> Result<SectionBytes<'_>, BundleError> {
        let (manifest, section) = self.stored_section(name)?;
        let stored = &self.bytes[section.range.clone()];
        let limit = deflate::max_onnx_bytes(manifest);
        let onnx = if section.deflated {
            Cow::Owned(deflate::inflate(&section.member, stored, limit)?)
        } else {
            check_limit(&section.member, limit, stored.len() as u64)?;
            Cow::Borrowed(stored)
        };
        let packed = section.packed.as_ref().map(|(_, range)| &self.bytes[range.clone()]);
        Ok(SectionBytes { manifest, onnx, packed })
    }

    /// The same bundle with only the named sections. The network id stays.
    ///
    /// # Errors
    /// As [`Bundle::section`], for a section that is not in this bundle.
    pub fn only(&self, names: &[&str]) -> Result<Vec<u8>, BundleError> {
        for name in names {
            self.stored_section(name)?;
        }
        let dropped: Vec<&str> = self
            .manifest
            .sections
            .iter()
            .zip(&self.sections)
            .filter(|(section, _)| !names.contains(&section.name.as_str()))
            .filter_map(|(_, stored)| stored.as_ref())
            .flat_map(|stored| {
                let packed = stored.packed.as_ref().map(|(member, _)| member.as_str());
                std::iter::once(stored.member.as_str()).chain(packed)
            })
            .collect();
        let members = archive::read(&self.bytes)?;
        let kept = members.iter().filter(|member| !dropped.contains(&member.name));
        Ok(archive::write(kept.map(|member| (member.name, &self.bytes[member.range.clone()]))))
    }

    fn stored_section(&self, name: &str) -> Result<(&SectionManifest, &StoredSection), BundleError> {
        let known = self.manifest.sections.iter().zip(&self.sections);
        let Some((manifest, stored)) = known.into_iter().find(|(section, _)| section.name == name) else {
            let known = self.manifest.sections.iter().map(|section| section.name.clone()).collect();
            return Err(BundleError::UnknownSection { section: name.into(), known });
        };
        match stored {
            Some(stored) => Ok((manifest, stored)),
            None => {
                let all = self.manifest.sections.iter().zip(&self.sections);
                let held =
                    all.filter(|(_, stored)| stored.is_some()).map(|(section, _)| section.name.clone());
                Err(BundleError::NotInBundle { section: name.into(), held: held.collect() })
            }
        }
    }
}

/// Checks the hash of each section's members and finds their sections. Members must have the manifest's order.
fn find_sections(
    bytes: &[u8],
    manifest: &NetworkManifest,
    members: &[archive::Member<'_>],
) -> Result<Vec<Option<StoredSection>>, BundleError> {
    let mut rest = members.iter().peekable();
    let mut sections = Vec::with_capacity(manifest.sections.len());
    for section in &manifest.sections {
        let deflated_name = format!("{}.onnx.deflate", section.name);
        let stored_name = format!("{}.onnx", section.name);
        let Some(onnx) = rest.next_if(|member| member.name == deflated_name || member.name == stored_name)
        else {
            sections.push(None);
            continue;
        };
        check_hash(bytes, onnx, &section.sha256)?;
        let packed_name = format!("{}.packed", section.name);
        let packed = rest.next_if(|member| member.name == packed_name);
        match (packed, &section.packed_sha256) {
            (Some(packed), Some(expected)) => check_hash(bytes, packed, expected)?,
            (None, None) => {}
            (packed, expected) => {
                let named = |is: bool| if is { packed_name.clone() } else { format!("no {packed_name}") };
                return Err(BundleError::Members {
                    expected: format!("{}, as network.json says", named(expected.is_some())),
                    found: named(packed.is_some()),
                });
            }
        }
        let stored = Some(StoredSection {
            member: onnx.name.to_owned(),
            range: onnx.range.clone(),
            deflated: onnx.name == deflated_name,
            packed: packed.map(|member| (member.name.to_owned(), member.range.clone())),
        });
        sections.push(stored);
    }
    match rest.next() {
        None => Ok(sections),
        Some(member) => Err(BundleError::Members {
            expected: "sections of network.json, each at most once and in its order".into(),
            found: member.name.escape_default().to_string(),
        }),
    }
}

fn check_hash(bytes: &[u8], member: &archive::Member<'_>, expected: &str) -> Result<(), BundleError> {
    let found = hashes::hex_sha256(&bytes[member.range.clone()]);
    if found == expected {
        return Ok(());
    }
    Err(BundleError::Altered { member: member.name.to_owned(), expected: expected.to_owned(), found })
}

fn parse_manifest(stored: &[u8]) -> Result<NetworkManifest, BundleError> {
    /// The version is read first: a newer file must be refused for its version, not for an unknown key.
    #[derive(serde::Deserialize)]
    struct Version {
        format: u32,
    }
    let version: Version = parse(NETWORK, stored)?;
    if version.format != crate::manifest::FORMAT_VERSION {
        return Err(BundleError::Format { expected: crate::manifest::FORMAT_VERSION, found: version.format });
    }
    let manifest: NetworkManifest = parse(NETWORK, stored)?;
    manifest.check()?;
    Ok(manifest)
}

fn parse<'a, T: serde::Deserialize<'a>>(member: &'static str, stored: &'a [u8]) -> Result<T, BundleError> {
    serde_json::from_slice(stored).map_err(|source| BundleError::Json { member, source })
}

fn check_limit(what: &str, limit: u64, found: u64) -> Result<(), BundleError> {
    if found > limit { Err(BundleError::Oversize { what: what.into(), limit, found }) } else { Ok(()) }
}
