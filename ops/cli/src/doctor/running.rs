//! The running program of a tier, as its page `/status` tells: readiness, version, and its links to broker and cloud.

use headwater_end_device::{CaptureWord, SourceWord};
use headwater_protocol::PolicyId;
use serde_json::Value;

use super::bundles::{SAME_BUNDLE, ids};
use super::facts::{AdminFacts, Facts};
use super::finding::Finding;
use super::http::is_silent;
use super::page::{clipped, list, text};
use super::running_group::{devices, is_of, policy, retained_devices, state, waits};
use super::tier::{Tier, TierNetworks, TierSettings};

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
        findings.extend(frames(tier, page));
        for group in list(page, "groups") {
            findings.extend(state(group));
            findings.extend(policy(tier, group, policies));
        }
    }
    let groups = page.as_ref().map(|page| list(page, "groups")).unwrap_or_default();
    for (index, member) in tier.members.iter().enumerate() {
        let own = groups.iter().find(|group| is_of(member, group));
        match own {
            // The broker's finding says it all: without a broker a leader knows no device.
            Some(group) if has_lost(&group["broker"]) => {}
            Some(group) => match waits(group) {
                Some(finding) => findings.push(finding),
                None => findings.extend(devices(group)),
            },
            None => {
                let networks = networks.get(index).and_then(Option::as_ref).map(ids).unwrap_or_default();
                findings.extend(retained_devices(member, facts, index, &networks));
            }
        }
    }
    findings
}

/// Whether the program runs, is ready and is the right one; its page, if it has one.
fn program(tier: &Tier, facts: &Facts, findings: &mut Vec<Finding>) -> Option<Value> {
    const CHECK: &str = "running";
    let (program, file) = (tier.kind.program(), tier.file.display());
    let Some(AdminFacts { address, status }) = &facts.admin else {
        let advice = format!("set `admin.listen = \"{}\"`", tier.kind.admin_address());
        let found = "unknown: the settings name no admin port, or port 0";
        findings.push(Finding::warn(CHECK, found, advice));
        return None;
    };
    let answer = match status {
        Ok(answer) => answer,
        Err(reason) => {
            let found = format!("{program} does not answer at {address}: {reason}");
            let advice = if is_silent(reason) {
                format!(
                    "it runs and does not answer: look at its log, end it, then start it: {program} --config {file}"
                )
            } else {
                format!(
                    "start it: {program} --config {file}; if it runs, compare `admin.listen` with its arguments and environment, and look \
                     into its log"
                )
            };
            findings.push(Finding::fail(CHECK, found, advice));
            return None;
        }
    };
    let page: Value = match serde_json::from_slice(&answer.body) {
        Ok(page) if answer.status == 200 => page,
        Ok(_) | Err(_) => {
            let found = format!("{address}/status answers {} with no status of a tier", answer.status);
            findings.push(Finding::fail(
                CHECK,
                found,
                "correct `admin.listen`: another program may listen there",
            ));
            return None;
        }
    };
    let other = text(&page, "program").filter(|found| found != program);
    if let Some(other) = other {
        let found = format!("{address} is the admin port of {other}, not of {program}");
        findings.push(Finding::fail(CHECK, found, "give each program an `admin.listen` of its own"));
        return None;
    }
    if let Some(found) = other_names(tier, &page) {
        let found = format!("another {program} answers at {address}: {found}");
        let advice = "give each program an `admin.listen` of its own, or start this one with these settings";
        findings.push(Finding::fail(CHECK, found, advice));
        return None;
    }
    let version = text(&page, "version").unwrap_or_else(|| "unknown".into());
    let up = page["uptime_s"].as_f64().map(|up| format!(", up for {up:.0} s")).unwrap_or_default();
    let found = format!("{program} {version}{up}");
    if page["ready"] == Value::Bool(false) {
        let reason = text(&page, "unready_reason").unwrap_or_else(|| "no reason is given".into());
        let advice = match page["leader"]["refusal"].is_string() {
            true => "compare `id`, `slot` and `bundle` with the aggregator's `devices` and its network",
            false => "the findings above and the log say more",
        };
        findings.push(Finding::fail(CHECK, format!("{found}: not ready: {reason}"), advice));
    } else {
        findings.push(Finding::ok(CHECK, format!("{found}, ready")));
    }
    if version != env!("CARGO_PKG_VERSION") {
        let found = format!("{program} has version {version}, this doctor {}", env!("CARGO_PKG_VERSION"));
        findings.push(Finding::warn("version", found, "install one version on all tiers"));
    }
    Some(page)
}

/// Names of a program of the same kind with other settings, expected and found; `None` where they fit, or the page has none.
fn other_names(tier: &Tier, page: &Value) -> Option<String> {
    let differs = |expected: String, found: String| {
        (expected != found).then(|| format!("expected {expected}, found {found}"))
    };
    match &tier.settings {
        TierSettings::Device(settings) => {
            let [site, group, device] = ["site", "group", "device"].map(|key| text(page, key));
            let expected = format!("device {} of {}/{}", settings.id, settings.site, settings.group);
            differs(expected, format!("device {} of {}/{}", device?, site?, group?))
        }
        TierSettings::Aggregator(_) => {
            let groups = list(page, "groups");
            if groups.is_empty()
                || tier.members.iter().any(|own| groups.iter().any(|group| is_of(own, group)))
            {
                return None;
            }
            let own = tier.members.iter().map(|own| format!("{}/{}", own.site, own.group));
            let found = groups.iter().map(|group| {
                let [site, group] = ["site", "group"].map(|key| text(group, key).unwrap_or_default());
                format!("{site}/{group}")
            });
            let named = |names: Vec<String>| format!("groups {}", names.join(", "));
            differs(named(own.collect()), named(found.collect()))
        }
        TierSettings::Cloud(settings) => {
            let found = text(list(page, "models").first()?, "name")?;
            differs(format!("model {}", settings.service.model.name), format!("model {found}"))
        }
    }
}

/// Periods of a clock after which a camera without a frame is named.
const PERIODS_WITHOUT_FRAME: f64 = 3.0;

/// Time after which a camera without a clock's period is named, s.
const S_WITHOUT_FRAME: f64 = 10.0;

/// A device that runs and has had no frame yet.
fn frames(tier: &Tier, page: &Value) -> Option<Finding> {
    let TierSettings::Device(settings) = &tier.settings else { return None };
    let (source, up_s) = (&page["source"], page["uptime_s"].as_f64()?);
    // The frames of an archive are not counted.
    if settings.source.kind == SourceWord::Archive || source["frames"].as_u64()? > 0 {
        return None;
    }
    let faults: Vec<_> = source["faults"]
        .as_object()
        .map(|faults| faults.iter().map(|(name, count)| format!("{} {count}", clipped(name))).collect())
        .unwrap_or_default();
    let by_clock = settings.period_ms.filter(|_| settings.capture == CaptureWord::Clock);
    let limit_s = by_clock.map_or(S_WITHOUT_FRAME, |period| {
        PERIODS_WITHOUT_FRAME * f64::from(u32::try_from(period).unwrap_or(u32::MAX)) / 1000.0
    });
    // A device that was never asked for a sample has taken no frame.
    let is_asked = settings.capture != CaptureWord::Trigger
        || !faults.is_empty()
        || page["captures"]["captured"].as_u64().is_some_and(|captured| captured > 0);
    (is_asked && up_s > limit_s).then(|| {
        let named = if faults.is_empty() { String::new() } else { format!(" ({})", faults.join(", ")) };
        let found = format!("{} has had no frame in {up_s:.0} s{named}", settings.id);
        let advice = "look at the camera and at section `[source]`: its path or address (docs/sources.md); the device's log names the fault";
        // Without a fault no image has come: a watched folder may be empty for long.
        if faults.is_empty() {
            Finding::warn("frames", found, advice)
        } else {
            Finding::fail("frames", found, advice)
        }
    })
}

/// Whether a program has no connection to its broker, as its page says.
fn has_lost(broker: &Value) -> bool {
    broker["connected"] == Value::Bool(false)
}

/// Links of the running program to broker and cloud.
fn links(page: &Value) -> Vec<Finding> {
    let mut findings = Vec::new();
    let groups = list(page, "groups");
    // A group that failed has shut its own connections.
    let running = groups.iter().filter(|group| group["state"] != "failed");
    let mut brokers = running.map(|group| &group["broker"]).chain([&page["broker"]]);
    if let Some(broker) = brokers.find(|broker| has_lost(broker)) {
        let reason = text(broker, "reason").map(|reason| format!(": {reason}")).unwrap_or_default();
        let found = format!("the running program has no connection to the broker{reason}");
        findings.push(Finding::fail("broker link", found, "the finding `broker` says what to do"));
    }
    let state = text(&page["cloud"], "state").unwrap_or_default();
    if matches!(state.as_str(), "failing" | "breaker_open") {
        let found = format!("the running program says of the cloud: {}", state.replace('_', " "));
        let advice =
            "the findings `cloud` and `cloud model` say what to do; the program asks again by itself";
        findings.push(Finding::fail("cloud link", found, advice));
    }
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::finding::Level;
    use super::super::tier::TierKind;
    use super::*;

    /// A tier with these settings.
    fn tier(kind: TierKind, settings: &str) -> Tier {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), settings).unwrap();
        Tier::read(kind, file.path()).unwrap_or_else(|mistakes| panic!("{mistakes:?}"))
    }

    const DEVICE: &str = "site = \"hall\"\ngroup = \"gate\"\nid = \"cam-0\"\nslot = 0\nbundle = \"a.hwb\"\n\
                          capture = \"clock\"\nperiod_ms = 2000\n[source]\nkind = \"http\"\n[source.http]\nurl = \"http://cam.local/snap\"\n";

    #[test]
    fn a_program_of_the_same_kind_with_other_names_is_another_one() {
        let device = tier(TierKind::Device, DEVICE);
        let page = |id: &str| json!({ "device": id, "site": "hall", "group": "gate" });
        let found = other_names(&device, &page("cam-1")).unwrap();
        assert_eq!(found, "expected device cam-0 of hall/gate, found device cam-1 of hall/gate");
        assert_eq!(other_names(&device, &page("cam-0")), None);
        assert_eq!(other_names(&device, &json!({})), None, "an older page");
        let leader = tier(TierKind::Aggregator, "site = \"hall\"\ngroup = \"gate\"\nbundle = \"a.hwb\"\n");
        let page = |group: &str| json!({ "groups": [{ "site": "hall", "group": group }] });
        let found = other_names(&leader, &page("belt")).unwrap();
        assert_eq!(found, "expected groups hall/gate, found groups hall/belt");
        assert_eq!(other_names(&leader, &page("gate")), None);
        let cloud = tier(TierKind::Cloud, "bundle = \"a.hwb\"\n[model]\nname = \"own\"\n");
        let found = other_names(&cloud, &json!({ "models": [{ "name": "other" }] })).unwrap();
        assert_eq!(found, "expected model own, found model other");
    }

    #[test]
    fn a_camera_without_a_frame_is_named_after_three_periods() {
        let device = tier(TierKind::Device, DEVICE);
        let page = |up: f64, frames: u64| json!({ "uptime_s": up, "source": { "frames": frames, "faults": { "absent": 4 } } });
        let found = frames(&device, &page(9.0, 0)).unwrap();
        assert_eq!((found.level, found.check.as_str()), (Level::Fail, "frames"));
        assert!(found.found.contains("cam-0 has had no frame in 9 s (absent 4)"), "{}", found.found);
        assert_eq!(frames(&device, &page(5.0, 0)), None, "it has just started");
        assert_eq!(frames(&device, &page(9.0, 1)), None);
        let asked = tier(TierKind::Device, &DEVICE.replace("capture = \"clock\"\nperiod_ms = 2000\n", ""));
        let archive = DEVICE.split("[source]").next().unwrap().to_owned() + "[source]\npath = \"f\"\n";
        assert_eq!(frames(&tier(TierKind::Device, &archive), &page(9.0, 0)), None, "it counts no frames");
        let idle = json!({ "uptime_s": 100.0, "source": { "frames": 0, "faults": {} } });
        assert_eq!(frames(&asked, &idle), None, "nobody has triggered a sample");
    }

    #[test]
    fn a_page_of_any_shape_is_read() {
        for page in
            [json!(null), json!([]), json!({ "groups": 3 }), json!({ "groups": [1, {}], "cloud": [] })]
        {
            assert_eq!(links(&page), []);
            for group in list(&page, "groups") {
                assert_eq!((state(group), devices(group)), (Vec::new(), Vec::new()));
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
        let checks: Vec<_> = links(&faults).into_iter().map(|finding| finding.check).collect();
        assert_eq!(checks, ["cloud link", "certificate", "model"]);
    }
}
