//! Bodies of the cloud's HTTP interface: the Open Inference Protocol v2 with binary tensors.
//!
//! ```text
//! request  = JSON header (its length in the header `Inference-Header-Content-Length`)
//!            features  UINT8 [n, slots, ceil(bits/8)]   packed bits (or pixels, or little-endian f32), zero where absent
//!            presence  BOOL  [n, slots]                 one byte each; in a network with edges `slots` is the number of edges
//! response = JSON header, logits FP32 [n, classes]
//! ```
//!
//! `parameters` carries our additions: the network id, and the milliseconds left (never a wall time). Tensors as JSON `data` are read too,
//! so that any client of the protocol works. A null value counts as absent. An unknown input, output or parameter is refused by name,
//! because its sender counts on something that this service does not do.

mod answer;
mod head;
mod input;

use serde_json::json;
use thiserror::Error;

pub use self::answer::{Form, Output, OutputValues, decode_response, encode_response};
use self::head::{
    Head, Parameters, binary_size, binary_tensor, check_shape, json_bytes, missing, split, trailing,
};
use self::input::Input;
use crate::bits::{packed_len, tail_is_clear};
use crate::ids::{NetworkId, clipped};

/// HTTP header that holds the length of the JSON part.
pub const HEADER_LENGTH: &str = "inference-header-content-length";

const FEATURES: &str = "features";
const PRESENCE: &str = "presence";
const LOGITS: &str = "logits";

/// Name of the parameter of requests and answers that holds the network id.
const NETWORK: &str = "network";
/// Form of a network id, for the error about a value of another form.
const NETWORK_ID: &str = "64 hexadecimal digits";

const REQUEST: &str = "the request";
const REQUEST_PARAMETERS: [&str; 4] = [NETWORK, "deadline_ms", "timeout", "binary_data_output"];

/// A body that is refused, in a sentence for the client that names the tensor, the expected and the found value.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct V2Error(String);

/// One request: `n` samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InferRequest {
    /// The caller's id, repeated in the answer.
    pub id: Option<String>,
    /// The network that made the features and must answer; `None` for the cloud's current network.
    pub network: Option<NetworkId>,
    /// Milliseconds left to the caller; `None` for the server's own limit.
    pub deadline_ms: Option<u32>,
    /// The tensors.
    pub batch: FeatureBatch,
}

/// Features and presence of `n` samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeatureBatch {
    /// Number of samples, `n`.
    pub samples: usize,
    /// `[n, slots, packed bytes]`.
    pub features: Vec<u8>,
    /// `[n, slots]`.
    pub presence: Vec<bool>,
}

/// Shapes of the server's network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeatureShape {
    /// Number of maps of one sample: one for each device slot, or in a network with edges one for each edge.
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
    /// `[n, classes]`.
    pub logits: Vec<f32>,
}

/// Writes a request; returns the body and the length of its JSON part.
pub fn encode_request(request: &InferRequest, slots: usize) -> (Vec<u8>, usize) {
    let FeatureBatch { samples, features, presence } = &request.batch;
    let packed = features.len().checked_div(samples * slots).unwrap_or(0);
    let head = Head {
        id: request.id.clone(),
        parameters: Parameters::new([
            (NETWORK, json!(request.network)),
            ("deadline_ms", json!(request.deadline_ms)),
            ("binary_data_output", json!(true)),
        ]),
        inputs: vec![
            binary_tensor(FEATURES, "UINT8", &[*samples, slots, packed], features.len()),
            binary_tensor(PRESENCE, "BOOL", &[*samples, slots], presence.len()),
        ],
        ..Head::default()
    };
    let mut body = json_bytes(&head);
    let head_bytes = body.len();
    body.extend_from_slice(features);
    body.extend(presence.iter().map(|&p| u8::from(p)));
    (body, head_bytes)
}

/// A request of which only the JSON part is read. Its network decides the shapes by which the tensors are read.
#[derive(Debug)]
pub struct OpenedRequest<'a> {
    network: Option<NetworkId>,
    head: Head,
    tensors: &'a [u8],
}

/// Reads the JSON part of a request; `head_bytes` is the header [`HEADER_LENGTH`], `None` if the whole body is JSON.
///
/// # Errors
/// [`V2Error`] when the JSON part or its network cannot be read.
pub fn open_request(body: &[u8], head_bytes: Option<usize>) -> Result<OpenedRequest<'_>, V2Error> {
    let (head, tensors) = split(body, head_bytes)?;
    let network = head.parameters.read(REQUEST, NETWORK, NETWORK_ID)?;
    Ok(OpenedRequest { network, head, tensors })
}

impl OpenedRequest<'_> {
    /// The network that the request names; `None` if the request names none.
    pub fn network(&self) -> Option<NetworkId> {
        self.network
    }

    /// Reads the tensors.
    ///
    /// # Errors
    /// [`V2Error`] for tensors that do not fit `shape`, and for inputs, outputs and parameters that are unknown or cannot be read. Memory is
    /// allocated for at most `shape.max_samples` samples.
    pub fn read(self, shape: &FeatureShape) -> Result<(InferRequest, Form), V2Error> {
        let Self { network, head, tensors: mut rest } = self;
        head.parameters.check_known(REQUEST, &REQUEST_PARAMETERS)?;
        let (feature_shape, presence_shape) = ([shape.slots, shape.packed_bytes()], [shape.slots]);
        let inputs = [
            Input {
                name: FEATURES,
                datatype: "UINT8",
                max: u8::MAX,
                expected: "a whole number from 0 to 255",
                shape: &feature_shape,
            },
            Input {
                name: PRESENCE,
                datatype: "BOOL",
                max: 1,
                expected: "true, false, 0 or 1",
                shape: &presence_shape,
            },
        ];
        let mut found = [None, None];
        for tensor in &head.inputs {
            let at = inputs.iter().position(|input| input.name == tensor.name);
            let at = at.ok_or_else(|| {
                let name = clipped(&tensor.name, 40);
                V2Error(format!("input {name:?} is unknown: expected `features` and `presence`"))
            })?;
            let input = &inputs[at];
            let (raw, left) = match binary_size(tensor)? {
                Some(size) => {
                    let (raw, left) = rest.split_at_checked(size).ok_or_else(|| {
                        let (name, left) = (input.name, rest.len());
                        V2Error(format!("{name}: expected {size} bytes after the JSON, as `binary_data_size` says, found {left}"))
                    })?;
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
        check_shape(PRESENCE, &json!([rows, shape.slots]), &[samples, shape.slots])?;
        if let Some(map) =
            features.chunks(shape.packed_bytes().max(1)).position(|map| !tail_is_clear(map, shape.bits))
        {
            let slots = shape.slots.max(1);
            let (sample, slot, bits) = (map / slots, map % slots, shape.bits);
            let expected = format!("expected zero after bit {bits}, found bits set");
            return Err(V2Error(format!("features: sample {sample}, slot {slot}: {expected}")));
        }
        let form = requested_form(&head)?;
        let deadline_ms =
            head.parameters.read::<u32>(REQUEST, "deadline_ms", "a whole number of milliseconds")?;
        let timeout = head.parameters.read::<u64>(REQUEST, "timeout", "a whole number of microseconds")?;
        let timeout_ms =
            timeout.filter(|us| *us > 0).map(|us| u32::try_from(us.div_ceil(1000)).unwrap_or(u32::MAX));
        let request = InferRequest {
            id: head.id,
            network,
            deadline_ms: deadline_ms.into_iter().chain(timeout_ms).min(),
            batch: FeatureBatch {
                samples,
                features,
                presence: presence.iter().map(|&byte| byte == 1).collect(),
            },
        };
        Ok((request, form))
    }
}

/// The form that the request asks for. The parameters of the output take precedence over the parameters of the request.
fn requested_form(head: &Head) -> Result<Form, V2Error> {
    let mut parameters = None;
    for tensor in &head.outputs {
        if tensor.name != LOGITS {
            let name = clipped(&tensor.name, 40);
            return Err(V2Error(format!("output {name:?} is unknown: expected `{LOGITS}`")));
        }
        tensor.parameters.check_known(LOGITS, &["binary_data", "classification"])?;
        if parameters.replace(&tensor.parameters).is_some() {
            return Err(V2Error(format!("output {LOGITS:?} stands twice")));
        }
    }
    let (absent, whether) = (Parameters::default(), "true or false");
    let own = parameters.unwrap_or(&absent);
    let of_request = head.parameters.read::<bool>(REQUEST, "binary_data_output", whether)?;
    let is_binary = own.read(LOGITS, "binary_data", whether)?.or(of_request).unwrap_or(false);
    let classes = own.read::<usize>(LOGITS, "classification", "a whole number of classes")?;
    Ok(Form { is_binary, classes: classes.filter(|count| *count > 0) })
}
