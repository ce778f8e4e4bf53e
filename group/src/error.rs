//! Errors of the group client.

use std::time::Duration;

use headwater_link::{ConnectFailure, Endpoint, LinkError};
use headwater_protocol::EncodeError;
use thiserror::Error;

/// A failed operation of a [`GroupClient`](crate::GroupClient).
#[derive(Debug, Error)]
pub enum GroupError {
    /// The broker did not accept the client in time.
    #[error(
        "no connection to {broker} within {limit:?}: {failure}: is a broker there? Start one, or name the address of one that runs"
    )]
    NotConnected {
        /// Address of the broker.
        broker: Endpoint,
        /// Time waited.
        limit: Duration,
        /// The latest failure.
        failure: Box<ConnectFailure>,
    },
    /// The broker answers, and refuses the client until somebody changes something.
    #[error("{broker}: {failure}")]
    Refused {
        /// Address of the broker.
        broker: Endpoint,
        /// The refusal, and what to do.
        failure: Box<ConnectFailure>,
    },
    /// The connection refuses its settings or a message.
    #[error("connection to the broker: {0}")]
    Link(#[from] LinkError),
    /// A trigger cannot be encoded.
    #[error("trigger: {0}")]
    Encode(#[from] EncodeError),
    /// The connection has ended for good.
    #[error("the connection to the broker has ended")]
    Closed,
    /// A message of the leader cannot be read.
    #[error("message on {topic}: {source}")]
    Message {
        /// Topic of the message.
        topic: String,
        /// Position and kind of the mistake.
        source: serde_json::Error,
    },
    /// An expected event did not come in time.
    #[error("waited {limit:?} for {expected}, found {found}")]
    TimedOut {
        /// The expected event.
        expected: String,
        /// State at the end of the wait.
        found: String,
        /// Time waited.
        limit: Duration,
    },
}
