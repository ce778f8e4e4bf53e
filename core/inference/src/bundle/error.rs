//! Errors of bundles.

use std::fmt::Display;
use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::manifest::ManifestError;
use crate::policy::PolicyError;

/// A bundle that cannot be read or written, or that is refused.
///
/// The text of each error contains the cause, so no error has a `source`: a program that prints the chain would print the cause twice.
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
    /// A bundle that is cut off, altered, over a limit, or with other members than it should have.
    #[error("bundle: {part}: expected {expected}, found {found}")]
    Refused {
        /// The member or the part of the archive, and the fault.
        part: String,
        /// The expected value.
        expected: String,
        /// The value found.
        found: String,
    },
    /// A signature of format 1, which states no release.
    #[error(
        "bundle: signature.json: expected a release, found a signature of format 1, which has none: sign it again with `headwater sign --release N`"
    )]
    NoRelease,
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
    /// A member that is not JSON, or JSON with other fields or values than expected.
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

impl BundleError {
    pub(super) fn refused(part: impl Into<String>, expected: impl Into<String>, found: impl Display) -> Self {
        Self::Refused { part: part.into(), expected: expected.into(), found: found.to_string() }
    }
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
