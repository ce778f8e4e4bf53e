//! Devices and edges of a group: their messages, the slots that they fill, and what is wrong with them.

pub(crate) mod device_watch;
pub(crate) mod inbox;
pub(crate) mod message_format;
pub(crate) mod refused_devices;
pub(crate) mod registry;
pub(crate) mod remote_edges;
