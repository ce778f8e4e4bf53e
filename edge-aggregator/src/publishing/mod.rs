//! What a group publishes, and the answers of the broker.

pub(crate) mod broker_answers;
pub(crate) mod outbox;
pub(crate) mod settled_schedule;
