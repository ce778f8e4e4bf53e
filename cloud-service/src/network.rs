//! The networks that the service answers for: shapes, limits, queue and model thread of each.

use std::path::Path;
use std::sync::Arc;

use headwater_inference::bundle::{Bundle, Networks};
use headwater_inference::engine::Engine;
use headwater_inference::manifest::FeatureEncoding;
use headwater_protocol::NetworkId;
use headwater_protocol::v2::FeatureShape;
use tokio::sync::watch;

use crate::health::Health;
use crate::metrics::ModelMetrics;
use crate::model;
use crate::queue::ModelQueue;
use crate::service::CloudError;
use crate::settings::CloudConfig;

/// One network. Its model thread ends when the network is dropped.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) id: NetworkId,
    pub(crate) shape: FeatureShape,
    pub(crate) encoding: FeatureEncoding,
    pub(crate) classes: usize,
    pub(crate) queue: ModelQueue,
    pub(crate) health: watch::Receiver<Health>,
}

/// Largest JSON part of a binary request: names, shapes, parameters, the caller's id.
const HEAD_BYTES: usize = 8 * 1024;

/// Opens the bundle of the current network, and that of the next where there is one.
///
/// # Errors
/// [`CloudError::Model`] for a bundle that cannot be opened, [`CloudError::Config`] for two networks that cannot run side by side.
pub fn open_networks(bundle: &Path, next: Option<&Path>) -> Result<Networks, CloudError> {
    let open = |what: &str, path: &Path| {
        let bundle = Bundle::open(path).map(Arc::new);
        bundle.map_err(|error| format!("opening the {what} {}: {error}", path.display()))
    };
    match (open("bundle", bundle), next.map(|path| open("next bundle", path)).transpose()) {
        (Ok(current), Ok(None)) => Ok(current.into()),
        (Ok(current), Ok(Some(next))) => Networks::both(current, next)
            .map_err(|error| CloudError::Config(vec![format!("next_bundle: {error}")])),
        (current, next) => {
            let reasons: Vec<_> = current.err().into_iter().chain(next.err()).collect();
            Err(CloudError::Model(reasons.join("; ")))
        }
    }
}

impl Network {
    /// Starts the model thread, which begins to load the section.
    pub(crate) fn start(
        config: &CloudConfig,
        bundle: Arc<Bundle>,
        engine: Arc<dyn Engine>,
        metrics: ModelMetrics,
    ) -> Result<Self, CloudError> {
        let (id, manifest) = (bundle.network_id(), bundle.manifest());
        let shape = FeatureShape {
            slots: manifest.cloud_sources(),
            bits: manifest.cloud_map().bits(),
            max_samples: config.http.max_samples.get(),
        };
        let (classes, encoding) = (manifest.classes(), manifest.cloud_map().encoding);
        let (queue, batcher) = ModelQueue::new(config.http.max_requests.get(), config.model.max_batch.get());
        let health = model::spawn(bundle, engine, batcher, metrics)
            .map_err(|error| CloudError::Model(error.to_string()))?;
        Ok(Self { id, shape, encoding, classes, queue, health })
    }

    /// Largest request body in bytes, with binary tensors or in JSON alone. In JSON a byte takes up to five characters (`255, `), a
    /// boolean seven (`false, `).
    pub(crate) fn body_limit(&self, is_binary: bool) -> usize {
        let packed_bytes = self.shape.packed_bytes();
        let map_bytes = if is_binary { packed_bytes + 1 } else { 5 * packed_bytes + 7 + 8 };
        HEAD_BYTES + self.shape.max_samples * self.shape.slots * map_bytes
    }
}
