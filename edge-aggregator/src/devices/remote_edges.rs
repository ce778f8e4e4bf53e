//! Remote edges: other processes that run an edge section for the leader, as known from their status messages.

use std::sync::Arc;

use headwater_inference::bundle::PerNetwork;
use headwater_inference::leader::{Event, Generation, Micros};
use headwater_protocol::{Boot, DeviceState, EdgeId, EdgeIndex, EdgeStatus, Fault, NetworkId, Session};
use headwater_transport::LogLimit;
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::devices::message_format::{Change, MessageFormat, Refusal, Refusals};
use crate::devices::registry::wrong_network;

/// Most edges that are remembered: more than a group has, and a bound on made-up names.
const MAX_EDGES: usize = 256;

/// Most log lines a minute about refused edges.
const MAX_LINES: u32 = 10;

/// An edge of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NetworkEdge {
    pub(crate) generation: Generation,
    pub(crate) edge: EdgeIndex,
}

/// An edge in the registry. A name that was forgotten and comes back is another edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RemoteEdgeIndex {
    at: usize,
    /// Number of the name among all names so far.
    number: u64,
}

/// All remote edges of the group.
#[derive(Debug)]
pub(crate) struct RemoteEdges {
    formats: Arc<PerNetwork<MessageFormat>>,
    pub(crate) state: RemoteEdgesState,
    log: LogLimit<Micros>,
}

/// The leader's knowledge of the remote edges.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RemoteEdgesState {
    edges: Vec<RemoteEdge>,
    /// Number of names that were remembered so far, forgotten ones included.
    names: u64,
}

/// One edge, from its first message on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct RemoteEdge {
    id: EdgeId,
    number: u64,
    /// Boot and section of an edge that is up and accepted.
    session: Option<(Boot, NetworkEdge)>,
    /// Refusals by fault; used for the log alone.
    #[serde(skip)]
    refused: Refusals,
}

impl RemoteEdges {
    pub(crate) fn new(formats: Arc<PerNetwork<MessageFormat>>) -> Self {
        Self { formats, state: RemoteEdgesState::default(), log: LogLimit::new(MAX_LINES) }
    }

    /// True if a state names only networks that the group has.
    pub(crate) fn fits(&self, state: &RemoteEdgesState) -> bool {
        let sessions = state.edges.iter().filter_map(|edge| edge.session);
        sessions.map(|(_, claim)| claim.generation).all(|generation| self.formats.get(generation).is_some())
    }

    /// The edge of that name, known or new. If [`MAX_EDGES`] edges are remembered, a new one replaces the oldest that is not up; `None` if
    /// all are up.
    pub(crate) fn edge(&mut self, id: &EdgeId) -> Option<RemoteEdgeIndex> {
        if let Some(at) = self.state.edges.iter().position(|known| known.id == *id) {
            return Some(RemoteEdgeIndex { at, number: self.state.edges[at].number });
        }
        self.state.names += 1;
        let number = self.state.names;
        let edge = RemoteEdge { id: id.clone(), number, session: None, refused: Refusals::new() };
        if self.state.edges.len() < MAX_EDGES {
            self.state.edges.push(edge);
            return Some(RemoteEdgeIndex { at: self.state.edges.len() - 1, number });
        }
        let not_up = self.state.edges.iter().enumerate().filter(|(_, known)| known.session.is_none());
        let (at, _) = not_up.min_by_key(|(_, known)| known.number)?;
        self.state.edges[at] = edge;
        Some(RemoteEdgeIndex { at, number })
    }

    /// True if the edge is still remembered.
    pub(crate) fn is_current(&self, index: RemoteEdgeIndex) -> bool {
        self.state.edges.get(index.at).is_some_and(|known| known.number == index.number)
    }

    /// Takes the status of an edge, sent by the edge itself or by the broker as its last will.
    pub(crate) fn set_status(
        &mut self,
        index: RemoteEdgeIndex,
        status: &EdgeStatus,
        changes: &mut Vec<Change>,
    ) -> Result<(), Refusal> {
        let session = self.state.edges[index.at].session;
        // The last will of another boot must not end this session.
        let ended = session.filter(|(boot, _)| status.state == DeviceState::Up || *boot == status.boot);
        if let Some((_, NetworkEdge { generation, edge })) = ended {
            self.state.edges[index.at].session = None;
            changes.push((generation, Event::EdgeDown { edge }));
        }
        if status.state == DeviceState::Up {
            let claim = self.claimed_edge(status.network, status.edge)?;
            self.state.edges[index.at].session = Some((status.boot, claim));
            changes.push((claim.generation, Event::EdgeUp { edge: claim.edge }));
        }
        Ok(())
    }

    /// The edge that a process wants to run, or the refusal: not this group's network, an edge that is not remote, or one that is taken.
    fn claimed_edge(&self, network: NetworkId, edge: EdgeIndex) -> Result<NetworkEdge, Refusal> {
        let Some((generation, known)) = self.formats.iter().find(|(_, known)| known.network == network)
        else {
            return Err((Fault::WrongNetwork, wrong_network(&self.formats, network)));
        };
        if known.remote_edges.get(edge.index()).is_none_or(|slots| slots.is_empty()) {
            let why = format!("edge {edge}: expected an edge of the network that does not run in the leader");
            return Err((Fault::Malformed, why));
        }
        let claim = NetworkEdge { generation, edge };
        let mut taken = self.state.edges.iter().filter_map(|known| Some((&known.id, known.session?.1)));
        match taken.find(|(_, taken)| *taken == claim) {
            Some((holder, _)) => {
                let why = format!("edge {edge} is {holder} already: give one of them another");
                Err((Fault::SlotTaken, why))
            }
            None => Ok(claim),
        }
    }

    /// The network under which a message of the edge is read; the current network for an edge that is not up.
    pub(crate) fn generation(&self, index: RemoteEdgeIndex) -> Generation {
        self.state.edges[index.at].session.map_or(Generation::Current, |(_, edge)| edge.generation)
    }

    /// The session of the edge's messages.
    ///
    /// # Errors
    /// [`Fault::UnknownDevice`] for an edge that is not up and accepted.
    pub(crate) fn session(&self, index: RemoteEdgeIndex) -> Result<Session, Fault> {
        let (boot, claim) = self.state.edges[index.at].session.ok_or(Fault::UnknownDevice)?;
        let format = self.formats.get(claim.generation).ok_or(Fault::WrongNetwork)?;
        Ok(Session::of_boot(format.network, boot))
    }

    /// The edge section that the edge serves.
    ///
    /// # Errors
    /// [`Fault::UnknownDevice`] for an edge that is not up and accepted.
    pub(crate) fn admit(&self, index: RemoteEdgeIndex) -> Result<NetworkEdge, Fault> {
        self.state.edges[index.at].session.map(|(_, edge)| edge).ok_or(Fault::UnknownDevice)
    }

    /// Counts a refusal, and logs the first one of a kind.
    pub(crate) fn refuse(&mut self, index: RemoteEdgeIndex, fault: Fault, why: &str, now: Micros) {
        let known = &mut self.state.edges[index.at];
        let count = known.refused.entry(fault.code()).or_default();
        *count += 1;
        if *count == 1 && self.log.take(now).is_some() {
            warn!(edge = %known.id, fault = fault.code(), why, "an edge was refused; more refusals of this kind are only counted");
        }
    }
}

#[cfg(test)]
mod tests {
    use headwater_protocol::SlotSet;

    use headwater_protocol::Schema;

    use super::*;
    use crate::devices::inbox::tests::format;

    const OURS: NetworkId = NetworkId([7; 32]);
    const NEXT: NetworkId = NetworkId([8; 32]);

    fn status(state: DeviceState, boot: u16, edge: u8) -> EdgeStatus {
        EdgeStatus {
            schema: Schema,
            state,
            boot: Boot(boot),
            edge: edge_index(edge),
            network: OURS,
            software: "test".into(),
        }
    }

    /// Edge 0 runs in the leader, edges 1 and 2 are remote.
    fn registry() -> RemoteEdges {
        let format = |network| MessageFormat {
            remote_edges: vec![0, 0b10, 0b100].into_iter().map(SlotSet::from_bits).collect(),
            ..format(network)
        };
        RemoteEdges::new(Arc::new(PerNetwork { current: format(OURS), next: Some(format(NEXT)) }))
    }

    fn claim(edge: u8) -> NetworkEdge {
        NetworkEdge { generation: Generation::Current, edge: edge_index(edge) }
    }

    fn up(NetworkEdge { generation, edge }: NetworkEdge) -> Change {
        (generation, Event::EdgeUp { edge })
    }

    fn down(NetworkEdge { generation, edge }: NetworkEdge) -> Change {
        (generation, Event::EdgeDown { edge })
    }

    /// Changes that a status makes; a refusal of the status is counted.
    fn changes(registry: &mut RemoteEdges, index: RemoteEdgeIndex, status: &EdgeStatus) -> Vec<Change> {
        let mut changes = Vec::new();
        if let Err((fault, why)) = registry.set_status(index, status, &mut changes) {
            registry.refuse(index, fault, &why, Micros(0));
        }
        changes
    }

    fn edge_index(edge: u8) -> EdgeIndex {
        EdgeIndex::new(edge).unwrap()
    }

    fn index(registry: &mut RemoteEdges, id: &str) -> RemoteEdgeIndex {
        registry.edge(&EdgeId::new(id).unwrap()).unwrap()
    }

    #[test]
    fn an_edge_comes_and_goes_and_the_last_will_of_an_earlier_boot_does_not_end_its_session() {
        let mut registry = registry();
        let north = index(&mut registry, "north");
        assert_eq!(registry.admit(north), Err(Fault::UnknownDevice));
        assert_eq!(changes(&mut registry, north, &status(DeviceState::Up, 1, 1)), [up(claim(1))]);
        assert_eq!(registry.admit(north), Ok(claim(1)));
        assert_eq!(registry.session(north), Ok(Session::of_boot(OURS, Boot(1))));
        let again = changes(&mut registry, north, &status(DeviceState::Up, 2, 1));
        assert_eq!(registry.session(north), Ok(Session::of_boot(OURS, Boot(2))));
        assert_eq!(again, [down(claim(1)), up(claim(1))]);
        assert_eq!(changes(&mut registry, north, &status(DeviceState::Down, 1, 1)), []);
        assert_eq!(changes(&mut registry, north, &status(DeviceState::Down, 2, 1)), [down(claim(1))]);
        assert_eq!(registry.admit(north), Err(Fault::UnknownDevice));
    }

    #[test]
    fn a_local_edge_an_unknown_edge_and_a_taken_edge_are_refused() {
        let mut registry = registry();
        let [north, south] = ["north", "south"].map(|id| index(&mut registry, id));
        changes(&mut registry, north, &status(DeviceState::Up, 1, 1));
        for edge in [0, 1, 3] {
            assert_eq!(changes(&mut registry, south, &status(DeviceState::Up, 1, edge)), [], "edge {edge}");
        }
        assert!(registry.state.edges[north.at].refused.is_empty());
        let refused = &registry.state.edges[south.at].refused;
        assert_eq!((refused[Fault::SlotTaken.code()], refused[Fault::Malformed.code()]), (1, 2));
    }

    #[test]
    fn an_edge_that_comes_back_with_the_next_network_leaves_the_current_one() {
        let mut registry = registry();
        let north = index(&mut registry, "north");
        changes(&mut registry, north, &status(DeviceState::Up, 1, 1));
        let next = EdgeStatus { network: NEXT, ..status(DeviceState::Up, 2, 1) };
        let claimed = NetworkEdge { generation: Generation::Next, edge: edge_index(1) };
        let changed = changes(&mut registry, north, &next);
        assert_eq!(changed, [down(claim(1)), up(claimed)]);
        assert_eq!((registry.generation(north), registry.admit(north)), (Generation::Next, Ok(claimed)));
    }
}
