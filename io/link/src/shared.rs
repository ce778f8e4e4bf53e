//! State that handle and driver share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use headwater_transport::Connector;
use tokio::sync::watch;

use crate::config::LinkConfig;
use crate::counts::Counters;
use crate::failure::ConnectFailure;

/// State shared by handle and driver.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: LinkConfig,
    /// Opens the connections of the link and counts their bytes.
    pub(crate) connector: Connector,
    pub(crate) counters: Counters,
    /// Whether the latest attempt to connect has an open connection, with TLS where the address asks for it.
    pub(crate) is_open: Arc<AtomicBool>,
    pub(crate) is_connected: AtomicBool,
    /// Largest packet of the broker, from its CONNACK; 0 where it names none.
    pub(crate) broker_max_packet_bytes: AtomicUsize,
    /// Why the latest attempt to connect failed; `None` before the first attempt has failed and after a connection.
    pub(crate) failure: watch::Sender<Option<ConnectFailure>>,
}
