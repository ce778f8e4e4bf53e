//! Findings about the running program of a tier, from its page `/status`: readiness, version, and links to broker and cloud.

use headwater_end_device::{CaptureWord, SourceWord};
use headwater_protocol::PolicyId;
use headwater_protocol::status::{AggregatorStatus, GroupState, GroupStatus};

use super::facts::Facts;
use super::http::is_silent;
use super::networks::{SAME_BUNDLE, ids};
use super::page::{AnyPage, OwnStatus, Page, because, clipped, groups, read_own};
use super::running_group::{ADVICE_FROZEN, devices, is_of, policy, retained_devices, state, waits};
use super::tier::{Tier, TierNetworks, TierSettings};
use headwater_settings::Finding;

/// Checks the running program. `policies` has, for each member of the tier, the policy that its settings give.
pub(super) fn check(
    tier: &Tier,
    networks: &TierNetworks,
    facts: &Facts,
    policies: &[Option<PolicyId>],
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let page = program(tier, facts).map_err(|finding| findings.push(finding)).ok();
    if let Some(page) = &page {
        findings.extend(readiness(tier, page));
        findings.extend(links(page));
        findings.extend(frames(tier, page));
        findings.extend(refused_trigger(page));
    }
    let groups = groups(page.as_ref());
    for group in groups {
        findings.extend(state(group));
        findings.extend(policy(tier, group, policies));
    }
    for (index, member) in tier.members.iter().enumerate() {
        let own = groups.iter().find(|group| is_of(member, group));
        match own {
            // The finding about the broker suffices: without a broker a leader knows no device.
            Some(group) if group.broker().is_some_and(|broker| !broker.connected) => {}
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

const RUNNING: &str = "running";

/// The page of the program of these settings; otherwise the finding that the program does not run, hangs, or is another program.
fn program(tier: &Tier, facts: &Facts) -> Result<Page, Finding> {
    let (program, file) = (tier.kind.program(), tier.file.display());
    let fail = |found: String, advice: &str| Finding::fail(RUNNING, found, advice);
    let Some((address, status)) = &facts.admin else {
        let port = tier.kind.admin_port();
        let advice =
            format!("set `admin.listen` to a port of this program alone, such as \"127.0.0.1:{port}\"");
        let found = "unknown: the settings name no admin port, or port 0";
        return Err(Finding::warn(RUNNING, found, advice));
    };
    let answer = status.as_ref().map_err(|reason| {
        let start = format!("start it: {program} --config {file}");
        let advice = match is_silent(reason) {
            true => format!("it runs and does not answer: look at its log, end it, then {start}"),
            false => format!(
                "{start}; if it runs, compare `admin.listen` with its arguments and environment, and look into its log"
            ),
        };
        fail(format!("{program} does not answer at {address}: {reason}"), &advice)
    })?;
    let page: AnyPage = match serde_json::from_slice(&answer.body) {
        Ok(page) if answer.status == 200 => page,
        Ok(_) | Err(_) => {
            let found = format!("{address}/status answers {} with no status of a tier", answer.status);
            return Err(fail(found, "correct `admin.listen`: another program may listen there"));
        }
    };
    if page.program != program {
        let found = format!("{address} is the admin port of {}, not of {program}", clipped(&page.program));
        return Err(fail(found, "give each program an `admin.listen` of its own"));
    }
    let version = clipped(&page.version);
    let page = read_own(tier.kind, page).map_err(|reason| {
        let found = format!("{program} {version} at {address}: its /status has another form: {reason}");
        fail(found, "install one version on all tiers")
    })?;
    match other_names(tier, &page) {
        Some(found) => Err(fail(
            format!("another {program} answers at {address}: {found}"),
            "give each program an `admin.listen` of its own, or start this one with these settings",
        )),
        None => Ok(page),
    }
}

/// The finding about the readiness of the program, and one if its version is not the doctor's.
fn readiness(tier: &Tier, page: &Page) -> Vec<Finding> {
    let (program, version, own) = (tier.kind.program(), clipped(&page.version), env!("CARGO_PKG_VERSION"));
    let found = format!("{program} {version}, up for {} s", page.uptime_s);
    let mut findings = Vec::new();
    if page.ready {
        findings.push(Finding::ok(RUNNING, format!("{found}, ready")));
    } else {
        let reason = page.unready_reason.as_deref().map_or_else(|| "no reason is given".into(), clipped);
        let is_refused = matches!(&page.own, OwnStatus::Device(own) if own.leader.refusal.is_some());
        let advice = match is_refused {
            true => "compare `id`, `slot` and `bundle` with the aggregator's `devices` and its network",
            false => "the findings above and the log say more",
        };
        findings.push(Finding::fail(RUNNING, format!("{found}: not ready: {reason}"), advice));
    }
    if version != own {
        let found = format!("{program} has version {version}, this doctor {own}");
        findings.push(Finding::warn("version", found, "install one version on all tiers"));
    }
    findings
}

/// Compares the names in the settings with the names on the page. `None` if they agree, for an aggregator in at least one group, or if
/// the page has none.
fn other_names(tier: &Tier, page: &Page) -> Option<String> {
    let differs = |expected: String, found: String| {
        (expected != found).then(|| format!("expected {expected}, found {found}"))
    };
    match (&tier.settings, &page.own) {
        (TierSettings::Device(settings), OwnStatus::Device(own)) => differs(
            format!("device {} of {}/{}", settings.id, settings.site, settings.group),
            format!("device {} of {}/{}", own.device, own.site, own.group),
        ),
        (TierSettings::Aggregator(_), OwnStatus::Aggregator(own)) => {
            let groups = &own.groups;
            if groups.is_empty()
                || tier.members.iter().any(|own| groups.iter().any(|group| is_of(own, group)))
            {
                return None;
            }
            let own = tier.members.iter().map(|own| format!("{}/{}", own.site, own.group));
            let found = groups.iter().map(|group| format!("{}/{}", group.site, group.group));
            let named = |names: Vec<String>| format!("groups {}", names.join(", "));
            differs(named(own.collect()), named(found.collect()))
        }
        (TierSettings::Cloud(settings), OwnStatus::Cloud(own)) => {
            let found = clipped(&own.models.first()?.name);
            differs(format!("model {}", settings.service.model.name), format!("model {found}"))
        }
        (TierSettings::Device(_) | TierSettings::Aggregator(_) | TierSettings::Cloud(_), _) => None,
    }
}

/// Periods of a device's clock after which a finding names a camera that has had no frame.
const PERIODS_WITHOUT_FRAME: f64 = 3.0;

/// Seconds after which a finding names a camera that has had no frame, if the device captures without a period.
const S_WITHOUT_FRAME: f64 = 10.0;

/// The finding for a device that has had no frame, or whose camera is frozen, dark or covered; otherwise `None`.
fn frames(tier: &Tier, page: &Page) -> Option<Finding> {
    let (TierSettings::Device(settings), OwnStatus::Device(own)) = (&tier.settings, &page.own) else {
        return None;
    };
    if let Some(reason) = &own.source.frozen {
        let found = format!("{} gives no answers: {}", settings.id, clipped(reason));
        return Some(Finding::fail("frames", found, ADVICE_FROZEN));
    }
    // The frames of an archive are not counted.
    if settings.source.kind == SourceWord::Archive || own.source.frames > 0 {
        return None;
    }
    let up_s = page.uptime_s as f64;
    let faults = crate::named(own.source.faults.iter().map(|(name, count)| (clipped(name), count)));
    let by_clock = settings.period_ms.filter(|_| settings.capture == CaptureWord::Clock);
    let limit_s = by_clock.map_or(S_WITHOUT_FRAME, |period| {
        PERIODS_WITHOUT_FRAME * f64::from(u32::try_from(period).unwrap_or(u32::MAX)) / 1000.0
    });
    // A device that captures by triggers and was never asked for a sample has taken no frame.
    let is_asked =
        settings.capture != CaptureWord::Trigger || !faults.is_empty() || own.captures.captured > 0;
    (is_asked && up_s > limit_s).then(|| {
        let named = if faults.is_empty() { String::new() } else { format!(" ({faults})") };
        let found = format!("{} has had no frame in {up_s:.0} s{named}", settings.id);
        let advice = "look at the camera and at section `[source]`: its path or address (docs/sources.md); the device's log names the fault";
        // Without a fault this is a warning only: a watched folder may stay empty for long.
        if faults.is_empty() {
            Finding::warn("frames", found, advice)
        } else {
            Finding::fail("frames", found, advice)
        }
    })
}

/// The finding for a device that refused the latest trigger; otherwise `None`.
fn refused_trigger(page: &Page) -> Option<Finding> {
    let OwnStatus::Device(own) = &page.own else { return None };
    let reason = own.captures.refused_trigger.as_ref()?;
    let found = format!("{} does not answer {}", own.device, clipped(reason));
    Some(Finding::warn("triggers", found, "go on from the newest sample; the reason says what else helps"))
}

fn links(page: &Page) -> Vec<Finding> {
    let mut findings = Vec::new();
    let groups = groups(Some(page));
    // A group that failed has closed its connections itself.
    let running = groups.iter().filter(|group| group.state != Some(GroupState::Failed));
    let of_device = match &page.own {
        OwnStatus::Device(own) => Some(&own.broker.link),
        OwnStatus::Aggregator(_) | OwnStatus::Cloud(_) => None,
    };
    if let Some(broker) =
        running.filter_map(GroupStatus::broker).chain(of_device).find(|broker| !broker.connected)
    {
        let reason = because(broker.reason.as_ref());
        let found = format!("the running program has no connection to the broker{reason}");
        findings.push(Finding::fail("broker link", found, "the finding `broker` says what to do"));
    }
    if let OwnStatus::Aggregator(AggregatorStatus { cloud: Some(cloud), .. }) = &page.own
        && matches!(cloud.state.as_str(), "failing" | "breaker_open")
    {
        let found = format!("the running program says of the cloud: {}", cloud.state.replace('_', " "));
        let advice =
            "the findings `cloud` and `cloud model` say what to do; the program asks again by itself";
        findings.push(Finding::fail("cloud link", found, advice));
    }
    let others = groups.iter().filter(|group| group.leader().is_some_and(|own| own.cloud.other_network));
    findings.extend(others.map(|GroupStatus { group, .. }| {
        let found =
            format!("group {group}: the cloud serves another network, or has no model of the group's");
        Finding::fail("cloud link", found, SAME_BUNDLE)
    }));
    let certificate = match &page.own {
        OwnStatus::Device(own) => own.certificate.as_ref(),
        OwnStatus::Cloud(own) => own.certificate.as_ref(),
        OwnStatus::Aggregator(_) => None,
    };
    if certificate.is_some_and(|certificate| certificate.reload_failed) {
        let found = "the running program cannot use the newer files of its identity; it goes on with the earlier ones";
        findings.push(Finding::fail(
            "certificate",
            found,
            "the files of `[tls]` must fit each other; the log names the mistake",
        ));
    }
    if let OwnStatus::Cloud(own) = &page.own {
        for model in own.models.iter().filter(|model| model.state == "failed") {
            let found = format!("model {}: failed", clipped(&model.name));
            findings.push(Finding::fail("model", found, "restart the cloud service; its log says why"));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use headwater_protocol::status::StatusPage;
    use serde_json::{Value, json};

    use super::super::tier::TierKind;
    use super::*;
    use headwater_settings::Level;

    /// A tier of a kind, read from these settings.
    fn tier(kind: TierKind, settings: &str) -> Tier {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), settings).unwrap();
        Tier::read(kind, file.path()).unwrap_or_else(|mistakes| panic!("{mistakes:?}")).remove(0)
    }

    const DEVICE: &str = "site = \"hall\"\ngroup = \"gate\"\nid = \"cam-0\"\nslot = 0\nbundle = \"a.hwb\"\n\
                          capture = \"clock\"\nperiod_ms = 2000\n[source]\nkind = \"http\"\n[source.http]\nurl = \"http://cam.local/snap\"\n";

    /// The page of a running program, with these changes to the fields of its tier.
    fn page(kind: TierKind, changes: &[(&str, Value)]) -> Page {
        let common = json!({
            "schema": 1, "program": kind.program(), "version": "0.1.0", "time": "2026-01-01T00:00:00.000Z", "uptime_s": 9, "live": true,
            "ready": true, "unready_reason": null,
        });
        let own = match kind {
            TierKind::Device => json!({
                "device": "cam-0", "site": "hall", "group": "gate", "slot": 0, "boot": 1, "network": "0".repeat(64),
                "broker": { "address": "mqtt://localhost", "connected": true, "reason": null, "connections": 1 },
                "leader": { "last_notice_s": null, "refusal": null },
                "source": { "frames": 0, "faults": { "absent": 4 }, "broken_frames": 0 },
                "captures": { "captured": 0, "missed": 0, "shed": 0, "clock_steps": 0, "last_capture_s": null },
                "spool": { "samples": 0, "bytes": 0, "in_memory": 0, "given_up": {}, "lost": 0 },
                "certificate": null,
            }),
            TierKind::Aggregator => json!({ "cloud": null, "groups": [] }),
            TierKind::Cloud => json!({
                "models": [], "certificate": null,
                "requests": { "answered": 0, "refused": {}, "skipped_deadline": 0, "skipped_caller_gone": 0 },
            }),
        };
        let mut all = json!({});
        let fields = all.as_object_mut().unwrap();
        for part in [common, own] {
            fields.extend(part.as_object().unwrap().clone());
        }
        fields.extend(changes.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        read_own(kind, serde_json::from_value(all).unwrap()).unwrap()
    }

    fn group(name: &str) -> Value {
        json!({ "site": "hall", "group": name, "role": "leader", "edge": null, "networks": [] })
    }

    fn model(name: &str, state: &str) -> Value {
        json!({
            "name": name, "network": "0".repeat(64), "generation": "current", "engine": "tract", "state": state,
            "waiting_requests": 0, "max_requests": 1, "samples": null,
        })
    }

    #[test]
    fn a_program_of_the_same_kind_with_other_names_is_another_one() {
        let device = tier(TierKind::Device, DEVICE);
        let found = other_names(&device, &page(TierKind::Device, &[("device", json!("cam-1"))])).unwrap();
        assert_eq!(found, "expected device cam-0 of hall/gate, found device cam-1 of hall/gate");
        assert_eq!(other_names(&device, &page(TierKind::Device, &[])), None);
        let leader = tier(TierKind::Aggregator, "site = \"hall\"\ngroup = \"gate\"\nbundle = \"a.hwb\"\n");
        let page_of = |name: &str| page(TierKind::Aggregator, &[("groups", json!([group(name)]))]);
        let found = other_names(&leader, &page_of("belt")).unwrap();
        assert_eq!(found, "expected groups hall/gate, found groups hall/belt");
        assert_eq!(other_names(&leader, &page_of("gate")), None);
        let cloud = tier(TierKind::Cloud, "bundle = \"a.hwb\"\n[model]\nname = \"own\"\n");
        let other = page(TierKind::Cloud, &[("models", json!([model("other", "ready")]))]);
        assert_eq!(other_names(&cloud, &other).unwrap(), "expected model own, found model other");
    }

    #[test]
    fn a_camera_without_a_frame_is_named_after_three_periods() {
        let device = tier(TierKind::Device, DEVICE);
        let page = |up: u64, frames: u64, faults: Value| {
            let source = json!({ "frames": frames, "faults": faults, "broken_frames": 0 });
            page(TierKind::Device, &[("uptime_s", json!(up)), ("source", source)])
        };
        let absent = || json!({ "absent": 4 });
        let found = frames(&device, &page(9, 0, absent())).unwrap();
        assert_eq!((found.level, found.check.as_str()), (Level::Fail, "frames"));
        assert!(found.found.contains("cam-0 has had no frame in 9 s (absent 4)"), "{}", found.found);
        assert_eq!(frames(&device, &page(5, 0, absent())), None, "it has just started");
        assert_eq!(frames(&device, &page(9, 1, absent())), None);
        let source = json!({ "frames": 100, "faults": {}, "broken_frames": 0, "frozen": "equal frames" });
        let found = frames(&device, &self::page(TierKind::Device, &[("source", source)])).unwrap();
        assert_eq!(
            (found.level, found.found.as_str()),
            (Level::Fail, "cam-0 gives no answers: equal frames")
        );
        let asked = tier(TierKind::Device, &DEVICE.replace("capture = \"clock\"\nperiod_ms = 2000\n", ""));
        let archive = DEVICE.split("[source]").next().unwrap().to_owned() + "[source]\npath = \"f\"\n";
        let archive = tier(TierKind::Device, &archive);
        assert_eq!(frames(&archive, &page(9, 0, absent())), None, "it counts no frames");
        assert_eq!(frames(&asked, &page(100, 0, json!({}))), None, "nobody has triggered a sample");
    }

    #[test]
    fn links_that_do_not_stand_are_named() {
        let mut gate = group("gate");
        gate["broker"] = json!({ "connected": false, "reason": "refused" });
        gate["samples"] = json!({ "answered": 0, "gone": 0, "section_failures": 0 });
        let cloud = json!({ "url": "http://localhost", "state": "breaker_open" });
        let failing = page(TierKind::Aggregator, &[("cloud", cloud), ("groups", json!([gate]))]);
        let found: Vec<_> = links(&failing).into_iter().map(|finding| finding.found).collect();
        assert_eq!(
            found,
            [
                "the running program has no connection to the broker: refused",
                "the running program says of the cloud: breaker open"
            ]
        );
        let models = json!([model("a", "failed"), model("b", "ready")]);
        let certificate = json!({ "expires_unix_s": 1, "reload_failed": true });
        let faults = page(TierKind::Cloud, &[("models", models), ("certificate", certificate)]);
        let checks: Vec<_> = links(&faults).into_iter().map(|finding| finding.check).collect();
        assert_eq!(checks, ["certificate", "model"]);
    }

    #[test]
    fn a_page_of_another_form_is_no_page() {
        for (own, named) in [(json!({}), "missing field"), (json!({ "groups": 3 }), "invalid type")] {
            let own = own.as_object().unwrap().clone();
            let any: AnyPage = StatusPage { own, ..any_page() };
            let reason = read_own(TierKind::Aggregator, any).unwrap_err();
            assert!(reason.contains(named), "{reason}");
        }
    }

    fn any_page() -> AnyPage {
        serde_json::from_value(json!({
            "schema": 1, "program": "p", "version": "v", "time": "2026-01-01T00:00:00.000Z", "uptime_s": 0, "live": true, "ready": true,
            "unready_reason": null,
        }))
        .unwrap()
    }
}
