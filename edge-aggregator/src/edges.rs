//! Which edge elsewhere runs which edge section, from what edges say of themselves.

use std::collections::BTreeMap;

use headwater_inference::leader::Generation;
use headwater_protocol::{Boot, DeviceState, EdgeId, EdgeStatus, Fault, NetworkId, SlotSet};
use tracing::warn;

use crate::report::EdgeRefusals;

/// Most edges that are remembered; more than a group has, less than a flood of made-up names would need.
const MOST_EDGES: usize = 256;

/// An edge came or went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EdgeChange {
    /// Somebody runs that section.
    Up(EdgePlace),
    /// Nobody does.
    Down(EdgePlace),
}

/// An edge section of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EdgePlace {
    pub(crate) generation: Generation,
    pub(crate) edge: headwater_protocol::EdgeIndex,
}

/// A network whose edges are let in.
#[derive(Clone, Debug)]
pub(crate) struct KnownEdges {
    pub(crate) generation: Generation,
    pub(crate) network: NetworkId,
    /// Slots of each edge; empty for one that runs in this process, which nobody else may be.
    pub(crate) slots: Vec<SlotSet>,
}

/// Position of an edge in the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EdgeIndex(usize);

/// All edges of the group that are processes of their own.
#[derive(Debug)]
pub(crate) struct EdgeRegistry {
    networks: Vec<KnownEdges>,
    edges: Vec<Known>,
}

/// One edge, from its first message on.
#[derive(Debug)]
struct Known {
    id: EdgeId,
    /// Its life and the section it runs, once it is let in.
    life: Option<(Boot, EdgePlace)>,
    refused: BTreeMap<&'static str, u64>,
}

impl EdgeRegistry {
    pub(crate) fn new(networks: Vec<KnownEdges>) -> Self {
        Self { networks, edges: Vec::new() }
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
            if let Some((_, place)) = life.filter(|(boot, _)| *boot == status.boot) {
                self.edges[index.0].life = None;
                changes.push(EdgeChange::Down(place));
            }
            return changes;
        }
        if let Some((_, place)) = life {
            self.edges[index.0].life = None;
            changes.push(EdgeChange::Down(place));
        }
        match self.place_of(status.network, status.edge) {
            Ok(place) => {
                self.edges[index.0].life = Some((status.boot, place));
                changes.push(EdgeChange::Up(place));
            }
            Err((fault, why)) => self.refuse(index, fault, &why),
        }
        changes
    }

    /// The place of an edge of that network, if it is to be had.
    fn place_of(
        &self,
        network: NetworkId,
        edge: headwater_protocol::EdgeIndex,
    ) -> Result<EdgePlace, (Fault, String)> {
        let Some(known) = self.networks.iter().find(|known| known.network == network) else {
            let ours: Vec<String> = self.networks.iter().map(|known| known.network.short()).collect();
            let (ours, theirs) = (ours.join(" or "), network.short());
            let why = format!("network: expected {ours}, found {theirs}: give it this group's bundle");
            return Err((Fault::WrongNetwork, why));
        };
        if known.slots.get(edge.index()).is_none_or(|slots| slots.is_empty()) {
            let why = format!("edge {edge}: expected an edge of the network that does not run in the leader");
            return Err((Fault::Malformed, why));
        }
        let place = EdgePlace { generation: known.generation, edge };
        let mut lives = self.edges.iter().filter_map(|known| Some((&known.id, known.life?.1)));
        match lives.find(|(_, taken)| *taken == place) {
            Some((holder, _)) => {
                let why = format!("edge {edge} is {holder} already: give one of them another");
                Err((Fault::SlotTaken, why))
            }
            None => Ok(place),
        }
    }

    /// The network by whose shapes a message of the edge is read.
    pub(crate) fn generation(&self, index: EdgeIndex) -> Generation {
        self.edges[index.0].life.map_or(Generation::Current, |(_, place)| place.generation)
    }

    /// The edge for which a message of this boot speaks.
    ///
    /// # Errors
    /// [`Fault::UnknownDevice`] for one that is not let in.
    pub(crate) fn admit(&self, index: EdgeIndex, boot: Boot) -> Result<EdgePlace, Fault> {
        let life = self.edges[index.0].life.filter(|(lives, _)| *lives == boot);
        life.map(|(_, place)| place).ok_or(Fault::UnknownDevice)
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
    const NEXT: NetworkId = NetworkId([8; 32]);

    fn status(state: DeviceState, boot: u16, edge: u8) -> EdgeStatus {
        EdgeStatus { state, boot: Boot(boot), edge: edge_index(edge), network: OURS, software: "test".into() }
    }

    /// Edge 0 runs in the leader, 1 and 2 elsewhere.
    fn registry() -> EdgeRegistry {
        let network = |generation, network| KnownEdges {
            generation,
            network,
            slots: vec![0, 0b10, 0b100].into_iter().map(SlotSet::from_bits).collect(),
        };
        EdgeRegistry::new(vec![network(Generation::Current, OURS), network(Generation::Next, NEXT)])
    }

    fn place(edge: u8) -> EdgePlace {
        EdgePlace { generation: Generation::Current, edge: edge_index(edge) }
    }

    fn edge_index(edge: u8) -> headwater_protocol::EdgeIndex {
        headwater_protocol::EdgeIndex::new(edge).unwrap()
    }

    fn index(registry: &mut EdgeRegistry, id: &str) -> EdgeIndex {
        registry.edge(&EdgeId::new(id).unwrap()).unwrap()
    }

    #[test]
    fn an_edge_comes_and_goes_and_the_will_of_an_earlier_life_does_not_end_it() {
        let mut registry = registry();
        let north = index(&mut registry, "north");
        assert_eq!(registry.admit(north, Boot(1)), Err(Fault::UnknownDevice));
        assert_eq!(registry.status(north, &status(DeviceState::Up, 1, 1)), [EdgeChange::Up(place(1))]);
        assert_eq!(registry.admit(north, Boot(1)), Ok(place(1)));
        let again = registry.status(north, &status(DeviceState::Up, 2, 1));
        assert_eq!(again, [EdgeChange::Down(place(1)), EdgeChange::Up(place(1))]);
        assert_eq!(registry.status(north, &status(DeviceState::Down, 1, 1)), []);
        assert_eq!(registry.status(north, &status(DeviceState::Down, 2, 1)), [EdgeChange::Down(place(1))]);
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
    #[test]
    fn an_edge_that_comes_back_with_the_next_network_leaves_the_current_one() {
        let mut registry = registry();
        let north = index(&mut registry, "north");
        registry.status(north, &status(DeviceState::Up, 1, 1));
        let next = EdgeStatus { network: NEXT, ..status(DeviceState::Up, 2, 1) };
        let there = EdgePlace { generation: Generation::Next, edge: edge_index(1) };
        let changes = registry.status(north, &next);
        assert_eq!(changes, [EdgeChange::Down(place(1)), EdgeChange::Up(there)]);
        assert_eq!(
            (registry.generation(north), registry.admit(north, Boot(2))),
            (Generation::Next, Ok(there))
        );
    }
}
