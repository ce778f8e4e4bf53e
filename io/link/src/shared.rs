//! State that handle and driver share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use headwater_transport::Connector;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::config::{LinkConfig, RetainedMessage};
use crate::counts::Counters;
use crate::failure::ConnectFailure;

/// State shared by handle and driver.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Its retained messages are in `retained`.
    pub(crate) config: LinkConfig,
    /// Messages to publish after every connect.
    pub(crate) retained: Mutex<Vec<RetainedMessage>>,
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
