//! What one model thread counts.

use std::sync::atomic::AtomicU64;

use headwater_protocol::NetworkId;

use crate::histogram::Histogram;

/// Counters of one network; only grow.
#[derive(Debug)]
pub(crate) struct ModelCounters {
    pub(crate) network: NetworkId,
    pub(crate) samples: AtomicU64,
    pub(crate) batches: AtomicU64,
    pub(crate) largest_batch: AtomicU64,
    pub(crate) skipped_deadline: AtomicU64,
    pub(crate) skipped_caller_gone: AtomicU64,
    pub(crate) queue: Histogram,
    pub(crate) model: Histogram,
}

impl ModelCounters {
    pub(crate) fn of(network: NetworkId) -> Self {
        Self {
            network,
            samples: AtomicU64::default(),
            batches: AtomicU64::default(),
            largest_batch: AtomicU64::default(),
            skipped_deadline: AtomicU64::default(),
            skipped_caller_gone: AtomicU64::default(),
            queue: Histogram::default(),
            model: Histogram::default(),
        }
    }
}
