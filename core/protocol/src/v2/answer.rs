//! Bodies of answers.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::head::{
    Head, Parameters, Tensor, binary_size, binary_tensor, check_datatype, check_shape, json_bytes, missing,
    no_data, other_length, shown, split, tensor, trailing,
};
use super::{InferResponse, LOGITS, NETWORK, NETWORK_ID, V2Error};

/// Form of an answer's tensor, as the request asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// True when the tensor stands after the JSON, false when it stands as `data` in the JSON.
    pub is_binary: bool,
    /// Number of the most likely classes to name in place of the logits, as Triton's `classification` does; `None` for the logits.
    pub classes: Option<usize>,
}

impl Form {
    /// Logits after the JSON.
    pub const BINARY: Self = Self { is_binary: true, classes: None };
    /// Logits as `data` in the JSON.
    pub const JSON: Self = Self { is_binary: false, classes: None };
}

/// Tensor of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// `FP32` for logits, `BYTES` for classes.
    pub datatype: &'static str,
    /// Samples, and values of one sample.
    pub shape: [usize; 2],
    /// The values.
    pub values: OutputValues,
}

/// Values of an answer's tensor.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum OutputValues {
    /// Logits.
    Logits(Vec<f32>),
    /// The most likely classes of each sample, the likeliest first: `logit:index:name`.
    Classes(Vec<String>),
}

impl Output {
    /// The tensor of logits `[n, labels.len()]` in the form that the request asked for.
    pub fn new(logits: Vec<f32>, form: Form, labels: &[String]) -> Self {
        let samples = logits.len().checked_div(labels.len()).unwrap_or(0);
        let Some(count) = form.classes else {
            let (shape, values) = ([samples, labels.len()], OutputValues::Logits(logits));
            return Self { datatype: "FP32", shape, values };
        };
        let count = count.min(labels.len());
        let rows = logits.chunks(labels.len().max(1));
        let classes = rows.flat_map(|row| most_likely(row, count, labels)).collect();
        Self { datatype: "BYTES", shape: [samples, count], values: OutputValues::Classes(classes) }
    }

    /// The values as a binary tensor. Each text follows its length, four bytes, little endian.
    pub fn to_bytes(&self) -> Vec<u8> {
        match &self.values {
            OutputValues::Logits(logits) => logits.iter().flat_map(|value| value.to_le_bytes()).collect(),
            OutputValues::Classes(texts) => {
                let bytes =
                    |text: &String| [&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat();
                texts.iter().flat_map(bytes).collect()
            }
        }
    }
}

/// The most likely classes of one row of logits, the likeliest first.
fn most_likely(row: &[f32], count: usize, labels: &[String]) -> Vec<String> {
    let mut order: Vec<usize> = (0..row.len()).collect();
    order.sort_by(|&a, &b| row[b].total_cmp(&row[a]));
    order
        .into_iter()
        .take(count)
        .map(|class| format!("{:.6}:{class}:{}", row[class], labels[class]))
        .collect()
}

/// Writes an answer; returns the body and, for a binary tensor, the length of the JSON part. `labels` are the names of the classes.
pub fn encode_response(response: InferResponse, form: Form, labels: &[String]) -> (Vec<u8>, Option<usize>) {
    let InferResponse { id, model_name, network, logits, .. } = response;
    let output = Output::new(logits, form, labels);
    let binary = form.is_binary.then(|| output.to_bytes());
    let tensor = match &binary {
        Some(bytes) => binary_tensor(LOGITS, output.datatype, &output.shape, bytes.len()),
        None => {
            let data = Some(json!(output.values));
            Tensor { data, ..tensor(LOGITS, output.datatype, &output.shape) }
        }
    };
    let head = Head {
        model_name: Some(model_name),
        id,
        parameters: Parameters::new([(NETWORK, json!(network))]),
        outputs: vec![tensor],
        ..Head::default()
    };
    let mut body = json_bytes(&head);
    let head_bytes = binary.as_ref().map(|_| body.len());
    body.extend(binary.unwrap_or_default());
    (body, head_bytes)
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
    check_datatype(tensor, "FP32")?;
    let expected = 4 * samples * classes;
    let logits: Vec<f32> = match (&tensor.data, binary_size(tensor)?) {
        (Some(data), None) => Vec::deserialize(data)
            .map_err(|_| V2Error(format!("{LOGITS}: expected numbers, found {}", shown(data))))?,
        (None, Some(size)) => {
            if size != expected || rest.len() < expected {
                return Err(other_length(LOGITS, expected, size.min(rest.len())));
            }
            if rest.len() > expected {
                return Err(trailing(rest.len() - expected));
            }
            rest.chunks_exact(4).map(|f| f32::from_le_bytes([f[0], f[1], f[2], f[3]])).collect()
        }
        _ => return Err(no_data(tensor)),
    };
    if logits.len() != samples * classes {
        return Err(other_length(LOGITS, expected, 4 * logits.len()));
    }
    if !logits.iter().all(|value| value.is_finite()) {
        return Err(V2Error("logits: expected finite numbers".into()));
    }
    let network = head.parameters.read("the answer", NETWORK, NETWORK_ID)?;
    Ok(InferResponse { id: head.id, model_name: head.model_name.unwrap_or_default(), network, logits })
}
