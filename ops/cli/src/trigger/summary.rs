//! Output of `headwater trigger`.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::time::Duration;

use headwater_protocol::{Decision, Dropped, Undecided};
use serde::Serialize;

use super::Run;

/// Account of a run. Without `--watch` the run does not wait for results, so the counts of results are incomplete.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Summary {
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) triggered: u64,
    /// Samples that were decided.
    pub(super) decided: u64,
    /// Samples that the group dropped during the run, by reason; samples that other programs triggered count too.
    pub(super) dropped: BTreeMap<Dropped, u64>,
    /// Samples that were neither decided nor dropped.
    pub(super) without_result: u64,
    /// True when the run waited for results (`--watch`).
    pub(super) watched: bool,
}

impl Summary {
    pub(super) fn of(run: &Run<'_>) -> Self {
        let account = run.client.account();
        Self {
            first: run.plan.first().0,
            last: run.plan.last().0,
            triggered: run.sent,
            decided: account.decided_count,
            dropped: account.dropped(),
            without_result: account.unsettled_count(),
            watched: run.args.watch,
        }
    }

    /// A sentence about samples without a decision. `None` if every sample was decided, or the run did not wait for results.
    pub(super) fn not_decided(&self) -> Option<String> {
        let undecided = self.triggered.saturating_sub(self.decided);
        (self.watched && undecided > 0).then(|| {
            let dropped = crate::named(self.dropped.iter().map(|(reason, count)| (reason.name(), count)));
            format!("{undecided} of {} samples were not decided; dropped: {dropped}", self.triggered)
        })
    }
}

impl Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.triggered {
            1 => write!(f, "triggered sample {}", self.first)?,
            many => write!(f, "triggered {many} samples, {} to {}", self.first, self.last)?,
        }
        if !self.watched {
            return Ok(());
        }
        write!(f, "; decided {}", self.decided)?;
        self.dropped
            .iter()
            .try_for_each(|(reason, count)| write!(f, ", dropped {} {count}", reason.name()))?;
        write!(f, ", without result {}", self.without_result)
    }
}

/// One result as a line of text.
pub(crate) fn result_line(decision: &Decision, latency: Option<Duration>) -> String {
    let Decision { sample, label, undecided, confidence, exit, .. } = decision;
    let mut line = match (label, undecided) {
        (Some(label), _) => {
            format!("sample {sample}  {label}  confidence {confidence:.2}  exit {}", exit.name())
        }
        (None, Some(Undecided::Unsure)) => {
            format!("sample {sample}  undecided: unsure  confidence {confidence:.2}  exit {}", exit.name())
        }
        (None, reason) => {
            format!("sample {sample}  undecided: {}", reason.unwrap_or(Undecided::Unknown).name())
        }
    };
    if let Some(latency) = latency {
        line += &format!("  {:.1} ms", latency.as_secs_f64() * 1e3);
    }
    let files: Vec<_> = decision.views.iter().filter_map(|view| view.file.as_deref()).collect();
    if !files.is_empty() {
        line += &format!("  of {}", files.join(", "));
    }
    if !decision.degraded.is_empty() {
        let reasons: Vec<_> = decision.degraded.iter().map(|reason| reason.name()).collect();
        line += &format!("  degraded {}", reasons.join(", "));
    }
    if decision.presence.missing_count() > 0 {
        line += &format!("  missing {}", decision.missing.join(", "));
    }
    crate::escaped(&line)
}

#[cfg(test)]
mod tests {
    use headwater_protocol::{Degraded, Presence, Slot, SlotView, testing};

    use super::*;

    #[test]
    fn a_result_is_one_line_with_what_a_person_asks_first() {
        let mut decision = Decision {
            label: Some("dress".into()),
            confidence: 0.934,
            presence: Presence::missing(2),
            missing: vec!["cam-0".into(), "slot 1".into()],
            degraded: vec![Degraded::CloudTimeout, Degraded::Late],
            ..testing::decision(17)
        };
        assert_eq!(
            result_line(&decision, Some(Duration::from_micros(12_340))),
            "sample 17  dress  confidence 0.93  exit local  12.3 ms  degraded cloud_timeout, late  missing cam-0, slot 1"
        );
        decision.degraded = vec![Degraded::DeviceMissing];
        assert_eq!(
            result_line(&decision, None),
            "sample 17  dress  confidence 0.93  exit local  degraded device_missing  missing cam-0, slot 1"
        );
        (decision.degraded, decision.presence) = (Vec::new(), Presence::missing(0));
        assert_eq!(result_line(&decision, None), "sample 17  dress  confidence 0.93  exit local");
        let view = |file: Option<&str>| SlotView {
            slot: Slot::first(1).next().unwrap(),
            device: None,
            captured_at: None,
            frame: Some(17),
            file: file.map(Into::into),
        };
        decision.views = vec![view(Some("a\nb"))];
        assert!(result_line(&decision, None).ends_with(r"  of a\nb"));
        decision.views = vec![view(Some("belt/17.jpg")), view(None)];
        let expected = "sample 17  dress  confidence 0.93  exit local  of belt/17.jpg";
        assert_eq!(result_line(&decision, None), expected);
        decision.views.clear();
        (decision.label, decision.undecided) = (None, Some(Undecided::NoView));
        assert_eq!(result_line(&decision, None), "sample 17  undecided: no_view");
        decision.undecided = Some(Undecided::Unsure);
        assert_eq!(result_line(&decision, None), "sample 17  undecided: unsure  confidence 0.93  exit local");
    }

    #[test]
    fn the_account_says_what_is_known() {
        let mut summary = Summary {
            first: 5,
            last: 7,
            triggered: 3,
            decided: 1,
            dropped: [(Dropped::Shed, 1)].into(),
            without_result: 1,
            watched: true,
        };
        assert_eq!(
            summary.to_string(),
            "triggered 3 samples, 5 to 7; decided 1, dropped shed 1, without result 1"
        );
        let not_decided = summary.not_decided().unwrap();
        assert_eq!(not_decided, "2 of 3 samples were not decided; dropped: shed 1");
        summary.decided = 3;
        assert_eq!(summary.not_decided(), None);
        (summary.watched, summary.triggered, summary.decided) = (false, 1, 0);
        assert_eq!(summary.not_decided(), None, "nobody waited for results");
        assert_eq!(summary.to_string(), "triggered sample 5");
    }
}
