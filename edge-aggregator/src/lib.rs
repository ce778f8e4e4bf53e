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
//!
//! A module imports only modules to its right or in the lines below. The test `module_orders` checks this diagram:
//!
//! ```text
//! process         checks  aggregator  config_check
//! event loops     leader  worker  edge
//! of a group      health  status  member  shared  policy_desk
//! cloud           cloud
//! settings        settings  live_settings  config  group_policy
//! publishing      outbox  error  broker_answers  claim  journal
//! reports         refused_devices  report
//! messages        inbox  remote_edges  device_watch  registry
//! ground          message_format  group_settings  breaker  settled_schedule  clock
//! ```

mod aggregator;
mod breaker;
mod broker_answers;
mod checks;
mod claim;
mod clock;
mod cloud;
mod config;
mod config_check;
mod device_watch;
mod edge;
mod error;
mod group_policy;
mod group_settings;
mod health;
mod inbox;
mod journal;
mod leader;
mod live_settings;
mod member;
mod message_format;
mod outbox;
mod policy_desk;
mod refused_devices;
mod registry;
mod remote_edges;
mod report;
mod settings;
mod settled_schedule;
mod shared;
mod status;
mod worker;

pub use aggregator::{Aggregator, GroupEnd, run};
pub use breaker::BreakerConfig;
pub use config::{AggregatorConfig, CloudConfig, OpenedGroup, SharedConfig};
pub use device_watch::ReportedDevice;
pub use edge::GroupEdge;
pub use error::AggregatorError;
pub use group_settings::{GroupSettings, JournalSettings, JournalSync, Role, RoleName};
pub use inbox::{edge_subscriptions, leader_subscriptions};
pub use journal::JournalError;
pub use leader::GroupLeader;
pub use live_settings::ListedDevices;
pub use member::{Member, MemberReport};
pub use message_format::{InboxCounts, Refusals};
pub use report::{BrokerLink, CloudCounts, EdgeReport, GroupReport, JournalCounts, LeadState, LeaderReport};
pub use settings::AggregatorSettings;
pub use shared::Shared;
