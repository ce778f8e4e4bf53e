//! Why a bundle is refused.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::manifest::ManifestError;
use crate::policy::PolicyError;

/// A bundle that cannot be read, written or trusted. After [`BundleError::Read`] another path may help; after
/// [`BundleError::NotInBundle`] a fuller bundle; after the others only a fresh copy or another export.
#[derive(Debug, Error)]
pub enum BundleError {
    /// The file cannot be read.
    #[error("reading bundle {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Larger than is ever read.
    #[error("bundle: {what}: expected at most {limit} bytes, found {found}")]
    Oversize {
        /// The bundle, or a member.
        what: String,
        /// Bytes allowed.
        limit: u64,
        /// Bytes found.
        found: u64,
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
    /// A byte around the members (header, padding, end) is not what the writer puts there.
    #[error("bundle is altered: byte {offset}, {part}: expected {expected:#04x}, found {found:#04x}")]
    Framing {
        /// Which header, padding or end.
        part: String,
        /// Position in the file.
        offset: usize,
        /// The byte the writer puts there.
        expected: u8,
        /// The byte found.
        found: u8,
    },
    /// A header field that cannot be read at all.
    #[error("bundle is altered: {part}: expected {expected}, found {found}")]
    Header {
        /// Which header and field.
        part: String,
        /// What would be right.
        expected: &'static str,
        /// What stands there, escaped.
        found: String,
    },
    /// Members that do not belong, are missing, or are out of order.
    #[error("bundle members: expected {expected}, found {found}")]
    Members {
        /// What would be right.
        expected: String,
        /// What stands there.
        found: String,
    },
    /// A member whose bytes are not those that were hashed.
    #[error("bundle is altered: {member}: expected sha-256 {expected}, found {found}")]
    Altered {
        /// The member.
        member: String,
        /// Hash on record, hex.
        expected: String,
        /// Hash of the bytes found, hex.
        found: String,
    },
    /// Written by another version of this software.
    #[error(
        "network.json: format: expected {expected}, found {found}; use the software version that wrote it, or export again"
    )]
    Format {
        /// Version that this build reads.
        expected: u32,
        /// Version of the file.
        found: u32,
    },
    /// Not the JSON it should be.
    #[error("bundle: {member}: {source}")]
    Json {
        /// The member.
        member: &'static str,
        /// Line, column, expected, found.
        source: serde_json::Error,
    },
    /// `network.json` contradicts itself.
    #[error("bundle: {0}")]
    Manifest(#[from] ManifestError),
    /// `policy.json` cannot be used.
    #[error("bundle: policy.json: {0}")]
    Policy(#[from] PolicyError),
    /// Not a deflate stream.
    #[error("bundle: {member}: expected a deflate stream, found {reason}")]
    Inflate {
        /// The member.
        member: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The network has the section, this bundle does not.
    #[error(
        "section {section} is not in this bundle (it holds {}); take the whole bundle or this tier's part of it",
        list(held)
    )]
    NotInBundle {
        /// The section asked for.
        section: String,
        /// The sections it holds.
        held: Vec<String>,
    },
    /// The network has no such section.
    #[error("section: expected one of {}, found {section:?}", list(known))]
    UnknownSection {
        /// The section asked for.
        section: String,
        /// The sections of the network.
        known: Vec<String>,
    },
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "none".into() } else { names.join(", ") }
}
