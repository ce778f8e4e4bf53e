//! Bodies of the Open Inference Protocol: round trips, JSON clients, and hostile bytes.

use headwater_protocol::NetworkId;
use headwater_protocol::v2::{
    FeatureBatch, FeatureShape, Form, InferRequest, InferResponse, V2Error, decode_response, encode_request,
    encode_response, open_request,
};
use proptest::prelude::*;

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
        prop_assert_eq!(form, Form::Binary);
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
            classes: 3,
        };
        let (body, head) = encode_response(&response, if binary { Form::Binary } else { Form::Json });
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
    assert_eq!((form, request.network), (Form::Json, None));
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
        "features: expected shape [1, 2, 3], found [1, 2, 2]",
    );
    check_refused(
        &serde_json::json!({"inputs": [tensor("features", "FP32", &[1, 2, 3]), presence]}),
        "expected datatype UINT8, found \"FP32\"",
    );
    check_refused(&serde_json::json!({"inputs": [presence]}), "input `features` is missing");
    check_refused(&serde_json::json!({"inputs": [tensor("x", "BOOL", &[1])]}), "input \"x\" is unknown");
    check_refused(
        &serde_json::json!({"inputs": [tensor("features", "UINT8", &[5, 2, 3]), tensor("presence", "BOOL", &[5, 2])]}),
        "expected 1 to 4 samples, found 5",
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
    check_refused(&body, "expected 1 to 4 samples");
}

fn features_and_presence(features: &[u8]) -> serde_json::Value {
    serde_json::json!({"inputs": [
        {"name": "features", "datatype": "UINT8", "shape": [1, 2, 3], "data": features},
        {"name": "presence", "datatype": "BOOL", "shape": [1, 2], "data": [1, 1]},
    ]})
}

#[test]
fn bits_after_the_last_feature_bit_are_refused() {
    let body = features_and_presence(&[1, 2, 3, 4, 5, 16]);
    check_refused(&body, "features: sample 0, slot 1: expected zero after bit 20, found bits set");
}

#[test]
fn the_parameter_of_an_output_goes_before_that_of_the_request() {
    for (all, one, expected) in [
        (Some(true), None, Form::Binary),
        (Some(true), Some(false), Form::Json),
        (None, Some(true), Form::Binary),
        (Some(false), None, Form::Json),
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
