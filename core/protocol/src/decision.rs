//! The answer to one sample, and the account of all samples.

use std::collections::BTreeMap;

use serde::de::IntoDeserializer;
use serde::de::value::StrDeserializer;
use serde::{Deserialize, Deserializer, Serialize};

use crate::exit::Exit;
use crate::exit_record::{AppliedExit, LeaveReason, TimeSource};
use crate::ids::{DeviceId, NetworkId, PolicyId, SampleId, Slot};
use crate::json_version::Schema;
use crate::presence::Presence;
use crate::utc_time::UtcTime;
use crate::words::{is_default, words};

words! {
    /// Reason why an answer may differ from that of the complete network.
    Degraded {
        /// The cloud did not answer in time.
        CloudTimeout = "cloud_timeout",
        /// The cloud answered with an error.
        CloudRefused = "cloud_refused",
        /// No connection to the cloud.
        CloudUnreachable = "cloud_unreachable",
        /// The cloud was not asked because it had failed too often.
        CloudBreakerOpen = "cloud_breaker_open",
        /// A device with a view did not deliver its features in time.
        FeaturesMissing = "features_missing",
        /// A slot had no device that answered in time.
        DeviceMissing = "device_missing",
        /// No device had a view.
        NoView = "no_view",
        /// The sample's first message was sent again or came from a spool, or came after the sample's deadline.
        Late = "late",
    }
    /// A reason of a later version.
    Unknown
}

impl Degraded {
    /// Names of the reasons why the cloud gave no answer, as far as this version knows them.
    pub const OF_CLOUD: [&'static str; 4] = [
        Self::CloudTimeout.name(),
        Self::CloudRefused.name(),
        Self::CloudUnreachable.name(),
        Self::CloudBreakerOpen.name(),
    ];
}

words! {
    /// Reason why a sample ended without a class.
    Undecided {
        /// No device had a view.
        NoView = "no_view",
        /// The cloud did not answer, and no exit comes before it.
        NoExit = "no_exit",
        /// No exit was sure, and the confidence of the answer is below the policy's `claim_above`.
        Unsure = "unsure",
    }
    /// A reason of a later version.
    Unknown
}

words! {
    /// Reason why a sample got no answer.
    Dropped {
        /// The sample was open when the leader stopped.
        Restart = "restart",
        /// Too many samples were open.
        Shed = "shed",
        /// No device answered, and at least one had given the sample up.
        SpoolFull = "spool_full",
        /// A triggered sample that no device answered.
        Unanswered = "unanswered",
        /// The id was not plausible.
        Implausible = "implausible",
        /// The leader no longer knows whether the sample was decided.
        TooOld = "too_old",
        /// The broker refused the result.
        ResultRefused = "result_refused",
    }
    /// A reason of a later version.
    Unknown
}

impl Dropped {
    /// The reason with the name `name`; [`Dropped::Unknown`] for any other name.
    fn from_name(name: &str) -> Self {
        let name: StrDeserializer<'_, serde::de::value::Error> = name.into_deserializer();
        Self::deserialize(name).unwrap_or_default()
    }
}

/// The answer to one sample. A sample never has two different decisions; a revision is sent apart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Decision {
    /// Version of the message.
    pub schema: Schema<2>,
    /// The sample.
    pub sample: SampleId,
    /// Time of capture; `None` where no device in time told it, as for triggered samples from a spool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub captured_at: Option<UtcTime>,
    /// Origin of the capture time.
    #[serde(default, skip_serializing_if = "is_default")]
    pub captured_by: TimeSource,
    /// Index of the class in the network's labels; `None` where the sample is undecided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<u16>,
    /// Name of the class in the network's labels; `None` where the sample is undecided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Reason why there is no class; `None` where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undecided: Option<Undecided>,
    /// One minus the exit's uncertainty, in `[0, 1]`; 0 where no exit was applied.
    pub confidence: f32,
    /// Exit at which the sample left; the shallowest one where no exit was applied.
    pub exit: Exit,
    /// Reason why the sample left there.
    #[serde(default, skip_serializing_if = "is_default")]
    pub left: LeaveReason,
    /// Every exit that was applied, shallowest first; none if no view came, or no exit could answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exits: Vec<AppliedExit>,
    /// View of each slot at that exit.
    pub presence: Presence,
    /// Names of the devices whose slots are missing in `presence`, in the order of the slots; `slot 3` where no device is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// Reasons why the answer may differ from that of the complete network; usually none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub degraded: Vec<Degraded>,
    /// The network that decided.
    pub network: NetworkId,
    /// The policy under which it decided.
    pub policy: PolicyId,
    /// Time at each stage.
    pub stages: Stages,
    /// Body bytes on each hop.
    pub bytes: HopBytes,
    /// Present slots in their order: all of them where the group's setting `details` is on, else those whose devices name their frames.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub views: Vec<SlotView>,
    /// Calibrated probability of each class at `exit`, in the order of the network's labels: softmax of the exit's logits divided by its
    /// temperature. Only in a result with `views`; absent where no exit was applied, and where the leader does not know the logits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scores: Vec<f32>,
    /// Answer of the latest decisions together; `None` without the group's `smoothing`, without votes, and in a revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub smoothed: Option<Smoothed>,
}

/// Answer of the latest decisions of a group together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Smoothed {
    /// Index of the class in the network's labels.
    pub class: u16,
    /// Name of the class in the network's labels.
    pub label: String,
    /// Share of the votes, in `[0, 1]`.
    pub confidence: f32,
    /// Number of decisions that voted.
    pub of: u32,
}

/// The view of one present slot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SlotView {
    /// The slot.
    pub slot: Slot,
    /// Name of the slot's device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Time of capture: the leader's wall clock when the device's answer came, less the age that the answer names. `None` for a late
    /// answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub captured_at: Option<UtcTime>,
    /// Number of the frame in its source, from 0 at the device's start; `None` where the device does not name its frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frame: Option<u64>,
    /// File of the frame, relative to the source's folder; `None` where the device names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}

/// The message on `result`: a decision, and whether it may have been published before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ResultMessage {
    /// The decision.
    #[serde(flatten)]
    pub decision: Decision,
    /// Whether the leader publishes the decision again, unchanged: after a restart, or where the broker has not acknowledged it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub republished: bool,
}

/// Microseconds from capture to the end of each stage, at least 1; 0 for a stage whose end the sample did not reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Stages {
    /// First message at the leader: its age at sending, which the device writes in ms.
    pub opened_us: u64,
    /// End of the window: the last summary, or the time limit.
    pub window_us: u64,
    /// End of the wait for features.
    pub features_us: u64,
    /// End of the wait for edges.
    #[serde(default)]
    pub edge_us: u64,
    /// Answer or failure of the cloud.
    pub cloud_us: u64,
    /// The decision.
    pub decided_us: u64,
}

/// Bytes of message bodies that the sample needed on each hop. `edge` in a field's name is the aggregator's place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HopBytes {
    /// Hop from the devices to the leader or an edge.
    pub device_edge: u64,
    /// Body bytes that edges in other processes sent to the leader; 0 for edges in its process.
    #[serde(default)]
    pub edge_leader: u64,
    /// Hop from the leader to the cloud.
    pub edge_cloud: u64,
}

/// The leader's account of all samples. Devices free memory and spool by it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Settled {
    /// Every sample up to this id that was opened in time is decided or dropped, or awaited after a restart.
    pub highest: SampleId,
    /// Samples decided since the journal began.
    pub decided: u64,
    /// Samples dropped since the journal began, by reason. Reasons of later versions share one count.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "by_reason")]
    #[cfg_attr(feature = "schema", schemars(with = "BTreeMap<String, u64>"))]
    pub dropped: BTreeMap<Dropped, u64>,
}

fn by_reason<'de, D: Deserializer<'de>>(counts: D) -> Result<BTreeMap<Dropped, u64>, D::Error> {
    let mut dropped = BTreeMap::new();
    for (name, count) in BTreeMap::<String, u64>::deserialize(counts)? {
        let sum: &mut u64 = dropped.entry(Dropped::from_name(&name)).or_default();
        *sum = sum.saturating_add(count);
    }
    Ok(dropped)
}

/// The message on `settled`: the account, and the samples for which it holds.
///
/// The leader does not know of samples whose messages never reached it. So a device frees what `closed` or `late` names. It sends all other
/// samples again, marked late, until it reads their ids.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SettledNotice {
    /// Version of the message.
    pub schema: Schema<2>,
    /// The account.
    #[serde(flatten)]
    pub account: Settled,
    /// Samples of late messages that are decided or dropped now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub late: Vec<SampleId>,
    /// Closed samples as ranges, first and last id, the newest [`SettledNotice::MAX_RANGES`].
    pub closed: Vec<(SampleId, SampleId)>,
    /// Devices that the leader refuses now, at most [`SettledNotice::MAX_REFUSED`], and the reason: their answers count for nothing.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub refused: BTreeMap<DeviceId, String>,
    /// Longest time, ms, for which a device may collect answers into one message of the kind `batch`. Absent while no device of the group
    /// sends batches, and from leaders that read none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_ms: Option<u32>,
}

impl SettledNotice {
    /// Largest number of ids in [`SettledNotice::late`]; further ids follow in the next notice.
    pub const MAX_LATE: usize = 1024;

    /// Largest number of ranges in [`SettledNotice::closed`].
    pub const MAX_RANGES: usize = 512;

    /// Largest number of devices in [`SettledNotice::refused`].
    pub const MAX_REFUSED: usize = 16;

    /// Longest reason of a refused device, in characters.
    pub const MAX_REASON_CHARS: usize = 200;

    /// True if a range of this notice contains `sample`.
    pub fn covers(&self, sample: SampleId) -> bool {
        self.closed.iter().any(|(first, last)| (*first..=*last).contains(&sample))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A decision of a network with six devices, one of them missing.
    const DECISION: &str = r#"{"schema":2,"sample":1763856000123,"class":3,"label":"dress","confidence":0.9374,"exit":"cloud","presence":["present","not_in_view","present","missing","present","present"],"degraded":["features_missing"],"network":"1f0c2d0000000000000000000000000000000000000000000000000000000000","policy":"83aa1c0000000000","stages":{"opened_us":900,"window_us":2400,"features_us":4100,"edge_us":0,"cloud_us":9400,"decided_us":9450},"bytes":{"device_edge":660,"edge_leader":0,"edge_cloud":606}}"#;

    #[test]
    fn a_decision_of_another_schema_is_refused_by_its_number() {
        for (found, text) in [("1", r#""schema":1,"#), ("1", ""), ("3", r#""schema":3,"#)] {
            let other = DECISION.replace(r#""schema":2,"#, text);
            let error = serde_json::from_str::<ResultMessage>(&other).unwrap_err().to_string();
            let expected = format!("expected schema 2, found schema {found}: use programs of one release");
            assert!(error.starts_with(&expected), "{error}");
        }
    }

    #[test]
    fn a_decision_says_when_why_and_without_whom_in_few_bytes() {
        let first: Decision = serde_json::from_str(DECISION).unwrap();
        let local = AppliedExit { exit: Exit::LOCAL, confidence: 0.4127, threshold_confidence: Some(0.7) };
        let cloud = AppliedExit { exit: Exit::CLOUD, confidence: 0.9374, threshold_confidence: None };
        let decision = Decision {
            captured_at: UtcTime::from_ms(first.sample.0),
            captured_by: TimeSource::Source,
            left: LeaveReason::LastExit,
            exits: vec![local, cloud],
            missing: vec!["cam-3".into()],
            ..first
        };
        let text = serde_json::to_string(&decision).unwrap();
        let new = r#"{"schema":2,"sample":1763856000123,"captured_at":"2025-11-23T00:00:00.123Z","captured_by":"source","class":3,"#;
        assert!(text.starts_with(new), "{text}");
        let new = r#""exit":"cloud","left":"last_exit","exits":[{"exit":"local","confidence":0.4127,"threshold_confidence":0.7},{"exit":"cloud","confidence":0.9374}],"presence""#;
        assert!(text.contains(new), "{text}");
        assert!(text.contains(r#""missing":["cam-3"],"degraded""#), "{text}");
        assert_eq!(serde_json::from_str::<Decision>(&text).unwrap(), decision);
        // Bytes of the JSON: without time, exits and missing devices; with all of these; with the time and one exit, no missing device.
        let sure = Decision { exits: vec![local], missing: Vec::new(), left: LeaveReason::Sure, ..decision };
        let sure_bytes = serde_json::to_string(&sure).unwrap().len();
        assert_eq!((DECISION.len(), text.len(), sure_bytes), (480, 694, 632));
    }

    #[test]
    fn a_decision_names_the_frames_of_its_views_where_they_are_known() {
        let slot = |position| Slot::new(position).unwrap();
        let named = SlotView {
            slot: slot(0),
            device: Some("cam-0".into()),
            captured_at: UtcTime::from_ms(1_763_856_000_123),
            frame: Some(17),
            file: Some("belt/0017.jpg".into()),
        };
        let unnamed = SlotView { slot: slot(2), device: None, captured_at: None, frame: None, file: None };
        let first: Decision = serde_json::from_str(DECISION).unwrap();
        assert!(first.views.is_empty() && first.scores.is_empty());
        let decision = Decision { views: vec![named, unnamed], scores: vec![0.25, 0.75], ..first };
        let text = serde_json::to_string(&decision).unwrap();
        let expected = r#""views":[{"slot":0,"device":"cam-0","captured_at":"2025-11-23T00:00:00.123Z","frame":17,"file":"belt/0017.jpg"},{"slot":2}],"scores":[0.25,0.75]}"#;
        assert!(text.ends_with(expected), "{text}");
        assert_eq!(serde_json::from_str::<Decision>(&text).unwrap(), decision);
    }

    #[test]
    fn a_result_is_a_decision_and_a_repeat_carries_its_mark() {
        let decision: Decision = serde_json::from_str(DECISION).unwrap();
        let first = ResultMessage { decision, republished: false };
        assert_eq!(serde_json::to_string(&first).unwrap(), DECISION);
        let repeat = ResultMessage { republished: true, ..first.clone() };
        let text = serde_json::to_string(&repeat).unwrap();
        assert_eq!(text, format!("{},\"republished\":true}}", DECISION.strip_suffix('}').unwrap()));
        for message in [first, repeat] {
            let text = serde_json::to_string(&message).unwrap();
            assert_eq!(serde_json::from_str::<ResultMessage>(&text).unwrap(), message);
        }
    }

    #[test]
    fn a_reason_of_a_later_version_is_read_and_freed_by() {
        let text = r#"{"schema":2,"highest":9,"decided":8,"dropped":{"shed":1,"eaten":2,"sunk":3,"too_old":4},"closed":[]}"#;
        let notice: SettledNotice = serde_json::from_str(text).unwrap();
        let expected = [(Dropped::Shed, 1), (Dropped::TooOld, 4), (Dropped::Unknown, 5)];
        assert_eq!(notice.account.dropped, expected.into());
    }

    #[test]
    fn a_notice_with_ranges_covers_exactly_what_the_ranges_contain() {
        let account = Settled { highest: SampleId(9), ..Settled::default() };
        let closed = vec![(SampleId(2), SampleId(4)), (SampleId(7), SampleId(7))];
        let late = vec![SampleId(5)];
        let notice = SettledNotice { account, closed, late, ..SettledNotice::default() };
        let covered: Vec<u64> = (0..10).filter(|id| notice.covers(SampleId(*id))).collect();
        assert_eq!(covered, [2, 3, 4, 7]);
        let text = serde_json::to_string(&notice).unwrap();
        assert_eq!(text, r#"{"schema":2,"highest":9,"decided":0,"late":[5],"closed":[[2,4],[7,7]]}"#);
        assert_eq!(serde_json::from_str::<SettledNotice>(&text).unwrap(), notice);
    }

    #[test]
    fn settled_counts_by_reason_in_json() {
        let mut settled = Settled { highest: SampleId(9), decided: 8, dropped: BTreeMap::new() };
        settled.dropped.insert(Dropped::Restart, 1);
        let text = serde_json::to_string(&settled).unwrap();
        assert_eq!(text, r#"{"highest":9,"decided":8,"dropped":{"restart":1}}"#);
        assert_eq!(serde_json::from_str::<Settled>(&text).unwrap(), settled);
    }

    #[test]
    fn a_notice_with_a_reason_of_a_later_version_is_read() {
        let text = r#"{"schema":2,"highest":9,"decided":8,"dropped":{"shed":1,"struck_by_lightning":2},"closed":[[3,5],[7,9]],"more":{}}"#;
        let notice: SettledNotice = serde_json::from_str(text).unwrap();
        assert_eq!(notice.account.dropped, [(Dropped::Shed, 1), (Dropped::Unknown, 2)].into());
        assert!(notice.covers(SampleId(4)) && !notice.covers(SampleId(6)));
    }
}
