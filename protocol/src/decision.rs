//! The answer to one sample, and the account of all samples.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::{NetworkId, PolicyId, SampleId};
use crate::presence::Presence;

/// Where a sample left the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// Head on the device, in networks of one device.
    Device,
    /// Aggregated scores of the devices.
    Local,
    /// Scores of the edge sections.
    Edge,
    /// Section of the cloud, the last exit.
    Cloud,
}

impl Exit {
    /// Every exit, shallowest first.
    pub const ALL: [Self; 4] = [Self::Device, Self::Local, Self::Edge, Self::Cloud];

    /// Name in metrics and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Local => "local",
            Self::Edge => "edge",
            Self::Cloud => "cloud",
        }
    }
}

/// Reason why an answer may differ from that of the complete network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Degraded {
    /// The cloud did not answer in time.
    CloudTimeout,
    /// The cloud answered with an error.
    CloudRefused,
    /// No connection to the cloud.
    CloudUnreachable,
    /// The cloud was not asked because it had failed too often.
    CloudBreakerOpen,
    /// A device with a view did not deliver its features in time.
    FeaturesMissing,
    /// No device had a view, so the class prior answered.
    NoView,
    /// The sample's first message came from a spool, or after the sample's deadline.
    Late,
}

impl Degraded {
    /// Name in metrics and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CloudTimeout => "cloud_timeout",
            Self::CloudRefused => "cloud_refused",
            Self::CloudUnreachable => "cloud_unreachable",
            Self::CloudBreakerOpen => "cloud_breaker_open",
            Self::FeaturesMissing => "features_missing",
            Self::NoView => "no_view",
            Self::Late => "late",
        }
    }
}

/// Reason why a sample got no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dropped {
    /// The sample was open when the leader stopped.
    Restart,
    /// Too many samples were open.
    Shed,
    /// No device answered, and at least one had given the sample up.
    SpoolFull,
}

impl Dropped {
    /// Name in metrics and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Restart => "restart",
            Self::Shed => "shed",
            Self::SpoolFull => "spool_full",
        }
    }
}

/// The answer to one sample. A sample never has two different decisions; a revision is sent apart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// The sample.
    pub sample: SampleId,
    /// Index of the class in the network's labels.
    pub class: u16,
    /// Name of the class in the network's labels.
    pub label: String,
    /// One minus the exit's uncertainty, in `[0, 1]`.
    pub confidence: f32,
    /// Exit at which the sample left; the shallowest one with [`Degraded::NoView`], where no exit was applied.
    pub exit: Exit,
    /// View of each slot at that exit.
    pub presence: Presence,
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
}

/// Microseconds from capture to the end of each stage; 0 for a stage that the sample did not reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stages {
    /// First message at the leader: its age at sending in ms, as the device wrote it.
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
pub struct Settled {
    /// Every sample up to this id that was opened in time is decided or dropped.
    pub highest: SampleId,
    /// Samples decided since the journal began.
    pub decided: u64,
    /// Samples dropped since the journal began, by reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub dropped: BTreeMap<Dropped, u64>,
}

/// The message on `settled`: the account, and the samples for which it holds.
///
/// The leader does not know of samples whose messages never reached it. So `highest` holds only for samples that a device sent on its
/// present connection, from `since` on. A device sends all others again, marked late, until it reads their ids in `late`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettledNotice {
    /// The account.
    #[serde(flatten)]
    pub account: Settled,
    /// First sample that a message in time opened since the leader connected; `None` before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<SampleId>,
    /// Samples of late messages that are decided or dropped now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub late: Vec<SampleId>,
}

impl SettledNotice {
    /// Largest number of ids in [`SettledNotice::late`]; the others follow in the next message.
    pub const MAX_LATE: usize = 1024;

    /// Whether this notice settles `sample`, provided that the device sent it on its present connection.
    pub fn covers(&self, sample: SampleId) -> bool {
        self.since.is_some_and(|since| since <= sample) && sample <= self.account.highest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_equal_the_json() {
        for exit in Exit::ALL {
            assert_eq!(serde_json::to_value(exit).unwrap(), json!(exit.name()));
        }
        for reason in [Degraded::CloudTimeout, Degraded::NoView, Degraded::FeaturesMissing, Degraded::Late] {
            assert_eq!(serde_json::to_value(reason).unwrap(), json!(reason.name()));
        }
        assert_eq!(serde_json::to_value(Dropped::SpoolFull).unwrap(), json!(Dropped::SpoolFull.name()));
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
    fn a_notice_names_the_samples_for_which_its_account_holds() {
        let account = Settled { highest: SampleId(9), decided: 8, dropped: BTreeMap::new() };
        let mut notice = SettledNotice { account, ..SettledNotice::default() };
        let text = serde_json::to_string(&notice).unwrap();
        assert_eq!(text, r#"{"highest":9,"decided":8}"#);
        assert_eq!(serde_json::from_str::<SettledNotice>(&text).unwrap(), notice);
        assert!(!notice.covers(SampleId(9)), "the leader opened no sample since it connected");
        (notice.since, notice.late) = (Some(SampleId(5)), vec![SampleId(2)]);
        let text = serde_json::to_string(&notice).unwrap();
        assert_eq!(text, r#"{"highest":9,"decided":8,"since":5,"late":[2]}"#);
        assert_eq!(serde_json::from_str::<SettledNotice>(&text).unwrap(), notice);
        assert_eq!([4, 5, 9, 10].map(|id| notice.covers(SampleId(id))), [false, true, true, false]);
    }
}
