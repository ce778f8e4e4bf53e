//! The samples of a run, with the time at which each is triggered.

use std::time::Duration;

use headwater_protocol::SampleId;

use super::list::{ListedSample, SampleList};

/// Samples in the order in which they are triggered.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    samples: Samples,
    /// Samples per second; not used if the list has times.
    rate: f64,
}

#[derive(Clone, Debug, PartialEq)]
enum Samples {
    /// At least one id, each one higher than the id before by 1.
    Range { first: u64, count: u64 },
    /// At least one id, each one higher than the id before.
    List(Vec<ListedSample>),
}

impl Plan {
    /// `count` samples with ids from `first` on; `None` if ids would exceed 64 bits. `count` is at least 1.
    pub(super) fn range(first: u64, count: u64, rate: f64) -> Option<Self> {
        first.checked_add(count - 1)?;
        Some(Self { samples: Samples::Range { first, count }, rate })
    }

    pub(super) fn list(list: SampleList, rate: f64) -> Self {
        Self { samples: Samples::List(list.0), rate }
    }

    pub(super) fn count(&self) -> u64 {
        match &self.samples {
            Samples::Range { count, .. } => *count,
            Samples::List(list) => list.len() as u64,
        }
    }

    /// The sample at this place in the order of the run, from 0 on.
    pub(super) fn sample(&self, place: u64) -> SampleId {
        SampleId(match &self.samples {
            Samples::Range { first, .. } => first + place,
            Samples::List(list) => list[place as usize].id,
        })
    }

    pub(super) fn first(&self) -> SampleId {
        self.sample(0)
    }

    pub(super) fn last(&self) -> SampleId {
        self.sample(self.count() - 1)
    }

    /// Time from the start of the run to the trigger at this place.
    pub(super) fn due(&self, place: u64) -> Duration {
        let listed = match &self.samples {
            Samples::Range { .. } => None,
            Samples::List(list) => list[place as usize].at_ms,
        };
        listed.map_or_else(|| Duration::from_secs_f64(place as f64 / self.rate), Duration::from_millis)
    }

    /// Returns true when `sample` is one of the first `sent` samples of the plan.
    pub(super) fn has_sent(&self, sample: SampleId, sent: u64) -> bool {
        match &self.samples {
            Samples::Range { first, .. } => sample.0.checked_sub(*first).is_some_and(|place| place < sent),
            Samples::List(list) => {
                let place = list.binary_search_by_key(&sample.0, |listed| listed.id);
                place.is_ok_and(|place| (place as u64) < sent)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_goes_at_its_rate() {
        let plan = Plan::range(5, 3, 10.0).unwrap();
        assert_eq!((plan.first(), plan.last(), plan.count()), (SampleId(5), SampleId(7), 3));
        assert_eq!((plan.due(0), plan.due(2)), (Duration::ZERO, Duration::from_millis(200)));
        let sent: Vec<_> = (4..9).map(|id| plan.has_sent(SampleId(id), 2)).collect();
        assert_eq!(sent, [false, true, true, false, false]);
        assert_eq!(Plan::range(u64::MAX, 2, 1.0), None);
    }

    #[test]
    fn a_list_goes_at_its_times_or_at_the_rate() {
        let list = |text: &str| SampleList::read("list", text.as_bytes()).unwrap();
        let timed = Plan::list(list("4,0\n9,250\n"), 1.0);
        assert_eq!((timed.sample(1), timed.due(1)), (SampleId(9), Duration::from_millis(250)));
        assert!(
            timed.has_sent(SampleId(4), 1)
                && !timed.has_sent(SampleId(9), 1)
                && !timed.has_sent(SampleId(5), 2)
        );
        let paced = Plan::list(list("4\n9\n"), 2.0);
        assert_eq!((paced.due(1), paced.count()), (Duration::from_millis(500), 2));
    }
}
