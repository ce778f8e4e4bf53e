//! The running program of a tier, as its page `/status` tells: readiness, groups, and every device that is not up.

use headwater_protocol::{Birth, DeviceState, PolicyId, Status, Topic, Topics};
use serde_json::Value;

use super::bundles::{SAME_BUNDLE, ids};
use super::facts::{AdminFacts, Facts};
use super::finding::Finding;
use super::http::Answer;
use super::tier::{Member, MemberRole, Tier, TierNetworks};

/// Longest text of a page that a finding repeats, in characters.
const MAX_CHARS: usize = 300;

/// Judges the running program. `policies` are those of the settings, by member.
pub(super) fn check(
    tier: &Tier,
    networks: &TierNetworks,
    facts: &Facts,
    policies: &[Option<PolicyId>],
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let page = program(tier, facts, &mut findings);
    if let Some(page) = &page {
        findings.extend(links(page));
        for group in list(page, "groups") {
            findings.extend(lead(group));
            findings.extend(policy(tier, group, policies));
        }
    }
    let groups = page.as_ref().map(|page| list(page, "groups")).unwrap_or_default();
    for (index, member) in tier.members.iter().enumerate() {
        let own = groups.iter().find(|group| is_of(member, group));
        match own {
            Some(group) => findings.extend(devices(group)),
            None => {
                let networks = networks.get(index).and_then(Option::as_ref).map(ids).unwrap_or_default();
                findings.extend(kept_devices(member, facts, index, &networks));
            }
        }
    }
    findings
}

/// Whether the program runs, is ready and is the right one; its page, if it has one.
fn program(tier: &Tier, facts: &Facts, findings: &mut Vec<Finding>) -> Option<Value> {
    const WHAT: &str = "running";
    let (program, file) = (tier.kind.program(), tier.file.display());
    let Some(AdminFacts { address, status, ready }) = &facts.admin else {
        let advice = format!("set `admin.listen = \"{}\"`", tier.kind.admin_address());
        let found = "unknown: the settings name no admin port, or port 0";
        findings.push(Finding::warn(WHAT, found, advice));
        return None;
    };
    let answer = match status {
        Ok(answer) => answer,
        Err(reason) => {
            let found = format!("{program} does not answer at {address}: {reason}");
            let advice = format!(
                "start it: {program} --config {file}; if it runs, compare `admin.listen` with its arguments and environment, and look into its \
                 log"
            );
            findings.push(Finding::fail(WHAT, found, advice));
            return None;
        }
    };
    if answer.status == 404 {
        findings.push(older(program, ready.as_ref()));
        return None;
    }
    let page: Value = match serde_json::from_slice(&answer.body) {
        Ok(page) if answer.status == 200 => page,
        Ok(_) | Err(_) => {
            let found = format!("{address}/status answers {} with no status of a tier", answer.status);
            findings.push(Finding::fail(
                WHAT,
                found,
                "correct `admin.listen`: another program may listen there",
            ));
            return None;
        }
    };
    let other = text(&page, "program").filter(|found| found != program);
    if let Some(other) = other {
        let found = format!("{address} is the admin port of {other}, not of {program}");
        findings.push(Finding::fail(WHAT, found, "give each program an `admin.listen` of its own"));
        return None;
    }
    let version = text(&page, "version").unwrap_or_else(|| "unknown".into());
    let up = page["uptime_s"].as_f64().map(|up| format!(", up for {up:.0} s")).unwrap_or_default();
    let found = format!("{program} {version}{up}");
    if page["ready"] == Value::Bool(false) {
        let reason = text(&page, "unready_reason").unwrap_or_else(|| "no reason is given".into());
        findings.push(Finding::fail(
            WHAT,
            format!("{found}: not ready: {reason}"),
            "the findings above and the log say more",
        ));
    } else {
        findings.push(Finding::ok(WHAT, format!("{found}, ready")));
    }
    if version != env!("CARGO_PKG_VERSION") {
        let found = format!("{program} has version {version}, this doctor {}", env!("CARGO_PKG_VERSION"));
        findings.push(Finding::warn("version", found, "install one version on all tiers"));
    }
    Some(page)
}

/// A program without the page.
fn older(program: &str, ready: Option<&Result<Answer, String>>) -> Finding {
    let advice = "install the version of this doctor to see its devices";
    match ready {
        Some(Ok(answer)) if answer.status == 200 => {
            Finding::warn("running", format!("{program} of an older version without /status, ready"), advice)
        }
        Some(Ok(answer)) => {
            let reason = clipped(&String::from_utf8_lossy(&answer.body).replace('\n', " "));
            let found = format!("{program} of an older version without /status: {reason}");
            Finding::fail("running", found, "the findings above and the log say more")
        }
        Some(Err(_)) | None => {
            Finding::fail("running", "the admin port answers no longer", "look into the log of the program")
        }
    }
}

/// Links of the running program to broker and cloud.
fn links(page: &Value) -> Vec<Finding> {
    let mut findings = Vec::new();
    let lost = |broker: &Value| broker["connected"] == Value::Bool(false);
    let groups = list(page, "groups");
    let mut brokers = groups.iter().map(|group| &group["broker"]).chain([&page["broker"]]);
    if let Some(broker) = brokers.find(|broker| lost(broker)) {
        let reason = text(broker, "reason").map(|reason| format!(": {reason}")).unwrap_or_default();
        let found = format!("the running program has no connection to the broker{reason}");
        findings.push(Finding::fail("broker link", found, "the finding `broker` says what to do"));
    }
    let state = text(&page["cloud"], "state").unwrap_or_default();
    let advice = match state.as_str() {
        "failing" | "breaker_open" => {
            Some("the findings `cloud` and `cloud model` say what to do; the program asks again by itself")
        }
        "other_network" => Some(SAME_BUNDLE),
        _ => None,
    };
    let found = format!("the running program says of the cloud: {}", state.replace('_', " "));
    findings.extend(advice.map(|advice| Finding::fail("cloud link", found, advice)));
    for group in groups.iter().filter(|group| group["cloud"]["other_network"] == Value::Bool(true)) {
        let name = text(group, "group").unwrap_or_default();
        let found = format!("group {name}: the cloud serves another network, or has no model of the group's");
        findings.push(Finding::fail("cloud link", found, SAME_BUNDLE));
    }
    if page["certificate"]["reload_failed"] == Value::Bool(true) {
        let found = "the running program cannot use the newer files of its identity; it goes on with the earlier ones";
        findings.push(Finding::fail(
            "certificate",
            found,
            "the files of `[tls]` must fit each other; the log names the mistake",
        ));
    }
    for model in list(page, "models") {
        let state = text(model, "state").unwrap_or_default();
        if state == "failed" {
            let found = format!("model {}: {state}", text(model, "name").unwrap_or_default());
            findings.push(Finding::fail("model", found, "restart the cloud service; its log says why"));
        }
    }
    findings
}

/// Whether a group is led.
fn lead(group: &Value) -> Vec<Finding> {
    let name = text(group, "group").unwrap_or_default();
    let reason = text(group, "reason").map(|reason| format!(": {reason}")).unwrap_or_default();
    let state = text(group, "state").unwrap_or_default();
    let advice = match state.as_str() {
        "failed" => "look into the log of the aggregator, and restart it",
        "waiting_for_silent" => {
            "the leader before it is silent: end it for good, then start this one with --take-over"
        }
        _ => "",
    };
    let journal = &group["journal"];
    let full = (journal["full"] == Value::Bool(true)).then(|| {
        let found = format!("group {name}: the disk of the journal is full: no decision is published");
        Finding::fail(
            "journal",
            found,
            "free some room on the disk of `journal.path`; the leader then goes on by itself",
        )
    });
    let failed = (!advice.is_empty())
        .then(|| Finding::fail("group", format!("group {name}: {state}{reason}"), advice));
    failed.into_iter().chain(full).collect()
}

/// Whether a group of the status is that of the member.
fn is_of(member: &Member, group: &Value) -> bool {
    text(group, "group").as_deref() == Some(member.group.as_str())
        && text(group, "site").is_none_or(|site| site == member.site.as_str())
}

/// Whether the running program has the policy of the settings.
fn policy(tier: &Tier, group: &Value, policies: &[Option<PolicyId>]) -> Option<Finding> {
    let member = tier.members.iter().position(|member| is_of(member, group))?;
    let (running, own) = (text(group, "policy")?, policies.get(member).copied().flatten()?);
    let own = own.to_string();
    let is_same = running == own;
    let what = tier.what("policy", &tier.members[member]);
    Some(if is_same {
        Finding::ok(what, format!("{own}, in the settings and in the running program"))
    } else {
        let found = format!("the running program has policy {running}, the settings say {own}");
        Finding::warn(what, found, "let the program read it again: kill -HUP PID, or restart it")
    })
}

/// Every device that is not up, and every slot without a device, as a page tells.
fn devices(group: &Value) -> Vec<Finding> {
    let name = text(group, "group").unwrap_or_default();
    let devices = list(group, "devices");
    let mut findings = Vec::new();
    for device in &devices {
        let (id, state) =
            (text(device, "name").unwrap_or_default(), text(device, "state").unwrap_or_default());
        if state == "up" {
            continue;
        }
        let since = device["since_s"].as_f64().map(|since| format!(" for {since:.0} s")).unwrap_or_default();
        let reason = text(device, "reason").map(|reason| format!(": {reason}")).unwrap_or_default();
        let found = format!("{id} of group {name} is {}{since}{reason}", state.replace('_', " "));
        let (is_fail, advice) = advice(&state);
        let level = if is_fail { Finding::fail } else { Finding::warn };
        findings.push(level("device".to_owned(), found, advice.to_owned()));
    }
    let empty: Vec<_> = list(group, "empty_slots").iter().filter_map(|slot| slot.as_u64()).collect();
    if !empty.is_empty() {
        let slots = empty.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
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

/// Whether a state of a device is a fail, and what to do.
fn advice(state: &str) -> (bool, &'static str) {
    match state {
        "down" => (true, "start it; on its machine its log and `headwater doctor` say why it ended"),
        "silent" => {
            (true, "it is connected and sends nothing: look into its log, and restart it if it hangs")
        }
        "late" => (
            false,
            "it answers after the window: a slower engine, a slow link, or a `window_ms` that is too short",
        ),
        "flapping" => (
            false,
            "its connection comes and goes: look at its power and its link, and for a second device with its id",
        ),
        "wrong_network" => (true, SAME_BUNDLE),
        "clock_off" => (true, "set its clock (NTP), and compare it with that of the group's other devices"),
        "refused" => (true, "the reason and the aggregator's log name the mistake"),
        _ => (false, "the aggregator's log says more"),
    }
}

/// Devices whose retained messages at the broker name a fault, for a leader without a page.
fn kept_devices(
    member: &Member,
    facts: &Facts,
    index: usize,
    networks: &[headwater_protocol::NetworkId],
) -> Vec<Finding> {
    if member.role != MemberRole::Leader {
        return Vec::new();
    }
    let Some(Ok(probe)) = facts.brokers.get(index).and_then(Option::as_ref) else { return Vec::new() };
    let topics = Topics::new(&member.site, &member.group);
    let group = &member.group;
    let mut findings = Vec::new();
    for message in &probe.retained {
        let Ok(Topic::Device(id, _)) = topics.parse(&message.topic) else { continue };
        if let Ok(Status { state: DeviceState::Down, .. }) = serde_json::from_slice(&message.payload) {
            let found = format!("{id} of group {group} is down, by its last message at the broker");
            findings.push(Finding::fail("device", found, advice("down").1));
        }
        if let Ok(Birth { network, .. }) = serde_json::from_slice(&message.payload)
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

/// A list of a page; empty where it has none.
fn list<'a>(page: &'a Value, key: &str) -> Vec<&'a Value> {
    page[key].as_array().map(|list| list.iter().collect()).unwrap_or_default()
}

/// A text of a page, clipped.
fn text(page: &Value, key: &str) -> Option<String> {
    page[key].as_str().map(clipped)
}

fn clipped(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MAX_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::finding::Level;
    use super::*;

    #[test]
    fn every_device_that_is_not_up_is_named_with_its_reason() {
        let device = |name: &str, state: &str, reason: Value| json!({ "name": name, "state": state, "since_s": 2.4, "reason": reason });
        let group = json!({ "group": "gate", "empty_slots": [3], "devices": [
            device("cam-0", "up", Value::Null),
            device("cam-1", "down", json!("its last will came")),
            device("cam-2", "late", Value::Null),
            device("cam-4", "clock_off", json!("38 s ahead")),
            device("cam-5", "asleep", Value::Null),
        ]});
        let found = devices(&group);
        let lines: Vec<_> = found.iter().map(|finding| (finding.level, finding.found.as_str())).collect();
        let expected = [
            (Level::Fail, "cam-1 of group gate is down for 2 s: its last will came"),
            (Level::Warn, "cam-2 of group gate is late for 2 s"),
            (Level::Fail, "cam-4 of group gate is clock off for 2 s: 38 s ahead"),
            (Level::Warn, "cam-5 of group gate is asleep for 2 s"),
            (Level::Warn, "group gate has no device for slot 3"),
        ];
        assert_eq!(lines, expected);
        assert!(found.iter().all(|finding| finding.advice.is_some()));
        assert_eq!(devices(&json!({})), []);
        let up = json!({ "group": "gate", "devices": [device("cam-0", "up", Value::Null)] });
        assert_eq!(devices(&up)[0].level, Level::Ok);
    }

    #[test]
    fn a_page_of_any_shape_is_read() {
        for page in
            [json!(null), json!([]), json!({ "groups": 3 }), json!({ "groups": [1, {}], "cloud": [] })]
        {
            assert_eq!(links(&page), []);
            for group in list(&page, "groups") {
                assert_eq!((lead(group), devices(group)), (Vec::new(), Vec::new()));
            }
        }
        let failing =
            json!({ "cloud": { "state": "breaker_open" }, "groups": [{ "broker": { "connected": false } }] });
        assert_eq!(links(&failing).len(), 2);
        let faults = json!({
            "groups": [{ "group": "gate", "cloud": { "other_network": true } }],
            "models": [{ "name": "a", "state": "failed" }, { "name": "b", "state": "ready" }],
            "certificate": { "reload_failed": true },
        });
        let whats: Vec<_> = links(&faults).into_iter().map(|finding| finding.what).collect();
        assert_eq!(whats, ["cloud link", "certificate", "model"]);
        assert_eq!(lead(&json!({ "group": "a", "state": "failed", "journal": { "full": true } })).len(), 2);
    }
}
