//! The device agent captures views, runs the device section, sends summaries, and keeps answers and features until the leader reports
//! the sample settled.
//!
//! One async task handles messages (trigger, request, settled). A section that is not brief runs on a separate thread, so that the section
//! never delays a message. A device decides a sample only in configurations b and d, and only if its exit is sure (`reply_rule.rs`). The
//! crate knows nothing of other slots, other exits or the cloud.
//!
//! A module imports only modules to its right or in the lines below. The test `module_orders` checks this diagram:
//!
//! ```text
//! program         checks  metrics
//! device          device  agent  status
//! answers         unsettled_answers  publisher  recent_samples  answer_batch
//! broker          link_setup  presence_watch
//! opened          opened  engine
//! capture         source  capture_clock  reply_rule  section_runner
//! state           spool  state_folder
//! ground          settings  config  report  give_up_reason  error  answer  timestamp
//! ```

mod agent;
mod answer;
mod answer_batch;
mod capture_clock;
mod checks;
mod config;
mod device;
mod engine;
mod error;
mod give_up_reason;
mod link_setup;
#[cfg(feature = "admin")]
mod metrics;
mod opened;
mod presence_watch;
mod publisher;
mod recent_samples;
mod reply_rule;
mod report;
mod section_runner;
mod settings;
mod source;
mod spool;
mod state_folder;
mod status;
mod timestamp;
mod unsettled_answers;

pub use config::{Capture, EngineChoice};
pub use device::{Device, DeviceHandle, Ended};
pub use error::DeviceError;
pub use link_setup::subscriptions;
pub use opened::OpenedDevice;
pub use report::{DeviceCounts, DeviceReport, Sent};
pub use settings::{
    CaptureWord, CommandEnd, CommandSettings, DeviceSettings, Existing, FolderEnd, FolderSettings,
    HttpSettings, SourceSettings, SourceWord, SpoolSettings, StdinFormat, StdinSettings, WatchSettings,
};
pub use source::{Frames, MAX_FRAME_BYTES, Source};
