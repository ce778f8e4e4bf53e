//! The networks that the service is told to hold.

use std::path::Path;
use std::sync::Arc;

use headwater_inference::bundle::Bundle;

use crate::held::Held;
use crate::service::CloudError;

/// The bundle whose cloud section answers and, while a group switches over from one network to another, that of the next.
#[derive(Clone, Debug)]
pub struct Networks(pub(crate) Held<Arc<Bundle>>);

impl From<Arc<Bundle>> for Networks {
    fn from(current: Arc<Bundle>) -> Self {
        Self(Held { current, next: None })
    }
}

impl Networks {
    /// The current network and the next.
    ///
    /// # Errors
    /// [`CloudError::Config`] when both are the same.
    pub fn both(current: Arc<Bundle>, next: Arc<Bundle>) -> Result<Self, CloudError> {
        let (ours, theirs) = (current.network_id(), next.network_id());
        if ours == theirs {
            return Err(mistake(&format!(
                "expected the bundle of another network, found that of the current one, {}",
                ours.short()
            )));
        }
        Ok(Self(Held { current, next: Some(next) }))
    }

    /// With the next network from a file, where the settings name one.
    pub(crate) fn with_next(self, file: Option<&Path>) -> Result<Self, CloudError> {
        let Some(path) = file else { return Ok(self) };
        if self.0.next.is_some() {
            return Err(mistake(&format!(
                "expected one next network, found {} beside one that is given",
                path.display()
            )));
        }
        let next = Bundle::open(path).map_err(|error| {
            CloudError::Model(format!("opening the next bundle {}: {error}", path.display()))
        })?;
        Self::both(self.0.current, Arc::new(next))
    }
}

fn mistake(what: &str) -> CloudError {
    CloudError::Config(vec![format!("next_bundle: {what}")])
}
