//! The broker's bytes on their way to the MQTT library.
//!
//! The library ends the connection at a reason code that MQTT 5 does not list for the packet, but brokers send such codes: Mosquitto
//! answers a PUBLISH beyond its `message_size_limit` with PUBACK 0x95. [`BrokerBytes`] replaces each such code by a code that the library
//! knows. [`Seen`] keeps the original code, and the first bytes of the connection, which show another protocol or an earlier MQTT.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use headwater_transport::tls::Certificate;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// First bytes of a connection that are kept.
const FIRST_BYTES: usize = 8;

/// Reason code "unspecified error", which every packet of a broker may have.
const UNSPECIFIED: u8 = 0x80;

/// Facts of the latest connection, as far as a failure or a refusal needs them.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// True once the connection is open, with TLS where the address asks for TLS.
    pub(crate) is_open: bool,
    /// The first bytes; empty before they come.
    pub(crate) first: Vec<u8>,
    /// Original code of the latest PUBACK or PUBREC that refused a message with 0x80 or with a replaced code; 0 for none. When two such
    /// packets arrive at a time, both messages may be reported with the later code.
    refusal: u8,
    /// Latest code that was replaced in a CONNACK, SUBACK or DISCONNECT; `None` for none.
    pub(crate) replaced: Option<u8>,
    /// The broker's certificate; `None` without TLS.
    pub(crate) certificate: Option<Certificate>,
}

impl Seen {
    /// Reads or replaces the byte at position `at` in the body of a packet. Returns the position at which the codes begin, or [`usize::MAX`]
    /// when no code follows.
    fn byte_of_body(&mut self, (kind, at, codes_at): (u8, usize, usize), byte: &mut u8) -> usize {
        if kind == SUBACK && at == 2 {
            // The byte is the length of the properties. A length from 128 on takes more bytes; the codes are then left as they are.
            return if *byte < UNSPECIFIED { 3 + usize::from(*byte) } else { usize::MAX };
        }
        if at < codes_at {
            return codes_at;
        }
        match (kind, *byte) {
            // Every code below 0x80 is a success (MQTT 5, section 2.4).
            (PUBACK | PUBREC, 0..UNSPECIFIED) if !known(kind).contains(byte) => *byte = 0,
            (PUBACK | PUBREC, code) if code == UNSPECIFIED || !known(kind).contains(&code) => {
                (self.refusal, *byte) = (code, UNSPECIFIED);
            }
            (_, code) if !known(kind).contains(&code) => {
                (self.replaced, *byte) = (Some(code), UNSPECIFIED);
            }
            _ => {}
        }
        if kind == SUBACK { codes_at } else { usize::MAX }
    }

    /// Returns the broker's code for a refused message; `code` is the code that the library reports.
    pub(crate) fn refusal(&self, code: u8) -> u8 {
        if code == UNSPECIFIED { self.refusal.max(UNSPECIFIED) } else { code }
    }
}

/// Name of a code. If the library reads the code as unspecified and `replaced` holds the broker's code, the text has the number of that code.
pub(crate) fn code_name(code: impl fmt::Debug, replaced: Option<u8>) -> String {
    let name = format!("{code:?}");
    match replaced.filter(|_| name.starts_with("Unspecified")) {
        Some(code) => format!("unknown reason code 0x{code:02x}"),
        None => name,
    }
}

/// A connection that replaces reason codes of incoming packets that the library does not know.
#[derive(Debug)]
pub(crate) struct BrokerBytes<S> {
    stream: S,
    seen: Arc<Mutex<Seen>>,
    packet: Packet,
}

/// Progress in a packet: before the first byte, in the bytes of the length, or in the body.
#[derive(Clone, Copy, Debug)]
enum Packet {
    Begins,
    Length { kind: u8, length: usize, shift: u32 },
    Body { kind: u8, at: usize, length: usize, codes_at: usize },
}

impl<S> BrokerBytes<S> {
    /// Wraps an open connection, and notes in `seen` that the connection is open.
    pub(crate) fn new(stream: S, seen: Arc<Mutex<Seen>>) -> Self {
        seen.lock().is_open = true;
        Self { stream, seen, packet: Packet::Begins }
    }

    /// Passes over bytes that have arrived, and replaces the codes among them that the library does not know.
    fn pass(&mut self, bytes: &mut [u8]) {
        let mut seen = self.seen.lock();
        let room = FIRST_BYTES.saturating_sub(seen.first.len()).min(bytes.len());
        seen.first.extend_from_slice(&bytes[..room]);
        let mut read = 0;
        while read < bytes.len() {
            let mut taken = 1;
            self.packet = match self.packet {
                Packet::Begins => Packet::Length { kind: bytes[read] >> 4, length: 0, shift: 0 },
                Packet::Length { kind, length, shift } => {
                    let length = length | usize::from(bytes[read] & 0x7f) << shift;
                    match bytes[read] & 0x80 != 0 && shift < 21 {
                        true => Packet::Length { kind, length, shift: shift + 7 },
                        false => Packet::body(kind, length),
                    }
                }
                // A body without codes, or the rest of a body after the codes.
                Packet::Body { kind, at, length, codes_at: usize::MAX } => {
                    taken = (length - at).min(bytes.len() - read);
                    Packet::body_at(kind, at + taken, length, usize::MAX)
                }
                Packet::Body { kind, at, length, codes_at } => {
                    let codes_at = seen.byte_of_body((kind, at, codes_at), &mut bytes[read]);
                    Packet::body_at(kind, at + 1, length, codes_at)
                }
            };
            read += taken;
        }
    }
}

impl Packet {
    fn body(kind: u8, length: usize) -> Self {
        let codes_at = match kind {
            CONNACK => 1,
            PUBACK | PUBREC => 2,
            // `byte_of_body` finds the position after the length of the properties.
            SUBACK => usize::MAX - 1,
            DISCONNECT => 0,
            _ => usize::MAX,
        };
        Self::body_at(kind, 0, length, codes_at)
    }

    fn body_at(kind: u8, at: usize, length: usize, codes_at: usize) -> Self {
        if at < length { Self::Body { kind, at, length, codes_at } } else { Self::Begins }
    }
}

const CONNACK: u8 = 2;
const PUBACK: u8 = 4;
const PUBREC: u8 = 5;
const SUBACK: u8 = 9;
const DISCONNECT: u8 = 14;

/// Reason codes that the library reads in a kind of packet, as listed in MQTT 5, sections 3.2.2.2, 3.4.2.1, 3.5.2.1, 3.9.3 and 3.14.2.1.
fn known(kind: u8) -> &'static [u8] {
    match kind {
        CONNACK => &[
            0x00, 0x80, 0x81, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8a, 0x8c, 0x90, 0x95, 0x97,
            0x99, 0x9a, 0x9b, 0x9c, 0x9d, 0x9f,
        ],
        PUBACK | PUBREC => &[0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99],
        SUBACK => &[0x00, 0x01, 0x02, 0x80, 0x83, 0x87, 0x8f, 0x91, 0x97, 0x9e, 0xa1, 0xa2],
        _ => &[
            0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x87, 0x89, 0x8b, 0x8d, 0x8e, 0x8f, 0x90, 0x93, 0x94, 0x95,
            0x96, 0x97, 0x98, 0x99, 0x9a, 0x9b, 0x9c, 0x9d, 0x9e, 0x9f, 0xa0, 0xa1, 0xa2,
        ],
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for BrokerBytes<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let own = self.get_mut();
        let before = buf.filled().len();
        let read = Pin::new(&mut own.stream).poll_read(cx, buf);
        own.pass(&mut buf.filled_mut()[before..]);
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for BrokerBytes<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the bytes as the library reads them, which must be the same for pieces of every size.
    fn passed(bytes: &[u8]) -> (Vec<u8>, Seen) {
        let mut results = Vec::new();
        for piece in 1..=bytes.len() {
            let seen = Arc::<Mutex<Seen>>::default();
            let mut connection = BrokerBytes::new((), Arc::clone(&seen));
            let mut bytes = bytes.to_vec();
            bytes.chunks_mut(piece).for_each(|chunk| connection.pass(chunk));
            results.push((bytes, std::mem::take(&mut *seen.lock())));
        }
        assert!(results.windows(2).all(|pair| pair[0].0 == pair[1].0), "however the bytes come");
        results.pop().expect("bytes")
    }

    #[test]
    fn a_code_that_the_library_does_not_know_is_replaced_and_kept() {
        let publish = [0x30, 0x05, 0x00, 0x01, b'a', 0x00, 0x95];
        let (read, seen) =
            passed(&[&publish[..], &[0x40, 3, 0, 7, 0x95, 0x40, 4, 0, 8, 0x87, 0], &publish].concat());
        assert_eq!(read, [&publish[..], &[0x40, 3, 0, 7, 0x80, 0x40, 4, 0, 8, 0x87, 0], &publish].concat());
        assert_eq!((seen.refusal(0x80), seen.replaced), (0x95, None));
        let (read, seen) = passed(&[0x50, 3, 0, 7, 0x96]);
        assert_eq!((read.as_slice(), seen.refusal(0x80)), (&[0x50, 3, 0, 7, 0x80][..], 0x96));
        assert_eq!(
            passed(&[0x40, 3, 0, 7, 0x95, 0x40, 3, 0, 8, 0x80]).1.refusal(0x80),
            0x80,
            "the latest one"
        );
        // Codes below 0x80 are successes, also where MQTT 5 does not list them.
        for (code, expected) in [(0x11, 0), (0x7f, 0), (0x10, 0x10)] {
            let (read, seen) = passed(&[0x40, 3, 0, 7, code]);
            assert_eq!((read.as_slice(), seen.refusal), (&[0x40, 3, 0, 7, expected][..], 0));
        }
        let (read, seen) = passed(&[0xe0, 1, 0xc3]);
        assert_eq!((read.as_slice(), seen.replaced), (&[0xe0, 1, 0x80][..], Some(0xc3)));
        let (read, seen) = passed(&[0x20, 3, 0, 0x05, 0]);
        assert_eq!((read.as_slice(), seen.replaced), (&[0x20, 3, 0, 0x80, 0][..], Some(5)));
        let (read, seen) = passed(&[0x90, 8, 0, 1, 2, 0x1f, 0x00, 1, 0x95, 0x87]);
        assert_eq!(
            (read.as_slice(), seen.replaced),
            (&[0x90, 8, 0, 1, 2, 0x1f, 0, 1, 0x80, 0x87][..], Some(0x95))
        );
    }

    #[test]
    fn packets_without_codes_and_with_long_lengths_are_left_as_they_are() {
        let mut long = vec![0x32, 0x80, 0x02];
        long.extend([0x95; 256]);
        for packet in [&[0x40, 2, 0, 7][..], &[0xe0, 0], &[0xd0, 0], &[0xb0, 4, 0, 1, 0, 0x11], &long] {
            let (read, seen) = passed(packet);
            assert_eq!((read.as_slice(), seen.refusal(0x80), seen.replaced), (packet, 0x80, None));
        }
    }
}
