//! The event loops of a group, and its health and status.

pub(crate) mod edge;
pub(crate) mod event_loop;
pub(crate) mod health;
pub(crate) mod leader;
pub(crate) mod member;
pub(crate) mod policy_desk;
pub(crate) mod shared;
pub(crate) mod status;
pub(crate) mod worker;
