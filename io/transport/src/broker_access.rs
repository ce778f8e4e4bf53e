//! Access of a program to its broker.

use crate::connector::Connector;
use crate::endpoint::Endpoint;
use crate::secret::Secret;
use crate::tls::ClientIdentity;

/// Address of a broker, and the certificate and user that a program shows the broker. An [`Endpoint`] converts into access with neither.
#[derive(Clone, Debug)]
pub struct BrokerAccess {
    /// Address of the broker.
    pub address: Endpoint,
    /// Trusted authority and own certificate, for an address with TLS.
    pub identity: Option<ClientIdentity>,
    /// User and password.
    pub credentials: Option<Credentials>,
}

/// User and password of a client.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// Name of the user.
    pub user: String,
    /// The password, read for each connection; `None` for no password.
    pub password: Option<Secret>,
}

impl BrokerAccess {
    /// A connector for one link, which counts the link's bytes.
    pub fn connector(&self) -> Connector {
        Connector::default().with_identity(self.identity.clone())
    }
}

impl From<Endpoint> for BrokerAccess {
    fn from(address: Endpoint) -> Self {
        Self { address, identity: None, credentials: None }
    }
}
