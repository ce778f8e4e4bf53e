//! The networks that the service answers for: shapes, queue and model thread of each.

use std::path::Path;
use std::sync::Arc;

use headwater_inference::bundle::{Bundle, Generation, Networks, PerNetwork};
use headwater_inference::engine::Engine;
use headwater_inference::manifest::FeatureEncoding;
use headwater_protocol::v2::FeatureShape;
use headwater_protocol::{Fault, NetworkId};
use tokio::sync::watch;

use crate::body_limits::BodyLimits;
use crate::health::{Health, Healths};
use crate::metrics::ModelMetrics;
use crate::model;
use crate::queue::ModelQueue;
use crate::refusal::Refusal;
use crate::service::CloudError;
use crate::settings::CloudConfig;

/// One network. Its model thread ends when the network is dropped.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) id: NetworkId,
    pub(crate) shape: FeatureShape,
    pub(crate) encoding: FeatureEncoding,
    pub(crate) classes: usize,
    pub(crate) limits: BodyLimits,
    pub(crate) queue: ModelQueue,
    health: watch::Receiver<Health>,
}

/// All networks of the service.
#[derive(Debug)]
pub(crate) struct ServedNetworks(pub(crate) PerNetwork<Network>);

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
    fn start(
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
        let (queue, receiver) = ModelQueue::new(config.http.max_requests.get());
        let health = model::spawn(bundle, engine, receiver, config.model.max_batch.get(), metrics)
            .map_err(|error| CloudError::Model(error.to_string()))?;
        let limits = BodyLimits::of(&shape);
        Ok(Self { id, shape, encoding, classes, limits, queue, health })
    }

    /// Waits until the section is loaded.
    async fn loaded(&self, generation: Generation) -> Result<(), CloudError> {
        let mut health = self.health.clone();
        let loaded = health.wait_for(|health| *health != Health::Loading).await.map(|health| health.clone());
        match (loaded, generation) {
            (Ok(Health::Failed(reason)), Generation::Current) => Err(CloudError::Model(reason)),
            (Ok(Health::Failed(reason)), Generation::Next) => {
                Err(CloudError::Model(format!("the next network: {reason}")))
            }
            _ => Ok(()),
        }
    }
}

impl ServedNetworks {
    /// Starts the threads of all networks at once, and waits until every section is loaded.
    ///
    /// # Errors
    /// [`CloudError::Model`] when a section does not load; all threads end then.
    pub(crate) async fn start(
        config: &CloudConfig,
        networks: &Networks,
        engine: &Arc<dyn Engine>,
        metrics: &PerNetwork<ModelMetrics>,
    ) -> Result<Self, CloudError> {
        let served = networks.bundles().clone().try_map(|generation, bundle| {
            Network::start(config, bundle, Arc::clone(engine), metrics[generation].clone())
        })?;
        for (generation, network) in served.iter() {
            network.loaded(generation).await?;
        }
        Ok(Self(served))
    }

    /// The network that a request names; the current one for a request that names none.
    ///
    /// # Errors
    /// [`Fault::WrongNetwork`] for any other network.
    pub(crate) fn named(&self, id: Option<NetworkId>) -> Result<&Network, Refusal> {
        let Some(id) = id else { return Ok(&self.0.current) };
        let found = self.0.iter().find(|(_, network)| network.id == id);
        found.map(|(_, network)| network).ok_or_else(|| {
            let expected: Vec<_> = self.0.iter().map(|(_, network)| network.id.short()).collect();
            let (expected, found) = (expected.join(" or "), id.short());
            Refusal::new(
                Fault::WrongNetwork,
                format!("network: expected {expected}, found {found}: give all tiers the same bundle"),
            )
        })
    }

    /// Limits of a body before its network is known: the larger of each.
    pub(crate) fn limits(&self) -> BodyLimits {
        self.0.iter().fold(self.0.current.limits, |limits, (_, network)| limits.max(network.limits))
    }

    pub(crate) fn healths(&self, is_stopping: watch::Receiver<bool>) -> Healths {
        Healths { threads: self.0.as_ref().map(|_, network| network.health.clone()), is_stopping }
    }
}
