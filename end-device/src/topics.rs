//! MQTT topics of a device.

use headwater_protocol::{DeviceTopic, Topic, Topics};

use crate::config::DeviceConfig;

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
        let own = |leaf| topics.device(&config.id, leaf);
        Self {
            trigger: topics.name(&Topic::Trigger),
            request: topics.name(&Topic::Request),
            settled: topics.name(&Topic::Settled),
            status: own(DeviceTopic::Status),
            birth: own(DeviceTopic::Birth),
            summary: own(DeviceTopic::Summary),
            features: own(DeviceTopic::Features),
            decision: own(DeviceTopic::Decision),
        }
    }
}
