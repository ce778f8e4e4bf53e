//! The device's MQTT connection: topics, birth, status and last will.

use headwater_link::{LinkConfig, QoS, RetainedMessage};
use headwater_protocol::{Birth, Boot, DeviceState, DeviceTopic, NetworkId, SampleId, Status, Topic, Topics};

use crate::capture_clock::CaptureClock;
use crate::config::{Capture, DeviceConfig};
use crate::timestamp::since_1970;

/// Topics that the device subscribes or publishes to.
#[derive(Debug)]
pub(crate) struct DeviceTopics {
    pub(crate) trigger: String,
    pub(crate) request: String,
    pub(crate) settled: String,
    pub(crate) status: String,
    pub(crate) birth: String,
    pub(crate) summary: String,
    pub(crate) features: String,
    pub(crate) decision: String,
}

impl DeviceTopics {
    pub(crate) fn new(config: &DeviceConfig) -> Self {
        let topics = Topics::new(&config.site, &config.group);
        let device_topic = |leaf| topics.device(&config.id, leaf);
        Self {
            trigger: topics.name(&Topic::Trigger),
            request: topics.name(&Topic::Request),
            settled: topics.name(&Topic::Settled),
            status: device_topic(DeviceTopic::Status),
            birth: device_topic(DeviceTopic::Birth),
            summary: device_topic(DeviceTopic::Summary),
            features: device_topic(DeviceTopic::Features),
            decision: device_topic(DeviceTopic::Decision),
        }
    }
}

/// Configuration of the connection: subscriptions, birth, status and last will.
///
/// # Errors
/// [`DeviceError::Thread`] when a message cannot be written as JSON.
pub(crate) fn link_config(
    config: &DeviceConfig,
    topics: &DeviceTopics,
    boot: Boot,
    network: NetworkId,
) -> LinkConfig {
    let birth = Birth {
        device: config.id.clone(),
        slot: config.slot,
        boot,
        software: concat!("headwater-device/", env!("CARGO_PKG_VERSION")).into(),
        network,
        sample: first_sample(config.capture),
        capabilities: Vec::new(),
    };
    let status = |state| json(&topics.status, &Status { state, boot });
    let client_id = format!("{}.{}.{}", config.site, config.group, config.id);
    let mut link = LinkConfig::new(config.broker.clone(), client_id)
        .subscribe(&topics.request, QoS::AtLeastOnce)
        .subscribe(&topics.settled, QoS::AtMostOnce)
        .subscribe(&topics.status, QoS::AtLeastOnce);
    if config.capture == Capture::Trigger {
        link = link.subscribe(&topics.trigger, QoS::AtLeastOnce);
    }
    // Birth comes before the status, so that a reader of the status knows the device.
    link.retained = vec![json(&topics.birth, &birth), status(DeviceState::Up)];
    link.last_will = Some(status(DeviceState::Down));
    link.keep_alive_s = config.options.keep_alive_s;
    link
}

/// The present sample id, if the clock gives the ids.
fn first_sample(capture: Capture) -> Option<SampleId> {
    let now = since_1970();
    match capture {
        Capture::Source => Some(SampleId(now.as_millis() as u64)),
        Capture::Trigger | Capture::Clock { .. } => {
            CaptureClock::of(capture).map(|clock| clock.sample_at(now))
        }
    }
}

fn json(topic: &str, value: &impl serde::Serialize) -> RetainedMessage {
    RetainedMessage::new(topic, serde_json::to_vec(value).expect("names and numbers have a JSON form"))
}
