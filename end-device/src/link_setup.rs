//! The device's MQTT connection: topics, birth, status and last will.

use headwater_link::{LinkConfig, QoS, RetainedMessage, Subscription};
use headwater_protocol::{
    BATCHES, Birth, Boot, DeviceId, DeviceState, DeviceTopic, NetworkId, Numbering, PolicyId, Schema, Status,
    Topic, Topics,
};
use headwater_transport::random;

use crate::config::Capture;
use crate::opened::OpenedDevice;
use crate::presence_watch::PresenceWatch;
use crate::settings::DeviceSettings;

/// Topics that the device subscribes or publishes to.
#[derive(Debug)]
pub(crate) struct DeviceTopics {
    pub(crate) group: Topics,
    device: DeviceId,
}

impl DeviceTopics {
    pub(crate) fn new(settings: &DeviceSettings) -> Self {
        Self { group: Topics::new(&settings.site, &settings.group), device: settings.id.clone() }
    }

    /// A topic of this device.
    pub(crate) fn own(&self, leaf: DeviceTopic) -> String {
        self.group.device(&self.device, leaf)
    }
}

/// Subscriptions of a device. The device's own birth and status are among them, since they show a second device with the same id.
pub fn subscriptions(topics: &Topics, device: &DeviceId, capture: Capture) -> Vec<Subscription> {
    let own = |leaf| (topics.device(device, leaf), QoS::AtLeastOnce);
    let mut filters = vec![
        (topics.name(&Topic::Request), QoS::AtLeastOnce),
        (topics.name(&Topic::Settled), QoS::AtMostOnce),
        own(DeviceTopic::Status),
        own(DeviceTopic::Birth),
        own(DeviceTopic::Cmd),
    ];
    if capture == Capture::Trigger {
        filters.push((topics.name(&Topic::Trigger), QoS::AtLeastOnce));
    }
    filters.into_iter().map(|(filter, qos)| Subscription { filter, qos }).collect()
}

/// Configuration of a device's connection, and the device's own retained messages.
pub(crate) struct LinkSetup {
    pub(crate) link: LinkConfig,
    pub(crate) birth: Birth,
    pub(crate) presence: PresenceWatch,
}

/// Configuration of the connection: subscriptions, birth, status and last will.
pub(crate) fn link_config(
    device: &OpenedDevice,
    topics: &DeviceTopics,
    boot: Boot,
    (network, policy): (NetworkId, Option<PolicyId>),
) -> LinkSetup {
    let settings = &device.settings;
    let batches = (settings.batch_ms > 0).then_some(BATCHES);
    let capabilities = batches.into_iter().map(Into::into).collect();
    let birth = Birth {
        schema: Schema,
        device: settings.id.clone(),
        slot: settings.slot,
        boot,
        software: concat!("headwater-device/", env!("CARGO_PKG_VERSION")).into(),
        network,
        numbering: Some(numbering(settings.capture())),
        policy,
        capabilities,
    };
    let status = |state| {
        let status = Status { schema: Schema, state, boot, frozen: None };
        json(&topics.own(DeviceTopic::Status), &status)
    };
    // The client id cannot be guessed: the broker would end this connection if another client connected with the same id.
    let random = random() as u32;
    let client_id = format!("{}.{}.{}.{random:08x}", settings.site, settings.group, settings.id);
    let mut link = LinkConfig::new(device.broker.clone(), client_id);
    link.subscriptions = subscriptions(&topics.group, &settings.id, settings.capture());
    // The birth is published before the status, so that a reader of the status knows the device.
    let (kept_birth, up) = (json(&topics.own(DeviceTopic::Birth), &birth), status(DeviceState::Up));
    let presence = PresenceWatch::new(kept_birth.payload.clone(), up.payload.clone());
    link.retained = vec![kept_birth, up];
    link.last_will = Some(status(DeviceState::Down));
    link.keep_alive_s = settings.keep_alive_s;
    LinkSetup { link, birth, presence }
}

/// Numbering of samples, which follows from the cause of a capture.
fn numbering(capture: Capture) -> Numbering {
    match capture {
        Capture::Trigger => Numbering::Trigger,
        // The settings bound the period to a day, which fits 32 bits.
        Capture::Clock { period_ms } => {
            Numbering::Clock { period_ms: u32::try_from(period_ms).unwrap_or(u32::MAX) }
        }
        Capture::Source => Numbering::Source,
    }
}

pub(crate) fn json(topic: &str, value: &impl serde::Serialize) -> RetainedMessage {
    RetainedMessage::new(topic, serde_json::to_vec(value).expect("names and numbers have a JSON form"))
}
