//! The handle that a tier holds.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use rumqttc::{AsyncClient, ClientError, PublishOptions};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::config::{LinkConfig, QoS, RetainedMessage};
use crate::counts::{Counters, LinkCounts, count};
use crate::driver::Driver;
use crate::error::LinkError;
use crate::options::mqtt_options;
use crate::wire::{WireBytes, WireCounters};

/// A connection to the broker that comes back by itself. Clones share it; when the last one goes, the socket is dropped
/// without a goodbye and the last will speaks. [`Link::shutdown`] leaves politely.
#[derive(Clone, Debug)]
pub struct Link {
    inner: Arc<Inner>,
}

/// What a link tells its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// The broker has accepted the subscriptions; retained messages are on their way.
    Connected,
    /// A message.
    Message {
        /// Its topic.
        topic: String,
        /// Its bytes, at most the configured limit.
        payload: Bytes,
        /// Whether the broker had kept it from before the subscription.
        retain: bool,
    },
    /// A connection that had come up has ended; the link connects again.
    Disconnected {
        /// Why, for people.
        reason: String,
    },
}

/// What handle and driver share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) wire: Arc<WireCounters>,
    pub(crate) counters: Counters,
    pub(crate) is_connected: AtomicBool,
    /// Largest packet the broker takes, from its CONNACK; 0 until it says so.
    pub(crate) broker_packet_max: AtomicUsize,
}

#[derive(Debug)]
struct Inner {
    client: AsyncClient,
    shared: Arc<Shared>,
    closing: watch::Sender<bool>,
    driver: Mutex<Option<JoinHandle<()>>>,
    down: Option<RetainedMessage>,
    largest_payload_bytes: usize,
    outgoing_messages: usize,
}

/// Bytes of a PUBLISH packet beside topic and payload: fixed header, lengths, packet id, no properties.
const PUBLISH_OVERHEAD: usize = 16;

/// Messages beyond the configured ones that the client's queue must have room for: what the driver itself sends.
const DRIVER_ROOM: usize = 4;

impl Link {
    /// Starts connecting, for as long as it takes; does not wait for it. Needs a tokio runtime.
    ///
    /// # Errors
    /// [`LinkError::Config`], [`LinkError::Topic`] or [`LinkError::Oversize`] for settings that cannot work.
    pub fn start(config: LinkConfig) -> Result<(Self, mpsc::Receiver<Incoming>), LinkError> {
        config.check()?;
        let shared = Arc::new(Shared::default());
        let capacity = config.outgoing_messages + config.retained.len() + DRIVER_ROOM;
        let (client, events) = AsyncClient::builder(mqtt_options(&config, &shared.wire))
            .capacity(capacity)
            .try_build()
            .map_err(|e| LinkError::Config(e.to_string()))?;
        let (incoming, receiver) = mpsc::channel(config.incoming_messages);
        let (closing, closed) = watch::channel(false);
        let (down, largest_payload_bytes, outgoing_messages) =
            (config.down.clone(), config.largest_payload_bytes, config.outgoing_messages);
        let driver = Driver::new(config, events, client.clone(), Arc::clone(&shared), incoming, closed);
        let driver = Mutex::new(Some(tokio::spawn(driver.run())));
        let inner = Inner { client, shared, closing, driver, down, largest_payload_bytes, outgoing_messages };
        Ok((Self { inner: Arc::new(inner) }, receiver))
    }

    /// Queues a message; never waits. A message taken may still be lost with the connection: `QoS` 1 holds within a connection.
    ///
    /// # Errors
    /// [`LinkError::Away`], [`LinkError::Busy`], [`LinkError::Oversize`] or [`LinkError::Topic`], each counted; the link
    /// works on. [`LinkError::Closed`] after [`Link::shutdown`] or [`Link::kill`].
    pub fn publish(
        &self,
        topic: impl Into<String>,
        payload: impl Into<Bytes>,
        qos: QoS,
        retain: bool,
    ) -> Result<(), LinkError> {
        let (topic, payload) = self.admit(topic.into(), payload.into())?;
        let sent =
            self.inner.client.try_publish(topic, payload, PublishOptions::new(qos.into()).retain(retain));
        self.account(&sent)
    }

    /// Queues a message, waiting for room in the queue.
    ///
    /// # Errors
    /// As [`Link::publish`], without [`LinkError::Busy`].
    pub async fn publish_when_free(
        &self,
        topic: impl Into<String>,
        payload: impl Into<Bytes>,
        qos: QoS,
        retain: bool,
    ) -> Result<(), LinkError> {
        let (topic, payload) = self.admit(topic.into(), payload.into())?;
        let sent =
            self.inner.client.publish(topic, payload, PublishOptions::new(qos.into()).retain(retain)).await;
        self.account(&sent)
    }

    /// Whether messages are taken at this moment.
    pub fn is_connected(&self) -> bool {
        self.inner.shared.is_connected.load(Ordering::Acquire)
    }

    /// Bytes on the wire since the start, over all connections.
    pub fn wire(&self) -> WireBytes {
        self.inner.shared.wire.read()
    }

    /// Messages and connections since the start.
    pub fn counts(&self) -> LinkCounts {
        self.inner.shared.counters.read()
    }

    /// Says goodbye: writes what is queued, publishes the `down` message, disconnects. Waits at most `grace` for it, then
    /// drops the socket, so that the last will says the same.
    pub async fn shutdown(&self, grace: Duration) {
        let inner = &self.inner;
        inner.closing.send_replace(true);
        let goodbye = async {
            if let Some(RetainedMessage { topic, payload }) = inner.down.clone() {
                // A queue that closed meanwhile has no connection to say goodbye on.
                let _ =
                    inner.client.publish(topic, payload, PublishOptions::at_least_once().retained()).await;
            }
            let _ = inner.client.disconnect_with_timeout(grace).await;
            if let Some(driver) = inner.take_driver() {
                AbortOnDrop(driver).ended().await;
            }
        };
        if self.is_connected() && tokio::time::timeout(grace, goodbye).await.is_err() {
            tracing::warn!(grace_ms = grace.as_millis() as u64, "broker did not take the goodbye in time");
        }
        self.kill();
    }

    /// Drops the socket at once, as a crash would: the broker publishes the last will.
    pub fn kill(&self) {
        self.inner.closing.send_replace(true);
        if let Some(driver) = self.inner.take_driver() {
            driver.abort();
        }
    }

    fn admit(&self, topic: String, payload: Bytes) -> Result<(String, Bytes), LinkError> {
        let (shared, found) = (&self.inner.shared, payload.len());
        if *self.inner.closing.borrow() {
            return Err(LinkError::Closed);
        }
        let limit = self.payload_limit(topic.len());
        if found > limit {
            count(&shared.counters.oversize_sent);
            return Err(LinkError::Oversize { limit, found });
        }
        if topic.is_empty() || !rumqttc::valid_topic(&topic) {
            return Err(LinkError::Topic(topic));
        }
        if !self.is_connected() {
            count(&shared.counters.away);
            return Err(LinkError::Away);
        }
        Ok((topic, payload))
    }

    /// The configured limit, or what the broker's largest packet leaves, if that is less.
    fn payload_limit(&self, topic_bytes: usize) -> usize {
        let limit = self.inner.largest_payload_bytes;
        match self.inner.shared.broker_packet_max.load(Ordering::Relaxed) {
            0 => limit,
            packet => limit.min(packet.saturating_sub(topic_bytes + PUBLISH_OVERHEAD)),
        }
    }

    fn account(&self, sent: &Result<(), ClientError>) -> Result<(), LinkError> {
        let counters = &self.inner.shared.counters;
        match sent {
            Ok(()) => {
                count(&counters.accepted);
                Ok(())
            }
            Err(ClientError::RequestChannelFull(_)) => {
                count(&counters.busy);
                Err(LinkError::Busy { limit: self.inner.outgoing_messages })
            }
            Err(_) => Err(LinkError::Closed),
        }
    }
}

impl Inner {
    fn take_driver(&self) -> Option<JoinHandle<()>> {
        self.driver.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(driver) = self.take_driver() {
            driver.abort();
        }
    }
}

/// Ends the driver when the wait for it is given up.
struct AbortOnDrop(JoinHandle<()>);

impl AbortOnDrop {
    async fn ended(mut self) {
        let _ = (&mut self.0).await;
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
