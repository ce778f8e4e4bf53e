//! A relay between the members and their broker. As a middle box it mistreats bytes; as a lying broker it mistreats whole packets.
//!
//! ```text
//! devices, aggregator ──> Relay (the port that they know) ──> Mosquitto (a port of its own)
//! operators of the check ───────────────────────────────────────^
//! ```
//!
//! With TLS a relay sees only encrypted bytes. Without TLS it can do whatever a broker under an attacker's control can do.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use headwater_group::GroupClient;
use parking_lot::Mutex;

use super::account::{Reference, SampleRange, outcomes, receive};
use super::rogue::{RogueRow, end_once, grown, seen_text};
use super::{LIMIT, Part, Site};

/// The way in which the relay mistreats the connections. A piece is the bytes that one read from a socket gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mischief {
    /// The relay passes every piece on unchanged.
    None,
    /// Passes every piece on 60 ms later.
    Delay,
    /// Ends every connection that has passed 40 pieces in one direction.
    Cut,
    /// Exchanges every tenth piece with the piece after it.
    Reorder,
    /// Alters one bit in every fiftieth piece.
    Alter,
    /// Passes every fiftieth piece on twice.
    Double,
    /// Leaves out every fiftieth piece.
    Lose,
    /// Passes nothing on; the connections stay open.
    BlackHole,
    /// Sends every message of the broker twice.
    RepeatMessages,
    /// Leaves out every fifth message of the broker.
    LoseMessages,
    /// Exchanges the messages of the broker in pairs.
    SwapMessages,
    /// Marks every message of the broker as retained.
    MarkRetained,
    /// Delivers messages of `cam-0` as messages of `cam-1`.
    OtherSender,
    /// Alters the last bit of every tenth message of the broker.
    AlterMessages,
    /// Sends each message of the broker without its last byte.
    CutMessages,
    /// Refuses every new connection with the reason code "not authorized".
    RefuseClients,
    /// Replaces every 40th message of the broker by a DISCONNECT with the reason "session taken over", and ends the connection.
    Disconnect,
}

/// Mischiefs of a middle box, for links with TLS, with their names in the table.
pub const OF_MIDDLE_BOX: [(Mischief, &str); 7] = [
    (Mischief::Delay, "delays everything by 60 ms"),
    (Mischief::Cut, "cuts every connection again and again"),
    (Mischief::Reorder, "exchanges pieces of the stream"),
    (Mischief::Alter, "alters bits of the stream"),
    (Mischief::Double, "doubles pieces of the stream"),
    (Mischief::Lose, "loses pieces of the stream"),
    (Mischief::BlackHole, "passes nothing on"),
];

/// Mischiefs of a broker, for links without TLS, with their names in the table.
pub const OF_BROKER: [(Mischief, &str); 9] = [
    (Mischief::RepeatMessages, "delivers every message twice"),
    (Mischief::LoseMessages, "loses every fifth message"),
    (Mischief::SwapMessages, "delivers messages out of order"),
    (Mischief::MarkRetained, "marks live messages as retained"),
    (Mischief::OtherSender, "delivers a device's messages as another's"),
    (Mischief::AlterMessages, "alters messages"),
    (Mischief::CutMessages, "cuts messages"),
    (Mischief::RefuseClients, "refuses every client"),
    (Mischief::Disconnect, "disconnects every client again and again"),
];

impl Mischief {
    /// True for a mischief of [`OF_BROKER`], which mistreats packets.
    fn is_of_broker(self) -> bool {
        OF_BROKER.iter().any(|(of_broker, _)| *of_broker == self)
    }

    /// True when members can notice the mischief. Messages are not signed, so members believe another sender, and scores within their limits.
    fn can_be_told(self) -> bool {
        !matches!(self, Self::AlterMessages | Self::OtherSender)
    }

    /// True when open connections must end before the mischief has an effect.
    fn needs_new_connections(self) -> bool {
        self == Self::RefuseClients
    }
}

/// A relay in front of a broker; runs until the process ends.
#[derive(Debug)]
pub struct Relay {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    mischief: Mischief,
    connections: Vec<TcpStream>,
    /// Pieces and packets that were mistreated since the mischief began.
    mistreated: u64,
}

impl Relay {
    /// Listens at `port` of loopback, and passes everything on to `broker`.
    ///
    /// # Panics
    /// When somebody listens at the port.
    pub fn start(port: u16, broker: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).expect("the members' port is free");
        let state = State { mischief: Mischief::None, connections: Vec::new(), mistreated: 0 };
        let state = Arc::new(Mutex::new(state));
        let relay = Self { state: Arc::clone(&state) };
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                // While the broker is away, the members find a closed connection.
                let Ok(server) = TcpStream::connect(("127.0.0.1", broker)) else { continue };
                if let Ok(streams) = pair(&client, &server) {
                    state.lock().connections.extend(streams);
                }
                let (up, down) = (Arc::clone(&state), Arc::clone(&state));
                let (Ok(from_client), Ok(to_server)) = (client.try_clone(), server.try_clone()) else {
                    continue;
                };
                thread::spawn(move || pass((from_client, to_server), &up, Direction::Up));
                thread::spawn(move || pass((server, client), &down, Direction::Down));
            }
        });
        relay
    }

    /// Begins a mischief, or ends it with [`Mischief::None`]. All connections are closed when [`Mischief::RefuseClients`] begins and when
    /// [`Mischief::BlackHole`] ends.
    pub fn set(&self, mischief: Mischief) {
        let mut state = self.state.lock();
        let was = std::mem::replace(&mut state.mischief, mischief);
        state.mistreated = 0;
        if mischief.needs_new_connections() || was == Mischief::BlackHole {
            for stream in state.connections.drain(..) {
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
    }

    /// Pieces and packets that were mistreated since the mischief began.
    pub fn mistreated(&self) -> u64 {
        self.state.lock().mistreated
    }
}

fn pair(client: &TcpStream, server: &TcpStream) -> io::Result<[TcpStream; 2]> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    Ok([client.try_clone()?, server.try_clone()?])
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    /// To the broker.
    Up,
    /// To a member.
    Down,
}

/// Passes one direction of a connection on until an end closes the connection or the mischief ends it.
fn pass((mut from, mut to): (TcpStream, TcpStream), state: &Mutex<State>, direction: Direction) {
    let (mut piece, mut packets, mut count) = (vec![0; 16 * 1024], Packets::default(), 0);
    while let Ok(bytes @ 1..) = from.read(&mut piece) {
        count += 1;
        let mischief = state.lock().mischief;
        let sent = match direction {
            Direction::Down => packets.change(&piece[..bytes], mischief),
            Direction::Up => Changed { bytes: piece[..bytes].to_vec(), harmed: 0, ends: false },
        };
        let Some(sent) = mistreat(sent, mischief, count, &mut packets.held_back) else { continue };
        state.lock().mistreated += sent.harmed;
        if to.write_all(&sent.bytes).is_err() || sent.ends {
            break;
        }
    }
    // The other end may be closed already.
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

/// Bytes that are passed on, the number of harmed pieces or packets among them, and whether the connection ends after these bytes.
struct Changed {
    bytes: Vec<u8>,
    harmed: u64,
    ends: bool,
}

/// Applies the mischief of a middle box to the piece with the number `count` of a stream. `None` if the piece waits for the next one.
fn mistreat(mut sent: Changed, mischief: Mischief, count: u64, held_back: &mut Vec<u8>) -> Option<Changed> {
    let mut harm = |is_hit: bool| {
        sent.harmed += u64::from(is_hit);
        is_hit
    };
    match mischief {
        Mischief::Delay => {
            harm(true);
            thread::sleep(Duration::from_millis(60));
        }
        Mischief::Cut => sent.ends = harm(count >= 40),
        Mischief::Reorder if harm(!held_back.is_empty()) => sent.bytes.append(held_back),
        Mischief::Reorder if count.is_multiple_of(10) => {
            *held_back = sent.bytes;
            return None;
        }
        Mischief::Alter if harm(count.is_multiple_of(50)) => {
            let middle = sent.bytes.len() / 2;
            sent.bytes[middle] ^= 1;
        }
        Mischief::Double if harm(count.is_multiple_of(50)) => sent.bytes = sent.bytes.repeat(2),
        Mischief::Lose if harm(count.is_multiple_of(50)) => sent.bytes.clear(),
        Mischief::BlackHole if harm(true) => sent.bytes.clear(),
        _ => {}
    }
    Some(sent)
}

/// The packets of a stream from a broker to a member.
#[derive(Default)]
struct Packets {
    /// Bytes of a packet whose end has not arrived.
    partial: Vec<u8>,
    /// A message that waits for the next one.
    swapped: Vec<u8>,
    /// A piece that waits for the next one.
    held_back: Vec<u8>,
    messages: u64,
}

/// Types of MQTT packets: the high four bits of the first byte.
const CONNACK: u8 = 2;
const PUBLISH: u8 = 3;

/// A DISCONNECT of MQTT 5 with the reason "session taken over".
const TAKEN_OVER: [u8; 4] = [0xe0, 2, 0x8e, 0];

impl Packets {
    /// The bytes as a lying broker would send them. With a mischief of a middle box the bytes stay as they are, since encrypted bytes are no
    /// packets.
    fn change(&mut self, bytes: &[u8], mischief: Mischief) -> Changed {
        let mut changed = Changed { bytes: Vec::new(), harmed: 0, ends: false };
        if !mischief.is_of_broker() {
            changed.bytes.append(&mut self.swapped);
            changed.bytes.append(&mut self.partial);
            changed.bytes.extend(bytes);
            return changed;
        }
        self.partial.extend(bytes);
        while let Some(length) = packet_bytes(&self.partial) {
            let rest = self.partial.split_off(length);
            let packet = std::mem::replace(&mut self.partial, rest);
            self.change_packet(packet, mischief, &mut changed);
        }
        changed
    }

    fn change_packet(&mut self, mut packet: Vec<u8>, mischief: Mischief, changed: &mut Changed) {
        let kind = packet[0] >> 4;
        self.messages += u64::from(kind == PUBLISH);
        let every = |count: u64| kind == PUBLISH && self.messages.is_multiple_of(count);
        let last = packet.len() - 1;
        let mut hit = true;
        match mischief {
            Mischief::RepeatMessages if kind == PUBLISH => packet = packet.repeat(2),
            Mischief::LoseMessages if every(5) => packet.clear(),
            Mischief::SwapMessages if every(2) => packet.append(&mut self.swapped),
            Mischief::SwapMessages if kind == PUBLISH => self.swapped = std::mem::take(&mut packet),
            Mischief::MarkRetained if kind == PUBLISH => packet[0] |= 1,
            Mischief::OtherSender if kind == PUBLISH => {
                let found = packet.windows(7).position(|part| part == b"/cam-0/");
                hit = found.is_some();
                if let Some(at) = found {
                    packet[at + 5] = b'1';
                }
            }
            Mischief::AlterMessages if every(10) => packet[last] ^= 1,
            Mischief::CutMessages if kind == PUBLISH && packet[1] & 0x7f > 1 => {
                packet[1] -= 1;
                packet.truncate(last);
            }
            // The reason code is the fourth byte, after the flags; 0x87 is "not authorized".
            Mischief::RefuseClients if kind == CONNACK => packet[last.min(3)] = 0x87,
            Mischief::Disconnect if every(40) => {
                packet = TAKEN_OVER.to_vec();
                changed.ends = true;
            }
            _ => hit = false,
        }
        changed.harmed += u64::from(hit);
        changed.bytes.append(&mut packet);
    }
}

/// Length of the first packet in bytes; `None` if `bytes` has no whole packet.
fn packet_bytes(bytes: &[u8]) -> Option<usize> {
    let mut length = 0;
    for (index, byte) in bytes.iter().skip(1).take(4).enumerate() {
        length |= usize::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            let whole = 2 + index + length;
            return (bytes.len() >= whole).then_some(whole);
        }
    }
    None
}

/// Runs one mischief on a running site behind the relay for `time`.
///
/// # Panics
/// As [`outcomes`].
pub async fn run(
    (mischief, name): (Mischief, &str),
    relay: &Relay,
    site: &Site,
    clients: &mut [GroupClient],
    (reference, time): (&Reference, Duration),
) -> RogueRow {
    let (before, range) = (site.metrics(), SampleRange::begin(site, 1));
    relay.set(mischief);
    receive(clients, time).await;
    let mistreated = relay.mistreated();
    relay.set(Mischief::None);
    let outcomes = outcomes(site, clients, range.ended_now(), reference).await;
    let expected = match mischief.can_be_told() {
        true => "each sample ends once, none wrong",
        false => "each sample ends once; believed, since nothing signs a message",
    };
    RogueRow {
        role: if mischief.is_of_broker() { "lying broker" } else { "middle box" },
        attempt: name.to_owned(),
        expected,
        seen: format!("{mistreated} mistreated{}", seen_text(&outcomes, &grown(&before, &site.metrics()))),
        is_sound: mistreated > 0 && end_once(&outcomes, mischief.can_be_told()),
    }
}

/// Text in the log of a member that refuses a broker whose certificate is of another authority.
const REFUSAL: &str = "it is of another authority than `tls.authority_file`";

/// Runs a broker with the certificate of another authority in the place of the site's broker for `time`, and longer until every device and
/// the aggregator have refused it, at most [`LIMIT`] in all.
///
/// # Panics
/// As [`outcomes`].
pub async fn take_over(
    site: &mut Site,
    stranger: &Site,
    clients: &mut [GroupClient],
    (reference, time): (&Reference, Duration),
) -> RogueRow {
    let logged = |site: &Site, part: Part, text: &str| {
        let log = std::fs::read_to_string(site.log(part)).unwrap_or_default();
        log.lines().filter(|line| line.contains(text)).count()
    };
    let members: Vec<_> =
        site.parts().into_iter().filter(|part| !matches!(part, Part::Broker | Part::Cloud)).collect();
    let refusals =
        |site: &Site| -> Vec<usize> { members.iter().map(|member| logged(site, *member, REFUSAL)).collect() };
    let connections = |site: &Site| logged(site, Part::Broker, "New client connected");
    let (before, range) = (site.metrics(), SampleRange::begin(site, 1));
    site.kill(Part::Broker);
    let (connected_before, refused_before) = (connections(site), refusals(site));
    site.mosquitto_conf = Some(stranger.members().join("broker/mosquitto.conf"));
    site.start(Part::Broker);
    let until = Instant::now() + LIMIT;
    receive(clients, time).await;
    while have_refused(&refused_before, &refusals(site)) < members.len() && Instant::now() < until {
        receive(clients, Duration::from_millis(200)).await;
    }
    site.kill(Part::Broker);
    let connected = connections(site) - connected_before;
    let refused = have_refused(&refused_before, &refusals(site));
    site.mosquitto_conf = None;
    site.start(Part::Broker);
    let outcomes = outcomes(site, clients, range.ended_now(), reference).await;
    RogueRow {
        role: "broker of another authority",
        attempt: "takes the place of the broker".to_owned(),
        expected: "every member tries and refuses; nobody connects; each sample ends once, none wrong",
        seen: format!(
            "{refused} of {} members refused, {connected} connected{}",
            members.len(),
            seen_text(&outcomes, &grown(&before, &site.metrics()))
        ),
        is_sound: refused == members.len() && connected == 0 && end_once(&outcomes, true),
    }
}

/// Number of members whose logs have more refusals than before. A member that did not try to connect is not counted.
fn have_refused(before: &[usize], now: &[usize]) -> usize {
    before.iter().zip(now).filter(|(before, now)| now > before).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A PUBLISH on `g/cam-0/x` with the payload `payload`, at `QoS` 0.
    fn publish(payload: &[u8]) -> Vec<u8> {
        let topic = b"g/cam-0/x";
        let rest = [&[0, topic.len() as u8][..], topic, &[0], payload].concat();
        [&[PUBLISH << 4, rest.len() as u8][..], &rest].concat()
    }

    #[track_caller]
    fn check(mischief: Mischief, expected: &[Vec<u8>]) {
        let stream = [publish(b"ab"), publish(b"cd")].concat();
        // The stream comes in one piece, then one byte at a time.
        for size in [stream.len(), 1] {
            let mut packets = Packets::default();
            let found: Vec<u8> =
                stream.chunks(size).flat_map(|piece| packets.change(piece, mischief).bytes).collect();
            assert_eq!(found, expected.concat(), "{mischief:?} in pieces of {size}");
        }
    }

    #[test]
    fn each_message_is_changed_as_its_mischief_says() {
        let (first, second) = (publish(b"ab"), publish(b"cd"));
        check(Mischief::None, &[first.clone(), second.clone()]);
        check(Mischief::RepeatMessages, &[first.repeat(2), second.repeat(2)]);
        check(Mischief::SwapMessages, &[second.clone(), first.clone()]);
        check(Mischief::CutMessages, &[publish(b"a"), publish(b"c")]);
        check(Mischief::LoseMessages, &[first.clone(), second.clone()]);
        let retained = |mut packet: Vec<u8>| {
            packet[0] |= 1;
            packet
        };
        check(Mischief::MarkRetained, &[retained(first.clone()), retained(second.clone())]);
        let mut lost = Packets::default();
        let five = lost.change(&first.repeat(5), Mischief::LoseMessages);
        assert_eq!((five.bytes, five.harmed), (first.repeat(4), 1));
        let other = Packets::default().change(&first, Mischief::OtherSender).bytes;
        assert_eq!(&other[6..11], b"cam-1", "{other:?}");
    }

    #[test]
    fn a_member_that_did_not_try_to_connect_has_not_refused() {
        assert_eq!(have_refused(&[0, 2, 5], &[0, 2, 5]), 0);
        assert_eq!(have_refused(&[0, 2, 5], &[1, 2, 7]), 2);
    }

    #[test]
    fn a_connack_becomes_a_refusal_and_other_packets_stay() {
        let connack = [CONNACK << 4, 3, 0, 0, 0];
        let refused = Packets::default().change(&connack, Mischief::RefuseClients).bytes;
        assert_eq!(refused, [CONNACK << 4, 3, 0, 0x87, 0]);
        let message = publish(b"ab");
        assert_eq!(Packets::default().change(&message, Mischief::RefuseClients).bytes, message);
    }
}
