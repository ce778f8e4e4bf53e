//! Errors of the group client.

use std::time::Duration;

use headwater_link::{ConnectFailure, Endpoint, LinkError};
use thiserror::Error;

fn role_words(names: &[&str]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    format!("the role {}", quoted.join(" or "))
}

/// A failed operation of a [`GroupClient`](crate::GroupClient).
#[derive(Debug, Error)]
pub enum GroupError {
    /// The broker did not accept the client in time.
    #[error("no connection to {broker} within {limit:?}: {failure}{}", advice(failure))]
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
        /// The refusal; its text says what to do.
        failure: Box<ConnectFailure>,
    },
    /// The broker's access rules forbid a publication or a subscription of the client.
    #[error(
        "{broker}: the broker refuses this client on the topic {topic}: {reason}; {role} of the group may use the topic: connect with its \
         certificate (`headwater enroll add {name} --group ...` makes one), or allow it in the broker's access rules",
        role = role_words(.roles),
        name = .roles.first().unwrap_or(&"operator"),
    )]
    NotAllowed {
        /// Address of the broker.
        broker: Endpoint,
        /// Topic of the message or filter of the subscription.
        topic: String,
        /// Answer of the broker.
        reason: String,
        /// Roles of `headwater enroll` that may use the topic.
        roles: &'static [&'static str],
    },
    /// The broker refuses a message for another reason than its access rules.
    #[error("{broker}: the broker refuses a message on the topic {topic}: {reason}; its log may say more")]
    MessageRefused {
        /// Address of the broker.
        broker: Endpoint,
        /// Topic of the message.
        topic: String,
        /// Answer of the broker.
        reason: String,
    },
    /// The link refuses its settings or a message, or has no connection.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The connection has ended for good.
    #[error("the connection to the broker has ended")]
    Closed,
    /// A result or settled notice, or an answer to a policy command, cannot be read.
    #[error("message on {topic}: {reason}")]
    Message {
        /// Topic of the message.
        topic: String,
        /// Position and kind of the mistake in the JSON text.
        reason: serde_json::Error,
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

/// Advice if no broker was reached; empty for other failures, whose texts contain advice.
fn advice(failure: &ConnectFailure) -> &'static str {
    if failure.is_absence() {
        ": is a broker there? Start one, or name the address of one that runs"
    } else {
        ""
    }
}
