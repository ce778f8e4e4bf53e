//! The ends of the samples of a period: each sample must have one decision or one drop with its reason, and the right answer.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use headwater_group::{GroupClient, GroupError};
use headwater_protocol::{Decision, Dropped, Exit, SampleId, SlotPresence};
use tokio::time::sleep;

use super::{DEVICES, LIMIT, PERIOD_MS, Part, Site};
use crate::journal_contents::JournalContents;

/// Frames of the shipped archive. Sample `id` has the frame `id % FRAMES`.
const FRAMES: u64 = 300;

/// Longest wait for the clients to receive all decisions, once all samples have ended.
const SEEN_WITHIN: Duration = Duration::from_secs(5);

/// Exit and class of the complete decisions for each frame, from a time without faults.
pub type Reference = BTreeMap<u64, (Exit, Option<u16>)>;

/// The samples of a period.
#[derive(Clone, Debug)]
pub struct SampleRange {
    /// Ids of the samples, which are the same in all groups.
    pub samples: RangeInclusive<u64>,
    /// For each group: [`Site::missed_by_all`] before the period.
    missed_before: Vec<u64>,
}

impl SampleRange {
    /// A range of this number of samples, which begins with the next sample.
    pub fn begin(site: &Site, samples: u64) -> Self {
        let first = sample_now() + 1;
        let missed_before = site.groups.iter().map(|group| site.missed_by_all(group)).collect();
        Self { samples: first..=first + samples - 1, missed_before }
    }

    /// The range with the present sample as its last.
    pub fn ended_now(self) -> Self {
        Self { samples: *self.samples.start()..=sample_now(), ..self }
    }
}

impl Site {
    /// The smallest number of missed captures in the logs of a group's devices: at most this many samples were missed by all of the devices.
    fn missed_by_all(&self, group: &str) -> u64 {
        let index = self.groups.iter().position(|name| name == group).unwrap_or_default();
        let missed = (0..DEVICES).map(|slot| {
            let log =
                std::fs::read_to_string(self.log(Part::Device { group: index, slot })).unwrap_or_default();
            let counts = log.lines().filter(|line| line.contains("captures missed"));
            let counts = counts
                .filter_map(|line| line.split_once("missed=")?.1.split(' ').next()?.parse::<u64>().ok());
            counts.sum()
        });
        missed.min().unwrap_or_default()
    }
}

/// The ends of the samples of a group.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Samples with a decision.
    pub decided: u64,
    /// Decided samples in which no slot is missing and nothing is degraded.
    pub complete: u64,
    /// Number of drops by reason.
    pub dropped: BTreeMap<Dropped, u64>,
    /// Samples that are neither decided nor dropped.
    pub open: Vec<u64>,
    /// Samples that ended and whose end is no longer in the journal, because the journal was compacted.
    pub compacted: u64,
    /// Most samples that all devices may have missed: on a busy machine all devices may be late for a sample.
    pub missed: u64,
    /// Samples with two different decisions, and samples with a decision and a drop. A sample with both is counted twice.
    pub contradicted: u64,
    /// Complete samples whose class or exit differs from the reference.
    pub wrong: Vec<u64>,
    /// Decisions in the journal that the client did not receive: a killed broker loses messages that it has not passed on yet.
    pub unseen: u64,
}

impl Outcome {
    /// Samples without an end, less `missed`.
    pub fn lost(&self) -> u64 {
        (self.open.len() as u64).saturating_sub(self.missed)
    }

    /// True when every captured sample has exactly one end, and no complete answer is wrong.
    pub fn is_sound(&self) -> bool {
        self.lost() == 0 && self.contradicted == 0 && self.wrong.is_empty()
    }
}

/// Id of the sample that is due now.
pub fn sample_now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_millis() as u64 / PERIOD_MS
}

/// Receives the messages of every client for a time. Messages that cannot be read are skipped, since rogue clients send such messages.
///
/// # Panics
/// When a client has ended.
pub async fn receive(clients: &mut [GroupClient], time: Duration) {
    let until = Instant::now() + time;
    loop {
        for client in clients.iter_mut() {
            loop {
                match client.try_next() {
                    Ok(None) => break,
                    Ok(Some(_)) | Err(GroupError::Message { .. }) => {}
                    Err(ended) => panic!("a client: {ended}"),
                }
            }
        }
        if Instant::now() >= until {
            return;
        }
        sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until every sample of the range has ended and the clients have received the decisions, at most [`LIMIT`]. Returns the outcome of
/// each group.
///
/// # Panics
/// As [`receive`], and for a sample that was decided or dropped twice.
pub async fn outcomes(
    site: &Site,
    clients: &mut [GroupClient],
    SampleRange { samples, missed_before }: SampleRange,
    reference: &Reference,
) -> Vec<Outcome> {
    let (until, mut ended) = (Instant::now() + LIMIT, None);
    loop {
        receive(clients, Duration::from_millis(500)).await;
        let outcomes: Vec<_> = site
            .groups
            .iter()
            .zip(clients.iter())
            .zip(&missed_before)
            .map(|((group, client), before)| {
                let mut outcome =
                    outcome(&JournalContents::read(&site.journal(group)), client, &samples, reference);
                outcome.missed = site.missed_by_all(group).saturating_sub(*before);
                outcome
            })
            .collect();
        let have_ended = outcomes.iter().all(|outcome| outcome.lost() == 0);
        let are_seen = outcomes.iter().all(|outcome| outcome.unseen == 0);
        // A decision that a client has not received by this time is lost.
        let seen_until = if have_ended { *ended.get_or_insert(Instant::now() + SEEN_WITHIN) } else { until };
        if (have_ended && are_seen) || Instant::now() >= seen_until.min(until) {
            return outcomes;
        }
    }
}

fn outcome(
    journal: &JournalContents,
    client: &GroupClient,
    samples: &RangeInclusive<u64>,
    reference: &Reference,
) -> Outcome {
    let mut outcome = Outcome::default();
    for sample in samples.clone().map(SampleId) {
        let is_contradicted = client.account().sample(sample).is_some_and(|sample| sample.is_contradicted);
        outcome.contradicted += u64::from(is_contradicted);
        match (journal.decided.get(&sample), journal.dropped.get(&sample)) {
            (Some(decision), None) => {
                outcome.decided += 1;
                outcome.unseen += u64::from(client.account().decision(sample).is_none());
                if is_complete(decision) {
                    outcome.complete += 1;
                    let expected = reference.get(&(sample.0 % FRAMES));
                    if expected.is_some_and(|expected| *expected != (decision.exit, decision.class)) {
                        outcome.wrong.push(sample.0);
                    }
                }
            }
            (None, Some(reason)) => *outcome.dropped.entry(*reason).or_default() += 1,
            // A compacted journal says that an old sample has ended, but not how.
            (None, None) if journal.closed.iter().any(|(first, last)| (*first..=*last).contains(&sample)) => {
                outcome.compacted += 1;
            }
            // Two ends of one sample contradict each other.
            (Some(_), Some(_)) => outcome.contradicted += 1,
            (None, None) => outcome.open.push(sample.0),
        }
    }
    outcome
}

/// True when no slot is missing and the decision is not degraded.
fn is_complete(decision: &Decision) -> bool {
    let mut slots = decision.presence.iter();
    decision.degraded.is_empty() && slots.all(|(_, presence)| presence != SlotPresence::Missing)
}

/// Waits until a running site without faults has a complete decision for each frame, and returns the reference.
///
/// # Panics
/// When two complete decisions of one frame differ, and when a frame has no complete decision in time.
pub async fn reference(site: &Site, clients: &mut [GroupClient]) -> Reference {
    let until = Instant::now() + LIMIT;
    loop {
        receive(clients, Duration::from_millis(500)).await;
        let mut answers = Reference::new();
        let mut differing = BTreeSet::new();
        for client in clients.iter() {
            for decision in client.account().decisions().filter(|decision| is_complete(decision)) {
                let answer = (decision.exit, decision.class);
                let frame = decision.sample.0 % FRAMES;
                if answers.insert(frame, answer).is_some_and(|before| before != answer) {
                    differing.insert(frame);
                }
            }
        }
        assert!(differing.is_empty(), "frames with two answers: {differing:?}");
        if answers.len() as u64 == FRAMES {
            return answers;
        }
        let found = answers.len();
        assert!(Instant::now() < until, "{found} of {FRAMES} frames; see {}", site.folder.display());
    }
}
