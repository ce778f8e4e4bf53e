//! Requests of clients of the Open Inference Protocol v2 to `headwater-cloud`.

use std::fs;
use std::process::Command;

use headwater_transport::held_port;
use serde_json::{Value, json};

use super::running::Running;
use super::{Case, CaseFolder, case, wait};
use crate::programs::{command, http};

/// Slots and bytes of a packed map of the network of three devices.
const SLOTS: usize = 3;
const PACKED: usize = 8;

const INFER: &str = "POST /v2/models/headwater/infer";

pub(super) fn cases() -> Vec<Case> {
    const LOGITS: &[&str] = &["HTTP/1.1 200 ", "\"name\":\"logits\"", "\"shape\":[1,4]"];
    vec![
        case(8, "request", LOGITS, |case| infer(case, |_| {})),
        case(8, "null-members", LOGITS, |case| {
            infer(case, |request| {
                for member in ["id", "parameters", "outputs"] {
                    request[member] = Value::Null;
                }
                request["inputs"][0]["parameters"] = Value::Null;
            })
        }),
        case(8, "null-parameters-of-an-output", LOGITS, |case| {
            infer(case, |request| request["outputs"] = json!([{ "name": "logits", "parameters": null }]))
        }),
        case(8, "data-in-rows", LOGITS, |case| {
            infer(case, |request| {
                request["inputs"][1]["data"] = json!(vec![vec![vec![7; PACKED]; SLOTS]]);
            })
        }),
        case(8, "unknown-output", &["HTTP/1.1 400 ", "probabilities", "is unknown"], |case| {
            infer(case, |request| request["outputs"] = json!([{ "name": "probabilities" }]))
        }),
        case(8, "unknown-parameter", &["HTTP/1.1 400 ", "sequence_id"], |case| {
            infer(case, |request| request["parameters"] = json!({ "sequence_id": 5 }))
        }),
        case(8, "classification", &["HTTP/1.1 200 ", "\"datatype\":\"BYTES\"", "\"shape\":[1,2]"], |case| {
            infer(case, |request| {
                request["outputs"] = json!([{ "name": "logits", "parameters": { "classification": 2 } }]);
            })
        }),
        case(
            8,
            "shape-without-batch",
            &["HTTP/1.1 400 ", "expected shape [n, 3, 8] with n from 1 to 64"],
            |case| infer(case, |request| request["inputs"][1]["shape"] = json!([SLOTS, PACKED])),
        ),
        case(8, "shape-flat", &["HTTP/1.1 400 ", "expected shape [n, 3, 8] with n from 1 to 64"], |case| {
            infer(case, |request| request["inputs"][1]["shape"] = json!([SLOTS * PACKED]))
        }),
        case(
            8,
            "shape-missing",
            &["HTTP/1.1 400 ", "expected shape [n, 3, 8] with n from 1 to 64"],
            |case| infer(case, |request| request["inputs"][1]["shape"] = Value::Null),
        ),
        case(8, "value-256", &["HTTP/1.1 400 ", "value 5", "found 256"], |case| {
            infer(case, |request| request["inputs"][1]["data"][5] = json!(256))
        }),
        case(8, "value-float", &["HTTP/1.1 400 ", "value 0", "found 0.5"], |case| {
            infer(case, |request| request["inputs"][1]["data"][0] = json!(0.5))
        }),
        case(8, "value-text", &["HTTP/1.1 400 ", "AAAA"], |case| {
            infer(case, |request| request["inputs"][1]["data"] = json!("AAAA"))
        }),
        case(8, "body-after-a-byte-order-mark", LOGITS, |case| {
            ask(case, INFER, "", format!("\u{feff}{}", sound()).as_bytes())
        }),
        case(8, "extra-slash", &["HTTP/1.1 404 ", "extra slash"], |case| {
            ask(case, "GET /v2/models/headwater/", "", &[])
        }),
        case(8, "body-gzip", LOGITS, |case| {
            gzip(case, sound().to_string().as_bytes(), "content-encoding: gzip\r\n")
        }),
        case(8, "body-gzip-of-ten-megabytes", &["HTTP/1.1 413 "], |case| {
            gzip(case, &vec![b' '; 10_000_000], "content-encoding: gzip\r\n")
        }),
        case(8, "body-called-gzip", &["HTTP/1.1 400 ", "gzip"], |case| {
            ask(case, INFER, "content-encoding: gzip\r\n", sound().to_string().as_bytes())
        }),
        case(8, "body-brotli", &["HTTP/1.1 415 ", "expected gzip, deflate or identity"], |case| {
            ask(case, INFER, "content-encoding: br\r\n", sound().to_string().as_bytes())
        }),
        case(8, "binary-length-beyond-the-body", &["HTTP/1.1 400 ", "100000"], |case| {
            let headers = "inference-header-content-length: 100000\r\n";
            ask(case, INFER, headers, sound().to_string().as_bytes())
        }),
        case(8, "version-1", LOGITS, |case| {
            let path = "POST /v2/models/headwater/versions/1/infer";
            ask(case, path, "", sound().to_string().as_bytes())
        }),
        case(8, "version-2", &["HTTP/1.1 404 "], |case| {
            ask(case, "GET /v2/models/headwater/versions/2", "", &[])
        }),
        case(8, "statistics", &["HTTP/1.1 200 ", "\"model_stats\""], |case| {
            ask(case, "GET /v2/models/headwater/versions/1/stats", "", &[])
        }),
        case(8, "repository-index", &["HTTP/1.1 200 ", "\"READY\""], |case| {
            ask(case, "POST /v2/repository/index", "", &[])
        }),
        case(8, "endpoint-that-is-not-there", &["HTTP/1.1 404 ", "/openapi.json"], |case| {
            ask(case, "GET /v2/trace/setting", "", &[])
        }),
        case(8, "method-of-another-endpoint", &["HTTP/1.1 405 ", "allow: POST"], |case| {
            ask(case, "GET /v2/models/headwater/infer", "", &[])
        }),
        case(8, "key-in-lower-case", &["HTTP/1.1 200 "], |case| {
            with_key(case, "authorization: bearer 0123456789abcdef\r\n")
        }),
        case(8, "key-missing", &["HTTP/1.1 401 ", "authorization: Bearer KEY"], |case| with_key(case, "")),
    ]
}

/// A request that is answered.
fn sound() -> Value {
    json!({
        "inputs": [
            { "name": "presence", "datatype": "BOOL", "shape": [1, SLOTS], "data": [true, true, false] },
            { "name": "features", "datatype": "UINT8", "shape": [1, SLOTS, PACKED], "data": vec![7; SLOTS * PACKED] },
        ],
    })
}

/// The answer to a request that is changed.
fn infer(case: &CaseFolder<'_>, change: fn(&mut Value)) -> String {
    let mut request = sound();
    change(&mut request);
    ask(case, INFER, "content-type: application/json\r\n", request.to_string().as_bytes())
}

fn ask(case: &CaseFolder<'_>, request: &str, headers: &str, body: &[u8]) -> String {
    let (_cloud, port) = cloud(case, &[]);
    http(port, request, headers, body)
}

/// A service with the network of three devices that is ready.
fn cloud(case: &CaseFolder<'_>, more: &[&str]) -> (Running, u16) {
    let port = held_port().expect("a free port");
    let mut cloud = command("headwater-cloud");
    cloud.args(["--engine", "tract", "--stop-delay-ms", "0", "--http-listen", &format!("127.0.0.1:{port}")]);
    let running = Running::start(case, cloud.arg("--bundle").arg(&case.shared.bundles[1]).args(more), &[]);
    wait(|| http(port, "GET /v2/health/ready", "", &[]).starts_with("HTTP/1.1 200 "));
    (running, port)
}

/// The answer to a body that the program gzip has compressed.
fn gzip(case: &CaseFolder<'_>, body: &[u8], headers: &str) -> String {
    let plain = case.path.join("body");
    fs::write(&plain, body).expect("the folder can be written");
    let compressed =
        Command::new("gzip").arg("-c").arg(&plain).output().expect("gzip is a program of every Debian");
    ask(case, INFER, headers, &compressed.stdout)
}

/// The answer for the model's metadata of a service that wants a key.
fn with_key(case: &CaseFolder<'_>, headers: &str) -> String {
    let keys = case.path.join("keys");
    fs::write(&keys, "0123456789abcdef\n").expect("the folder can be written");
    let (_cloud, port) = cloud(case, &["--http-keys-file", &keys.display().to_string()]);
    http(port, "GET /v2/models/headwater", headers, &[])
}
