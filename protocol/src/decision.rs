//! The answer to one sample, and the account of all of them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::{NetworkId, PolicyId, SampleId};
use crate::presence::Presence;

/// Where a sample left the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// The head on the device (one device only).
    Device,
    /// The aggregated scores of the devices.
    Local,
    /// The edge section.
    Edge,
    /// The last exit.
    Cloud,
}

impl Exit {
    /// Every exit, shallowest first.
    pub const ALL: [Self; 4] = [Self::Device, Self::Local, Self::Edge, Self::Cloud];

    /// Its word in metrics and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Local => "local",
            Self::Edge => "edge",
            Self::Cloud => "cloud",
        }
    }
}

/// Why an answer is not the one the network would have given with everything in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Degraded {
    /// The cloud did not answer in time.
    CloudTimeout,
    /// The cloud answered with an error.
    CloudRefused,
    /// No connection to the cloud.
    CloudUnreachable,
    /// The cloud failed so often that it was not asked.
    CloudBreakerOpen,
    /// A device that had a view did not deliver its features in time.
    FeaturesMissing,
    /// No device had a view: the class prior answered.
    NoView,
    /// Decided after its time, from spooled messages.
    Late,
}

impl Degraded {
    /// Its word in metrics and reports.
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

/// Why a sample was given up without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dropped {
    /// It was open when the leader stopped.
    Restart,
    /// Too many samples were open.
    Shed,
    /// Every device that saw it had to give it up: its spool was full, or what was in it is of no use any more.
    SpoolFull,
}

impl Dropped {
    /// Its word in metrics and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Restart => "restart",
            Self::Shed => "shed",
            Self::SpoolFull => "spool_full",
        }
    }
}

/// The answer to one sample. There is never a second, different one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Which sample.
    pub sample: SampleId,
    /// Index of the class in the network's labels.
    pub class: u16,
    /// Name of the class.
    pub label: String,
    /// One minus the exit's uncertainty, in `[0, 1]`.
    pub confidence: f32,
    /// Where it left. With [`Degraded::NoView`] no exit fired and this is the shallowest one.
    pub exit: Exit,
    /// The slots that contributed at that exit.
    pub presence: Presence,
    /// Why the answer is less than it could be; empty for a whole one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub degraded: Vec<Degraded>,
    /// The network it was decided under.
    pub network: NetworkId,
    /// The policy it was decided under.
    pub policy: PolicyId,
    /// Time at each stage.
    pub stages: Stages,
    /// Body bytes on each hop.
    pub bytes: HopBytes,
}

/// Microseconds from capture to the end of each stage; 0 where the sample did not pass the stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stages {
    /// First summary at the leader (its age at sending, rounded to ms, as the device wrote it).
    pub opened_us: u64,
    /// Last summary in, or the window's end.
    pub window_us: u64,
    /// Last features in, or the end of the wait for them.
    pub features_us: u64,
    /// The last answer of an edge in, or the end of the wait for them.
    #[serde(default)]
    pub edge_us: u64,
    /// The cloud's answer, or its failure.
    pub cloud_us: u64,
    /// The decision, as journalled.
    pub decided_us: u64,
}

/// Body bytes (scores, maps, a device's own decision) that this sample cost on each hop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HopBytes {
    /// Devices to leader, or to the edge in front of it.
    pub device_edge: u64,
    /// Edges to leader, where they are processes of their own.
    #[serde(default)]
    pub edge_leader: u64,
    /// Leader to cloud.
    pub edge_cloud: u64,
}

/// The leader's account: by it devices free features and spool, and anyone can see that nothing is lost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settled {
    /// Every sample up to this id is decided or dropped.
    pub highest: SampleId,
    /// Samples decided since the journal began.
    pub decided: u64,
    /// Samples dropped since the journal began, by reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub dropped: BTreeMap<Dropped, u64>,
}

/// What the leader publishes on `settled`: the account, and for which samples a device may take its word.
///
/// A leader cannot know of a sample whose messages never reached it. So a device takes `highest` for samples that it sent on its
/// present connection, from `since` on, and for all others (sent before a connection was lost, or while no leader was there) only their
/// ids in `late`: it sends those again, marked late, until it reads them there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettledNotice {
    /// Decided, dropped, highest.
    #[serde(flatten)]
    pub account: Settled,
    /// The first sample that the leader opened since it is connected; nothing before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<SampleId>,
    /// Samples of which late messages came and which are decided or dropped, each said once for every such message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub late: Vec<SampleId>,
}

impl SettledNotice {
    /// Most ids in [`SettledNotice::late`] of one message; the rest follows in the next.
    pub const MAX_LATE: usize = 1024;

    /// Whether a sample that was sent on the present connection is decided or dropped.
    pub fn covers(&self, sample: SampleId) -> bool {
        self.since.is_some_and(|since| since <= sample) && sample <= self.account.highest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_are_the_words_of_the_json() {
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
    fn a_notice_is_an_account_that_says_what_it_vouches_for() {
        let account = Settled { highest: SampleId(9), decided: 8, dropped: BTreeMap::new() };
        let mut notice = SettledNotice { account, ..SettledNotice::default() };
        let text = serde_json::to_string(&notice).unwrap();
        assert_eq!(text, r#"{"highest":9,"decided":8}"#);
        assert_eq!(serde_json::from_str::<SettledNotice>(&text).unwrap(), notice);
        assert!(!notice.covers(SampleId(9)), "it opened nothing since it is connected");
        (notice.since, notice.late) = (Some(SampleId(5)), vec![SampleId(2)]);
        let text = serde_json::to_string(&notice).unwrap();
        assert_eq!(text, r#"{"highest":9,"decided":8,"since":5,"late":[2]}"#);
        assert_eq!(serde_json::from_str::<SettledNotice>(&text).unwrap(), notice);
        assert_eq!([4, 5, 9, 10].map(|id| notice.covers(SampleId(id))), [false, true, true, false]);
    }
}
