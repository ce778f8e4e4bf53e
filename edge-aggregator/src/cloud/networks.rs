//! The networks that the cloud serves, compared with the networks of the group.
//!
//! ```text
//! start, a refusal that names a network or a model, a cloud that answers again
//!   └──> GET /v2/models/{m} ──> "parameters": { "network", "next_network" } ──> one line in the log, one metric
//! ```

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use headwater_protocol::NetworkId;
use headwater_transport::LogLimit;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{Request, StatusCode};
use serde_json::Value;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{debug, info, warn};

use super::{CloudModel, random_fraction};

/// Longest time of one check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);

/// Shortest time between two checks, and the wait after a first check without an answer. Each further such check doubles the wait.
const PAUSE: Duration = Duration::from_secs(1);

/// Longest wait after a check without an answer.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// Most bytes of a model's metadata.
const MAX_METADATA_BYTES: usize = 64 * 1024;

/// Outcome of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
enum CloudNetworks {
    /// The cloud serves every network of the group.
    Ours,
    /// The cloud names its networks, and at least one of the group's is missing.
    Others { served: Vec<NetworkId>, not_served: Vec<NetworkId> },
    /// The cloud has no model of this name.
    NoModel,
    /// The cloud names no network: it is another server of the same protocol.
    Unnamed,
}

/// Checks the cloud's networks, at once and at each notification of `check_networks`. Never ends.
pub(super) async fn watch(model: Arc<CloudModel>) {
    // While refusals go on, an equal line comes again once a minute.
    let (mut seen, mut log, mut wait) = (None, LogLimit::new(1), PAUSE);
    loop {
        let at = Instant::now();
        match model.check_networks().await {
            Ok(networks) => {
                if log.take(at).is_some() || seen.as_ref() != Some(&networks) {
                    model.log(&networks, seen.as_ref());
                }
                model.report.lock().cloud.serves_other_network =
                    matches!(networks, CloudNetworks::Others { .. } | CloudNetworks::NoModel);
                (seen, wait) = (Some(networks), PAUSE);
                model.check_networks.notified().await;
            }
            Err(reason) => {
                debug!(uri = %model.metadata_uri, reason, "the cloud does not name its networks");
                // A notification ends the wait.
                _ = timeout(wait.mul_f32(0.5 + 0.5 * random_fraction()), model.check_networks.notified())
                    .await;
                wait = (2 * wait).min(MAX_WAIT);
            }
        }
        sleep_until(at + PAUSE).await;
    }
}

impl CloudModel {
    /// Asks the cloud for its networks.
    ///
    /// # Errors
    /// The reason why the cloud's networks are not known.
    async fn check_networks(&self) -> Result<CloudNetworks, String> {
        let request = self
            .connection
            .authorized(Request::get(self.metadata_uri.clone()))
            .body(Full::<Bytes>::default());
        let asked = async {
            // A check counts among the concurrent requests that the settings allow. The semaphore is never closed.
            let _permit = self.connection.permits.acquire().await.map_err(|error| error.to_string())?;
            let response = self.connection.client.request(request.map_err(|error| error.to_string())?).await;
            let response = response.map_err(|error| error.to_string())?;
            let status = response.status();
            let body = Limited::new(response.into_body(), MAX_METADATA_BYTES).collect().await;
            Ok((status, body.map_err(|error| error.to_string())?.to_bytes()))
        };
        let answer = timeout(CHECK_TIMEOUT, asked).await;
        let (status, body) = answer.unwrap_or_else(|_| Err("no answer in time".to_owned()))?;
        match status {
            StatusCode::OK => {
                let metadata = serde_json::from_slice(&body).map_err(|error| error.to_string())?;
                let ours: Vec<_> = self.formats.iter().map(|(_, format)| format.network).collect();
                Ok(compare(&ours, &metadata))
            }
            StatusCode::NOT_FOUND => Ok(CloudNetworks::NoModel),
            status => Err(status.to_string()),
        }
    }

    fn log(&self, networks: &CloudNetworks, before: Option<&CloudNetworks>) {
        let (group, uri) = (&self.group, &self.metadata_uri);
        match networks {
            CloudNetworks::Others { served, not_served } => {
                let (served, run) = (names(served), names(not_served));
                warn!(
                    %group, %uri,
                    "the cloud serves network {served}, this group runs {run}: unsure samples of {run} are decided without the cloud \
                     (cloud_refused); give all tiers the same bundle"
                );
            }
            CloudNetworks::NoModel => warn!(
                %group, %uri,
                "the cloud has no model of this name: unsure samples are decided without the cloud (cloud_refused); give the setting \
                 `model` the cloud's `model.name`"
            ),
            CloudNetworks::Ours if before.is_some() => {
                info!(%group, %uri, "the cloud serves the group's network");
            }
            CloudNetworks::Ours => debug!(%group, %uri, "the cloud serves the group's network"),
            CloudNetworks::Unnamed => debug!(%group, %uri, "the cloud names no network in its metadata"),
        }
    }
}

/// Compares the networks of a group with the networks in a model's metadata.
fn compare(ours: &[NetworkId], metadata: &Value) -> CloudNetworks {
    let parameters = ["network", "next_network"].map(|key| &metadata["parameters"][key]);
    let served = parameters.into_iter().filter_map(|id| serde_json::from_value(id.clone()).ok());
    let served: Vec<NetworkId> = served.collect();
    let not_served: Vec<_> = ours.iter().filter(|id| !served.contains(id)).copied().collect();
    match (served.is_empty(), not_served.is_empty()) {
        (true, _) => CloudNetworks::Unnamed,
        (false, true) => CloudNetworks::Ours,
        (false, false) => CloudNetworks::Others { served, not_served },
    }
}

fn names(networks: &[NetworkId]) -> String {
    let names: Vec<_> = networks.iter().map(|network| network.short()).collect();
    names.join(" and ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const A: NetworkId = NetworkId([1; 32]);
    const B: NetworkId = NetworkId([2; 32]);
    const C: NetworkId = NetworkId([3; 32]);

    #[track_caller]
    fn check(ours: &[NetworkId], metadata: &Value, expected: &CloudNetworks) {
        assert_eq!(&compare(ours, metadata), expected);
    }

    #[test]
    fn the_cloud_must_serve_every_network_of_the_group() {
        let one = json!({ "parameters": { "network": A } });
        let both = json!({ "parameters": { "network": A, "next_network": B } });
        check(&[A], &one, &CloudNetworks::Ours);
        check(&[B], &both, &CloudNetworks::Ours);
        check(&[B, A], &both, &CloudNetworks::Ours);
        let others = |served: &[NetworkId], not_served: &[NetworkId]| CloudNetworks::Others {
            served: served.into(),
            not_served: not_served.into(),
        };
        check(&[B], &one, &others(&[A], &[B]));
        check(&[A, B], &one, &others(&[A], &[B]));
        check(&[C], &both, &others(&[A, B], &[C]));
    }

    #[test]
    fn metadata_without_a_network_say_nothing() {
        for metadata in [json!({}), json!([]), json!({ "parameters": { "network": 7 } }), Value::Null] {
            check(&[A], &metadata, &CloudNetworks::Unnamed);
        }
    }
}
