//! Arguments for the identity of a command at a broker, and for the authorities that it trusts.

use std::path::PathBuf;

use headwater_link::Endpoint;
use headwater_settings::{BrokerSettings, SecuritySettings, TlsSettings};
use headwater_transport::BrokerAccess;

use crate::BadUsage;

/// Identity of the program at a broker, and the authorities that it trusts.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct SecurityArgs {
    /// Certificates of the authorities whose brokers are trusted (PEM); needed for mqtts://.
    #[arg(long, value_name = "FILE")]
    pub tls_authority_file: Option<PathBuf>,
    /// Certificate of this program (PEM), such as an operator's certificate from `headwater enroll`.
    #[arg(long, value_name = "FILE")]
    pub tls_certificate_file: Option<PathBuf>,
    /// Private key of the certificate (PEM).
    #[arg(long, value_name = "FILE")]
    pub tls_key_file: Option<PathBuf>,
    /// Certificates that the authority has revoked (PEM, X509 CRL).
    #[arg(long, value_name = "FILE")]
    pub tls_revoked_file: Option<PathBuf>,
    /// User at the broker, for a program without a certificate.
    #[arg(long, value_name = "NAME")]
    pub broker_user: Option<String>,
    /// File whose first line is the user's password.
    #[arg(long, value_name = "FILE", requires = "broker_user")]
    pub broker_password_file: Option<PathBuf>,
    /// Allow a broker without TLS beyond this machine. Anybody on the way can then read and forge messages.
    #[arg(long)]
    pub insecure: bool,
}

impl SecurityArgs {
    /// Address of a broker with the certificates or the password of these arguments.
    ///
    /// # Errors
    /// Every argument and file that cannot be used.
    pub fn access(&self, broker: &Endpoint) -> Result<BrokerAccess, BadUsage> {
        let security = SecuritySettings {
            insecure: self.insecure,
            trusted_keys: None,
            release_file: None,
            tls: TlsSettings {
                authority_file: self.tls_authority_file.clone(),
                certificate_file: self.tls_certificate_file.clone(),
                key_file: self.tls_key_file.clone(),
                revoked_file: self.tls_revoked_file.clone(),
            },
        };
        let broker = BrokerSettings {
            address: broker.clone(),
            user: self.broker_user.clone(),
            password_file: self.broker_password_file.clone(),
            password: None,
        };
        security.broker_access(&broker).map_err(|mistakes| BadUsage(mistakes.join("; ")))
    }
}
