//! `signature.json`: an ed25519 signature over the hashes of `network.json` and `policy.json`.
//!
//! These two name the hashes of all that decides, so a part of a bundle with the sections of one tier verifies too. `report.json` is not
//! covered. The signed message is a fixed line, then both SHA-256:
//!
//! ```text
//! | "headwater bundle signature 1\n" | 32 B network.json | 32 B policy.json |
//! ```

use std::fmt;

use headwater_protocol::{VerifyingKey, hex, parse_hex};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;

/// First part of the signed message; nothing else that the key signs may begin with it.
const PURPOSE: &[u8] = b"headwater bundle signature 1\n";

/// Key that signs bundles. It is never printed.
pub struct SigningKey(Ed25519KeyPair);

/// Content of `signature.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Signature {
    /// The key that verifies it.
    pub(super) key: VerifyingKey,
    /// 128 hex digits.
    signature: String,
}

/// Why a bundle is not trusted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SignatureError {
    /// It has no signature.
    #[error("expected a signature by a trusted key, found none; sign it with `headwater sign`")]
    Missing,
    /// The key is not among those that are trusted.
    #[error("signed by {0}, which is not among `trusted_keys`")]
    Stranger(VerifyingKey),
    /// The signature does not belong to this network and policy.
    #[error("the signature by {0} is not of this network and policy")]
    Wrong(VerifyingKey),
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

    /// The key that verifies what this one signs.
    pub fn verifying_key(&self) -> VerifyingKey {
        let mut key = [0; 32];
        // ed25519 keys have 32 bytes.
        key.iter_mut().zip(self.0.public_key().as_ref()).for_each(|(to, from)| *to = *from);
        VerifyingKey(key)
    }

    pub(super) fn sign(&self, network: &[u8], policy: &[u8]) -> Signature {
        let signature = self.0.sign(&message(network, policy));
        Signature { key: self.verifying_key(), signature: hex(signature.as_ref()) }
    }
}

impl Signature {
    /// Checks the signature against the bytes of `network.json` and `policy.json`.
    pub(super) fn verify(
        &self,
        network: &[u8],
        policy: &[u8],
        trusted: &[VerifyingKey],
    ) -> Result<(), SignatureError> {
        if !trusted.contains(&self.key) {
            return Err(SignatureError::Stranger(self.key));
        }
        let signature = parse_hex::<64>(&self.signature).map_err(|_| SignatureError::Wrong(self.key))?;
        let key = UnparsedPublicKey::new(&ED25519, self.key.0);
        key.verify(&message(network, policy), &signature).map_err(|_| SignatureError::Wrong(self.key))
    }

    /// Content of the member; equal signatures give equal bytes.
    pub(super) fn render(&self) -> Vec<u8> {
        let Self { key, signature } = self;
        format!("{{\n  \"key\": \"{key}\",\n  \"signature\": \"{signature}\"\n}}\n").into_bytes()
    }
}

fn message(network: &[u8], policy: &[u8]) -> Vec<u8> {
    [PURPOSE, &Sha256::digest(network), &Sha256::digest(policy)].concat()
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey(of {})", self.verifying_key())
    }
}
