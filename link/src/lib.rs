//! The MQTT connection of every tier: counted bytes, reconnect, resubscribe, bounded queues.
//!
//! A [`Link`] is a handle that is cheap to clone. One task owns the socket and connects for as long as the link lives. After every
//! connect the task subscribes again, publishes the retained messages again, and then passes messages to one bounded channel. The crate
//! knows topics and bytes; it does not know what a message means.

mod backoff;
#[cfg(feature = "broker")]
pub mod broker;
mod config;
mod counts;
mod driver;
mod error;
mod handle;
mod options;

pub use config::{LinkConfig, QoS, RetainedMessage, Subscription};
pub use counts::LinkCounts;
pub use error::LinkError;
pub use handle::{Incoming, Link};
pub use headwater_transport::{Endpoint as BrokerAddress, WireBytes};
