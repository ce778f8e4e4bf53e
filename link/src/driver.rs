//! The task that owns the socket: connects, subscribes, republishes, delivers, and starts again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rumqttc::{
    AsyncClient, ConnAck, Event, EventLoop, Outgoing, Packet, Publish, PublishOptions, SubAck,
    SubscribeFilter, SubscribeReasonCode,
};
use tokio::sync::{mpsc, watch};
use tracing::{debug, info, warn};

use crate::backoff::{Backoff, random};
use crate::config::LinkConfig;
use crate::counts::count;
use crate::handle::{Incoming, Shared};

/// One link's event loop.
pub(crate) struct Driver {
    config: LinkConfig,
    events: EventLoop,
    client: AsyncClient,
    shared: Arc<Shared>,
    incoming: mpsc::Sender<Incoming>,
    closing: watch::Receiver<bool>,
    backoff: Backoff,
    /// Attempts in a row that failed, so that only the first one is a warning.
    failures: u32,
}

/// How far a connection has come.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// No CONNACK yet; the client limits this time itself.
    Connecting,
    /// Subscriptions sent, not yet answered.
    Subscribing { until: Instant },
    /// Messages flow.
    Up { since: Instant },
}

/// Why the driver left its connection.
enum End {
    /// The owner wants no other.
    Closed,
    /// Connect again.
    Lost { reason: String },
}

impl Driver {
    pub(crate) fn new(
        config: LinkConfig,
        events: EventLoop,
        client: AsyncClient,
        shared: Arc<Shared>,
        incoming: mpsc::Sender<Incoming>,
        closing: watch::Receiver<bool>,
    ) -> Self {
        Self { config, events, client, shared, incoming, closing, backoff: Backoff::new(), failures: 0 }
    }

    /// Until the link is closed.
    pub(crate) async fn run(mut self) {
        while !*self.closing.borrow() {
            let mut stage = Stage::Connecting;
            let end = self.connection(&mut stage).await;
            self.shared.is_connected.store(false, Ordering::Release);
            let End::Lost { reason } = end else { return };
            count(&self.shared.counters.disconnected);
            self.events.clean();
            self.lost(stage, reason).await;
            let wait = self.backoff.next_wait(random());
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                _ = self.closing.wait_for(|closing| *closing) => {}
            }
        }
    }

    /// One connection from its first packet to its last.
    async fn connection(&mut self, stage: &mut Stage) -> End {
        loop {
            let event = match self.next_event(*stage).await {
                Ok(event) => event,
                Err(_) if *self.closing.borrow() => return End::Closed,
                Err(reason) => return End::Lost { reason },
            };
            let step = match event {
                Event::Incoming(Packet::ConnAck(ack)) => self.accepted(&ack, stage).await,
                Event::Incoming(Packet::SubAck(ack)) => self.subscribed(&ack, stage).await,
                Event::Incoming(Packet::Publish(publish)) => {
                    self.deliver(publish).await;
                    Ok(())
                }
                Event::Incoming(Packet::Disconnect(goodbye)) => {
                    Err(format!("the broker ended the connection: {:?}", goodbye.reason_code))
                }
                Event::Outgoing(Outgoing::Publish(_)) => {
                    count(&self.shared.counters.written);
                    Ok(())
                }
                Event::Outgoing(Outgoing::Disconnect) if *self.closing.borrow() => return End::Closed,
                Event::Outgoing(Outgoing::Disconnect) => Err("the broker broke the protocol".into()),
                _ => Ok(()),
            };
            if let Err(reason) = step {
                return End::Lost { reason };
            }
        }
    }

    async fn next_event(&mut self, stage: Stage) -> Result<Event, String> {
        let Stage::Subscribing { until } = stage else {
            return self.events.poll().await.map_err(|e| e.to_string());
        };
        match tokio::time::timeout_at(until.into(), self.events.poll()).await {
            Ok(event) => event.map_err(|e| e.to_string()),
            Err(_) => {
                Err(format!("no answer to the subscriptions within {} ms", self.config.connect_timeout_ms))
            }
        }
    }

    /// The broker took the connection: subscribe.
    async fn accepted(&mut self, ack: &ConnAck, stage: &mut Stage) -> Result<(), String> {
        let packet_max = ack.properties.as_ref().and_then(|p| p.max_packet_size).unwrap_or(0);
        self.shared.broker_packet_max.store(packet_max as usize, Ordering::Relaxed);
        if self.config.subscriptions.is_empty() {
            return self.up(stage).await;
        }
        let until = Instant::now() + Duration::from_millis(self.config.connect_timeout_ms);
        *stage = Stage::Subscribing { until };
        let filters = self.config.subscriptions.iter().map(|s| SubscribeFilter::new(&s.filter, s.qos.into()));
        self.client.try_subscribe_many(filters).map_err(|e| format!("subscribing: {e}"))
    }

    /// The broker answered the one SUBSCRIBE of this connection.
    async fn subscribed(&mut self, ack: &SubAck, stage: &mut Stage) -> Result<(), String> {
        let refused = self
            .config
            .subscriptions
            .iter()
            .zip(&ack.return_codes)
            .find(|(_, code)| !matches!(code, SubscribeReasonCode::Success(_)));
        match refused {
            Some((subscription, code)) => {
                Err(format!("the broker refused the subscription to {:?}: {code:?}", subscription.filter))
            }
            None => self.up(stage).await,
        }
    }

    /// Subscriptions stand: say again what the broker should keep, then open for messages.
    async fn up(&mut self, stage: &mut Stage) -> Result<(), String> {
        for message in &self.config.retained {
            let options = PublishOptions::at_least_once().retained();
            self.client
                .try_publish(message.topic.clone(), message.payload.clone(), options)
                .map_err(|e| format!("republishing {:?}: {e}", message.topic))?;
        }
        *stage = Stage::Up { since: Instant::now() };
        self.failures = 0;
        count(&self.shared.counters.connected);
        info!(broker = %self.config.broker, client = %self.config.client_id, "connected");
        // Not for a link that is closing: its goodbye may be queued already.
        self.shared.is_connected.store(!*self.closing.borrow(), Ordering::Release);
        self.tell(Incoming::Connected).await;
        Ok(())
    }

    async fn deliver(&self, publish: Publish) {
        let Publish { topic, payload, retain, .. } = publish;
        let Ok(topic) = String::from_utf8(topic.into()) else { return };
        if payload.len() > self.config.largest_payload_bytes {
            count(&self.shared.counters.oversize_received);
            debug!(topic, payload_bytes = payload.len(), "left out: larger than the limit");
            return;
        }
        self.tell(Incoming::Message { topic, payload, retain }).await;
    }

    /// Waits while the owner is slow, which stops reading the socket: TCP carries the pressure on. An owner that is gone
    /// wants nothing; one that is closing no more.
    async fn tell(&self, incoming: Incoming) {
        let mut closing = self.closing.clone();
        tokio::select! {
            biased;
            _ = self.incoming.send(incoming) => {}
            _ = closing.wait_for(|closing| *closing) => {}
        }
    }

    async fn lost(&mut self, stage: Stage, reason: String) {
        let broker = &self.config.broker;
        let client = &self.config.client_id;
        match stage {
            Stage::Up { since } => {
                self.backoff.connection_ended(since.elapsed());
                warn!(%broker, client, reason, "connection lost, connecting again");
                self.tell(Incoming::Disconnected { reason }).await;
            }
            _ if self.failures == 0 => {
                warn!(%broker, client, reason, "cannot connect, trying again until it works");
            }
            _ => debug!(%broker, client, reason, attempt = self.failures, "cannot connect"),
        }
        self.failures = self.failures.saturating_add(1);
    }
}
