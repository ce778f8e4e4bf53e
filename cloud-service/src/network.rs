//! The networks that the service answers for: shapes, limits, queue and model thread of each.

use std::sync::Arc;

use headwater_inference::bundle::Bundle;
use headwater_inference::engine::Engine;
use headwater_inference::manifest::FeatureEncoding;
use headwater_protocol::NetworkId;
use headwater_protocol::v2::FeatureShape;
use headwater_telemetry::WorkLoop;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::error::CloudError;
use crate::health::Health;
use crate::metrics::ModelCounts;
use crate::model;
use crate::queue::ModelQueue;
use crate::settings::CloudConfig;

/// One network. Its model thread ends when the network is dropped.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) id: NetworkId,
    pub(crate) shape: FeatureShape,
    pub(crate) encoding: FeatureEncoding,
    /// Names of the classes.
    pub(crate) labels: Vec<String>,
    pub(crate) queue: ModelQueue,
    pub(crate) health: watch::Receiver<Health>,
}

/// Bytes of the largest JSON part of a binary request: names, shapes, parameters, the caller's id.
const HEAD_BYTES: usize = 8 * 1024;

impl Network {
    /// Starts the model thread, which begins to load the section.
    pub(crate) fn start(
        config: &CloudConfig,
        bundle: Arc<Bundle>,
        engine: Arc<dyn Engine>,
        counts: Arc<Mutex<ModelCounts>>,
        work_loop: WorkLoop,
    ) -> Result<Self, CloudError> {
        let (id, manifest) = (bundle.network_id(), bundle.manifest());
        let shape = FeatureShape {
            slots: manifest.cloud_sources(),
            bits: manifest.cloud_map().bits(),
            max_samples: config.http.max_samples,
        };
        let (labels, encoding) = (manifest.labels.clone(), manifest.cloud_map().encoding);
        let (queue, batcher) = ModelQueue::new(config.http.max_requests, config.model.max_batch);
        let health = model::spawn(bundle, engine, batcher, counts, work_loop)
            .map_err(|error| CloudError::Model(error.to_string()))?;
        Ok(Self { id, shape, encoding, labels, queue, health })
    }

    /// Largest request body in bytes, with binary tensors or in JSON alone. In JSON a byte takes up to five characters (`255, `), a boolean
    /// seven (`false, `); eight more are a margin.
    pub(crate) fn body_limit(&self, is_binary: bool) -> usize {
        let packed_bytes = self.shape.packed_bytes();
        let map_bytes = if is_binary { packed_bytes + 1 } else { 5 * packed_bytes + 7 + 8 };
        HEAD_BYTES + self.shape.max_samples * self.shape.slots * map_bytes
    }
}
