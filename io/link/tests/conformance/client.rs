//! A client that sends any packets and bytes, also those that a well-behaved client never sends.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use bytes::BytesMut;
use headwater_transport::Endpoint;
use rumqttc::mqttbytes::check;
use rumqttc::{
    ConnAck, Connect, ConnectAuth, ConnectProperties, ConnectReturnCode, Disconnect, DisconnectReasonCode,
    LastWill, Packet, PubAck, PubAckReason, Publish, PublishProperties, QoS, Subscribe, SubscribeFilter,
    SubscribeReasonCode,
};

/// Longest wait for a packet; only a failing test waits so long.
const WAIT_LIMIT: Duration = Duration::from_secs(20);

/// Address of a running broker.
#[derive(Clone, Debug)]
pub(crate) enum Address {
    Tcp(Endpoint),
    /// Mosquitto listens on a Unix socket, so that the test need not choose a port.
    File(PathBuf),
}

/// A broker, and the number of one scenario. Client ids and topics begin with the number, so that scenarios may run side by side.
#[derive(Clone, Debug)]
pub(crate) struct Bench {
    pub(crate) address: Address,
    pub(crate) scenario: usize,
}

/// CONNECT packet and last will of a client.
#[derive(Clone, Debug)]
pub(crate) struct Hello {
    pub(crate) connect: Connect,
    pub(crate) will: Option<LastWill>,
}

pub(crate) struct Client {
    stream: Box<dyn Stream>,
    input: BytesMut,
    last_id: u16,
}

trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

impl Bench {
    /// Returns true for Mosquitto, which behaves differently in some scenarios.
    pub(crate) fn is_mosquitto(&self) -> bool {
        matches!(self.address, Address::File(_))
    }

    pub(crate) fn topic(&self, name: &str) -> String {
        format!("{}/{name}", self.scenario)
    }

    /// The CONNECT packet of a client of this scenario.
    pub(crate) fn hello(&self, client: &str) -> Hello {
        let client_id = format!("{}-{client}", self.scenario);
        let properties = Some(ConnectProperties::new());
        Hello { connect: Connect { keep_alive: 60, client_id, clean_start: true, properties }, will: None }
    }

    /// Opens a connection and sends nothing.
    pub(crate) fn open(&self) -> Client {
        let stream: Box<dyn Stream> = match &self.address {
            Address::Tcp(endpoint) => {
                let stream =
                    TcpStream::connect((endpoint.host(), endpoint.port())).expect("the broker listens");
                stream.set_read_timeout(Some(WAIT_LIMIT)).expect("a limit above 0");
                Box::new(stream)
            }
            Address::File(path) => {
                let stream = UnixStream::connect(path).expect("the broker listens");
                stream.set_read_timeout(Some(WAIT_LIMIT)).expect("a limit above 0");
                Box::new(stream)
            }
        };
        Client { stream, input: BytesMut::new(), last_id: 0 }
    }

    /// Connects, and returns the client with the broker's CONNACK.
    pub(crate) fn introduce(&self, hello: Hello) -> (Client, ConnAck) {
        let mut client = self.open();
        client.send(&Packet::Connect(hello.connect, hello.will, ConnectAuth::None));
        match client.next() {
            Packet::ConnAck(ack) => (client, ack),
            other => panic!("expected CONNACK, found {other:?}"),
        }
    }

    /// Connects, and expects that the broker accepts the client.
    pub(crate) fn connect(&self, hello: Hello) -> Client {
        let (client, ack) = self.introduce(hello);
        assert_eq!(ack.code, ConnectReturnCode::Success);
        client
    }

    /// A client whose session ends with its connection.
    pub(crate) fn client(&self, name: &str) -> Client {
        self.connect(self.hello(name))
    }

    /// A client with one subscription at `QoS` 1.
    pub(crate) fn reader(&self, name: &str, filter: &str) -> Client {
        let mut client = self.client(name);
        client.subscribe(SubscribeFilter::new(self.topic(filter), QoS::AtLeastOnce));
        client
    }
}

impl Hello {
    pub(crate) fn change(mut self, change: impl FnOnce(&mut ConnectProperties)) -> Self {
        change(self.connect.properties.get_or_insert_default());
        self
    }

    /// Asks for a session that outlives its connection by `expiry_s` seconds; with `clean_start` for a new session.
    pub(crate) fn session(mut self, clean_start: bool, expiry_s: u32) -> Self {
        self.connect.clean_start = clean_start;
        self.change(|properties| properties.session_expiry_interval = Some(expiry_s))
    }

    pub(crate) fn will(self, will: LastWill) -> Self {
        Self { will: Some(will), ..self }
    }
}

impl Client {
    pub(crate) fn send(&mut self, packet: &Packet) {
        let mut bytes = BytesMut::new();
        packet.write(&mut bytes, None).expect("a packet that can be written");
        self.send_bytes(&bytes);
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the connection is open");
    }

    pub(crate) fn next(&mut self) -> Packet {
        self.try_next().expect("a packet").expect("the connection is open")
    }

    /// The end of the connection: the reason that the broker gives, or `None` if the broker only closes the socket.
    pub(crate) fn end(mut self) -> Option<DisconnectReasonCode> {
        let mut reason = None;
        loop {
            match self.try_next() {
                Ok(Some(Packet::Disconnect(packet))) => reason = Some(packet.reason_code),
                Ok(Some(_)) => {}
                Ok(None) => return reason,
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return reason,
                Err(error) => panic!("expected the end of the connection: {error}"),
            }
        }
    }

    /// The bytes up to the end of the connection.
    pub(crate) fn rest(mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self.stream.read_to_end(&mut bytes) {
            Err(error) if error.kind() != io::ErrorKind::ConnectionReset => {
                panic!("expected the end: {error}")
            }
            _ => bytes,
        }
    }

    /// Closes the connection as a crash does.
    pub(crate) fn crash(self) {}

    /// All packets that the broker has sent so far. The broker may write the answer to a ping before a message that is waiting, so the
    /// client pings twice.
    pub(crate) fn arrived(&mut self) -> Vec<Packet> {
        let mut packets = Vec::new();
        for _ in 0..2 {
            self.send(&Packet::PingReq);
            loop {
                match self.next() {
                    Packet::PingResp => break,
                    packet => packets.push(packet),
                }
            }
        }
        packets
    }

    /// Payloads of the messages among [`Client::arrived`].
    pub(crate) fn payloads(&mut self) -> Vec<String> {
        let arrived = self.arrived();
        arrived.iter().filter_map(payload).collect()
    }

    pub(crate) fn message(&mut self) -> Publish {
        loop {
            if let Packet::Publish(publish) = self.next() {
                return publish;
            }
        }
    }

    /// The next and only message is `long`, whose expiry of 100 seconds was counted down.
    #[track_caller]
    pub(crate) fn has_only_the_long_message(&mut self) {
        let found = self.message();
        assert_eq!(found.payload, "long");
        let rest_s = found.properties.and_then(|properties| properties.message_expiry_interval);
        assert!(rest_s.is_some_and(|rest_s| (1..100).contains(&rest_s)), "{rest_s:?}");
        assert!(self.arrived().is_empty());
    }

    pub(crate) fn subscribe(&mut self, filter: SubscribeFilter) -> SubscribeReasonCode {
        self.last_id += 1;
        self.send(&Packet::Subscribe(Subscribe { pkid: self.last_id, ..Subscribe::new(filter, None) }));
        match self.next() {
            Packet::SubAck(ack) => ack.return_codes[0],
            other => panic!("expected SUBACK, found {other:?}"),
        }
    }

    /// Publishes, and waits until the broker has handled the message.
    pub(crate) fn publish(&mut self, topic: &str, qos: QoS, payload: &str) -> Option<PubAckReason> {
        self.publish_with(Publish::new(topic, qos, payload.to_owned(), None))
    }

    /// Publishes, and waits until the broker has handled the message.
    pub(crate) fn publish_with(&mut self, mut publish: Publish) -> Option<PubAckReason> {
        let is_answered = publish.qos != QoS::AtMostOnce;
        if is_answered {
            self.last_id += 1;
            publish.pkid = self.last_id;
        }
        self.send(&Packet::Publish(publish));
        if !is_answered {
            assert!(self.arrived().is_empty(), "only an answer to the ping");
            return None;
        }
        match self.next() {
            Packet::PubAck(ack) => Some(ack.reason),
            other => panic!("expected PUBACK, found {other:?}"),
        }
    }

    pub(crate) fn acknowledge(&mut self, packet_id: u16) {
        self.send(&Packet::PubAck(PubAck::new(packet_id, None)));
    }

    pub(crate) fn disconnect(mut self, reason: DisconnectReasonCode) {
        self.send(&Packet::Disconnect(Disconnect::new(reason)));
        assert_eq!(self.end(), None);
    }

    fn try_next(&mut self) -> io::Result<Option<Packet>> {
        loop {
            match check(self.input.iter(), None) {
                // Mosquitto sends the reason alone, which the codec does not read.
                Ok(_) if self.input[..2] == [0xe0, 1] => {
                    let reason =
                        DisconnectReasonCode::try_from(self.input.split_to(3)[2]).expect("a known reason");
                    return Ok(Some(Packet::Disconnect(Disconnect::new(reason))));
                }
                Ok(_) => return Ok(Some(Packet::read(&mut self.input, None).expect("a well-formed packet"))),
                Err(_) => {}
            }
            let mut bytes = [0; 4096];
            let read = self.stream.read(&mut bytes)?;
            self.input.extend_from_slice(&bytes[..read]);
            if read == 0 {
                return Ok(None);
            }
        }
    }
}

/// The expected reason of an end that no packet of the client caused; `None` for Mosquitto 2.0.11, which only closes the
/// connection.
pub(crate) fn said(bench: &Bench, reason: DisconnectReasonCode) -> Option<DisconnectReasonCode> {
    (!bench.is_mosquitto()).then_some(reason)
}

pub(crate) fn message(topic: String, payload: &str, properties: PublishProperties) -> Publish {
    Publish::new(topic, QoS::AtLeastOnce, payload.to_owned(), Some(properties))
}

fn payload(packet: &Packet) -> Option<String> {
    match packet {
        Packet::Publish(publish) => Some(String::from_utf8_lossy(&publish.payload).into_owned()),
        _ => None,
    }
}
