//! Start of a group's leader: exits, journal, the claim to the lead, connection, event loop.

use std::sync::Arc;
use std::time::Duration;

use headwater_inference::bundle::{Bundle, PerNetwork};
use headwater_inference::engine::TractEngine;
use headwater_inference::leader::journal::Recovered;
use headwater_inference::leader::{Exits, Generation, Leader, LeaderConfig, Micros};
use headwater_link::{Incoming, Link, RetainedMessage};
use headwater_protocol::{DeviceState, EdgeIndex, InstanceId, LeaderClaim, SlotSet, Topic, Topics};
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, error, info, warn};

use crate::broker_answers::BrokerAnswers;
use crate::claim::{HeldClaim, Process, Step, Waiting, Won, claim_text, instance_of_journal, new_claim};
use crate::clock::Clock;
use crate::cloud::{CloudClient, CloudModel};
use crate::config::OpenedGroup;
use crate::device_watch::DeviceWatch;
use crate::edge::LocalEdges;
use crate::error::AggregatorError;
use crate::group_settings::Role;
use crate::inbox::{Inbox, leader_subscriptions};
use crate::journal::Journal;
use crate::member::{Connections, Member, MemberReport};
use crate::message_format::MessageFormat;
use crate::outbox::Outbox;
use crate::policy_desk::PolicyDesk;
use crate::refused_devices::RefusedDevices;
use crate::report::{LeadState, LeaderReport};
use crate::settled_schedule::SettledSchedule;
use crate::shared::Shared;
use crate::worker::Worker;

/// A running leader of a group.
pub type GroupLeader = Member<LeaderReport>;

impl GroupLeader {
    /// Recovers from the journal, starts connecting to the broker until a connection is made, and leads the group once no other process
    /// does. Needs a tokio runtime.
    ///
    /// # Errors
    /// [`AggregatorError`]: settings, bundle, journal or link.
    pub async fn start(shared: &Shared, config: OpenedGroup) -> Result<Self, AggregatorError> {
        let config = Arc::new(config);
        let prepared = Prepared::load(&config).await?;
        let member = Self::new(shared.grace());
        let group = LedGroup {
            shared: shared.clone(),
            topics: Topics::new(&config.settings.site, &config.settings.group),
            process: Process::new(prepared.instance),
            connections: member.connections.clone(),
            report: Arc::clone(&member.report),
            stop: member.stop.subscribe(),
            config,
        };
        // A mistake in the settings of the cloud or of the link is found before anything runs.
        cloud_client(&group.shared, &group.config, prepared.formats())?;
        let link = group.listen()?;
        let mut member = member;
        member.loops.spawn(async move {
            group.run(prepared, link).await.inspect_err(|error| error!(%error, "stopped"))
        });
        Ok(member)
    }
}

/// A group that this process leads or waits to lead.
struct LedGroup {
    shared: Shared,
    config: Arc<OpenedGroup>,
    topics: Topics,
    process: Process,
    connections: Connections,
    report: Arc<Mutex<LeaderReport>>,
    stop: watch::Receiver<bool>,
}

/// A connection and its events.
type Connection = (Link, mpsc::Receiver<Incoming>);

impl LedGroup {
    /// Waits for the lead, leads, and begins again when another process takes over.
    async fn run(mut self, mut prepared: Prepared, mut link: Connection) -> Result<(), AggregatorError> {
        let mut waiting = Waiting::new(self.process, self.config.settings.take_over);
        loop {
            let Some(won) = self.wait_for_lead(&mut waiting, &mut link).await else { return Ok(()) };
            let worker = self.worker(prepared, won)?;
            let (waited, grace) = (link.0, self.shared.grace());
            tokio::spawn(async move { waited.leave(grace).await });
            let Some(claim) = worker.run(self.stop.clone()).await? else { return Ok(()) };
            error!(
                group = %self.config.settings.group, leader = %claim.instance, term = claim.term, since = claim.since,
                "another process has taken over the group; this one stops deciding and waits"
            );
            waiting.lost(Instant::now(), claim);
            self.report_lost();
            for link in self.connections.remove_all() {
                link.leave(self.shared.grace()).await;
            }
            link = self.listen()?;
            prepared = Prepared::load(&self.config).await?;
        }
    }

    /// Starts the connection of a waiting leader, which reads the topic of the leader alone and has no last will.
    fn listen(&self) -> Result<Connection, AggregatorError> {
        let client_id = match &self.config.settings.client_id {
            Some(id) => format!("{id}-waits"),
            None => self.config.client_id("waits"),
        };
        let config =
            self.shared.link_config(&self.config, client_id, None, [self.topics.name(&Topic::Leader)]);
        let (link, incoming) = Link::start(config)?;
        self.connections.add(link.clone());
        Ok((link, incoming))
    }

    /// Waits until the own claim has come back first; `None` when the process stops before.
    async fn wait_for_lead(
        &mut self,
        waiting: &mut Waiting,
        (link, incoming): &mut Connection,
    ) -> Option<Won> {
        let topic = self.topics.name(&Topic::Leader);
        let mut answers = BrokerAnswers::new(&self.topics, Arc::clone(&self.report));
        loop {
            let now = Instant::now();
            let step = waiting.step(now);
            self.report_waiting(waiting, now);
            match step {
                Step::Lead(won) => return Some(won),
                Step::Claim { term } => {
                    let claim = claim_text(&new_claim(self.process, term));
                    match link.publish_acknowledged(topic.as_str(), claim, true) {
                        Ok(claim) => answers.claim_sent(claim),
                        Err(error) => debug!(%error, "the claim was not sent"),
                    }
                }
                Step::Wait => {}
            }
            let timer = waiting.timer();
            tokio::select! {
                biased;
                _ = self.stop.wait_for(|&stop| stop) => return None,
                message = incoming.recv() => match message? {
                    Incoming::Connected => waiting.connected(Instant::now()),
                    Incoming::Disconnected { .. } => waiting.disconnected(),
                    Incoming::Message { payload, .. } => waiting.receive(Instant::now(), &payload),
                    // The claim is the only message, and `answers` names its refusal.
                    Incoming::Refused { .. } => {}
                },
                is_refused = answers.next_claim() => if is_refused {
                    waiting.claim_refused();
                },
                () = sleep_until(timer.unwrap_or_else(Instant::now)), if timer.is_some() => {}
            }
        }
    }

    /// Takes out of the report what only a leader has.
    fn report_lost(&self) {
        self.report.lock().clear_present();
    }

    fn report_waiting(&self, waiting: &Waiting, now: Instant) {
        let mut report = self.report.lock();
        (report.lead, report.waits_for) = waiting.state(now);
        if report.waits_for.is_some() {
            // A process that waits for another one claims nothing.
            report.claim_refused = None;
        }
    }

    /// The event loop of the leader, with a connection whose last will ends the claim.
    fn worker(&self, prepared: Prepared, won: Won) -> Result<Worker, AggregatorError> {
        let formats = prepared.formats();
        let Prepared { parts, edges, journal, mut recovered, .. } = prepared;
        if won.after_another && !recovered.decisions.is_empty() {
            // The other leader may have decided the same samples.
            info!(
                decisions = recovered.decisions.len(),
                "another process led since; old decisions stay unpublished"
            );
            recovered.decisions.clear();
        }
        log_recovery(&recovered, journal.counts.torn_bytes);
        let claim = new_claim(self.process, won.term);
        let (link, incoming) = self.connect(&parts, &claim)?;
        let current = parts.current.format.network;
        let next = parts.next.as_ref().map(|parts| parts.format.network.short());
        let mut actions = Vec::new();
        let mut leader = Leader::new(parts.current.config, parts.current.exits);
        if let Some(NetworkParts { config, exits, .. }) = parts.next {
            leader = leader.with_next(config, exits);
        }
        leader = leader.with_max_clock_difference_ms(self.config.settings.max_clock_difference_ms);
        leader.recover(recovered, &mut actions);
        if self.config.new_numbering {
            warn!(
                group = %self.config.settings.group,
                "a new numbering begins: earlier ids are forgotten; leave the flag out at the next start"
            );
            leader.begin_numbering(&mut actions);
        }
        let url = self.shared.config.cloud.url.as_ref();
        info!(
            group = %self.config.settings.group, network = current.short(), next, cloud = url.map(ToString::to_string),
            instance = %self.process.instance, term = won.term, "leading"
        );
        {
            let mut report = self.report.lock();
            (report.lead, report.waits_for, report.term) = (LeadState::Leading, None, won.term);
            report.instance = Some(self.process.instance);
        }
        let settings = &self.config.settings;
        let answers = BrokerAnswers::new(&self.topics, Arc::clone(&self.report));
        let mut inbox = Inbox::new(self.topics.clone(), Arc::clone(&formats));
        inbox.devices.silent_after = settings.silent_after();
        inbox.set_owners(settings.devices.clone(), Micros(0), |_, _| {});
        inbox.devices.numbering = leader.numbering();
        let policies = self.config.policy_commands.clone();
        let calibrated = self.config.networks.current().policy();
        Ok(Worker {
            leader,
            edges,
            policy_desk: PolicyDesk::new(&self.topics, policies, self.config.current_policy(), calibrated),
            policy_updates: self.config.policy_updates.clone(),
            device_updates: self.config.device_updates.clone(),
            clock: Clock::starting_at(Instant::now()),
            device_watch: DeviceWatch::new(),
            work_loop: self.shared.work_loops.add(format!("group {}", self.config.settings.group)),
            inbox,
            last_sample: None,
            incoming,
            outbox: Outbox::new(link, &self.topics, settings.request_qos, answers),
            claim: HeldClaim::new(claim),
            cloud: cloud_client(&self.shared, &self.config, formats)?,
            journal,
            refused: RefusedDevices::default(),
            settled: SettledSchedule::new(Duration::from_millis(settings.settled_every_ms.into())),
            grace: self.shared.grace(),
            report: Arc::clone(&self.report),
            actions,
        })
    }

    fn connect(
        &self,
        parts: &PerNetwork<NetworkParts>,
        claim: &LeaderClaim,
    ) -> Result<Connection, AggregatorError> {
        let payloads = parts.iter().map(|(_, parts)| parts.format.limits.largest_payload());
        let topic = self.topics.name(&Topic::Leader);
        let filters = leader_subscriptions(&self.topics);
        let client_id = self.config.client_id("leader");
        let mut config = self.shared.link_config(&self.config, client_id, payloads.max(), filters);
        let down = LeaderClaim { state: DeviceState::Down, ..claim.clone() };
        config.last_will = Some(RetainedMessage::new(topic, claim_text(&down)));
        let (link, incoming) = Link::start(config)?;
        self.connections.remove_all();
        self.connections.add(link.clone());
        Ok((link, incoming))
    }
}

/// Everything of a leader that is read from files before the connection.
struct Prepared {
    parts: PerNetwork<NetworkParts>,
    edges: LocalEdges,
    journal: Journal,
    recovered: Recovered,
    /// Name of the leader with this journal.
    instance: InstanceId,
}

/// Parts of a leader under one network.
struct NetworkParts {
    config: LeaderConfig,
    exits: Exits,
    format: MessageFormat,
}

impl Prepared {
    /// Reads the files, off the async threads.
    async fn load(config: &Arc<OpenedGroup>) -> Result<Self, AggregatorError> {
        let config = Arc::clone(config);
        let prepared = tokio::task::spawn_blocking(move || Self::new(&config)).await;
        prepared.map_err(AggregatorError::section)?
    }

    /// Formats of the messages of each network.
    fn formats(&self) -> Arc<PerNetwork<MessageFormat>> {
        Arc::new(self.parts.as_ref().map(|_, parts| parts.format.clone()))
    }

    fn new(config: &OpenedGroup) -> Result<Self, AggregatorError> {
        let mut edges = LocalEdges::new();
        let bundles = config.networks.bundles().as_ref();
        let parts = bundles
            .try_map(|generation, bundle| NetworkParts::load(config, (generation, bundle), &mut edges))?;
        let (journal, recovered) = Journal::open(&config.settings.journal)?;
        let instance = instance_of_journal(config.settings.journal.path.as_deref());
        Ok(Self { parts, edges, journal, recovered, instance })
    }
}

impl NetworkParts {
    /// Loads the exits of a network and adds its local edges to `edges`.
    fn load(
        group: &OpenedGroup,
        (generation, bundle): (Generation, &Bundle),
        edges: &mut LocalEdges,
    ) -> Result<Self, AggregatorError> {
        let max_open = group.settings.max_open;
        let mut config = LeaderConfig::of(bundle, max_open);
        // Thresholds are fitted to a network: an operator's policy is for the current one.
        if generation == Generation::Current {
            let (policy, id) = group.current_policy();
            config = config.with_policy(policy, id);
        }
        config.policy.check().map_err(|error| AggregatorError::mistake(error.to_string()))?;
        let local = local_edges(&group.role, config.edges.len())?;
        let exits = Exits::load(bundle, &TractEngine::new()).map_err(AggregatorError::section)?;
        edges.start((generation, bundle), &local, config.policy.features_ms, max_open)?;
        let all_edges = EdgeIndex::first(config.edges.len()).zip(&config.edges);
        let remote =
            all_edges.map(|(edge, slots)| if local.contains(&edge) { SlotSet::EMPTY } else { *slots });
        let format = MessageFormat::new(bundle, remote.collect()).map_err(AggregatorError::section)?;
        Ok(Self { format, config, exits })
    }
}

/// Edges of the network that run in the leader's process; `count` is that of the network.
///
/// # Errors
/// [`AggregatorError::Config`]: an edge that the network does not have, or the role of an edge.
pub fn local_edges(role: &Role, count: usize) -> Result<Vec<EdgeIndex>, AggregatorError> {
    match role {
        Role::Leader { local_edges: None } => Ok(EdgeIndex::first(count).filter(|_| count == 1).collect()),
        Role::Leader { local_edges: Some(edges) } => match edges.iter().find(|edge| **edge >= count) {
            Some(edge) => {
                let mistake = format!("local_edges: expected edges below {count}, found {edge}");
                Err(AggregatorError::mistake(mistake))
            }
            None => Ok(EdgeIndex::first(count).filter(|edge| edges.contains(&edge.index())).collect()),
        },
        Role::Edge { .. } => Err(AggregatorError::mistake("role: expected \"leader\", found \"edge\"")),
    }
}

fn cloud_client(
    shared: &Shared,
    config: &OpenedGroup,
    formats: Arc<PerNetwork<MessageFormat>>,
) -> Result<CloudClient, AggregatorError> {
    let cloud = &shared.config.cloud;
    let Some((connection, url)) = shared.cloud.clone().zip(cloud.url.as_ref()) else {
        return Ok(CloudClient::new(None));
    };
    let name = (&config.settings.group, config.settings.model.as_ref().unwrap_or(&cloud.model).as_str());
    let model = CloudModel::new(connection, url, name, formats);
    let model = model.map_err(|mistake| AggregatorError::mistake(format!("model: {mistake}")))?;
    let mut client = CloudClient::new(Some(model));
    client.watch_networks();
    Ok(client)
}

/// Logs the state that a start found in the journal.
fn log_recovery(recovered: &Recovered, torn_bytes: u64) {
    let Recovered { settled, decisions, open, .. } = recovered;
    if torn_bytes > 0 {
        warn!(
            torn_bytes,
            "the last line of the journal was torn and is cut off; its decision was never published"
        );
    }
    if settled.highest.0 > 0 || !open.is_empty() {
        let (republishing, awaited) = (decisions.len(), open.len());
        info!(highest = %settled.highest, republishing, awaited, "continuing from the journal");
    }
}
