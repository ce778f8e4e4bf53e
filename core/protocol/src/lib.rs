//! Ids, presence, decisions, errors, topics, and the messages between the tiers as bytes.
//!
//! The crate opens no socket, reads no clock and knows no model maths. Every message of a peer is decoded here. A length that a peer
//! names is checked against [`Limits`] before anything is allocated.
//!
//! A module imports only modules to its right or in the lines below. The test `module_orders` checks this diagram:
//!
//! ```text
//! tests           schema  testing
//! triggers        triggered_ids  trigger  group_message
//! pages           status  policy_command
//! sizes           message_sizes
//! results         decision  notice  exit_record
//! messages        message  frame_name  batch  limits  header  message_error
//! addresses       topic  v2
//! words           presence  scores  bit_set  utc_time
//! ground          framing  kind  json_version  ids  fault  exit  varint  bits  words
//! ```

mod batch;
mod bit_set;
pub mod bits;
mod decision;
mod exit;
mod exit_record;
mod fault;
mod frame_name;
mod framing;
mod group_message;
mod header;
mod ids;
mod json_version;
mod kind;
mod limits;
mod message;
mod message_error;
pub mod message_sizes;
mod notice;
pub mod policy_command;
mod presence;
#[cfg(feature = "schema")]
pub mod schema;
pub mod scores;
pub mod status;
#[cfg(feature = "testing")]
pub mod testing;
mod topic;
mod trigger;
mod triggered_ids;
mod utc_time;
pub mod v2;
mod varint;
mod words;

pub use batch::{BATCHES, Batch, BatchEntry, BatchedAnswer, encode_batch};
pub use bit_set::{BitSet, EdgeSet, SlotSet, SourceSet};
pub use decision::{
    Decision, Degraded, Dropped, HopBytes, ResultMessage, Settled, SettledNotice, SlotView, Smoothed, Stages,
    Undecided,
};
pub use exit::{ByExit, Exit, ExitWord};
pub use exit_record::{AppliedExit, LeaveReason, TimeSource};
pub use fault::{Fault, MqttHandling};
pub use frame_name::{FrameDetails, FrameName, frame_details, put_frame_details};
pub use framing::{Fit, Framing, Placement, RegionError, Roi};
pub use group_message::{encode_request, encode_trigger};
pub use header::{HEADER_BYTES, Header, decode_header};
pub use ids::{
    Boot, DeviceId, EdgeId, EdgeIndex, GroupId, IdError, MemberName, NetworkId, PolicyId, PolicyName,
    SampleId, Session, SiteId, Slot, Source, Trust, VerifyingKey, clipped, hex, parse_hex,
};
pub use json_version::Schema;
pub use kind::{Kind, MAX_BATCH_SAMPLES, VERSION};
pub use limits::{Limits, MAX_FILE_NAME_BYTES};
pub use message::{Body, DeviceDecision, Message, age_ms, decode, encode};
pub use message_error::{BatchMistake, DecodeError, EncodeError};
pub use notice::{Birth, DeviceState, EdgeStatus, InstanceId, LeaderClaim, Numbering, Status};
pub use presence::{Presence, SlotPresence};
pub use scores::ScoreEncoding;
pub use topic::{DeviceTopic, EdgeTopic, Topic, TopicError, Topics};
pub use trigger::{Trigger, TriggerMessage};
pub use triggered_ids::{JudgedTrigger, TriggeredIds, is_near};
pub use utc_time::{TimeError, UtcTime};
