//! The task that owns the socket: connects, subscribes, publishes the retained messages, delivers messages, and connects again.
//!
//! ```text
//! Connecting -- CONNACK --> Subscribing -- SUBACK --> Connected
//! any stage  -- error --> wait --> Connecting
//! ```

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use headwater_transport::random;
use rumqttc::{
    AsyncClient, ConnAck, DisconnectReasonCode, Event, EventLoop, Outgoing, Packet, Publish, PublishOptions,
    SubAck, SubscribeFilter, SubscribeReasonCode,
};
use tokio::sync::{mpsc, watch};
use tracing::{debug, info, warn};

use crate::alias_start::AliasStart;
use crate::backoff::Backoff;
use crate::broker_bytes::code_name;
use crate::counts::count;
use crate::end_reason;
use crate::failure::{Attempt, ConnectFailure, disconnect_code};
use crate::incoming::Incoming;
use crate::limits::{BrokerLimits, Shortcoming};
use crate::options::set_credentials;
use crate::outage::{Outage, OutageLength};
use crate::refused_publication::RefusalReporter;
use crate::shared::Shared;

/// Event loop of one link.
pub(crate) struct Driver {
    pub(crate) events: EventLoop,
    pub(crate) client: AsyncClient,
    pub(crate) shared: Arc<Shared>,
    pub(crate) incoming: mpsc::Sender<Incoming>,
    pub(crate) closing: watch::Receiver<bool>,
    pub(crate) backoff: Backoff,
    /// The present outage, which is logged again from time to time.
    pub(crate) outage: Outage,
    pub(crate) refusals: RefusalReporter,
    pub(crate) aliases: AliasStart,
}

/// Progress of a connection.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// No CONNACK has come yet; the MQTT library limits this time.
    Connecting,
    /// The broker has not yet answered the subscriptions.
    Subscribing { deadline: Instant },
    /// Messages flow.
    Connected { since: Instant },
}

/// End of a connection.
enum End {
    /// The owner closed the link.
    Closed,
    /// The connection broke; the link connects again.
    Lost(Loss),
}

/// Reason why a connection broke.
struct Loss {
    reason: String,
    by_message: bool,
}

impl From<String> for Loss {
    fn from(reason: String) -> Self {
        Self { reason, by_message: false }
    }
}

impl Driver {
    /// Connects again and again until the link is closed.
    pub(crate) async fn run(mut self) {
        while !*self.closing.borrow() {
            let mut stage = Stage::Connecting;
            set_credentials(&mut self.events.options, &self.shared.config.broker);
            let end = self.run_connection(&mut stage).await;
            self.shared.is_connected.store(false, Ordering::Release);
            let End::Lost(loss) = end else { return };
            count(&self.shared.counters.disconnected);
            self.events.clean();
            self.on_lost(stage, loss).await;
            let wait = self.backoff.next_wait(random());
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                _ = self.closing.wait_for(|closing| *closing) => {}
            }
        }
    }

    /// Runs one connection from its first packet to its last.
    async fn run_connection(&mut self, stage: &mut Stage) -> End {
        loop {
            let event = match self.next_event(*stage).await {
                Ok(event) => event,
                Err(_) if *self.closing.borrow() => return End::Closed,
                Err(loss) => return End::Lost(loss),
            };
            let step = match event {
                Event::Incoming(Packet::ConnAck(ack)) => self.on_accepted(&ack, stage).await,
                Event::Incoming(Packet::SubAck(ack)) => self.on_subscribed(&ack, stage).await,
                Event::Incoming(Packet::Publish(publish)) => {
                    self.deliver(publish).await;
                    Ok(())
                }
                Event::Incoming(Packet::Disconnect(packet)) => {
                    return End::Lost(self.disconnected(packet.reason_code, *stage));
                }
                Event::Outgoing(Outgoing::Publish(_)) => {
                    count(&self.shared.counters.written);
                    if let Some(max) = self.aliases.published() {
                        self.events.state.set_broker_topic_alias_max(max);
                    }
                    Ok(())
                }
                Event::Outgoing(Outgoing::Disconnect) if *self.closing.borrow() => return End::Closed,
                Event::Outgoing(Outgoing::Disconnect) => Err("the broker broke the protocol".into()),
                _ => Ok(()),
            };
            if let Err(reason) = step {
                return End::Lost(reason.into());
            }
        }
    }

    async fn next_event(&mut self, stage: Stage) -> Result<Event, Loss> {
        let event = match stage {
            Stage::Subscribing { deadline } => tokio::time::timeout_at(deadline.into(), self.events.poll())
                .await
                .map_err(|_| self.failed(ConnectFailure::WITHOUT_SUBACK))?,
            Stage::Connecting | Stage::Connected { .. } => self.events.poll().await,
        };
        event.map_err(|error| match disconnect_code(&error) {
            Some(code) => self.disconnected(code, stage),
            None => self.failed(ConnectFailure::of(&error, &self.attempt(stage))).into(),
        })
    }

    /// Notes that the broker ended the connection by a DISCONNECT packet.
    fn disconnected(&self, code: DisconnectReasonCode, stage: Stage) -> Loss {
        let reason = self.failed(ConnectFailure::of_disconnect(code, &self.attempt(stage)));
        Loss { reason, by_message: end_reason::blames_message(code) }
    }

    fn attempt(&self, stage: Stage) -> Attempt {
        let is_accepted = !matches!(stage, Stage::Connecting);
        Attempt::new(&self.shared.config.broker, is_accepted, &self.shared.seen.lock())
    }

    /// Stores for the owner why there is no connection. Returns the reason for the log.
    fn failed(&self, failure: ConnectFailure) -> String {
        let reason = failure.to_string();
        self.shared.failure.send_replace(Some(failure));
        reason
    }

    /// Subscribes once the broker has accepted the connection.
    async fn on_accepted(&mut self, ack: &ConnAck, stage: &mut Stage) -> Result<(), String> {
        let limits = BrokerLimits::of(ack);
        for Shortcoming { found, advice, stops } in limits.shortcomings(&self.shared.config.needs) {
            if stops {
                return Err(self.failed(ConnectFailure::Limits { found, advice }));
            }
            let (broker, client) = (&self.shared.config.broker.address, &self.shared.config.client_id);
            if self.outage.names(&found) {
                warn!(%broker, client, found, advice, "the broker's limits are low");
            }
        }
        let max_packet_bytes = limits.max_packet_bytes.unwrap_or(0);
        self.shared.broker_max_packet_bytes.store(max_packet_bytes as usize, Ordering::Relaxed);
        let max_aliases = self.events.state.broker_topic_alias_max();
        let max_now = self.aliases.accepted(max_aliases, self.shared.retained.lock().len());
        self.events.state.set_broker_topic_alias_max(max_now);
        if self.shared.config.subscriptions.is_empty() {
            return self.on_ready(stage).await;
        }
        let deadline = Instant::now() + Duration::from_millis(self.shared.config.connect_timeout_ms);
        *stage = Stage::Subscribing { deadline };
        let filters =
            self.shared.config.subscriptions.iter().map(|s| SubscribeFilter::new(&s.filter, s.qos.into()));
        self.client.try_subscribe_many(filters).map_err(|e| format!("subscribing: {e}"))
    }

    /// Reads the broker's answer to the one SUBSCRIBE of this connection.
    async fn on_subscribed(&mut self, ack: &SubAck, stage: &mut Stage) -> Result<(), String> {
        let mut answers = self.shared.config.subscriptions.iter().zip(&ack.return_codes);
        match answers.find(|(_, code)| !matches!(code, SubscribeReasonCode::Success(_))) {
            Some((subscription, code)) => Err(self.failed(ConnectFailure::Subscription {
                filter: subscription.filter.clone(),
                code: code_name(code, self.shared.seen.lock().replaced),
                needs_rights: *code == SubscribeReasonCode::NotAuthorized,
            })),
            None => self.on_ready(stage).await,
        }
    }

    /// Publishes the retained messages again, then lets the owner publish.
    async fn on_ready(&mut self, stage: &mut Stage) -> Result<(), String> {
        for message in self.shared.retained.lock().iter() {
            let options = PublishOptions::at_least_once().retained();
            let notice = self
                .client
                .try_publish_tracked(message.topic.clone(), message.payload.clone(), options)
                .map_err(|e| format!("republishing {:?}: {e}", message.topic))?;
            self.refusals.watch(message.topic.clone(), notice);
        }
        *stage = Stage::Connected { since: Instant::now() };
        self.shared.failure.send_replace(None);
        count(&self.shared.counters.connected);
        let (broker, client) = (&self.shared.config.broker.address, &self.shared.config.client_id);
        // The fields are absent if there was no outage.
        let outage = self.outage.ended(Instant::now());
        let (away_s, failed_attempts) =
            (outage.map(|outage| outage.time.as_secs()), outage.map(|outage| outage.failed_attempts));
        info!(%broker, client, away_s, failed_attempts, "connected");
        // A link that is closing accepts nothing: its last messages may be queued already.
        self.shared.is_connected.store(!*self.closing.borrow(), Ordering::Release);
        self.send(Incoming::Connected).await;
        Ok(())
    }

    async fn deliver(&self, publish: Publish) {
        let Publish { topic, payload, retain, .. } = publish;
        let Ok(topic) = String::from_utf8(topic.into()) else { return };
        if payload.len() > self.shared.config.max_payload_bytes {
            count(&self.shared.counters.dropped_oversize);
            debug!(topic, payload_bytes = payload.len(), "message dropped: larger than the limit");
            return;
        }
        self.send(Incoming::Message { topic, payload, retain }).await;
    }

    /// Passes an event to the owner. While the owner is slow the socket is not read, so TCP slows the broker down. The event is
    /// dropped if the owner has dropped the channel, or closes the link while the channel is full.
    async fn send(&self, incoming: Incoming) {
        let mut closing = self.closing.clone();
        tokio::select! {
            biased;
            _ = self.incoming.send(incoming) => {}
            _ = closing.wait_for(|closing| *closing) => {}
        }
    }

    async fn on_lost(&mut self, stage: Stage, Loss { reason, by_message }: Loss) {
        let shared = Arc::clone(&self.shared);
        let (broker, client) = (&shared.config.broker.address, &shared.config.client_id);
        let now = Instant::now();
        match stage {
            Stage::Connected { since } => {
                self.backoff.connection_ended(since.elapsed());
                self.outage.lost(now);
                warn!(%broker, client, reason, "connection lost, connecting again");
                self.send(Incoming::Disconnected { reason, by_message }).await;
            }
            Stage::Connecting | Stage::Subscribing { .. } => match self.outage.failed(&reason, now) {
                Some(OutageLength { time, failed_attempts }) => {
                    let away_s = time.as_secs();
                    warn!(
                        %broker, client, reason, away_s, failed_attempts,
                        "cannot connect, trying again until it works"
                    );
                }
                None => debug!(%broker, client, reason, "cannot connect"),
            },
        }
    }
}
