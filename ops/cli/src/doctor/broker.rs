//! Findings about the broker, for each member of a tier: the connection, the limits of the broker, and its access rules.

use headwater_inference::bundle::Networks;
use headwater_link::{BrokerLimits, BrokerNeeds, ConnectFailure, RefusedSubscription, Shortcoming};
use headwater_protocol::message_sizes::{LARGEST_RESULT_BYTES, PacketSizes};
use headwater_protocol::{Topic, Topics};

use super::facts::Facts;
use super::tier::{Member, MemberRole, Tier, TierNetworks};
use headwater_settings::{Finding, expiry, split_advice};

pub(super) fn check(tier: &Tier, networks: &TierNetworks, facts: &Facts) -> Vec<Finding> {
    let Some(broker) = &tier.broker else { return Vec::new() };
    let address = broker.address.to_string();
    let mut findings = Vec::new();
    if broker.user.is_some() && broker.password_file.is_none() {
        let advice = "give the password in `broker.password_file`, so that the doctor can show it too";
        let found = "broker.user has no password in the file; the doctor does not read the environment";
        findings.push(Finding::warn("broker password", found, advice));
    }
    for (index, member) in tier.members.iter().enumerate() {
        let check = tier.check_name("broker", member);
        match facts.brokers.get(index).and_then(Option::as_ref) {
            // This member was not probed; the findings about settings and files give the reason.
            None => {}
            Some(Err(failure)) => findings.push(refused(&check, &address, failure)),
            Some(Ok(probe)) => {
                let user = broker.user.as_ref().map(|user| format!(" as {user}")).unwrap_or_default();
                let took = probe.connected_in.as_millis();
                findings.push(Finding::ok(
                    check,
                    format!("{address} takes this client{user}, MQTT 5, in {took} ms"),
                ));
                let networks = networks.get(index).and_then(Option::as_ref);
                let needs = needs(&member.role, member.has_details, networks);
                findings.extend(limits(&tier.check_name("broker limits", member), &probe.limits, &needs));
                findings.extend(rules(&tier.check_name("access rules", member), member, &probe.refused));
                let expires = probe.certificate.as_ref().map(|own| own.expires);
                findings.extend(expires.and_then(|at| expiry("certificate of the broker", at, RENEW_BROKER)));
            }
        }
    }
    findings
}

/// The limits of the broker that a member needs. Without a network they are for results of as many slots as there can be; binary messages
/// do not count then, since their size is not known.
fn needs(role: &MemberRole, has_details: bool, networks: Option<&Networks>) -> BrokerNeeds {
    let is_leader = *role == MemberRole::Leader;
    let PacketSizes { usual, rare } = match networks {
        Some(networks) => networks.packet_sizes(is_leader, has_details),
        None if is_leader => PacketSizes::of_leader(LARGEST_RESULT_BYTES, 0),
        None => PacketSizes::of_member(0),
    };
    BrokerNeeds::of_member([usual, rare], !matches!(role, MemberRole::Device(_)))
}

/// The finding for a broker that does not answer or does not accept the client.
fn refused(check: &str, address: &str, failure: &ConnectFailure) -> Finding {
    let fail = |found: String, advice: &str| Finding::fail(check, format!("{address}: {found}"), advice);
    match failure {
        ConnectFailure::Settings(reason) => {
            fail(format!("these settings allow no connection: {reason}"), "correct `[broker]` or `[tls]`")
        }
        ConnectFailure::UnknownHost(reason) => fail(
            reason.clone(),
            "correct the host of `broker.address`, or give the name an address (DNS or /etc/hosts)",
        ),
        ConnectFailure::Unreachable(reason) => {
            fail(format!("no broker answers: {reason}"), "start the broker, or correct `broker.address`")
        }
        ConnectFailure::NoAnswer(reason) => fail(
            format!("no broker answers in time: {reason}"),
            "look at the broker's machine, and whether a firewall drops the packets; or correct `broker.address`",
        ),
        ConnectFailure::Ended(reason) => fail(
            format!("the broker ended the connection: {reason}"),
            "try again; look into the broker's log",
        ),
        ConnectFailure::NoMqtt { seen, advice } => {
            fail(format!("something answers there, but not as an MQTT broker does: it {seen}"), advice)
        }
        ConnectFailure::Certificate(reason) => {
            let (found, advice) = split_advice(
                reason,
                "compare `tls.authority_file` with the authority of the broker's certificate",
            );
            // The advice `RENEW` does not name the command that renews the certificate.
            fail(found.into(), if advice == RENEW { RENEW_BROKER } else { advice })
        }
        ConnectFailure::Later(reason) => {
            fail(format!("the broker refuses for now: {reason}"), "try again; look into the broker's log")
        }
        ConnectFailure::Subscription { filter, code, .. } => {
            fail(format!("the broker refuses the subscription {filter:?} ({code})"), ALLOW)
        }
        ConnectFailure::Limits { found, advice } => fail(found.clone(), advice),
        ConnectFailure::Refused { reason, code, advice } => {
            fail(format!("the broker refuses this client: {reason} ({code})"), advice)
        }
    }
}

/// Advice of the crate `link` if the certificate of the other end has expired.
pub(super) const RENEW: &str = "renew it";

const RENEW_BROKER: &str = "renew the certificate of the broker: `headwater enroll renew broker`, copy the new files to its machine, then \
                            kill -HUP of the broker";

const ALLOW: &str =
    "allow it in the broker's access rules (Mosquitto: acl_file; `headwater enroll` writes one)";

fn limits(check: &str, limits: &BrokerLimits, needs: &BrokerNeeds) -> Vec<Finding> {
    let finding = |Shortcoming { found, advice, stops }| match stops {
        true => Finding::fail(check, found, &advice),
        false => Finding::warn(check, found, &advice),
    };
    let mut findings: Vec<Finding> = limits.shortcomings(needs).into_iter().map(finding).collect();
    if findings.is_empty() {
        let BrokerLimits { max_packet_bytes, receive_max, topic_alias_max, max_qos, .. } = limits;
        let packet =
            max_packet_bytes.map_or("without a limit that it names".into(), |bytes| format!("{bytes} bytes"));
        let needed = needs.packet_bytes;
        let found = format!(
            "packets {packet} (the largest here takes {needed}), receive maximum {receive_max}, topic aliases {topic_alias_max}, \
             QoS {max_qos}, retained messages"
        );
        findings.push(Finding::ok(check, found));
    }
    findings
}

/// Findings for subscriptions that the broker refuses. Mosquitto accepts forbidden subscriptions and delivers nothing, so there are none
/// for Mosquitto.
fn rules(check: &str, member: &Member, refused: &[RefusedSubscription]) -> Vec<Finding> {
    // Only a leader needs the subscription to claims. For other members the doctor subscribes to read the leader's clock, so a refusal does
    // not matter.
    let claims = Topics::new(&member.site, &member.group).name(&Topic::Leader);
    let needed = refused.iter().filter(|own| member.role == MemberRole::Leader || own.filter != claims);
    needed
        .map(|own| {
            Finding::fail(
                check,
                format!("the broker refuses the subscription {:?} ({})", own.filter, own.code),
                ALLOW,
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_link::testing::GOOD_LIMITS as GOOD;
    use headwater_settings::Level;

    #[track_caller]
    fn check(found: BrokerLimits, role: &MemberRole, expected: Level, word: &str) {
        let findings = limits("broker limits", &found, &needs(role, false, None));
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].level == expected && findings[0].found.contains(word), "{findings:?}");
    }

    #[test]
    fn each_limit_that_stops_messages_is_named() {
        let device = MemberRole::Device("cam-0".parse().unwrap());
        check(GOOD, &device, Level::Ok, "without a limit");
        let packet = |bytes| BrokerLimits { max_packet_bytes: Some(bytes), ..GOOD };
        check(packet(262_144), &MemberRole::Leader, Level::Ok, "262144 bytes");
        check(packet(1000), &device, Level::Fail, "max_packet_size is 1000 bytes");
        check(packet(1300), &device, Level::Ok, "1300 bytes");
        check(packet(4000), &MemberRole::Leader, Level::Fail, "the largest message takes 7488");
        check(packet(8192), &MemberRole::Leader, Level::Warn, "an account");
        check(packet(32 << 10), &MemberRole::Leader, Level::Warn, "an account");
        check(BrokerLimits { keeps_retained: false, ..GOOD }, &device, Level::Fail, "retained");
        check(BrokerLimits { max_qos: 0, ..GOOD }, &device, Level::Fail, "QoS 0 alone");
        check(BrokerLimits { receive_max: 1, ..GOOD }, &device, Level::Warn, "receive maximum is 1");
        let exact = BrokerLimits { takes_wildcards: false, ..GOOD };
        check(exact, &device, Level::Ok, "QoS 2");
        check(exact, &MemberRole::Edge, Level::Fail, "no wildcards");
    }

    #[test]
    fn a_refused_password_is_told_apart_from_a_broker_that_is_away() {
        let (reason, code, advice) = ("not authorized", "X".into(), "compare them");
        let failure = ConnectFailure::Refused { reason, code, advice };
        let finding = refused("broker", "mqtt://host:1883", &failure);
        assert_eq!(finding.advice.as_deref(), Some("compare them"));
        let expired = ConnectFailure::Certificate("TLS with host: it has expired; renew it".into());
        let finding = refused("broker", "mqtts://host:8883", &expired);
        assert!(finding.advice.is_some_and(|advice| advice.contains("headwater enroll renew broker")));
        let other = ConnectFailure::NoMqtt { seen: "answers in another protocol than MQTT", advice: "x" };
        let finding = refused("broker", "mqtt://host:8000", &other);
        assert!(finding.found.contains("something answers there, but not as an MQTT broker"), "{finding:?}");
        let away = refused("broker", "mqtt://host:1883", &ConnectFailure::Unreachable("refused".into()));
        assert!(away.advice.is_some_and(|advice| advice.starts_with("start the broker")));
    }
}
