//! Log lines on stderr.

use std::io::IsTerminal;

use headwater_protocol::clipped;
use serde::Deserialize;
use thiserror::Error;
use tracing_subscriber::EnvFilter;

/// Form of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// One line of text for people; coloured on a terminal.
    Text,
    /// One JSON object a line for programs.
    Json,
}

/// Filter to which the caller's filter is added. It silences the MQTT library's warnings of refused messages, which name only a number:
/// the link reports the same messages with their topics.
const BASE_FILTER: &str = "rumqttc::state=error";

/// Starts logging for this process; called once, by a `main.rs`.
///
/// `filter` is a level or a list such as `info,headwater_link=debug`. If the environment variable `RUST_LOG` is set and not empty,
/// its value replaces `filter`.
///
/// # Errors
/// [`FilterError`] for a filter that cannot be read.
pub fn init_logs(filter: &str, format: LogFormat) -> Result<(), FilterError> {
    let environment = std::env::var(EnvFilter::DEFAULT_ENV).ok().filter(|value| !value.is_empty());
    let filter = env_filter(environment.as_deref().unwrap_or(filter))?;
    // A line that cannot be written is lost. By default the library would report it with `eprintln!`, which panics on a closed pipe.
    let logs = tracing_subscriber::fmt().log_internal_errors(false).with_env_filter(filter);
    let logs = logs.with_writer(std::io::stderr);
    match format {
        LogFormat::Text => logs.with_ansi(std::io::stderr().is_terminal()).init(),
        LogFormat::Json => logs.json().flatten_event(true).init(),
    }
    Ok(())
}

fn env_filter(filter: &str) -> Result<EnvFilter, FilterError> {
    check_filter(filter)?;
    let text = format!("{BASE_FILTER},{filter}");
    EnvFilter::try_new(text).map_err(|error| {
        let (found, reason) = (clipped(filter, MAX_FOUND), clipped(&error.to_string(), MAX_FOUND));
        FilterError(format!(
            "expected a level, or a list such as info,headwater_link=debug, found {found:?}: {reason}"
        ))
    })
}

/// Most characters of a filter that a message shows.
const MAX_FOUND: usize = 80;

/// Levels of a filter.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// First part of the targets of our events, with commas between: names of our crates and programs, with `_` in place of `-`.
const TARGETS: &str = "\
    headwater, headwater_aggregator, headwater_calibration, headwater_cloud, headwater_cloud_service, \
    headwater_device, headwater_edge_aggregator, headwater_end_device, headwater_experiments, headwater_group, \
    headwater_identity, headwater_inference, headwater_kernels, headwater_map_coder, headwater_link, \
    headwater_protocol, headwater_samples, headwater_settings, headwater_spec, headwater_telemetry, headwater_tests, \
    headwater_toml_file, headwater_train, headwater_training, headwater_transport";

/// Checks a log filter. The library takes a misspelt level for the name of a target, and then logs nearly nothing.
///
/// # Errors
/// [`FilterError`] for a part without a level, and for an unknown target of ours.
pub fn check_filter(filter: &str) -> Result<(), FilterError> {
    let parts = || filter.split(',').map(str::trim).filter(|part| !part.is_empty());
    if parts().next().is_none() {
        return Err(no_level(filter));
    }
    parts().try_for_each(check_part)
}

/// Checks one part: a level, or `target=level`. A target may name a span and its fields, in brackets.
fn check_part(part: &str) -> Result<(), FilterError> {
    // A part with brackets may be one half of a target with several fields, such as `target[span{a`; the library checks such targets.
    if part.contains(['[', ']', '{', '}', '"']) {
        return Ok(());
    }
    let (target, level) = part.rsplit_once('=').unwrap_or(("", part));
    if !LEVELS.contains(&level.trim().to_ascii_lowercase().as_str()) {
        return Err(no_level(part));
    }
    let name = target.trim().split("::").next().unwrap_or_default();
    if name.starts_with("headwater") && !is_target(name) {
        let found = clipped(name, MAX_FOUND);
        return Err(FilterError(format!("expected one of our targets ({TARGETS}), found {found:?}")));
    }
    Ok(())
}

/// Returns true if a name is the first part of one of our targets.
fn is_target(name: &str) -> bool {
    TARGETS.split(", ").any(|target| target == name)
}

/// Refusal of a part of a filter that has no known level.
fn no_level(part: &str) -> FilterError {
    let (levels, found) = (LEVELS.join(", "), clipped(part, MAX_FOUND));
    FilterError(format!(
        "expected a level ({levels}) or a list such as info,headwater_link=debug, found {found:?}"
    ))
}

/// A log filter that cannot be used: expected and found.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct FilterError(String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_may_name_levels_and_targets() {
        for filter in [
            "info",
            "INFO",
            "off",
            "warn,headwater_link=debug",
            "headwater=trace",
            "headwater_edge_aggregator::registry=debug",
            "rumqttc=info",
            "info,hyper::proto=debug",
            "headwater_link[span{field=1}]=debug",
        ] {
            assert!(env_filter(filter).is_ok(), "{filter}");
        }
    }

    #[test]
    fn a_filter_that_names_no_level_is_refused() {
        for (filter, found) in [
            ("ifno", "ifno"),
            ("info,headwater_link=loud", "headwater_link=loud"),
            ("headwater_link", "headwater_link"),
            ("info,debg", "debg"),
            ("", ""),
            (" , ", " , "),
        ] {
            let error = check_filter(filter).expect_err(filter).to_string();
            let ending = format!("or a list such as info,headwater_link=debug, found {found:?}");
            assert!(error.starts_with("expected a level (off, ") && error.ends_with(&ending), "{error}");
        }
        let error = env_filter("ifno").expect_err("no such level").to_string();
        assert!(error.contains("info, debug, trace") && error.ends_with("found \"ifno\""), "{error}");
        let long = env_filter(&"x".repeat(100_000)).expect_err("no such level").to_string();
        assert!(long.len() < 300, "{} bytes", long.len());
    }

    #[test]
    fn a_target_of_ours_that_does_not_exist_is_refused() {
        for target in ["headwater_lnk", "headwater_end_devices", "headwater-link"] {
            let error = check_filter(&format!("info,{target}::driver=debug")).expect_err(target).to_string();
            let ending = format!(", headwater_transport), found {target:?}");
            assert!(
                error.starts_with("expected one of our targets (headwater, ") && error.ends_with(&ending),
                "{error}"
            );
        }
    }

    #[test]
    fn every_crate_is_a_target() {
        let workspace = include_str!("../../../Cargo.toml");
        let members = workspace.split("\nmembers = [").nth(1).and_then(|rest| rest.split(']').next());
        let members = members.expect("a list of members").split('"').skip(1).step_by(2);
        // `build-features` has no code, and the package of `ops/cli` has the name of its program.
        for member in members.filter(|member| !["build-features", "ops/cli"].contains(member)) {
            let target = match member {
                "models/trainer" => "headwater_train".into(),
                _ => format!("headwater_{}", member.rsplit('/').next().unwrap_or(member).replace('-', "_")),
            };
            assert!(is_target(&target), "{target}");
        }
    }

    #[test]
    fn the_filter_of_the_caller_wins_over_the_base_filter() {
        let filter = env_filter("info,rumqttc::state=warn").expect("a filter").to_string();
        assert!(
            filter.contains("rumqttc::state=warn") && !filter.contains("rumqttc::state=error"),
            "{filter}"
        );
    }
}
