use std::collections::BTreeMap;

use headwater_protocol::NetworkId;
use headwater_protocol::v2::{
    FeatureShape, Form, InferRequest, InferResponse, encode_response, open_request,
};
use headwater_settings::defaults;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::*;
use crate::breaker::BreakerConfig;
use crate::devices::inbox::tests::format;
use crate::report::CloudCounts;
use crate::settings::config::SharedConfig;

/// Limit of every wait; long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Address of the cloud under test.
struct Target(Endpoint);

fn endpoint(url: &str, model: &str) -> Result<Uri, String> {
    infer_endpoint(&Endpoint::http(url).map_err(|error| error.to_string())?, model)
}

const NETWORK: NetworkId = NetworkId([5; 32]);
const NEXT: NetworkId = NetworkId([6; 32]);
const SHAPE: FeatureShape = FeatureShape { slots: 2, bits: 24, max_samples: 1 };

/// A cloud that speaks HTTP by hand, so that it can misbehave at any byte.
struct Cloud {
    listener: TcpListener,
    socket: Option<TcpStream>,
}

impl Cloud {
    async fn listens() -> (Self, Target) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = Target(Endpoint::http(&format!("http://{}", listener.local_addr().unwrap())).unwrap());
        (Self { listener, socket: None }, target)
    }

    async fn accepts(&self) -> TcpStream {
        timeout(PATIENCE, self.listener.accept()).await.expect("a connection").unwrap().0
    }

    /// Asks a question, lets the cloud answer on the connection of all questions, which stays open, and returns the client's reply.
    async fn answers_to(
        &mut self,
        client: &mut CloudClient,
        question: CloudQuestion,
        answer: impl AsyncFnOnce(&mut TcpStream),
    ) -> CloudReply {
        client.ask(question, Instant::now()).unwrap();
        let cloud_side = async {
            if self.socket.is_none() {
                self.socket = Some(self.accepts().await);
            }
            answer(self.socket.as_mut().unwrap()).await;
        };
        tokio::join!(client.next(), cloud_side).0
    }
}

#[tokio::test]
async fn a_question_under_the_next_network_names_it_and_has_its_shapes() {
    let (mut cloud, target) = Cloud::listens().await;
    let mut client = client(target);
    let features = vec![1, 2, 3];
    let presence = vec![true];
    let next = CloudQuestion { generation: Generation::Next, features, presence, ..question(1) };
    let reply = cloud.answers_to(&mut client, next, async |socket| {
        let asked = asked(socket, &FeatureShape { slots: 1, ..SHAPE }).await.1;
        assert_eq!((asked.network, asked.batch.features), (Some(NEXT), vec![1, 2, 3]));
        answers(socket, NEXT, &[0.5, 1.5]).await;
    });
    assert_eq!(reply.await.result, Ok(vec![0.5, 1.5]));
}

fn default_config() -> CloudConfig {
    defaults::<SharedConfig>().cloud
}

fn client(target: Target) -> CloudClient {
    client_with(target, &CloudConfig { linger_ms: 0, ..default_config() })
}

fn client_with(Target(cloud): Target, config: &CloudConfig) -> CloudClient {
    let connection = Arc::new(CloudConnection::new(config, Connector::default(), None));
    client_over(&connection, &cloud)
}

/// Clients of two groups of one process.
fn two_clients(Target(cloud): Target, config: &CloudConfig) -> [CloudClient; 2] {
    let connection = Arc::new(CloudConnection::new(config, Connector::default(), None));
    [(); 2].map(|()| client_over(&connection, &cloud))
}

fn client_over(connection: &Arc<CloudConnection>, cloud: &Endpoint) -> CloudClient {
    let current = MessageFormat { cloud_sources: 2, classes: 3, ..format(NETWORK) };
    let next = MessageFormat { cloud_sources: 1, classes: 2, ..format(NEXT) };
    let formats = Arc::new(PerNetwork { current, next: Some(next) });
    let (connection, group) = (Arc::clone(connection), GroupId::new("gate").unwrap());
    let report = Arc::default();
    let model = CloudModel::new(connection, cloud, (&group, "m"), formats, Arc::clone(&report)).unwrap();
    CloudClient::new(Some(model), report)
}

impl CloudClient {
    fn counts(&self) -> CloudCounts {
        self.report.lock().cloud.clone()
    }
}

fn question(sample: u64) -> CloudQuestion {
    CloudQuestion {
        generation: Generation::Current,
        sample: SampleId(sample),
        features: vec![1, 2, 3, 4, 5, 6],
        presence: vec![true, false],
        deadline_ms: 30_000,
    }
}

/// Reads one request: its head as text and its body.
async fn request(socket: &mut TcpStream) -> (String, Vec<u8>) {
    let mut read = Vec::new();
    let end = loop {
        if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        assert!(socket.read_buf(&mut read).await.unwrap() > 0, "the connection ended in a head");
    };
    let head = String::from_utf8(read[..end].to_vec()).unwrap().to_lowercase();
    let length = if head.starts_with("get ") { 0 } else { field(&head, "content-length").parse().unwrap() };
    while read.len() < end + length {
        assert!(socket.read_buf(&mut read).await.unwrap() > 0, "the connection ended in a body");
    }
    (head, read.split_off(end))
}

/// The head of a question, and what it asks.
async fn asked(socket: &mut TcpStream, shape: &FeatureShape) -> (String, InferRequest) {
    let (head, body) = request(socket).await;
    let length = field(&head, HEADER_LENGTH).parse().unwrap();
    let (asked, _) = open_request(&body, Some(length)).unwrap().read(shape).unwrap();
    (head, asked)
}

fn field(head: &str, name: &str) -> String {
    let line = head.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
    line.unwrap_or_else(|| panic!("{name} in {head}")).to_owned()
}

async fn answers(socket: &mut TcpStream, network: NetworkId, logits: &[f32]) {
    answers_as(socket, response(network, logits)).await;
}

fn response(network: NetworkId, logits: &[f32]) -> InferResponse {
    InferResponse { id: None, model_name: "m".into(), network: Some(network), logits: logits.to_vec() }
}

async fn answers_as(socket: &mut TcpStream, response: InferResponse) {
    let labels = vec![String::new(); response.logits.len()];
    let (body, head) = encode_response(response, Form::BINARY, &labels);
    let text = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n{HEADER_LENGTH}: {}\r\n\r\n",
        body.len(),
        head.unwrap()
    );
    socket.write_all(&[text.as_bytes(), &body].concat()).await.unwrap();
}

#[tokio::test]
async fn two_questions_go_over_one_connection_in_the_open_inference_protocol() {
    let (mut cloud, target) = Cloud::listens().await;
    let mut client = client(target);
    for sample in [1, 2] {
        let reply = cloud.answers_to(&mut client, question(sample), async |socket| {
            let (head, asked) = asked(socket, &SHAPE).await;
            assert!(head.starts_with("post /v2/models/m/infer http/1.1"), "{head}");
            assert_eq!((asked.network, asked.batch.presence), (Some(NETWORK), vec![true, false]));
            assert_eq!(asked.batch.features, [1, 2, 3, 4, 5, 6]);
            assert!(asked.deadline_ms.is_some_and(|ms| (1..=30_000).contains(&ms)));
            answers(socket, NETWORK, &[1.0, -2.0, 0.5]).await;
        });
        let result = Ok(vec![1.0, -2.0, 0.5]);
        assert_eq!(reply.await, CloudReply { sample: SampleId(sample), result });
    }
    let counts = client.counts();
    assert_eq!((counts.asked, counts.answered), (2, 2));
    assert!(counts.body_sent_bytes > 2 * 8);
}

#[tokio::test]
async fn a_cloud_that_hangs_is_a_timeout_at_the_deadline() {
    let (cloud, target) = Cloud::listens().await;
    let mut client = client(target);
    client.ask(CloudQuestion { deadline_ms: 20, ..question(1) }, Instant::now()).unwrap();
    let (reply, _socket) = tokio::join!(client.next(), cloud.accepts());
    assert_eq!(reply.result, Err(Degraded::CloudTimeout));
    assert_eq!(client.counts().failed, BTreeMap::from([(Degraded::CloudTimeout, 1)]));
}

#[tokio::test]
async fn an_answer_after_the_deadline_is_still_taken_while_it_lingers() {
    let (cloud, target) = Cloud::listens().await;
    let mut client = client_with(target, &CloudConfig { linger_ms: 30000, ..default_config() });
    client.ask(CloudQuestion { deadline_ms: 1, ..question(1) }, Instant::now()).unwrap();
    let cloud_side = async {
        let mut socket = cloud.accepts().await;
        // Waits until the client has counted the timeout, so that the answer comes after the deadline.
        while failures(&client) == 0 {
            tokio::task::yield_now().await;
        }
        request(&mut socket).await;
        answers(&mut socket, NETWORK, &[1.0, 2.0, 3.0]).await;
    };
    cloud_side.await;
    assert_eq!(client.next().await.result, Ok(vec![1.0, 2.0, 3.0]));
    let counts = client.counts();
    assert_eq!((counts.answered, counts.failed[&Degraded::CloudTimeout]), (1, 1));
}

#[tokio::test]
async fn the_cloud_is_given_the_linger_time_too() {
    let (mut cloud, target) = Cloud::listens().await;
    let mut client = client_with(target, &CloudConfig { linger_ms: 20_000, ..default_config() });
    let question = CloudQuestion { deadline_ms: 20_000, ..question(1) };
    let reply = cloud.answers_to(&mut client, question, async |socket| {
        let given_ms = asked(socket, &SHAPE).await.1.deadline_ms;
        assert!(given_ms.is_some_and(|ms| (20_001..=40_000).contains(&ms)), "{given_ms:?}");
        answers(socket, NETWORK, &[1.0, 2.0, 3.0]).await;
    });
    assert_eq!(reply.await.result, Ok(vec![1.0, 2.0, 3.0]));
}

/// Takes the next request on a connection of its own, answers with JSON, and returns the first line of the request.
async fn takes(cloud: &Cloud, status: u16, body: &serde_json::Value) -> String {
    let mut socket = cloud.accepts().await;
    let (head, _) = request(&mut socket).await;
    let body = body.to_string();
    let length = body.len();
    let text =
        format!("HTTP/1.1 {status} Any\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}");
    socket.write_all(text.as_bytes()).await.unwrap();
    head.lines().next().unwrap().to_owned()
}

/// Answers the next request for the metadata; if `networks` is empty, the model is unknown.
async fn names_networks(cloud: &Cloud, networks: &[NetworkId]) {
    let parameters: BTreeMap<_, _> = ["network", "next_network"].into_iter().zip(networks).collect();
    let status = if networks.is_empty() { 404 } else { 200 };
    let asked = takes(cloud, status, &serde_json::json!({ "parameters": parameters })).await;
    assert_eq!(asked, "get /v2/models/m http/1.1");
}

async fn refuses(cloud: &Cloud, status: u16, code: &str) {
    let body = serde_json::json!({ "error": "network: expected this one", "code": code });
    let asked = takes(cloud, status, &body).await;
    assert_eq!(asked, "post /v2/models/m/infer http/1.1");
}

/// Waits until `serves_other_network` of the client's counts is `expected`.
async fn serves_other_network(client: &CloudClient, expected: bool) {
    let said = async {
        while client.counts().serves_other_network != expected {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, said).await.expect("the client says it");
}

#[tokio::test]
async fn another_network_of_the_cloud_is_noticed_before_the_first_question() {
    let (cloud, target) = Cloud::listens().await;
    let mut client = client(target);
    client.watch_networks();
    names_networks(&cloud, &[NETWORK]).await;
    serves_other_network(&client, true).await;
    assert_eq!(client.counts().asked, 0);
}

#[tokio::test]
async fn a_refusal_for_the_network_or_the_model_asks_the_cloud_for_its_networks_again() {
    let (cloud, target) = Cloud::listens().await;
    let mut client = client(target);
    client.watch_networks();
    names_networks(&cloud, &[NETWORK, NEXT]).await;
    for (status, code, networks) in [(409, "wrong_network", &[NETWORK][..]), (404, "not_found", &[])] {
        client.ask(question(1), Instant::now()).unwrap();
        refuses(&cloud, status, code).await;
        assert_eq!(client.next().await.result, Err(Degraded::CloudRefused));
        names_networks(&cloud, networks).await;
        serves_other_network(&client, true).await;
        assert_eq!(client.counts().refused[code], 1);
        // The cloud gets the right bundle; the next refusal makes the client ask for the networks again.
        client.ask(question(2), Instant::now()).unwrap();
        refuses(&cloud, 409, "of another version").await;
        assert_eq!(client.next().await.result, Err(Degraded::CloudRefused));
        names_networks(&cloud, &[NETWORK, NEXT]).await;
        serves_other_network(&client, false).await;
    }
    assert_eq!(client.counts().refused["other"], 2);
}

#[tokio::test]
async fn a_cloud_that_starts_later_is_asked_for_its_networks_then() {
    let (cloud, target) = Cloud::listens().await;
    let mut client = client(target);
    client.watch_networks();
    for _ in 0..2 {
        drop(cloud.accepts().await);
    }
    names_networks(&cloud, &[NEXT]).await;
    serves_other_network(&client, true).await;
}

fn failures(client: &CloudClient) -> u64 {
    client.counts().failed.values().sum()
}

#[tokio::test]
async fn a_cloud_that_is_not_there_is_unreachable() {
    let (cloud, target) = Cloud::listens().await;
    drop(cloud);
    let mut client = client(target);
    client.ask(question(1), Instant::now()).unwrap();
    assert_eq!(client.next().await.result, Err(Degraded::CloudUnreachable));
}

#[tokio::test]
async fn a_connection_that_breaks_before_the_answer_is_unreachable() {
    let (cloud, target) = Cloud::listens().await;
    let mut client = client(target);
    client.ask(question(1), Instant::now()).unwrap();
    let cloud_side = async {
        let mut socket = cloud.accepts().await;
        request(&mut socket).await;
    };
    let (reply, ()) = tokio::join!(client.next(), cloud_side);
    assert_eq!(reply.result, Err(Degraded::CloudUnreachable));
}

#[tokio::test]
async fn statuses_other_than_200_are_refusals_and_504_is_a_timeout() {
    let (mut cloud, target) = Cloud::listens().await;
    let mut client = client(target);
    // After 429 the client sends no request for a while.
    for (status, reason) in
        [(500, Degraded::CloudRefused), (504, Degraded::CloudTimeout), (429, Degraded::CloudRefused)]
    {
        let reply = cloud.answers_to(&mut client, question(1), async |socket| {
            request(socket).await;
            let text = format!("HTTP/1.1 {status} No\r\ncontent-length: 0\r\n\r\n");
            socket.write_all(text.as_bytes()).await.unwrap();
        });
        assert_eq!(reply.await.result, Err(reason), "{status}");
    }
}

#[tokio::test]
async fn an_answer_of_another_network_or_shape_is_a_refusal() {
    let (mut cloud, target) = Cloud::listens().await;
    let mut client = client(target);
    for (network, logits) in [(NetworkId([6; 32]), &[1.0, 2.0, 3.0][..]), (NETWORK, &[1.0, 2.0])] {
        let reply = cloud.answers_to(&mut client, question(1), async |socket| {
            request(socket).await;
            answers(socket, network, logits).await;
        });
        assert_eq!(reply.await.result, Err(Degraded::CloudRefused));
    }
}

#[tokio::test]
async fn after_five_failures_in_a_row_nobody_is_asked() {
    let (cloud, target) = Cloud::listens().await;
    drop(cloud);
    let wait = 600_000;
    let breaker = BreakerConfig { first_wait_ms: wait, max_wait_ms: wait, ..default_config().breaker };
    let mut client = client_with(target, &CloudConfig { breaker, ..default_config() });
    for _ in 0..5 {
        client.ask(question(1), Instant::now()).unwrap();
        assert_eq!(client.next().await.result, Err(Degraded::CloudUnreachable));
    }
    assert_eq!(client.ask(question(1), Instant::now()), Err(Degraded::CloudBreakerOpen));
    let counts = client.counts();
    assert_eq!((counts.asked, client.model.unwrap().connection.breaker.lock().opened), (5, 1));
    let failed = BTreeMap::from([(Degraded::CloudUnreachable, 5), (Degraded::CloudBreakerOpen, 1)]);
    assert_eq!(counts.failed, failed);
}

#[tokio::test]
async fn a_group_that_ends_during_its_probe_leaves_the_probe_to_others() {
    let (cloud, target) = Cloud::listens().await;
    let breaker = BreakerConfig { failures: 1, first_wait_ms: 1, max_wait_ms: 1 };
    let [mut first, mut second] = two_clients(target, &CloudConfig { breaker, ..default_config() });
    first.ask(question(1), Instant::now()).unwrap();
    drop(cloud.accepts().await);
    assert_eq!(first.next().await.result, Err(Degraded::CloudUnreachable));
    let later = Instant::now() + Duration::from_millis(1);
    first.ask(question(2), later).unwrap();
    assert_eq!(second.ask(question(2), later), Err(Degraded::CloudBreakerOpen), "one probe at a time");
    drop(first);
    let admitted = async {
        while second.ask(question(3), Instant::now()).is_err() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, admitted).await.expect("the next request is the probe");
}

#[tokio::test]
async fn what_the_cloud_says_of_one_group_stops_no_other() {
    for (status, field) in [(404, ""), (401, ""), (429, "retry-after: 60\r\n")] {
        let (cloud, target) = Cloud::listens().await;
        let [mut first, mut second] = two_clients(target, &default_config());
        for _ in 0..10 {
            if first.ask(question(1), Instant::now()).is_err() {
                break;
            }
            let mut socket = cloud.accepts().await;
            request(&mut socket).await;
            let text =
                format!("HTTP/1.1 {status} No\r\nconnection: close\r\n{field}content-length: 0\r\n\r\n");
            socket.write_all(text.as_bytes()).await.unwrap();
            assert_eq!(first.next().await.result, Err(Degraded::CloudRefused));
        }
        let is_paused = first.ask(question(2), Instant::now()) == Err(Degraded::CloudRefused);
        assert_eq!(is_paused, status == 429, "{status}");
        assert_eq!(second.ask(question(1), Instant::now()), Ok(()), "{status}");
    }
}

#[tokio::test]
async fn questions_without_time_open_no_breaker() {
    let (_cloud, target) = Cloud::listens().await;
    let mut client = client_with(target, &CloudConfig { max_requests: 1, linger_ms: 0, ..default_config() });
    for sample in 0..20 {
        client.ask(CloudQuestion { deadline_ms: 1, ..question(sample) }, Instant::now()).unwrap();
        assert_eq!(client.next().await.result, Err(Degraded::CloudTimeout));
    }
}

#[tokio::test]
async fn an_answer_to_another_request_or_of_another_model_is_a_refusal() {
    let (mut cloud, target) = Cloud::listens().await;
    let mut client = client(target);
    for (id, model, is_ours) in
        [(Some("1"), "m", true), (None, "m", true), (Some("2"), "m", false), (Some("1"), "n", false)]
    {
        let reply = cloud.answers_to(&mut client, question(1), async |socket| {
            request(socket).await;
            let (id, model_name) = (id.map(str::to_owned), model.to_owned());
            answers_as(socket, InferResponse { id, model_name, ..response(NETWORK, &[1.0, 2.0, 3.0]) }).await;
        });
        assert_eq!(reply.await.result.is_ok(), is_ours, "{id:?} {model}");
    }
    assert_eq!(client.counts().refused["of_another_request"], 2);
}

#[tokio::test]
async fn without_a_cloud_every_question_fails_at_once() {
    let mut client = CloudClient::new(None, Arc::default());
    assert_eq!(client.ask(question(1), Instant::now()), Err(Degraded::CloudUnreachable));
    assert_eq!(client.counts().failed, BTreeMap::from([(Degraded::CloudUnreachable, 1)]));
}

#[test]
fn an_address_that_cannot_work_is_refused() {
    for bad in ["", "localhost:80", "ftp://cloud", "http://cloud/path", "http://"] {
        assert!(endpoint(bad, "m").is_err(), "{bad}");
    }
    assert_eq!(endpoint("http://cloud:8600/", "m").unwrap(), "http://cloud:8600/v2/models/m/infer");
}
