//! Settings of the aggregator and its groups, and what of them changes while it runs.

pub(crate) mod aggregator;
pub(crate) mod config;
pub(crate) mod group;
pub(crate) mod group_policy;
pub(crate) mod live;
