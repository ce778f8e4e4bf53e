//! State that handle and driver share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use headwater_transport::Connector;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::broker_bytes::Seen;
use crate::config::{LinkConfig, RetainedMessage};
use crate::counts::Counters;
use crate::failure::ConnectFailure;

/// State shared by handle and driver.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Settings of the link, without the retained messages, which are in `retained`.
    pub(crate) config: LinkConfig,
    /// Messages to publish after every connect.
    pub(crate) retained: Mutex<Vec<RetainedMessage>>,
    /// Opens the connections of the link and counts their bytes.
    pub(crate) connector: Connector,
    pub(crate) counters: Counters,
    /// Facts of the latest connection.
    pub(crate) seen: Arc<Mutex<Seen>>,
    pub(crate) is_connected: AtomicBool,
    /// Largest packet that the broker takes, in bytes, from its CONNACK; 0 if the CONNACK names no limit.
    pub(crate) broker_max_packet_bytes: AtomicUsize,
    /// Reason why the latest attempt to connect failed, or the latest connection broke; `None` before the first failure and after a connection.
    pub(crate) failure: watch::Sender<Option<ConnectFailure>>,
}
