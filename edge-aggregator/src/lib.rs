//! The aggregator: leads a group's decisions over MQTT and asks the cloud when it is not sure.
//!
//! One task owns the decision state machine and everything it changes:
//!
//! ```text
//! broker ──link──> inbox (topic, payload → event) ──┐
//! cloud  ──client, breaker──> answer or failure ────┼──> leader ──actions──> journal, then publish, then ask
//! clock  ──next wake──────────────────────────────┘
//! ```
//!
//! Edge sections of its own process (`edge/`) overhear what the leader hears. An edge that is a process of its own, in a network
//! with several, is the same crate in another role: it hears requests and features, and answers the leader over the broker.
//!
//! What to decide is not known here: that is the state machine's (`headwater_inference::leader`).

mod breaker;
mod clock;
mod cloud;
mod config;
mod device;
mod edge;
mod edges;
mod effective;
mod inbox;
mod journal;
mod outbox;
mod registry;
mod report;
mod service;
mod worker;

pub use breaker::BreakerConfig;
pub use config::{AggregatorConfig, JournalConfig, JournalSync, Role};
pub use edge::{Edge, EdgeHandle};
pub use journal::JournalError;
pub use report::{
    AggregatorReport, CloudAccount, DeviceRefusals, EdgeRefusals, EdgeReport, JournalAccount, LeaderAccount,
};
pub use service::{Aggregator, AggregatorError, AggregatorHandle, Finished, run};
