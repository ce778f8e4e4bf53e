//! Answers over HTTP about the service, its model and its work: metadata, statistics, repository index. gRPC sends the same fields.

use headwater_inference::bundle::PerNetwork;
use serde_json::{Value, json};

use crate::state::{Shared, VERSION};

/// Name and version of the server, and what it can do beyond the protocol.
pub(crate) fn server() -> Value {
    json!({
        "name": "headwater-cloud",
        "version": env!("CARGO_PKG_VERSION"),
        "extensions": ["binary_tensor_data", "classification", "model_repository", "statistics"],
    })
}

impl Shared {
    /// The model's tensors, and the networks that answer.
    pub(crate) fn model_metadata(&self) -> Value {
        let PerNetwork { current, next } = &self.networks;
        let tensor = |name: &str, datatype: &str, of_sample: &[usize]| {
            // -1 is any number of samples.
            let shape = [-1].into_iter().chain(of_sample.iter().map(|&size| size as i64));
            json!({ "name": name, "datatype": datatype, "shape": shape.collect::<Vec<_>>() })
        };
        let (slots, packed_bytes) = (current.shape.slots, current.shape.packed_bytes());
        let mut parameters = json!({ "network": current.id });
        if let Some(next) = next {
            parameters["next_network"] = json!(next.id);
        }
        json!({
            "name": self.model_name,
            "versions": [VERSION],
            "platform": "headwater",
            "parameters": parameters,
            "inputs": [
                tensor("features", "UINT8", &[slots, packed_bytes]),
                tensor("presence", "BOOL", &[slots]),
            ],
            "outputs": [tensor("logits", "FP32", &[current.labels.len()])],
        })
    }

    /// The list of models of a repository, which has the one model; with `only_ready`, the list is empty while the model is not ready.
    pub(crate) fn index(&self, only_ready: bool) -> Value {
        let (state, reason) = match self.healths.is_ready() {
            true => ("READY", ""),
            false if only_ready => return json!([]),
            false => ("UNAVAILABLE", "not ready"),
        };
        json!([{ "name": self.model_name, "version": VERSION, "state": state, "reason": reason }])
    }

    /// Work of the model since the start, of both networks together: samples, batches, and times of requests and of batches in the model.
    /// The times of input and output are not measured, and are 0. Clients of Triton expect `batch_stats`.
    pub(crate) fn model_statistics(&self) -> Value {
        let report = self.metrics.report();
        let (all, refused) = (&report.request_durations, &report.refused_durations);
        let times = |count: u64, us: u64| json!({ "count": count, "ns": us.saturating_mul(1000) });
        let queue = times(report.of_models(|of| of.queue.count()), report.of_models(|of| of.queue.sum_us()));
        let model = times(report.of_models(|of| of.model.count()), report.of_models(|of| of.model.sum_us()));
        json!({ "model_stats": [{
            "name": self.model_name,
            "version": VERSION,
            "inference_count": report.of_models(|of| of.samples),
            "execution_count": report.of_models(|of| of.batches),
            "inference_stats": {
                "success": times(all.count() - refused.count(), all.sum_us() - refused.sum_us()),
                "fail": times(refused.count(), refused.sum_us()),
                "queue": queue,
                "compute_input": times(0, 0),
                "compute_infer": model,
                "compute_output": times(0, 0),
            },
            "batch_stats": [],
        }] })
    }
}
