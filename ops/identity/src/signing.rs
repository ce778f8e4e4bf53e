//! Files with the key that signs bundles: ed25519, PKCS#8, PEM.

use std::path::Path;

use headwater_transport::SECRET_MODE;
use rcgen::{KeyPair, PKCS_ED25519};

use crate::error::EnrollError;
use crate::files;

/// Writes a new key into a file that only its owner may read.
///
/// # Errors
/// [`EnrollError`]: the file exists, or cannot be written.
pub fn write_signing_key(path: &Path) -> Result<(), EnrollError> {
    if path.exists() {
        return Err(EnrollError::file(path, "exists already; choose another name"));
    }
    let key =
        KeyPair::generate_for(&PKCS_ED25519).map_err(|reason| EnrollError::refused("signing key", reason))?;
    files::write(path, &key.serialize_pem(), SECRET_MODE)
}

/// Reads a key file; returns the key in PKCS#8 (DER).
///
/// # Errors
/// [`EnrollError`]: the file cannot be read, or holds no ed25519 key.
pub fn read_signing_key(path: &Path) -> Result<Vec<u8>, EnrollError> {
    let key = KeyPair::from_pem_and_sign_algo(&files::read(path)?, &PKCS_ED25519);
    let key =
        key.map_err(|reason| EnrollError::file(path, format!("expected an ed25519 key in PEM: {reason}")))?;
    Ok(key.serialize_der())
}
