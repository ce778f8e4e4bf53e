//! The aggregator: decides the samples of groups over MQTT, and asks the cloud about samples whose local exits are unsure.
//!
//! One task per group owns the decision state machine and everything that its actions change:
//!
//! ```text
//! broker ──link──> inbox (topic, payload -> event) ──┐
//! cloud  ──client, breaker──> answer or failure ─────┼──> leader ──actions──> journal, then publish, then ask
//! clock  ──next timer────────────────────────────────┘
//! ```
//!
//! Local edges (`group/edge/`) take the same events as the leader. An edge of a network with several edges may be a separate process: the
//! same crate in another role, which takes requests and features and answers the leader over the broker.
//!
//! The crate does not know how a sample is decided: the state machine does (`headwater_inference::leader`).
//!
//! A module imports only modules to its right or in the lines below. The test `module_orders` checks this diagram:
//!
//! ```text
//! process         checks  aggregator  config_check
//! event loops     group
//! cloud           cloud
//! broker          publishing  claim
//! files           error  journal
//! reports         report
//! messages        devices
//! settings        settings
//! ground          breaker  clock  open_files
//! ```

mod aggregator;
mod breaker;
mod checks;
mod claim;
mod clock;
mod cloud;
mod config_check;
mod devices;
mod error;
mod group;
mod journal;
mod open_files;
mod publishing;
mod report;
mod settings;

pub use aggregator::{Aggregator, GroupEnd, run};
pub use breaker::BreakerConfig;
pub use devices::device_watch::ReportedDevice;
pub use devices::inbox::{edge_subscriptions, leader_subscriptions};
pub use devices::message_format::{InboxCounts, Refusals};
pub use error::AggregatorError;
pub use group::edge::GroupEdge;
pub use group::leader::GroupLeader;
pub use group::member::{Member, MemberReport};
pub use group::shared::Shared;
pub use journal::JournalError;
pub use report::{BrokerLink, CloudCounts, EdgeReport, GroupReport, JournalCounts, LeaderReport};
pub use settings::aggregator::AggregatorSettings;
pub use settings::config::{AggregatorConfig, CloudConfig, OpenedGroup, SharedConfig};
pub use settings::group::{GroupSettings, JournalSettings, JournalSync, Role, RoleName};
