//! The bundles of a group that changes its network one device at a time.

use std::sync::Arc;

use headwater_protocol::{NetworkId, NetworkTag};
use thiserror::Error;

use super::Bundle;

/// The network that a group runs, and the next one while its devices switch over to it.
#[derive(Clone, Debug)]
pub struct Networks {
    current: Arc<Bundle>,
    next: Option<Arc<Bundle>>,
}

/// Which of the networks that a group holds. A sample is decided under that of its first summary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Generation {
    /// The one the group runs.
    #[default]
    Current,
    /// The one its devices are switching to.
    Next,
}

impl Generation {
    /// Both, in order.
    pub const ALL: [Self; 2] = [Self::Current, Self::Next];

    /// Its word in metrics and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::Next => "next",
        }
    }
}

impl Networks {
    /// Two networks.
    ///
    /// # Errors
    /// [`NetworksError`] where they cannot be told apart.
    pub fn both(current: Arc<Bundle>, next: Arc<Bundle>) -> Result<Self, NetworksError> {
        let (ours, theirs) = (current.network_id(), next.network_id());
        if ours == theirs {
            return Err(NetworksError::Same(ours));
        }
        if ours.tag() == theirs.tag() {
            return Err(NetworksError::SameTag { tag: ours.tag(), ids: [ours, theirs] });
        }
        Ok(Self { current, next: Some(next) })
    }

    /// All of them, in their order.
    pub fn each(&self) -> impl Iterator<Item = (Generation, &Arc<Bundle>)> {
        Generation::ALL.into_iter().zip([&self.current].into_iter().chain(&self.next))
    }

    /// What the group runs.
    pub fn current(&self) -> &Arc<Bundle> {
        &self.current
    }

    /// What its devices switch to.
    pub fn next(&self) -> Option<&Arc<Bundle>> {
        self.next.as_ref()
    }
}

impl From<Arc<Bundle>> for Networks {
    fn from(current: Arc<Bundle>) -> Self {
        Self { current, next: None }
    }
}

/// Why two networks cannot be held at once.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NetworksError {
    /// They are one.
    #[error("expected the bundle of another network, found that of the current one, {id}", id = .0.short())]
    Same(NetworkId),
    /// Messages carry the tag alone; one that was on its way while its device switched would be read by the wrong shapes.
    #[error(
        "expected a network with another tag, found {next} beside {current}: messages name both {tag}; train it once more",
        current = .ids[0].short(), next = .ids[1].short()
    )]
    SameTag {
        /// First bytes of both ids.
        tag: NetworkTag,
        /// Current and next.
        ids: [NetworkId; 2],
    },
}
