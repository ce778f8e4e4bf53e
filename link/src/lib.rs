//! The MQTT connection every tier shares: owned socket, counted bytes, reconnect, resubscribe, bounded queues.
//!
//! A [`Link`] is a cheap-clone handle. Behind it one task owns the socket, connects for as long as the link lives, subscribes
//! again and publishes the retained messages again after every connect, and gives what arrives to one bounded channel. The
//! crate knows topics and bytes; what a message means it refuses to know.

mod address;
mod backoff;
#[cfg(feature = "broker")]
pub mod broker;
mod config;
mod counts;
mod driver;
mod error;
mod handle;
mod options;
mod socket;
mod wire;

pub use address::{AddressError, BrokerAddress};
pub use config::{LinkConfig, QoS, RetainedMessage, Subscription};
pub use counts::LinkCounts;
pub use error::LinkError;
pub use handle::{Incoming, Link};
pub use wire::WireBytes;
