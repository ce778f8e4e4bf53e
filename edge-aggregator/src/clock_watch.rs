//! Devices whose clocks are off: named in the log when that begins and when it ends.

use std::collections::BTreeMap;
use std::time::Duration;

use headwater_inference::leader::{ClockOff, Leader};
use headwater_protocol::DeviceId;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::log_limit::LogLimit;
use crate::registry::Registry;

/// Time between two checks of the clocks.
const EVERY: Duration = Duration::from_secs(1);

/// Log lines a minute.
const MAX_LINES: u32 = 16;

/// Devices whose clocks are off by more than a quarter of the period.
#[derive(Debug)]
pub(crate) struct ClockWatch {
    off: BTreeMap<DeviceId, ClockOff>,
    next: Option<Instant>,
    log: LogLimit,
}

impl ClockWatch {
    pub(crate) fn new() -> Self {
        Self { off: BTreeMap::new(), next: None, log: LogLimit::new(MAX_LINES) }
    }

    /// Checks the clocks once a second: devices whose clocks are off; `None` between checks.
    pub(crate) fn check(
        &mut self,
        now: Instant,
        leader: &Leader,
        devices: &Registry,
    ) -> Option<&BTreeMap<DeviceId, ClockOff>> {
        if self.next.is_some_and(|next| now < next) {
            return None;
        }
        self.next = Some(now + EVERY);
        let off = leader.clocks_off().into_iter();
        let off = off.filter_map(|(slot, off)| Some((devices.holder(slot)?.clone(), off))).collect();
        let before = std::mem::replace(&mut self.off, off);
        for (device, off) in &self.off {
            if !before.contains_key(device) {
                log_off(&mut self.log, now, device, *off);
            }
        }
        for device in before.keys().filter(|device| !self.off.contains_key(*device)) {
            if let Some(not_logged) = self.log.take(now) {
                info!(%device, not_logged, "the clock of a device agrees with its group again, or the device is gone");
            }
        }
        Some(&self.off)
    }
}

fn log_off(log: &mut LogLimit, now: Instant, device: &DeviceId, ClockOff { ahead_ms, max_ms }: ClockOff) {
    let Some(not_logged) = log.take(now) else { return };
    if ahead_ms > 0 {
        warn!(
            %device, ahead_ms, max_ms, not_logged,
            "the clock of a device is ahead of its group by more than a quarter of the period: the device is left out until its clock is set"
        );
    } else {
        warn!(
            %device, behind_ms = -ahead_ms, max_ms, not_logged,
            "answers of a device come later than those of its group by more than a quarter of the period: its clock is behind (set it), or \
             its link is slow"
        );
    }
}
