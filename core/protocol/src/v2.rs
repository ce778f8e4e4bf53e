//! Bodies of the cloud's HTTP interface: the Open Inference Protocol v2 with binary tensors.
//!
//! ```text
//! request  = JSON header (its length in the header `Inference-Header-Content-Length`)
//!            features  UINT8 [n, slots, ceil(bits/8)]   packed bits (or pixels, or little-endian f32); zeros for an absent map
//!            presence  BOOL  [n, slots]                 one byte each; in a network with edges `slots` is the number of edges
//! response = JSON header, logits FP32 [n, classes]
//! ```
//!
//! `parameters` carries our additions: the network id, and the milliseconds left (never a wall time). Tensors as JSON `data` are read too,
//! so that any client of the protocol works.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::bits::{packed_len, tail_is_clear};
use crate::ids::{NetworkId, clipped};

/// HTTP header that holds the length of the JSON part.
pub const HEADER_LENGTH: &str = "inference-header-content-length";

const FEATURES: &str = "features";
const PRESENCE: &str = "presence";
const LOGITS: &str = "logits";

/// Why a body is refused: a sentence for the client, with the tensor, what was expected and what was found.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct V2Error(String);

/// One request: `n` samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InferRequest {
    /// The caller's id, repeated in the answer.
    pub id: Option<String>,
    /// The network that made the features and must answer; absent: the cloud's current one.
    pub network: Option<NetworkId>,
    /// Milliseconds left to the caller; absent: the server's own limit.
    pub deadline_ms: Option<u32>,
    /// The tensors.
    pub batch: FeatureBatch,
}

/// Features and presence of `n` samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeatureBatch {
    /// Number of samples, `n`.
    pub samples: usize,
    /// Packed maps, `[n, slots, bytes of a packed map]`.
    pub features: Vec<u8>,
    /// Whether each map is present, `[n, slots]`.
    pub presence: Vec<bool>,
}

/// Shapes of the server's network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeatureShape {
    /// Number of maps of one sample: one for each device slot, or for each edge in a network with edges.
    pub slots: usize,
    /// Bits of one map.
    pub bits: usize,
    /// Largest number of samples in one request.
    pub max_samples: usize,
}

impl FeatureShape {
    /// Bytes of one packed map.
    pub const fn packed_bytes(&self) -> usize {
        packed_len(self.bits)
    }
}

/// One answer.
#[derive(Clone, Debug, PartialEq)]
pub struct InferResponse {
    /// The caller's id.
    pub id: Option<String>,
    /// Name of the model.
    pub model_name: String,
    /// The network that answered.
    pub network: Option<NetworkId>,
    /// Class scores, `[n, classes]`.
    pub logits: Vec<f32>,
    /// Number of classes.
    pub classes: usize,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Head {
    #[serde(skip_serializing_if = "Option::is_none")]
    model_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    parameters: Parameters,
    inputs: Vec<Tensor>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    outputs: Vec<Tensor>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Parameters {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    network: Option<NetworkId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deadline_ms: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    binary_data_output: Option<bool>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Tensor {
    name: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    shape: Vec<usize>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    datatype: String,
    #[serde(default)]
    parameters: TensorParameters,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    data: Option<serde_json::Value>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct TensorParameters {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    binary_data_size: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    binary_data: Option<bool>,
}

/// An input of a request, and the datatype and shape that its tensor must have.
struct Input<'a> {
    name: &'static str,
    datatype: &'static str,
    /// Shape of one sample.
    shape: &'a [usize],
}

/// Form of an answer's tensor, as the request asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Binary tensor after the JSON.
    Binary,
    /// `data` in the JSON.
    Json,
}

/// Writes a request with `slots` maps a sample; returns the body and the length of its JSON part in bytes.
pub fn encode_request(request: &InferRequest, slots: usize) -> (Vec<u8>, usize) {
    let FeatureBatch { samples, features, presence } = &request.batch;
    let packed = features.len().checked_div(samples * slots).unwrap_or(0);
    let head = Head {
        id: request.id.clone(),
        parameters: Parameters {
            network: request.network,
            deadline_ms: request.deadline_ms,
            binary_data_output: Some(true),
        },
        inputs: vec![
            binary_tensor(FEATURES, "UINT8", vec![*samples, slots, packed], features.len()),
            binary_tensor(PRESENCE, "BOOL", vec![*samples, slots], presence.len()),
        ],
        ..Head::default()
    };
    let mut body = json_bytes(&head);
    let head_bytes = body.len();
    body.extend_from_slice(features);
    body.extend(presence.iter().map(|&p| u8::from(p)));
    (body, head_bytes)
}

/// A request of which only the JSON part has been read. The network that it names decides the shapes for reading the tensors.
#[derive(Debug)]
pub struct OpenedRequest<'a> {
    head: Head,
    tensors: &'a [u8],
}

/// Reads the JSON part of a request; `head_bytes` is the value of the header [`HEADER_LENGTH`], absent if the whole body is JSON.
///
/// # Errors
/// [`V2Error`] when the JSON part cannot be read.
pub fn open_request(body: &[u8], head_bytes: Option<usize>) -> Result<OpenedRequest<'_>, V2Error> {
    let (head, tensors) = split(body, head_bytes)?;
    Ok(OpenedRequest { head, tensors })
}

impl OpenedRequest<'_> {
    /// The network that the request names.
    pub fn network(&self) -> Option<NetworkId> {
        self.head.parameters.network
    }

    /// Reads the tensors.
    ///
    /// # Errors
    /// [`V2Error`] for tensors that do not fit `shape`. A size that the peer names is checked before anything is allocated.
    pub fn read(self, shape: &FeatureShape) -> Result<(InferRequest, Form), V2Error> {
        let Self { head, tensors: mut rest } = self;
        let (feature_shape, presence_shape) = ([shape.slots, shape.packed_bytes()], [shape.slots]);
        let inputs = [
            Input { name: FEATURES, datatype: "UINT8", shape: &feature_shape },
            Input { name: PRESENCE, datatype: "BOOL", shape: &presence_shape },
        ];
        let mut found = [None, None];
        for tensor in &head.inputs {
            let at = inputs.iter().position(|input| input.name == tensor.name);
            let at = at.ok_or_else(|| {
                let name = clipped(&tensor.name, 40);
                V2Error(format!("input {name:?} is unknown: expected `features` and `presence`"))
            })?;
            let input = &inputs[at];
            let (raw, left) = match tensor.parameters.binary_data_size {
                Some(size) => {
                    let split = rest.split_at_checked(size);
                    let (raw, left) = split.ok_or_else(|| other_length(input.name, size, rest.len()))?;
                    (Some(raw), left)
                }
                None => (None, rest),
            };
            rest = left;
            if found[at].replace(input.read(tensor, raw, shape.max_samples)?).is_some() {
                return Err(V2Error(format!("input {:?} stands twice", input.name)));
            }
        }
        if !rest.is_empty() {
            return Err(trailing(rest.len()));
        }
        let [features, presence] = found;
        let (samples, features) = features.ok_or_else(|| missing("input", FEATURES))?;
        let (rows, presence) = presence.ok_or_else(|| missing("input", PRESENCE))?;
        check_shape(PRESENCE, &[rows, shape.slots], &[samples, shape.slots])?;
        if presence.iter().any(|&byte| byte > 1) {
            return Err(V2Error("presence: expected bytes 0 or 1".into()));
        }
        if let Some(map) =
            features.chunks(shape.packed_bytes().max(1)).position(|map| !tail_is_clear(map, shape.bits))
        {
            let slots = shape.slots.max(1);
            let (sample, slot, bits) = (map / slots, map % slots, shape.bits);
            let expected = format!("expected zero after bit {bits}, found bits set");
            return Err(V2Error(format!("features: sample {sample}, slot {slot}: {expected}")));
        }
        let form = requested_form(&head);
        let request = InferRequest {
            id: head.id,
            network: head.parameters.network,
            deadline_ms: head.parameters.deadline_ms,
            batch: FeatureBatch {
                samples,
                features,
                presence: presence.iter().map(|&byte| byte == 1).collect(),
            },
        };
        Ok((request, form))
    }
}

/// Writes an answer; returns the body and, for [`Form::Binary`], the length of its JSON part.
pub fn encode_response(response: &InferResponse, form: Form) -> (Vec<u8>, Option<usize>) {
    let InferResponse { logits, classes, .. } = response;
    let shape = vec![logits.len().checked_div(*classes).unwrap_or(0), *classes];
    let mut tensor = binary_tensor(LOGITS, "FP32", shape, 4 * logits.len());
    if form == Form::Json {
        tensor.parameters.binary_data_size = None;
        tensor.data = Some(serde_json::json!(logits));
    }
    let head = Head {
        model_name: Some(response.model_name.clone()),
        id: response.id.clone(),
        parameters: Parameters { network: response.network, ..Parameters::default() },
        outputs: vec![tensor],
        ..Head::default()
    };
    let mut body = json_bytes(&head);
    if form == Form::Json {
        return (body, None);
    }
    let head_bytes = body.len();
    body.extend(logits.iter().flat_map(|value| value.to_le_bytes()));
    (body, Some(head_bytes))
}

/// Reads an answer of `samples` samples and `classes` classes.
///
/// # Errors
/// [`V2Error`] for any other body.
pub fn decode_response(
    body: &[u8],
    head_bytes: Option<usize>,
    samples: usize,
    classes: usize,
) -> Result<InferResponse, V2Error> {
    let (head, rest) = split(body, head_bytes)?;
    let tensor = head.outputs.iter().find(|t| t.name == LOGITS).ok_or_else(|| missing("output", LOGITS))?;
    check_shape(LOGITS, &tensor.shape, &[samples, classes])?;
    check_datatype(tensor, LOGITS, "FP32")?;
    let expected = 4 * samples * classes;
    let logits: Vec<f32> = match (&tensor.data, tensor.parameters.binary_data_size) {
        (Some(data), None) => serde_json::from_value(data.clone()).map_err(|error| wrong_json(&error))?,
        (None, Some(size)) => {
            if size != expected || rest.len() < expected {
                return Err(other_length(LOGITS, expected, size.min(rest.len())));
            }
            if rest.len() > expected {
                return Err(trailing(rest.len() - expected));
            }
            rest.chunks_exact(4).map(|f| f32::from_le_bytes([f[0], f[1], f[2], f[3]])).collect()
        }
        _ => return Err(no_data(LOGITS)),
    };
    if logits.len() != samples * classes {
        return Err(other_length(LOGITS, expected, 4 * logits.len()));
    }
    if !logits.iter().all(|value| value.is_finite()) {
        return Err(V2Error("logits: expected finite numbers".into()));
    }
    Ok(InferResponse {
        id: head.id,
        model_name: head.model_name.unwrap_or_default(),
        network: head.parameters.network,
        logits,
        classes,
    })
}

fn split(body: &[u8], head_bytes: Option<usize>) -> Result<(Head, &[u8]), V2Error> {
    let length = head_bytes.unwrap_or(body.len());
    let (head, rest) = body.split_at_checked(length).ok_or_else(|| {
        V2Error(format!("{HEADER_LENGTH}: names {length} bytes, the body has {}", body.len()))
    })?;
    let head = serde_json::from_slice(head).map_err(|error| wrong_json(&error))?;
    Ok((head, rest))
}

fn binary_tensor(name: &str, datatype: &str, shape: Vec<usize>, bytes: usize) -> Tensor {
    Tensor {
        name: name.into(),
        shape,
        datatype: datatype.into(),
        parameters: TensorParameters { binary_data_size: Some(bytes), binary_data: None },
        data: None,
    }
}

/// The form that the request asks for. The parameter of the output takes precedence over the parameter of the request.
fn requested_form(head: &Head) -> Form {
    let of_logits = head.outputs.iter().find(|tensor| tensor.name == LOGITS);
    let binary = of_logits
        .and_then(|tensor| tensor.parameters.binary_data)
        .or(head.parameters.binary_data_output)
        .unwrap_or(false);
    if binary { Form::Binary } else { Form::Json }
}

impl Input<'_> {
    /// Reads a tensor of bytes or booleans, binary or JSON (flat or nested): the number of samples and the bytes.
    ///
    /// The shape is checked before the data is read, so no more bytes are allocated than `max_samples` allows.
    fn read(
        &self,
        tensor: &Tensor,
        raw: Option<&[u8]>,
        max_samples: usize,
    ) -> Result<(usize, Vec<u8>), V2Error> {
        let name = self.name;
        let samples = tensor.shape.first().copied().unwrap_or(0);
        let expected: Vec<usize> = std::iter::once(samples).chain(self.shape.iter().copied()).collect();
        check_datatype(tensor, name, self.datatype)?;
        check_shape(name, &tensor.shape, &expected)?;
        if samples == 0 || samples > max_samples {
            return Err(V2Error(format!("expected 1 to {max_samples} samples, found {samples}")));
        }
        let elements = expected.iter().product();
        let bytes = match (raw, &tensor.data) {
            (Some(raw), None) => raw.to_vec(),
            (None, Some(data)) => {
                let mut bytes = Vec::with_capacity(elements);
                flatten(data, elements, &mut bytes).ok_or_else(|| no_data(name))?;
                bytes
            }
            _ => return Err(no_data(name)),
        };
        if bytes.len() != elements {
            return Err(other_length(name, elements, bytes.len()));
        }
        Ok((samples, bytes))
    }
}

fn check_datatype(tensor: &Tensor, name: &'static str, expected: &'static str) -> Result<(), V2Error> {
    if tensor.datatype == expected {
        return Ok(());
    }
    Err(V2Error(format!("{name}: expected datatype {expected}, found {:?}", clipped(&tensor.datatype, 40))))
}

fn flatten(value: &serde_json::Value, max: usize, out: &mut Vec<u8>) -> Option<()> {
    match value {
        serde_json::Value::Array(items) => {
            items.iter().try_for_each(|item| flatten(item, max, out).ok_or(())).ok()
        }
        _ if out.len() >= max => None,
        serde_json::Value::Bool(b) => {
            out.push(u8::from(*b));
            Some(())
        }
        serde_json::Value::Number(n) => {
            out.push(u8::try_from(n.as_u64()?).ok()?);
            Some(())
        }
        _ => None,
    }
}

fn check_shape(name: &'static str, found: &[usize], expected: &[usize]) -> Result<(), V2Error> {
    if found == expected {
        return Ok(());
    }
    Err(V2Error(format!("{name}: expected shape {expected:?}, found {:?}", &found[..found.len().min(8)])))
}

fn wrong_json(error: &serde_json::Error) -> V2Error {
    V2Error(format!("JSON part: {error}"))
}

fn missing(kind: &str, name: &str) -> V2Error {
    V2Error(format!("{kind} `{name}` is missing"))
}

fn other_length(name: &str, expected: usize, found: usize) -> V2Error {
    V2Error(format!("{name}: expected {expected} bytes, found {found}"))
}

/// Error for a tensor with neither binary nor JSON data of its datatype, or with both.
fn no_data(name: &str) -> V2Error {
    V2Error(format!("{name}: expected either a binary tensor or `data` of its datatype"))
}

fn trailing(bytes: usize) -> V2Error {
    V2Error(format!("{bytes} bytes after the last tensor"))
}

fn json_bytes(head: &Head) -> Vec<u8> {
    serde_json::to_vec(head).expect("strings, numbers and lists always become JSON")
}
