//! Bodies of the Open Inference Protocol: round trips, JSON clients, and hostile bytes.

use headwater_protocol::NetworkId;
use headwater_protocol::v2::{
    FeatureBatch, FeatureShape, Form, InferRequest, InferResponse, V2Error, decode_response, encode_request,
    encode_response, open_request,
};
use proptest::prelude::*;

fn labels() -> Vec<String> {
    ["cat", "dog", "car"].map(String::from).into()
}

const SHAPE: FeatureShape = FeatureShape { slots: 2, bits: 20, max_samples: 4 };

fn request(samples: usize) -> InferRequest {
    InferRequest {
        id: Some("7".into()),
        network: Some(NetworkId([9; 32])),
        deadline_ms: Some(120),
        batch: FeatureBatch {
            samples,
            features: (0..samples * 6).map(|i| if i % 3 == 2 { i as u8 & 0xf } else { i as u8 }).collect(),
            presence: (0..samples * 2).map(|i| i % 3 != 0).collect(),
        },
    }
}

fn decode_request(
    body: &[u8],
    head_bytes: Option<usize>,
    shape: &FeatureShape,
) -> Result<(InferRequest, Form), V2Error> {
    open_request(body, head_bytes)?.read(shape)
}

proptest! {
    #[test]
    fn a_request_survives_its_bytes_and_no_cut_of_it_does(samples in 1usize..=4) {
        let request = request(samples);
        let (body, head) = encode_request(&request, 2);
        let (read, form) = decode_request(&body, Some(head), &SHAPE).unwrap();
        prop_assert_eq!(&read, &request);
        prop_assert_eq!(form, Form::BINARY);
        for cut in 0..body.len() {
            prop_assert!(decode_request(&body[..cut], Some(head), &SHAPE).is_err());
        }
    }

    #[test]
    fn garbage_is_refused(body in prop::collection::vec(any::<u8>(), 0..200), head in prop::option::of(0usize..300)) {
        prop_assert!(decode_request(&body, head, &SHAPE).is_err());
        prop_assert!(decode_response(&body, head, 1, 3).is_err());
    }

    #[test]
    fn an_answer_survives_its_bytes(samples in 1usize..4, binary in any::<bool>()) {
        let response = InferResponse {
            id: Some("x".into()),
            model_name: "net".into(),
            network: Some(NetworkId([1; 32])),
            logits: (0..samples * 3).map(|i| i as f32 * 0.37 - 1.0).collect(),
        };
        let form = if binary { Form::BINARY } else { Form::JSON };
        let (body, head) = encode_response(response.clone(), form, &labels());
        prop_assert_eq!(decode_response(&body, head, samples, 3).unwrap(), response);
    }
}

#[test]
fn a_plain_json_client_is_understood() {
    let body = serde_json::json!({"inputs": [
        {"name": "features", "datatype": "UINT8", "shape": [1, 2, 3], "data": [[[1, 2, 3], [4, 5, 6]]]},
        {"name": "presence", "datatype": "BOOL", "shape": [1, 2], "data": [true, false]},
    ]});
    let (request, form) = decode_request(body.to_string().as_bytes(), None, &SHAPE).unwrap();
    assert_eq!(request.batch.features, [1, 2, 3, 4, 5, 6]);
    assert_eq!(request.batch.presence, [true, false]);
    assert_eq!((form, request.network), (Form::JSON, None));
}

#[track_caller]
fn check_refused(body: &serde_json::Value, expected: &str) {
    let error = decode_request(body.to_string().as_bytes(), None, &SHAPE).unwrap_err().to_string();
    assert!(error.contains(expected), "{error}");
}

#[test]
fn an_input_that_does_not_fit_is_refused_with_expected_and_found() {
    let tensor = |name: &str, datatype: &str, shape: &[usize]| {
        let data = vec![0; shape.iter().product::<usize>().min(99)];
        serde_json::json!({"name": name, "datatype": datatype, "shape": shape, "data": data})
    };
    let presence = tensor("presence", "BOOL", &[1, 2]);
    check_refused(
        &serde_json::json!({"inputs": [tensor("features", "UINT8", &[1, 2, 2]), presence]}),
        "features: expected shape [n, 2, 3] with n from 1 to 4, found [1,2,2]",
    );
    check_refused(
        &serde_json::json!({"inputs": [tensor("features", "FP32", &[1, 2, 3]), presence]}),
        "expected datatype UINT8, found \"FP32\"",
    );
    check_refused(&serde_json::json!({"inputs": [presence]}), "input `features` is missing");
    check_refused(&serde_json::json!({"inputs": [tensor("x", "BOOL", &[1])]}), "input \"x\" is unknown");
    check_refused(
        &serde_json::json!({"inputs": [tensor("features", "UINT8", &[5, 2, 3]), tensor("presence", "BOOL", &[5, 2])]}),
        "features: expected shape [n, 2, 3] with n from 1 to 4, found [5,2,3]",
    );
}

#[test]
fn a_shape_whose_product_overflows_is_refused_before_anything_is_allocated() {
    let body = serde_json::json!({"inputs": [
        {"name": "features", "datatype": "UINT8", "shape": [usize::MAX, usize::MAX, 3], "data": []},
    ]});
    check_refused(&body, "features: expected shape");
    let body = serde_json::json!({"inputs": [
        {"name": "features", "datatype": "UINT8", "shape": [usize::MAX, 2, 3], "data": []},
    ]});
    check_refused(&body, "with n from 1 to 4");
}

fn features_and_presence(features: &[u8]) -> serde_json::Value {
    serde_json::json!({"inputs": [
        {"name": "features", "datatype": "UINT8", "shape": [1, 2, 3], "data": features},
        {"name": "presence", "datatype": "BOOL", "shape": [1, 2], "data": [1, 1]},
    ]})
}

/// A request that is understood, with one member changed.
fn changed(pointer: &str, value: serde_json::Value) -> serde_json::Value {
    let mut body = serde_json::json!({
        "id": null, "parameters": null,
        "inputs": [
            {"name": "features", "datatype": "UINT8", "shape": [1, 2, 3], "parameters": {}, "data": [1, 2, 3, 4, 5, 6]},
            {"name": "presence", "datatype": "BOOL", "shape": [1, 2], "parameters": null, "data": [true, true]},
        ],
        "outputs": [{"name": "logits", "parameters": {}}],
    });
    let (parent, name) = pointer.rsplit_once('/').expect("a pointer");
    match body.pointer_mut(parent).expect("a member") {
        serde_json::Value::Array(items) => items[name.parse::<usize>().expect("an index")] = value,
        parent => parent[name] = value,
    }
    body
}

#[test]
fn null_is_absent_wherever_a_member_may_be_absent() {
    for pointer in [
        "/id",
        "/model_name",
        "/parameters",
        "/outputs",
        "/inputs/0/parameters",
        "/outputs/0/parameters",
        "/outputs/0/shape",
        "/outputs/0/datatype",
        "/outputs/0/data",
        "/inputs/0/parameters/binary_data_size",
        "/inputs/0/parameters/anything",
        "/outputs/0/parameters/classification",
    ] {
        let body = changed(pointer, serde_json::Value::Null).to_string();
        let (request, form) = decode_request(body.as_bytes(), None, &SHAPE).expect(pointer);
        assert_eq!((request.batch.features, form), (vec![1, 2, 3, 4, 5, 6], Form::JSON), "{pointer}");
    }
    check_refused(&changed("/inputs", serde_json::Value::Null), "input `features` is missing");
    check_refused(
        &changed("/inputs/0/data", serde_json::Value::Null),
        "features: expected the values in the message (`data`; in gRPC `contents`) or as a binary tensor",
    );
    check_refused(&changed("/inputs/0/shape", serde_json::Value::Null), "with n from 1 to 4, found null");
}

#[test]
fn what_nobody_reads_is_refused_by_name() {
    use serde_json::json;
    let known = "`network`, `deadline_ms`, `timeout`, `binary_data_output`";
    for (pointer, value, expected) in [
        ("/parameters", json!({"sequence_id": 5}), &*format!("but {known}, found \"sequence_id\": 5")),
        ("/parameters", json!({"priority": 1}), "found \"priority\": 1"),
        (
            "/inputs/0/parameters/shared_memory_region",
            json!("a"),
            "features: expected no parameters but `binary_data_size`, found",
        ),
        ("/inputs/0/parameters/content_type", json!("base64"), "found \"content_type\": \"base64\""),
        (
            "/outputs/0/parameters/top",
            json!(3),
            "logits: expected no parameters but `binary_data`, `classification`, found \"top\": 3",
        ),
        ("/inputs/0/parameters/classification", json!(3), "features: expected no parameters but"),
        ("/outputs/0/parameters/binary_data_size", json!(12), "logits: expected no parameters but"),
        ("/outputs/0/name", json!("probabilities"), "output \"probabilities\" is unknown: expected `logits`"),
        ("/outputs", json!([{"name": "logits"}, {"name": "logits"}]), "output \"logits\" stands twice"),
    ] {
        check_refused(&changed(pointer, value), expected);
    }
    let plain = changed("/inputs/0/parameters/content_type", json!("np")).to_string();
    assert!(decode_request(plain.as_bytes(), None, &SHAPE).is_ok(), "MLServer's word for a plain tensor");
}

#[test]
fn a_value_that_does_not_belong_there_is_named_with_its_place() {
    use serde_json::json;
    let number = "expected a whole number from 0 to 255, found";
    for (pointer, value, expected) in [
        ("/inputs/0/data/0", json!(256), &*format!("features: value 0: {number} 256")),
        ("/inputs/0/data/3", json!(-1), &*format!("features: value 3: {number} -1")),
        (
            "/inputs/0/data",
            json!([0.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
            &*format!("features: value 0: {number} 0.0"),
        ),
        ("/inputs/0/data/2", json!(null), &*format!("features: value 2: {number} null")),
        ("/inputs/0/data", json!("AQIDBAUG"), &*format!("features: value 0: {number} \"AQIDBAUG\"")),
        ("/inputs/0/data", json!([1, 2, 3, 4, 5]), "features: expected 6 values, found 5"),
        ("/inputs/0/data", json!([1, 2, 3, 4, 5, 6, 7]), "features: expected 6 values, found 7"),
        ("/inputs/0/data/2", json!(true), &*format!("features: value 2: {number} true")),
        // Lists of another shape with as many values.
        ("/inputs/0/data", json!([[[1, 2], [3, 4], [5, 6]]]), "features: expected 2 values, found 3"),
        ("/inputs/0/data", json!([[[1, 2, 3, 4], [5, 6]]]), "features: expected 3 values, found 4"),
        (
            "/inputs/0/data",
            json!([[[1, 2, 3], [4, 5]]]),
            "features: list at value 3: expected 3 values, found 2",
        ),
        ("/inputs/0/data", json!([[1, 2, 3], [4, 5, 6]]), "features: expected 1 values, found 2"),
        ("/inputs/0/data", json!([1, 2, 3, [4, 5, 6]]), "features: expected 6 values, found 4"),
        ("/inputs/0/data", json!([1, 2, 3, 4, 5, [6]]), &*format!("features: value 5: {number} [6]")),
        ("/inputs/1/data/1", json!(2), "presence: value 1: expected true, false, 0 or 1, found 2"),
        (
            "/inputs/1/data/1",
            json!("true"),
            "presence: value 1: expected true, false, 0 or 1, found \"true\"",
        ),
    ] {
        check_refused(&changed(pointer, value), expected);
    }
    let (mut body, head) = encode_request(&InferRequest { id: None, ..request(1) }, 2);
    *body.last_mut().expect("presence") = 7;
    let error = decode_request(&body, Some(head), &SHAPE).unwrap_err().to_string();
    assert_eq!(error, "presence: value 1: expected true, false, 0 or 1, found 7");
}

#[test]
fn a_shape_that_does_not_fit_is_answered_with_one_that_does() {
    use serde_json::json;
    for shape in [
        json!([2, 3]),
        json!([6]),
        json!([]),
        json!([0, 2, 3]),
        json!([-1, 2, 3]),
        json!([5, 2, 3]),
        json!([1, 3, 2]),
        json!([1.0, 2.0, 3.0]),
        json!([[1, 2, 3]]),
        json!("1,2,3"),
        json!(6),
    ] {
        let expected = format!("features: expected shape [n, 2, 3] with n from 1 to 4, found {shape}");
        check_refused(&changed("/inputs/0/shape", shape), &expected);
    }
}

#[test]
fn a_parameter_of_another_type_is_named_with_its_value() {
    use serde_json::json;
    for (pointer, value, expected) in [
        (
            "/parameters",
            json!({"deadline_ms": "5"}),
            "the request: parameter `deadline_ms`: expected a whole number of milliseconds, found \"5\"",
        ),
        (
            "/parameters",
            json!({"timeout": 1.5}),
            "`timeout`: expected a whole number of microseconds, found 1.5",
        ),
        (
            "/parameters",
            json!({"timeout": -1}),
            "`timeout`: expected a whole number of microseconds, found -1",
        ),
        (
            "/parameters",
            json!({"network": "abc"}),
            "`network`: expected 64 hexadecimal digits, found \"abc\"",
        ),
        ("/parameters", json!({"network": 7}), "`network`: expected 64 hexadecimal digits, found 7"),
        (
            "/parameters",
            json!({"binary_data_output": "yes"}),
            "`binary_data_output`: expected true or false, found \"yes\"",
        ),
        ("/parameters", json!([]), "expected an object of parameters at line 1"),
        (
            "/inputs/0/parameters/binary_data_size",
            json!(-1),
            "features: parameter `binary_data_size`: expected a whole number of bytes, found -1",
        ),
        (
            "/outputs/0/parameters/binary_data",
            json!(1),
            "logits: parameter `binary_data`: expected true or false, found 1",
        ),
        (
            "/outputs/0/parameters/classification",
            json!(-1),
            "logits: parameter `classification`: expected a whole number of classes, found -1",
        ),
        (
            "/outputs/0/parameters/classification",
            json!("3"),
            "`classification`: expected a whole number of classes, found \"3\"",
        ),
    ] {
        check_refused(&changed(pointer, value), expected);
    }
    let long = changed("/parameters", json!({"deadline_ms": "x".repeat(100_000)})).to_string();
    assert!(decode_request(long.as_bytes(), None, &SHAPE).unwrap_err().to_string().len() < 200);
}

/// Checks the error of a request whose text has `from` replaced by `to`.
#[track_caller]
fn check_text_refused(from: &str, to: &str, expected: &str) {
    let text = features_and_presence(&[1, 2, 3, 4, 5, 6]).to_string();
    assert!(text.contains(from), "{text}");
    let error = decode_request(text.replacen(from, to, 1).as_bytes(), None, &SHAPE).unwrap_err().to_string();
    assert!(error.contains(expected), "{error}");
}

#[test]
fn json_that_cannot_be_read_is_shown_at_its_place() {
    check_text_refused("[1,2,3,", "[1,NaN,3,", "expected value at line 1 column ");
    check_text_refused("[1,2,3,", "[1,NaN,3,", "[1,NaN,3,4");
    check_text_refused("[1,2,3,", "[1,\n-Infinity,3,", "invalid number at line 2 column 2, in `");
    check_text_refused("5,6]", "5,6,]", "trailing comma at line 1");
    check_text_refused(
        "\"name\":\"features\"",
        "\"name\":7",
        "JSON: invalid type: integer `7`, expected a string at",
    );
    check_text_refused(
        "{\"inputs\":",
        "{\"parameters\":{\"timeout\":1,\"timeout\":9},\"inputs\":",
        "parameter \"timeout\" stands twice at",
    );
    check_text_refused("{\"inputs\":", "{\"inputs\":[],\"inputs\":", "duplicate field `inputs`");
    let utf16: Vec<u8> = "\u{feff}{}".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let error = open_request(&utf16, None).unwrap_err().to_string();
    assert!(error.contains("expected value at line 1 column 1"), "{error}");
}

#[test]
fn a_byte_order_mark_before_the_json_is_passed_over() {
    let text = format!("\u{feff}{}", features_and_presence(&[1, 2, 3, 4, 5, 6]));
    assert!(decode_request(text.as_bytes(), None, &SHAPE).is_ok());
    let (body, head) = encode_request(&request(1), 2);
    let body = ["\u{feff}".as_bytes(), &body].concat();
    assert_eq!(decode_request(&body, Some(head + 3), &SHAPE).expect("read").0, request(1));
}

#[test]
fn a_length_of_the_json_that_is_wrong_or_missing_is_named() {
    let (body, head) = encode_request(&request(1), 2);
    for (head, expected) in [
        (
            None,
            "JSON in the whole body, as there is no inference-header-content-length: trailing characters"
                .into(),
        ),
        (
            Some(head - 1),
            format!("JSON in the first {} bytes, as inference-header-content-length says: EOF", head - 1),
        ),
        (Some(head + 1), "inference-header-content-length says: trailing characters".into()),
        (Some(0), "JSON in the first 0 bytes, as inference-header-content-length says: EOF".into()),
        (Some(body.len() + 1), format!("at most the body's {}, found {}", body.len(), body.len() + 1)),
    ] {
        let error = decode_request(&body, head, &SHAPE).unwrap_err().to_string();
        assert!(error.contains(&expected), "{error}");
    }
    let error = decode_request(&body[..body.len() - 1], Some(head), &SHAPE).unwrap_err().to_string();
    assert_eq!(error, "presence: expected 2 bytes after the JSON, as `binary_data_size` says, found 1");
}

#[test]
fn a_timeout_in_microseconds_shortens_the_deadline() {
    use serde_json::json;
    for (parameters, deadline_ms) in [
        (json!({"timeout": 5_000}), Some(5)),
        (json!({"timeout": 1}), Some(1)),
        (json!({"timeout": 0}), None),
        (json!({"timeout": u64::MAX}), Some(u32::MAX)),
        (json!({"timeout": 5_000, "deadline_ms": 4}), Some(4)),
        (json!({"timeout": 3_000, "deadline_ms": 4}), Some(3)),
    ] {
        let body = changed("/parameters", parameters.clone()).to_string();
        let (request, _) = decode_request(body.as_bytes(), None, &SHAPE).unwrap();
        assert_eq!(request.deadline_ms, deadline_ms, "{parameters}");
    }
}

#[test]
fn a_classification_names_the_most_likely_classes() {
    let body = changed("/outputs/0/parameters/classification", serde_json::json!(2)).to_string();
    let (_, form) = decode_request(body.as_bytes(), None, &SHAPE).unwrap();
    assert_eq!(form, Form { is_binary: false, classes: Some(2) });
    let logits = vec![0.5, 0.5, -1.25, -1.0, 3.0, 2.0];
    let response = InferResponse { id: None, model_name: "net".into(), network: None, logits };
    let (body, head) = encode_response(response.clone(), form, &labels());
    assert_eq!(head, None);
    let json: serde_json::Value = serde_json::from_slice(&body).unwrap();
    let texts = ["0.500000:0:cat", "0.500000:1:dog", "3.000000:1:dog", "2.000000:2:car"];
    let output = serde_json::json!({"name": "logits", "datatype": "BYTES", "shape": [2, 2], "parameters": {}, "data": texts});
    assert_eq!(json["outputs"][0], output);

    let (body, head) = encode_response(response, Form { is_binary: true, classes: Some(9) }, &labels());
    let (head, mut rest) = body.split_at(head.expect("a binary tensor"));
    let head: serde_json::Value = serde_json::from_slice(head).unwrap();
    assert_eq!(head["outputs"][0]["shape"], serde_json::json!([2, 3]), "never more than there are");
    assert_eq!(head["outputs"][0]["parameters"]["binary_data_size"], rest.len());
    let mut texts = Vec::new();
    while let Some((length, after)) = rest.split_first_chunk() {
        let (text, after) = after.split_at(u32::from_le_bytes(*length) as usize);
        texts.push(std::str::from_utf8(text).unwrap());
        rest = after;
    }
    assert_eq!(texts[..2], ["0.500000:0:cat", "0.500000:1:dog"]);
    assert_eq!((texts.len(), texts[5]), (6, "-1.000000:0:cat"));
}

#[test]
fn bits_after_the_last_feature_bit_are_refused() {
    let body = features_and_presence(&[1, 2, 3, 4, 5, 16]);
    check_refused(&body, "features: sample 0, slot 1: expected zero after bit 20, found bits set");
}

#[test]
fn the_parameter_of_an_output_goes_before_that_of_the_request() {
    for (all, one, expected) in [
        (Some(true), None, Form::BINARY),
        (Some(true), Some(false), Form::JSON),
        (None, Some(true), Form::BINARY),
        (Some(false), None, Form::JSON),
    ] {
        let mut body = features_and_presence(&[0; 6]);
        body["parameters"] = serde_json::json!({"binary_data_output": all});
        body["outputs"] = serde_json::json!([{"name": "logits", "parameters": {"binary_data": one}}]);
        let (_, form) = decode_request(body.to_string().as_bytes(), None, &SHAPE).unwrap();
        assert_eq!(form, expected, "{all:?} {one:?}");
    }
}

#[test]
fn an_answer_of_another_datatype_or_size_is_refused() {
    let answer = |tensor: serde_json::Value, binary: &[u8]| {
        let mut body = serde_json::json!({"outputs": [tensor]}).to_string().into_bytes();
        let head = body.len();
        body.extend_from_slice(binary);
        decode_response(&body, Some(head), 1, 2).map(|response| response.logits).map_err(|e| e.to_string())
    };
    let tensor = |datatype: &str, size: usize| serde_json::json!({"name": "logits", "datatype": datatype, "shape": [1, 2], "parameters": {"binary_data_size": size}});
    assert_eq!(answer(tensor("FP32", 8), &[0; 8]), Ok(vec![0.0, 0.0]));
    for (tensor, binary, expected) in [
        (tensor("FP64", 16), &[0u8; 16][..], "logits: expected datatype FP32, found \"FP64\""),
        (tensor("FP32", 4), &[0; 8], "logits: expected 8 bytes, found 4"),
        (tensor("FP32", 8), &[0; 5], "logits: expected 8 bytes, found 5"),
        (tensor("FP32", 8), &[0; 9], "1 bytes after the last tensor"),
    ] {
        assert_eq!(answer(tensor, binary).unwrap_err(), expected);
    }
}
