use std::sync::Arc;

use headwater_link::{Endpoint, Incoming, LinkConfig};
use headwater_protocol::testing::decision;
use headwater_protocol::{GroupId, ResultMessage, SiteId};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::*;
use crate::report::LeaderReport;

/// Limit of every wait; long enough for a busy machine.
const LIMIT: Duration = Duration::from_secs(30);

/// CONNACK of MQTT 5: accepted, no properties.
const CONNACK: [u8; 5] = [0x20, 3, 0, 0, 0];

/// First byte and body of the next packet.
async fn packet(stream: &mut TcpStream) -> (u8, Vec<u8>) {
    let kind = stream.read_u8().await.unwrap();
    let (mut length, mut shift) = (0, 0);
    loop {
        let byte = stream.read_u8().await.unwrap();
        length |= usize::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            break;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    (kind, body)
}

/// Answers the next message at `QoS` 1 with this reason code.
async fn answers(stream: &mut TcpStream, code: u8) {
    let id = published(stream).await;
    stream.write_all(&[0x40, 3, id[0], id[1], code]).await.unwrap();
}

/// Packet id of the next message at `QoS` 1.
async fn published(stream: &mut TcpStream) -> [u8; 2] {
    loop {
        let (kind, body) = timeout(LIMIT, packet(stream)).await.expect("a message");
        if kind >> 4 == 3 && kind & 0b110 != 0 {
            let topic = usize::from(u16::from_be_bytes([body[0], body[1]]));
            return [body[2 + topic], body[3 + topic]];
        }
    }
}

/// A broker that accepts connections and acknowledges the messages that the test chooses.
struct Broker {
    listener: TcpListener,
    outbox: Outbox,
    report: Arc<Mutex<LeaderReport>>,
    incoming: mpsc::Receiver<Incoming>,
}

impl Broker {
    async fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let config = LinkConfig::new(Endpoint::mqtt("127.0.0.1", port).unwrap(), "outbox");
        let (link, incoming) = Link::start(config).unwrap();
        let topics = Topics::new(&SiteId::new("plant").unwrap(), &GroupId::new("gate").unwrap());
        let report = Arc::default();
        let answers = BrokerAnswers::new(&topics, Arc::clone(&report));
        Self { listener, outbox: Outbox::new(link, &topics, QoS::AtMostOnce, answers), report, incoming }
    }

    /// Accepts the next connection and opens the outbox.
    async fn accept(&mut self) -> TcpStream {
        let (mut stream, _) = timeout(LIMIT, self.listener.accept()).await.expect("a connection").unwrap();
        packet(&mut stream).await;
        stream.write_all(&CONNACK).await.unwrap();
        while timeout(LIMIT, self.incoming.recv()).await.expect("an event") != Some(Incoming::Connected) {}
        self.outbox.open(Instant::now());
        stream
    }

    fn sends(&mut self, samples: &[u64]) {
        samples.iter().for_each(|sample| self.outbox.result(&decision(*sample), Instant::now()));
    }

    /// Waits for the end of the connection, and closes the outbox.
    async fn loses_connection(&mut self) {
        let is_end = |event: &Option<Incoming>| matches!(event, Some(Incoming::Disconnected { .. }));
        while !is_end(&timeout(LIMIT, self.incoming.recv()).await.expect("an end")) {}
        self.outbox.close(Instant::now(), false);
    }

    /// Waits until `is_done` holds, while the outbox publishes what it can.
    async fn wait_until(&mut self, is_done: impl Fn(&Outbox) -> bool) {
        let wait = async {
            while !is_done(&self.outbox) {
                self.outbox.flush(Instant::now());
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(LIMIT, wait).await.expect("an acknowledgement");
    }

    /// The samples whose results were refused since the last call.
    fn refused(&mut self) -> Vec<u64> {
        self.outbox.refused.drain(..).map(|sample| sample.0).collect()
    }

    fn waiting(&self) -> Vec<u64> {
        self.outbox.waiting.iter().map(|message| message.sample.0).collect()
    }
}

#[tokio::test]
async fn only_results_without_an_acknowledgement_go_out_again_and_they_are_marked() {
    let mut broker = Broker::start().await;
    let mut stream = broker.accept().await;
    broker.sends(&[1, 2]);
    assert_eq!(broker.outbox.unacknowledged(), 2);
    answers(&mut stream, 0).await;
    broker.wait_until(|outbox| outbox.unacknowledged() == 1).await;
    drop(stream);
    broker.loses_connection().await;
    let waiting: Vec<serde_json::Value> = broker
        .outbox
        .waiting
        .iter()
        .map(|message| serde_json::from_slice(&message.payload).unwrap())
        .collect();
    let mut expected = serde_json::to_value(decision(2)).unwrap();
    expected["republished"] = true.into();
    assert_eq!(waiting, [expected]);
    broker.outbox.result(&decision(3), Instant::now());
    assert_eq!(
        (broker.outbox.waiting.len(), broker.report.lock().republished),
        (2, 0),
        "without a connection"
    );
    let _stream = broker.accept().await;
    assert_eq!((broker.outbox.waiting.len(), broker.report.lock().republished), (0, 1));
    assert_eq!(broker.outbox.unacknowledged(), 2);
}

#[tokio::test]
async fn a_refused_result_does_not_go_out_again_and_its_sample_is_told() {
    let mut broker = Broker::start().await;
    let mut stream = broker.accept().await;
    broker.sends(&[1, 2, 3]);
    // Packet too large: a code that MQTT 5 does not list for PUBACK.
    answers(&mut stream, 0x95).await;
    broker.wait_until(|outbox| outbox.unacknowledged() == 2).await;
    assert_eq!(broker.refused(), [1]);
    // The next refusal comes together with the end of the connection.
    answers(&mut stream, 0x97).await;
    published(&mut stream).await;
    drop(stream);
    broker.loses_connection().await;
    assert_eq!((broker.refused(), broker.waiting()), (vec![2], vec![3]));
    assert!(broker.refused().is_empty(), "each is told once");
    assert_eq!(broker.report.lock().results_unsent, 2);
}

#[tokio::test]
async fn a_result_that_ends_connections_is_found_and_given_up_and_the_others_go() {
    let mut broker = Broker::start().await;
    let mut stream = broker.accept().await;
    broker.sends(&[1, 2, 3]);
    assert_eq!(broker.outbox.unacknowledged(), 3);
    // The connection stands; the outbox is told that the broker has ended it because of a message.
    broker.outbox.close(Instant::now(), true);
    assert_eq!(broker.waiting(), [1, 2, 3]);
    for ended in 1..=2 {
        broker.outbox.open(Instant::now());
        assert_eq!((broker.outbox.unacknowledged(), broker.waiting()), (1, vec![2, 3]), "one at a time");
        broker.outbox.close(Instant::now(), true);
        let refused = if ended == 2 { vec![1] } else { Vec::new() };
        assert_eq!(broker.refused(), refused);
    }
    for _ in 0..5 {
        published(&mut stream).await;
    }
    broker.outbox.open(Instant::now());
    answers(&mut stream, 0).await;
    broker.wait_until(|outbox| outbox.waiting.is_empty()).await;
    answers(&mut stream, 0).await;
    broker.wait_until(|outbox| outbox.unacknowledged() == 0).await;
    broker.outbox.flush(Instant::now());
    broker.sends(&[4, 5]);
    assert_eq!(broker.outbox.unacknowledged(), 2, "the faulty one has gone");
}

#[tokio::test]
async fn no_result_is_given_up_for_another_message_that_ends_connections() {
    let mut broker = Broker::start().await;
    let mut stream = broker.accept().await;
    let notice = SettledNotice::default();
    for sample in 1..=4 {
        broker.outbox.result(&decision(sample), Instant::now());
        assert!(broker.outbox.settled(&notice));
        // The connection stands; the outbox is told that the broker has ended it because of a message.
        broker.outbox.close(Instant::now(), true);
        broker.outbox.open(Instant::now());
        assert!(!broker.outbox.settled(&notice), "the result goes alone");
        published(&mut stream).await;
        answers(&mut stream, 0).await;
        broker.wait_until(|outbox| outbox.unacknowledged() == 0).await;
    }
    assert_eq!((broker.refused(), broker.waiting()), (vec![], vec![]));
}

#[tokio::test]
async fn a_result_goes_alone_only_after_the_answer_to_the_claim() {
    let mut broker = Broker::start().await;
    let mut stream = broker.accept().await;
    broker.outbox.result(&decision(1), Instant::now());
    published(&mut stream).await;
    broker.outbox.close(Instant::now(), true);
    broker.outbox.claim(b"claim".to_vec());
    broker.outbox.open(Instant::now());
    assert_eq!(broker.waiting(), [1]);
    answers(&mut stream, 0).await;
    broker.wait_until(|outbox| outbox.unacknowledged() == 1).await;
}

#[tokio::test]
async fn other_messages_wait_for_a_result_that_goes_alone_for_a_while_only() {
    let mut broker = Broker::start().await;
    let _stream = broker.accept().await;
    broker.outbox.result(&decision(1), Instant::now());
    broker.outbox.close(Instant::now(), true);
    let opened = Instant::now();
    broker.outbox.open(opened);
    // The broker never answers.
    for (after, are_published) in [(ALONE_LIMIT / 2, false), (ALONE_LIMIT, true)] {
        broker.outbox.flush(opened + after);
        assert_eq!(broker.outbox.settled(&SettledNotice::default()), are_published, "after {after:?}");
    }
}

#[test]
fn a_repeat_is_the_same_decision_with_a_mark() {
    let marked = QueuedResult::new(&decision(1)).marked();
    let again = marked.clone().marked();
    assert_eq!(again.payload, marked.payload, "it is marked once");
    let object: serde_json::Value = serde_json::from_slice(&marked.payload).unwrap();
    assert_eq!(object["republished"], true);
    let read: Decision = serde_json::from_slice(&marked.payload).unwrap();
    assert_eq!(read, decision(1), "a reader that does not know the mark ignores it");
    let read: ResultMessage = serde_json::from_slice(&marked.payload).unwrap();
    assert_eq!(read, ResultMessage { decision: decision(1), republished: true });
}
