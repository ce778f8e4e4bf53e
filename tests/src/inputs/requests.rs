//! Requests of clients of the Open Inference Protocol v2 to `headwater-cloud`.

use std::fs;
use std::process::Command;

use headwater_transport::held_port;
use serde_json::{Value, json};

use super::running::{Running, http};
use super::{Case, CaseFolder, wait};
use crate::programs::command;

/// Slots and bytes of a packed map of the network of three devices.
const SLOTS: usize = 3;
const PACKED: usize = 8;

const INFER: &str = "POST /v2/models/headwater/infer";

pub(super) fn cases() -> Vec<Case> {
    const LOGITS: &[&str] = &["HTTP/1.1 200 ", "\"name\":\"logits\"", "\"shape\":[1,4]"];
    vec![
        Case { kind: 8, name: "request", run: |case| infer(case, |_| {}), expected: LOGITS },
        Case {
            kind: 8,
            name: "null-members",
            run: |case| {
                infer(case, |request| {
                    for member in ["id", "parameters", "outputs"] {
                        request[member] = Value::Null;
                    }
                    request["inputs"][0]["parameters"] = Value::Null;
                })
            },
            expected: LOGITS,
        },
        Case {
            kind: 8,
            name: "null-parameters-of-an-output",
            run: |case| {
                infer(case, |request| request["outputs"] = json!([{ "name": "logits", "parameters": null }]))
            },
            expected: LOGITS,
        },
        Case {
            kind: 8,
            name: "data-in-rows",
            run: |case| {
                infer(case, |request| {
                    request["inputs"][1]["data"] = json!(vec![vec![vec![7; PACKED]; SLOTS]]);
                })
            },
            expected: LOGITS,
        },
        Case {
            kind: 8,
            name: "unknown-output",
            run: |case| infer(case, |request| request["outputs"] = json!([{ "name": "probabilities" }])),
            expected: &["HTTP/1.1 400 ", "probabilities", "is unknown"],
        },
        Case {
            kind: 8,
            name: "unknown-parameter",
            run: |case| infer(case, |request| request["parameters"] = json!({ "sequence_id": 5 })),
            expected: &["HTTP/1.1 400 ", "sequence_id"],
        },
        Case {
            kind: 8,
            name: "classification",
            run: |case| {
                infer(case, |request| {
                    request["outputs"] = json!([{ "name": "logits", "parameters": { "classification": 2 } }]);
                })
            },
            expected: &["HTTP/1.1 200 ", "\"datatype\":\"BYTES\"", "\"shape\":[1,2]"],
        },
        Case {
            kind: 8,
            name: "shape-without-batch",
            run: |case| infer(case, |request| request["inputs"][1]["shape"] = json!([SLOTS, PACKED])),
            expected: &["HTTP/1.1 400 ", "expected shape [n, 3, 8] with n from 1 to 64"],
        },
        Case {
            kind: 8,
            name: "shape-flat",
            run: |case| infer(case, |request| request["inputs"][1]["shape"] = json!([SLOTS * PACKED])),
            expected: &["HTTP/1.1 400 ", "expected shape [n, 3, 8] with n from 1 to 64"],
        },
        Case {
            kind: 8,
            name: "shape-missing",
            run: |case| infer(case, |request| request["inputs"][1]["shape"] = Value::Null),
            expected: &["HTTP/1.1 400 ", "expected shape [n, 3, 8] with n from 1 to 64"],
        },
        Case {
            kind: 8,
            name: "value-256",
            run: |case| infer(case, |request| request["inputs"][1]["data"][5] = json!(256)),
            expected: &["HTTP/1.1 400 ", "value 5", "found 256"],
        },
        Case {
            kind: 8,
            name: "value-float",
            run: |case| infer(case, |request| request["inputs"][1]["data"][0] = json!(0.5)),
            expected: &["HTTP/1.1 400 ", "value 0", "found 0.5"],
        },
        Case {
            kind: 8,
            name: "value-text",
            run: |case| infer(case, |request| request["inputs"][1]["data"] = json!("AAAA")),
            expected: &["HTTP/1.1 400 ", "AAAA"],
        },
        Case {
            kind: 8,
            name: "body-after-a-byte-order-mark",
            run: |case| ask(case, INFER, "", format!("\u{feff}{}", sound()).as_bytes()),
            expected: LOGITS,
        },
        Case {
            kind: 8,
            name: "extra-slash",
            run: |case| ask(case, "GET /v2/models/headwater/", "", &[]),
            expected: &["HTTP/1.1 404 ", "extra slash"],
        },
        Case {
            kind: 8,
            name: "body-gzip",
            run: |case| gzip(case, sound().to_string().as_bytes(), "content-encoding: gzip\r\n"),
            expected: LOGITS,
        },
        Case {
            kind: 8,
            name: "body-gzip-of-ten-megabytes",
            run: |case| gzip(case, &vec![b' '; 10_000_000], "content-encoding: gzip\r\n"),
            expected: &["HTTP/1.1 413 "],
        },
        Case {
            kind: 8,
            name: "body-called-gzip",
            run: |case| ask(case, INFER, "content-encoding: gzip\r\n", sound().to_string().as_bytes()),
            expected: &["HTTP/1.1 400 ", "gzip"],
        },
        Case {
            kind: 8,
            name: "body-brotli",
            run: |case| ask(case, INFER, "content-encoding: br\r\n", sound().to_string().as_bytes()),
            expected: &["HTTP/1.1 415 ", "expected gzip, deflate or identity"],
        },
        Case {
            kind: 8,
            name: "binary-length-beyond-the-body",
            run: |case| {
                let headers = "inference-header-content-length: 100000\r\n";
                ask(case, INFER, headers, sound().to_string().as_bytes())
            },
            expected: &["HTTP/1.1 400 ", "100000"],
        },
        Case {
            kind: 8,
            name: "version-1",
            run: |case| {
                let path = "POST /v2/models/headwater/versions/1/infer";
                ask(case, path, "", sound().to_string().as_bytes())
            },
            expected: LOGITS,
        },
        Case {
            kind: 8,
            name: "version-2",
            run: |case| ask(case, "GET /v2/models/headwater/versions/2", "", &[]),
            expected: &["HTTP/1.1 404 "],
        },
        Case {
            kind: 8,
            name: "statistics",
            run: |case| ask(case, "GET /v2/models/headwater/versions/1/stats", "", &[]),
            expected: &["HTTP/1.1 200 ", "\"model_stats\""],
        },
        Case {
            kind: 8,
            name: "repository-index",
            run: |case| ask(case, "POST /v2/repository/index", "", &[]),
            expected: &["HTTP/1.1 200 ", "\"READY\""],
        },
        Case {
            kind: 8,
            name: "endpoint-that-is-not-there",
            run: |case| ask(case, "GET /v2/trace/setting", "", &[]),
            expected: &["HTTP/1.1 404 ", "/openapi.json"],
        },
        Case {
            kind: 8,
            name: "method-of-another-endpoint",
            run: |case| ask(case, "GET /v2/models/headwater/infer", "", &[]),
            expected: &["HTTP/1.1 405 ", "allow: POST"],
        },
        Case {
            kind: 8,
            name: "key-in-lower-case",
            run: |case| with_key(case, "authorization: bearer 0123456789abcdef\r\n"),
            expected: &["HTTP/1.1 200 "],
        },
        Case {
            kind: 8,
            name: "key-missing",
            run: |case| with_key(case, ""),
            expected: &["HTTP/1.1 401 ", "authorization: Bearer KEY"],
        },
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
