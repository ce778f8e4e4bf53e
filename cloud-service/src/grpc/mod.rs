//! gRPC: the public service `inference.GRPCInferenceService` beside HTTP. A request for inference becomes the body of the HTTP interface, so
//! both have one reader and the same refusals.

mod infer;
// The messages of inference.proto.
#[expect(unreachable_pub, clippy::enum_variant_names, reason = "generated")]
mod inference;

use headwater_protocol::Fault;
use headwater_transport::{GrpcCall, GrpcStatus};
use prost::Message;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use self::inference as messages;
use crate::body;
use crate::metadata;
use crate::refusal::{Refusal, clipped};
use crate::state::{CloudState, Shared, VERSION};

/// Path of every method, before its name.
const SERVICE: &str = "/inference.GRPCInferenceService/";

/// Header of a call whose message may be compressed.
const ENCODING: &str = "grpc-encoding";

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
            message::<messages::ServerMetadataResponse>(metadata::server())
        }
        "ModelMetadata" => {
            let messages::ModelMetadataRequest { name, version } = read(shared, call)?;
            check_model(shared, &name, &version)?;
            message::<messages::ModelMetadataResponse>(shared.model_metadata())
        }
        "ModelInfer" => infer::answer(shared, call).await?.encode_to_vec(),
        "ModelStatistics" => {
            let messages::ModelStatisticsRequest { name, version } = read(shared, call)?;
            // Without a name the statistics of all models, which are one.
            if !name.is_empty() {
                check_model(shared, &name, &version)?;
            }
            message::<messages::ModelStatisticsResponse>(shared.model_statistics())
        }
        "RepositoryIndex" => {
            let messages::RepositoryIndexRequest { ready, .. } = read(shared, call)?;
            message::<messages::RepositoryIndexResponse>(json!({ "models": shared.index(ready) }))
        }
        _ => {
            let path = clipped(&call.path);
            let reason = format!("no method {path:?}: docs/protocol.md lists those of this service");
            return Err(Refusal::new(Fault::WrongMethod, reason));
        }
    };
    Ok(answer)
}

/// Reads the message of a call.
fn read<M: Message + Default>(shared: &Shared, call: &GrpcCall) -> Result<M, Refusal> {
    let message = call.message.clone();
    let message = match (call.is_compressed, call.headers.contains_key(ENCODING)) {
        (true, true) => body::decoded(message, &call.headers, ENCODING, shared.body_limit(false))?,
        (true, false) => {
            let reason = format!("{ENCODING}: expected gzip or deflate for a compressed message, found none");
            return Err(Refusal::new(Fault::Malformed, reason));
        }
        (false, _) => message,
    };
    M::decode(message).map_err(|error| Refusal::new(Fault::Malformed, format!("message: {error}")))
}

/// Checks the model of a call; an empty version is any.
fn check_model(shared: &Shared, name: &str, version: &str) -> Result<(), Refusal> {
    shared.check_model_version(name, if version.is_empty() { VERSION } else { version })
}

/// The message that says the same as an answer over HTTP.
fn message<M: Message + DeserializeOwned>(answer: Value) -> Vec<u8> {
    let message: M = serde_json::from_value(answer).expect("answers have the fields of their messages");
    message.encode_to_vec()
}
