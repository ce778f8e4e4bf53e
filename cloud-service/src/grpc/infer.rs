//! `ModelInfer` as a request of the HTTP interface.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use headwater_protocol::Fault;
use headwater_protocol::v2::Output;
use headwater_transport::GrpcCall;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::inference::infer_parameter::ParameterChoice;
use super::inference::model_infer_response::InferOutputTensor;
use super::inference::{InferParameter, InferTensorContents, ModelInferRequest, ModelInferResponse};
use super::{MAX_FIELDS, check_model, decode, receive};
use crate::body;
use crate::infer::{Question, counted};
use crate::refusal::{Refusal, clipped};
use crate::state::{Shared, VERSION};

pub(super) async fn answer(shared: &Shared, call: &mut GrpcCall) -> Result<ModelInferResponse, Refusal> {
    counted(shared, ask(shared, call)).await
}

async fn ask(shared: &Shared, call: &mut GrpcCall) -> Result<ModelInferResponse, Refusal> {
    let arrived = Instant::now();
    let sent = receive(shared, call).await?;
    shared.metrics.counts().body_received_bytes += sent.0.len() as u64;
    let request: ModelInferRequest = decode(shared, &call.head.headers, sent)?;
    check_model(shared, &request.model_name, &request.model_version)?;
    let (body, head_bytes) = http_body(request)?;
    let limit = shared.body_limit(true);
    if body.len() > limit {
        return Err(body::oversize(limit, body.len()));
    }
    let timeout = call.head.headers.get("grpc-timeout").and_then(|value| time(value.to_str().ok()?));
    let longest = timeout.into_iter().fold(shared.max_deadline, Duration::min);
    let client = Some(call.connection.peer().ip());
    let question = Question { client, body: &body, head_bytes: Some(head_bytes), arrived, longest };
    let (response, form, network) = question.ask(shared).await?;
    let output = Output::new(response.logits, form, &network.labels);
    let id = ParameterChoice::StringParam(network.id.to_string());
    let network = InferParameter { parameter_choice: Some(id) };
    let raw = output.to_bytes();
    shared.metrics.counts().body_sent_bytes += raw.len() as u64;
    Ok(ModelInferResponse {
        model_name: response.model_name,
        model_version: VERSION.into(),
        id: response.id.unwrap_or_default(),
        parameters: BTreeMap::from([("network".into(), network)]),
        outputs: vec![InferOutputTensor {
            name: "logits".into(),
            datatype: output.datatype.into(),
            shape: output.shape.map(|size| size as i64).into(),
            ..InferOutputTensor::default()
        }],
        raw_output_contents: vec![raw.into()],
    })
}

/// The request as a body of the HTTP interface with binary tensors, and the length in bytes of the body's JSON part.
fn http_body(request: ModelInferRequest) -> Result<(Vec<u8>, usize), Refusal> {
    let (inputs, found) = (request.inputs.len(), request.raw_input_contents.len());
    if found != 0 && found != inputs {
        let reason =
            format!("raw_input_contents: expected one for each of {inputs} inputs, or none, found {found}");
        return Err(Refusal::new(Fault::Malformed, reason));
    }
    let (mut raw, mut tensors) = (request.raw_input_contents.into_iter(), Vec::new());
    let inputs = request.inputs.into_iter().map(|mut input| -> Result<Value, Refusal> {
        // The reader refuses every shape of so many dimensions, so the rest of the shape is not needed.
        input.shape.truncate(MAX_FIELDS);
        let mut parameters = json_parameters(input.parameters);
        let values = byte_values(&input.name, input.contents.unwrap_or_default())?;
        let (raw, values) = (raw.next(), Some(values).filter(|values| !values.is_empty()));
        // A request with values in both places gets an empty `data` beside the binary tensor, which the reader refuses.
        let data = (raw.is_some() && values.is_some()).then(|| json!([]));
        if let Some(tensor) = raw.or(values) {
            parameters.insert("binary_data_size".into(), tensor.len().into());
            tensors.push(tensor);
        }
        Ok(json!({
            "name": input.name,
            "datatype": input.datatype,
            "shape": input.shape,
            "parameters": parameters,
            "data": data,
        }))
    });
    let inputs: Vec<_> = inputs.collect::<Result<_, _>>()?;
    let outputs = request.outputs.into_iter();
    let outputs = outputs
        .map(|output| json!({ "name": output.name, "parameters": json_parameters(output.parameters) }));
    let head = json!({
        "id": Some(request.id).filter(|id| !id.is_empty()),
        "parameters": json_parameters(request.parameters),
        "inputs": inputs,
        "outputs": outputs.collect::<Vec<_>>(),
    });
    let mut body = head.to_string().into_bytes();
    let head_bytes = body.len();
    tensors.iter().for_each(|tensor| body.extend_from_slice(tensor));
    Ok((body, head_bytes))
}

/// The parameters that have a value, at most [`MAX_FIELDS`]: the reader knows fewer names, and refuses every other name.
fn json_parameters(parameters: BTreeMap<String, InferParameter>) -> Map<String, Value> {
    let value = |choice| match choice {
        ParameterChoice::BoolParam(value) => Value::from(value),
        ParameterChoice::Int64Param(value) => Value::from(value),
        ParameterChoice::Uint64Param(value) => Value::from(value),
        ParameterChoice::DoubleParam(value) => Value::from(value),
        ParameterChoice::StringParam(value) => Value::from(value),
    };
    let parameters = parameters.into_iter();
    let given = parameters.filter_map(|(name, parameter)| Some((name, value(parameter.parameter_choice?))));
    given.take(MAX_FIELDS).collect()
}

/// The values of `contents`, whichever type they have, as the bytes of a binary tensor: every input has bytes or booleans.
fn byte_values(name: &str, contents: InferTensorContents) -> Result<Bytes, Refusal> {
    let InferTensorContents { bool_contents, int_contents, int64_contents, uint_contents, uint64_contents } =
        contents;
    let values = bool_contents.into_iter().map(i128::from);
    let values = values.chain(int_contents.into_iter().map(i128::from));
    let values = values.chain(int64_contents.into_iter().map(i128::from));
    let values = values.chain(uint_contents.into_iter().map(i128::from));
    let values = values.chain(uint64_contents.into_iter().map(i128::from));
    let byte = |(at, value): (usize, i128)| {
        u8::try_from(value).map_err(|_| {
            let (name, expected) = (clipped(name), "a value that fits a byte");
            Refusal::new(Fault::Malformed, format!("{name}: value {at}: expected {expected}, found {value}"))
        })
    };
    values.enumerate().map(byte).collect()
}

/// The time of a header `grpc-timeout`: up to eight digits and a unit; `None` for any other text.
fn time(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let number: u32 = digits.parse().ok().filter(|_| digits.len() <= 8)?;
    let of_unit = match unit {
        "H" => Duration::from_secs(3600),
        "M" => Duration::from_secs(60),
        "S" => Duration::from_secs(1),
        "m" => Duration::from_millis(1),
        "u" => Duration::from_micros(1),
        "n" => Duration::from_nanos(1),
        _ => return None,
    };
    Some(of_unit * number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_of_grpc_has_a_number_and_a_unit() {
        for (text, expected) in [
            ("5S", Some(Duration::from_secs(5))),
            ("99999999H", Some(Duration::from_secs(3600) * 99_999_999)),
            ("20m", Some(Duration::from_millis(20))),
            ("", None),
            ("S", None),
            ("5", None),
            ("5é", None),
            ("123456789n", None),
        ] {
            assert_eq!(time(text), expected, "{text}");
        }
    }
}
