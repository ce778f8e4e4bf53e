//! Why a device does not start.

use std::io;
use std::path::PathBuf;

use headwater_inference::bundle::BundleError;
use headwater_inference::sections::SectionError;
use headwater_link::LinkError;
use headwater_protocol::{NetworkId, Slot};
use headwater_samples::DataError;
use headwater_samples::archive::BrokenFrame;
use thiserror::Error;

/// What stands in the way of a start.
#[derive(Debug, Error)]
pub enum DeviceError {
    /// The bundle cannot be read.
    #[error("loading the bundle: {0}")]
    Bundle(#[from] BundleError),
    /// The slot's section cannot be made ready.
    #[error("loading the section of slot {slot}: {source}")]
    Section {
        /// Slot of the device.
        slot: Slot,
        /// What is wrong.
        source: SectionError,
    },
    /// The engine asked for cannot be had.
    #[error("engine of slot {slot}: {reason}")]
    Engine {
        /// Slot of the device.
        slot: Slot,
        /// Why.
        reason: String,
    },
    /// The network has fewer slots.
    #[error("slot: network {network} has slots 0 to {last}, found {slot}", network = network.short())]
    Slot {
        /// The network.
        network: NetworkId,
        /// Its last slot.
        last: u8,
        /// Slot of the device.
        slot: Slot,
    },
    /// The frames cannot be read.
    #[error("loading the frames: {0}")]
    Frames(#[from] DataError),
    /// There is no sample among the frames.
    #[error("loading the frames: {}: expected at least one sample, found none", .0.display())]
    NoFrames(PathBuf),
    /// A frame is broken, and that is to be fatal.
    #[error("{0} ({1} broken in all; to go on without them: on_broken_frame = \"skip\")")]
    BrokenFrame(BrokenFrame, usize),
    /// The frames were loaded for another slot or for views of another shape.
    #[error("frames: expected views of slot {slot} of {expected} bytes, found slot {found_slot} of {found}")]
    OtherFrames {
        /// Slot of the device.
        slot: Slot,
        /// Bytes of the network's view.
        expected: usize,
        /// Slot of the frames.
        found_slot: Slot,
        /// Bytes of their views.
        found: usize,
    },
    /// A source of frames cannot be used.
    #[error("source of frames: {what}: {reason}")]
    Source {
        /// Folder, file or URL.
        what: String,
        /// What is wrong.
        reason: String,
    },
    /// Each frame of the source is to be a sample, and that cannot be.
    #[error("capture = \"source\": {0}")]
    CaptureSource(String),
    /// The boot number cannot be kept.
    #[error("number kept in {}: {reason}", path.display())]
    State {
        /// Its file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The file of the policy cannot be used.
    #[error("policy: {}: {reason}", path.display())]
    Policy {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A policy is given to a device that has no exit of its own.
    #[error(
        "policy: network {network} is of configuration ({configuration}), where a device decides nothing: \
         thresholds and timing are the leader's (headwater-aggregator --policy)",
        network = network.short()
    )]
    NoExit {
        /// The network.
        network: NetworkId,
        /// The letter of its configuration.
        configuration: char,
    },
    /// The folder of the spool cannot be used.
    #[error("spool in {}: {reason}", path.display())]
    Spool {
        /// The folder.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The connection's settings cannot work.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The system gives no thread.
    #[error("starting the model thread: {0}")]
    Thread(#[source] io::Error),
}
