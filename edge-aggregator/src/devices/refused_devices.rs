//! Devices that the leader refuses, as its notices name them: a device cannot know otherwise that its answers count for nothing.

use std::collections::BTreeMap;

use headwater_protocol::status::ReportedState;
use headwater_protocol::{DeviceId, SettledNotice};
use serde::{Deserialize, Serialize};

use crate::devices::device_watch::ReportedDevice;

/// Refused devices with their reasons: now, and in the notice published last.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct RefusedDevices {
    now: BTreeMap<DeviceId, String>,
    published: BTreeMap<DeviceId, String>,
}

impl RefusedDevices {
    /// Takes the refused devices from the result of a check.
    pub(crate) fn update(&mut self, devices: &BTreeMap<DeviceId, ReportedDevice>) {
        let refused =
            || devices.iter().filter(|(_, device)| is_refused(device.state)).take(SettledNotice::MAX_REFUSED);
        let is_same = refused().count() == self.now.len()
            && refused()
                .zip(&self.now)
                .all(|((id, device), (known, reason))| id == known && device.reason.starts_with(&**reason));
        if !is_same {
            let short = |device: &ReportedDevice| {
                device.reason.chars().take(SettledNotice::MAX_REASON_CHARS).collect()
            };
            self.now = refused().map(|(id, device)| (id.clone(), short(device))).collect();
        }
    }

    /// True if the refused devices or their reasons differ from the notice that was published last.
    pub(crate) fn has_news(&self) -> bool {
        self.now != self.published
    }

    /// The refused devices, for a notice.
    pub(crate) fn named(&self) -> BTreeMap<DeviceId, String> {
        self.now.clone()
    }

    pub(crate) fn note_published(&mut self, notice: &SettledNotice) {
        self.published.clone_from(&notice.refused);
    }
}

fn is_refused(state: ReportedState) -> bool {
    matches!(state, ReportedState::Refused | ReportedState::WrongNetwork)
}

#[cfg(test)]
mod tests {
    use headwater_protocol::Slot;
    use tokio::time::Instant;

    use super::*;

    fn devices(states: &[(&str, ReportedState, &'static str)]) -> BTreeMap<DeviceId, ReportedDevice> {
        let device = |&(id, state, reason): &(&str, ReportedState, &'static str)| {
            let now = Instant::now();
            let slot = Slot::new(0).unwrap();
            let reported = ReportedDevice {
                slot: Some(slot),
                state,
                since: now,
                heard: now,
                reason: reason.into(),
                software: String::new(),
            };
            (DeviceId::new(id).unwrap(), reported)
        };
        states.iter().map(device).collect()
    }

    #[test]
    fn refused_devices_are_news_until_a_notice_names_them_and_again_when_they_are_taken() {
        let mut refused = RefusedDevices::default();
        refused.update(&devices(&[
            ("cam-0", ReportedState::Up, ""),
            ("cam-1", ReportedState::Silent, "no answer"),
        ]));
        assert!(!refused.has_news());
        refused.update(&devices(&[
            ("cam-0", ReportedState::Up, ""),
            ("cam-9", ReportedState::Refused, "no slot"),
        ]));
        assert!(refused.has_news());
        let notice = SettledNotice { refused: refused.named(), ..SettledNotice::default() };
        assert_eq!(notice.refused, [(DeviceId::new("cam-9").unwrap(), "no slot".to_owned())].into());
        refused.note_published(&notice);
        assert!(!refused.has_news());
        refused.update(&devices(&[("cam-9", ReportedState::WrongNetwork, "another network")]));
        assert!(refused.has_news(), "for another reason");
        refused.update(&devices(&[("cam-9", ReportedState::Up, "")]));
        assert!(refused.has_news() && refused.named().is_empty(), "it is taken");
    }
}
