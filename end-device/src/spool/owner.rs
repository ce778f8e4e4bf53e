//! The owner of a segment: the device whose answers the segment holds.

use std::fmt;

use headwater_protocol::{DeviceId, GroupId, SiteId, Slot};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Owner {
    pub(crate) site: SiteId,
    pub(crate) group: GroupId,
    pub(crate) slot: Slot,
    pub(crate) device: DeviceId,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { site, group, slot, device } = self;
        write!(f, "device {device} of slot {slot} in group {group} at site {site}")
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The owner of the tests' segments, with this device id.
    pub(crate) fn owner(device: &str) -> Owner {
        Owner {
            site: SiteId::new("hall").unwrap(),
            group: GroupId::new("gate").unwrap(),
            slot: Slot::new(2).unwrap(),
            device: DeviceId::new(device).unwrap(),
        }
    }

    #[test]
    fn an_owner_is_named_in_words() {
        assert_eq!(owner("cam-2").to_string(), "device cam-2 of slot 2 in group gate at site hall");
    }
}
