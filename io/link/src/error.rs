//! Errors of a link.

use thiserror::Error;

/// Reason why a message was refused, or a link not started.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LinkError {
    /// There is no connection at the moment. The link keeps connecting; publish again after `Incoming::Connected`.
    #[error("publish: no connection to the broker")]
    NotConnected,
    /// The queue of outgoing messages is full.
    #[error("publish: the queue of {limit} messages is full")]
    QueueFull {
        /// `outgoing_messages` of the link's settings.
        limit: usize,
    },
    /// The payload is longer than this link or the broker allows.
    #[error("publish: expected a payload of at most {limit} bytes, found {found}")]
    Oversize {
        /// Bytes allowed.
        limit: usize,
        /// Bytes given.
        found: usize,
    },
    /// The topic or filter is not one that MQTT allows.
    #[error("topic {0:?} is not one that MQTT allows")]
    Topic(String),
    /// A setting is out of range.
    #[error("link settings: {0}")]
    Config(String),
    /// The owner has ended the link.
    #[error("the link is closed")]
    Closed,
}
