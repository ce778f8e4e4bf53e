//! Start of a group's leader: exits, journal, the claim to the lead, connection, event loop.

use std::sync::Arc;
use std::time::Duration;

use headwater_inference::bundle::{Bundle, PerNetwork};
use headwater_inference::engine::TractEngine;
use headwater_inference::leader::journal::Recovered;
use headwater_inference::leader::{Exits, Generation, Leader, LeaderConfig};
use headwater_link::{Incoming, Link, RetainedMessage};
use headwater_protocol::status::GroupState;
use headwater_protocol::{DeviceState, EdgeIndex, InstanceId, LeaderClaim, SlotSet, Topic, Topics};
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, error, info, warn};

use crate::claim::{HeldClaim, Process, Step, Waiting, Won, claim_text, instance_of_journal, new_claim};
use crate::clock::Clock;
use crate::cloud::{CloudClient, CloudModel};
use crate::devices::device_watch::DeviceWatch;
use crate::devices::inbox::{Inbox, leader_subscriptions};
use crate::devices::message_format::{InboxCounts, MessageFormat};
use crate::devices::refused_devices::RefusedDevices;
use crate::error::AggregatorError;
use crate::group::edge::LocalEdges;
use crate::group::event_loop::EventLoop;
use crate::group::member::{Connections, Member, MemberReport};
use crate::group::policy_desk::PolicyDesk;
use crate::group::shared::Shared;
use crate::group::worker::Worker;
use crate::journal::Journal;
use crate::publishing::broker_answers::BrokerAnswers;
use crate::publishing::outbox::Outbox;
use crate::publishing::settled_schedule::SettledSchedule;
use crate::report::LeaderReport;
use crate::settings::config::OpenedGroup;
use crate::settings::group::Role;

/// A running leader of a group.
pub type GroupLeader = Member<LeaderReport>;

impl GroupLeader {
    /// Recovers from the journal, starts to connect to the broker, which is tried until it succeeds, and leads the group once no other
    /// process does. Needs a tokio runtime.
    ///
    /// # Errors
    /// [`AggregatorError`] for settings, a bundle, a journal or a connection that cannot be used.
    pub async fn start(shared: &Shared, config: OpenedGroup) -> Result<Self, AggregatorError> {
        let config = Arc::new(config);
        let prepared = Prepared::load(&config).await?;
        let mut member = Self::new(shared.grace());
        let group = LedGroup {
            shared: shared.clone(),
            topics: Topics::new(&config.settings.site, &config.settings.group),
            process: Process::new(prepared.instance),
            connections: member.connections.clone(),
            report: Arc::clone(&member.report),
            inbox: Arc::clone(&member.inbox),
            stop: member.stop.subscribe(),
            config,
        };
        // A mistake in the settings of the cloud or of the link is found before anything runs.
        group.cloud_client(prepared.formats())?;
        let link = group.listen()?;
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
    inbox: Arc<Mutex<InboxCounts>>,
    stop: watch::Receiver<bool>,
}

/// A connection and its events.
type Connection = (Link, mpsc::Receiver<Incoming>);

impl LedGroup {
    /// Waits until this process may lead, leads, and begins again when another process takes over. Ends when the process stops.
    async fn run(mut self, mut prepared: Prepared, mut link: Connection) -> Result<(), AggregatorError> {
        let mut waiting = Waiting::new(self.process, self.config.settings.take_over);
        loop {
            let Some(won) = self.wait_for_lead(&mut waiting, &mut link).await? else { return Ok(()) };
            let (worker, rounds) = self.worker(prepared, won)?;
            let (waited, grace) = (link.0, self.shared.grace());
            tokio::spawn(async move { waited.leave(grace).await });
            let Some(claim) = worker.run(rounds, self.stop.clone()).await? else { return Ok(()) };
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

    /// Starts the connection of a waiting leader. The connection subscribes to the topic `leader` alone and has no last will.
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

    /// Waits until the broker has returned this process's claim before any other claim of its term; `None` if the process stops before that.
    ///
    /// # Errors
    /// [`AggregatorError::Stopped`] when the link ended by itself.
    async fn wait_for_lead(
        &mut self,
        waiting: &mut Waiting,
        (link, incoming): &mut Connection,
    ) -> Result<Option<Won>, AggregatorError> {
        let topic = self.topics.name(&Topic::Leader);
        let mut answers = BrokerAnswers::new(&self.topics, Arc::clone(&self.report));
        loop {
            let now = Instant::now();
            let step = waiting.step(now);
            self.report_waiting(waiting, now);
            match step {
                Step::Lead(won) => return Ok(Some(won)),
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
                _ = self.stop.wait_for(|&stop| stop) => return Ok(None),
                message = incoming.recv() => match message.ok_or_else(|| AggregatorError::Stopped("the link ended".into()))? {
                    Incoming::Connected => waiting.connected(Instant::now()),
                    Incoming::Disconnected { .. } => waiting.disconnected(),
                    Incoming::Message { payload, .. } => waiting.receive(Instant::now(), &payload),
                    // The process publishes nothing but claims on this connection, and `answers` reports their refusals.
                    Incoming::Refused { .. } => {}
                },
                is_refused = answers.next_claim() => if is_refused {
                    waiting.claim_refused();
                },
                () = sleep_until(timer.unwrap_or_else(Instant::now)), if timer.is_some() => {}
            }
        }
    }

    /// Clears the parts of the report that hold only while this process leads.
    fn report_lost(&self) {
        self.report.lock().clear_present();
        self.inbox.lock().forget_all();
    }

    fn report_waiting(&self, waiting: &Waiting, now: Instant) {
        let mut report = self.report.lock();
        (report.lead, report.claim.waits_for) = waiting.state(now);
        if report.claim.waits_for.is_some() {
            // A process that waits for another leader claims nothing, so an earlier refusal is over.
            report.claim.claim_refused = None;
        }
    }

    /// The leader's worker and event loop, on a connection whose last will ends the claim.
    fn worker(&self, prepared: Prepared, won: Won) -> Result<(Box<Worker>, EventLoop), AggregatorError> {
        let formats = prepared.formats();
        let Prepared { parts, edges, mut journal, mut recovered, .. } = prepared;
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
        leader = leader.with_details(self.config.settings.details);
        leader = leader.with_smoothing(self.config.settings.smoothing.smoothing());
        leader.recover(recovered, &mut actions);
        {
            let earlier = self.report.lock();
            leader = leader.with_counts(earlier.leader);
            journal.counts = journal.counts.after(earlier.journal);
        }
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
            report.lead = GroupState::Leading;
            (report.claim.waits_for, report.claim.term) = (None, won.term);
            report.claim.instance = Some(self.process.instance);
        }
        let settings = &self.config.settings;
        let answers = BrokerAnswers::new(&self.topics, Arc::clone(&self.report));
        let mut inbox = Inbox::new(self.topics.clone(), Arc::clone(&formats), Arc::clone(&self.inbox));
        inbox.devices.silent_after = settings.silent_after();
        let clock = Clock::starting_at(Instant::now());
        let now = clock.read().now;
        inbox.set_owners(settings.devices.clone(), now.since_start, |generation, event| {
            leader.handle(now, generation, event, &mut actions)
        });
        inbox.devices.state.numbering = leader.numbering();
        let policies = self.config.policy_commands.clone();
        let calibrated = self.config.networks.current().policy();
        let work_loop = self.shared.work_loops.add(format!("group {}", self.config.settings.group));
        let rounds = EventLoop::new(clock, incoming, work_loop);
        // The worker is boxed, since a future may hold several copies of its arguments.
        let worker = Box::new(Worker {
            leader,
            edges,
            policy_desk: PolicyDesk::new(&self.topics, policies, self.config.current_policy(), calibrated),
            policy_updates: self.config.policy_updates.clone(),
            device_updates: self.config.device_updates.clone(),
            clock,
            device_watch: DeviceWatch::new(),
            inbox,
            last_sample: None,
            outbox: Outbox::new(link, &self.topics, settings.request_qos, answers),
            claim: HeldClaim::new(claim),
            cloud: self.cloud_client(formats)?,
            journal,
            refused: RefusedDevices::default(),
            settled: SettledSchedule::new(Duration::from_millis(settings.settled_every_ms.into())),
            grace: self.shared.grace(),
            report: Arc::clone(&self.report),
            actions,
        });
        Ok((worker, rounds))
    }

    fn cloud_client(&self, formats: Arc<PerNetwork<MessageFormat>>) -> Result<CloudClient, AggregatorError> {
        let (cloud, report) = (&self.shared.config.cloud, Arc::clone(&self.report));
        let Some((connection, url)) = self.shared.cloud.clone().zip(cloud.url.as_ref()) else {
            return Ok(CloudClient::new(None, report));
        };
        let settings = &self.config.settings;
        let name = (&settings.group, settings.model.as_ref().unwrap_or(&cloud.model).as_str());
        let model = CloudModel::new(connection, url, name, formats, Arc::clone(&report));
        let model = model.map_err(|mistake| AggregatorError::mistake(format!("model: {mistake}")))?;
        let mut client = CloudClient::new(Some(model), report);
        client.watch_networks();
        Ok(client)
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

/// The parts of a leader that are read from files before it connects.
struct Prepared {
    parts: PerNetwork<NetworkParts>,
    edges: LocalEdges,
    journal: Journal,
    recovered: Recovered,
    /// Name of the leader in its claims, which is kept in a file beside the journal.
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
        // Thresholds are fitted to one network: an operator's policy holds for the current network, the bundle's for the next.
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

/// Edges of a network that run in the leader's process; `count` is the number of all edges of the network.
///
/// # Errors
/// [`AggregatorError::Config`]: an edge that the network does not have, or the role of an edge.
pub(crate) fn local_edges(role: &Role, count: usize) -> Result<Vec<EdgeIndex>, AggregatorError> {
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

#[cfg(test)]
mod tests {
    use headwater_inference::leader::Action;
    use headwater_inference::testing::TinyNetwork;
    use headwater_protocol::{
        Birth, Body, Boot, Degraded, DeviceId, DeviceTopic, GroupId, Header, Message, NetworkId, Numbering,
        SampleId, Session, SiteId, encode,
    };
    use tempfile::TempDir;

    use super::*;
    use crate::clock::Moment;
    use crate::cloud::CloudReply;
    use crate::devices::inbox::tests::{birth, status};
    use crate::group::event_loop::RoundHandler;
    use crate::group::worker::Input;
    use crate::settings::config::SharedConfig;
    use crate::settings::group::{JournalSettings, JournalSync};

    /// A group of three slots whose broker is away.
    struct Group {
        member: GroupLeader,
        led: LedGroup,
        network: NetworkId,
        /// Time of every message.
        at: Moment,
    }

    impl Group {
        fn new() -> Self {
            let bundle = Arc::new(Bundle::from_bytes(&TinyNetwork::default().bundle()).unwrap());
            let network = bundle.network_id();
            let (site, group) = (SiteId::new("plant").unwrap(), GroupId::new("gate").unwrap());
            let topics = Topics::new(&site, &group);
            let member = GroupLeader::new(Duration::ZERO);
            let led = LedGroup {
                shared: Shared::new(SharedConfig::new("mqtt://127.0.0.1:9".parse().unwrap())).unwrap(),
                config: Arc::new(OpenedGroup::new(site, group, bundle)),
                topics,
                process: Process::new(instance_of_journal(None)),
                connections: member.connections.clone(),
                report: Arc::clone(&member.report),
                inbox: Arc::clone(&member.inbox),
                stop: member.stop.subscribe(),
            };
            let at = Clock::starting_at(Instant::now()).read();
            Self { member, led, network, at }
        }

        async fn leads(&self) -> Box<Worker> {
            let prepared = Prepared::load(&self.led.config).await.unwrap();
            self.led.worker(prepared, Won { term: 1, after_another: false }).unwrap().0
        }

        fn message(&self, (device, leaf): (&str, DeviceTopic), payload: Vec<u8>) -> Incoming {
            let topic = self.led.topics.device(&DeviceId::new(device).unwrap(), leaf);
            Incoming::Message { topic, payload: payload.into(), retain: false }
        }

        fn sends(&self, worker: &mut Worker, sender: (&str, DeviceTopic), payload: Vec<u8>) {
            worker.receive(self.at, self.message(sender, payload));
        }

        fn starts(&self, worker: &mut Worker, id: &str, slot: u8) {
            let birth = Birth { numbering: Some(Numbering::Trigger), ..birth(id, slot, self.network) };
            self.sends(worker, (id, DeviceTopic::Birth), serde_json::to_vec(&birth).unwrap());
            self.has_status(worker, id, DeviceState::Up);
        }

        fn has_status(&self, worker: &mut Worker, id: &str, state: DeviceState) {
            let status = status(state, Boot(1));
            self.sends(worker, (id, DeviceTopic::Status), serde_json::to_vec(&status).unwrap());
        }

        fn has_no_view(&self, worker: &mut Worker, id: &str, sample: u64) {
            worker.receive(self.at, self.no_view(id, sample));
        }

        fn no_view(&self, id: &str, sample: u64) -> Incoming {
            let session = Session::of_boot(self.network, Boot(1));
            let header = Header { late: false, session, sample: SampleId(sample), age_ms: 3 };
            let limits = self.led.config.networks.current().manifest().limits();
            let mut payload = Vec::new();
            encode(&Message { header, body: Body::NotInView }, &limits, &mut payload).unwrap();
            self.message((id, DeviceTopic::Summary), payload)
        }

        fn triggers(&self, worker: &mut Worker, sample: u64) {
            let (topic, payload) =
                (self.led.topics.name(&Topic::Trigger), format!(r#"{{"sample": {sample}}}"#));
            let message = Incoming::Message { topic, payload: payload.into(), retain: false };
            worker.receive(self.at, message);
        }
    }

    #[tokio::test]
    async fn a_decision_names_the_devices_of_its_time_though_it_waits_to_be_written() {
        let group = Group::new();
        let mut worker = group.leads().await;
        group.starts(&mut worker, "a", 0);
        group.starts(&mut worker, "b", 1);
        group.triggers(&mut worker, 101);
        group.has_no_view(&mut worker, "b", 101);
        group.has_status(&mut worker, "a", DeviceState::Down);
        group.starts(&mut worker, "c", 0);
        let missing = worker.actions.iter().find_map(|action| match action {
            Action::Decide(decision) => Some(decision.missing.clone()),
            _ => None,
        });
        assert_eq!(missing, Some(vec!["a".to_owned(), "slot 2".to_owned()]), "{:?}", worker.actions);
    }

    #[tokio::test]
    async fn a_link_that_ends_while_the_group_waits_for_the_lead_is_an_error() {
        let group = Group::new();
        let prepared = Prepared::load(&group.led.config).await.unwrap();
        let Group { led, member: _running, .. } = group;
        let link = led.listen().unwrap();
        link.0.kill();
        let end = led.run(prepared, link).await;
        assert!(matches!(end, Err(AggregatorError::Stopped(_))), "{end:?}");
    }

    #[tokio::test]
    async fn counts_go_on_when_the_process_leads_again() {
        let group = Group::new();
        for times in 1..=2 {
            let mut worker = group.leads().await;
            group.has_no_view(&mut worker, "stranger", 101);
            group.starts(&mut worker, "a", 0);
            group.has_no_view(&mut worker, "a", u64::MAX);
            let topic = "headwater/v1/plant/other/trigger".to_owned();
            let foreign = Incoming::Message { topic, payload: Vec::new().into(), retain: false };
            worker.receive(group.at, foreign);
            worker.report_state();
            group.led.report_lost();
            let report = group.member.report();
            assert_eq!((report.inbox.unroutable, report.leader.implausible), (times, times));
            let by_code = [("implausible".to_owned(), times), ("unknown_device".to_owned(), times)];
            assert_eq!(report.inbox.by_code(), by_code);
        }
    }

    #[tokio::test]
    async fn a_group_goes_on_from_a_state_that_was_written_and_read() {
        let group = Group::new();
        let mut worker = group.leads().await;
        group.starts(&mut worker, "a", 0);
        group.starts(&mut worker, "b", 1);
        group.triggers(&mut worker, 101);
        assert!(worker.state().is_none(), "its actions wait");
        worker.actions.clear();
        let written = serde_json::to_string(&worker.state().unwrap()).unwrap();
        let mut other = group.leads().await;
        other.actions.clear();
        other.set_state(serde_json::from_str(&written).unwrap()).unwrap();
        let value = |worker: &Worker| serde_json::to_value(worker.state().unwrap()).unwrap();
        assert_eq!(value(&other), value(&worker));
        for worker in [&mut worker, &mut other] {
            group.has_no_view(worker, "b", 101);
            group.has_status(worker, "a", DeviceState::Down);
            group.starts(worker, "c", 2);
        }
        assert!(worker.actions.iter().any(|action| matches!(action, Action::Decide(_))));
        assert_eq!(worker.actions, other.actions);
        assert_eq!(worker.inbox.devices.state, other.inbox.devices.state);
        let next = (r#""generation":"current""#, r#""generation":"next""#);
        for (from, to) in [(r#""at":0"#, r#""at":7"#), (r#""holders":["#, r#""holders":[null,"#), next] {
            let altered = written.replace(from, to);
            assert_ne!(altered, written, "{from}");
            let state = serde_json::from_str(&altered).expect(from);
            assert!(other.set_state(state).is_err(), "{from}");
        }
    }

    #[tokio::test]
    async fn a_decision_is_published_only_once_the_journal_has_it() {
        let (group, folder) = (Group::new(), TempDir::new().unwrap());
        let mut worker = group.leads().await;
        group.starts(&mut worker, "a", 0);
        group.triggers(&mut worker, 101);
        group.has_no_view(&mut worker, "a", 101);
        for (disk, free, published) in [("full", 0, 0), ("with room", 1 << 30, 1)] {
            let path = Some(folder.path().join(disk));
            let settings = JournalSettings { path, max_bytes: 1 << 20, sync: JournalSync::Never };
            worker.journal = Journal::on_small_disk(&settings, free);
            _ = worker.round(group.at, None, std::iter::empty()).await;
            assert_eq!(
                (worker.outbox.waiting.len(), worker.report.lock().decided),
                (published, published as u64),
                "{disk}"
            );
        }
    }

    #[tokio::test]
    async fn a_reply_of_the_cloud_ends_no_window_before_the_messages_of_its_round() {
        let mut group = Group::new();
        let mut worker = group.leads().await;
        for (slot, id) in ["a", "b", "c"].into_iter().enumerate() {
            group.starts(&mut worker, id, slot as u8);
        }
        group.triggers(&mut worker, 101);
        group.has_no_view(&mut worker, "a", 101);
        group.has_no_view(&mut worker, "b", 101);
        group.at.now.since_start = group.at.micros() + Duration::from_secs(1);
        let reply = CloudReply { sample: SampleId(7), result: Err(Degraded::CloudUnreachable) };
        let message = group.no_view("c", 101);
        _ = worker.round(group.at, Some(Input::Cloud(reply)), [message].into_iter()).await;
        assert_eq!((worker.leader.counts().windows_timed_out, worker.leader.counts().after_close), (0, 0));
    }
}
