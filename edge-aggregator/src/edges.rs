//! Which edge elsewhere runs which edge section, from what edges say of themselves.

use std::collections::BTreeMap;

use headwater_protocol::{Boot, DeviceState, EdgeId, EdgeStatus, Fault, NetworkId};
use tracing::warn;

use crate::report::EdgeRefusals;

/// Most edges that are remembered; more than a group has, less than a flood of made-up names would need.
const MOST_EDGES: usize = 256;

/// An edge came or went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EdgeChange {
    /// Somebody runs that section.
    Up(usize),
    /// Nobody does.
    Down(usize),
}

/// Position of an edge in the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EdgeIndex(usize);

/// All edges of the group that are processes of their own.
#[derive(Debug)]
pub(crate) struct EdgeRegistry {
    network: NetworkId,
    /// Slots of each edge of the network; 0 for one that runs in this process, which nobody else may be.
    slots: Vec<u64>,
    edges: Vec<Known>,
    /// Who runs each section.
    holders: Vec<Option<EdgeIndex>>,
}

/// One edge, from its first message on.
#[derive(Debug)]
struct Known {
    id: EdgeId,
    /// Its life and the section it runs, once it is let in.
    life: Option<(Boot, usize)>,
    refused: BTreeMap<&'static str, u64>,
}

impl EdgeRegistry {
    pub(crate) fn new(network: NetworkId, slots: &[u64]) -> Self {
        Self { network, slots: slots.to_vec(), edges: Vec::new(), holders: vec![None; slots.len()] }
    }

    /// The edge of that name; `None` when no more are remembered.
    pub(crate) fn edge(&mut self, id: &EdgeId) -> Option<EdgeIndex> {
        if let Some(at) = self.edges.iter().position(|known| known.id == *id) {
            return Some(EdgeIndex(at));
        }
        if self.edges.len() == MOST_EDGES {
            return None;
        }
        self.edges.push(Known { id: id.clone(), life: None, refused: BTreeMap::new() });
        Some(EdgeIndex(self.edges.len() - 1))
    }

    /// An edge says who it is, that it is up or down, or its last will does.
    pub(crate) fn status(&mut self, index: EdgeIndex, status: &EdgeStatus) -> Vec<EdgeChange> {
        let mut changes = Vec::new();
        let life = self.edges[index.0].life;
        if status.state == DeviceState::Down {
            // The will of another life must not end this one.
            if let Some((_, edge)) = life.filter(|(boot, _)| *boot == status.boot) {
                self.leave(index, edge, &mut changes);
            }
            return changes;
        }
        if let Some((_, edge)) = life {
            self.leave(index, edge, &mut changes);
        }
        let edge = usize::from(status.edge);
        if status.network != self.network {
            let (ours, theirs) = (self.network.short(), status.network.short());
            let why = format!("network: expected {ours}, found {theirs}: give it this group's bundle");
            self.refuse(index, Fault::WrongNetwork, &why);
        } else if self.slots.get(edge).is_none_or(|slots| *slots == 0) {
            let why = format!("edge {edge}: expected an edge of the network that does not run in the leader");
            self.refuse(index, Fault::Malformed, &why);
        } else if let Some(holder) = self.holders[edge] {
            let why = format!("edge {edge} is {} already: give one of them another", self.edges[holder.0].id);
            self.refuse(index, Fault::SlotTaken, &why);
        } else {
            self.holders[edge] = Some(index);
            self.edges[index.0].life = Some((status.boot, edge));
            changes.push(EdgeChange::Up(edge));
        }
        changes
    }

    fn leave(&mut self, index: EdgeIndex, edge: usize, changes: &mut Vec<EdgeChange>) {
        self.edges[index.0].life = None;
        self.holders[edge] = None;
        changes.push(EdgeChange::Down(edge));
    }

    /// The edge for which a message of this boot speaks.
    ///
    /// # Errors
    /// [`Fault::UnknownDevice`] for one that is not let in.
    pub(crate) fn admit(&self, index: EdgeIndex, boot: Boot) -> Result<usize, Fault> {
        let life = self.edges[index.0].life.filter(|(lives, _)| *lives == boot);
        life.map(|(_, edge)| edge).ok_or(Fault::UnknownDevice)
    }

    /// Counts a refusal, and names its edge the first time.
    pub(crate) fn refuse(&mut self, index: EdgeIndex, fault: Fault, why: &str) {
        let known = &mut self.edges[index.0];
        let count = known.refused.entry(fault.code()).or_default();
        *count += 1;
        if *count == 1 {
            warn!(edge = %known.id, fault = fault.code(), why, "an edge was refused; the next times are only counted");
        }
    }

    /// Refusals of every edge that has any.
    pub(crate) fn refusals(&self) -> Vec<EdgeRefusals> {
        let some = self.edges.iter().filter(|known| !known.refused.is_empty());
        some.map(|known| EdgeRefusals { edge: known.id.clone(), refused: known.refused.clone() }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: NetworkId = NetworkId([7; 32]);

    fn status(state: DeviceState, boot: u16, edge: u8) -> EdgeStatus {
        EdgeStatus { state, boot: Boot(boot), edge, network: OURS, software: "test".into() }
    }

    /// Edge 0 runs in the leader, 1 and 2 elsewhere.
    fn registry() -> EdgeRegistry {
        EdgeRegistry::new(OURS, &[0, 0b10, 0b100])
    }

    fn index(registry: &mut EdgeRegistry, id: &str) -> EdgeIndex {
        registry.edge(&EdgeId::new(id).unwrap()).unwrap()
    }

    #[test]
    fn an_edge_comes_and_goes_and_the_will_of_an_earlier_life_does_not_end_it() {
        let mut registry = registry();
        let north = index(&mut registry, "north");
        assert_eq!(registry.admit(north, Boot(1)), Err(Fault::UnknownDevice));
        assert_eq!(registry.status(north, &status(DeviceState::Up, 1, 1)), [EdgeChange::Up(1)]);
        assert_eq!(registry.admit(north, Boot(1)), Ok(1));
        let again = registry.status(north, &status(DeviceState::Up, 2, 1));
        assert_eq!(again, [EdgeChange::Down(1), EdgeChange::Up(1)]);
        assert_eq!(registry.status(north, &status(DeviceState::Down, 1, 1)), []);
        assert_eq!(registry.status(north, &status(DeviceState::Down, 2, 1)), [EdgeChange::Down(1)]);
        assert_eq!(registry.admit(north, Boot(2)), Err(Fault::UnknownDevice));
    }

    #[test]
    fn an_edge_of_the_leader_one_that_there_is_not_and_one_that_is_taken_are_refused() {
        let mut registry = registry();
        let [north, south] = ["north", "south"].map(|id| index(&mut registry, id));
        registry.status(north, &status(DeviceState::Up, 1, 1));
        for edge in [0, 1, 3] {
            assert_eq!(registry.status(south, &status(DeviceState::Up, 1, edge)), [], "edge {edge}");
        }
        let refused = registry.refusals();
        assert_eq!(refused.len(), 1);
        assert_eq!(refused[0].refused[Fault::SlotTaken.code()], 1);
        assert_eq!(refused[0].refused[Fault::Malformed.code()], 2);
    }
}
