//! The sessions of all clients, and the way of a message from its publisher to its subscribers.
//!
//! ```text
//!            attach              detach                        expiry, or a clean start
//! (nothing) ───────> connected ─────────> disconnected ────────────────────────────────> (nothing)
//!                        ^                   │ attach
//!                        └───────────────────┘
//! ```

use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use rumqttc::SubscribeReasonCode as Code;
use rumqttc::{PubAckReason, Publish, QoS, RetainForwardRule as Rule, SubscribeFilter};
use tracing::warn;

use super::filter;
use super::message::{Message, SessionId};
use super::outgoing::{Delivery, Limits, Outgoing};
use super::retained::Retained;
use super::subscriptions::Subscriptions;

/// Most sessions, connected or not.
const MAX_SESSIONS: usize = 1024;

/// Number of a connection; later connections have higher numbers.
pub(super) type ConnectionId = u64;

/// All sessions, their subscriptions and the retained messages.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    sessions: HashMap<SessionId, Session>,
    by_client: HashMap<String, SessionId>,
    pub(super) subscriptions: Subscriptions,
    retained: Retained,
    last_id: SessionId,
    /// Connections with something new to write.
    pub(super) woken: BTreeSet<ConnectionId>,
    /// Messages dropped because a subscriber's queue was full, a subscriber's packet limit was too small, or the retained messages
    /// left no room.
    pub(super) dropped: u64,
}

/// The session of one client.
#[derive(Debug, Default)]
pub(super) struct Session {
    pub(super) client_id: String,
    /// `None` while the client is not connected.
    pub(super) connection: Option<ConnectionId>,
    /// Last will, and its delay in seconds.
    pub(super) will: Option<(Publish, u32)>,
    /// Time without a connection after which the session ends; `u32::MAX` for never.
    pub(super) expiry_s: u32,
    pub(super) outgoing: Outgoing,
    /// Time at which the client's last connection ended, in milliseconds since the broker's start.
    pub(super) away_ms: u64,
}

impl Sessions {
    pub(super) fn connection_of(&self, client_id: &str) -> Option<ConnectionId> {
        self.by_client.get(client_id).and_then(|id| self.sessions.get(id)?.connection)
    }

    /// Begins a session, or continues the client's earlier session unless `is_clean` is set. Returns the number of the session, and
    /// true if the session existed before; `None` if there are too many sessions.
    pub(super) fn attach(&mut self, new: Session, is_clean: bool, now_ms: u64) -> Option<(SessionId, bool)> {
        if is_clean && let Some(id) = self.by_client.get(&new.client_id).copied() {
            self.set_expiry(id, 0);
            self.settle(id, now_ms);
        }
        if let Some(id) = self.by_client.get(&new.client_id).copied() {
            let outgoing = self.sessions.remove(&id).map(|session| session.outgoing).unwrap_or_default();
            self.sessions.insert(id, Session { outgoing, ..new });
            return Some((id, true));
        }
        if self.sessions.len() >= MAX_SESSIONS {
            return None;
        }
        self.last_id += 1;
        self.by_client.insert(new.client_id.clone(), self.last_id);
        self.sessions.insert(self.last_id, new);
        Some((self.last_id, false))
    }

    /// Ends the connection of a session. The last will is published, at once or after its delay, unless the client disconnected with
    /// the normal reason.
    pub(super) fn detach(&mut self, id: SessionId, has_left: bool, now_ms: u64) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.outgoing.suspend();
        (session.connection, session.away_ms) = (None, now_ms);
        session.will = session.will.take().filter(|_| !has_left);
        self.settle(id, now_ms);
    }

    /// Changes the expiry of a session. Returns false if the expiry was 0 and would become longer, which MQTT forbids.
    pub(super) fn set_expiry(&mut self, id: SessionId, expiry_s: u32) -> bool {
        let Some(session) = self.sessions.get_mut(&id) else { return false };
        let is_allowed = session.expiry_s != 0 || expiry_s == 0;
        session.expiry_s = if is_allowed { expiry_s } else { 0 };
        is_allowed
    }

    /// Publishes the last wills that are due, ends expired sessions, and drops expired retained messages.
    pub(super) fn tick(&mut self, now_ms: u64) {
        self.retained.tick(now_ms);
        for id in self.sessions.keys().copied().collect::<Vec<_>>() {
            self.settle(id, now_ms);
        }
    }

    fn settle(&mut self, id: SessionId, now_ms: u64) {
        let Some(session) = self.sessions.get_mut(&id).filter(|of| of.connection.is_none()) else { return };
        let away_s = now_ms.saturating_sub(session.away_ms) / 1000;
        let has_ended = session.expiry_s != u32::MAX && away_s >= u64::from(session.expiry_s);
        let will = session.will.take_if(|(_, delay_s)| has_ended || away_s >= u64::from(*delay_s));
        if has_ended && let Some(session) = self.sessions.remove(&id) {
            self.by_client.remove(&session.client_id);
            self.subscriptions.forget(id);
        }
        if let Some((will, _)) = will {
            self.publish(will, id, now_ms);
        }
    }

    /// Passes a message to its subscribers, and keeps the message if it is retained. A retained message that finds no room
    /// reaches no subscriber.
    pub(super) fn publish(&mut self, publish: Publish, publisher: SessionId, now_ms: u64) -> PubAckReason {
        let message = Rc::new(Message::new(publish, publisher, now_ms));
        let retain = message.publish.retain;
        if retain && !self.retained.keep(&message) {
            self.dropped += 1;
            return PubAckReason::QuotaExceeded;
        }
        let readers = self.subscriptions.readers(message.topic());
        for (session, asked) in readers.iter() {
            self.deliver(*session, &message, asked, asked.preserve_retain && retain);
        }
        if readers.is_empty() { PubAckReason::NoMatchingSubscribers } else { PubAckReason::Success }
    }

    fn deliver(&mut self, id: SessionId, message: &Rc<Message>, asked: &SubscribeFilter, retain: bool) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let qos = if message.publish.qos == QoS::AtMostOnce { QoS::AtMostOnce } else { granted(asked) };
        let is_kept = session.connection.is_some() || qos != QoS::AtMostOnce;
        if !is_kept || (asked.nolocal && message.publisher == id) {
            return;
        }
        self.woken.extend(session.connection);
        let message = Rc::clone(message);
        if !session.outgoing.push(Delivery { message, qos, retain, packet_id: 0 }) {
            self.dropped += 1;
            if self.dropped.is_power_of_two() {
                warn!(
                    client = session.client_id,
                    dropped = self.dropped,
                    "messages dropped: slow subscriber"
                );
            }
        }
    }

    /// Adds a subscription, and queues the retained messages that the subscription asks for.
    pub(super) fn subscribe(&mut self, id: SessionId, asked: &SubscribeFilter, now_ms: u64) -> Code {
        let filter = asked.path.as_str();
        if filter.starts_with("$share/") {
            return Code::SharedSubscriptionsNotSupported;
        }
        if !filter::is_valid(filter) {
            return Code::TopicFilterInvalid;
        }
        let Some(is_new) = self.subscriptions.insert(id, asked) else {
            return Code::QuotaExceeded;
        };
        let rule = &asked.retain_forward_rule;
        if *rule == Rule::OnEverySubscribe || (is_new && *rule == Rule::OnNewSubscribe) {
            for message in self.retained.matching(filter, now_ms) {
                self.deliver(id, &message, asked, true);
            }
        }
        Code::Success(granted(asked))
    }

    pub(super) fn acknowledge(&mut self, id: SessionId, packet_id: u16) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.outgoing.acknowledge(packet_id);
        }
    }

    /// The next message to write to a client; `None` if there is none that may be written now.
    pub(super) fn next_packet(&mut self, id: SessionId, limits: Limits, now_ms: u64) -> Option<Publish> {
        self.sessions.get_mut(&id)?.outgoing.next(limits, now_ms, &mut self.dropped)
    }
}

/// Highest `QoS` at which the broker sends messages for a subscription: the `QoS` that was asked for, but at most 1.
fn granted(asked: &SubscribeFilter) -> QoS {
    if asked.qos == QoS::AtMostOnce { QoS::AtMostOnce } else { QoS::AtLeastOnce }
}
