//! The status of the service for the admin port.

use std::sync::{Arc, Weak};

use headwater_telemetry::{Health, Liveness, certificate_status};
use headwater_transport::tls::ServerIdentity;
use serde_json::{Map, Value, json};

use crate::health::{Health as ModelHealth, Healths};
use crate::state::Shared;

/// Health and status of the service.
pub(crate) struct ServiceStatus {
    healths: Healths,
    /// The model threads end once nobody holds the state.
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
        let models = shared.networks.iter().map(|(generation, network)| {
            json!({
                "name": shared.model_name,
                "network": network.id,
                "generation": generation.name(),
                "engine": shared.engine,
                "state": model_state(&network.health.borrow()),
                "waiting_requests": network.queue.waiting(),
                "max_requests": network.queue.max_requests(),
                "samples": report.samples_by_network.get(&network.id),
            })
        });
        let models: Vec<Value> = models.collect();
        let requests = json!({
            "answered": report.answered,
            "refused": report.refused,
            "skipped_deadline": report.skipped_deadline,
            "skipped_caller_gone": report.skipped_caller_gone,
        });
        let certificate = shared.admission.identity().and_then(ServerIdentity::certificate_state);
        Map::from_iter([
            ("models".into(), models.into()),
            ("requests".into(), requests),
            ("certificate".into(), certificate_status(certificate)),
        ])
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
