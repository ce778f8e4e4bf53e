//! TLS by rustls: the identity of a tier, for connections that it opens and for connections that it accepts.
//!
//! The files of an identity may be replaced at any time ([`Reloading`](crate::Reloading)). Open connections go on; the next handshake
//! takes the new files.

mod certificate;
mod client;
mod error;
mod files;
mod identity;
mod objection;
mod pem;
mod server;

use std::sync::{Arc, LazyLock};

use rustls::crypto::CryptoProvider;

pub use certificate::{Certificate, CertificateState, ROLE_PREFIX, renew_command};
pub use client::ClientIdentity;
pub use error::{HandshakeRefused, TlsError};
pub use files::{IdentityFiles, KeyPair};
pub use identity::Identity;
pub use objection::{End, Objection, certified_hosts};
pub use server::{ServerIdentity, ServerSession};

/// The cryptography of every TLS connection: ring.
static PROVIDER: LazyLock<Arc<CryptoProvider>> =
    LazyLock::new(|| Arc::new(rustls::crypto::ring::default_provider()));
