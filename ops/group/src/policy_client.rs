//! Client that sends commands about a group's policy, and waits for the answers.

use std::time::Duration;

use headwater_link::{Delivery, Incoming, Link, LinkConfig, QoS};
use headwater_protocol::policy_command::{PolicyAnswer, PolicyCommand};
use headwater_protocol::{GroupId, MemberName, SiteId, Topic, Topics};
use headwater_transport::{BrokerAccess, Endpoint};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::client::first_connection;
use crate::error::GroupError;

/// A member that sends commands about the policy of a group.
pub struct PolicyClient {
    address: Endpoint,
    link: Link,
    incoming: mpsc::Receiver<Incoming>,
    topic: String,
    answer_topic: String,
    wait_limit: Duration,
}

impl PolicyClient {
    /// Connects. Needs a tokio runtime. `wait_limit` bounds the wait for the connection, and later the wait for each answer.
    ///
    /// # Errors
    /// [`GroupError`]: the settings cannot work, no broker answers in time, or the broker refuses the client or its subscription.
    pub async fn connect(
        broker: BrokerAccess,
        (site, group): (&SiteId, &GroupId),
        member: &MemberName,
        wait_limit: Duration,
    ) -> Result<Self, GroupError> {
        let topics = Topics::new(site, group);
        let topic = topics.name(&Topic::Policy(member.clone()));
        let answer_topic = topics.name(&Topic::PolicyAnswer(member.clone()));
        let client_id = format!("headwater-policy-{}", std::process::id());
        let address = broker.address.clone();
        let config = LinkConfig::new(broker, client_id).subscribe(&*answer_topic, QoS::AtLeastOnce);
        let (link, mut incoming) = Link::start(config)?;
        // The first event of a link is `Incoming::Connected`.
        let connected = async { incoming.recv().await.map(drop).ok_or(GroupError::Closed) };
        first_connection(&link, (&address, wait_limit), connected).await?;
        Ok(Self { address, link, incoming, topic, answer_topic, wait_limit })
    }

    /// Sends a command and waits for the leader's answer.
    ///
    /// # Errors
    /// [`GroupError::NotAllowed`] or [`GroupError::MessageRefused`] if the broker refuses the command, [`GroupError::TimedOut`] without an answer in time,
    /// [`GroupError::Message`] for an answer that cannot be read, [`GroupError::Link`] or [`GroupError::Closed`] without a connection.
    ///
    /// # Panics
    /// Never: names and numbers have a JSON form.
    pub async fn ask(&mut self, command: &PolicyCommand) -> Result<PolicyAnswer, GroupError> {
        let payload = serde_json::to_vec(command).expect("names and numbers have a JSON form");
        let mut sent = self.link.publish_acknowledged(self.topic.as_str(), payload, false)?;
        let until = Instant::now() + self.wait_limit;
        let mut is_taken = false;
        loop {
            tokio::select! {
                delivery = sent.wait(), if !is_taken => {
                    is_taken = true;
                    if let Delivery::Refused { reason, needs_rights } = delivery {
                        let (broker, topic) = (self.address.clone(), self.topic.clone());
                        return Err(match needs_rights {
                            true => GroupError::NotAllowed { broker, topic, reason, roles: &["operator", "page"] },
                            false => GroupError::MessageRefused { broker, topic, reason },
                        });
                    }
                }
                event = self.incoming.recv() => match event {
                    Some(Incoming::Message { topic, payload, .. }) if *topic == *self.answer_topic => {
                        let answer: PolicyAnswer = serde_json::from_slice(&payload)
                            .map_err(|reason| GroupError::Message { topic: topic.to_string(), reason })?;
                        if answer.replaces == command.replaces {
                            return Ok(answer);
                        }
                    }
                    Some(_) => {}
                    None => return Err(GroupError::Closed),
                },
                () = sleep_until(until) => {
                    return Err(GroupError::TimedOut {
                        expected: format!("the leader's answer on {}", self.answer_topic),
                        found: "none: no leader, or one whose rights do not reach".into(),
                        limit: self.wait_limit,
                    });
                }
            }
        }
    }
}
