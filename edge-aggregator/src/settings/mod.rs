//! Settings of the aggregator and its groups, and the settings that change while the aggregator runs.

pub(crate) mod aggregator;
pub(crate) mod config;
pub(crate) mod group;
pub(crate) mod group_policy;
pub(crate) mod live;
