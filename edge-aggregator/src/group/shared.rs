//! Parts that all groups of a process share.

use std::sync::Arc;
use std::time::Duration;

use headwater_link::{BrokerNeeds, LinkConfig, QoS};
use headwater_protocol::message_sizes::PacketSizes;
use headwater_telemetry::WorkLoops;
use headwater_transport::BrokerAccess;
use headwater_transport::tls::ClientIdentity;

use crate::cloud::CloudConnection;
use crate::error::AggregatorError;
use crate::settings::config::{OpenedGroup, SharedConfig};
use crate::settings::group::Role;

/// Settings, access to the broker, connection to the cloud and work loops that all groups of a process share.
#[derive(Clone, Debug)]
pub struct Shared {
    pub(crate) config: SharedConfig,
    /// Access to the broker, with the identity of groups that have no certificate of their own.
    broker: BrokerAccess,
    /// `None` without a cloud service.
    pub(crate) cloud: Option<Arc<CloudConnection>>,
    pub(crate) work_loops: WorkLoops,
}

impl Shared {
    /// Checks the shared configuration, reads the identity, and prepares the connection to the cloud.
    ///
    /// # Errors
    /// [`AggregatorError::Config`]: the mistakes of the settings; if there are none, of the files.
    pub fn new(config: SharedConfig) -> Result<Self, AggregatorError> {
        let mistakes = config.check();
        if !mistakes.is_empty() {
            return Err(AggregatorError::Config(mistakes.into_iter().map(String::from).collect()));
        }
        let broker = config.security.broker_access(&config.broker).map_err(AggregatorError::Config)?;
        config.security.warn_of_link("broker.address", &config.broker.address);
        let cloud = match &config.cloud.url {
            Some(url) => {
                config.security.warn_of_link("cloud.url", url);
                let key = config.cloud.secret().map_err(AggregatorError::mistake)?;
                Some(Arc::new(CloudConnection::new(&config.cloud, broker.connector(), key)))
            }
            None => None,
        };
        Ok(Self { config, broker, cloud, work_loops: WorkLoops::default() })
    }

    /// Longest time that a shutdown waits for open samples, and again for the broker.
    pub(crate) fn grace(&self) -> Duration {
        Duration::from_millis(self.config.grace_ms.into())
    }

    /// TLS identity of a group's connection to the broker.
    pub(crate) fn identity(&self, group: &OpenedGroup) -> Option<ClientIdentity> {
        group.identity.clone().or_else(|| self.broker.identity.clone())
    }

    /// Settings of a group's connection to the broker, which subscribes to `filters` in their order. `largest_payload` is the size in bytes
    /// of the largest message of the group's networks; `None` if no such messages are read.
    pub(crate) fn link_config(
        &self,
        group: &OpenedGroup,
        client_id: String,
        largest_payload: Option<usize>,
        filters: impl IntoIterator<Item = String>,
    ) -> LinkConfig {
        let identity = self.identity(group);
        let mut link = LinkConfig::new(BrokerAccess { identity, ..self.broker.clone() }, client_id);
        link.incoming_messages = self.config.queue_messages;
        link.outgoing_messages = link.incoming_messages;
        link.max_payload_bytes = link.max_payload_bytes.max(largest_payload.unwrap_or(0));
        let is_leader = matches!(group.role, Role::Leader { .. });
        let PacketSizes { usual, rare } = group.networks.packet_sizes(is_leader, group.settings.details);
        link.needs = BrokerNeeds::of_member([usual, rare], true);
        filters.into_iter().fold(link, |link, filter| link.subscribe(filter, QoS::AtLeastOnce))
    }
}
