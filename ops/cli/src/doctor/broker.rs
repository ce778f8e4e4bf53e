//! The broker's answer to each member of a tier: the connection, the broker's limits, and its access rules.

use headwater_inference::bundle::Networks;
use headwater_link::{BrokerLimits, BrokerProbe, ConnectFailure, RefusedSubscription};
use headwater_protocol::{SettledNotice, Slot, Topic, Topics};

use super::facts::Facts;
use super::tier::{Member, MemberRole, Tier, TierNetworks};
use headwater_settings::expiry;
use headwater_settings::{Finding, split_advice};

/// Room for topic, properties and header of a packet: a topic has at most three names of 64 bytes.
const PACKET_OVERHEAD_BYTES: usize = 256;

/// Largest birth, status or claim in bytes, names included.
const NOTICE_BYTES: usize = 1024;

/// Largest result in bytes, without its label and without what it says about each slot: times, byte counts, ids, at most four exits.
const RESULT_BYTES: usize = 2048;

/// Most bytes that a result has for each slot: a word of presence, and a missing device's name (64 bytes), with quotes and comma.
const RESULT_SLOT_BYTES: usize = 14 + 67;

/// Bytes of the longest sample id with its comma.
const ID_BYTES: usize = 21;

/// Largest account of a leader in bytes: all late ids, ranges (`[first,last],`) and refused devices that fit, and 1 KiB for counts.
const ACCOUNT_BYTES: usize = SettledNotice::MAX_LATE * ID_BYTES
    + SettledNotice::MAX_RANGES * (2 * ID_BYTES + 2)
    + SettledNotice::MAX_REFUSED * REFUSED_BYTES
    + 1024;

/// Most bytes of a refused device's name and reason in an account, with quotes. JSON takes up to six bytes for a character.
const REFUSED_BYTES: usize = 64 + 6 * SettledNotice::MAX_REASON_CHARS + 6;

/// Largest packet in bytes that the shipped configuration of Mosquitto allows.
const SHIPPED_PACKET_BYTES: usize = 262_144;

/// Checks the broker as each member of a tier.
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
        let check = tier.check_name("broker", member);
        match facts.brokers.get(index).and_then(Option::as_ref) {
            // This member was not probed: the checks of settings and files say why.
            None => {}
            Some(Err(failure)) => findings.push(refused(&check, &address, failure)),
            Some(Ok(probe)) => {
                let user = broker.user.as_ref().map(|user| format!(" as {user}")).unwrap_or_default();
                let took = probe.connected_in.as_millis();
                findings.push(Finding::ok(
                    check,
                    format!("{address} takes this client{user}, MQTT 5, in {took} ms"),
                ));
                let sizes = MessageSizes::of(networks.get(index).and_then(Option::as_ref));
                findings.extend(limits(
                    &tier.check_name("broker limits", member),
                    &probe.limits,
                    &member.role,
                    sizes,
                ));
                findings.extend(rules(&tier.check_name("access rules", member), member, &probe.refused));
                findings.extend(certificate(probe));
            }
        }
    }
    findings
}

/// Largest messages of a group in bytes. Every member checks the binary size; only a leader sends results.
#[derive(Clone, Copy, Debug)]
struct MessageSizes {
    /// Features, views or scores.
    binary: usize,
    /// A result, which is JSON.
    result: usize,
}

impl MessageSizes {
    /// The largest sizes among the group's networks. Without a network: results of as many slots as there can be, and no binary messages,
    /// whose size is not known.
    fn of(networks: Option<&Networks>) -> Self {
        let result = |label: usize, slots: usize| RESULT_BYTES + label + slots * RESULT_SLOT_BYTES;
        let Some(networks) = networks else { return Self { binary: 0, result: result(0, Slot::MAX) } };
        let mut sizes = Self { binary: 0, result: 0 };
        for (_, bundle) in networks.bundles().iter() {
            let manifest = bundle.manifest();
            let label = manifest.labels.iter().map(String::len).max().unwrap_or_default();
            sizes.binary = sizes.binary.max(manifest.limits().largest_payload());
            sizes.result = sizes.result.max(result(label, usize::from(manifest.slots)));
        }
        sizes
    }
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
            // The link's advice does not name our command that renews the certificate.
            fail(found.into(), if advice == RENEW { RENEW_BROKER } else { advice })
        }
        ConnectFailure::Later(reason) => {
            fail(format!("the broker refuses for now: {reason}"), "try again; look into the broker's log")
        }
        ConnectFailure::Subscription { filter, code, .. } => {
            fail(format!("the broker refuses the subscription {filter:?} ({code})"), ALLOW)
        }
        ConnectFailure::NotAuthorized { reason, code, advice }
        | ConnectFailure::Refused { reason, code, advice } => {
            fail(format!("the broker refuses this client: {reason} ({code})"), advice)
        }
    }
}

/// Advice of the link if the other end's certificate has expired.
pub(super) const RENEW: &str = "renew it";

const RENEW_BROKER: &str = "renew the certificate of the broker: `headwater enroll renew broker`, copy the new files to its machine, then \
                            kill -HUP of the broker";

const ALLOW: &str =
    "allow it in the broker's access rules (Mosquitto: acl_file; `headwater enroll` writes one)";

/// Checks the limits that the broker announces.
fn limits(check: &str, limits: &BrokerLimits, role: &MemberRole, sizes: MessageSizes) -> Vec<Finding> {
    let BrokerLimits { max_packet_bytes, receive_max, topic_alias_max, keeps_retained, max_qos } = *limits;
    let mut findings = Vec::new();
    let (json, account) = match role {
        MemberRole::Device(_) | MemberRole::Edge => (NOTICE_BYTES, 0),
        MemberRole::Leader => (sizes.result.max(NOTICE_BYTES), ACCOUNT_BYTES),
    };
    let needed = PACKET_OVERHEAD_BYTES + json.max(sizes.binary);
    let most = needed.max(PACKET_OVERHEAD_BYTES + account);
    let advised = most.next_power_of_two().max(SHIPPED_PACKET_BYTES);
    let raise = format!("raise the broker's limit (Mosquitto: max_packet_size {advised})");
    if let Some(found) = max_packet_bytes.map(|bytes| bytes as usize) {
        if found < needed {
            let found = format!("max_packet_size is {found} bytes, the largest message takes {needed}");
            findings.push(Finding::fail(check, found, &raise));
        } else if found < most {
            let found = format!("max_packet_size is {found} bytes, an account after many gaps takes {most}");
            findings.push(Finding::warn(check, found, &raise));
        }
    }
    if !keeps_retained {
        let advice = "allow retained messages (Mosquitto: retain_available true); births, statuses and claims need them";
        findings.push(Finding::fail(check, "the broker keeps no retained messages", advice));
    }
    if max_qos < 1 {
        let advice = "allow QoS 1 (Mosquitto: max_qos 1); births, results and last wills need it";
        findings.push(Finding::fail(check, "the broker allows QoS 0 alone", advice));
    }
    if receive_max < 16 {
        let found = format!("receive maximum is {receive_max}: results wait for each other");
        findings.push(Finding::warn(check, found, "raise it (Mosquitto: max_inflight_messages 20)"));
    }
    if findings.is_empty() {
        let packet = max_packet_bytes.map_or("without limit".into(), |bytes| format!("{bytes} bytes"));
        let found = format!(
            "packets {packet} (the largest here takes {needed}), receive maximum {receive_max}, topic aliases {topic_alias_max}, \
             QoS {max_qos}, retained messages"
        );
        findings.push(Finding::ok(check, found));
    }
    findings
}

/// Findings for subscriptions that the broker refuses. Mosquitto accepts forbidden subscriptions and delivers nothing: none is seen here.
fn rules(check: &str, member: &Member, refused: &[RefusedSubscription]) -> Vec<Finding> {
    // Only a leader subscribes to claims. For other members the doctor does, to read the leader's clock: a refusal does not matter.
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

/// The finding for a certificate of the broker that expires soon or has expired.
fn certificate(probe: &BrokerProbe) -> Vec<Finding> {
    probe.certificate.iter().flat_map(|of| expiry("certificate of the broker", of, RENEW_BROKER)).collect()
}

#[cfg(test)]
mod tests {
    use headwater_protocol::{DeviceId, SampleId, Schema, Settled};

    use super::*;
    use headwater_settings::Level;

    const GOOD: BrokerLimits = BrokerLimits {
        max_packet_bytes: None,
        receive_max: 20,
        topic_alias_max: 10,
        keeps_retained: true,
        max_qos: 2,
    };

    #[track_caller]
    fn check(found: BrokerLimits, role: &MemberRole, expected: Level, word: &str) {
        let sizes = MessageSizes { binary: 2000, result: 4096 };
        let findings = limits("broker limits", &found, role, sizes);
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
        check(packet(4000), &MemberRole::Leader, Level::Fail, "the largest message takes 4352");
        check(packet(8192), &MemberRole::Leader, Level::Warn, "an account");
        check(packet(32 << 10), &MemberRole::Leader, Level::Warn, "an account");
        check(BrokerLimits { keeps_retained: false, ..GOOD }, &device, Level::Fail, "retained");
        check(BrokerLimits { max_qos: 0, ..GOOD }, &device, Level::Fail, "QoS 0 alone");
        check(BrokerLimits { receive_max: 1, ..GOOD }, &device, Level::Warn, "receive maximum is 1");
    }

    #[test]
    fn an_account_with_every_range_and_late_id_fits_the_bytes_for_it() {
        let newest = SampleId(u64::MAX);
        let notice = SettledNotice {
            schema: Schema,
            account: Settled { highest: newest, decided: u64::MAX, ..Settled::default() },
            late: vec![newest; SettledNotice::MAX_LATE],
            closed: vec![(newest, newest); SettledNotice::MAX_RANGES],
            refused: (0..SettledNotice::MAX_REFUSED)
                .map(|device| (DeviceId::new(format!("{device:0>64}")).unwrap(), "r".repeat(200)))
                .collect(),
            batch_ms: Some(u32::MAX),
        };
        let bytes = serde_json::to_vec(&notice).unwrap().len();
        assert!(bytes <= ACCOUNT_BYTES && ACCOUNT_BYTES < SHIPPED_PACKET_BYTES, "{bytes}");
    }

    #[test]
    fn a_refused_password_is_told_apart_from_a_broker_that_is_away() {
        let failure = ConnectFailure::NotAuthorized {
            reason: "not authorized",
            code: "X".into(),
            advice: "compare them",
        };
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
