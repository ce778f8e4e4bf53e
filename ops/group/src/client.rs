//! Connection of an operator's program to one group.

use std::time::{Duration, Instant};

use bytes::Bytes;
use headwater_link::{Acknowledgement, ConnectFailure, Delivery, Incoming, Link, LinkConfig, QoS};
use headwater_protocol::{
    DeviceTopic, GroupId, NetworkId, ResultMessage, SampleId, Session, SettledNotice, SiteId, Topic, Topics,
    encode_trigger,
};
use headwater_transport::{BrokerAccess, Endpoint};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::time::timeout;

use crate::error::GroupError;
use crate::known_devices::KnownDevices;
use crate::sample_account::SampleAccount;

/// Settings of a [`GroupClient`].
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// Address of the broker, and the certificate or password that the client presents there.
    pub broker: BrokerAccess,
    /// Site that the group belongs to.
    pub site: SiteId,
    /// Group whose topics the client subscribes to.
    pub group: GroupId,
    /// Network whose id each trigger carries.
    pub network: NetworkId,
    /// MQTT client id. A broker ends the connection of an earlier client with the same id.
    pub client_id: String,
    /// Longest wait for the first connection, and first value of [`GroupClient::wait_limit`].
    pub wait_limit: Duration,
}

/// Sends triggers to one group and receives the group's results, settled notices, births and statuses.
pub struct GroupClient {
    broker: Endpoint,
    link: Link,
    incoming: mpsc::Receiver<Incoming>,
    /// Topics of the group.
    pub topics: Topics,
    trigger_topic: String,
    network: NetworkId,
    /// Longest wait of `may_trigger`, `wait_for` and `wait_for_complete_decision`. `next` waits without a limit.
    pub wait_limit: Duration,
    account: SampleAccount,
    /// Devices whose birth or status has arrived.
    pub devices: KnownDevices,
    /// True when an account of a leader has arrived.
    has_account: bool,
    /// True when the latest result was marked as published again, such as a result from before the leader's start.
    pub is_republished: bool,
}

/// An event of the connection, or a message of the group that the client has received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupEvent {
    /// The broker has accepted the subscriptions.
    Connected,
    /// The connection was lost; the client connects again.
    Disconnected,
    /// The first decision of a sample.
    Decided(SampleId),
    /// A further decision of a sample, equal to the first or not.
    Repeated(SampleId),
    /// A settled notice with the leader's account.
    Settled,
    /// Birth or status of a device, which may be empty or unreadable.
    Device,
    /// A message on a topic that the client does not read, or the broker's refusal of a message.
    OtherTopic,
}

/// Waits for the first connection of a link, at most for `limit`. Returns at once if the broker refuses the client.
pub(crate) async fn first_connection(
    link: &Link,
    (address, limit): (&Endpoint, Duration),
    connected: impl Future<Output = Result<(), GroupError>>,
) -> Result<(), GroupError> {
    let mut failures = link.failures();
    let is_refused =
        |failure: &Option<ConnectFailure>| failure.as_ref().is_some_and(ConnectFailure::is_refusal);
    let first = async {
        tokio::select! {
            biased;
            connected = connected => connected.map(|()| None),
            failure = failures.wait_for(is_refused) => Ok(failure.ok().and_then(|failure| failure.clone())),
        }
    };
    let broker = address.clone();
    match timeout(limit, first).await {
        Ok(Ok(None)) => Ok(()),
        Ok(Ok(Some(ConnectFailure::Subscription { filter, code, needs_rights: true }))) => {
            let reason = format!("it does not allow the subscription ({code})");
            let roles = roles_of(&filter);
            Err(GroupError::NotAllowed { broker, topic: filter, reason, roles })
        }
        Ok(Ok(Some(failure))) => Err(GroupError::Refused { broker, failure: Box::new(failure) }),
        Ok(Err(error)) => Err(error),
        Err(_) => {
            let latest = link.failures().borrow().clone();
            let failure = latest.unwrap_or_else(|| ConnectFailure::NoAnswer("no answer".into()));
            Err(GroupError::NotConnected { broker, limit, failure: Box::new(failure) })
        }
    }
}

/// Roles that may read a topic of a group.
fn roles_of(topic: &str) -> &'static [&'static str] {
    match topic.rsplit('/').next() {
        Some("result" | "settled" | "leader") => &["operator", "consumer"],
        _ => &["operator"],
    }
}

impl GroupClient {
    /// Connects and subscribes. Needs a tokio runtime.
    ///
    /// # Errors
    /// [`GroupError::Link`] for settings that cannot work, [`GroupError::NotConnected`] when the broker does not answer in time,
    /// [`GroupError::Refused`] or [`GroupError::NotAllowed`] at once when the broker refuses this client.
    pub async fn connect(settings: ClientSettings) -> Result<Self, GroupError> {
        let ClientSettings { broker, site, group, network, client_id, wait_limit } = settings;
        let address = broker.address.clone();
        let topics = Topics::new(&site, &group);
        let config = LinkConfig::new(broker, client_id)
            .subscribe(topics.name(&Topic::Result), QoS::AtLeastOnce)
            .subscribe(topics.name(&Topic::Settled), QoS::AtMostOnce)
            .subscribe(topics.every_device(DeviceTopic::Birth), QoS::AtLeastOnce)
            .subscribe(topics.every_device(DeviceTopic::Status), QoS::AtLeastOnce)
            .subscribe(topics.name(&Topic::Leader), QoS::AtLeastOnce);
        let (link, incoming) = Link::start(config)?;
        let trigger_topic = topics.name(&Topic::Trigger);
        let (account, devices) = (SampleAccount::default(), KnownDevices::default());
        let mut client = Self {
            broker: address.clone(),
            link,
            incoming,
            topics,
            trigger_topic,
            network,
            wait_limit,
            account,
            devices,
            has_account: false,
            is_republished: false,
        };
        let link = client.link.clone();
        let connected = async {
            while client.next().await? != GroupEvent::Connected {}
            Ok::<_, GroupError>(())
        };
        first_connection(&link, (&address, wait_limit), connected).await?;
        Ok(client)
    }

    /// Asks every device of the group to capture, and records the trigger in the account.
    ///
    /// # Errors
    /// [`GroupError::Link`] while there is no connection to the broker.
    pub async fn trigger(&mut self, sample: SampleId) -> Result<(), GroupError> {
        let payload = self.trigger_message(sample);
        self.publish(&self.trigger_topic, payload).await
    }

    /// Publishes a trigger at `QoS` 1, and records it in the account. [`GroupClient::check_trigger`] turns a refusal of the broker into an
    /// error.
    ///
    /// # Errors
    /// See [`GroupClient::trigger`].
    pub fn trigger_acknowledged(&mut self, sample: SampleId) -> Result<Acknowledgement, GroupError> {
        let payload = self.trigger_message(sample);
        Ok(self.link.publish_acknowledged(self.trigger_topic.as_str(), payload, false)?)
    }

    /// Encodes a trigger, and records it in the account.
    fn trigger_message(&mut self, sample: SampleId) -> Vec<u8> {
        self.account.triggered(sample, Instant::now());
        encode_trigger(Session::of_network(self.network), sample)
    }

    /// Turns the broker's refusal of a trigger into an error. A missing or lost answer is no refusal.
    ///
    /// # Errors
    /// [`GroupError::NotAllowed`] if the broker's access rules forbid the trigger, [`GroupError::MessageRefused`] for any other refusal.
    pub fn check_trigger(&self, answer: Delivery) -> Result<(), GroupError> {
        let (broker, topic) = (self.broker.clone(), self.trigger_topic.clone());
        match answer {
            Delivery::Refused { reason, needs_rights: true } => {
                Err(GroupError::NotAllowed { broker, topic, reason, roles: &["operator"] })
            }
            Delivery::Refused { reason, needs_rights: false } => {
                Err(GroupError::MessageRefused { broker, topic, reason })
            }
            Delivery::Pending | Delivery::Acknowledged | Delivery::Lost => Ok(()),
        }
    }

    /// Publishes an empty trigger, to learn from the broker's answer whether this client may publish triggers. Devices and leaders
    /// refuse an empty trigger and count it.
    ///
    /// # Errors
    /// [`GroupError::NotAllowed`] or [`GroupError::MessageRefused`] if the broker refuses the trigger; [`GroupError::Link`] without a
    /// connection; the errors of [`GroupClient::next`].
    pub async fn may_trigger(&mut self) -> Result<(), GroupError> {
        let mut empty = self.link.publish_acknowledged(self.trigger_topic.as_str(), Bytes::new(), false)?;
        let limit = tokio::time::Instant::now() + self.wait_limit;
        loop {
            tokio::select! {
                answer = empty.wait() => return self.check_trigger(answer),
                // Events are read meanwhile: if their queue were full, the link could not read the broker's answer.
                event = self.next() => {
                    event?;
                }
                // Without an answer within the limit, triggers count as allowed.
                () = tokio::time::sleep_until(limit) => return Ok(()),
            }
        }
    }

    /// Publishes any bytes on any topic, at `QoS` 0.
    ///
    /// # Errors
    /// [`GroupError::Link`] for a topic or length that the link refuses, and while the broker is away.
    pub async fn publish(&self, topic: &str, payload: impl Into<Bytes>) -> Result<(), GroupError> {
        Ok(self.link.publish_when_free(topic, payload, QoS::AtMostOnce, false).await?)
    }

    /// Waits for the next event and records it. Cancelling the wait loses nothing.
    ///
    /// # Errors
    /// [`GroupError::Message`] for a result or settled notice that cannot be read, [`GroupError::Closed`] when the link has ended.
    pub async fn next(&mut self) -> Result<GroupEvent, GroupError> {
        let incoming = self.incoming.recv().await.ok_or(GroupError::Closed)?;
        self.record(&incoming)
    }

    /// Records the next event that has already arrived; `None` if nothing has arrived.
    ///
    /// # Errors
    /// See [`GroupClient::next`].
    pub fn try_next(&mut self) -> Result<Option<GroupEvent>, GroupError> {
        match self.incoming.try_recv() {
            Ok(incoming) => self.record(&incoming).map(Some),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(GroupError::Closed),
        }
    }

    /// Puts the id of another network into all later triggers.
    pub fn set_network(&mut self, network: NetworkId) {
        self.network = network;
    }

    /// Sends what is queued and ends the connection in order, within `limit`. A client that is dropped instead may lose its last triggers.
    pub async fn close(self, limit: Duration) {
        self.link.shutdown(limit).await;
    }

    /// Account of the samples so far.
    pub fn account(&self) -> &SampleAccount {
        &self.account
    }

    /// Returns true when a leader's account has arrived. A leader publishes its account as soon as it takes triggers.
    pub fn has_account(&self) -> bool {
        self.has_account
    }

    /// Begins an empty account: samples and drops reported before this call no longer count.
    pub fn begin_account(&mut self) {
        self.account = self.account.following();
    }

    fn record(&mut self, incoming: &Incoming) -> Result<GroupEvent, GroupError> {
        let (topic, payload) = match incoming {
            Incoming::Connected => return Ok(GroupEvent::Connected),
            Incoming::Disconnected { .. } => return Ok(GroupEvent::Disconnected),
            Incoming::Message { topic, payload, .. } => (topic, payload),
            // The broker does not answer messages at `QoS` 0. Its answers to other messages go to their `Acknowledgement`.
            Incoming::Refused { .. } => return Ok(GroupEvent::OtherTopic),
        };
        let unreadable = |reason| GroupError::Message { topic: topic.clone(), reason };
        Ok(match self.topics.parse(topic) {
            Ok(Topic::Result) => {
                let ResultMessage { decision, republished } =
                    serde_json::from_slice(payload).map_err(unreadable)?;
                let sample = decision.sample;
                self.is_republished = republished;
                let is_first = self.account.decided(decision, Instant::now());
                if is_first { GroupEvent::Decided(sample) } else { GroupEvent::Repeated(sample) }
            }
            Ok(Topic::Settled) => {
                let notice: SettledNotice = serde_json::from_slice(payload).map_err(unreadable)?;
                self.account.settle(notice);
                self.has_account = true;
                GroupEvent::Settled
            }
            Ok(Topic::Device(id, leaf)) => {
                self.devices.receive(id, leaf, payload);
                GroupEvent::Device
            }
            _ => GroupEvent::OtherTopic,
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// Reads one MQTT packet and returns the packet without its fixed header.
    async fn packet(stream: &mut TcpStream) -> Vec<u8> {
        stream.read_u8().await.unwrap();
        let (mut bytes, mut shift) = (0usize, 0);
        loop {
            let byte = stream.read_u8().await.unwrap();
            bytes |= usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
        }
        let mut content = vec![0; bytes];
        stream.read_exact(&mut content).await.unwrap();
        content
    }

    /// Connects to a broker that answers the subscriptions of result, settled, birth, status and leader with these codes.
    async fn refusal(codes: [u8; 5]) -> GroupError {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let broker = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            packet(&mut stream).await;
            stream.write_all(&[0x20, 3, 0, 0, 0]).await.unwrap();
            let number = packet(&mut stream).await;
            let suback = [&[0x90, 8, number[0], number[1], 0][..], &codes].concat();
            stream.write_all(&suback).await.unwrap();
            // The client closes the connection.
            _ = stream.read_to_end(&mut Vec::new()).await;
        });
        let settings = ClientSettings {
            broker: BrokerAccess::from(Endpoint::mqtt("127.0.0.1", port).unwrap()),
            site: "plant".parse().unwrap(),
            group: "gate".parse().unwrap(),
            network: NetworkId([0; 32]),
            client_id: "client".into(),
            wait_limit: Duration::from_secs(20),
        };
        let refused = GroupClient::connect(settings).await.err().expect("a refusal");
        broker.abort();
        refused
    }

    #[tokio::test]
    async fn a_subscription_without_rights_is_named_with_its_topic_and_the_roles_that_have_it() {
        for (codes, topic, role) in [
            ([0x87, 0, 1, 1, 1], "headwater/v1/plant/gate/result", "the role `operator` or `consumer`"),
            ([1, 0, 0x87, 1, 1], "headwater/v1/plant/gate/dev/+/birth", "the role `operator` of the group"),
        ] {
            let refused = refusal(codes).await;
            assert!(matches!(refused, GroupError::NotAllowed { .. }), "{refused}");
            let text = refused.to_string();
            assert!(text.contains(topic) && text.contains(role) && text.contains("NotAuthorized"), "{text}");
        }
        // Code 0x97, quota exceeded, is a refusal for another reason than missing rights.
        let refused = refusal([0x97, 0, 1, 1, 1]).await;
        assert!(matches!(refused, GroupError::Refused { .. }), "{refused}");
    }
}
