//! The status of the service for the admin port.

use std::sync::{Arc, Weak};

use headwater_protocol::status::{CloudStatus, ModelStatus, RequestCounts};
use headwater_telemetry::{Health, Liveness, certificate_status, fields_of};
use headwater_transport::tls::ServerIdentity;
use serde_json::{Map, Value};

use crate::health::{Health as ModelHealth, Healths};
use crate::state::Shared;

/// Health and status of the service.
pub(crate) struct ServiceStatus {
    healths: Healths,
    /// Weak, because the model threads end once nobody holds the state.
    shared: Weak<Shared>,
}

impl ServiceStatus {
    pub(crate) fn of(shared: &Arc<Shared>) -> Self {
        Self { healths: shared.healths.clone(), shared: Arc::downgrade(shared) }
    }
}

impl Health for ServiceStatus {
    fn liveness(&self) -> Liveness {
        self.healths.liveness()
    }

    fn unready_reason(&self) -> Option<String> {
        self.healths.unready_reason()
    }

    fn status(&self) -> Map<String, Value> {
        let Some(shared) = self.shared.upgrade() else { return Map::new() };
        let report = shared.metrics.report();
        let models = shared.networks.iter().map(|(generation, network)| ModelStatus {
            name: shared.model_name.to_string(),
            network: network.id,
            generation: generation.name().into(),
            engine: shared.engine.to_string(),
            state: model_state(&network.health.borrow()).into(),
            waiting_requests: network.queue.waiting(),
            max_requests: network.queue.max_requests(),
            samples: report.models.get(&network.id).map(|model| model.samples),
        });
        let refused = report.refused().map(|(code, count)| (code.to_owned(), count));
        let certificate = shared.admission.identity().and_then(ServerIdentity::certificate_state);
        fields_of(&CloudStatus {
            models: models.collect(),
            requests: RequestCounts {
                answered: report.answered(),
                refused: refused.collect(),
                skipped_deadline: report.of_models(|model| model.skipped("deadline")),
                skipped_caller_gone: report.of_models(|model| model.skipped("caller_gone")),
            },
            certificate: certificate.map(certificate_status),
        })
    }
}

fn model_state(health: &ModelHealth) -> &'static str {
    match health {
        ModelHealth::Loading => "loading",
        ModelHealth::Ready => "ready",
        ModelHealth::Stopped => "stopped",
        ModelHealth::Failed(_) => "failed",
    }
}
