//! State that all handlers of a service share.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use headwater_inference::bundle::{Networks, PerNetwork};
use headwater_inference::engine::Engine;
use headwater_protocol::{Fault, NetworkId};
use headwater_telemetry::{ReportMetric, WorkLoops, certificate_metrics};
use headwater_transport::RequestConnection;
use headwater_transport::tls::{Certificate, CertificateState};
use serde::Deserialize;
use tokio::sync::watch;

use crate::admission::Admission;
use crate::error::CloudError;
use crate::health::Healths;
use crate::metrics::{CloudMetrics, CloudReport};
use crate::network::Network;
use crate::refusal::{Refusal, clipped};
use crate::refused_clients::RefusedClients;
use crate::settings::CloudConfig;

/// State of the handlers, shared by all clones. The model threads end when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct CloudState {
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) model_name: String,
    pub(crate) networks: PerNetwork<Network>,
    pub(crate) max_deadline: Duration,
    pub(crate) metrics: Arc<CloudMetrics>,
    pub(crate) healths: Healths,
    pub(crate) admission: Admission,
    pub(crate) refused_clients: RefusedClients,
    /// Turns true when the service stops: readiness ends, and requests are still answered.
    pub(crate) stopping: watch::Sender<bool>,
    /// Name of the engine that runs the sections.
    pub(crate) engine: &'static str,
}

/// The model in a path, and its version if the path names one.
#[derive(Debug, Deserialize)]
pub(crate) struct ModelPath {
    model: String,
    version: Option<String>,
}

/// The one version of a model that a service has.
pub(crate) const VERSION: &str = "1";

/// The model of a path, if the path can be read.
pub(crate) type ModelName = Result<Path<ModelPath>, PathRejection>;

const READY: [ReportMetric<bool>; 1] = [ReportMetric::gauge(
    "headwater_cloud_ready",
    "1 while every model thread answers and the service is not stopping.",
    |&is_ready| is_ready.into(),
)];

const CERTIFICATE: [ReportMetric<CertificateState>; 2] = certificate_metrics!(
    "headwater_cloud_certificate_expiry_timestamp_seconds",
    "headwater_cloud_certificate_reload_failed"
);

impl CloudState {
    /// Starts a model thread for each network, and waits until their sections are loaded.
    ///
    /// # Errors
    /// [`CloudError::Config`] for a certificate or a file of keys that cannot be used, [`CloudError::Model`] when a section does not load or
    /// a model thread does not start.
    pub async fn start(
        config: &CloudConfig,
        networks: impl Into<Networks>,
        engine: Arc<dyn Engine>,
    ) -> Result<Self, CloudError> {
        let admission = Admission::new(config).map_err(|mistake| CloudError::Config(vec![mistake]))?;
        let bundles = networks.into().bundles().clone();
        let metrics = Arc::new(CloudMetrics::new(bundles.as_ref().map(|_, bundle| bundle.network_id())));
        // All threads start at once; each begins to load its section.
        let (work_loops, engine_name) = (WorkLoops::default(), engine.name());
        let networks = bundles.try_map(|generation, bundle| {
            let work_loop = work_loops.add(format!("the model of network {}", bundle.network_id().short()));
            let counts = Arc::clone(&metrics.models[generation].1);
            Network::start(config, bundle, Arc::clone(&engine), counts, work_loop)
        })?;
        let stopping = watch::Sender::new(false);
        let threads = networks.as_ref().map(|_, network| network.health.clone());
        let healths = Healths { threads, is_stopping: stopping.subscribe(), work_loops };
        healths.loaded().await.map_err(CloudError::Model)?;
        let of_metrics = healths.clone();
        metrics.registry.register_report(&READY, &[], move || of_metrics.is_ready());
        if let Some(identity) = admission.identity().cloned() {
            metrics
                .registry
                .register_report(&CERTIFICATE, &[], move || identity.certificate_state().unwrap_or_default());
        }
        let shared = Shared {
            model_name: config.model.name.clone(),
            max_deadline: Duration::from_millis(u64::from(config.http.deadline_ms)),
            metrics,
            healths,
            admission,
            refused_clients: RefusedClients::default(),
            networks,
            stopping,
            engine: engine_name,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Counts of the service since it started.
    pub fn report(&self) -> CloudReport {
        self.shared.metrics.report()
    }
}

impl Shared {
    /// Checks that a client is admitted; counts and logs a refusal.
    ///
    /// # Errors
    /// [`Fault::Unauthorized`].
    pub(crate) fn admit(
        &self,
        connection: Option<&RequestConnection>,
        headers: &HeaderMap,
    ) -> Result<(), Refusal> {
        let authorization = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let certificate = connection.and_then(RequestConnection::certificate);
        self.admission.check(certificate, authorization).inspect_err(|refusal| {
            self.metrics.counts().count_refused(refusal.fault);
            if let Some(connection) = connection {
                let holder = certificate.and_then(Certificate::holder).unwrap_or_default();
                self.refused_clients.log_unauthorized(connection.peer().ip(), &holder, &refusal.message);
            }
        })
    }

    /// Checks that a path has the model's name, and the model's version if the path names a version. A name that is not UTF-8 is refused by
    /// the error table too.
    ///
    /// # Errors
    /// [`Fault::NotFound`] for another name or version.
    pub(crate) fn check_model(&self, name: ModelName) -> Result<(), Refusal> {
        let Ok(Path(ModelPath { model, version })) = name else {
            let why = "the model's name: expected percent-encoded UTF-8, found something else";
            return Err(Refusal::new(Fault::NotFound, why));
        };
        self.check_model_version(&model, version.as_deref().unwrap_or(VERSION))
    }

    /// Checks a model's name and version.
    ///
    /// # Errors
    /// [`Fault::NotFound`] for another name or version.
    pub(crate) fn check_model_version(&self, model: &str, version: &str) -> Result<(), Refusal> {
        let why = if model != self.model_name {
            format!("no model {:?}: this service has {:?}", clipped(model), self.model_name)
        } else if version != VERSION {
            format!("no version {:?} of the model: this service has version {VERSION}", clipped(version))
        } else {
            return Ok(());
        };
        Err(Refusal::new(Fault::NotFound, why))
    }

    /// The network that a request names; the current one for a request that names none.
    ///
    /// # Errors
    /// [`Fault::WrongNetwork`] for any other network.
    pub(crate) fn network(&self, id: Option<NetworkId>) -> Result<&Network, Refusal> {
        let Some(id) = id else { return Ok(&self.networks.current) };
        let found = self.networks.iter().find(|(_, network)| network.id == id);
        found.map(|(_, network)| network).ok_or_else(|| {
            let (expected, found) = (self.served(), id.short());
            Refusal::new(
                Fault::WrongNetwork,
                format!("network: expected {expected}, found {found}: give all tiers the same bundle"),
            )
        })
    }

    /// The networks of the service as text, for messages to people.
    pub(crate) fn served(&self) -> String {
        let served: Vec<_> = self.networks.iter().map(|(_, network)| network.id.short()).collect();
        served.join(" or ")
    }

    /// Limit in bytes of a body before its network is known: the largest limit of all networks.
    pub(crate) fn body_limit(&self, is_binary: bool) -> usize {
        self.networks.iter().map(|(_, network)| network.body_limit(is_binary)).max().unwrap_or(0)
    }
}
