//! Mosquitto's configuration.

use std::path::{Path, PathBuf};

/// Choices for the broker's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerOptions {
    /// Port of the listener with TLS.
    pub port: u16,
    /// Address that the listener binds; empty for every interface.
    pub address: String,
    /// Folder of the broker's files on the broker's machine; `None` if the broker runs on this machine.
    pub folder: Option<PathBuf>,
}

impl Default for BrokerOptions {
    fn default() -> Self {
        Self { port: 8883, address: String::new(), folder: None }
    }
}

/// The configuration file. `folder` is the folder of the broker's files on the broker's machine.
pub(crate) fn configuration(folder: &Path, options: &BrokerOptions) -> String {
    let BrokerOptions { port, address, .. } = options;
    let folder = folder.display();
    format!(
        "# Written by `headwater enroll`; changes are lost. Start: mosquitto -c {folder}/mosquitto.conf
# Mosquitto that is started as root becomes the user mosquitto: give that user this folder (chown -R mosquitto {folder}).
# After members were enrolled or revoked, and after the broker was renewed: kill -HUP reads rules, certificate and list again.
listener {port} {address}
cafile {folder}/authority.pem
certfile {folder}/certificate.pem
keyfile {folder}/key.pem
crlfile {folder}/revoked.crl
require_certificate true
use_subject_as_username true
allow_anonymous false
acl_file {folder}/access.rules
tls_version tlsv1.2

# A message of its own for each small answer; without this they wait up to 40 ms for each other.
set_tcp_nodelay true
# Retained claims and births outlive a restart of the broker.
persistence true
persistence_location {folder}/
autosave_interval 10
max_queued_messages 10000
# The largest of our messages is a few KiB.
max_packet_size 262144
"
    )
}
