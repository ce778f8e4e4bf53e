//! Parts that all groups of a process share.

use std::sync::Arc;
use std::time::Duration;

use headwater_link::{LinkConfig, QoS};
use headwater_telemetry::WorkLoops;
use headwater_transport::BrokerAccess;
use headwater_transport::tls::ClientIdentity;

use crate::cloud::CloudConnection;
use crate::error::AggregatorError;
use crate::settings::config::{OpenedGroup, SharedConfig};

/// Cloud client and limits that all groups of a process share.
#[derive(Clone, Debug)]
pub struct Shared {
    pub(crate) config: SharedConfig,
    /// The broker, and what a group without a certificate of its own shows it.
    broker: BrokerAccess,
    /// `None` without a cloud service.
    pub(crate) cloud: Option<Arc<CloudConnection>>,
    /// Work loops of all groups.
    pub(crate) work_loops: WorkLoops,
}

impl Shared {
    /// Checks the shared configuration, reads the identity, and prepares the connection to the cloud.
    ///
    /// # Errors
    /// [`AggregatorError::Config`] with every mistake.
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

    /// Settings of a connection of a group to the broker, in the order of the subscriptions. `largest_payload` is that of the group's
    /// networks.
    pub(crate) fn link_config(
        &self,
        group: &OpenedGroup,
        client_id: String,
        largest_payload: Option<usize>,
        filters: impl IntoIterator<Item = String>,
    ) -> LinkConfig {
        let identity = self.identity(group);
        let mut link = LinkConfig::new(BrokerAccess { identity, ..self.broker.clone() }, client_id);
        link.keep_alive_s = group.settings.keep_alive_s;
        link.incoming_messages = self.config.queue_messages;
        link.outgoing_messages = link.incoming_messages;
        link.max_payload_bytes = link.max_payload_bytes.max(largest_payload.unwrap_or(0));
        filters.into_iter().fold(link, |link, filter| link.subscribe(filter, QoS::AtLeastOnce))
    }
}
