//! Findings about a group of the running program, from its page `/status`: state, policy, and every device that is not up.

use std::collections::BTreeSet;

use headwater_link::RetainedMessage;
use headwater_protocol::status::{GroupDevice, GroupState, GroupStatus, LeaderStatus, ReportedState};
use headwater_protocol::{
    Birth, DeviceId, DeviceState, DeviceTopic, NetworkId, PolicyId, Status, Topic, Topics, Trigger,
};

use super::facts::Facts;
use super::networks::SAME_BUNDLE;
use super::page::{because, clipped};
use super::tier::{Member, MemberRole, Tier};
use headwater_settings::Finding;

/// Findings for a group that has failed or waits for a silent leader, whose journal is full, or that has an unconfirmed trigger.
pub(super) fn state(group: &GroupStatus) -> Vec<Finding> {
    let GroupStatus { group: name, state, reason, .. } = group;
    let failed = match state {
        Some(GroupState::Failed) => Some((
            "failed",
            "correct what the reason names, and restart the aggregator: only a new process runs the group again",
        )),
        Some(GroupState::WaitingForSilent) => Some((
            "waiting_for_silent",
            "the leader before it is silent: end it for good, then start this one with --take-over",
        )),
        _ => None,
    };
    let failed = failed.map(|(state, advice)| {
        let found = format!("group {name}: {state}{}", because(reason.as_ref()));
        Finding::fail("group", found, advice)
    });
    let full = group.leader().filter(|leader| leader.journal.full).map(|_| {
        let found = format!("group {name}: the disk of the journal is full: no decision is published");
        Finding::fail(
            "journal",
            found,
            "free some room on the disk of `journal.path`; the leader then goes on by itself",
        )
    });
    let far = group.leader().and_then(|leader| Some((leader, leader.samples.unconfirmed_trigger?)));
    let far = far.map(|(leader, sample)| {
        let is_waiting = |own: &&GroupDevice| own.state == ReportedState::Up && own.reason.is_some();
        let waiting = leader.devices.iter().filter(is_waiting);
        let names: Vec<_> = ["the leader"].into_iter().chain(waiting.map(|own| own.name.as_str())).collect();
        let (most, names) = (Trigger::MAX_STEP, names.join(", "));
        let found = format!(
            "group {name}: the trigger of sample {sample} is more than {most} above the newest sample: it waits for a second one near it at \
             {names}"
        );
        let advice = "go on from the newest sample; if the far id is right, trigger one near it too";
        Finding::warn("triggers", found, advice)
    });
    failed.into_iter().chain(full).chain(far).collect()
}

/// The finding for a leader that waits while another leader leads, which alone knows the devices. `None` if this leader does not wait.
pub(super) fn waits(group: &GroupStatus) -> Option<Finding> {
    let state = match group.state {
        Some(GroupState::Waiting) => "waiting",
        Some(GroupState::WaitingForSilent) => "waiting for silent",
        _ => return None,
    };
    let name = &group.group;
    let other = group.leader().and_then(|own| own.leader.waits_for);
    let other = other.map(|leader| format!(" {leader}")).unwrap_or_default();
    let found =
        format!("group {name}: this leader waits for another one{other}, which knows the devices ({state})");
    Some(Finding::ok("devices", found))
}

/// Returns true when a group on the page is the member's group.
pub(super) fn is_of(member: &Member, group: &GroupStatus) -> bool {
    group.group == member.group && group.site == member.site
}

/// The finding that compares the running program's policy with the policy that its settings give; `None` if either is not known.
pub(super) fn policy(tier: &Tier, group: &GroupStatus, policies: &[Option<PolicyId>]) -> Option<Finding> {
    let member = tier.members.iter().position(|member| is_of(member, group))?;
    let running = group.leader()?.policy?;
    let own = policies.get(member).copied().flatten()?;
    let check = tier.check_name("policy", &tier.members[member]);
    Some(if running == own {
        Finding::ok(check, format!("{own}, in the settings and in the running program"))
    } else {
        let found = format!("the running program has policy {running}, the settings say {own}");
        Finding::warn(check, found, "let the program read it again: kill -HUP PID, or restart it")
    })
}

/// Findings for every device that is not up and for every slot without a device, by the leader's page.
pub(super) fn devices(group: &GroupStatus) -> Vec<Finding> {
    let (name, Some(LeaderStatus { devices, empty_slots, .. })) = (&group.group, group.leader()) else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    for device in devices {
        let Some((is_fail, advice)) = advice(device.state) else { continue };
        let found = format!(
            "{} of group {name} is {} for {:.0} s{}",
            device.name,
            device.state.name().replace('_', " "),
            device.since_s,
            because(device.reason.as_ref())
        );
        let level = if is_fail { Finding::fail } else { Finding::warn };
        findings.push(level("device".to_owned(), found, advice.to_owned()));
    }
    if !empty_slots.is_empty() {
        let slots = empty_slots.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let found = format!("group {name} has no device for slot {slots}");
        findings.push(Finding::warn(
            "device",
            found,
            "start the devices of these slots, with this site, group and broker",
        ));
    }
    if findings.is_empty() && !devices.is_empty() {
        findings.push(Finding::ok("devices", format!("group {name}: all {} are up", devices.len())));
    }
    findings
}

/// True for a fail, false for a warning, and the advice for a device in this state; `None` for a device that is up.
fn advice(state: ReportedState) -> Option<(bool, &'static str)> {
    Some(match state {
        ReportedState::Up => return None,
        ReportedState::Down => (true, ADVICE_DOWN),
        ReportedState::Silent => {
            (true, "look into its log, at its network and its source, and restart it if it hangs")
        }
        ReportedState::Frozen => (true, ADVICE_FROZEN),
        ReportedState::Late => (
            false,
            "it answers after the window: a slower engine, a slow link, or a `window_ms` that is too short",
        ),
        ReportedState::Flapping => (
            false,
            "its connection comes and goes: look at its power and its link, and for a second device with its id",
        ),
        ReportedState::WrongNetwork => (true, SAME_BUNDLE),
        ReportedState::ClockOff => {
            (true, "set its clock (NTP), and compare it with that of the group's other devices")
        }
        ReportedState::Refused => (true, "the reason and the aggregator's log name the mistake"),
        ReportedState::Unknown => (false, "the aggregator's log says more"),
    })
}

/// Advice for a device that is down.
const ADVICE_DOWN: &str = "start it; on its machine its log and `headwater doctor` say why it ended";

/// Advice for a camera that is frozen, dark or covered.
pub(super) const ADVICE_FROZEN: &str = "look at the picture of the camera: restart a frozen one, uncover or light the others; a scene \
                                        that is meant to be still or dark needs other `source.frozen_frames`";

/// Findings for devices whose retained messages at the broker name a fault; used when the page of the leader is missing.
pub(super) fn retained_devices(
    member: &Member,
    facts: &Facts,
    index: usize,
    networks: &[NetworkId],
) -> Vec<Finding> {
    if member.role != MemberRole::Leader {
        return Vec::new();
    }
    let Some(Ok(probe)) = facts.brokers.get(index).and_then(Option::as_ref) else { return Vec::new() };
    let topics = Topics::new(&member.site, &member.group);
    let group = &member.group;
    let messages = || {
        let of_device = |message: &'_ RetainedMessage| match topics.parse(&message.topic) {
            Ok(Topic::Device(id, leaf)) => Some((id, leaf)),
            Ok(_) | Err(_) => None,
        };
        probe.retained.iter().filter_map(move |message| Some((of_device(message)?, &message.payload)))
    };
    // A device that was revoked or removed has no birth any more, but its last status is still retained.
    let births = messages().filter(|((_, leaf), payload)| *leaf == DeviceTopic::Birth && !payload.is_empty());
    let known: BTreeSet<DeviceId> = births.map(|((id, _), _)| id).collect();
    let mut findings = Vec::new();
    for ((id, _), payload) in messages().filter(|((id, _), _)| known.contains(id)) {
        match serde_json::from_slice(payload) {
            Ok(Status { state: DeviceState::Down, .. }) => {
                let found = format!("{id} of group {group} is down, by its last message at the broker");
                findings.push(Finding::fail("device", found, ADVICE_DOWN));
            }
            Ok(Status { frozen: Some(reason), .. }) => {
                let found = format!("{id} of group {group} is frozen: {}", clipped(&reason));
                findings.push(Finding::fail("device", found, ADVICE_FROZEN));
            }
            Ok(_) | Err(_) => {}
        }
        if let Ok(Birth { network, .. }) = serde_json::from_slice(payload)
            && !networks.is_empty()
            && !networks.contains(&network)
        {
            let found =
                format!("{id} of group {group} has network {}, by its birth at the broker", network.short());
            findings.push(Finding::fail("device", found, SAME_BUNDLE));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use headwater_link::BrokerProbe;
    use headwater_link::testing::GOOD_LIMITS;
    use headwater_settings::TlsSettings;
    use serde_json::{Value, json};

    use super::*;
    use headwater_settings::Level;

    /// A leader's group with these fields.
    fn group(changes: Value) -> GroupStatus {
        let mut group = json!({
            "site": "hall", "group": "gate", "role": "leader", "edge": null, "networks": [], "state": "leading",
            "leader": { "instance": null, "term": 1, "waits_for": null, "claim_refused": null },
            "broker": { "connected": true, "reason": null }, "policy": null, "numbering": null,
            "samples": {
                "open": 0, "awaited": 0, "decided": 0, "dropped": {}, "degraded": {}, "republished": 0, "unacknowledged": 0,
                "waiting_for_broker": 0,
            },
            "cloud": { "asked": 0, "answered": 0, "failed": {}, "refused": {}, "other_network": false },
            "journal": { "path": null, "full": false, "failed_writes": 0, "unreadable_bytes": 0 },
            "devices": [], "empty_slots": [], "edges_up": 0,
        });
        let (Some(fields), Value::Object(changes)) = (group.as_object_mut(), changes) else {
            panic!("an object")
        };
        fields.extend(changes);
        let group: GroupStatus = serde_json::from_value(group).unwrap();
        assert!(group.leader().is_some());
        group
    }

    fn device(name: &str, state: &str, reason: Option<&str>) -> Value {
        json!({
            "name": name, "slot": 0, "state": state, "since_s": 2.4, "last_message_s": 0.1, "reason": reason, "version": "0.1.0",
        })
    }

    #[test]
    fn every_device_that_is_not_up_is_named_with_its_reason() {
        let found = group(json!({ "empty_slots": [3], "devices": [
            device("cam-0", "up", None),
            device("cam-1", "down", Some("its last will came")),
            device("cam-2", "late", None),
            device("cam-3", "frozen", Some("the latest 100 frames are equal")),
            device("cam-4", "clock_off", Some("38 s ahead")),
            device("cam-5", "asleep", None),
        ]}));
        let found = devices(&found);
        let lines: Vec<_> = found.iter().map(|finding| (finding.level, finding.found.as_str())).collect();
        let expected = [
            (Level::Fail, "cam-1 of group gate is down for 2 s: its last will came"),
            (Level::Warn, "cam-2 of group gate is late for 2 s"),
            (Level::Fail, "cam-3 of group gate is frozen for 2 s: the latest 100 frames are equal"),
            (Level::Fail, "cam-4 of group gate is clock off for 2 s: 38 s ahead"),
            (Level::Warn, "cam-5 of group gate is unknown for 2 s"),
            (Level::Warn, "group gate has no device for slot 3"),
        ];
        assert_eq!(lines, expected);
        assert!(found.iter().all(|finding| finding.advice.is_some()));
        assert_eq!(devices(&group(json!({}))), []);
        let up = group(json!({ "devices": [device("cam-0", "up", None)] }));
        assert_eq!(devices(&up)[0].level, Level::Ok);
    }

    #[test]
    fn a_device_whose_birth_was_cleared_is_no_device() {
        let member = Member {
            site: "hall".parse().unwrap(),
            group: "gate".parse().unwrap(),
            role: MemberRole::Leader,
            has_details: false,
            subscriptions: Vec::new(),
            tls: TlsSettings::default(),
        };
        let down = |name: &str| {
            let topic = format!("headwater/v1/hall/gate/dev/{name}/status");
            RetainedMessage::new(topic, json!({ "schema": 2, "state": "down", "boot": 1 }).to_string())
        };
        let probe = BrokerProbe {
            limits: GOOD_LIMITS,
            refused: Vec::new(),
            retained: vec![
                down("cam-4"),
                down("cam-5"),
                RetainedMessage::new("headwater/v1/hall/gate/dev/cam-4/birth", "{}"),
                RetainedMessage::new("headwater/v1/hall/gate/dev/cam-6/birth", "{}"),
                RetainedMessage::new(
                    "headwater/v1/hall/gate/dev/cam-6/status",
                    json!({ "schema": 2, "state": "up", "boot": 1, "frozen": "equal frames" }).to_string(),
                ),
            ],
            certificate: None,
            connected_in: Duration::ZERO,
        };
        let facts = Facts { brokers: vec![Some(Ok(probe))], ..Facts::default() };
        let found = retained_devices(&member, &facts, 0, &[]);
        let found: Vec<_> = found.iter().map(|finding| finding.found.as_str()).collect();
        let expected = [
            "cam-4 of group gate is down, by its last message at the broker",
            "cam-6 of group gate is frozen: equal frames",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_trigger_that_waits_for_a_second_one_is_named() {
        let samples = json!({
            "open": 0, "awaited": 0, "unconfirmed_trigger": 1_073_741_824, "decided": 0, "dropped": {}, "degraded": {},
            "republished": 0, "unacknowledged": 0, "waiting_for_broker": 0,
        });
        let devices = json!([
            device("cam-0", "up", Some("its answer to sample 1073741824 waits")),
            device("cam-1", "down", Some("its last will came")),
            device("cam-2", "up", Some("its answer to sample 1073741824 waits")),
        ]);
        let found = state(&group(json!({ "samples": samples, "devices": devices })));
        assert!(found.len() == 1 && found[0].level == Level::Warn, "{found:?}");
        assert!(
            found[0].found.ends_with("near it at the leader, cam-0, cam-2") && found[0].advice.is_some(),
            "{found:?}"
        );
        assert!(found[0].found.contains("sample 1073741824 is more than 1000 above"), "{found:?}");
        assert!(state(&group(json!({}))).is_empty());
    }

    #[test]
    fn a_leader_that_waits_says_nothing_about_slots() {
        let leader =
            json!({ "instance": null, "term": 1, "waits_for": "000000000000ab12", "claim_refused": null });
        let group =
            |state: &str| group(json!({ "state": state, "leader": leader.clone(), "empty_slots": [0, 1] }));
        let found = waits(&group("waiting")).unwrap();
        assert_eq!(found.level, Level::Ok);
        assert!(found.found.contains("waits for another one 000000000000ab12"), "{}", found.found);
        assert_eq!(waits(&group("leading")), None);
    }

    #[test]
    fn a_group_that_failed_is_named_with_its_reason() {
        let journal = json!({ "path": null, "full": true, "failed_writes": 1, "unreadable_bytes": 0 });
        let failed = json!({ "state": "failed", "reason": "journal: no room", "journal": journal });
        let found = state(&group(failed));
        assert_eq!(found[0].found, "group gate: failed: journal: no room");
        assert_eq!(found[1].check, "journal");
        assert!(found.iter().all(|finding| finding.level == Level::Fail), "{found:?}");
        assert_eq!(state(&group(json!({}))), []);
    }
}
