//! `signature.json`: an ed25519 signature over the hashes of `network.json` and `policy.json`.
//!
//! `network.json` has the hashes of all sections, so a bundle with the sections of one tier alone verifies too. `report.json` is not
//! covered. The signed message is a fixed line, both SHA-256, the number of the release (u64, little endian), and a line for each site:
//!
//! ```text
//! | "headwater bundle signature 2\n" | 32 B network.json | 32 B policy.json | 8 B release | "north\n" | "south\n" |
//! ```

use std::fmt;

use headwater_protocol::{SiteId, Trust, VerifyingKey, hex, parse_hex};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;

/// First part of the signed message; nothing else that the key signs may begin with this line.
const PURPOSE: &[u8] = b"headwater bundle signature 2\n";

/// Key that signs bundles. It is never printed.
pub struct SigningKey(Ed25519KeyPair);

/// Release of a bundle, as its signature states it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Release {
    /// Number of the release; later ones have higher numbers.
    pub number: u64,
    /// Sites that may take the bundle, in alphabetical order, each once; empty if every site may.
    sites: Vec<SiteId>,
}

/// Content of `signature.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Signature {
    pub(super) key: VerifyingKey,
    pub(super) release: Release,
    /// The signature as 128 hex digits.
    signature: String,
}

/// A bundle that is not trusted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SignatureError {
    /// The bundle has no signature.
    #[error("expected a signature by a trusted key, found none; sign it with `headwater sign`")]
    Missing,
    /// The signature's key is not among the trusted keys.
    #[error("signed by {0}, which is not among `trusted_keys`")]
    Stranger(VerifyingKey),
    /// The signature does not belong to this network, policy, release and list of sites.
    #[error("the signature by {0} is not of this network, policy, release and sites")]
    Wrong(VerifyingKey),
    /// The release is older than the oldest that the program accepts.
    #[error(
        "expected release {expected} or a later one, found release {found}: take the newer bundle, or sign this one with a higher --release"
    )]
    Old {
        /// Lowest release that is accepted.
        expected: u64,
        /// Release of the bundle.
        found: u64,
    },
    /// The bundle is for other sites.
    #[error("expected a bundle for the site {site}, found one for {}: sign it with --site {site} too", .sites.join(", "))]
    OtherSite {
        /// Site of the program.
        site: SiteId,
        /// Sites of the bundle.
        sites: Vec<String>,
    },
}

/// A key that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("key: expected {expected}, found {found}")]
pub struct KeyError {
    expected: &'static str,
    found: String,
}

impl SigningKey {
    /// Reads a key in PKCS#8.
    ///
    /// # Errors
    /// [`KeyError`] for anything but an ed25519 key.
    pub fn from_pkcs8(bytes: &[u8]) -> Result<Self, KeyError> {
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(bytes);
        let pair = pair
            .map_err(|reason| KeyError { expected: "an ed25519 key in PKCS#8", found: reason.to_string() })?;
        Ok(Self(pair))
    }

    /// The public key that verifies signatures by this key.
    pub fn verifying_key(&self) -> VerifyingKey {
        let mut key = [0; 32];
        // ed25519 keys have 32 bytes.
        key.iter_mut().zip(self.0.public_key().as_ref()).for_each(|(to, from)| *to = *from);
        VerifyingKey(key)
    }

    pub(super) fn sign(&self, network: &[u8], policy: &[u8], release: Release) -> Signature {
        let signature = self.0.sign(&message(network, policy, &release));
        Signature { key: self.verifying_key(), release, signature: hex(signature.as_ref()) }
    }
}

impl Signature {
    /// Checks that the key is trusted, then the signature over `network.json` and `policy.json`, the sites and the release.
    pub(super) fn verify(
        &self,
        network: &[u8],
        policy: &[u8],
        trust: &Trust<'_>,
    ) -> Result<(), SignatureError> {
        if !trust.keys.contains(&self.key) {
            return Err(SignatureError::Stranger(self.key));
        }
        let signature = parse_hex::<64>(&self.signature).map_err(|_| SignatureError::Wrong(self.key))?;
        let key = UnparsedPublicKey::new(&ED25519, self.key.0);
        let signed = message(network, policy, &self.release);
        key.verify(&signed, &signature).map_err(|_| SignatureError::Wrong(self.key))?;
        let Release { number, sites } = &self.release;
        if let Some(site) = trust.site.filter(|site| !sites.is_empty() && !sites.contains(site)) {
            let sites = sites.iter().map(ToString::to_string).collect();
            return Err(SignatureError::OtherSite { site: site.clone(), sites });
        }
        if *number < trust.oldest_release {
            return Err(SignatureError::Old { expected: trust.oldest_release, found: *number });
        }
        Ok(())
    }

    /// Content of `signature.json`; equal signatures give equal bytes.
    pub(super) fn render(&self) -> Vec<u8> {
        let Self { key, release: Release { number, sites }, signature } = self;
        // Names of sites need no escapes.
        let sites = sites.iter().map(|site| format!("\"{site}\"")).collect::<Vec<_>>().join(", ");
        let release = format!("{{ \"number\": {number}, \"sites\": [{sites}] }}");
        let fields =
            [("key", format!("\"{key}\"")), ("release", release), ("signature", format!("\"{signature}\""))];
        let lines = fields.map(|(name, value)| format!("  \"{name}\": {value}")).join(",\n");
        format!("{{\n{lines}\n}}\n").into_bytes()
    }
}

impl Release {
    /// A release for these sites, or for every site if none is named.
    pub fn new(number: u64, sites: impl IntoIterator<Item = SiteId>) -> Self {
        let mut sites: Vec<SiteId> = sites.into_iter().collect();
        sites.sort_by(|one, other| one.as_str().cmp(other.as_str()));
        sites.dedup();
        Self { number, sites }
    }

    /// Sites that may take the bundle; empty if every site may.
    pub fn sites(&self) -> &[SiteId] {
        &self.sites
    }
}

fn message(network: &[u8], policy: &[u8], Release { number, sites }: &Release) -> Vec<u8> {
    let hashes = [Sha256::digest(network), Sha256::digest(policy)].concat();
    let sites: String = sites.iter().map(|site| format!("{site}\n")).collect();
    [PURPOSE, &hashes, &number.to_le_bytes(), sites.as_bytes()].concat()
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey(of {})", self.verifying_key())
    }
}
