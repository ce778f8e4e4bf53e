//! Presence: whether each slot has a view of a sample.

use serde::{Deserialize, Serialize};

use crate::bit_set::SlotSet;
use crate::ids::Slot;

/// Contribution of one slot to a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SlotPresence {
    /// The slot sent a view of the sample: a summary, an input, a map or a decision.
    Present,
    /// The device is up and does not see the object. The slot does not vote and is not missing.
    NotInView,
    /// The device is down, late or refused.
    Missing,
}

/// The [`SlotPresence`] of every slot.
#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "Vec<SlotPresence>", into = "Vec<SlotPresence>")]
pub struct Presence {
    slots: u8,
    present: SlotSet,
    not_in_view: SlotSet,
}

impl Presence {
    /// Presence of `slots` slots, all missing; [`Slot::MAX`] slots for a larger number.
    pub fn missing(slots: usize) -> Self {
        Self { slots: slots.min(Slot::MAX) as u8, present: SlotSet::EMPTY, not_in_view: SlotSet::EMPTY }
    }

    /// Presence from a row with one value a slot: true for present, false for not in view.
    pub fn from_row(row: &[bool]) -> Self {
        let present = SlotSet::from_row(row);
        Self { present, not_in_view: SlotSet::first(row.len()) - present, ..Self::missing(row.len()) }
    }

    /// Number of slots of the network.
    pub fn slots(&self) -> usize {
        usize::from(self.slots)
    }

    /// Presence of a slot; a slot that the network does not have is missing.
    pub fn get(&self, slot: Slot) -> SlotPresence {
        if self.present.contains(slot) {
            SlotPresence::Present
        } else if self.not_in_view.contains(slot) {
            SlotPresence::NotInView
        } else {
            SlotPresence::Missing
        }
    }

    /// Sets the presence of a slot. Nothing changes for a slot that the network does not have.
    pub fn set(&mut self, slot: Slot, view: SlotPresence) {
        if slot.index() >= self.slots() {
            return;
        }
        self.present.remove(slot);
        self.not_in_view.remove(slot);
        match view {
            SlotPresence::Present => self.present.insert(slot),
            SlotPresence::NotInView => self.not_in_view.insert(slot),
            SlotPresence::Missing => {}
        }
    }

    /// Number of present slots.
    pub fn present_count(&self) -> u32 {
        self.present.len() as u32
    }

    /// Number of missing slots: their devices are down, late or refused.
    pub fn missing_count(&self) -> u32 {
        u32::from(self.slots) - self.answered().len() as u32
    }

    /// Missing slots, in order: their devices are down, late or refused.
    pub fn missing_slots(&self) -> impl Iterator<Item = Slot> + '_ {
        Slot::first(self.slots()).filter(|slot| !self.answered().contains(*slot))
    }

    /// The present slots.
    pub fn present(&self) -> SlotSet {
        self.present
    }

    /// Slots that answered: present or not in view.
    pub fn answered(&self) -> SlotSet {
        self.present | self.not_in_view
    }

    /// Every slot with its presence, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Slot, SlotPresence)> + '_ {
        Slot::first(self.slots()).map(|slot| (slot, self.get(slot)))
    }
}

impl std::fmt::Debug for Presence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter().map(|(_, view)| view)).finish()
    }
}

impl From<Presence> for Vec<SlotPresence> {
    fn from(presence: Presence) -> Self {
        presence.iter().map(|(_, view)| view).collect()
    }
}

impl TryFrom<Vec<SlotPresence>> for Presence {
    type Error = String;
    fn try_from(views: Vec<SlotPresence>) -> Result<Self, String> {
        if views.len() > Slot::MAX {
            return Err(format!("presence: expected at most {} slots, found {}", Slot::MAX, views.len()));
        }
        let mut presence = Self::missing(views.len());
        for (slot, view) in Slot::first(views.len()).zip(views) {
            presence.set(slot, view);
        }
        Ok(presence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_that_did_not_answer_is_missing() {
        let mut presence = Presence::missing(3);
        presence.set(Slot::new(0).unwrap(), SlotPresence::Present);
        presence.set(Slot::new(2).unwrap(), SlotPresence::NotInView);
        assert_eq!((presence.present_count(), presence.missing_count()), (1, 1));
        assert_eq!(presence.get(Slot::new(1).unwrap()), SlotPresence::Missing);
        assert_eq!(presence.missing_slots().collect::<Vec<_>>(), [Slot::new(1).unwrap()]);
        assert_eq!((presence.present().bits(), presence.answered().bits()), (0b001, 0b101));
    }

    #[test]
    fn a_slot_the_network_does_not_have_changes_nothing() {
        let mut presence = Presence::missing(2);
        presence.set(Slot::new(5).unwrap(), SlotPresence::Present);
        assert_eq!(presence, Presence::missing(2));
    }

    #[test]
    fn presence_survives_json() {
        let presence = Presence::from_row(&[true, false, true]);
        let text = serde_json::to_string(&presence).unwrap();
        assert_eq!(text, r#"["present","not_in_view","present"]"#);
        assert_eq!(serde_json::from_str::<Presence>(&text).unwrap(), presence);
        assert!(serde_json::from_value::<Presence>(serde_json::json!(vec!["missing"; 65])).is_err());
    }
}
