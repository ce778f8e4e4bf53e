//! The MQTT protocol for all connections, without sockets: bytes and the time go in, bytes come out.

use std::collections::HashMap;

use bytes::{Bytes, BytesMut};
use rumqttc::{
    Connect, ConnectProperties, ConnectReturnCode, Disconnect, DisconnectReasonCode as Reason, LastWill,
    Packet, PubAck, Publish, QoS, SubAck, Subscribe, SubscribeReasonCode, UnsubAck, UnsubAckReason,
    Unsubscribe,
};

use super::message::{SessionId, of_will};
use super::outgoing::Limits;
use super::packets::{self, End, MAX_ALIAS};
use super::sessions::{ConnectionId, Session, Sessions};

/// Most connections.
const MAX_CONNECTIONS: usize = 1024;
/// Longest wait for the CONNECT of a new connection.
const CONNECT_LIMIT_MS: u64 = 5000;
/// Bytes that wait for one socket before messages stay in their queue and the broker stops reading the client.
pub(super) const OUTPUT_BYTES: usize = 64 * 1024;

/// All connections of the broker.
#[derive(Debug, Default)]
pub(super) struct Connections {
    connections: HashMap<ConnectionId, Connection>,
    pub(super) sessions: Sessions,
    last_id: ConnectionId,
}

/// Outcome of a packet: the connection goes on or ends.
type Step = Result<(), End>;

#[derive(Debug, Default)]
struct Connection {
    stage: Stage,
    heard_ms: u64,
    silence_limit_ms: u64,
    limits: Limits,
    aliases: HashMap<u16, Bytes>,
    /// Packets that are not messages; these are written before any message.
    answers: BytesMut,
}

#[derive(Clone, Copy, Debug, Default)]
enum Stage {
    /// No CONNECT yet.
    #[default]
    New,
    Open(SessionId),
    /// The socket closes once the last packet is written.
    Ended,
}

impl Connections {
    /// Opens a connection; `None` if `MAX_CONNECTIONS` are open.
    pub(super) fn open(&mut self, now_ms: u64) -> Option<ConnectionId> {
        if self.connections.len() >= MAX_CONNECTIONS {
            return None;
        }
        self.last_id += 1;
        let (heard_ms, silence_limit_ms) = (now_ms, CONNECT_LIMIT_MS);
        let connection = Connection { heard_ms, silence_limit_ms, ..Connection::default() };
        self.connections.insert(self.last_id, connection);
        Some(self.last_id)
    }

    /// Handles each packet in `input` that has arrived whole.
    pub(super) fn receive(&mut self, id: ConnectionId, input: &mut BytesMut, now_ms: u64) {
        while let Some(connection) = self.connections.get_mut(&id) {
            let stage = connection.stage;
            // The broker stops reading a client that does not read the broker's answers.
            if matches!(stage, Stage::Ended) || connection.answers.len() > OUTPUT_BYTES {
                return;
            }
            let taken = match packets::next(input, matches!(stage, Stage::New)) {
                Ok(None) => return,
                Ok(Some(packet)) => {
                    connection.heard_ms = now_ms;
                    self.take(id, stage, packet, now_ms)
                }
                Err(end) => Err(end),
            };
            if let Err(end) = taken {
                self.end(id, end, now_ms);
            }
        }
    }

    /// Moves bytes for the socket to `output`. Returns false if the connection ends after these bytes.
    pub(super) fn write(&mut self, id: ConnectionId, output: &mut BytesMut, now_ms: u64) -> bool {
        let Some(connection) = self.connections.get_mut(&id) else { return false };
        output.unsplit(connection.answers.split());
        if let Stage::Open(session) = connection.stage {
            while output.len() < OUTPUT_BYTES
                && let Some(packet) = self.sessions.next_packet(session, connection.limits, now_ms)
            {
                let written = packet.write(output);
                debug_assert!(written.is_ok(), "the codec has read the same packet: {written:?}");
            }
        }
        !matches!(connection.stage, Stage::Ended)
    }

    /// Forgets a connection whose socket is closed.
    pub(super) fn close(&mut self, id: ConnectionId, now_ms: u64) {
        self.end(id, End::Silent, now_ms);
        self.connections.remove(&id);
    }

    /// Ends the connections of silent clients, publishes last wills that are due, and drops what has expired.
    pub(super) fn tick(&mut self, now_ms: u64) {
        let is_silent = |of: &Connection| now_ms - of.heard_ms > of.silence_limit_ms;
        let silent = self.connections.iter().filter(|(_, of)| is_silent(of)).map(|(id, _)| *id);
        for id in silent.collect::<Vec<_>>() {
            self.end(id, End::Disconnected(Reason::KeepAliveTimeout), now_ms);
        }
        self.sessions.tick(now_ms);
    }

    /// Ends every connection.
    pub(super) fn shut_down(&mut self, now_ms: u64) {
        for id in self.connections.keys().copied().collect::<Vec<_>>() {
            self.end(id, End::Disconnected(Reason::ServerShuttingDown), now_ms);
        }
    }

    fn end(&mut self, id: ConnectionId, end: End, now_ms: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        self.sessions.woken.insert(id);
        match (std::mem::replace(&mut connection.stage, Stage::Ended), end) {
            (Stage::Ended, _) | (Stage::New, End::Disconnected(_)) => {}
            (Stage::New, _) => packets::write_end(end, &mut connection.answers),
            (Stage::Open(session), _) => {
                packets::write_end(end, &mut connection.answers);
                self.sessions.detach(session, end == End::Left, now_ms);
            }
        }
    }

    fn take(&mut self, id: ConnectionId, stage: Stage, packet: Packet, now_ms: u64) -> Step {
        match (stage, packet) {
            (Stage::New, Packet::Connect(connect, will, _)) => self.accept(id, connect, will, now_ms),
            (Stage::Open(session), Packet::Publish(packet)) => self.publish(id, session, packet, now_ms),
            (Stage::Open(session), Packet::PubAck(packet)) => {
                self.sessions.acknowledge(session, packet.pkid);
                Ok(())
            }
            (Stage::Open(session), Packet::Subscribe(packet)) => self.subscribe(id, session, &packet, now_ms),
            (Stage::Open(session), Packet::Unsubscribe(packet)) => self.unsubscribe(id, session, &packet),
            (Stage::Open(_), Packet::PingReq) => self.answer(id, &Packet::PingResp),
            (Stage::Open(session), Packet::Disconnect(packet)) => Err(self.leave(session, &packet)),
            _ => Err(End::Disconnected(Reason::ProtocolError)),
        }
    }

    fn accept(&mut self, id: ConnectionId, connect: Connect, will: Option<LastWill>, now_ms: u64) -> Step {
        let asked = connect.properties.unwrap_or_default();
        check_connect(&asked, will.as_ref())?;
        let assigned = connect.client_id.is_empty().then(|| format!("assigned-by-broker-{id}"));
        let client_id = assigned.clone().unwrap_or(connect.client_id);
        if let Some(other) = self.sessions.connection_of(&client_id) {
            self.end(other, End::Disconnected(Reason::SessionTakenOver), now_ms);
        }
        let delay_s = will.as_ref().and_then(|will| will.properties.as_ref()?.delay_interval).unwrap_or(0);
        let session = Session {
            client_id,
            connection: Some(id),
            will: will.map(|will| (of_will(will), delay_s)),
            expiry_s: asked.session_expiry_interval.unwrap_or(0),
            ..Session::default()
        };
        let attached = self.sessions.attach(session, connect.clean_start, now_ms);
        let (session, is_present) = attached.ok_or(End::Refused(ConnectReturnCode::QuotaExceeded))?;
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.stage = Stage::Open(session);
            // MQTT allows a silence of one and a half times the keep-alive; a keep-alive of 0 allows any silence.
            let silence_limit_ms = u64::from(connect.keep_alive) * 1500;
            connection.silence_limit_ms = if silence_limit_ms == 0 { u64::MAX } else { silence_limit_ms };
            connection.limits.max_packet_bytes = asked.max_packet_size.unwrap_or(u32::MAX);
            connection.limits.max_unacknowledged = asked.receive_maximum.unwrap_or(u16::MAX);
        }
        self.answer(id, &packets::accepted(is_present, assigned))
    }

    fn publish(&mut self, id: ConnectionId, session: SessionId, mut packet: Publish, now_ms: u64) -> Step {
        if packet.qos == QoS::ExactlyOnce {
            return Err(End::Disconnected(Reason::QoSNotSupported));
        }
        let mut alias = None;
        if let Some(properties) = &mut packet.properties {
            alias = properties.topic_alias.take();
            if !properties.subscription_identifiers.is_empty()
                || properties.payload_format_indicator > Some(1)
            {
                return Err(End::Disconnected(Reason::ProtocolError));
            }
        }
        let Some(connection) = self.connections.get_mut(&id) else { return Ok(()) };
        packet.topic = resolve(&mut connection.aliases, packet.topic, alias).map_err(End::Disconnected)?;
        let (qos, pkid) = (packet.qos, packet.pkid);
        let reason = self.sessions.publish(packet, session, now_ms);
        if qos == QoS::AtMostOnce {
            return Ok(());
        }
        self.answer(id, &Packet::PubAck(PubAck { pkid, reason, properties: None }))
    }

    fn subscribe(&mut self, id: ConnectionId, session: SessionId, packet: &Subscribe, now_ms: u64) -> Step {
        let has_identifier = packet.properties.as_ref().is_some_and(|properties| properties.id.is_some());
        let answers = packet.filters.iter().map(|filter| match has_identifier {
            true => SubscribeReasonCode::SubscriptionIdNotSupported,
            false => self.sessions.subscribe(session, filter, now_ms),
        });
        let return_codes = answers.collect();
        self.answer(id, &Packet::SubAck(SubAck { pkid: packet.pkid, return_codes, properties: None }))
    }

    fn unsubscribe(&mut self, id: ConnectionId, session: SessionId, packet: &Unsubscribe) -> Step {
        if packet.filters.is_empty() {
            return Err(End::Disconnected(Reason::ProtocolError));
        }
        let subscriptions = &mut self.sessions.subscriptions;
        let answers = packet.filters.iter().map(|filter| match subscriptions.remove(session, filter) {
            true => UnsubAckReason::Success,
            false => UnsubAckReason::NoSubscriptionExisted,
        });
        let reasons = answers.collect();
        self.answer(id, &Packet::UnsubAck(UnsubAck { pkid: packet.pkid, reasons, properties: None }))
    }

    /// Handles a DISCONNECT of the client. The normal reason gives `End::Left`, without the last will; any other reason gives
    /// `End::Silent`, with the last will. A change of the session's expiry that MQTT forbids is a protocol error.
    fn leave(&mut self, session: SessionId, packet: &Disconnect) -> End {
        let expiry_s = packet.properties.as_ref().and_then(|properties| properties.session_expiry_interval);
        match expiry_s.is_none_or(|expiry_s| self.sessions.set_expiry(session, expiry_s)) {
            false => End::Disconnected(Reason::ProtocolError),
            true if packet.reason_code == Reason::NormalDisconnection => End::Left,
            true => End::Silent,
        }
    }

    fn answer(&mut self, id: ConnectionId, packet: &Packet) -> Step {
        let Some(connection) = self.connections.get_mut(&id) else { return Ok(()) };
        // The connection ends if the answer is larger than the client's packet limit.
        let written = packet.write(&mut connection.answers, Some(connection.limits.max_packet_bytes));
        written.map_or(Err(End::Disconnected(Reason::PacketTooLarge)), |_| Ok(()))
    }
}

fn check_connect(asked: &ConnectProperties, will: Option<&LastWill>) -> Step {
    let is_topic = |topic: &[u8]| !topic.is_empty() && !topic.iter().any(|byte| b"+#".contains(byte));
    let is_broken = asked.authentication_data.is_some() || asked.max_packet_size == Some(0);
    let refusals = [
        (asked.authentication_method.is_some(), ConnectReturnCode::BadAuthenticationMethod),
        (is_broken, ConnectReturnCode::ProtocolError),
        (will.is_some_and(|will| will.qos == QoS::ExactlyOnce), ConnectReturnCode::QoSNotSupported),
        (will.is_some_and(|will| !is_topic(&will.topic)), ConnectReturnCode::TopicNameInvalid),
    ];
    let refusal = refusals.into_iter().find(|(applies, _)| *applies);
    refusal.map_or(Ok(()), |(_, code)| Err(End::Refused(code)))
}

/// Returns the full topic of a message. A topic with an alias is remembered for the connection; later the alias alone stands for the topic.
fn resolve(aliases: &mut HashMap<u16, Bytes>, topic: Bytes, alias: Option<u16>) -> Result<Bytes, Reason> {
    match alias {
        None if topic.is_empty() => Err(Reason::ProtocolError),
        None => Ok(topic),
        Some(alias) if alias > MAX_ALIAS => Err(Reason::TopicAliasInvalid),
        Some(alias) if topic.is_empty() => aliases.get(&alias).cloned().ok_or(Reason::ProtocolError),
        Some(alias) => {
            aliases.insert(alias, Bytes::copy_from_slice(&topic));
            Ok(topic)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use rumqttc::mqttbytes::check;
    use rumqttc::{ConnectAuth, SubscribeFilter};

    use super::*;

    /// A client in a test: its connection, the messages that it received, and the packet ids that it has not acknowledged.
    #[derive(Default)]
    struct Peer {
        connection: Option<ConnectionId>,
        received: Vec<(String, QoS, u32)>,
        unacknowledged: Vec<u16>,
    }

    fn bytes(packet: &Packet) -> BytesMut {
        let mut bytes = BytesMut::new();
        packet.write(&mut bytes, None).expect("a packet that can be written");
        bytes
    }

    fn hello(client: usize, clean_start: bool, keep_alive: u16) -> Packet {
        let properties = ConnectProperties {
            session_expiry_interval: Some(u32::MAX),
            receive_maximum: Some(3),
            ..ConnectProperties::new()
        };
        let client_id = format!("client-{client}");
        let connect = Connect { keep_alive, client_id, clean_start, properties: Some(properties) };
        let will = LastWill::new("will", "gone", QoS::AtLeastOnce, true, None);
        Packet::Connect(connect, Some(will), ConnectAuth::None)
    }

    impl Peer {
        fn send(&mut self, broker: &mut Connections, packet: &Packet) {
            let Some(id) = self.connection else { return };
            broker.receive(id, &mut bytes(packet), 0);
        }

        fn read(&mut self, broker: &mut Connections) {
            let Some(id) = self.connection else { return };
            let mut output = BytesMut::new();
            broker.write(id, &mut output, 0);
            while !output.is_empty() {
                match Packet::read(&mut output, None).expect("a packet of MQTT 5") {
                    Packet::Publish(publish) => {
                        let topic = String::from_utf8(publish.topic.to_vec()).expect("UTF-8");
                        let number =
                            std::str::from_utf8(&publish.payload).expect("UTF-8").parse().expect("a number");
                        if !publish.dup {
                            self.received.push((topic, publish.qos, number));
                        }
                        self.unacknowledged.extend((publish.pkid > 0).then_some(publish.pkid));
                        assert!(self.unacknowledged.len() <= 3, "the receive maximum holds");
                    }
                    Packet::Disconnect(packet) => panic!("{packet:?}"),
                    _ => {}
                }
            }
        }

        fn acknowledge(&mut self, broker: &mut Connections, which: usize) {
            if !self.unacknowledged.is_empty() {
                let id = self.unacknowledged.remove(which % self.unacknowledged.len());
                self.send(broker, &Packet::PubAck(PubAck::new(id, None)));
            }
        }

        fn connect(&mut self, broker: &mut Connections, client: usize, clean_start: bool) {
            self.connection = broker.open(0);
            self.unacknowledged.clear();
            self.send(broker, &hello(client, clean_start, 0));
        }

        fn publish(&mut self, broker: &mut Connections, topic: usize, qos: QoS, number: u32) {
            let mut publish = Publish::new(format!("topic/{topic}"), qos, number.to_string(), None);
            publish.pkid = if qos == QoS::AtMostOnce { 0 } else { 1 };
            self.send(broker, &Packet::Publish(publish));
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Publish {
            by: usize,
            topic: usize,
            qos: QoS,
        },
        Read(usize),
        Acknowledge(usize, usize),
        /// A connected client loses its connection; a client without a connection connects again.
        Toggle(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let qos = prop_oneof![Just(QoS::AtMostOnce), Just(QoS::AtLeastOnce)];
        prop_oneof![
            4 => (0usize..2, 0usize..2, qos).prop_map(|(by, topic, qos)| Step::Publish { by, topic, qos }),
            2 => (0usize..3).prop_map(Step::Read),
            2 => (0usize..3, 0usize..4).prop_map(|(peer, which)| Step::Acknowledge(peer, which)),
            1 => (0usize..3).prop_map(Step::Toggle),
        ]
    }

    proptest! {
        #[test]
        fn no_message_at_qos_1_is_lost_or_out_of_order_whatever_the_clients_do(steps in vec(step(), 0..120)) {
            let mut broker = Connections::default();
            let mut writers = [Peer::default(), Peer::default()];
            let mut readers: [Peer; 3] = Default::default();
            writers.iter_mut().enumerate().for_each(|(number, writer)| writer.connect(&mut broker, 10 + number, true));
            for (number, reader) in readers.iter_mut().enumerate() {
                reader.connect(&mut broker, number, true);
                let filter = SubscribeFilter::new("topic/+", QoS::AtLeastOnce);
                reader.send(&mut broker, &Packet::Subscribe(Subscribe { pkid: 1, ..Subscribe::new(filter, None) }));
            }
            let mut published: Vec<(String, QoS, u32)> = Vec::new();
            for step in steps {
                match step {
                    Step::Publish { by, topic, qos } => {
                        let number = published.len() as u32;
                        published.push((format!("topic/{topic}"), qos, number));
                        writers[by].publish(&mut broker, topic, qos, number);
                    }
                    Step::Read(reader) => readers[reader].read(&mut broker),
                    Step::Acknowledge(reader, which) => readers[reader].acknowledge(&mut broker, which),
                    Step::Toggle(reader) => match readers[reader].connection.take() {
                        Some(id) => broker.close(id, 0),
                        None => readers[reader].connect(&mut broker, reader, false),
                    },
                }
            }
            let at_qos_1 = |messages: &[(String, QoS, u32)], topic: &str| -> Vec<u32> {
                let of_topic = messages.iter().filter(|(of, qos, _)| of == topic && *qos != QoS::AtMostOnce);
                of_topic.map(|(_, _, number)| *number).collect()
            };
            for (number, reader) in readers.iter_mut().enumerate() {
                if reader.connection.is_none() {
                    reader.connect(&mut broker, number, false);
                }
                for _ in 0..=published.len() {
                    reader.read(&mut broker);
                    reader.acknowledge(&mut broker, 0);
                }
                for topic in ["topic/0", "topic/1"] {
                    prop_assert_eq!(at_qos_1(&reader.received, topic), at_qos_1(&published, topic));
                }
            }
            prop_assert_eq!(broker.sessions.dropped, 0);
        }

        #[test]
        fn no_bytes_of_a_client_stop_the_broker(
            packets in vec((0usize..8, vec((any::<prop::sample::Index>(), any::<u8>()), 0..3), any::<prop::sample::Index>()), 0..20),
            noise in vec(any::<u8>(), 0..40),
        ) {
            let mut broker = Connections::default();
            let id = broker.open(0).expect("the first connection");
            broker.receive(id, &mut bytes(&hello(0, true, 1)), 0);
            let filter = SubscribeFilter::new("topic/+", QoS::AtLeastOnce);
            let publish = Publish { pkid: 7, ..Publish::new("topic/1", QoS::AtLeastOnce, "5", None) };
            let good = [
                Packet::Publish(publish),
                Packet::Subscribe(Subscribe { pkid: 1, ..Subscribe::new(filter, None) }),
                Packet::Unsubscribe(Unsubscribe { pkid: 2, ..Unsubscribe::new("topic/+", None) }),
                Packet::PubAck(PubAck::new(1, None)),
                Packet::PingReq,
                Packet::Disconnect(Disconnect::new(Reason::DisconnectWithWillMessage)),
                hello(0, false, 60),
                packets::accepted(false, Some("x".into())),
            ];
            let mut now_ms = 0;
            for (packet, changes, cut) in packets {
                let mut input = bytes(&good[packet]);
                for (place, byte) in changes {
                    let place = place.index(input.len());
                    input[place] = byte;
                }
                input.truncate(input.len() - cut.index(input.len()) % 3);
                input.extend_from_slice(&noise);
                let id = broker.open(now_ms).expect("few connections");
                if packet % 2 == 0 {
                    broker.receive(id, &mut bytes(&hello(packet, false, 1)), now_ms);
                }
                broker.receive(id, &mut input, now_ms);
                let mut output = BytesMut::new();
                broker.write(id, &mut output, now_ms);
                while !output.is_empty() {
                    let header = check(output.iter(), None).expect("whole packets");
                    let _ = output.split_to(header.frame_length());
                }
                now_ms += 300;
                broker.tick(now_ms);
            }
            // Another client is served as before.
            let mut other = Peer::default();
            other.connect(&mut broker, 99, true);
            other.read(&mut broker);
        }
    }

    #[test]
    fn a_client_that_reads_nothing_is_not_read_beyond_a_bound() {
        let mut broker = Connections::default();
        let id = broker.open(0).expect("the first connection");
        broker.receive(id, &mut bytes(&hello(0, true, 0)), 0);
        let mut pings = BytesMut::from(&[0xc0, 0].repeat(100_000)[..]);
        broker.receive(id, &mut pings, 0);
        assert!(pings.len() > 100_000, "{} bytes are left", pings.len());
        let mut output = BytesMut::new();
        while !pings.is_empty() {
            broker.write(id, &mut output, 0);
            broker.receive(id, &mut pings, 0);
        }
        broker.write(id, &mut output, 0);
        assert!(output.len() >= 200_000);
    }

    #[test]
    fn a_subscriber_that_reads_nothing_takes_bounded_memory_and_what_it_misses_is_counted() {
        let mut broker = Connections::default();
        let [mut reader, mut writer] = [Peer::default(), Peer::default()];
        reader.connect(&mut broker, 0, true);
        let filter = SubscribeFilter::new("a", QoS::AtMostOnce);
        reader.send(&mut broker, &Packet::Subscribe(Subscribe { pkid: 1, ..Subscribe::new(filter, None) }));
        writer.connect(&mut broker, 1, true);
        for _ in 0..20 {
            let publish = Publish::new("a", QoS::AtMostOnce, vec![1; 1 << 20], None);
            writer.send(&mut broker, &Packet::Publish(publish));
        }
        assert_eq!(broker.sessions.dropped, 5, "16 MiB hold 15 messages of a megabyte and their headers");
        let (id, mut output) = (reader.connection.expect("connected"), BytesMut::new());
        let mut received = 0;
        while broker.write(id, &mut output, 0) && !output.is_empty() {
            received += output.split().len();
        }
        assert_eq!(received >> 20, 15);
    }

    #[test]
    fn a_connection_without_a_packet_is_closed_and_too_many_are_refused() {
        let mut broker = Connections::default();
        let opened: Vec<_> = std::iter::from_fn(|| broker.open(0)).collect();
        assert_eq!(opened.len(), MAX_CONNECTIONS);
        broker.tick(CONNECT_LIMIT_MS + 1);
        for id in opened {
            assert!(!broker.write(id, &mut BytesMut::new(), CONNECT_LIMIT_MS + 1));
            broker.close(id, CONNECT_LIMIT_MS + 1);
        }
        assert!(broker.open(0).is_some());
    }
}
