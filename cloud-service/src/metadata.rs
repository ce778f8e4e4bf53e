//! What the service tells of itself, its model and its work, in the words of the protocol.

use headwater_inference::bundle::PerNetwork;
use headwater_protocol::NetworkId;
use headwater_telemetry::DurationCounts;
use serde::Serialize;

use crate::metrics::{CloudReport, ModelCounts};
use crate::state::{Shared, VERSION};

/// Name and version of the server, and what it can do beyond the protocol.
#[derive(Debug, Serialize)]
pub(crate) struct ServerMetadata {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    pub(crate) extensions: &'static [&'static str],
}

pub(crate) const SERVER: ServerMetadata = ServerMetadata {
    name: "headwater-cloud",
    version: env!("CARGO_PKG_VERSION"),
    extensions: &["binary_tensor_data", "classification", "model_repository", "statistics"],
};

/// Tensors of the model.
#[derive(Debug, Serialize)]
pub(crate) struct ModelMetadata<'a> {
    pub(crate) name: &'a str,
    pub(crate) versions: [&'static str; 1],
    pub(crate) platform: &'static str,
    pub(crate) parameters: ModelParameters,
    pub(crate) inputs: [TensorMetadata; 2],
    pub(crate) outputs: [TensorMetadata; 1],
}

/// Networks that answer.
#[derive(Debug, Serialize)]
pub(crate) struct ModelParameters {
    network: NetworkId,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_network: Option<NetworkId>,
}

#[derive(Debug, Serialize)]
pub(crate) struct TensorMetadata {
    pub(crate) name: &'static str,
    pub(crate) datatype: &'static str,
    /// -1 is any number of samples.
    pub(crate) shape: Vec<i64>,
}

impl Shared {
    pub(crate) fn model_metadata(&self) -> ModelMetadata<'_> {
        let PerNetwork { current, next } = &self.networks;
        let tensor = |name, datatype, of_sample: &[usize]| {
            let of_sample = of_sample.iter().map(|&size| size as i64);
            TensorMetadata { name, datatype, shape: [-1].into_iter().chain(of_sample).collect() }
        };
        let (slots, packed_bytes) = (current.shape.slots, current.shape.packed_bytes());
        ModelMetadata {
            name: &self.model_name,
            versions: [VERSION],
            platform: "headwater",
            parameters: ModelParameters {
                network: current.id,
                next_network: next.as_ref().map(|next| next.id),
            },
            inputs: [
                tensor("features", "UINT8", &[slots, packed_bytes]),
                tensor("presence", "BOOL", &[slots]),
            ],
            outputs: [tensor("logits", "FP32", &[current.labels.len()])],
        }
    }

    /// The models as a repository lists them; `only_ready` leaves out those that are not ready.
    pub(crate) fn index(&self, only_ready: bool) -> impl Iterator<Item = IndexEntry<'_>> {
        let is_ready = self.healths.is_ready();
        let (state, reason) = if is_ready { ("READY", "") } else { ("UNAVAILABLE", "not ready") };
        let model = IndexEntry { name: &self.model_name, version: VERSION, state, reason };
        (is_ready || !only_ready).then_some(model).into_iter()
    }

    pub(crate) fn model_statistics(&self) -> ModelStatistics<'_> {
        let report = self.metrics.report();
        let CloudReport { request_durations, refused_durations, .. } = &report;
        let (all, refused) = (Times::of(request_durations), Times::of(refused_durations));
        let success = Times { count: all.count - refused.count, ns: all.ns - refused.ns };
        let sum = |of: fn(&ModelCounts) -> &DurationCounts| {
            report.models.values().map(of).map(Times::of).fold(Times::default(), |sum, times| Times {
                count: sum.count + times.count,
                ns: sum.ns + times.ns,
            })
        };
        ModelStatistics {
            name: &self.model_name,
            version: VERSION,
            inference_count: report.of_models(|of| of.samples),
            execution_count: report.of_models(|of| of.batches),
            inference_stats: InferenceStatistics {
                success,
                fail: refused,
                queue: sum(|of| &of.queue),
                compute_input: Times::default(),
                compute_infer: sum(|of| &of.model),
                compute_output: Times::default(),
            },
            batch_stats: [],
        }
    }
}

/// One model of a repository.
#[derive(Debug, Serialize)]
pub(crate) struct IndexEntry<'a> {
    pub(crate) name: &'a str,
    pub(crate) version: &'static str,
    pub(crate) state: &'static str,
    pub(crate) reason: &'static str,
}

/// Work of the model since the start, of both networks together.
#[derive(Debug, Serialize)]
pub(crate) struct ModelStatistics<'a> {
    pub(crate) name: &'a str,
    pub(crate) version: &'static str,
    /// Samples.
    pub(crate) inference_count: u64,
    /// Batches.
    pub(crate) execution_count: u64,
    pub(crate) inference_stats: InferenceStatistics,
    /// Always empty; clients of Triton expect the member.
    batch_stats: [(); 0],
}

/// Requests, and batches in the model. Input and output take no time that is counted.
#[derive(Debug, Serialize)]
pub(crate) struct InferenceStatistics {
    pub(crate) success: Times,
    pub(crate) fail: Times,
    pub(crate) queue: Times,
    pub(crate) compute_input: Times,
    pub(crate) compute_infer: Times,
    pub(crate) compute_output: Times,
}

/// A number of durations, and their sum in nanoseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Times {
    pub(crate) count: u64,
    pub(crate) ns: u64,
}

impl Times {
    fn of(durations: &DurationCounts) -> Self {
        Self { count: durations.count(), ns: durations.sum_us().saturating_mul(1000) }
    }
}
