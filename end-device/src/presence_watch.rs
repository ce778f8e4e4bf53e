//! Watches the device's own retained messages: its birth, by which the leader knows it, and its status.
//!
//! Anybody on the broker may clear or replace these messages: an operator who tidies up, a second device with the same id, a last will that
//! comes late. A broker whose access rules lack the device refuses the messages, and the leader does not see the device. The device then
//! publishes both messages again, after growing waits, so that two devices with one id replace each other's messages only rarely.
//!
//! ```text
//! other message or refusal -- 1 s --> publish -- 1 s --> publish -- 2 s --> ... -- 30 s --> publish
//!        own message found meanwhile: nothing to do        after a minute of quiet: from the start
//! ```
//!
//! A second device with the same id shows on every connect: the broker then sends the other device's birth, although this device has
//! published its own before.
//!
//! Times are microseconds since the device's start.

use bytes::Bytes;
use headwater_protocol::{Birth, Boot};

/// Wait before the first correction, in microseconds. After a connect the broker first sends the messages that it kept, and then those
/// that the device has just published.
const FIRST_WAIT_US: u64 = 1_000_000;

/// Time between the first two corrections, in microseconds; the time doubles with each further correction.
const SHORTEST_US: u64 = 1_000_000;

/// Longest time between two corrections, in microseconds.
const LONGEST_US: u64 = 30_000_000;

/// Time without a disturbance or correction, in microseconds, after which the next disturbance is logged again, and the waits between
/// corrections begin anew at [`SHORTEST_US`].
const QUIET_US: u64 = 60_000_000;

/// Reason to publish birth and status again: the broker has another birth or status than the device's, or refused one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Disturbance {
    /// The birth was removed.
    BirthCleared,
    /// The broker keeps the birth of another start, or of another device with the same id. The boot number is that of the birth; `None` if
    /// the birth cannot be read.
    OtherBirth(Option<Boot>),
    /// The broker keeps another status: a last will, or the status of another device with the same id.
    OtherStatus,
    /// The broker refused the birth or the status.
    Refused,
}

/// Order to publish the device's birth and status again.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Correction {
    /// Reason, for the log.
    pub(crate) disturbance: Disturbance,
    /// True if the disturbance should be logged: the first one after a time of quiet, and not a refusal.
    pub(crate) is_first: bool,
}

/// The device's own retained messages, and when to publish them again.
#[derive(Debug)]
pub(crate) struct PresenceWatch {
    /// The birth that the broker should keep.
    pub(crate) birth: Bytes,
    /// The status that the broker should keep.
    pub(crate) status: Bytes,
    other_birth: Option<Disturbance>,
    other_status: Option<Disturbance>,
    due_us: u64,
    distance_us: u64,
    corrected_us: Option<u64>,
    /// Time of the latest call of [`PresenceWatch::is_first`].
    disturbed_us: Option<u64>,
    /// True once the broker has sent this device's own birth: from then on no birth of an earlier start comes.
    has_own_birth: bool,
    /// True after the broker refused the birth, until the broker sends it.
    is_birth_refused: bool,
}

impl PresenceWatch {
    /// Watches messages with these payloads.
    pub(crate) fn new(birth: Bytes, status: Bytes) -> Self {
        Self {
            birth,
            status,
            other_birth: None,
            other_status: None,
            due_us: 0,
            distance_us: SHORTEST_US,
            corrected_us: None,
            disturbed_us: None,
            has_own_birth: false,
            is_birth_refused: false,
        }
    }

    /// Notes a birth that the broker sent; returns a disturbance that should be logged at once.
    pub(crate) fn birth(&mut self, found: &[u8], now_us: u64) -> Option<Disturbance> {
        let other = (*found != *self.birth).then(|| match found {
            [] => Disturbance::BirthCleared,
            found => {
                let other: Option<Birth> = serde_json::from_slice(found).ok();
                Disturbance::OtherBirth(other.map(|birth| birth.boot))
            }
        });
        self.has_own_birth |= other.is_none();
        self.other_birth = self.note(other, now_us);
        // Before the broker has sent this device's own birth, a different birth is that of an earlier start, which is not logged.
        let disturbance = self.other_birth.clone().filter(|_| self.has_own_birth)?;
        self.is_first(now_us).then_some(disturbance)
    }

    /// Notes that the broker refused the birth, so that a correction follows.
    pub(crate) fn birth_refused(&mut self, now_us: u64) {
        self.is_birth_refused = true;
        self.other_birth = self.note(Some(Disturbance::Refused), now_us);
    }

    /// Notes that the broker refused the status, so that a correction follows.
    pub(crate) fn status_refused(&mut self, now_us: u64) {
        self.other_status = self.note(Some(Disturbance::Refused), now_us);
    }

    /// True if `found` is the device's own birth, and the broker refused this birth before; true only once after a refusal.
    pub(crate) fn birth_taken(&mut self, found: &[u8]) -> bool {
        *found == *self.birth && std::mem::take(&mut self.is_birth_refused)
    }

    /// Notes a status that the broker sent.
    pub(crate) fn status(&mut self, found: &[u8], now_us: u64) {
        let other = (*found != *self.status).then_some(Disturbance::OtherStatus);
        self.other_status = self.note(other, now_us);
    }

    /// Forgets the disturbances: the link publishes both messages after every connect anyway.
    pub(crate) fn disconnected(&mut self) {
        (self.other_birth, self.other_status) = (None, None);
    }

    /// Time of the next correction; `None` without a disturbance.
    pub(crate) fn due_us(&self) -> Option<u64> {
        self.disturbance().map(|_| self.due_us)
    }

    /// The correction that is due now; `None` if no correction is due.
    pub(crate) fn correct(&mut self, now_us: u64) -> Option<Correction> {
        let disturbance = self.disturbance().filter(|_| self.due_us <= now_us)?.clone();
        self.disconnected();
        if is_quiet_since(self.corrected_us, now_us) {
            self.distance_us = SHORTEST_US;
        }
        let is_first = disturbance != Disturbance::Refused && self.is_first(now_us);
        self.corrected_us = Some(now_us);
        self.due_us = now_us.saturating_add(self.distance_us);
        self.distance_us = (2 * self.distance_us).min(LONGEST_US);
        Some(Correction { disturbance, is_first })
    }

    /// Returns `other`. If `other` is a disturbance and none was noted before, sets the time of the correction.
    fn note(&mut self, other: Option<Disturbance>, now_us: u64) -> Option<Disturbance> {
        if other.is_some() && self.disturbance().is_none() {
            self.due_us = self.due_us.max(now_us.saturating_add(FIRST_WAIT_US));
        }
        other
    }

    fn disturbance(&self) -> Option<&Disturbance> {
        self.other_birth.as_ref().or(self.other_status.as_ref())
    }

    /// Notes the time of a disturbance; true for the first disturbance in [`QUIET_US`].
    fn is_first(&mut self, now_us: u64) -> bool {
        is_quiet_since(self.disturbed_us.replace(now_us), now_us)
    }
}

fn is_quiet_since(event_us: Option<u64>, now_us: u64) -> bool {
    event_us.is_none_or(|event_us| event_us.saturating_add(QUIET_US) <= now_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHER: &[u8] = br#"{"schema":2,"device":"cam-0","slot":0,"boot":9,"software":"x","network":"0000000000000000000000000000000000000000000000000000000000000000"}"#;

    fn watch() -> PresenceWatch {
        PresenceWatch::new(Bytes::from_static(b"birth"), Bytes::from_static(b"up"))
    }

    #[test]
    fn own_messages_need_no_correction() {
        let mut watch = watch();
        watch.birth(b"birth", 0);
        watch.status(b"up", 0);
        assert_eq!((watch.due_us(), watch.correct(QUIET_US)), (None, None));
    }

    #[test]
    fn after_a_connect_the_kept_messages_of_an_earlier_start_are_no_disturbance() {
        let mut watch = watch();
        watch.birth(OTHER, 0);
        watch.status(b"down", 0);
        assert_eq!(watch.correct(FIRST_WAIT_US - 1), None);
        watch.birth(b"birth", 9);
        assert_eq!(watch.due_us(), Some(FIRST_WAIT_US), "the status is still another one");
        watch.status(b"up", 9);
        assert_eq!(watch.due_us(), None);
    }

    #[test]
    fn a_cleared_birth_is_published_again_and_logged_once() {
        let mut watch = watch();
        watch.birth(b"", 100);
        assert_eq!(watch.due_us(), Some(100 + FIRST_WAIT_US));
        let cleared = |is_first| Some(Correction { disturbance: Disturbance::BirthCleared, is_first });
        assert_eq!(watch.correct(100 + FIRST_WAIT_US), cleared(true));
        watch.birth(b"birth", FIRST_WAIT_US + 100);
        watch.birth(b"", FIRST_WAIT_US + 100);
        assert_eq!(watch.due_us(), Some(100 + FIRST_WAIT_US + SHORTEST_US), "at most once a second");
        assert_eq!(watch.correct(5_000_000), cleared(false));
    }

    #[test]
    fn the_birth_of_another_device_names_its_start() {
        for (found, boot) in [(OTHER, Some(Boot(9))), (b"{", None)] {
            let mut watch = watch();
            watch.birth(found, 0);
            let disturbance = watch.correct(FIRST_WAIT_US).unwrap().disturbance;
            assert_eq!(disturbance, Disturbance::OtherBirth(boot));
        }
    }

    #[test]
    fn two_devices_with_one_id_do_not_fight_at_full_speed() {
        let (mut watch, mut corrected) = (watch(), Vec::new());
        for now_us in (0..200_000_000).step_by(10_000) {
            watch.birth(OTHER, now_us);
            if watch.correct(now_us).is_some() {
                corrected.push(now_us / 1_000_000);
            }
        }
        assert_eq!(corrected, [1, 2, 4, 8, 16, 32, 62, 92, 122, 152, 182]);
    }

    #[test]
    fn a_refused_birth_is_tried_again_at_growing_distances_until_it_is_taken() {
        let (mut watch, mut tries) = (watch(), Vec::new());
        watch.birth_refused(0);
        watch.status_refused(1);
        for now_us in (0..200_000_000).step_by(10_000) {
            let Some(correction) = watch.correct(now_us) else { continue };
            assert_eq!(correction, Correction { disturbance: Disturbance::Refused, is_first: false });
            tries.push(now_us / 1_000_000);
            if now_us < 60_000_000 {
                watch.birth_refused(now_us);
                watch.status_refused(now_us);
            } else {
                watch.birth(b"birth", now_us);
                assert!(watch.birth_taken(b"birth") && !watch.birth_taken(b"birth"), "said once");
            }
        }
        assert_eq!(tries, [1, 2, 4, 8, 16, 32, 62]);
    }

    #[test]
    fn after_a_minute_of_quiet_a_correction_is_soon_and_logged_again() {
        let mut watch = watch();
        for at in 0..6 {
            watch.status(b"down", at * 30_000_000);
            watch.correct(at * 30_000_000 + FIRST_WAIT_US);
        }
        let now_us = 5 * 30_000_000 + 2 * QUIET_US;
        watch.status(b"down", now_us);
        let correction = watch.correct(now_us + FIRST_WAIT_US);
        assert_eq!(correction, Some(Correction { disturbance: Disturbance::OtherStatus, is_first: true }));
        assert_eq!(watch.distance_us, 2 * SHORTEST_US);
    }

    #[test]
    fn a_second_device_that_takes_the_connection_away_is_logged_once() {
        let mut watch = watch();
        assert_eq!(watch.birth(OTHER, 0), None, "an earlier start");
        assert_eq!(watch.birth(b"birth", 1), None);
        let mut logged = Vec::new();
        for reconnect in 1..100 {
            watch.disconnected();
            logged.extend(watch.birth(OTHER, reconnect * 4_000_000));
            logged.extend(watch.birth(b"birth", reconnect * 4_000_000 + 9));
            assert_eq!(watch.due_us(), None, "every connect publishes both messages anyway");
        }
        assert_eq!(logged, [Disturbance::OtherBirth(Some(Boot(9)))]);
    }

    #[test]
    fn a_lost_connection_ends_what_was_found() {
        let mut watch = watch();
        watch.birth(b"", 0);
        watch.status_refused(0);
        watch.disconnected();
        assert_eq!((watch.due_us(), watch.correct(QUIET_US)), (None, None));
    }
}
