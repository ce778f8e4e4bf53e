//! Requests of clients of the Open Inference Protocol v2 to `headwater-cloud`.

use std::fs;
use std::process::Command;

use headwater_transport::held_port;
use serde_json::{Value, json};

use super::running::Running;
use super::{Case, CaseFolder, case, wait};
use crate::programs::{command, http};

/// Slots of the network of three devices.
const SLOTS: usize = 3;
/// Bytes of the packed map of one slot.
const PACKED: usize = 8;

const INFER: &str = "POST /v2/models/headwater/infer";
const GZIP: &str = "content-encoding: gzip\r\n";

pub(super) fn cases() -> Vec<Case> {
    const LOGITS: &[&str] = &["HTTP/1.1 200 ", "\"name\":\"logits\"", "\"shape\":[1,4]"];
    const SHAPE: &[&str] = &["HTTP/1.1 400 ", "expected shape [n, 3, 8] with n from 1 to 64"];
    const BROTLI: &[&str] = &["HTTP/1.1 415 ", "expected gzip, deflate or identity"];
    const TOO_LONG: &str = "inference-header-content-length: 100000\r\n";
    const STATISTICS: &[&str] = &["HTTP/1.1 200 ", "\"model_stats\""];
    const INDEX: &[&str] = &["HTTP/1.1 200 ", "\"READY\""];
    const ENDPOINTS: &[&str] = &["HTTP/1.1 404 ", "/openapi.json"];
    const METHODS: &[&str] = &["HTTP/1.1 405 ", "allow: POST"];
    vec![
        infer("request", LOGITS, |_| {}),
        infer("null-members", LOGITS, |request| {
            for member in ["id", "parameters", "outputs"] {
                request[member] = Value::Null;
            }
            request["inputs"][0]["parameters"] = Value::Null;
        }),
        infer("null-parameters-of-an-output", LOGITS, |request| {
            request["outputs"] = json!([{ "name": "logits", "parameters": null }]);
        }),
        infer("data-in-rows", LOGITS, |request| {
            request["inputs"][1]["data"] = json!(vec![vec![vec![7; PACKED]; SLOTS]]);
        }),
        infer("unknown-output", &["HTTP/1.1 400 ", "probabilities", "is unknown"], |request| {
            request["outputs"] = json!([{ "name": "probabilities" }]);
        }),
        infer("unknown-parameter", &["HTTP/1.1 400 ", "sequence_id"], |request| {
            request["parameters"] = json!({ "sequence_id": 5 });
        }),
        infer("classification", &["HTTP/1.1 200 ", "\"datatype\":\"BYTES\"", "\"shape\":[1,2]"], |request| {
            request["outputs"] = json!([{ "name": "logits", "parameters": { "classification": 2 } }]);
        }),
        infer("shape-without-batch", SHAPE, |request| request["inputs"][1]["shape"] = json!([SLOTS, PACKED])),
        infer("shape-flat", SHAPE, |request| request["inputs"][1]["shape"] = json!([SLOTS * PACKED])),
        infer("shape-missing", SHAPE, |request| request["inputs"][1]["shape"] = Value::Null),
        infer("value-256", &["HTTP/1.1 400 ", "value 5", "found 256"], |request| {
            request["inputs"][1]["data"][5] = json!(256);
        }),
        infer("value-float", &["HTTP/1.1 400 ", "value 0", "found 0.5"], |request| {
            request["inputs"][1]["data"][0] = json!(0.5);
        }),
        infer("value-text", &["HTTP/1.1 400 ", "AAAA"], |request| {
            request["inputs"][1]["data"] = json!("AAAA");
        }),
        ask("body-after-a-byte-order-mark", LOGITS, INFER, "", || format!("\u{feff}{}", sound())),
        ask("extra-slash", &["HTTP/1.1 404 ", "extra slash"], "GET /v2/models/headwater/", "", String::new),
        case(8, "body-gzip", LOGITS, |case| gzip(case, sound().to_string().as_bytes())),
        case(8, "body-gzip-of-ten-megabytes", &["HTTP/1.1 413 "], |case| gzip(case, &vec![b' '; 10_000_000])),
        ask("body-called-gzip", &["HTTP/1.1 400 ", "gzip"], INFER, GZIP, sound_text),
        ask("body-brotli", BROTLI, INFER, "content-encoding: br\r\n", sound_text),
        ask("binary-length-beyond-the-body", &["HTTP/1.1 400 ", "100000"], INFER, TOO_LONG, sound_text),
        ask("version-1", LOGITS, "POST /v2/models/headwater/versions/1/infer", "", sound_text),
        ask("version-2", &["HTTP/1.1 404 "], "GET /v2/models/headwater/versions/2", "", String::new),
        ask("statistics", STATISTICS, "GET /v2/models/headwater/versions/1/stats", "", String::new),
        ask("repository-index", INDEX, "POST /v2/repository/index", "", String::new),
        ask("endpoint-that-is-not-there", ENDPOINTS, "GET /v2/trace/setting", "", String::new),
        ask("method-of-another-endpoint", METHODS, "GET /v2/models/headwater/infer", "", String::new),
        case(8, "key-in-lower-case", &["HTTP/1.1 200 "], |case| {
            with_key(case, "authorization: bearer 0123456789abcdef\r\n")
        }),
        case(8, "key-missing", &["HTTP/1.1 401 ", "authorization: Bearer KEY"], |case| with_key(case, "")),
    ]
}

/// A request for inference that the service answers with logits.
fn sound() -> Value {
    json!({
        "inputs": [
            { "name": "presence", "datatype": "BOOL", "shape": [1, SLOTS], "data": [true, true, false] },
            { "name": "features", "datatype": "UINT8", "shape": [1, SLOTS, PACKED], "data": vec![7; SLOTS * PACKED] },
        ],
    })
}

fn sound_text() -> String {
    sound().to_string()
}

/// A case that sends the request of [`sound`] after `change`.
fn infer(name: &'static str, expected: &'static [&'static str], change: fn(&mut Value)) -> Case {
    case(8, name, expected, move |case| {
        let mut request = sound();
        change(&mut request);
        answer(case, INFER, "content-type: application/json\r\n", request.to_string().as_bytes())
    })
}

/// A case that sends a request with these headers and this body.
fn ask(
    name: &'static str,
    expected: &'static [&'static str],
    request: &'static str,
    headers: &'static str,
    body: fn() -> String,
) -> Case {
    case(8, name, expected, move |case| answer(case, request, headers, body().as_bytes()))
}

fn answer(case: &CaseFolder<'_>, request: &str, headers: &str, body: &[u8]) -> String {
    let (_cloud, port) = cloud(case, &[]);
    http(port, request, headers, body)
}

/// Starts a cloud service with the network of three devices, and waits until it is ready. Returns the service and its HTTP port.
fn cloud(case: &CaseFolder<'_>, more: &[&str]) -> (Running, u16) {
    let port = held_port().expect("a free port");
    let mut cloud = command("headwater-cloud");
    cloud.args(["--engine", "tract", "--stop-delay-ms", "0", "--http-listen", &format!("127.0.0.1:{port}")]);
    let running = Running::start(case, cloud.arg("--bundle").arg(&case.shared.bundles[1]).args(more), &[]);
    wait(|| http(port, "GET /v2/health/ready", "", &[]).starts_with("HTTP/1.1 200 "));
    (running, port)
}

/// Sends a body that the program `gzip` has compressed as a request for inference, and returns the answer.
fn gzip(case: &CaseFolder<'_>, body: &[u8]) -> String {
    let plain = case.path.join("body");
    fs::write(&plain, body).expect("the folder can be written");
    let compressed =
        Command::new("gzip").arg("-c").arg(&plain).output().expect("gzip is a program of every Debian");
    answer(case, INFER, GZIP, &compressed.stdout)
}

/// Asks a service that wants a key for the metadata of its model, with these headers, and returns the answer.
fn with_key(case: &CaseFolder<'_>, headers: &str) -> String {
    let keys = case.path.join("keys");
    fs::write(&keys, "0123456789abcdef\n").expect("the folder can be written");
    let (_cloud, port) = cloud(case, &["--http-keys-file", &keys.display().to_string()]);
    http(port, "GET /v2/models/headwater", headers, &[])
}
