//! A network that is served: its shapes, its queue, its model thread.

use std::sync::Arc;

use headwater_inference::bundle::{Bundle, Generation, Networks};
use headwater_inference::engine::Engine;
use headwater_inference::manifest::FeatureEncoding;
use headwater_protocol::v2::FeatureShape;
use headwater_protocol::{Fault, NetworkId};
use tokio::sync::watch;

use crate::body_limits::BodyLimits;
use crate::config::CloudConfig;
use crate::health::{Health, Healths};
use crate::held::Held;
use crate::model;
use crate::model_counters::ModelCounters;
use crate::queue::ModelQueue;
use crate::refusal::Refusal;
use crate::service::CloudError;

/// One network; its model thread ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) id: NetworkId,
    pub(crate) shape: FeatureShape,
    pub(crate) encoding: FeatureEncoding,
    pub(crate) classes: usize,
    pub(crate) limits: BodyLimits,
    pub(crate) queue: ModelQueue,
    pub(crate) counters: Arc<ModelCounters>,
    health: watch::Receiver<Health>,
}

impl Network {
    /// Starts the model thread, which begins to load the section.
    fn start(config: &CloudConfig, bundle: Arc<Bundle>, engine: Arc<dyn Engine>) -> Result<Self, CloudError> {
        let (id, manifest) = (bundle.network_id(), bundle.manifest());
        let shape = FeatureShape {
            slots: manifest.cloud_sources(),
            bits: manifest.cloud_map().bits(),
            most_samples: config.most_samples,
        };
        let (classes, encoding) = (manifest.classes(), manifest.cloud_map().encoding);
        let counters = Arc::new(ModelCounters::of(id));
        let (queue, receiver) = ModelQueue::new(config.most_requests);
        let health = model::spawn(bundle, engine, receiver, config.max_batch, Arc::clone(&counters))
            .map_err(|error| CloudError::Model(error.to_string()))?;
        let limits = BodyLimits::of(&shape);
        Ok(Self { id, shape, encoding, classes, limits, queue, counters, health })
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

impl Held<Network> {
    /// Starts the threads of all networks at once, and waits until every section is loaded.
    ///
    /// # Errors
    /// [`CloudError::Model`] when one does not load; the others end then.
    pub(crate) async fn start(
        config: &CloudConfig,
        networks: &Networks,
        engine: &Arc<dyn Engine>,
    ) -> Result<Self, CloudError> {
        let start = |bundle| Network::start(config, bundle, Arc::clone(engine));
        let next = networks.next().map(|next| start(Arc::clone(next))).transpose()?;
        let held = Self { current: start(Arc::clone(networks.current()))?, next };
        for (generation, network) in held.each() {
            network.loaded(generation).await?;
        }
        Ok(held)
    }

    /// The network that a request names; the current one for a request that names none.
    ///
    /// # Errors
    /// [`Fault::WrongNetwork`] for one that is not held.
    pub(crate) fn of(&self, named: Option<NetworkId>) -> Result<&Network, Refusal> {
        let Some(named) = named else { return Ok(&self.current) };
        let found = self.each().find(|(_, network)| network.id == named);
        found.map(|(_, network)| network).ok_or_else(|| {
            let ours: Vec<_> = self.each().map(|(_, network)| network.id.short()).collect();
            let (ours, theirs) = (ours.join(" or "), named.short());
            Refusal::new(
                Fault::WrongNetwork,
                format!("network: expected {ours}, found {theirs}: give all tiers the same bundle"),
            )
        })
    }

    /// The largest bodies that any of them takes.
    pub(crate) fn limits(&self) -> BodyLimits {
        self.each().fold(self.current.limits, |limits, (_, network)| limits.max(network.limits))
    }

    pub(crate) fn healths(&self) -> Healths {
        self.map(|network| network.health.clone())
    }
}
