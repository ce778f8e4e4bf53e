//! `ModelInfer` as a request of the HTTP interface.

use std::collections::BTreeMap;
use std::time::Duration;

use headwater_protocol::Fault;
use headwater_protocol::v2::Output;
use headwater_transport::GrpcCall;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::inference::infer_parameter::ParameterChoice;
use super::inference::model_infer_response::InferOutputTensor;
use super::inference::{InferParameter, InferTensorContents, ModelInferRequest, ModelInferResponse};
use super::{check_model, read};
use crate::body;
use crate::infer::{Answer, Question, counted};
use crate::refusal::Refusal;
use crate::state::{Shared, VERSION};

/// Tensors and parameters of a request, more than any has: each takes far more room as JSON than in its message.
const MAX_PARTS: usize = 64;

pub(super) async fn answer(shared: &Shared, call: &GrpcCall) -> Result<ModelInferResponse, Refusal> {
    counted(shared, ask(shared, call)).await
}

async fn ask(shared: &Shared, call: &GrpcCall) -> Result<ModelInferResponse, Refusal> {
    let arrived = Instant::now();
    shared.metrics.counts().body_received_bytes += call.message.len() as u64;
    let request: ModelInferRequest = read(shared, call)?;
    check_model(shared, &request.model_name, &request.model_version)?;
    let (body, head_bytes) = http_body(request)?;
    let limit = shared.body_limit(head_bytes.is_some());
    if body.len() > limit {
        return Err(body::oversize(limit, body.len()));
    }
    let timeout = call.headers.get("grpc-timeout").and_then(|value| time(value.to_str().ok()?));
    let longest = timeout.into_iter().fold(shared.max_deadline, Duration::min);
    let client = Some(call.connection.peer().ip());
    let question = Question { client, body: &body, head_bytes, arrived, longest };
    let Answer { response, form, network } = question.ask(shared).await?;
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

/// The body of the HTTP interface that asks the same, and the length of its JSON part where tensors follow.
fn http_body(request: ModelInferRequest) -> Result<(Vec<u8>, Option<usize>), Refusal> {
    let of_inputs = request.inputs.iter().map(|input| 1 + input.parameters.len());
    let of_outputs = request.outputs.iter().map(|output| 1 + output.parameters.len());
    let parts = request.parameters.len() + of_inputs.chain(of_outputs).sum::<usize>();
    if parts > MAX_PARTS {
        let reason = format!("message: expected at most {MAX_PARTS} tensors and parameters, found {parts}");
        return Err(Refusal::new(Fault::Malformed, reason));
    }
    let raw = request.raw_input_contents;
    let (inputs, found) = (request.inputs.len(), raw.len());
    if found != 0 && found != inputs {
        let reason =
            format!("raw_input_contents: expected one for each of {inputs} inputs, or none, found {found}");
        return Err(Refusal::new(Fault::Malformed, reason));
    }
    let inputs = request.inputs.into_iter().enumerate().map(|(at, input)| {
        let mut parameters = json_parameters(input.parameters);
        if let Some(bytes) = raw.get(at) {
            parameters.insert("binary_data_size".into(), bytes.len().into());
        }
        json!({
            "name": input.name,
            "datatype": input.datatype,
            "shape": input.shape,
            "parameters": parameters,
            "data": input.contents.map(values).filter(|values| found == 0 || !values.is_empty()),
        })
    });
    let outputs = request.outputs.into_iter();
    let outputs = outputs
        .map(|output| json!({ "name": output.name, "parameters": json_parameters(output.parameters) }));
    let head = json!({
        "id": Some(request.id).filter(|id| !id.is_empty()),
        "parameters": json_parameters(request.parameters),
        "inputs": inputs.collect::<Vec<_>>(),
        "outputs": outputs.collect::<Vec<_>>(),
    });
    let mut body = head.to_string().into_bytes();
    let head_bytes = (found != 0).then_some(body.len());
    raw.iter().for_each(|tensor| body.extend_from_slice(tensor));
    Ok((body, head_bytes))
}

fn json_parameters(parameters: BTreeMap<String, InferParameter>) -> Map<String, Value> {
    let value = |parameter: InferParameter| match parameter.parameter_choice {
        None => Value::Null,
        Some(ParameterChoice::BoolParam(value)) => value.into(),
        Some(ParameterChoice::Int64Param(value)) => value.into(),
        Some(ParameterChoice::Uint64Param(value)) => value.into(),
        Some(ParameterChoice::DoubleParam(value)) => value.into(),
        Some(ParameterChoice::StringParam(value)) => value.into(),
    };
    parameters.into_iter().map(|(name, parameter)| (name, value(parameter))).collect()
}

/// The values of a tensor that is no binary one, whichever type they have.
fn values(contents: InferTensorContents) -> Vec<Value> {
    let mut values: Vec<Value> = contents.bool_contents.into_iter().map(Value::from).collect();
    values.extend(contents.int_contents.into_iter().map(Value::from));
    values.extend(contents.int64_contents.into_iter().map(Value::from));
    values.extend(contents.uint_contents.into_iter().map(Value::from));
    values.extend(contents.uint64_contents.into_iter().map(Value::from));
    values.extend(contents.fp32_contents.into_iter().map(Value::from));
    values.extend(contents.fp64_contents.into_iter().map(Value::from));
    let texts =
        contents.bytes_contents.iter().map(|bytes| String::from_utf8_lossy(bytes).into_owned().into());
    values.extend(texts);
    values
}

/// The time of a header `grpc-timeout`: up to eight digits and a unit.
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
