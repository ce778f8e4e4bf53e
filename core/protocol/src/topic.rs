//! Topic names under `headwater/v1/{site}/{group}/`.

use thiserror::Error;

use crate::ids::{DeviceId, EdgeId, GroupId, IdError, MemberName, SiteId, clipped};

/// The topics of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topics {
    prefix: String,
}

/// A topic, parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topic {
    /// `trigger`: capture now.
    Trigger,
    /// `request`: send features.
    Request,
    /// `result`: a decision.
    Result,
    /// `revision`: the cloud's answer to a sample that was decided without the cloud at its deadline.
    Revision,
    /// `settled`: the leader's account.
    Settled,
    /// `leader`: the process that leads the group.
    Leader,
    /// `dev/{id}/…`.
    Device(DeviceId, DeviceTopic),
    /// `edge/{id}/…`.
    Edge(EdgeId, EdgeTopic),
    /// `policy/{name}`: a command of a member.
    Policy(MemberName),
    /// `policy/{name}/answer`: the leader's answer to the member's command.
    PolicyAnswer(MemberName),
}

/// Last level of a device's topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeviceTopic {
    /// Up or down; retained, and the last will.
    Status,
    /// Identity of the device; retained.
    Birth,
    /// Answers: `summary`, `not_in_view`, `input` and `batch`; also `gone`, marked late, for a sample that the device gave up.
    Summary,
    /// Features, or `gone`.
    Features,
    /// The device's own decision (configurations b and d).
    Decision,
    /// Reserved for frames on request.
    Frame,
    /// A command to the device.
    Cmd,
}

/// Last level of an edge's topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EdgeTopic {
    /// Identity and state of the edge; retained, and the last will.
    Status,
    /// Scores and map of a sample, or `gone`.
    Features,
}

impl Topics {
    /// Topics of a group at a site.
    pub fn new(site: &SiteId, group: &GroupId) -> Self {
        Self { prefix: format!("headwater/v1/{site}/{group}/") }
    }

    /// Full name of a topic.
    pub fn name(&self, topic: &Topic) -> String {
        let prefix = &self.prefix;
        match topic {
            Topic::Trigger => format!("{prefix}trigger"),
            Topic::Request => format!("{prefix}request"),
            Topic::Result => format!("{prefix}result"),
            Topic::Revision => format!("{prefix}revision"),
            Topic::Settled => format!("{prefix}settled"),
            Topic::Leader => format!("{prefix}leader"),
            Topic::Device(id, leaf) => self.device(id, *leaf),
            Topic::Edge(id, leaf) => self.edge(id, *leaf),
            Topic::Policy(member) => format!("{prefix}policy/{member}"),
            Topic::PolicyAnswer(member) => format!("{prefix}policy/{member}/answer"),
        }
    }

    /// A topic of one device.
    pub fn device(&self, id: &DeviceId, leaf: DeviceTopic) -> String {
        format!("{}dev/{id}/{}", self.prefix, leaf.name())
    }

    /// MQTT filter for one topic of every device.
    pub fn every_device(&self, leaf: DeviceTopic) -> String {
        format!("{}dev/+/{}", self.prefix, leaf.name())
    }

    /// A topic of one edge.
    pub fn edge(&self, id: &EdgeId, leaf: EdgeTopic) -> String {
        format!("{}edge/{id}/{}", self.prefix, leaf.name())
    }

    /// MQTT filter for the policy commands of every member.
    pub fn every_policy(&self) -> String {
        format!("{}policy/+", self.prefix)
    }

    /// MQTT filter for one topic of every edge.
    pub fn every_edge(&self, leaf: EdgeTopic) -> String {
        format!("{}edge/+/{}", self.prefix, leaf.name())
    }

    /// Reads a topic name.
    ///
    /// # Errors
    /// [`TopicError`] for a name outside this group or of no known form.
    pub fn parse(&self, name: &str) -> Result<Topic, TopicError> {
        let rest = name.strip_prefix(&self.prefix).ok_or_else(|| TopicError::Foreign(clipped(name, 120)))?;
        let mut levels = rest.split('/');
        let unknown = || TopicError::Unknown(clipped(name, 120));
        let topic = match (levels.next(), levels.next(), levels.next(), levels.next()) {
            (Some("trigger"), None, ..) => Topic::Trigger,
            (Some("request"), None, ..) => Topic::Request,
            (Some("result"), None, ..) => Topic::Result,
            (Some("revision"), None, ..) => Topic::Revision,
            (Some("settled"), None, ..) => Topic::Settled,
            (Some("leader"), None, ..) => Topic::Leader,
            (Some("dev"), Some(id), Some(leaf), None) => {
                Topic::Device(DeviceId::new(id)?, DeviceTopic::from_name(leaf).ok_or_else(unknown)?)
            }
            (Some("edge"), Some(id), Some(leaf), None) => {
                Topic::Edge(EdgeId::new(id)?, EdgeTopic::from_name(leaf).ok_or_else(unknown)?)
            }
            (Some("policy"), Some(member), leaf @ (None | Some("answer")), None) => {
                let member = MemberName::new(member)?;
                if leaf.is_none() { Topic::Policy(member) } else { Topic::PolicyAnswer(member) }
            }
            _ => return Err(unknown()),
        };
        Ok(topic)
    }
}

impl DeviceTopic {
    /// Every last level.
    pub const ALL: [Self; 7] =
        [Self::Status, Self::Birth, Self::Summary, Self::Features, Self::Decision, Self::Frame, Self::Cmd];

    /// The last level.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Birth => "birth",
            Self::Summary => "summary",
            Self::Features => "features",
            Self::Decision => "decision",
            Self::Frame => "frame",
            Self::Cmd => "cmd",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|leaf| leaf.name() == name)
    }
}

impl EdgeTopic {
    /// Every last level.
    pub const ALL: [Self; 2] = [Self::Status, Self::Features];

    /// The last level.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Features => "features",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|leaf| leaf.name() == name)
    }
}

/// Reason for which a name is no topic of this group.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TopicError {
    /// The topic is of another site, group or version.
    #[error("topic {0:?} does not belong to this group")]
    Foreign(String),
    /// The topic is of this group and has an unknown form.
    #[error("topic {0:?} is not one of this protocol's")]
    Unknown(String),
    /// The id in the topic is not valid.
    #[error(transparent)]
    Id(#[from] IdError),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topics() -> Topics {
        Topics::new(&SiteId::new("plant").unwrap(), &GroupId::new("gate").unwrap())
    }

    #[test]
    fn every_topic_survives_its_name() {
        let id = DeviceId::new("cam-0").unwrap();
        let plain =
            [Topic::Trigger, Topic::Request, Topic::Result, Topic::Revision, Topic::Settled, Topic::Leader];
        let device = DeviceTopic::ALL.map(|leaf| Topic::Device(id.clone(), leaf));
        let edge = EdgeTopic::ALL.map(|leaf| Topic::Edge(EdgeId::new("hall").unwrap(), leaf));
        let member = MemberName::new("wall").unwrap();
        let policy = [Topic::Policy(member.clone()), Topic::PolicyAnswer(member)];
        for topic in plain.into_iter().chain(device).chain(edge).chain(policy) {
            assert_eq!(topics().parse(&topics().name(&topic)), Ok(topic));
        }
        assert_eq!(topics().device(&id, DeviceTopic::Summary), "headwater/v1/plant/gate/dev/cam-0/summary");
    }

    #[test]
    fn foreign_and_unknown_topics_have_different_errors() {
        for foreign in ["", "headwater/v1/plant/other/result", "headwater/v2/plant/gate/result"] {
            assert!(matches!(topics().parse(foreign), Err(TopicError::Foreign(_))), "{foreign}");
        }
        for unknown in
            ["x", "dev/a", "dev/a/b", "dev/a/status/more", "edge/a/summary", "edge/a", "result/x", ""]
        {
            let name = format!("headwater/v1/plant/gate/{unknown}");
            assert!(matches!(topics().parse(&name), Err(TopicError::Unknown(_))), "{unknown}");
        }
        assert!(matches!(topics().parse("headwater/v1/plant/gate/dev//status"), Err(TopicError::Id(_))));
    }
}
