//! Findings about this machine: its clock, compared with other known clocks, its processor, and the user who runs the doctor.

use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::time::SystemTime;

use headwater_end_device::CaptureWord;
use headwater_inference::engine::PackedEngine;
use headwater_protocol::{DeviceState, LeaderClaim, Topic, Topics};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::facts::Facts;
use super::http::Answer;
use super::tier::{Tier, TierSettings};
use headwater_settings::Finding;

const CLOCK: &str = "clock";

/// First second of 2024. A clock that shows an earlier time was never set, or lost its time.
const EARLIEST_UNIX_S: i64 = 1_704_067_200;

/// Difference above which a clock gets a warning although nothing breaks, ms.
const NOTABLE_MS: f64 = 2_000.0;

/// Another clock, and the smallest difference from this machine's clock that the precision of the other clock allows.
struct Reference {
    name: String,
    /// This machine's clock minus the other clock, ms; 0 if they may be equal.
    ahead_ms: f64,
    /// True when the other clock is certainly this machine's own clock.
    is_this_machine: bool,
}

pub(super) fn check(tiers: &[(&Tier, &Facts)]) -> Vec<Finding> {
    let now = OffsetDateTime::from(SystemTime::now());
    let mut findings = clock(now, &references(tiers), allowed_ms(tiers));
    findings.push(Finding::ok(
        "processor",
        format!("packed sections run with {} instructions", PackedEngine.path()),
    ));
    // `/proc/self` belongs to the user that this process runs as.
    if std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0) {
        findings.push(Finding::ok(
            "user",
            "root, who may write and read everything; run the doctor as the services' user to see what that user may",
        ));
    }
    findings
}

/// Smallest clock difference at which samples are refused, ms: a quarter of a device's period, or the difference up to which a leader
/// accepts ids. `None` if no tier has such a limit.
fn allowed_ms(tiers: &[(&Tier, &Facts)]) -> Option<f64> {
    let limits = tiers.iter().flat_map(|(tier, _)| match &tier.settings {
        TierSettings::Device(settings) => {
            let period = settings.period_ms.filter(|_| settings.capture == CaptureWord::Clock);
            period.map(|period| period as f64 / 4.0).into_iter().collect::<Vec<_>>()
        }
        TierSettings::Aggregator(loaded) => {
            loaded.groups.all.iter().map(|group| f64::from(group.max_clock_difference_ms)).collect()
        }
        TierSettings::Cloud(_) => Vec::new(),
    });
    limits.reduce(f64::min)
}

fn clock(now: OffsetDateTime, references: &[Reference], allowed_ms: Option<f64>) -> Vec<Finding> {
    let advice = "set the clock, and keep it set (NTP: systemd-timesyncd or chrony)";
    let shown = now.replace_nanosecond(0).unwrap_or(now);
    let shown = shown.format(&Rfc3339).unwrap_or_default();
    if now.unix_timestamp() < EARLIEST_UNIX_S {
        return vec![Finding::fail(CLOCK, format!("it says {shown}, which has passed long ago"), advice)];
    }
    let off = references.iter().max_by(|a, b| a.ahead_ms.abs().total_cmp(&b.ahead_ms.abs()));
    let Some(Reference { name, ahead_ms, .. }) = off else {
        return vec![Finding::ok(
            CLOCK,
            format!("{shown}; compared with nothing: no other clock is known here"),
        )];
    };
    let side = if *ahead_ms > 0.0 { "ahead of" } else { "behind" };
    let found = format!("{:.1} s {side} {name}", ahead_ms.abs() / 1000.0);
    let is_over = allowed_ms.is_some_and(|allowed| ahead_ms.abs() > allowed);
    vec![if is_over {
        let allowed = allowed_ms.unwrap_or_default() / 1000.0;
        let found = format!("{found}; samples are refused from {allowed} s on");
        Finding::fail(CLOCK, found, advice)
    } else if ahead_ms.abs() > NOTABLE_MS {
        Finding::warn(CLOCK, found, advice)
    } else {
        let names = |is_own: bool| {
            let names = references.iter().filter(|reference| reference.is_this_machine == is_own);
            names.map(|reference| reference.name.as_str()).collect::<Vec<_>>().join(", ")
        };
        let others = names(false);
        if others.is_empty() {
            let own = names(true);
            Finding::ok(
                CLOCK,
                format!("{shown}; compared with {own} alone, on this machine: no other clock is known here"),
            )
        } else {
            Finding::ok(CLOCK, format!("{shown}; as {others}, as far as times in whole seconds show"))
        }
    }]
}

/// Clocks of clouds and leaders, which may be on other machines. If all of these are on this machine, the times at which settings files
/// were written count too: a clock that is behind such a time was set back, or lost its time.
fn references(tiers: &[(&Tier, &Facts)]) -> Vec<Reference> {
    let mut all = Vec::new();
    for (tier, facts) in tiers {
        if let Some(cloud) = &facts.cloud
            && let Ok(answer) = &cloud.ready
            && let Some(date) = answer.date
        {
            all.push(Reference {
                name: format!("the cloud at {}", cloud.url.host()),
                // The header has whole seconds.
                ahead_ms: ahead_ms(answer, date, 1_000.0),
                is_this_machine: is_this_machine(cloud.url.host()),
            });
        }
        for (member, probe) in tier.members.iter().zip(&facts.brokers) {
            let Some(Ok(probe)) = probe else { continue };
            let topic = Topics::new(&member.site, &member.group).name(&Topic::Leader);
            let claims = probe.retained.iter().filter(|message| message.topic == topic);
            let claims = claims.filter_map(|message| LeaderClaim::read(&message.payload).ok());
            let up = claims.filter(|claim| claim.state == DeviceState::Up);
            let since = up.filter_map(|claim| OffsetDateTime::parse(&claim.since, &Rfc3339).ok());
            // The leader made the claim before now. If the time of the claim is in the future of this clock, this clock is behind the leader's.
            let name = format!("the leader of {}, which leads since then", member.group);
            all.extend(since.filter_map(|since| behind(&name, since)));
        }
    }
    // A program on this machine has the same clock, and so cannot show that the clock is wrong.
    if all.iter().all(|reference| reference.is_this_machine) {
        let written = tiers.iter().filter_map(|(tier, _)| {
            let written = std::fs::metadata(&tier.file).and_then(|file| file.modified()).ok()?;
            behind(&format!("the time at which {} was written", tier.file.display()), written.into())
        });
        all.extend(written);
    }
    all
}

/// Reference to a clock that wrote `time`, if `time` is in the future of this machine's clock; `None` if `time` has passed.
fn behind(name: &str, time: OffsetDateTime) -> Option<Reference> {
    let ahead_ms = (OffsetDateTime::from(SystemTime::now()) - time).as_seconds_f64() * 1000.0;
    (ahead_ms < 0.0).then(|| Reference { name: name.to_owned(), ahead_ms, is_this_machine: false })
}

/// Returns true for the name `localhost` and for loopback addresses.
fn is_this_machine(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// This machine's clock minus the clock of the server that answered, ms. The server wrote `time` between the request and its receipt here;
/// the server's clock was up to `precision_ms` later than `time`.
fn ahead_ms(answer: &Answer, time: OffsetDateTime, precision_ms: f64) -> f64 {
    let received = (answer.received - time).as_seconds_f64() * 1000.0;
    // Of all possible differences the one nearest to 0 is taken.
    0.0_f64.clamp(received - answer.took.as_secs_f64() * 1000.0 - precision_ms, received)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use headwater_settings::Level;

    fn at(unix_s: i64) -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp(unix_s).unwrap()
    }

    #[test]
    fn a_header_of_whole_seconds_shows_no_difference_below_a_second() {
        let date = at(1_800_000_000);
        let ahead = |ms: i64| {
            let answer = Answer {
                status: 200,
                body: hyper::body::Bytes::new(),
                certificate: None,
                date: Some(date),
                received: date + time::Duration::milliseconds(ms),
                took: Duration::from_millis(10),
            };
            ahead_ms(&answer, date, 1_000.0)
        };
        for ms in [0, 500, 1000] {
            assert!(ahead(ms).abs() < 1e-6, "{ms}");
        }
        assert!((ahead(5010) - 4000.0).abs() < 1e-3, "{}", ahead(5010));
        assert!((ahead(-3000) + 3000.0).abs() < 1e-3, "{}", ahead(-3000));
    }

    #[test]
    fn a_clock_is_judged_by_what_its_difference_stops() {
        let level = |ahead_ms: f64, allowed: Option<f64>| {
            let references = [Reference { name: "the cloud".into(), ahead_ms, is_this_machine: false }];
            clock(at(1_800_000_000), &references, allowed)[0].level
        };
        assert_eq!(level(0.0, Some(25.0)), Level::Ok);
        assert_eq!(level(-30.0, Some(25.0)), Level::Fail);
        assert_eq!(level(5_000.0, Some(600_000.0)), Level::Warn);
        assert_eq!(level(-700_000.0, Some(600_000.0)), Level::Fail);
        assert_eq!(level(1_000.0, None), Level::Ok);
        assert_eq!(clock(at(1_000), &[], None)[0].level, Level::Fail);
        assert_eq!(clock(at(1_800_000_000), &[], None)[0].level, Level::Ok);
    }

    #[test]
    fn a_clock_that_was_compared_with_nothing_does_not_claim_to_be_right() {
        let found = |is_this_machine: bool| {
            let references = [Reference { name: "the cloud".into(), ahead_ms: 0.0, is_this_machine }];
            clock(at(1_800_000_000), &references, None)[0].found.clone()
        };
        assert!(found(false).contains("as the cloud"), "{}", found(false));
        assert!(found(true).contains("no other clock is known"), "{}", found(true));
        assert!(clock(at(1_800_000_000), &[], None)[0].found.contains("compared with nothing"));
        assert!(is_this_machine("127.0.0.1") && is_this_machine("localhost") && !is_this_machine("10.0.0.5"));
    }
}
