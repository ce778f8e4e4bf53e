//! The bundles that a leader decides by.

use std::sync::Arc;

use headwater_inference::bundle::Bundle;
use headwater_inference::leader::Generation;

/// The network of the group, and the next one while its devices switch over one by one.
#[derive(Clone)]
pub struct Networks {
    /// What the group runs.
    pub current: Arc<Bundle>,
    /// What its devices are switching to.
    pub next: Option<Arc<Bundle>>,
}

impl Networks {
    /// The networks in their order, at least one.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Generation, &Bundle)> {
        let next = self.next.iter().map(|next| (Generation::Next, &**next));
        [(Generation::Current, &*self.current)].into_iter().chain(next)
    }

    /// Checks that two networks can be told apart.
    ///
    /// # Errors
    /// A sentence with key, expected and found.
    pub(crate) fn check(&self) -> Result<(), String> {
        let Some(next) = &self.next else { return Ok(()) };
        let (current, next) = (self.current.network_id(), next.network_id());
        if current == next {
            let network = current.short();
            return Err(format!(
                "next_bundle: expected another network than {network} of bundle, found the same"
            ));
        }
        // Messages carry the tag alone; one that was on its way while its device switched must not be read by the wrong shapes.
        if current.tag() == next.tag() {
            let (current, next, tag) = (current.short(), next.short(), current.tag());
            return Err(format!(
                "next_bundle: networks {current} and {next} share the tag {tag}, by which messages tell them apart: train it once more"
            ));
        }
        Ok(())
    }
}

impl From<Arc<Bundle>> for Networks {
    fn from(current: Arc<Bundle>) -> Self {
        Self { current, next: None }
    }
}
