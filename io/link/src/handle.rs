//! The handle of a link.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use headwater_transport::WireBytes;
use parking_lot::Mutex;
use rumqttc::{AsyncClient, ClientError, PublishNotice, PublishOptions};
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

use crate::acknowledgement::Acknowledgement;
use crate::alias_start::AliasStart;
use crate::backoff::Backoff;
use crate::broker_bytes::Seen;
use crate::config::{LinkConfig, QoS, RetainedMessage};
use crate::counts::{Counters, LinkCounts, count};
use crate::driver::Driver;
use crate::error::LinkError;
use crate::failure::ConnectFailure;
use crate::incoming::Incoming;
use crate::options::mqtt_options;
use crate::outage::Outage;
use crate::refused_publication::RefusalReporter;
use crate::shared::Shared;

/// A connection to the broker that is opened again whenever it ends. Clones of the handle share the connection.
///
/// [`Link::shutdown`] ends the connection in order. Otherwise the socket closes when the last clone is dropped, and the broker
/// publishes the last will.
#[derive(Clone, Debug)]
pub struct Link {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    client: AsyncClient,
    shared: Arc<Shared>,
    /// The driver holds the receiver until the driver ends.
    closing: watch::Sender<bool>,
    driver: AbortHandle,
    refusals: RefusalReporter,
}

/// Most bytes of a PUBLISH packet without topic and payload: fixed header, lengths, packet id and topic alias.
const PUBLISH_OVERHEAD_BYTES: usize = 16;

/// Packets of the driver itself, for which the client's queue needs room beside the owner's messages.
const DRIVER_MESSAGES: usize = 4;

impl Link {
    /// Begins to connect and returns at once; the link keeps trying. Needs a tokio runtime.
    ///
    /// # Errors
    /// [`LinkError::Config`], [`LinkError::Topic`] or [`LinkError::Oversize`] for settings out of range.
    pub fn start(mut config: LinkConfig) -> Result<(Self, mpsc::Receiver<Incoming>), LinkError> {
        config.check()?;
        let connector = config.broker.connector();
        let capacity = config.outgoing_messages + config.retained.len() + DRIVER_MESSAGES;
        let seen = Arc::<Mutex<Seen>>::default();
        let (client, mut events) = AsyncClient::builder(mqtt_options(&config, &connector, &seen))
            .capacity(capacity)
            .try_build()
            .map_err(|e| LinkError::Config(e.to_string()))?;
        // The library reserves room for 128 events, 51 KB. A link that needs the room allocates it later.
        events.state.events.shrink_to_fit();
        let (incoming, receiver) = mpsc::channel(config.incoming_messages);
        let closing = watch::Sender::new(false);
        let shared = Arc::new(Shared {
            retained: Mutex::new(std::mem::take(&mut config.retained)),
            config,
            connector,
            counters: Counters::default(),
            seen,
            is_connected: AtomicBool::new(false),
            broker_max_packet_bytes: AtomicUsize::new(0),
            failure: watch::Sender::new(None),
        });
        let refusals = RefusalReporter::new(&incoming, &shared);
        let driver = Driver {
            events,
            client: client.clone(),
            shared: Arc::clone(&shared),
            incoming,
            closing: closing.subscribe(),
            backoff: Backoff::new(),
            outage: Outage::default(),
            refusals: refusals.clone(),
            aliases: AliasStart::default(),
        };
        let driver = tokio::spawn(driver.run()).abort_handle();
        Ok((Self { inner: Arc::new(Inner { client, shared, closing, driver, refusals }) }, receiver))
    }

    /// Queues a message without waiting. When the connection ends, queued and unacknowledged messages are lost, also at `QoS` 1. A
    /// message at `QoS` 1 that the broker refuses comes back as [`Incoming::Refused`].
    ///
    /// # Errors
    /// [`LinkError::NotConnected`], [`LinkError::QueueFull`], [`LinkError::Oversize`] or [`LinkError::Topic`]: the link still works.
    /// [`LinkError::Closed`] after [`Link::shutdown`], [`Link::leave`] or [`Link::kill`].
    pub fn publish(
        &self,
        topic: impl Into<String>,
        payload: impl Into<Bytes>,
        qos: QoS,
        retain: bool,
    ) -> Result<(), LinkError> {
        let (topic, payload) = self.check(topic.into(), payload.into())?;
        let (client, options) = (&self.inner.client, PublishOptions::new(qos.into()).retain(retain));
        if qos == QoS::AtMostOnce {
            return self.count_result(client.try_publish(topic, payload, options));
        }
        let sent = client.try_publish_tracked(topic.clone(), payload, options);
        self.report_refusal(topic, sent)
    }

    /// Queues a message; waits while the queue is full.
    ///
    /// # Errors
    /// As [`Link::publish`], without [`LinkError::QueueFull`].
    pub async fn publish_when_free(
        &self,
        topic: impl Into<String>,
        payload: impl Into<Bytes>,
        qos: QoS,
        retain: bool,
    ) -> Result<(), LinkError> {
        let (topic, payload) = self.check(topic.into(), payload.into())?;
        let (client, options) = (&self.inner.client, PublishOptions::new(qos.into()).retain(retain));
        if qos == QoS::AtMostOnce {
            return self.count_result(client.publish(topic, payload, options).await);
        }
        let sent = client.publish_tracked(topic.clone(), payload, options).await;
        self.report_refusal(topic, sent)
    }

    /// Queues a message at `QoS` 1 without waiting. The returned value tells later whether the broker has taken the message. With
    /// `retain` the broker keeps the message for later subscribers.
    ///
    /// # Errors
    /// As [`Link::publish`].
    pub fn publish_acknowledged(
        &self,
        topic: impl Into<String>,
        payload: impl Into<Bytes>,
        retain: bool,
    ) -> Result<Acknowledgement, LinkError> {
        let (topic, payload) = self.check(topic.into(), payload.into())?;
        let options = PublishOptions::at_least_once().retain(retain);
        let sent = self.inner.client.try_publish_tracked(topic, payload, options);
        let seen = Arc::clone(&self.inner.shared.seen);
        self.count_result(sent).map(|notice| Acknowledgement::new(notice, seen))
    }

    /// Publishes a retained message of this link again if `found`, the payload that the broker keeps, differs from the link's.
    ///
    /// The payloads differ when the broker notices late that an earlier connection is dead: the last will of that connection then replaces
    /// the status of the new connection. Returns true if the message was published again.
    ///
    /// # Errors
    /// As [`Link::publish`].
    pub fn restore(&self, topic: &str, found: &[u8]) -> Result<bool, LinkError> {
        let retained = self.inner.shared.retained.lock();
        let own = retained.iter().find(|own| own.topic == topic && *own.payload != *found);
        let Some(payload) = own.map(|own| own.payload.clone()) else { return Ok(false) };
        drop(retained);
        self.publish(topic, payload, QoS::AtLeastOnce, true).map(|()| true)
    }

    /// Replaces the payload of a retained message of this link, and publishes it; the link publishes the new payload after every connect.
    ///
    /// # Errors
    /// As [`Link::publish`]; the payload is replaced all the same.
    pub fn replace_retained(&self, topic: &str, payload: impl Into<Bytes>) -> Result<(), LinkError> {
        let payload = payload.into();
        let mut retained = self.inner.shared.retained.lock();
        if let Some(own) = retained.iter_mut().find(|own| own.topic == topic) {
            own.payload = payload.clone();
        }
        drop(retained);
        self.publish(topic, payload, QoS::AtLeastOnce, true)
    }

    /// Returns true while the link accepts messages.
    pub fn is_connected(&self) -> bool {
        self.inner.shared.is_connected.load(Ordering::Acquire)
    }

    /// Watches the reason why the latest attempt to connect failed or the latest connection broke; `None` before the first failure and
    /// while the link is connected.
    pub fn failures(&self) -> watch::Receiver<Option<ConnectFailure>> {
        self.inner.shared.failure.subscribe()
    }

    /// Bytes on the socket since the start, over all connections.
    pub fn wire(&self) -> WireBytes {
        self.inner.shared.connector.wire()
    }

    /// Messages and connections since the start.
    pub fn counts(&self) -> LinkCounts {
        self.inner.shared.counters.read()
    }

    /// Writes the queued messages, publishes the message of `last_will`, and disconnects. If this takes longer than `grace`, the socket
    /// closes and the broker publishes the last will. Without a connection the link ends at once.
    pub async fn shutdown(&self, grace: Duration) {
        self.end(grace, self.inner.shared.config.last_will.clone()).await;
    }

    /// Ends the link as [`Link::shutdown`] does, but without a last message: after a DISCONNECT the broker drops the last will.
    pub async fn leave(&self, grace: Duration) {
        self.end(grace, None).await;
    }

    async fn end(&self, grace: Duration, last: Option<RetainedMessage>) {
        let inner = &self.inner;
        inner.closing.send_replace(true);
        let disconnect = async {
            if let Some(RetainedMessage { topic, payload }) = last {
                let options = PublishOptions::at_least_once().retained();
                // If the queue is closed, there is no connection left to end.
                let _ = inner.client.publish(topic, payload, options).await;
            }
            let _ = inner.client.disconnect_with_timeout(grace).await;
            inner.closing.closed().await;
        };
        if self.is_connected() && tokio::time::timeout(grace, disconnect).await.is_err() {
            let grace_ms = grace.as_millis() as u64;
            tracing::warn!(grace_ms, "the broker did not take the last messages in time");
        }
        self.kill();
    }

    /// Closes the socket at once, as a crash does: the broker publishes the last will.
    pub fn kill(&self) {
        self.inner.closing.send_replace(true);
        self.inner.driver.abort();
    }

    fn check(&self, topic: String, payload: Bytes) -> Result<(String, Bytes), LinkError> {
        let (shared, found) = (&self.inner.shared, payload.len());
        if *self.inner.closing.borrow() {
            return Err(LinkError::Closed);
        }
        let limit = self.max_payload_bytes(topic.len());
        if found > limit {
            count(&shared.counters.refused_oversize);
            return Err(LinkError::Oversize { limit, found });
        }
        if topic.is_empty() || !rumqttc::valid_topic(&topic) {
            return Err(LinkError::Topic(topic));
        }
        if !self.is_connected() {
            count(&shared.counters.refused_not_connected);
            return Err(LinkError::NotConnected);
        }
        Ok((topic, payload))
    }

    /// The smaller of two limits: the configured limit, and the payload that fits into the largest packet the broker takes.
    fn max_payload_bytes(&self, topic_bytes: usize) -> usize {
        let limit = self.inner.shared.config.max_payload_bytes;
        match self.inner.shared.broker_max_packet_bytes.load(Ordering::Relaxed) {
            0 => limit,
            packet => limit.min(packet.saturating_sub(topic_bytes + PUBLISH_OVERHEAD_BYTES)),
        }
    }

    /// Counts a queued message, and reports a refusal by the broker later as an event.
    fn report_refusal(
        &self,
        topic: String,
        sent: Result<PublishNotice, ClientError>,
    ) -> Result<(), LinkError> {
        let notice = self.count_result(sent)?;
        self.inner.refusals.watch(topic, notice);
        Ok(())
    }

    fn count_result<T>(&self, sent: Result<T, ClientError>) -> Result<T, LinkError> {
        let Shared { config, counters, .. } = &*self.inner.shared;
        match sent {
            Ok(sent) => {
                count(&counters.accepted);
                Ok(sent)
            }
            Err(ClientError::RequestChannelFull(_)) => {
                count(&counters.refused_queue_full);
                Err(LinkError::QueueFull { limit: config.outgoing_messages })
            }
            Err(_) => Err(LinkError::Closed),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.driver.abort();
    }
}
