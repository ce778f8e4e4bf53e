//! Everyone in the demo, wherever they run, and the broker between them.

use anyhow::Context;
use headwater_inference::policy::Policy;
use headwater_link::broker::EmbeddedBroker;
use headwater_link::{BrokerAddress, QoS};
use headwater_protocol::{GroupId, Kind, SiteId, Topics};

use super::children::Children;
use super::in_process::InProcess;
use super::material::Material;
use super::plan::Victim;
use crate::args::DemoArgs;

/// What everyone is told.
pub(super) struct Scene<'a> {
    pub(super) site: SiteId,
    pub(super) group: GroupId,
    pub(super) broker: BrokerAddress,
    pub(super) qos: QoS,
    pub(super) material: &'a Material,
}

/// The running parts. A killed one is gone from here; what it had counted is kept, where it could still say so.
pub(super) struct Cast {
    broker: BrokerAddress,
    /// Dropped last.
    _embedded: Option<EmbeddedBroker>,
    topics: Topics,
    parts: Parts,
}

enum Parts {
    InProcess(Box<InProcess>),
    Children(Box<Children>),
}

/// Kinds of messages by which a device says that it sees a sample.
pub(super) const VIEW_KINDS: [Kind; 3] = [Kind::Summary, Kind::Input, Kind::Decided];

/// What the devices counted, over all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CastReport {
    /// Views: messages of [`VIEW_KINDS`].
    pub(super) views: u64,
    pub(super) body_bytes: u64,
    pub(super) payload_bytes: u64,
    pub(super) wire_sent: u64,
    pub(super) wire_received: u64,
}

impl Scene<'_> {
    /// Edges that run apart from the leader.
    pub(super) fn edges(&self) -> usize {
        let edges = self.material.bundle.manifest().edge.as_ref().map_or(0, |edge| edge.groups.len());
        if edges > 1 { edges } else { 0 }
    }
}

impl Cast {
    pub(super) async fn start(args: &DemoArgs, material: &Material, policy: Policy) -> anyhow::Result<Self> {
        let embedded = match &args.broker {
            Some(_) => None,
            None => Some(EmbeddedBroker::start(args.port).context("starting the embedded broker")?),
        };
        let own = embedded.as_ref().map(EmbeddedBroker::address);
        let broker = args.broker.clone().or(own).context("a broker")?;
        let qos = if args.qos == 0 { QoS::AtMostOnce } else { QoS::AtLeastOnce };
        let (site, group) = (SiteId::new("demo")?, GroupId::new("cameras")?);
        let topics = Topics::new(&site, &group);
        let scene = Scene { site, group, broker: broker.clone(), qos, material };
        let parts = if args.processes {
            Parts::Children(Box::new(Children::start(&scene, &policy).await?))
        } else {
            Parts::InProcess(Box::new(InProcess::start(&scene, policy).await?))
        };
        Ok(Self { broker, _embedded: embedded, topics, parts })
    }

    /// Waits until everyone has found the others, as far as that can be asked; processes show it by their first decisions.
    pub(super) async fn ready(&self) {
        match &self.parts {
            Parts::InProcess(parts) => parts.ready().await,
            Parts::Children(_) => {}
        }
    }

    /// Whether samples must be tried until one is whole, since nobody can be asked.
    pub(super) fn needs_rehearsal(&self) -> bool {
        matches!(self.parts, Parts::Children(_))
    }

    pub(super) fn broker(&self) -> BrokerAddress {
        self.broker.clone()
    }

    pub(super) fn topics(&self) -> Topics {
        self.topics.clone()
    }

    /// A part that ended by itself, in words.
    pub(super) fn ended(&mut self) -> Option<String> {
        match &mut self.parts {
            Parts::InProcess(_) => None,
            Parts::Children(parts) => parts.ended(),
        }
    }

    /// Ends a part as SIGKILL would; says what it was.
    pub(super) async fn kill(&mut self, victim: Victim) -> String {
        match &mut self.parts {
            Parts::InProcess(parts) => parts.kill(victim).await,
            Parts::Children(parts) => parts.kill(victim),
        }
    }

    /// Ends everyone in order and adds up what the devices counted.
    pub(super) async fn shutdown(self) -> anyhow::Result<CastReport> {
        match self.parts {
            Parts::InProcess(parts) => parts.shutdown().await,
            Parts::Children(parts) => parts.shutdown().await,
        }
    }
}
