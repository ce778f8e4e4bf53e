//! Errors of bundles.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::manifest::ManifestError;
use crate::policy::PolicyError;

/// A bundle that cannot be read or written, or that is refused. [`BundleError::Read`] asks for another path,
/// [`BundleError::NotInBundle`] for a bundle with more sections, the others for a fresh copy or another export.
///
/// Each text holds its cause, so no error has a source: programs that print the chain would say the cause twice.
#[derive(Debug, Error)]
pub enum BundleError {
    /// The file cannot be read.
    #[error("reading bundle {}: {reason}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        reason: io::Error,
    },
    /// A bundle or member over the size limit.
    #[error("bundle: {what}: expected at most {limit} bytes, found {found}")]
    Oversize {
        /// The bundle, or a member.
        what: String,
        /// Bytes allowed.
        limit: u64,
        /// Bytes found.
        found: u64,
    },
    /// A signature of format 1.
    #[error(
        "bundle: signature.json: expected a release, found a signature of format 1, which has none: sign it again with `headwater sign --release N`"
    )]
    NoRelease,
    /// A JSON file of too many keys and values.
    #[error("bundle: {member}: expected at most {limit} keys and values, found {found}")]
    Values {
        /// The member.
        member: &'static str,
        /// Keys and values allowed.
        limit: usize,
        /// Brackets, commas and colons found; one stands before each of them.
        found: usize,
    },
    /// The file ends too early.
    #[error("bundle is cut off in {member}: expected at least {expected} bytes in all, found {found}")]
    Truncated {
        /// The member, or the part of the archive, that is cut off.
        member: String,
        /// Bytes the file must have to hold it.
        expected: u64,
        /// Bytes of the file.
        found: u64,
    },
    /// A byte around the members (header, padding, end) differs from the one that the writer puts there.
    #[error("bundle is altered: byte {offset}, {part}: expected {expected:#04x}, found {found:#04x}")]
    Framing {
        /// The header, padding or end.
        part: String,
        /// Position in the file.
        offset: usize,
        /// The writer's byte.
        expected: u8,
        /// The byte found.
        found: u8,
    },
    /// A header field that cannot be read.
    #[error("bundle is altered: {part}: expected {expected}, found {found}")]
    Header {
        /// The header and field.
        part: String,
        /// The expected value.
        expected: &'static str,
        /// The value found, escaped.
        found: String,
    },
    /// Members that are unknown, missing, or out of order.
    #[error("bundle members: expected {expected}, found {found}")]
    Members {
        /// The expected value.
        expected: String,
        /// The members found.
        found: String,
    },
    /// A member whose bytes have another hash.
    #[error("bundle is altered: {member}: expected sha-256 {expected}, found {found}")]
    Altered {
        /// The member.
        member: String,
        /// Expected hash, hex.
        expected: String,
        /// Hash of the bytes found, hex.
        found: String,
    },
    /// A context table that is not as long as the maps of the network ask for.
    #[error("bundle: {member}: expected {expected} bytes, found {found}")]
    ContextTable {
        /// The member.
        member: String,
        /// Bytes of the context table of such maps.
        expected: usize,
        /// Bytes found.
        found: usize,
    },
    /// A bundle of another format version.
    #[error(
        "network.json: format: expected {expected}, found {found}; use the release that wrote it, or export the network again"
    )]
    Format {
        /// Version that this build reads.
        expected: u32,
        /// Version of the file.
        found: u32,
    },
    /// A member that is not the expected JSON.
    #[error("bundle: {member}: {reason}")]
    Json {
        /// The member.
        member: &'static str,
        /// Position and reason.
        reason: serde_json::Error,
    },
    /// `network.json` contradicts itself.
    #[error("bundle: {0}")]
    Manifest(ManifestError),
    /// An invalid `policy.json`.
    #[error("bundle: policy.json: {0}")]
    Policy(PolicyError),
    /// Not a deflate stream.
    #[error("bundle: {member}: expected a deflate stream, found {reason}")]
    Inflate {
        /// The member.
        member: String,
        /// The reason.
        reason: String,
    },
    /// A section of the network that is not in this bundle.
    #[error(
        "section {section} is not in this bundle (it holds {}); take the whole bundle or this tier's part of it",
        list(held)
    )]
    NotInBundle {
        /// The requested section.
        section: String,
        /// The sections in the bundle.
        held: Vec<String>,
    },
    /// A section that the network does not have.
    #[error("section: expected one of {}, found {section:?}", list(known))]
    UnknownSection {
        /// The requested section.
        section: String,
        /// The sections of the network.
        known: Vec<String>,
    },
}

impl From<ManifestError> for BundleError {
    fn from(error: ManifestError) -> Self {
        Self::Manifest(error)
    }
}

impl From<PolicyError> for BundleError {
    fn from(error: PolicyError) -> Self {
        Self::Policy(error)
    }
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "none".into() } else { names.join(", ") }
}
