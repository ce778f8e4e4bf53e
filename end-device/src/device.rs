//! Starting and stopping a device.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use headwater_inference::bundle::Bundle;
use headwater_link::{Link, LinkConfig, QoS, RetainedMessage};
use headwater_protocol::{
    Birth, Boot, DeviceState, DeviceTopic, Exit, NetworkId, SampleId, Status, Topic, Topics,
};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::{info, warn};

pub use crate::agent::Ended;
use crate::agent::{Agent, AgentTopics};
use crate::boot::next_boot;
use crate::capture::Schedule;
use crate::conduct::Conduct;
use crate::config::{Capture, DeviceConfig, OnBrokenFrame};
use crate::engine;
use crate::error::DeviceError;
use crate::model::Model;
use crate::outbox::{Outbox, SharedReport, lock};
use crate::recent::Recent;
use crate::report::DeviceReport;
use crate::sample_clock::SampleClock;
use crate::source::{Faults, Source};
use crate::spool::Spool;
use crate::store::Store;
use crate::unsettled::Unsettled;

/// The device agent.
pub struct Device;

/// A running device. Dropping it ends the device as [`DeviceHandle::kill`] does.
pub struct DeviceHandle {
    link: Link,
    report: SharedReport,
    stop: watch::Sender<bool>,
    connected: watch::Receiver<bool>,
    agent: JoinHandle<Ended>,
    ended: Option<Ended>,
    grace: Duration,
}

impl Device {
    /// Loads the section of the device's slot, starts the model thread, and starts connecting; a broker that is not there
    /// yet is waited for. Needs a tokio runtime. The bundle may hold no more than this device's section, and is let go of.
    ///
    /// # Errors
    /// [`DeviceError`] for a slot, section, frames or state that cannot be used.
    pub async fn start(
        config: DeviceConfig,
        bundle: Arc<Bundle>,
        source: impl Into<Source>,
    ) -> Result<DeviceHandle, DeviceError> {
        let start = Instant::now();
        let source = source.into();
        check(&config, &bundle, &source)?;
        let boot = next_boot(config.state_dir.as_deref(), SystemTime::now())?;
        let is_each = config.capture == Capture::Source;
        let sample_clock = is_each.then(|| SampleClock::open(config.state_dir.as_deref())).transpose()?;
        let network = bundle.network_id();
        let spool = open_spool(&config, network)?;
        let limits = bundle.manifest().limits();
        let conduct = Conduct::of(&bundle, config.policy.clone());
        let (slot, queue_samples) = (config.slot, config.queue_samples);
        let (choice, onnxruntime) = (config.engine, config.onnxruntime.clone());
        let loading = tokio::task::spawn_blocking(move || {
            let section = engine::load(choice, onnxruntime.as_deref(), &bundle, slot)?;
            Model::start(section, queue_samples)
        });
        let (model, done) = loading.await.map_err(|e| DeviceError::Thread(e.into()))??;

        let topics = Topics::new(&config.site, &config.group);
        let mine = |leaf| topics.device(&config.id, leaf);
        let heard = AgentTopics {
            trigger: topics.name(&Topic::Trigger),
            request: topics.name(&Topic::Request),
            settled: topics.name(&Topic::Settled),
            status: mine(DeviceTopic::Status),
        };
        let mut link = link_config(&config, &topics, &heard, boot, network)?;
        link.max_payload_bytes = link.max_payload_bytes.max(limits.largest_payload());
        let (link, incoming) = Link::start(link)?;
        let report = Arc::new(Mutex::new(DeviceReport::new(config.id.clone(), slot, boot)));
        let feed = source.start(is_each, Faults::new(Arc::clone(&report)))?;
        let (stop, stopped) = watch::channel(false);
        let (connected_sender, connected) = watch::channel(false);
        let agent = Agent {
            slot,
            feed,
            sample_clock,
            model,
            conduct,
            unsettled: Unsettled::new(Store::new(config.keep_samples, config.keep_ms), spool),
            recent: Recent::default(),
            outbox: Outbox {
                link: link.clone(),
                limits,
                network: network.tag(),
                boot,
                qos: config.upward_qos,
                summary_topic: mine(DeviceTopic::Summary),
                features_topic: mine(DeviceTopic::Features),
                decision_topic: mine(DeviceTopic::Decision),
                report: Arc::clone(&report),
            },
            topics: heard,
            schedule: match config.capture {
                Capture::Trigger | Capture::Source => None,
                Capture::Clock { period_ms } => Some(Schedule::new(period_ms)),
            },
            grace: Duration::from_millis(config.grace_ms),
            start,
            last_look: start,
            up: Status { state: DeviceState::Up, boot },
            connected: connected_sender,
            has_been_connected: false,
        };
        info!(
            device = %config.id, %slot, boot = boot.0, network = network.short(), broker = %config.broker,
            start_ms = start.elapsed().as_millis() as u64, "device ready"
        );
        let agent = tokio::spawn(agent.run(incoming, done, stopped));
        let grace = Duration::from_millis(config.grace_ms);
        Ok(DeviceHandle { link, report, stop, connected, agent, ended: None, grace })
    }
}

impl DeviceHandle {
    /// What the device has done so far.
    pub fn report(&self) -> DeviceReport {
        let mut report = lock(&self.report).clone();
        report.add_link(self.link.wire(), self.link.counts());
        report
    }

    /// Waits until the broker has its subscriptions, so that a trigger from now on is heard.
    pub async fn connected(&self) {
        // An agent that has ended is connected no more; there is nothing to wait for.
        let _ = self.connected.clone().wait_for(|is_connected| *is_connected).await;
    }

    /// Waits until the device has ended by itself: its source came to its end, or something failed. Needs a
    /// [`DeviceHandle::shutdown`] still, to say goodbye.
    pub async fn ended(&mut self) -> Ended {
        if let Some(ended) = self.ended {
            return ended;
        }
        // A task that panicked or was aborted cannot answer any more, as one without its model.
        let ended = (&mut self.agent).await.unwrap_or(Ended::Model);
        self.ended = Some(ended);
        ended
    }

    /// Captures no more, sends what is captured, publishes the status `down` and disconnects, within the configured grace.
    pub async fn shutdown(mut self) -> DeviceReport {
        self.stop.send_replace(true);
        if self.ended.is_none() && tokio::time::timeout(self.grace, &mut self.agent).await.is_err() {
            warn!(grace_ms = self.grace.as_millis() as u64, "gave up sending what is captured");
        }
        self.link.shutdown(self.grace).await;
        self.report()
    }

    /// Ends at once, as a crash would: the socket is dropped and the broker publishes the last will.
    pub fn kill(&self) {
        self.agent.abort();
        self.link.kill();
    }
}

impl Drop for DeviceHandle {
    fn drop(&mut self) {
        self.kill();
    }
}

fn check(config: &DeviceConfig, bundle: &Bundle, source: &Source) -> Result<(), DeviceError> {
    let manifest = bundle.manifest();
    let slot = config.slot;
    if slot.index() >= usize::from(manifest.slots) {
        return Err(DeviceError::Slot { network: bundle.network_id(), last: manifest.slots - 1, slot });
    }
    let configuration = manifest.configuration;
    if config.policy.is_some() && !configuration.has(Exit::Device) {
        return Err(DeviceError::NoExit {
            network: bundle.network_id(),
            configuration: configuration.letter(),
        });
    }
    let (expected, found) = (manifest.preprocessing.view_bytes(), source.view_bytes());
    if source.slot() != slot || expected != found {
        return Err(DeviceError::OtherFrames { slot, expected, found_slot: source.slot(), found });
    }
    if config.capture == Capture::Source {
        let mistake = match (manifest.slots, source.has_own_timing()) {
            (1, true) => None,
            (1, false) => Some("expected a source with its own timing: folder, watch or stdin".to_owned()),
            (slots, _) => Some(format!("expected a network of one device, found one of {slots}")),
        };
        mistake.map_or(Ok(()), |mistake| Err(DeviceError::CaptureSource(mistake)))?;
    }
    let (named, broken) = source.broken();
    if let (Some(first), OnBrokenFrame::Fatal) = (named.first(), config.on_broken_frame) {
        return Err(DeviceError::BrokenFrame((*first).clone(), broken));
    }
    for frame in named {
        warn!(frame = frame.name, reason = frame.reason, broken, "broken frame: silent when it is due");
    }
    Ok(())
}

fn open_spool(config: &DeviceConfig, network: NetworkId) -> Result<Option<Spool>, DeviceError> {
    match (config.spool_bytes, &config.state_dir) {
        (0, _) => Ok(None),
        (bytes, None) => Ok(Some(Spool::in_memory(bytes, network))),
        (bytes, Some(dir)) => Spool::open(dir.join("spool"), bytes, network).map(Some),
    }
}

fn link_config(
    config: &DeviceConfig,
    topics: &Topics,
    heard: &AgentTopics,
    boot: Boot,
    network: NetworkId,
) -> Result<LinkConfig, DeviceError> {
    let birth = Birth {
        device: config.id.clone(),
        slot: config.slot,
        boot,
        software: concat!("headwater-device/", env!("CARGO_PKG_VERSION")).into(),
        network,
        sample: first_sample(config.capture),
        capabilities: Vec::new(),
    };
    let status = |state| json(&heard.status, &Status { state, boot });
    let client_id = format!("{}.{}.{}", config.site, config.group, config.id);
    let mut link = LinkConfig::new(config.broker.clone(), client_id)
        .subscribe(&heard.request, QoS::AtLeastOnce)
        .subscribe(&heard.settled, QoS::AtMostOnce)
        .subscribe(&heard.status, QoS::AtLeastOnce);
    if config.capture == Capture::Trigger {
        link = link.subscribe(&heard.trigger, QoS::AtLeastOnce);
    }
    // Birth first: who hears that a device is up knows by then who it is.
    link.retained =
        vec![json(&topics.device(&config.id, DeviceTopic::Birth), &birth)?, status(DeviceState::Up)?];
    link.last_will = Some(status(DeviceState::Down)?);
    link.keep_alive_s = config.keep_alive_s;
    Ok(link)
}

/// The id of a sample at this moment, where the clock gives them.
fn first_sample(capture: Capture) -> Option<SampleId> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    match capture {
        Capture::Trigger => None,
        Capture::Clock { period_ms } => Some(Schedule::new(period_ms).sample_at(now)),
        Capture::Source => Some(SampleId(u64::try_from(now.as_millis()).unwrap_or(u64::MAX))),
    }
}

fn json(topic: &str, value: &impl serde::Serialize) -> Result<RetainedMessage, DeviceError> {
    let payload = serde_json::to_vec(value).map_err(|e| DeviceError::Thread(e.into()))?;
    Ok(RetainedMessage::new(topic, payload))
}
