//! The broker's answer to each member of a tier: the connection, the broker's limits, and its access rules.

use headwater_inference::bundle::Networks;
use headwater_link::{BrokerLimits, BrokerProbe, ConnectFailure, RefusedSubscription};
use headwater_protocol::{Topic, Topics};

use super::certificates::expiry;
use super::facts::Facts;
use super::finding::{Finding, halves};
use super::tier::{Member, MemberRole, Tier, TierNetworks};

/// Room for topic, properties and header of a packet.
const PACKET_OVERHEAD_BYTES: usize = 256;

/// Bytes of a birth, a status or a result with their names.
const JSON_BYTES: usize = 4096;

/// Bytes of a leader's account with all of its ranges.
const ACCOUNT_BYTES: usize = 24 * 1024;

/// Judges the broker of a tier.
pub(super) fn check(tier: &Tier, networks: &TierNetworks, facts: &Facts) -> Vec<Finding> {
    let Some(broker) = tier.broker() else { return Vec::new() };
    let address = broker.address.to_string();
    let mut findings = Vec::new();
    if broker.user.is_some() && broker.password_file.is_none() {
        let advice = "give the password in `broker.password_file`, so that the doctor can show it too";
        let found = "broker.user has no password in the file; the doctor does not read the environment";
        findings.push(Finding::warn("broker password", found, advice));
    }
    for (index, member) in tier.members.iter().enumerate() {
        let what = tier.what("broker", member);
        match facts.brokers.get(index).and_then(Option::as_ref) {
            // The checks of settings and files say why.
            None => {}
            Some(Err(failure)) => findings.push(refused(&what, &address, failure)),
            Some(Ok(probe)) => {
                let user = broker.user.as_ref().map(|user| format!(" as {user}")).unwrap_or_default();
                let took = probe.connected_in.as_millis();
                findings.push(Finding::ok(
                    what,
                    format!("{address} takes this client{user}, MQTT 5, in {took} ms"),
                ));
                let largest = networks.get(index).and_then(Option::as_ref).map(largest_payload);
                findings.extend(limits(
                    &tier.what("broker limits", member),
                    &probe.limits,
                    &member.role,
                    largest,
                ));
                findings.extend(rules(&tier.what("access rules", member), member, &probe.refused));
                findings.extend(certificate(probe));
            }
        }
    }
    findings
}

/// Bytes of the largest binary message of the networks.
fn largest_payload(networks: &Networks) -> usize {
    let all = networks.bundles().iter().map(|(_, bundle)| bundle.manifest().limits().largest_payload());
    all.max().unwrap_or_default()
}

/// Why the broker does not take a client, and what to do.
fn refused(what: &str, address: &str, failure: &ConnectFailure) -> Finding {
    let fail = |found: String, advice: &str| Finding::fail(what, format!("{address}: {found}"), advice);
    match failure {
        ConnectFailure::NoAnswer(reason) => {
            fail(format!("no broker answers: {reason}"), "start the broker, or correct `broker.address`")
        }
        ConnectFailure::NoMqtt { seen, advice } => fail(format!("the broker {seen}"), advice),
        ConnectFailure::Certificate(reason) => {
            let (found, advice) =
                halves(reason, "compare `tls.authority_file` with the authority of the broker's certificate");
            fail(found.into(), advice)
        }
        ConnectFailure::Later(reason) => {
            fail(format!("the broker refuses for now: {reason}"), "try again; look into the broker's log")
        }
        ConnectFailure::Subscription { filter, code, .. } => {
            fail(format!("the broker refuses the subscription {filter:?} ({code})"), ALLOW)
        }
        ConnectFailure::Refused { reason, code, advice } => {
            fail(format!("the broker refuses this client: {reason} ({code})"), advice)
        }
    }
}

const ALLOW: &str =
    "allow it in the broker's access rules (Mosquitto: acl_file; `headwater enroll` writes one)";

/// Judges the limits that the broker names. `largest` is the largest binary message.
fn limits(what: &str, limits: &BrokerLimits, role: &MemberRole, largest: Option<usize>) -> Vec<Finding> {
    let BrokerLimits { max_packet_bytes, receive_max, topic_alias_max, keeps_retained, max_qos } = *limits;
    let mut findings = Vec::new();
    let json = match role {
        MemberRole::Device(_) | MemberRole::Edge => JSON_BYTES / 4,
        MemberRole::Leader => JSON_BYTES,
    };
    let needed = PACKET_OVERHEAD_BYTES + json.max(largest.unwrap_or_default());
    let most = if *role == MemberRole::Leader { needed.max(ACCOUNT_BYTES) } else { needed };
    let raise = "raise the broker's limit (Mosquitto: max_packet_size 262144)";
    if let Some(found) = max_packet_bytes.map(|bytes| bytes as usize) {
        if found < needed {
            let found = format!("max_packet_size is {found} bytes, the largest message takes {needed}");
            findings.push(Finding::fail(what, found, raise));
        } else if found < most {
            let found = format!("max_packet_size is {found} bytes, an account after many gaps takes {most}");
            findings.push(Finding::warn(what, found, raise));
        }
    }
    if !keeps_retained {
        let advice = "allow retained messages (Mosquitto: retain_available true); births, statuses and claims need them";
        findings.push(Finding::fail(what, "the broker keeps no retained messages", advice));
    }
    if max_qos < 1 {
        let advice = "allow QoS 1 (Mosquitto: max_qos 1); births, results and last wills need it";
        findings.push(Finding::fail(what, "the broker allows QoS 0 alone", advice));
    }
    if receive_max < 16 {
        let found = format!("receive maximum is {receive_max}: results wait for each other");
        findings.push(Finding::warn(what, found, "raise it (Mosquitto: max_inflight_messages 20)"));
    }
    if findings.is_empty() {
        let packet = max_packet_bytes.map_or("without limit".into(), |bytes| format!("{bytes} bytes"));
        let found = format!(
            "packets {packet} (the largest here takes {needed}), receive maximum {receive_max}, topic aliases {topic_alias_max}, \
             QoS {max_qos}, retained messages"
        );
        findings.push(Finding::ok(what, found));
    }
    findings
}

/// Subscriptions that the broker refuses. Brokers may accept one and deliver nothing: Mosquitto does.
fn rules(what: &str, member: &Member, refused: &[RefusedSubscription]) -> Vec<Finding> {
    // Only leaders need the claims.
    let claims = Topics::new(&member.site, &member.group).name(&Topic::Leader);
    let needed = refused.iter().filter(|own| member.role == MemberRole::Leader || own.filter != claims);
    needed
        .map(|own| {
            Finding::fail(
                what,
                format!("the broker refuses the subscription {:?} ({})", own.filter, own.code),
                ALLOW,
            )
        })
        .collect()
}

/// A certificate of the broker that ends soon.
fn certificate(probe: &BrokerProbe) -> Vec<Finding> {
    let advice = "renew it: `headwater enroll renew broker`, then kill -HUP of the broker";
    probe.certificate.iter().flat_map(|of| expiry("certificate of the broker", of, advice)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    const GOOD: BrokerLimits = BrokerLimits {
        max_packet_bytes: None,
        receive_max: 20,
        topic_alias_max: 10,
        keeps_retained: true,
        max_qos: 2,
    };

    #[track_caller]
    fn check(found: BrokerLimits, role: &MemberRole, expected: Level, word: &str) {
        let findings = limits("broker limits", &found, role, Some(2000));
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].level == expected && findings[0].found.contains(word), "{findings:?}");
    }

    #[test]
    fn each_limit_that_stops_messages_is_named() {
        let device = MemberRole::Device("cam-0".parse().unwrap());
        check(GOOD, &device, Level::Ok, "without limit");
        let packet = |bytes| BrokerLimits { max_packet_bytes: Some(bytes), ..GOOD };
        check(packet(262_144), &MemberRole::Leader, Level::Ok, "262144 bytes");
        check(packet(2000), &device, Level::Fail, "max_packet_size is 2000 bytes");
        check(packet(2300), &device, Level::Ok, "2300 bytes");
        check(packet(8192), &MemberRole::Leader, Level::Warn, "an account");
        check(BrokerLimits { keeps_retained: false, ..GOOD }, &device, Level::Fail, "retained");
        check(BrokerLimits { max_qos: 0, ..GOOD }, &device, Level::Fail, "QoS 0 alone");
        check(BrokerLimits { receive_max: 1, ..GOOD }, &device, Level::Warn, "receive maximum is 1");
    }

    #[test]
    fn a_refused_password_is_told_apart_from_a_broker_that_is_away() {
        let failure =
            ConnectFailure::Refused { reason: "not authorized", code: "X".into(), advice: "compare them" };
        let finding = refused("broker", "mqtt://host:1883", &failure);
        assert_eq!(finding.advice.as_deref(), Some("compare them"));
        let away = refused("broker", "mqtt://host:1883", &ConnectFailure::NoAnswer("refused".into()));
        assert!(away.advice.is_some_and(|advice| advice.starts_with("start the broker")));
    }
}
