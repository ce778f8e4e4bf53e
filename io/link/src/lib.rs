//! The MQTT connection of every tier: counted bytes, reconnect, resubscribe, bounded queues.
//!
//! A [`Link`] is a handle that is cheap to clone. One task owns the socket and connects for as long as the link lives. After every
//! connect the task subscribes again and publishes the retained messages again. Messages that arrive go to one bounded channel. The
//! crate knows topics and bytes, and not what a message means.
//!
//! ```text
//! owner ── Link::publish ──> queue ──> driver task ──> Connection (transport) ──> broker
//! owner <── channel of Incoming ────── driver task <── Connection (transport) <── broker
//! ```
//!
//! A module imports only modules to its right or in the lines below. The test `module_orders` checks this diagram:
//!
//! ```text
//! tests           testing
//! link            handle
//! connection      driver  probe  refused_publication
//! state           shared  options
//! settings        config
//! broker's limits limits
//! waits           failure  outage  backoff  end_reason
//! messages        incoming  acknowledgement  alias_start
//! bytes           broker_bytes
//! broker          broker
//! ground          error  counts
//! ```

mod acknowledgement;
mod alias_start;
mod backoff;
#[cfg(feature = "broker")]
pub mod broker;
mod broker_bytes;
mod config;
mod counts;
mod driver;
mod end_reason;
mod error;
mod failure;
mod handle;
mod incoming;
mod limits;
mod options;
mod outage;
mod probe;
mod refused_publication;
mod shared;
#[cfg(feature = "testing")]
pub mod testing;

pub use acknowledgement::{Acknowledgement, Delivery};
pub use config::{LinkConfig, QoS, RetainedMessage, Subscription};
pub use counts::LinkCounts;
pub use error::LinkError;
pub use failure::ConnectFailure;
pub use handle::Link;
pub use headwater_transport::{Endpoint, WireBytes};
pub use incoming::{Incoming, PublishRefusal};
pub use limits::{BrokerLimits, BrokerNeeds, Shortcoming};
pub use options::MAX_UNACKNOWLEDGED;
pub use probe::{BrokerProbe, RefusedSubscription, probe};
