//! The retained messages: the last message of each topic.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::filter;
use super::message::Message;

/// Most bytes of all retained messages.
const MAX_BYTES: usize = 64 << 20;

/// Retained messages by topic.
#[derive(Debug, Default)]
pub(super) struct Retained {
    messages: BTreeMap<String, Rc<Message>>,
    bytes: usize,
}

impl Retained {
    /// Keeps a message in place of the topic's last message; an empty payload clears the topic. Returns false, and changes nothing, if
    /// no room is left.
    pub(super) fn keep(&mut self, message: &Rc<Message>) -> bool {
        let topic = message.topic();
        let is_clear = message.publish.payload.is_empty();
        let new_bytes = if is_clear { 0 } else { message.bytes() };
        let bytes = self.bytes + new_bytes - self.messages.get(topic).map_or(0, |last| last.bytes());
        if bytes > MAX_BYTES {
            return false;
        }
        self.bytes = bytes;
        match is_clear {
            true => self.messages.remove(topic),
            false => self.messages.insert(topic.to_owned(), Rc::clone(message)),
        };
        true
    }

    /// Messages that have not expired and whose topics match the filter of a new subscription.
    pub(super) fn matching(&self, filter: &str, now_ms: u64) -> Vec<Rc<Message>> {
        let all = self.messages.iter().filter(|(topic, _)| filter::matches(filter, topic));
        all.map(|(_, message)| Rc::clone(message)).filter(|message| !message.is_expired(now_ms)).collect()
    }

    /// Drops the expired messages.
    pub(super) fn tick(&mut self, now_ms: u64) {
        self.messages.retain(|_, message| !message.is_expired(now_ms));
        self.bytes = self.messages.values().map(|message| message.bytes()).sum();
    }
}

#[cfg(test)]
mod tests {
    use rumqttc::{Publish, QoS};

    use super::*;

    #[test]
    fn a_full_store_refuses_a_new_message_and_still_clears_and_replaces() {
        let message = |topic: &str, bytes: usize| {
            Rc::new(Message::new(Publish::new(topic, QoS::AtMostOnce, vec![1; bytes], None), 1, 0))
        };
        let mut retained = Retained::default();
        let stored =
            (0..).take_while(|number| retained.keep(&message(&format!("a/{number}"), 1 << 20))).count();
        assert_eq!(stored, 63, "a megabyte each, and the topics");
        assert!(retained.keep(&message("a/0", 10)));
        assert!(retained.keep(&message("a/1", 0)) && retained.keep(&message("new", 1 << 20)));
        assert_eq!(retained.matching("a/+", 0).len(), 62);
        for topic in (0..63).map(|number| format!("a/{number}")).chain(["new".into()]) {
            assert!(retained.keep(&message(&topic, 0)));
        }
        assert_eq!(retained.bytes, 0);
    }
}
