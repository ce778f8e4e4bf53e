//! gRPC: the public service `inference.GRPCInferenceService` beside HTTP. A request for inference becomes the body of the HTTP interface, so
//! both have one reader and the same refusals.

mod infer;
// The messages of inference.proto.
#[expect(unreachable_pub, clippy::enum_variant_names, reason = "generated")]
mod inference;

use axum::http::HeaderMap;
use bytes::{Buf, Bytes};
use headwater_protocol::Fault;
use headwater_transport::{GrpcCall, GrpcMessageError, GrpcStatus};
use prost::encoding::{DecodeContext, decode_key};
use prost::{DecodeError, Message};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::Instant;

use self::inference as messages;
use crate::body;
use crate::metadata;
use crate::refusal::{Refusal, clipped};
use crate::state::{CloudState, Shared, VERSION};

/// Path of every method, before its name.
const SERVICE: &str = "/inference.GRPCInferenceService/";

/// Header of a call whose message may be compressed.
const ENCODING: &str = "grpc-encoding";

/// Most fields of a message, tensors and parameters included; no valid message has so many. An empty tensor is two bytes of the message, and
/// takes hundreds of bytes once it is decoded.
const MAX_FIELDS: usize = 64;

/// Methods that everybody may call who gets a connection.
const HEALTH: [&str; 2] = ["ServerLive", "ServerReady"];

/// The message that answers a call.
///
/// # Errors
/// The status of a call without an answer.
pub(crate) async fn answer(state: CloudState, mut call: GrpcCall) -> Result<Vec<u8>, GrpcStatus> {
    answer_call(&state.shared, &mut call).await.map_err(|refusal| GrpcStatus {
        code: refusal.fault.grpc_status(),
        message: format!("{} ({})", refusal.message, refusal.fault.code()),
    })
}

async fn answer_call(shared: &Shared, call: &mut GrpcCall) -> Result<Vec<u8>, Refusal> {
    let path = call.head.uri.path().to_owned();
    let method = path.strip_prefix(SERVICE).unwrap_or_default();
    if !HEALTH.contains(&method) {
        shared.admit(Some(&call.connection), &call.head.headers)?;
    }
    let answer = match method {
        "ServerLive" => {
            read::<()>(shared, call).await?;
            shared.healths.is_live().encode_to_vec()
        }
        "ServerReady" => {
            read::<()>(shared, call).await?;
            shared.healths.is_ready().encode_to_vec()
        }
        "ModelReady" => {
            let messages::ModelReadyRequest { name, version } = read(shared, call).await?;
            check_model(shared, &name, &version)?;
            shared.healths.is_ready().encode_to_vec()
        }
        "ServerMetadata" => {
            read::<()>(shared, call).await?;
            message::<messages::ServerMetadataResponse>(metadata::server())
        }
        "ModelMetadata" => {
            let messages::ModelMetadataRequest { name, version } = read(shared, call).await?;
            check_model(shared, &name, &version)?;
            message::<messages::ModelMetadataResponse>(shared.model_metadata())
        }
        "ModelInfer" => infer::answer(shared, call).await?.encode_to_vec(),
        "ModelStatistics" => {
            let messages::ModelStatisticsRequest { name, version } = read(shared, call).await?;
            // A call without a name asks for the statistics of all models, and there is one model.
            if !name.is_empty() {
                check_model(shared, &name, &version)?;
            }
            message::<messages::ModelStatisticsResponse>(shared.model_statistics())
        }
        "RepositoryIndex" => {
            let messages::RepositoryIndexRequest { ready, .. } = read(shared, call).await?;
            message::<messages::RepositoryIndexResponse>(json!({ "models": shared.index(ready) }))
        }
        _ => {
            shared.metrics.counts().count_refused(Fault::WrongMethod);
            let path = clipped(&path);
            let reason = format!("no method {path:?}: docs/api.md lists those of this service");
            return Err(Refusal::new(Fault::WrongMethod, reason));
        }
    };
    Ok(answer)
}

/// Reads the message of a call.
async fn read<M: Message + Default>(shared: &Shared, call: &mut GrpcCall) -> Result<M, Refusal> {
    let sent = receive(shared, call).await?;
    decode(shared, &call.head.headers, sent)
}

/// The message of a call as it was sent, and whether it is compressed.
async fn receive(shared: &Shared, call: &mut GrpcCall) -> Result<(Bytes, bool), Refusal> {
    let sent = body::in_time("message", Instant::now() + shared.max_deadline, call.message()).await?;
    sent.map_err(|error| {
        let fault = match error {
            GrpcMessageError::Oversize(_) => Fault::Oversize,
            GrpcMessageError::Malformed(_) => Fault::Malformed,
        };
        Refusal::new(fault, error.to_string())
    })
}

/// Decodes a message that was sent, as [`Message::decode`] does, and refuses messages of more than [`MAX_FIELDS`] fields.
fn decode<M: Message + Default>(
    shared: &Shared,
    headers: &HeaderMap,
    (message, is_compressed): (Bytes, bool),
) -> Result<M, Refusal> {
    let malformed = |reason: String| Refusal::new(Fault::Malformed, reason);
    let mut message = match (is_compressed, headers.contains_key(ENCODING)) {
        (true, true) => body::decoded(message, headers, ENCODING, shared.body_limit(false))?,
        (true, false) => {
            let reason = format!("{ENCODING}: expected gzip or deflate for a compressed message, found none");
            return Err(malformed(reason));
        }
        (false, _) => message,
    };
    let undecoded = |error: DecodeError| malformed(format!("message: {error}"));
    let (mut decoded, mut fields) = (M::default(), 0);
    while message.has_remaining() {
        fields += 1;
        if fields > MAX_FIELDS {
            return Err(malformed(format!("message: expected at most {MAX_FIELDS} fields, found more")));
        }
        let (tag, wire_type) = decode_key(&mut message).map_err(undecoded)?;
        decoded.merge_field(tag, wire_type, &mut message, DecodeContext::default()).map_err(undecoded)?;
    }
    Ok(decoded)
}

/// Checks the model of a call; an empty version stands for the only version.
fn check_model(shared: &Shared, name: &str, version: &str) -> Result<(), Refusal> {
    shared.check_model_version(name, if version.is_empty() { VERSION } else { version })
}

/// The gRPC message with the fields of an answer over HTTP.
fn message<M: Message + DeserializeOwned>(answer: Value) -> Vec<u8> {
    let message: M = serde_json::from_value(answer).expect("answers have the fields of their messages");
    message.encode_to_vec()
}
