//! Messages on their way to one subscriber, within a bound of bytes.
//!
//! ```text
//! push ──> waiting ── next ──> written (QoS 0)
//!             ^         └────> sent (QoS 1) ── PUBACK ──> done
//!             └── suspend ──────┘
//! ```

use std::collections::VecDeque;
use std::rc::Rc;

use rumqttc::{Publish, QoS};

use super::message::Message;

/// Most bytes that wait for one subscriber; further messages are dropped.
const MAX_BYTES: usize = 16 << 20;
/// Most messages that wait for one subscriber's acknowledgement, even if the subscriber allows more.
const MAX_UNACKNOWLEDGED: u16 = 256;

/// Queue of one session.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    waiting: VecDeque<Delivery>,
    /// Messages at `QoS` 1 without their acknowledgement, in the order of sending.
    sent: VecDeque<Delivery>,
    /// Bytes of both queues.
    bytes: usize,
    last_id: u16,
}

/// Limits that a client names in its CONNECT.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Limits {
    pub(super) max_packet_bytes: u32,
    /// Receive maximum of the client: messages at `QoS` 1 that may wait for the client's acknowledgement.
    pub(super) max_unacknowledged: u16,
}

/// A message for one subscriber.
#[derive(Clone, Debug)]
pub(super) struct Delivery {
    pub(super) message: Rc<Message>,
    pub(super) qos: QoS,
    pub(super) retain: bool,
    /// Packet identifier; 0 before the first sending and at `QoS` 0.
    pub(super) packet_id: u16,
}

impl Outgoing {
    /// Takes a message. Returns false if the queue is full; the message is then dropped.
    pub(super) fn push(&mut self, delivery: Delivery) -> bool {
        let bytes = self.bytes + delivery.message.bytes();
        if bytes <= MAX_BYTES {
            self.bytes = bytes;
            self.waiting.push_back(delivery);
        }
        bytes <= MAX_BYTES
    }

    /// The next packet to write; `None` if none waits, or if a message at `QoS` 1 has to wait for acknowledgements. Skips expired
    /// messages. Skips messages larger than the subscriber takes, and counts them in `dropped`.
    pub(super) fn next(&mut self, limits: Limits, now_ms: u64, dropped: &mut u64) -> Option<Publish> {
        loop {
            let max_sent = limits.max_unacknowledged.min(MAX_UNACKNOWLEDGED);
            let has_room = self.sent.len() < usize::from(max_sent);
            let mut delivery = self.waiting.pop_front_if(|first| has_room || first.qos == QoS::AtMostOnce)?;
            let Delivery { qos, retain, packet_id, .. } = delivery;
            let needs_answer = qos != QoS::AtMostOnce;
            // A message that the client may have received is sent again until the client acknowledges it, even after its expiry.
            let dup = packet_id != 0;
            if needs_answer && !dup {
                delivery.packet_id = self.free_id();
            }
            let packet = delivery.message.packet(now_ms);
            let packet = Publish { dup, qos, retain, pkid: delivery.packet_id, ..packet };
            let is_too_large = packet.size() > limits.max_packet_bytes as usize;
            *dropped += u64::from(is_too_large);
            let is_sent = !is_too_large && (dup || !delivery.message.is_expired(now_ms));
            match is_sent && needs_answer {
                true => self.sent.push_back(delivery),
                false => self.bytes -= delivery.message.bytes(),
            }
            if is_sent {
                return Some(packet);
            }
        }
    }

    /// Notes an acknowledgement; an unknown packet identifier has no effect.
    pub(super) fn acknowledge(&mut self, packet_id: u16) {
        let position = self.sent.iter().position(|delivery| delivery.packet_id == packet_id);
        if let Some(delivery) = position.and_then(|position| self.sent.remove(position)) {
            self.bytes -= delivery.message.bytes();
        }
    }

    /// Notes the end of the connection. Unacknowledged messages come first on the next connection; messages at `QoS` 0 are dropped.
    pub(super) fn suspend(&mut self) {
        self.sent.append(&mut self.waiting);
        std::mem::swap(&mut self.sent, &mut self.waiting);
        self.waiting.retain(|delivery| delivery.qos != QoS::AtMostOnce);
        self.bytes = self.waiting.iter().map(|delivery| delivery.message.bytes()).sum();
    }

    fn free_id(&mut self) -> u16 {
        loop {
            self.last_id = self.last_id.checked_add(1).unwrap_or(1);
            if !self.sent.iter().any(|delivery| delivery.packet_id == self.last_id) {
                return self.last_id;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { max_packet_bytes: u32::MAX, max_unacknowledged: u16::MAX };

    fn delivery(payload: Vec<u8>) -> Delivery {
        let message = Message::new(Publish::new("a", QoS::AtLeastOnce, payload, None), 1, 0);
        Delivery { message: Rc::new(message), qos: QoS::AtLeastOnce, retain: false, packet_id: 0 }
    }

    fn ids(queue: &mut Outgoing, limits: Limits) -> Vec<(u16, bool)> {
        std::iter::from_fn(|| queue.next(limits, 0, &mut 0)).map(|packet| (packet.pkid, packet.dup)).collect()
    }

    #[test]
    fn what_is_not_acknowledged_comes_first_after_a_new_connection_under_its_old_id() {
        let mut queue = Outgoing::default();
        for _ in 0..4 {
            assert!(queue.push(delivery(vec![1])));
        }
        assert_eq!(ids(&mut queue, Limits { max_unacknowledged: 2, ..LIMITS }), [(1, false), (2, false)]);
        queue.acknowledge(1);
        queue.suspend();
        assert_eq!(ids(&mut queue, LIMITS), [(2, true), (3, false), (4, false)]);
    }

    #[test]
    fn an_id_that_is_never_acknowledged_is_not_given_again() {
        let mut queue = Outgoing::default();
        for number in 0..=u32::from(u16::MAX) {
            assert!(queue.push(delivery(vec![])));
            let found = ids(&mut queue, LIMITS);
            assert_eq!(number == 0, found == [(1, false)], "{found:?}");
            found.iter().filter(|(id, _)| *id != 1).for_each(|(id, _)| queue.acknowledge(*id));
        }
    }

    #[test]
    fn a_full_queue_drops_the_newest_and_is_empty_when_all_is_acknowledged() {
        let mut queue = Outgoing::default();
        let taken = (0..).take_while(|_| queue.push(delivery(vec![0; 1 << 20]))).count();
        assert_eq!(taken, 15);
        for (id, _) in ids(&mut queue, LIMITS) {
            queue.acknowledge(id);
        }
        assert_eq!(queue.bytes, 0);
    }

    #[test]
    fn a_message_that_the_client_does_not_take_is_dropped_and_counted() {
        let mut queue = Outgoing::default();
        queue.push(delivery(vec![0; 30]));
        queue.push(delivery(vec![0; 3]));
        let mut dropped = 0;
        let limits = Limits { max_packet_bytes: 20, ..LIMITS };
        assert_eq!(queue.next(limits, 0, &mut dropped).map(|packet| packet.payload.len()), Some(3));
        assert_eq!((dropped, queue.bytes), (1, delivery(vec![0; 3]).message.bytes()));
    }
}
