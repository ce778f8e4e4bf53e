//! Messages that a group publishes, and the answers of the broker to them.

pub(crate) mod broker_answers;
pub(crate) mod outbox;
pub(crate) mod settled_schedule;
