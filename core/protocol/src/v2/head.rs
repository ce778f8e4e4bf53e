//! The JSON part of a body, and the bytes of the tensors after it.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use super::{HEADER_LENGTH, V2Error};
use crate::ids::clipped;

/// Name of the parameter with the number of bytes of a tensor that stands after the JSON part.
pub(super) const BINARY_SIZE: &str = "binary_data_size";

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, expecting = "an object")]
pub(super) struct Head {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) model_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<String>,
    pub(super) parameters: Parameters,
    #[serde(deserialize_with = "null_is_absent", skip_serializing_if = "Vec::is_empty")]
    pub(super) inputs: Vec<Tensor>,
    #[serde(deserialize_with = "null_is_absent", skip_serializing_if = "Vec::is_empty")]
    pub(super) outputs: Vec<Tensor>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(expecting = "an object")]
pub(super) struct Tensor {
    pub(super) name: String,
    /// A list of sizes, or any other value that a peer sent.
    #[serde(default)]
    pub(super) shape: Value,
    #[serde(default, deserialize_with = "null_is_absent")]
    pub(super) datatype: String,
    #[serde(default)]
    pub(super) parameters: Parameters,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) data: Option<Value>,
}

/// Parameters by name, with values of any type, so that an error can name a parameter with its value.
#[derive(Debug, Default, Serialize)]
#[serde(transparent)]
pub(super) struct Parameters(BTreeMap<String, Value>);

impl Parameters {
    /// Parameters with these values; a null value is left out.
    pub(super) fn new<const N: usize>(values: [(&str, Value); N]) -> Self {
        let given = values.into_iter().filter(|(_, value)| !value.is_null());
        Self(given.map(|(name, value)| (name.to_owned(), value)).collect())
    }

    /// Reads a parameter; `None` if the parameter is absent or null.
    ///
    /// # Errors
    /// A value of another type. `of` names the request, answer or tensor that has the parameter.
    pub(super) fn read<'a, T: Deserialize<'a>>(
        &'a self,
        of: &str,
        name: &str,
        expected: &str,
    ) -> Result<Option<T>, V2Error> {
        let Some(value) = self.0.get(name).filter(|value| !value.is_null()) else { return Ok(None) };
        T::deserialize(value).map(Some).map_err(|_| {
            V2Error(format!("{of}: parameter `{name}`: expected {expected}, found {}", shown(value)))
        })
    }

    /// Checks that there are no parameters but those in `known`. A null value counts as absent. `"content_type": "np"` passes: clients of
    /// `MLServer` mark plain tensors with it.
    ///
    /// # Errors
    /// The name of the first other parameter. `of` names the request or tensor that has the parameters.
    pub(super) fn check_known(&self, of: &str, known: &[&str]) -> Result<(), V2Error> {
        let is_known = |name: &str, value: &Value| {
            value.is_null() || known.contains(&name) || (name == "content_type" && value == "np")
        };
        match self.0.iter().find(|(name, value)| !is_known(name, value)) {
            None => Ok(()),
            Some((name, value)) => {
                let (known, name, value) = (known.join("`, `"), clipped(name, 40), shown(value));
                Err(V2Error(format!("{of}: expected no parameters but `{known}`, found {name:?}: {value}")))
            }
        }
    }
}

/// Refuses a name that stands twice: peers do not agree which of the two values counts.
impl<'de> Deserialize<'de> for Parameters {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Parameters;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of parameters")
            }
            fn visit_unit<E>(self) -> Result<Parameters, E> {
                Ok(Parameters::default())
            }
            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Parameters, A::Error> {
                let mut found = BTreeMap::new();
                while let Some((name, value)) = members.next_entry::<String, Value>()? {
                    if found.contains_key(&name) {
                        let name = clipped(&name, 40);
                        return Err(A::Error::custom(format!("parameter {name:?} stands twice")));
                    }
                    found.insert(name, value);
                }
                Ok(Parameters(found))
            }
        }
        deserializer.deserialize_any(Members)
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

/// Reads the JSON part of a body, with a byte order mark or without; returns it with the bytes after it.
pub(super) fn split(body: &[u8], head_bytes: Option<usize>) -> Result<(Head, &[u8]), V2Error> {
    let length = head_bytes.unwrap_or(body.len());
    let (json, rest) = body.split_at_checked(length).ok_or_else(|| {
        let most = body.len();
        V2Error(format!(
            "{HEADER_LENGTH}: expected the bytes of the JSON, at most the body's {most}, found {length}"
        ))
    })?;
    let json = json.strip_prefix("\u{feff}".as_bytes()).unwrap_or(json);
    let head = serde_json::from_slice(json).map_err(|error| {
        let part = match head_bytes {
            _ if error.is_data() => "JSON".into(),
            Some(length) => format!("JSON in the first {length} bytes, as {HEADER_LENGTH} says"),
            None => format!("JSON in the whole body, as there is no {HEADER_LENGTH}"),
        };
        let reason = clipped(&error.to_string(), 160);
        V2Error(format!("{part}: {reason}, in `{}`", around(json, &error)))
    })?;
    Ok((head, rest))
}

/// The JSON around the place of an error, on one line.
fn around(json: &[u8], error: &serde_json::Error) -> String {
    let before = json.split_inclusive(|&byte| byte == b'\n').take(error.line().saturating_sub(1));
    let at = (before.map(<[u8]>::len).sum::<usize>() + error.column()).min(json.len());
    let part = &json[at.saturating_sub(30)..(at + 10).min(json.len())];
    String::from_utf8_lossy(part).replace(char::is_control, " ")
}

/// A value for an error, cut to 40 characters.
pub(super) fn shown(value: &Value) -> String {
    clipped(&value.to_string(), 40)
}

/// Writes the JSON part of a body.
pub(super) fn json_bytes(head: &Head) -> Vec<u8> {
    serde_json::to_vec(head).expect("strings, numbers and lists always become JSON")
}

pub(super) fn tensor(name: &str, datatype: &str, shape: &[usize]) -> Tensor {
    let (parameters, shape) = (Parameters::default(), json!(shape));
    Tensor { name: name.into(), shape, datatype: datatype.into(), parameters, data: None }
}

pub(super) fn binary_tensor(name: &str, datatype: &str, shape: &[usize], bytes: usize) -> Tensor {
    let parameters = Parameters::new([(BINARY_SIZE, json!(bytes))]);
    Tensor { parameters, ..tensor(name, datatype, shape) }
}

pub(super) fn check_datatype(tensor: &Tensor, expected: &'static str) -> Result<(), V2Error> {
    if tensor.datatype == expected {
        return Ok(());
    }
    let (name, found) = (clipped(&tensor.name, 40), clipped(&tensor.datatype, 40));
    Err(V2Error(format!("{name}: expected datatype {expected}, found {found:?}")))
}

pub(super) fn check_shape(name: &str, found: &Value, expected: &[usize]) -> Result<(), V2Error> {
    if *found == json!(expected) {
        return Ok(());
    }
    Err(V2Error(format!("{name}: expected shape {}, found {}", json!(expected), shown(found))))
}

/// Number of bytes of a tensor that stands after the JSON part; `None` for a tensor in the JSON.
pub(super) fn binary_size(tensor: &Tensor) -> Result<Option<usize>, V2Error> {
    tensor.parameters.read(&clipped(&tensor.name, 40), BINARY_SIZE, "a whole number of bytes")
}

pub(super) fn missing(kind: &str, name: &str) -> V2Error {
    V2Error(format!("{kind} `{name}` is missing"))
}

pub(super) fn other_length(name: &str, expected: usize, found: usize) -> V2Error {
    V2Error(format!("{name}: expected {expected} bytes, found {found}"))
}

/// Error of a tensor that has neither binary nor JSON data, or both.
pub(super) fn no_data(tensor: &Tensor) -> V2Error {
    let found = if tensor.data.is_some() { "both" } else { "neither" };
    let name = clipped(&tensor.name, 40);
    V2Error(format!(
        "{name}: expected the values in the message (`data`; in gRPC `contents`) or as a binary tensor (`binary_data_size`; in gRPC \
         `raw_input_contents`), found {found}"
    ))
}

pub(super) fn trailing(bytes: usize) -> V2Error {
    V2Error(format!("{bytes} bytes after the last tensor"))
}
