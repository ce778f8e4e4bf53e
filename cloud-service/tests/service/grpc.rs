//! gRPC: the same model, refusals and bounds as over HTTP.

use std::io::Read;
use std::net::SocketAddr;

use axum::http::{HeaderMap, Request, StatusCode};
use bytes::Bytes;
use flate2::Compression;
use flate2::read::GzEncoder;
use h2::SendStream;
use h2::client::{ResponseFuture, SendRequest};
use headwater_cloud_service::CloudService;
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use self::inference::infer_parameter::ParameterChoice;
use self::inference::model_infer_request::{InferInputTensor, InferRequestedOutputTensor};
use self::inference::{InferParameter, InferTensorContents, ModelInferRequest, ModelInferResponse};
use crate::calls::{CLASSES, Direct, PACKED, SLOTS, batch, config};
use crate::lifecycle::start;

#[expect(unreachable_pub, clippy::enum_variant_names, reason = "generated")]
mod inference {
    include!("../../src/grpc/inference.rs");
}

/// A client of one connection.
struct Client(SendRequest<Bytes>);

/// Status of a call, its text, and the bytes of the answer's message.
#[derive(Debug, PartialEq)]
struct Outcome {
    status: String,
    text: String,
    message: Bytes,
}

impl Client {
    async fn connect(addr: SocketAddr) -> Self {
        let (client, connection) =
            h2::client::handshake(TcpStream::connect(addr).await.unwrap()).await.unwrap();
        let _driver = tokio::spawn(connection);
        Self(client)
    }

    async fn call(&self, method: &str, message: &impl Message) -> Outcome {
        self.send(method, framed(0, &message.encode_to_vec()), &[]).await
    }

    /// Sends the head of a call for inference, and no message.
    async fn begin(&self) -> (ResponseFuture, SendStream<Bytes>) {
        let request = Request::post("http://cloud/inference.GRPCInferenceService/ModelInfer")
            .header("content-type", "application/grpc");
        let mut client = self.0.clone().ready().await.unwrap();
        client.send_request(request.body(()).unwrap(), false).unwrap()
    }

    async fn send(&self, method: &str, body: Bytes, headers: &[(&str, &str)]) -> Outcome {
        let mut request = Request::post(format!("http://cloud/inference.GRPCInferenceService/{method}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut client = self.0.clone().ready().await.unwrap();
        let (response, mut stream) = client.send_request(request.body(()).unwrap(), false).unwrap();
        stream.send_data(body, true).unwrap();
        let response = response.await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let text =
            |headers: &HeaderMap, name| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
        let (head, mut body) = response.into_parts();
        let mut message = Vec::new();
        while let Some(data) = body.data().await {
            let data = data.unwrap();
            body.flow_control().release_capacity(data.len()).unwrap();
            message.extend_from_slice(&data);
        }
        let trailers = body.trailers().await.unwrap().unwrap_or(head.headers);
        let message = Bytes::from(message).slice(message_start(&trailers)..);
        Outcome {
            status: text(&trailers, "grpc-status").expect("a status"),
            text: text(&trailers, "grpc-message").unwrap_or_default(),
            message,
        }
    }
}

/// Position of the message in the body: five bytes (flag and length) come before an answer, and a refusal has no message.
fn message_start(trailers: &HeaderMap) -> usize {
    if trailers["grpc-status"] == "0" { 5 } else { 0 }
}

impl Outcome {
    #[track_caller]
    fn answer<M: Message + Default>(self) -> M {
        assert_eq!(self.status, "0", "{self:?}");
        M::decode(self.message).unwrap()
    }

    #[track_caller]
    fn is_refused(&self, status: &str, text: &str) {
        assert!(self.status == status && self.text.contains(text), "{self:?}");
    }
}

fn framed(flag: u8, message: &[u8]) -> Bytes {
    [&[flag][..], &(message.len() as u32).to_be_bytes(), message].concat().into()
}

async fn started(settings: &str) -> (CloudService, Client) {
    let (service, _model) = start(config(&format!("{settings}\ngrpc.listen = \"127.0.0.1:0\""))).await;
    let client = Client::connect(service.grpc_addr().unwrap()).await;
    (service, client)
}

/// A request with binary tensors, or with their values in the message.
fn infer_request(seed: u8, samples: usize, is_raw: bool) -> ModelInferRequest {
    let batch = batch(seed, samples);
    let input = |name: &str, datatype: &str, shape: &[usize], contents| InferInputTensor {
        name: name.into(),
        datatype: datatype.into(),
        shape: shape.iter().map(|&size| size as i64).collect(),
        contents: Some(contents).filter(|_| !is_raw),
        ..InferInputTensor::default()
    };
    let features = InferTensorContents {
        uint_contents: batch.features.iter().map(|&byte| byte.into()).collect(),
        ..InferTensorContents::default()
    };
    let presence =
        InferTensorContents { bool_contents: batch.presence.clone(), ..InferTensorContents::default() };
    let raw: [Bytes; 2] =
        [batch.features.into(), batch.presence.iter().map(|&is| u8::from(is)).collect::<Vec<_>>().into()];
    ModelInferRequest {
        model_name: "headwater".into(),
        id: "g".into(),
        inputs: vec![
            input("features", "UINT8", &[samples, SLOTS, PACKED], features),
            input("presence", "BOOL", &[samples, SLOTS], presence),
        ],
        raw_input_contents: if is_raw { raw.into() } else { Vec::new() },
        ..ModelInferRequest::default()
    }
}

fn number(value: i64) -> InferParameter {
    InferParameter { parameter_choice: Some(ParameterChoice::Int64Param(value)) }
}

#[tokio::test]
async fn binary_and_plain_tensors_get_the_logits_of_the_section() {
    let (service, client) = started("").await;
    let expected = Direct::new().await.expected(9, 2);
    for is_raw in [true, false] {
        let answer: ModelInferResponse =
            client.call("ModelInfer", &infer_request(9, 2, is_raw)).await.answer();
        assert_eq!((&*answer.model_name, &*answer.model_version, &*answer.id), ("headwater", "1", "g"));
        assert_eq!(answer.outputs[0].shape, [2, CLASSES as i64]);
        let logits = answer.raw_output_contents[0].chunks_exact(4);
        let logits: Vec<_> = logits.map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect();
        assert_eq!(logits, expected);
    }
    assert_eq!(service.shutdown().await.answered(), 2);
}

#[tokio::test]
async fn a_compressed_message_is_read() {
    let (_service, client) = started("").await;
    let mut compressed = Vec::new();
    let message = infer_request(9, 2, true).encode_to_vec();
    GzEncoder::new(&message[..], Compression::fast()).read_to_end(&mut compressed).unwrap();
    let body = framed(1, &compressed);
    let _: ModelInferResponse =
        client.send("ModelInfer", body.clone(), &[("grpc-encoding", "gzip")]).await.answer();
    let outcome = client.send("ModelInfer", body, &[("grpc-encoding", "snappy")]).await;
    outcome.is_refused("12", "grpc-encoding: expected gzip, deflate or identity, found \"snappy\"");
    let unsaid = client.send("ModelInfer", framed(1, &compressed), &[]).await;
    unsaid.is_refused("3", "grpc-encoding: expected gzip or deflate for a compressed message, found none");
    let cut = framed(1, &compressed[..compressed.len() - 9]);
    let cut = client.send("ModelInfer", cut, &[("grpc-encoding", "gzip")]).await;
    cut.is_refused("3", "body: expected whole gzip, as grpc-encoding says");
    let mut bomb = Vec::new();
    GzEncoder::new(&vec![0; 1_000_000][..], Compression::fast()).read_to_end(&mut bomb).unwrap();
    let bomb = client.send("ModelInfer", framed(1, &bomb), &[("grpc-encoding", "gzip")]).await;
    bomb.is_refused("8", "found more after decoding");
}

#[tokio::test]
async fn a_classification_is_a_tensor_of_texts() {
    let (_service, client) = started("").await;
    let mut request = infer_request(9, 2, true);
    let parameters = [("classification".into(), number(2))].into();
    request.outputs = vec![InferRequestedOutputTensor { name: "logits".into(), parameters }];
    let answer: ModelInferResponse = client.call("ModelInfer", &request).await.answer();
    assert_eq!((&*answer.outputs[0].datatype, &answer.outputs[0].shape[..]), ("BYTES", &[2, 2][..]));
    assert!(String::from_utf8_lossy(&answer.raw_output_contents[0]).contains(":"));
}

type Change = fn(&mut ModelInferRequest);

#[tokio::test]
async fn what_http_refuses_is_refused_with_the_same_words() {
    let (service, client) = started("").await;
    let changes: [(Change, &str, &str); 10] = [
        (|r| r.model_name = "other".into(), "5", "no model \"other\""),
        (|r| r.model_version = "2".into(), "5", "no version \"2\""),
        (
            |r| r.outputs.push(InferRequestedOutputTensor { name: "x".into(), ..Default::default() }),
            "3",
            "output \"x\" is unknown",
        ),
        (|r| _ = r.parameters.insert("sequence_id".into(), number(5)), "3", "found \"sequence_id\": 5"),
        (|r| r.inputs[0].shape = vec![SLOTS as i64], "3", "expected shape [n, 3, 8] with n from 1 to 64"),
        (|r| r.inputs[0].shape[0] = -1, "3", "with n from 1 to 64, found [-1,3,8]"),
        (
            |r| _ = r.parameters.insert("deadline_ms".into(), number(-1)),
            "3",
            "parameter `deadline_ms`: expected a whole number of milliseconds, found -1",
        ),
        (|r| r.raw_input_contents.clear(), "3", "in gRPC `raw_input_contents`), found neither"),
        (|r| _ = r.raw_input_contents.pop(), "3", "expected one for each of 2 inputs, or none, found 1"),
        (
            |r| r.raw_input_contents[1] = Bytes::from_static(&[7; 3]),
            "3",
            "value 0: expected true, false, 0 or 1, found 7",
        ),
    ];
    for (change, status, text) in changes {
        let mut request = infer_request(1, 1, true);
        change(&mut request);
        client.call("ModelInfer", &request).await.is_refused(status, text);
    }
    client.call("ModelConfig", &infer_request(1, 1, true)).await.is_refused("12", "no method");
    let requests = service.shutdown().await.requests;
    assert_eq!((requests["not_found"], requests["malformed"], requests["wrong_method"]), (2, 8, 1));
}

#[tokio::test]
async fn a_message_of_many_empty_tensors_is_refused_before_it_is_decoded() {
    let (_service, client) = started("").await;
    let outcome = client.send("ModelInfer", framed(0, &b"\x2a\0".repeat(9_000)), &[]).await;
    outcome.is_refused("3", "message: expected at most 64 fields, found more");
}

#[tokio::test]
async fn a_long_shape_and_many_parameters_are_refused() {
    let (_service, client) = started("").await;
    let mut request = infer_request(1, 1, true);
    request.inputs[0].shape = vec![1; 5_000];
    client.call("ModelInfer", &request).await.is_refused("3", "with n from 1 to 64, found [1,1,1");
    let mut request = infer_request(1, 1, true);
    request.inputs[0].parameters = (0..1_000).map(|name| (name.to_string(), number(1))).collect();
    client.call("ModelInfer", &request).await.is_refused("3", "found \"0\": 1");
}

#[tokio::test]
async fn large_messages_of_one_connection_arrive_one_after_the_other() {
    let (_service, client) = started("").await;
    // A field that is unknown, with 18,000 bytes; one such message has room at a time.
    let padded = [&b"\x7a\xd0\x8c\x01"[..], &[0; 18_000]].concat();
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..12 {
        let (client, body) = (Client(client.0.clone()), framed(0, &padded));
        calls.spawn(async move { client.send("ServerLive", body, &[]).await });
    }
    while let Some(outcome) = calls.join_next().await {
        assert!(outcome.unwrap().answer::<bool>());
    }
}

#[tokio::test]
async fn a_message_that_is_none_is_refused_and_counted() {
    let (service, client) = started("").await;
    for body in [&b""[..], b"\0\0\0", b"\0\0\0\0\x09\x01", b"\x02\0\0\0\0", b"\0\0\0\0\x02\xff\xff"] {
        client.send("ModelInfer", Bytes::from_static(body), &[]).await.is_refused("3", "");
    }
    let two = [framed(0, b""), framed(0, b"")].concat();
    client.send("ServerLive", two.into(), &[]).await.is_refused("3", "expected one message");
    for large in [framed(0, &[0; 1_000_000]), Bytes::from_static(b"\0\x00\x0f\x42\x40")] {
        client.send("ModelInfer", large, &[]).await.is_refused("8", "found 1000000");
    }
    let requests = service.report().requests;
    assert_eq!((requests["malformed"], requests["oversize"]), (5, 2));
}

#[tokio::test]
async fn a_call_that_is_not_one_of_grpc_is_refused_and_counted() {
    let (service, client) = started("").await;
    let request = Request::post("http://cloud/inference.GRPCInferenceService/ModelInfer").body(());
    let mut client = client.0.ready().await.unwrap();
    let (response, _) = client.send_request(request.unwrap(), true).unwrap();
    assert_eq!(response.await.unwrap().status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
    assert_eq!(service.report().requests["malformed"], 1);
}

#[tokio::test]
async fn a_message_that_does_not_arrive_is_refused_in_time() {
    let (_service, client) = started("http.deadline_ms = 50").await;
    let (response, _stream) = client.begin().await;
    assert_eq!(response.await.unwrap().headers()["grpc-status"], "4");
}

#[tokio::test]
async fn the_messages_of_one_connection_have_the_room_of_the_largest() {
    // The time limit for messages is longer than the test.
    let (_service, client) = started("http.deadline_ms = 600000").await;
    let (_response, mut stream) = client.begin().await;
    // Announces 18,000 of at most 18,752 bytes.
    stream.send_data(Bytes::from_static(b"\0\0\0\x46\x50"), false).unwrap();
    // A field that is unknown, with 1,000 bytes.
    let padded = [&b"\x7a\xe8\x07"[..], &[0; 1000]].concat();
    let other = Client(client.0.clone());
    let waiting = tokio::spawn(async move { other.send("ServerLive", framed(0, &padded), &[]).await });
    // The second of these calls begins after the one that waits.
    for _ in 0..2 {
        let _: bool = client.call("ServerLive", &()).await.answer();
    }
    assert!(!waiting.is_finished());
    stream.send_reset(h2::Reason::CANCEL);
    let _: bool = waiting.await.unwrap().answer();
}

#[tokio::test]
async fn a_call_that_does_not_arrive_shuts_nobody_out() {
    // The time limit for messages is longer than the test.
    let (service, client) = started("http.max_connections = 1\nhttp.deadline_ms = 600000").await;
    let (_response, _stream) = client.begin().await;
    // The connection reads heads in their order, so the answer says that the slow call has begun.
    let _: bool = client.call("ServerLive", &()).await.answer();
    let other = Client::connect(service.grpc_addr().unwrap()).await;
    let _: bool = other.call("ServerLive", &()).await.answer();
    assert_eq!(service.report().closed_connections["connection_limit"], 1);
}

#[tokio::test]
async fn a_peer_that_does_not_speak_http_2_is_closed_and_nobody_else() {
    let (service, client) = started("http.head_timeout_ms = 1000").await;
    for bytes in [&b""[..], b"GET /v2 HTTP/1.1\r\n\r\n", &[0xff; 100]] {
        let mut peer = TcpStream::connect(service.grpc_addr().unwrap()).await.unwrap();
        peer.write_all(bytes).await.unwrap();
        let mut answer = Vec::new();
        // The connection ends or is reset; an answer of the server before that does not matter.
        let _ended = peer.read_to_end(&mut answer).await;
    }
    let _: ModelInferResponse = client.call("ModelInfer", &infer_request(1, 1, true)).await.answer();
}

#[tokio::test]
async fn server_model_statistics_and_repository_answer() {
    use inference::*;
    let (service, client) = started("").await;
    let live: bool = client.call("ServerLive", &()).await.answer();
    let ready: bool = client.call("ServerReady", &()).await.answer();
    assert!(live && ready);
    let asked = ModelReadyRequest { name: "headwater".into(), version: String::new() };
    assert!(client.call("ModelReady", &asked).await.answer::<bool>());
    let server: ServerMetadataResponse = client.call("ServerMetadata", &()).await.answer();
    assert_eq!(server.name, "headwater-cloud");
    let asked = ModelMetadataRequest { name: "headwater".into(), version: "1".into() };
    let model: ModelMetadataResponse = client.call("ModelMetadata", &asked).await.answer();
    assert_eq!(model.inputs[0].shape, [-1, SLOTS as i64, PACKED as i64]);
    let _: ModelInferResponse = client.call("ModelInfer", &infer_request(1, 3, true)).await.answer();
    let statistics: ModelStatisticsResponse =
        client.call("ModelStatistics", &ModelStatisticsRequest::default()).await.answer();
    assert_eq!(statistics.model_stats[0].inference_count, 3);
    let index: RepositoryIndexResponse =
        client.call("RepositoryIndex", &RepositoryIndexRequest::default()).await.answer();
    assert_eq!(index.models[0].state, "READY");
    drop(service);
}

#[tokio::test]
async fn a_key_is_needed_as_over_http() {
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys");
    std::fs::write(&keys, "0123456789abcdef\n").unwrap();
    let (service, client) = started(&format!("http.keys_file = {keys:?}")).await;
    // The head alone is judged: no message follows.
    let (response, _stream) = client.begin().await;
    assert_eq!(response.await.unwrap().headers()["grpc-status"], "16");
    assert_eq!(service.report().requests["unauthorized"], 1);
    let message = framed(0, &infer_request(1, 1, true).encode_to_vec());
    client.send("ModelInfer", message.clone(), &[]).await.is_refused("16", "expected a key");
    let _: ModelInferResponse =
        client.send("ModelInfer", message, &[("authorization", "bearer 0123456789abcdef")]).await.answer();
    client.send("ServerLive", framed(0, &[]), &[]).await.answer::<bool>();
}

#[tokio::test]
async fn a_call_past_its_deadline_is_refused() {
    let (service, model) = start(config("grpc.listen = \"127.0.0.1:0\"")).await;
    let client = Client::connect(service.grpc_addr().unwrap()).await;
    model.stop();
    let message = framed(0, &infer_request(1, 1, true).encode_to_vec());
    let outcome = client.send("ModelInfer", message, &[("grpc-timeout", "20m")]).await;
    outcome.is_refused("4", "deadline");
    model.run();
}

#[tokio::test]
async fn a_call_whose_caller_has_left_is_skipped_and_counted() {
    let (service, model) = start(config("grpc.listen = \"127.0.0.1:0\"")).await;
    let client = Client::connect(service.grpc_addr().unwrap()).await;
    model.stop();
    let other = Client(client.0.clone());
    let first = tokio::spawn(async move { client.call("ModelInfer", &infer_request(1, 1, true)).await });
    model.entered(1).await;
    let left = tokio::spawn(async move { other.call("ModelInfer", &infer_request(2, 1, true)).await });
    while service.report().body_received_bytes < 2 * infer_request(2, 1, true).encoded_len() as u64 {
        tokio::task::yield_now().await;
    }
    left.abort();
    while !service.report().requests.contains_key("ok") {
        model.run();
        tokio::task::yield_now().await;
    }
    let _: ModelInferResponse = first.await.unwrap().answer();
    assert_eq!(service.shutdown().await.of_models(|of| of.samples + of.skipped("caller_gone")), 2);
}

#[tokio::test]
async fn shutdown_finishes_calls_in_flight() {
    let (service, model) = start(config("grpc.listen = \"127.0.0.1:0\"")).await;
    let addr = service.grpc_addr().unwrap();
    let client = Client::connect(addr).await;
    model.stop();
    let request = infer_request(1, 1, true);
    let in_flight = tokio::spawn(async move { client.call("ModelInfer", &request).await });
    model.entered(1).await;
    let stopping = tokio::spawn(service.shutdown());
    while TcpStream::connect(addr).await.is_ok() {
        tokio::task::yield_now().await;
    }
    model.run();
    let _: ModelInferResponse = in_flight.await.unwrap().answer();
    assert_eq!(stopping.await.unwrap().answered(), 1);
}
