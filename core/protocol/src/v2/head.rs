//! The JSON part of a body, and the bytes of the tensors after it.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::{HEADER_LENGTH, V2Error};
use crate::ids::{NetworkId, clipped};

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Head {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) model_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<String>,
    #[serde(deserialize_with = "null_is_absent")]
    pub(super) parameters: Parameters,
    #[serde(deserialize_with = "null_is_absent", skip_serializing_if = "Vec::is_empty")]
    pub(super) inputs: Vec<Tensor>,
    #[serde(deserialize_with = "null_is_absent", skip_serializing_if = "Vec::is_empty")]
    pub(super) outputs: Vec<Tensor>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Parameters {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) network: Option<NetworkId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) deadline_ms: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) binary_data_output: Option<bool>,
    /// Time for the answer in microseconds, as Triton's clients say it; 0 is no limit.
    #[serde(default, skip_serializing)]
    pub(super) timeout: Option<u64>,
    #[serde(flatten, skip_serializing)]
    pub(super) others: OtherParameters,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Tensor {
    pub(super) name: String,
    #[serde(default, deserialize_with = "null_is_absent", skip_serializing_if = "Vec::is_empty")]
    pub(super) shape: Vec<usize>,
    #[serde(default, deserialize_with = "null_is_absent", skip_serializing_if = "String::is_empty")]
    pub(super) datatype: String,
    #[serde(default, deserialize_with = "null_is_absent")]
    pub(super) parameters: TensorParameters,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) data: Option<Value>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct TensorParameters {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) binary_data_size: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) binary_data: Option<bool>,
    /// The most likely classes in place of logits: how many. 0 is the logits.
    #[serde(default, skip_serializing)]
    pub(super) classification: Option<usize>,
    #[serde(flatten, skip_serializing)]
    pub(super) others: OtherParameters,
}

/// Parameters that no field reads.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct OtherParameters(BTreeMap<String, Value>);

impl OtherParameters {
    /// Checks that there are none. Null is absent. Clients of `MLServer` call a plain tensor `"content_type": "np"`.
    ///
    /// # Errors
    /// The first one, by name; `of` is what has the parameters, `expected` the known ones.
    pub(super) fn check_none(&self, of: &str, expected: &str) -> Result<(), V2Error> {
        let is_known =
            |name: &str, value: &Value| value.is_null() || (name == "content_type" && value == "np");
        match self.0.iter().find(|(name, value)| !is_known(name, value)) {
            None => Ok(()),
            Some((name, value)) => {
                let (name, value) = (clipped(name, 40), clipped(&value.to_string(), 40));
                Err(V2Error(format!("{of}: expected no parameters but {expected}, found {name:?}: {value}")))
            }
        }
    }
}

/// Reads null as the default: clients that are made from types write null for what is not set.
fn null_is_absent<'de, D, T>(member: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Option::deserialize(member).map(Option::unwrap_or_default)
}

/// Reads the JSON part of a body; gives the bytes after it too.
pub(super) fn split(body: &[u8], head_bytes: Option<usize>) -> Result<(Head, &[u8]), V2Error> {
    let length = head_bytes.unwrap_or(body.len());
    let (head, rest) = body.split_at_checked(length).ok_or_else(|| {
        V2Error(format!("{HEADER_LENGTH}: names {length} bytes, the body has {}", body.len()))
    })?;
    let head = serde_json::from_slice(head).map_err(|error| wrong_json(&error))?;
    Ok((head, rest))
}

/// Writes the JSON part of a body.
pub(super) fn json_bytes(head: &Head) -> Vec<u8> {
    serde_json::to_vec(head).expect("strings, numbers and lists always become JSON")
}

pub(super) fn tensor(name: &str, datatype: &str, shape: Vec<usize>) -> Tensor {
    let parameters = TensorParameters::default();
    Tensor { name: name.into(), shape, datatype: datatype.into(), parameters, data: None }
}

pub(super) fn binary_tensor(name: &str, datatype: &str, shape: Vec<usize>, bytes: usize) -> Tensor {
    let mut tensor = tensor(name, datatype, shape);
    tensor.parameters.binary_data_size = Some(bytes);
    tensor
}

pub(super) fn check_datatype(tensor: &Tensor, expected: &'static str) -> Result<(), V2Error> {
    if tensor.datatype == expected {
        return Ok(());
    }
    let (name, found) = (clipped(&tensor.name, 40), clipped(&tensor.datatype, 40));
    Err(V2Error(format!("{name}: expected datatype {expected}, found {found:?}")))
}

pub(super) fn check_shape(name: &'static str, found: &[usize], expected: &[usize]) -> Result<(), V2Error> {
    if found == expected {
        return Ok(());
    }
    Err(V2Error(format!("{name}: expected shape {expected:?}, found {:?}", &found[..found.len().min(8)])))
}

pub(super) fn wrong_json(error: &serde_json::Error) -> V2Error {
    V2Error(format!("JSON part: {error}"))
}

pub(super) fn missing(kind: &str, name: &str) -> V2Error {
    V2Error(format!("{kind} `{name}` is missing"))
}

pub(super) fn other_length(name: &str, expected: usize, found: usize) -> V2Error {
    V2Error(format!("{name}: expected {expected} bytes, found {found}"))
}

/// Neither binary nor JSON data, or both.
pub(super) fn no_data(tensor: &Tensor) -> V2Error {
    let found = if tensor.data.is_some() { "both" } else { "neither" };
    let name = clipped(&tensor.name, 40);
    V2Error(format!("{name}: expected either `data` or the parameter `binary_data_size`, found {found}"))
}

pub(super) fn trailing(bytes: usize) -> V2Error {
    V2Error(format!("{bytes} bytes after the last tensor"))
}
