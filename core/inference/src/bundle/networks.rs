//! The bundles of a group that changes its network one device at a time.

use std::collections::HashMap;
use std::fmt::Display;
use std::ops::{Index, IndexMut};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use headwater_protocol::message_sizes::PacketSizes;
use headwater_protocol::{NetworkId, Session};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{Bundle, BundleError, Trust};

/// Bundles of a group's networks: the current network, and the next network while devices switch over.
#[derive(Clone, Debug)]
pub struct Networks(PerNetwork<Arc<Bundle>>);

/// One value for the current network of a group, and one for the next network while devices switch over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PerNetwork<T> {
    /// Value of the current network.
    pub current: T,
    /// Value of the network that the group's devices switch to; `None` while there is none.
    pub next: Option<T>,
}

/// Current or next network of a group. A sample is decided under the network of its first answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Generation {
    /// The current network.
    #[default]
    Current,
    /// The network that the group's devices switch to.
    Next,
}

impl Generation {
    /// Both generations, in order.
    pub const ALL: [Self; 2] = [Self::Current, Self::Next];

    /// Name in metrics and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::Next => "next",
        }
    }
}

impl<T> PerNetwork<T> {
    /// A value for the current network alone.
    pub const fn new(current: T) -> Self {
        Self { current, next: None }
    }

    /// Value of a network; `None` for the next network while there is none.
    pub fn get(&self, generation: Generation) -> Option<&T> {
        match generation {
            Generation::Current => Some(&self.current),
            Generation::Next => self.next.as_ref(),
        }
    }

    /// Mutable value of a network; `None` for the next network while there is none.
    pub fn get_mut(&mut self, generation: Generation) -> Option<&mut T> {
        match generation {
            Generation::Current => Some(&mut self.current),
            Generation::Next => self.next.as_mut(),
        }
    }

    /// Every value with its generation, the current one first.
    pub fn iter(&self) -> impl Iterator<Item = (Generation, &T)> {
        Generation::ALL.into_iter().zip([&self.current].into_iter().chain(&self.next))
    }

    /// References to the values.
    pub fn as_ref(&self) -> PerNetwork<&T> {
        PerNetwork { current: &self.current, next: self.next.as_ref() }
    }

    /// Applies `of` to the value of each network.
    pub fn map<U>(self, mut of: impl FnMut(Generation, T) -> U) -> PerNetwork<U> {
        let current = of(Generation::Current, self.current);
        PerNetwork { current, next: self.next.map(|next| of(Generation::Next, next)) }
    }

    /// As [`PerNetwork::map`], for an `of` that may fail.
    ///
    /// # Errors
    /// The first error of `of`.
    pub fn try_map<U, E>(
        self,
        mut of: impl FnMut(Generation, T) -> Result<U, E>,
    ) -> Result<PerNetwork<U>, E> {
        let current = of(Generation::Current, self.current)?;
        Ok(PerNetwork { current, next: self.next.map(|next| of(Generation::Next, next)).transpose()? })
    }
}

/// # Panics
/// For the next network while there is none.
impl<T> Index<Generation> for PerNetwork<T> {
    type Output = T;
    fn index(&self, generation: Generation) -> &T {
        self.get(generation).expect("the network of this generation is there")
    }
}

/// # Panics
/// For the next network while there is none.
impl<T> IndexMut<Generation> for PerNetwork<T> {
    fn index_mut(&mut self, generation: Generation) -> &mut T {
        self.get_mut(generation).expect("the network of this generation is there")
    }
}

/// Opened bundles by path, which the groups of a process share.
#[derive(Debug, Default)]
pub struct OpenedBundles(HashMap<PathBuf, Arc<Bundle>>);

impl OpenedBundles {
    fn open(&mut self, path: &Path) -> Result<Arc<Bundle>, BundleError> {
        if let Some(opened) = self.0.get(path) {
            return Ok(Arc::clone(opened));
        }
        let opened = Arc::new(Bundle::open(path)?);
        self.0.insert(path.to_owned(), Arc::clone(&opened));
        Ok(opened)
    }
}

impl Networks {
    /// Opens the bundle of the current network, and the bundle of the next network if there is one. With `trust`, each bundle must have a
    /// signature that passes [`Bundle::check_signature`].
    ///
    /// # Errors
    /// A text for each bundle that cannot be used; it begins with the bundle's key in the settings.
    pub fn open(
        bundle: &Path,
        next_bundle: Option<&Path>,
        trust: Option<&Trust<'_>>,
    ) -> Result<Self, Vec<String>> {
        Self::open_among(&mut OpenedBundles::default(), (bundle, next_bundle), trust)
    }

    /// As [`Networks::open`], for one of several groups: a file that was opened for an earlier group is not opened again.
    ///
    /// # Errors
    /// As [`Networks::open`].
    pub fn open_among(
        opened: &mut OpenedBundles,
        (bundle, next_bundle): (&Path, Option<&Path>),
        trust: Option<&Trust<'_>>,
    ) -> Result<Self, Vec<String>> {
        let mut open = |key: &str, path: &Path| {
            let of = |error: &dyn Display| format!("{key}: opening {}: {error}", path.display());
            let bundle = opened.open(path).map_err(|error| of(&error))?;
            if let Some(trust) = trust {
                bundle.check_signature(trust).map_err(|error| of(&error))?;
            }
            Ok(bundle)
        };
        match (open("bundle", bundle), next_bundle.map(|path| open("next_bundle", path)).transpose()) {
            (Ok(current), Ok(None)) => Ok(current.into()),
            (Ok(current), Ok(Some(next))) => {
                Self::both(current, next).map_err(|error| vec![format!("next_bundle: {error}")])
            }
            (current, next) => Err(current.err().into_iter().chain(next.err()).collect()),
        }
    }

    /// Bundles of the current and the next network.
    ///
    /// # Errors
    /// [`NetworksError`] for networks that messages cannot distinguish.
    pub fn both(current: Arc<Bundle>, next: Arc<Bundle>) -> Result<Self, NetworksError> {
        let (ours, theirs) = (current.network_id(), next.network_id());
        if ours == theirs {
            return Err(NetworksError::Same(ours));
        }
        let session = Session::of_network(ours);
        if session == Session::of_network(theirs) {
            return Err(NetworksError::SameSession { session, ids: [ours, theirs] });
        }
        Ok(Self(PerNetwork { current, next: Some(next) }))
    }

    /// The bundles by generation.
    pub fn bundles(&self) -> &PerNetwork<Arc<Bundle>> {
        &self.0
    }

    /// Sizes of the largest packets that the group's leader (if `is_leader`), or a device or edge, publishes under any of the networks. With
    /// `has_details`, the leader's results have details.
    pub fn packet_sizes(&self, is_leader: bool, has_details: bool) -> PacketSizes {
        let sizes = self.0.iter().map(|(_, bundle)| {
            let manifest = bundle.manifest();
            let payload = manifest.limits().largest_payload();
            if is_leader {
                PacketSizes::of_leader(manifest.largest_result(has_details), payload)
            } else {
                PacketSizes::of_member(payload)
            }
        });
        sizes.fold(PacketSizes::default(), PacketSizes::max)
    }

    /// A line for people with each network, its policy and its signature.
    pub fn summary(&self) -> String {
        let summaries: Vec<_> = self.0.iter().map(|(_, bundle)| bundle.summary()).collect();
        summaries.join(", next ")
    }

    /// Bundle of the current network.
    pub fn current(&self) -> &Arc<Bundle> {
        &self.0.current
    }

    /// Bundle of the network that the group's devices switch to; `None` while there is none.
    pub fn next(&self) -> Option<&Arc<Bundle>> {
        self.0.next.as_ref()
    }
}

impl From<Arc<Bundle>> for Networks {
    fn from(current: Arc<Bundle>) -> Self {
        Self(PerNetwork::new(current))
    }
}

/// Two networks that cannot run at once.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NetworksError {
    /// Both bundles have the same network.
    #[error("expected the bundle of another network, found that of the current one, {id}", id = .0.short())]
    Same(NetworkId),
    /// Both networks have the same [`Session::of_network`]. A request names its network by this hash alone, so a device with the other
    /// network could answer the request.
    #[error(
        "expected a network with another session, found {next} beside {current}: requests name both {session}; train it once more",
        current = .ids[0].short(), next = .ids[1].short()
    )]
    SameSession {
        /// The hash of both networks.
        session: Session,
        /// Ids of the current and the next network.
        ids: [NetworkId; 2],
    },
}

#[cfg(test)]
mod tests {
    use headwater_protocol::MAX_FILE_NAME_BYTES;

    use super::*;
    use crate::testing::TinyNetwork;

    #[test]
    fn packets_of_a_leader_with_details_have_room_for_every_view() {
        let bundle = Bundle::from_bytes(&TinyNetwork::default().bundle()).unwrap();
        let slots = usize::from(bundle.manifest().slots);
        let networks = Networks::from(Arc::new(bundle));
        let usual = |has_details| networks.packet_sizes(true, has_details).usual;
        assert!(usual(true) > usual(false) + slots * MAX_FILE_NAME_BYTES);
        assert_eq!(networks.packet_sizes(false, true), networks.packet_sizes(false, false));
    }
}
