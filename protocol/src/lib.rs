//! The nouns and messages of Headwater: ids, presence, decisions, errors, topics, and how each message looks as bytes.
//!
//! Pure: opens no socket, reads no clock, knows no model maths. Everything a peer sends passes through here first, and
//! nothing here allocates by a length that a peer names before that length was checked against [`Limits`].

mod bit_set;
pub mod bits;
mod decision;
mod fault;
mod ids;
mod message;
mod nearest;
mod notice;
mod origin;
mod presence;
mod topic;
pub mod v2;

pub use bit_set::{BitSet, EdgeSet, Position, SlotSet, SourceSet};
pub use decision::{Decision, Degraded, Dropped, Exit, HopBytes, Settled, SettledNotice, Stages};
pub use fault::{Fault, MqttHandling};
pub use ids::{
    Boot, DeviceId, EdgeId, EdgeIndex, GroupId, IdError, NetworkId, NetworkTag, PolicyId, SampleId, SiteId,
    Slot, Source,
};
pub use message::{
    Body, DecodeError, DeviceDecision, EncodeError, HEADER_BYTES, Header, Kind, Limits, Message, VERSION,
    age_ms, decode, encode,
};
pub use nearest::{nearest, no_such_setting};
pub use notice::{Birth, DeviceState, EdgeStatus, Status};
pub use origin::{Origin, effective_line};
pub use presence::{Presence, View};
pub use topic::{DeviceTopic, EdgeTopic, Topic, TopicError, Topics};
