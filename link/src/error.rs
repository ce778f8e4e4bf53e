//! Why a message was not taken, or a link not started.

use thiserror::Error;

/// What a caller can do differently: wait, count, shorten, or correct the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LinkError {
    /// Not connected at the moment; the link keeps trying. Publish again when it says `Connected`.
    #[error("publish: no connection to the broker")]
    Away,
    /// The queue of messages to be written is full.
    #[error("publish: {limit} messages are waiting to be written, no room for another")]
    Busy {
        /// Messages the queue holds.
        limit: usize,
    },
    /// The payload is longer than this link, or the broker, allows. Nothing was sent.
    #[error("publish: expected a payload of at most {limit} bytes, found {found}")]
    Oversize {
        /// Bytes allowed.
        limit: usize,
        /// Bytes given.
        found: usize,
    },
    /// Not an MQTT topic, or not a filter.
    #[error("topic {0:?} is not one that MQTT allows")]
    Topic(String),
    /// A setting that cannot work.
    #[error("link settings: {0}")]
    Config(String),
    /// The link was shut down or killed.
    #[error("the link is closed")]
    Closed,
}
