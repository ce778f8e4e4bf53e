//! The bundle: one file with everything that a network needs to run. Every change to the file is detected, in
//! `signature.json` by [`Bundle::check_signature`].
//!
//! The file is an uncompressed tar archive with these members, in this order:
//!
//! | member | contents | covered by |
//! | --- | --- | --- |
//! | `network.json` | the [manifest](crate::manifest); its SHA-256 is the network id | `hashes.json` |
//! | `policy.json` | the [policies](crate::policy) | `hashes.json` |
//! | `<section>.onnx` or `<section>.onnx.deflate` | one for each section, stored or deflated, whichever is smaller | `network.json` |
//! | `<section>.packed` | after the section's ONNX, for a binary section: the [packed form](headwater_kernels::Section) | `network.json` |
//! | `<section>.contexts` | after its packed form, for a device that codes its map: the [context table](headwater_map_coder::ContextTable) | `network.json` |
//! | `report.json` | training run and metrics; optional | `hashes.json` |
//! | `hashes.json` | SHA-256 of `network.json`, `policy.json` and `report.json` | written anew and compared |
//! | `training-weights` | the weights as trained, for further training; optional, read by no tier | its last 32 bytes: SHA-256 of the bytes before |
//! | `signature.json` | ed25519 signature of network and policy; optional | the signature |
//!
//! Hashes are over the bytes as stored. The members determine all other bytes (headers, padding, end, `hashes.json`), and a reader
//! refuses a file in which these bytes differ. So a truncated or altered bundle is refused before any of it is used. The hashes do not
//! prove who made the bundle; a signature by a trusted key does ([`Bundle::check_signature`]).
//!
//! A tier may have a bundle with its own sections only: same `network.json`, same network id, fewer members.

mod archive;
mod deflate;
mod error;
mod hashes;
mod networks;
mod signature;
#[cfg(test)]
mod tests;
mod writer;

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use headwater_map_coder::CONTEXTS;
use headwater_protocol::{NetworkId, PolicyId, VerifyingKey};

use crate::manifest::{NetworkManifest, SectionManifest};
use crate::policy::{Policies, Policy};
use crate::regular_file;
use archive::Member;
use signature::Signature;

pub use error::BundleError;
pub use headwater_protocol::Trust;
pub use networks::{Generation, Networks, NetworksError, OpenedBundles, PerNetwork};
pub use signature::{KeyError, Release, SignatureError, SigningKey};
pub use writer::BundleWriter;

/// Largest bundle that is read, in bytes.
pub const MAX_BUNDLE_BYTES: u64 = 256 << 20;

/// Largest JSON member of a bundle, in bytes.
pub const MAX_JSON_BYTES: u64 = 16 << 20;

/// Largest number of keys and values in a JSON member. A key or value may take a hundred times as many bytes in memory as in the file.
pub const MAX_JSON_VALUES: usize = 1 << 18;

const NETWORK: &str = "network.json";
const POLICY: &str = "policy.json";
const REPORT: &str = "report.json";
const HASHES: &str = "hashes.json";
const SIGNATURE: &str = "signature.json";
const WEIGHTS: &str = "training-weights";

/// A verified bundle in memory.
#[derive(Clone, Debug)]
pub struct Bundle {
    bytes: Vec<u8>,
    manifest: NetworkManifest,
    network_id: NetworkId,
    policies: Policies,
    policy_id: PolicyId,
    members: Vec<Member>,
    /// Context tables by section; the coders of a service share a table.
    contexts: HashMap<String, Arc<[u8]>>,
    report: Option<serde_json::Value>,
    signature: Option<Signature>,
}

/// One section of a bundle: its manifest and its forms.
#[derive(Clone, Debug)]
pub struct SectionBytes<'a> {
    /// Manifest of the section.
    pub manifest: &'a SectionManifest,
    /// The ONNX file, inflated.
    pub onnx: Cow<'a, [u8]>,
    /// The packed form; `None` for a section without one.
    pub packed: Option<&'a [u8]>,
}

impl Bundle {
    /// Reads and verifies a bundle file.
    ///
    /// # Errors
    /// [`BundleError::Read`] when the file cannot be read, else as [`Bundle::from_bytes`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, BundleError> {
        let path = path.as_ref();
        let read = |reason| BundleError::Read { path: path.to_owned(), reason };
        let (file, length) = regular_file::open(path).map_err(read)?;
        check_limit("the bundle", MAX_BUNDLE_BYTES, length)?;
        let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
        // Limited again, because the file may have grown or report no length.
        file.take(MAX_BUNDLE_BYTES + 1).read_to_end(&mut bytes).map_err(read)?;
        Self::verified(bytes)
    }

    /// Verifies a bundle in memory.
    ///
    /// # Errors
    /// [`BundleError`] for a bundle that is cut off, altered, over a limit, out of order or contradictory.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, BundleError> {
        check_limit("the bundle", MAX_BUNDLE_BYTES, bytes.len() as u64)?;
        Self::verified(bytes.to_vec())
    }

    fn verified(bytes: Vec<u8>) -> Result<Self, BundleError> {
        check_limit("the bundle", MAX_BUNDLE_BYTES, bytes.len() as u64)?;
        let members = archive::read(&bytes)?;
        let verified = hashes::verify(&bytes, &members)?;
        let manifest = parse_manifest(verified.network)?;
        let policies: Policies = parse(POLICY, verified.policy)?;
        policies.check(manifest.exits())?;
        let report = verified.report.map(|stored| parse(REPORT, stored)).transpose()?;
        let signature = verified.signature.map(read_signature).transpose()?;
        check_sections(&bytes, &manifest, verified.sections)?;
        let (network_id, policy_id) = (hashes::network_id(verified.network), policies.in_use().id());
        let contexts = members.iter().filter_map(|member| {
            Some((member.section_of_contexts()?.to_owned(), member.bytes_in(&bytes).into()))
        });
        let contexts = contexts.collect();
        Ok(Self { manifest, network_id, policies, policy_id, members, contexts, report, signature, bytes })
    }

    /// Manifest of the network.
    pub fn manifest(&self) -> &NetworkManifest {
        &self.manifest
    }

    /// SHA-256 of `network.json` as stored.
    pub fn network_id(&self) -> NetworkId {
        self.network_id
    }

    /// The policies of the bundle.
    pub fn policies(&self) -> &Policies {
        &self.policies
    }

    /// The policy in use.
    pub fn policy(&self) -> &Policy {
        self.policies.in_use()
    }

    /// Id of [`Bundle::policy`].
    pub fn policy_id(&self) -> PolicyId {
        self.policy_id
    }

    /// The training report; `None` for a bundle without one.
    pub fn report(&self) -> Option<&serde_json::Value> {
        self.report.as_ref()
    }

    /// The key that the bundle's signature names; `None` for an unsigned bundle. The signature is not checked here.
    pub fn signed_by(&self) -> Option<VerifyingKey> {
        self.signature.as_ref().map(|signature| signature.key)
    }

    /// Release that the bundle's signature states; `None` for an unsigned bundle. The signature is not checked here.
    pub fn release(&self) -> Option<&Release> {
        self.signature.as_ref().map(|signature| &signature.release)
    }

    /// A line for people with network, policy and signature.
    pub fn summary(&self) -> String {
        let (network, name) = (self.network_id().short(), &self.manifest().name);
        let signed = match self.signed_by().zip(self.release()) {
            Some((key, release)) => format!("release {}, signed by {key:.12}", release.number),
            None => "not signed".into(),
        };
        format!("network {network} ({name}), policy {}, {signed}", self.policy_id())
    }

    /// Checks that a trusted key signed network and policy, that this site may take them, and that the release is not too old.
    ///
    /// # Errors
    /// [`SignatureError`] without a signature, or with one by another key, of another network or policy, of an earlier release or for other
    /// sites.
    pub fn check_signature(&self, trust: &Trust<'_>) -> Result<(), SignatureError> {
        let signature = self.signature.as_ref().ok_or(SignatureError::Missing)?;
        signature.verify(self.stored(NETWORK), self.stored(POLICY), trust)
    }

    /// The weights as trained, which end with their SHA-256; `None` for a bundle without them.
    ///
    /// # Errors
    /// [`BundleError::Refused`] for weights in a signed bundle, whose signature does not cover them.
    pub fn training_weights(&self) -> Result<Option<&[u8]>, BundleError> {
        let weights = self.stored_weights();
        if weights.is_none() || self.signature.is_none() {
            return Ok(weights);
        }
        let found = "those of a signed bundle, which its signature does not cover; give the run folder";
        Err(BundleError::refused(WEIGHTS, "weights of a run folder or of an unsigned bundle", found))
    }

    fn stored_weights(&self) -> Option<&[u8]> {
        let weights = self.members.iter().find(|member| member.name == WEIGHTS);
        weights.map(|member| member.bytes_in(&self.bytes))
    }

    /// The same bundle with the weights as trained. A signature does not cover weights.
    ///
    /// # Errors
    /// [`BundleError::Refused`] for weights that do not end with the SHA-256 of the bytes before, or when the bundle gets too large.
    pub fn with_training_weights(&self, weights: &[u8]) -> Result<Vec<u8>, BundleError> {
        let others = self.members.iter().filter(|member| member.name != WEIGHTS);
        let mut members: Vec<(&str, &[u8])> =
            others.map(|member| (member.name.as_str(), member.bytes_in(&self.bytes))).collect();
        let at = members.iter().position(|(name, _)| *name == SIGNATURE).unwrap_or(members.len());
        members.insert(at, (WEIGHTS, weights));
        let bytes = archive::write(members);
        Self::from_bytes(&bytes)?;
        Ok(bytes)
    }

    /// The same bundle with a signature by this key, which replaces any earlier signature.
    pub fn signed(&self, key: &SigningKey, release: Release) -> Vec<u8> {
        let signature = key.sign(self.stored(NETWORK), self.stored(POLICY), release).render();
        let members = self.members.iter().filter(|member| member.name != SIGNATURE);
        let members = members.map(|member| (member.name.as_str(), member.bytes_in(&self.bytes)));
        archive::write(members.chain([(SIGNATURE, signature.as_slice())]))
    }

    /// The same bundle with these policies, and without a signature, which would cover the earlier policies.
    ///
    /// # Errors
    /// [`BundleError`] for a policy that cannot be used.
    pub fn with_policies(&self, policies: &Policies) -> Result<Vec<u8>, BundleError> {
        policies.check(self.manifest.exits())?;
        let policy = writer::json(POLICY, policies)?;
        let is_kept = |member: &&Member| ![SIGNATURE, HASHES, WEIGHTS].contains(&member.name.as_str());
        let kept = self.members.iter().filter(is_kept);
        let members = kept.map(|member| match member.name.as_str() {
            POLICY => (POLICY, policy.as_slice()),
            name => (name, member.bytes_in(&self.bytes)),
        });
        let covered = members.clone().filter(|(name, _)| [NETWORK, POLICY, REPORT].contains(name));
        let hashes = hashes::render(covered);
        let weights = self.stored_weights().map(|weights| (WEIGHTS, weights));
        Ok(archive::write(members.chain([(HASHES, hashes.as_slice())]).chain(weights)))
    }

    /// The bytes of a member; callers ask only for members that every bundle has.
    fn stored(&self, name: &str) -> &[u8] {
        let member = self.members.iter().find(|member| member.name == name);
        member.map(|member| member.bytes_in(&self.bytes)).unwrap_or_default()
    }

    /// Number of bytes of the whole file.
    pub fn stored_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Number of bytes of a section's ONNX as stored; `None` for a section that is not in this bundle.
    pub fn stored_section_bytes(&self, name: &str) -> Option<usize> {
        self.stored_section(name).ok().map(|(_, onnx)| onnx.range.len())
    }

    /// Number of bytes of a section's packed form; `None` for a section without one or not in this bundle.
    pub fn packed_section_bytes(&self, name: &str) -> Option<usize> {
        self.packed_section(name).map(<[u8]>::len)
    }

    /// The packed form of a section; `None` for a section without one or not in this bundle.
    pub fn packed_section(&self, name: &str) -> Option<&[u8]> {
        let packed = self.members.iter().find(|member| member.is_packed_of(name));
        packed.map(|member| member.bytes_in(&self.bytes))
    }

    /// The context table of a device's map; `None` if messages carry the map uncoded, and for a section that is not in this bundle.
    pub fn contexts(&self, name: &str) -> Option<&Arc<[u8]>> {
        self.contexts.get(name)
    }

    /// A section with its ONNX inflated.
    ///
    /// # Errors
    /// [`BundleError::NotInBundle`] or [`BundleError::UnknownSection`] for a section that is not in the bundle or not in the network;
    /// [`BundleError::Refused`] for ONNX that does not inflate or is over its limit.
    pub fn section(&self, name: &str) -> Result<SectionBytes<'_>, BundleError> {
        let (manifest, member) = self.stored_section(name)?;
        let stored = member.bytes_in(&self.bytes);
        let limit = deflate::max_onnx_bytes(manifest);
        let onnx = if member.name.ends_with(".deflate") {
            Cow::Owned(deflate::inflate(&member.name, stored, limit)?)
        } else {
            check_limit(&member.name, limit, stored.len() as u64)?;
            Cow::Borrowed(stored)
        };
        Ok(SectionBytes { manifest, onnx, packed: self.packed_section(name) })
    }

    /// The same bundle with only the named sections, and without the weights as trained. The network id stays.
    ///
    /// # Errors
    /// As [`Bundle::section`], for a section that is not in this bundle.
    pub fn only(&self, names: &[&str]) -> Result<Vec<u8>, BundleError> {
        for name in names {
            self.stored_section(name)?;
        }
        let is_kept = |member: &&Member| {
            let mut sections = self.manifest.sections.iter().map(|section| section.name.as_str());
            let section = sections.find(|name| {
                member.is_onnx_of(name)
                    || member.is_packed_of(name)
                    || member.section_of_contexts() == Some(*name)
            });
            member.name != WEIGHTS && section.is_none_or(|name| names.contains(&name))
        };
        let kept = self.members.iter().filter(is_kept);
        Ok(archive::write(kept.map(|member| (member.name.as_str(), member.bytes_in(&self.bytes)))))
    }

    /// A section of the network, and the member with its ONNX.
    fn stored_section(&self, name: &str) -> Result<(&SectionManifest, &Member), BundleError> {
        let names = self.manifest.sections.iter().map(|section| &section.name);
        let Some(manifest) = self.manifest.section(name) else {
            return Err(BundleError::UnknownSection {
                section: name.into(),
                known: names.cloned().collect(),
            });
        };
        let onnx_of = |name: &str| self.members.iter().find(|member| member.is_onnx_of(name));
        onnx_of(name).map(|onnx| (manifest, onnx)).ok_or_else(|| {
            let held = names.filter(|name| onnx_of(name).is_some()).cloned().collect();
            BundleError::NotInBundle { section: name.into(), held }
        })
    }
}

/// Checks the hash of each section's members. Members must have the manifest's order.
fn check_sections(bytes: &[u8], manifest: &NetworkManifest, members: &[Member]) -> Result<(), BundleError> {
    let mut rest = members.iter().peekable();
    for section in &manifest.sections {
        let Some(onnx) = rest.next_if(|member| member.is_onnx_of(&section.name)) else { continue };
        check_hash(bytes, onnx, &section.sha256)?;
        let packed = rest.next_if(|member| member.is_packed_of(&section.name));
        check_form(bytes, section, "packed", packed, section.packed_sha256.as_deref())?;
        let contexts = rest.next_if(|member| member.section_of_contexts() == Some(section.name.as_str()));
        check_form(bytes, section, "contexts", contexts, section.contexts_sha256.as_deref())?;
        if let Some(contexts) = contexts {
            check_context_table(manifest, &contexts.name, contexts.bytes_in(bytes))?;
        }
    }
    match rest.next() {
        None => Ok(()),
        Some(member) => {
            let expected = "sections of network.json, each at most once and in its order";
            Err(BundleError::refused("members", expected, member.name.escape_default()))
        }
    }
}

/// Checks the length of a context table.
fn check_context_table(manifest: &NetworkManifest, member: &str, table: &[u8]) -> Result<(), BundleError> {
    let (expected, found) = (manifest.features.channels as usize * CONTEXTS, table.len());
    if expected == found {
        return Ok(());
    }
    Err(BundleError::refused(member, format!("{expected} bytes"), found))
}

/// Checks the packed form or the context table of a section: the member is there exactly if `network.json` has its hash.
fn check_form(
    bytes: &[u8],
    section: &SectionManifest,
    form: &str,
    member: Option<&Member>,
    expected: Option<&str>,
) -> Result<(), BundleError> {
    match (member, expected) {
        (Some(member), Some(expected)) => check_hash(bytes, member, expected),
        (None, None) => Ok(()),
        (member, expected) => {
            let name = format!("{}.{form}", section.name);
            let named = |is: bool| if is { name.clone() } else { format!("no {name}") };
            let expected = format!("{}, as network.json says", named(expected.is_some()));
            Err(BundleError::refused("members", expected, named(member.is_some())))
        }
    }
}

fn check_hash(bytes: &[u8], member: &Member, expected: &str) -> Result<(), BundleError> {
    let found = hashes::hex_sha256(member.bytes_in(bytes));
    if found == expected {
        return Ok(());
    }
    Err(hashes::altered(&member.name, expected, found))
}

fn parse_manifest(stored: &[u8]) -> Result<NetworkManifest, BundleError> {
    /// The version is read first, because a newer file must be refused for its version, not for an unknown key.
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

fn read_signature(stored: &[u8]) -> Result<Signature, BundleError> {
    /// A signature of format 1 states no release.
    #[derive(serde::Deserialize)]
    struct Form {
        release: Option<serde::de::IgnoredAny>,
    }
    if parse::<Form>(SIGNATURE, stored)?.release.is_none() {
        return Err(BundleError::NoRelease);
    }
    let signature: Signature = parse(SIGNATURE, stored)?;
    let rendered = signature.render();
    if rendered == stored {
        return Ok(signature);
    }
    Err(hashes::altered(SIGNATURE, &hashes::hex_sha256(&rendered), hashes::hex_sha256(stored)))
}

fn parse<'a, T: serde::Deserialize<'a>>(member: &'static str, stored: &'a [u8]) -> Result<T, BundleError> {
    check_values(member, stored)?;
    serde_json::from_slice(stored).map_err(|reason| BundleError::Json { member, reason })
}

/// Refuses JSON with more than [`MAX_JSON_VALUES`] keys and values, counted by the characters before them. Such characters in strings
/// count too.
fn check_values(member: &'static str, stored: &[u8]) -> Result<(), BundleError> {
    let found = stored.iter().filter(|byte| matches!(byte, b'[' | b'{' | b',' | b':')).count();
    if found > MAX_JSON_VALUES {
        let expected = format!("at most {MAX_JSON_VALUES} keys and values");
        Err(BundleError::refused(member, expected, found))
    } else {
        Ok(())
    }
}

fn check_limit(what: &str, limit: u64, found: u64) -> Result<(), BundleError> {
    if found > limit {
        return Err(BundleError::refused(what, format!("at most {limit} bytes"), found));
    }
    Ok(())
}
