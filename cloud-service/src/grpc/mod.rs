//! gRPC: the public service `inference.GRPCInferenceService` beside HTTP. A request for inference becomes the body of the HTTP interface, so
//! both have one reader and the same refusals.

mod infer;
// The messages of inference.proto.
#[expect(unreachable_pub, clippy::enum_variant_names, reason = "generated")]
mod inference;

use headwater_protocol::Fault;
use headwater_transport::{GrpcCall, GrpcStatus};
use prost::Message;

use self::inference as messages;
use crate::body;
use crate::metadata::{SERVER, TensorMetadata, Times};
use crate::refusal::Refusal;
use crate::state::{CloudState, Shared, VERSION};

/// Path of every method, before its name.
const SERVICE: &str = "/inference.GRPCInferenceService/";

/// Methods that everybody may call who gets a connection.
const HEALTH: [&str; 2] = ["ServerLive", "ServerReady"];

/// The message that answers a call.
///
/// # Errors
/// The status of a call without an answer.
pub(crate) async fn answer(state: CloudState, call: GrpcCall) -> Result<Vec<u8>, GrpcStatus> {
    answer_call(&state.shared, &call).await.map_err(|refusal| GrpcStatus {
        code: refusal.fault.grpc_status(),
        message: format!("{} ({})", refusal.message, refusal.fault.code()),
    })
}

async fn answer_call(shared: &Shared, call: &GrpcCall) -> Result<Vec<u8>, Refusal> {
    let method = call.path.strip_prefix(SERVICE).unwrap_or_default();
    if !HEALTH.contains(&method) {
        shared.admit(Some(&call.connection), &call.headers)?;
    }
    let answer = match method {
        "ServerLive" => {
            let messages::ServerLiveRequest {} = read(shared, call)?;
            messages::ServerLiveResponse { live: shared.healths.is_live() }.encode_to_vec()
        }
        "ServerReady" => {
            let messages::ServerReadyRequest {} = read(shared, call)?;
            messages::ServerReadyResponse { ready: shared.healths.is_ready() }.encode_to_vec()
        }
        "ModelReady" => {
            let messages::ModelReadyRequest { name, version } = read(shared, call)?;
            check_model(shared, &name, &version)?;
            messages::ModelReadyResponse { ready: shared.healths.is_ready() }.encode_to_vec()
        }
        "ServerMetadata" => {
            let messages::ServerMetadataRequest {} = read(shared, call)?;
            let extensions = SERVER.extensions.iter().map(|name| (*name).to_owned()).collect();
            let (name, version) = (SERVER.name.into(), SERVER.version.into());
            messages::ServerMetadataResponse { name, version, extensions }.encode_to_vec()
        }
        "ModelMetadata" => {
            let messages::ModelMetadataRequest { name, version } = read(shared, call)?;
            check_model(shared, &name, &version)?;
            model_metadata(shared).encode_to_vec()
        }
        "ModelInfer" => infer::answer(shared, call).await?.encode_to_vec(),
        "ModelStatistics" => {
            let messages::ModelStatisticsRequest { name, version } = read(shared, call)?;
            // Without a name the statistics of all models, which are one.
            if !name.is_empty() {
                check_model(shared, &name, &version)?;
            }
            statistics(shared).encode_to_vec()
        }
        "RepositoryIndex" => {
            let messages::RepositoryIndexRequest { ready, .. } = read(shared, call)?;
            index(shared, ready).encode_to_vec()
        }
        _ => {
            let path: String = call.path.chars().take(80).collect();
            let reason = format!("no method {path:?}: docs/protocol.md lists those of this service");
            return Err(Refusal::new(Fault::WrongMethod, reason));
        }
    };
    Ok(answer)
}

/// Reads the message of a call.
fn read<M: Message + Default>(shared: &Shared, call: &GrpcCall) -> Result<M, Refusal> {
    let message = call.message.clone();
    let message = match call.is_compressed {
        true => body::decoded(message, &call.headers, "grpc-encoding", shared.body_limit(false))?,
        false => message,
    };
    M::decode(message).map_err(|error| Refusal::new(Fault::Malformed, format!("message: {error}")))
}

/// Checks the model of a call; an empty version is any.
fn check_model(shared: &Shared, name: &str, version: &str) -> Result<(), Refusal> {
    shared.check_model_version(name, if version.is_empty() { VERSION } else { version })
}

fn model_metadata(shared: &Shared) -> messages::ModelMetadataResponse {
    let model = shared.model_metadata();
    let tensor =
        |TensorMetadata { name, datatype, shape }| messages::model_metadata_response::TensorMetadata {
            name: name.into(),
            datatype: datatype.into(),
            shape,
        };
    messages::ModelMetadataResponse {
        name: model.name.into(),
        versions: model.versions.map(String::from).into(),
        platform: model.platform.into(),
        inputs: model.inputs.map(tensor).into(),
        outputs: model.outputs.map(tensor).into(),
    }
}

fn statistics(shared: &Shared) -> messages::ModelStatisticsResponse {
    let model = shared.model_statistics();
    let times = |Times { count, ns }| Some(messages::StatisticDuration { count, ns });
    let stats = model.inference_stats;
    let model_stats = messages::ModelStatistics {
        name: model.name.into(),
        version: model.version.into(),
        inference_count: model.inference_count,
        execution_count: model.execution_count,
        inference_stats: Some(messages::InferStatistics {
            success: times(stats.success),
            fail: times(stats.fail),
            queue: times(stats.queue),
            compute_input: times(stats.compute_input),
            compute_infer: times(stats.compute_infer),
            compute_output: times(stats.compute_output),
        }),
    };
    messages::ModelStatisticsResponse { model_stats: vec![model_stats] }
}

fn index(shared: &Shared, only_ready: bool) -> messages::RepositoryIndexResponse {
    let entry = |entry: crate::metadata::IndexEntry<'_>| messages::repository_index_response::ModelIndex {
        name: entry.name.into(),
        version: entry.version.into(),
        state: entry.state.into(),
        reason: entry.reason.into(),
    };
    let models = shared.index(only_ready).map(entry).collect();
    messages::RepositoryIndexResponse { models }
}
