//! The event loops of a group, and its health and status.

pub(crate) mod edge;
pub(crate) mod event_loop;
pub(crate) mod health;
pub(crate) mod leader;
pub(crate) mod member;
pub(crate) mod policy_desk;
pub(crate) mod shared;
#[cfg_attr(not(test), expect(dead_code, reason = "recordings begin with it; they are to come"))]
pub(crate) mod state;
pub(crate) mod status;
pub(crate) mod worker;
