//! The aggregator: leads the decisions of groups over MQTT and asks the cloud for unsure samples.
//!
//! One task per group owns the decision state machine and everything that its actions change:
//!
//! ```text
//! broker ──link──> inbox (topic, payload -> event) ──┐
//! cloud  ──client, breaker──> answer or failure ─────┼──> leader ──actions──> journal, then publish, then ask
//! clock  ──next timer────────────────────────────────┘
//! ```
//!
//! Local edges (`edge/`) take the same events as the leader. An edge of a network with several edges is a separate process: the same
//! crate in another role, which takes requests and features and answers the leader over the broker.
//!
//! The crate does not know how a sample is decided: the state machine does (`headwater_inference::leader`).

mod aggregator;
mod breaker;
mod broker_answers;
mod claim;
mod clock;
mod cloud;
mod config;
mod config_check;
mod device_watch;
mod edge;
mod group_settings;
mod health;
mod inbox;
mod journal;
mod leader;
mod live_settings;
mod log_limit;
mod member;
mod outbox;
mod refused_devices;
mod registry;
mod remote_edges;
mod report;
mod settings;
mod settled_schedule;
mod status;
mod worker;

pub use aggregator::{Aggregator, AggregatorError, GroupEnd, GroupReport, Shared, run};
pub use breaker::BreakerConfig;
pub use config::{AggregatorConfig, CloudConfig, OpenedGroup, SharedConfig};
pub use device_watch::{ReportedDevice, ReportedState};
pub use edge::GroupEdge;
pub use group_settings::{GroupSettings, JournalSettings, JournalSync, Role, RoleName};
pub use inbox::{edge_subscriptions, leader_subscriptions};
pub use journal::JournalError;
pub use leader::{GroupLeader, local_edges};
pub use live_settings::ListedDevices;
pub use member::{Member, MemberReport};
pub use report::{BrokerLink, CloudCounts, EdgeReport, JournalCounts, LeadState, LeaderReport, Refusals};
pub use settings::AggregatorSettings;
