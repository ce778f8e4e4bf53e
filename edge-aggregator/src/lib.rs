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
//! What to decide is not known here: that is the state machine's (`headwater_inference::leader`).

mod breaker;
mod clock;
mod cloud;
mod config;
mod device;
mod effective;
mod inbox;
mod journal;
mod outbox;
mod registry;
mod report;
mod service;
mod worker;

pub use breaker::BreakerConfig;
pub use config::{AggregatorConfig, JournalConfig, JournalSync};
pub use journal::JournalError;
pub use report::{AggregatorReport, CloudAccount, DeviceRefusals, JournalAccount, LeaderAccount};
pub use service::{Aggregator, AggregatorError, AggregatorHandle, run};
