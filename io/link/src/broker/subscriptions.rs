//! The subscriptions of all sessions, and the sessions that read a topic.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use rumqttc::SubscribeFilter;

use super::filter;
use super::message::SessionId;

/// Most subscriptions of one session.
const MAX_SUBSCRIPTIONS: usize = 1024;
/// Most topics whose readers are remembered. Topics repeat, and subscriptions change seldom.
const MAX_REMEMBERED: usize = 1024;

/// Subscriptions of all sessions.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    by_session: BTreeMap<SessionId, HashMap<String, Rc<SubscribeFilter>>>,
    /// Readers of topics that had a message; emptied when a subscription changes, and when `MAX_REMEMBERED` topics are held.
    remembered: HashMap<String, Readers>,
}

/// Readers of a topic. A session with several matching subscriptions is listed once for each, as in Mosquitto.
pub(super) type Readers = Rc<[(SessionId, Rc<SubscribeFilter>)]>;

impl Subscriptions {
    /// Adds or replaces a subscription. Returns true for a new subscription, and `None` if the session has too many.
    pub(super) fn insert(&mut self, session: SessionId, asked: &SubscribeFilter) -> Option<bool> {
        let of_session = self.by_session.entry(session).or_default();
        if of_session.len() >= MAX_SUBSCRIPTIONS && !of_session.contains_key(&asked.path) {
            return None;
        }
        self.remembered.clear();
        Some(of_session.insert(asked.path.clone(), Rc::new(asked.clone())).is_none())
    }

    /// Removes a subscription. Returns true if the session had the subscription.
    pub(super) fn remove(&mut self, session: SessionId, filter: &str) -> bool {
        self.remembered.clear();
        self.by_session.get_mut(&session).is_some_and(|of_session| of_session.remove(filter).is_some())
    }

    /// Removes the subscriptions of a session that has ended.
    pub(super) fn forget(&mut self, session: SessionId) {
        self.remembered.clear();
        self.by_session.remove(&session);
    }

    pub(super) fn readers(&mut self, topic: &str) -> Readers {
        if let Some(readers) = self.remembered.get(topic) {
            return Rc::clone(readers);
        }
        let all =
            self.by_session.iter().flat_map(|(id, of)| of.values().map(|asked| (*id, Rc::clone(asked))));
        let readers: Readers = all.filter(|(_, asked)| filter::matches(&asked.path, topic)).collect();
        if self.remembered.len() >= MAX_REMEMBERED {
            self.remembered.clear();
        }
        self.remembered.insert(topic.to_owned(), Rc::clone(&readers));
        readers
    }
}

#[cfg(test)]
mod tests {
    use rumqttc::QoS;

    use super::*;

    fn asked(filter: &str) -> SubscribeFilter {
        SubscribeFilter::new(filter, QoS::AtLeastOnce)
    }

    #[test]
    fn the_readers_of_a_topic_follow_every_change() {
        let mut subscriptions = Subscriptions::default();
        let readers =
            |of: &mut Subscriptions| of.readers("a/b").iter().map(|(id, _)| *id).collect::<Vec<_>>();
        assert!(readers(&mut subscriptions).is_empty());
        assert_eq!(subscriptions.insert(7, &asked("a/+")), Some(true));
        assert_eq!(subscriptions.insert(7, &asked("a/+")), Some(false));
        subscriptions.insert(8, &asked("a/#"));
        subscriptions.insert(8, &asked("a/b"));
        assert_eq!(readers(&mut subscriptions), [7, 8, 8]);
        assert!(subscriptions.remove(7, "a/+") && !subscriptions.remove(7, "a/+"));
        assert_eq!(readers(&mut subscriptions), [8, 8]);
        subscriptions.forget(8);
        assert!(readers(&mut subscriptions).is_empty());
    }

    #[test]
    fn a_session_has_a_bound_of_subscriptions_and_may_replace_one_at_the_bound() {
        let mut subscriptions = Subscriptions::default();
        let mut insert = |number: usize| subscriptions.insert(1, &asked(&format!("a/{number}")));
        assert_eq!((0..).take_while(|number| insert(*number).is_some()).count(), MAX_SUBSCRIPTIONS);
        assert_eq!(insert(0), Some(false));
    }
}
