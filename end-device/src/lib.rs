//! The device agent: captures views, runs the device section, sends summaries, keeps features until asked, and everything until settled.
//!
//! One async task holds the conversation (trigger, request, settled) and one thread of its own runs the section, so a slow
//! section never delays a message. A device of a group decides nothing, it only
//! answers; one that is alone decides where its exit is sure (`conduct.rs`). It knows its own slot and
//! refuses to know the others, the exits and the cloud.

mod agent;
mod boot;
mod capture;
mod conduct;
mod config;
mod device;
mod engine;
mod error;
mod model;
mod moment;
mod outbox;
mod policy;
mod recent;
mod report;
mod sample_clock;
mod settings;
mod source;
mod spool;
mod store;
mod unsettled;

pub use config::{Capture, DeviceConfig, EngineChoice, OnBrokenFrame};
pub use device::{Device, DeviceHandle, Ended};
pub use error::DeviceError;
pub use report::{DeviceReport, Sent};
pub use settings::{Given, Settings, SettingsError};
pub use source::{
    Existing, FolderEnd, Frames, HttpAuth, MAX_FRAME_BYTES, Secret, Source, SourceConfig, SourceKind,
    StdinFormat,
};
