//! Starting and stopping a device.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use headwater_inference::bundle::Bundle;
use headwater_inference::policy::{ExitPolicy, Policy};
use headwater_inference::sections::{MapCoder, ScoreCoder};
use headwater_link::{BrokerNeeds, Link};
use headwater_protocol::message_sizes::PacketSizes;
use headwater_protocol::{Exit, NetworkId, PolicyId, Session};
use headwater_telemetry::{Health, WorkLoops};
use headwater_transport::LogLimit;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tracing::{info, warn};

pub use crate::agent::Ended;
use crate::agent::{Agent, AgentInputs};
use crate::answer_batch::AnswerBatch;
use crate::capture_clock::CaptureClock;
use crate::config::Capture;
use crate::engine;
use crate::error::DeviceError;
use crate::link_setup::{DeviceTopics, LinkSetup, link_config};
use crate::opened::{OpenedDevice, check_slot};
use crate::publisher::Publisher;
use crate::recent_samples::RecentSamples;
use crate::reply_rule::ReplyRule;
use crate::report::{DeviceReport, SharedReport};
use crate::section_runner::{JobResult, SectionRunner};
use crate::settings::DeviceSettings;
use crate::source::Source;
use crate::spool::{Owner, Spool, SpoolFolder};
use crate::state_folder::{FrameIds, StateFolder, StateLock, next_boot};
use crate::status::DeviceStatus;
use crate::timestamp::DeviceClock;
use crate::unsettled_answers::{AnswerBuffer, UnsettledAnswers};

/// The device agent.
pub struct Device;

/// A running device. Dropping the handle ends the device as [`DeviceHandle::kill`] does.
pub struct DeviceHandle {
    pub(crate) status: Arc<DeviceStatus>,
    stop: watch::Sender<bool>,
    policies: watch::Sender<Option<(ExitPolicy, PolicyId)>>,
    connected: watch::Receiver<bool>,
    agent: JoinHandle<Ended>,
    ended: Option<Ended>,
    grace: Duration,
    state_lock: Option<StateLock>,
}

impl Device {
    /// Loads the section of the device's slot, starts the agent, and starts connecting; does not wait for the broker. Needs a tokio
    /// runtime. A bundle with this device's section alone is enough; the bundle is dropped after loading.
    ///
    /// # Errors
    /// [`DeviceError`] for a slot, section, frames or state that cannot be used.
    pub async fn start(
        device: OpenedDevice,
        bundle: Arc<Bundle>,
        source: impl Into<Source>,
    ) -> Result<DeviceHandle, DeviceError> {
        let clock = DeviceClock::start();
        let source = source.into();
        Self::check(&device, &bundle, &source)?;
        let report = source.report.clone();
        let settings = &device.settings;
        report.set_device(&settings.id);
        let state_dir = settings.state_dir.as_deref();
        let state = state_dir.map(|dir| StateFolder::open(dir, report.clone())).transpose()?;
        let (state, state_lock) = state.unzip();
        let network = bundle.network_id();
        let boot = next_boot(state.as_ref(), network, SystemTime::now())?;
        let spool = open_spool(settings, network, &report)?;
        let frame_ids = (settings.capture() == Capture::Source)
            .then(|| FrameIds::open(state.as_ref(), spool.newest()))
            .transpose()?;
        let limits = bundle.manifest().limits();
        let scores = ScoreCoder::of(bundle.manifest(), settings.slot);
        let maps = MapCoder::of(&bundle, settings.slot)
            .map_err(|error| DeviceError::unusable("loading the coder of slot", settings.slot, error))?;
        let work_loops = WorkLoops::default();
        let reply_rule = ReplyRule::of(&bundle, device.policy.clone());
        let (section, results) = load_section(settings, bundle, &work_loops).await?;
        let topics = DeviceTopics::new(settings);
        let LinkSetup { mut link, birth, presence } =
            link_config(&device, &topics, boot, (network, reply_rule.policy()));
        link.max_payload_bytes = link.max_payload_bytes.max(limits.largest_payload());
        let PacketSizes { usual, rare } = PacketSizes::of_member(limits.largest_payload());
        link.needs = BrokerNeeds::of_member([usual, rare], false);
        let (link, incoming) = Link::start(link)?;
        let source = source.start(settings.capture(), settings.name_frames)?;
        let (stop, stop_receiver) = watch::channel(false);
        let (policies, policy_receiver) = watch::channel(None);
        let (connected_sender, connected) = watch::channel(false);
        let grace = Duration::from_millis(settings.grace_ms);
        let agent = Agent {
            source,
            frame_ids,
            section,
            reply_rule,
            batch: AnswerBatch::new(settings.batch_ms),
            unsettled: UnsettledAnswers {
                memory: AnswerBuffer::new(settings.keep_samples, settings.keep_ms),
                spool,
            },
            recent: RecentSamples::default(),
            publisher: Publisher {
                link: link.clone(),
                limits,
                scores,
                maps,
                requests: Session::of_network(network),
                session: Session::of_boot(network, boot),
                qos: settings.upward_qos,
                topics,
                report: report.clone(),
            },
            birth,
            presence,
            refusal_log: LogLimit::new(1),
            trigger_log: LogLimit::new(3),
            capture_clock: CaptureClock::of(settings.capture(), clock.now()),
            grace,
            clock,
            spool_served: Instant::now(),
            connected: connected_sender,
            has_been_connected: false,
        };
        info!(
            device = %settings.id, slot = %settings.slot, boot = boot.0, network = network.short(), broker = %device.broker.address,
            start_ms = clock.now().us / 1000, "device ready"
        );
        let inputs = AgentInputs { incoming, results, stop: stop_receiver, policies: policy_receiver };
        let agent = tokio::spawn(agent.run(inputs));
        let status = Arc::new(DeviceStatus { device, boot, network, link, report, work_loops });
        Ok(DeviceHandle { status, stop, policies, connected, agent, ended: None, grace, state_lock })
    }

    /// Checks that settings, policy, bundle and source fit together.
    ///
    /// # Errors
    /// [`DeviceError`] for a slot, a policy, a cause of capture, a setting or frames that do not fit.
    pub fn check(device: &OpenedDevice, bundle: &Bundle, source: &Source) -> Result<(), DeviceError> {
        let (settings, manifest) = (&device.settings, bundle.manifest());
        let slot = settings.slot;
        let network = bundle.network_id().short();
        let unfit = |mistake: String| Err(DeviceError::Unfit(mistake));
        check_slot(bundle, slot)?;
        let configuration = manifest.configuration;
        let batch_ms = settings.batch_ms;
        if batch_ms > 0 && configuration.pushes_maps() {
            return unfit(format!(
                "batch_ms: network {network} is of configuration ({}), whose device sends its view, its decision or its features at once: \
                 expected 0, found {batch_ms}",
                configuration.letter()
            ));
        }
        if batch_ms > 0 && settings.name_frames {
            return unfit(format!(
                "name_frames: an answer with a name goes in a message of its own: expected batch_ms = 0, found {batch_ms}"
            ));
        }
        let policy = device.policy.as_ref().map_or(bundle.policy(), |(policy, _)| policy);
        let max_batch_ms = u64::from(policy.max_batch_ms());
        if batch_ms > max_batch_ms {
            return unfit(format!(
                "batch_ms: expected at most {max_batch_ms}, half of the policy's window_ms ({}) and a quarter of its deadline_ms ({}), since \
                 the leader decides without answers that come later; found {batch_ms}. Where the leader has longer waits by a policy file, give \
                 this device the file too",
                policy.window_ms, policy.deadline_ms
            ));
        }
        // A device with batches may have a policy file without an exit: the waits of the policy bound `batch_ms`.
        if device.policy.is_some() && !configuration.has(Exit::DEVICE) && batch_ms == 0 {
            return unfit(format!(
                "policy: network {network} is of configuration ({}), where a device decides nothing: \
                 thresholds and timing are the leader's (headwater-aggregator --policy)",
                configuration.letter()
            ));
        }
        let (expected, found) = (manifest.preprocessing.view_bytes(), source.view_bytes);
        if source.slot != slot || expected != found {
            return unfit(format!(
                "frames: expected views of slot {slot} of {expected} bytes, found slot {} of {found}",
                source.slot
            ));
        }
        let slots = manifest.slots;
        if settings.capture() == Capture::Source && slots != 1 {
            let mistake = "capture = \"source\": expected a network of one device, found one of";
            return unfit(format!("{mistake} {slots}"));
        }
        if settings.capture() == Capture::Source && !source.has_own_timing() {
            let mistake =
                "capture = \"source\": expected a source with its own timing, found an archive or snapshots";
            return unfit(mistake.into());
        }
        Ok(())
    }
}

impl DeviceHandle {
    /// Counts since the start.
    pub fn report(&self) -> DeviceReport {
        let DeviceStatus { device, boot, link, report, .. } = &*self.status;
        let counts = report.with_link(link);
        DeviceReport { device: device.settings.id.clone(), slot: device.settings.slot, boot: *boot, counts }
    }

    /// Health and status, also after the device has ended.
    pub fn health(&self) -> Arc<dyn Health> {
        Arc::clone(&self.status) as Arc<dyn Health>
    }

    /// Replaces the policy of the exit `device` for samples that are answered from now on. In a network without this exit nothing changes.
    pub fn set_policy(&self, policy: &Policy, id: PolicyId) {
        self.policies.send_replace(Some((policy.of(Exit::DEVICE).clone(), id)));
    }

    /// Waits until the broker has the subscriptions, so that a later trigger reaches the device, or until the device has ended.
    pub async fn connected(&self) {
        // The wait fails if the agent has ended.
        let _ = self.connected.clone().wait_for(|is_connected| *is_connected).await;
    }

    /// Waits until the device has ended by itself, with its source or by a failure. [`DeviceHandle::shutdown`] is still needed to
    /// disconnect cleanly.
    pub async fn ended(&mut self) -> Ended {
        if let Some(ended) = self.ended {
            return ended;
        }
        // A task that panicked or was aborted cannot answer any more; it ends like a device whose model thread failed.
        let ended = (&mut self.agent).await.unwrap_or(Ended::Model);
        self.ended = Some(ended);
        ended
    }

    /// Stops capturing, sends the answers of captured frames, publishes the status `down`, and disconnects. Sending the answers and
    /// disconnecting may take one grace period each.
    pub async fn shutdown(mut self) -> DeviceReport {
        self.stop.send_replace(true);
        if self.ended.is_none() && tokio::time::timeout(self.grace, &mut self.agent).await.is_err() {
            warn!(
                grace_ms = self.grace.as_millis() as u64,
                "shutdown took too long: some captured frames are not answered"
            );
        }
        self.status.link.shutdown(self.grace).await;
        self.report()
    }

    /// Ends at once, like a crash: the socket is dropped and the broker publishes the last will.
    pub fn kill(&self) {
        self.agent.abort();
        self.status.link.kill();
        // The next device may use the state folder at once.
        self.state_lock.iter().for_each(StateLock::release);
    }
}

impl Drop for DeviceHandle {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Loads the section on a thread that may block, and drops the bundle.
async fn load_section(
    settings: &DeviceSettings,
    bundle: Arc<Bundle>,
    work_loops: &WorkLoops,
) -> Result<(SectionRunner, mpsc::Receiver<JobResult>), DeviceError> {
    let settings = settings.clone();
    let work_loop = work_loops.add("the section");
    let loading = tokio::task::spawn_blocking(move || {
        let section = engine::load(&settings, &bundle)?;
        SectionRunner::start(section, settings.queue_samples, work_loop)
    });
    loading.await.map_err(|e| DeviceError::Thread(e.into()))?
}

fn open_spool(
    settings: &DeviceSettings,
    network: NetworkId,
    report: &SharedReport,
) -> Result<Spool, DeviceError> {
    let DeviceSettings { site, group, slot, id, spool, state_dir, .. } = settings;
    match state_dir {
        Some(dir) if spool.max_bytes > 0 => {
            let (site, group) = (site.clone(), group.clone());
            let owner = Owner { site, group, slot: *slot, device: id.clone() };
            let folder = SpoolFolder { path: dir.join("spool"), owner };
            Spool::open(&folder, spool.max_bytes, network, report.clone())
        }
        // The spool is in memory if there is no state folder, or if its size is 0 bytes: then it holds only the ids of given-up samples.
        _ => Ok(Spool::in_memory(spool.max_bytes, network, report.clone())),
    }
}
