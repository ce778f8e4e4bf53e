//! Events of a link.

use bytes::Bytes;
use thiserror::Error;

/// An event of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// The broker has accepted the subscriptions; the retained messages are queued.
    Connected,
    /// A message arrived.
    Message {
        /// Topic of the message.
        topic: String,
        /// Payload of the message, within the configured limit.
        payload: Bytes,
        /// True when the broker had kept the message from before the subscription.
        retain: bool,
    },
    /// The broker refused a message that was published at `QoS` 1; the connection goes on. A message of
    /// [`Link::publish_acknowledged`](crate::Link::publish_acknowledged) gets no such event.
    Refused {
        /// Topic of the refused message.
        topic: String,
        /// The broker's reason.
        reason: PublishRefusal,
    },
    /// An established connection has ended; the link connects again.
    Disconnected {
        /// Reason, for people.
        reason: String,
        /// True when the broker ended the connection because of a message, which would end the next connection too.
        by_message: bool,
    },
}

/// Reason why the broker refused a message.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PublishRefusal {
    /// The broker's access rules do not allow this client to publish on the topic.
    #[error("not authorized")]
    NotAuthorized,
    /// Another reason, as text with the name and the number of the reason code.
    #[error("{0}")]
    Other(String),
}
