//! Start of topic aliases on a connection, after the retained messages.
//!
//! A topic with an alias costs its name once on a connection, and three bytes in each later message. A broker may allow few aliases, and
//! topics take them in the order of their first messages. The retained messages come first, once on a connection, so they take none.
//!
//! ```text
//! CONNACK ── retained messages, no alias ──> first message of a topic: name and alias ──> later messages: alias alone
//! ```

/// Number of aliases that the present connection allows, held back until the retained messages are written.
#[derive(Debug, Default)]
pub(crate) struct AliasStart {
    /// Largest alias that the broker takes; 0 for none.
    max: u16,
    /// Retained messages that are still to be written.
    retained_left: usize,
}

impl AliasStart {
    /// Notes an accepted connection. Returns the largest alias that may be used now; 0 for none.
    pub(crate) fn accepted(&mut self, max: u16, retained: usize) -> u16 {
        *self = Self { max, retained_left: retained };
        if retained == 0 { max } else { 0 }
    }

    /// Notes a written message. Returns the largest alias if the message was the last retained one, otherwise `None`.
    pub(crate) fn published(&mut self) -> Option<u16> {
        let is_last = self.retained_left == 1;
        self.retained_left = self.retained_left.saturating_sub(1);
        is_last.then_some(self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aliases_begin_after_the_retained_messages_of_each_connection() {
        let mut aliases = AliasStart::default();
        for max in [10, 3] {
            assert_eq!(aliases.accepted(max, 2), 0);
            let found: Vec<_> = (0..4).map(|_| aliases.published()).collect();
            assert_eq!(found, [None, Some(max), None, None]);
        }
        assert_eq!((aliases.accepted(7, 0), aliases.published()), (7, None));
    }
}
