//! Log lines on stderr.

use std::io::IsTerminal;

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

/// Filter that the caller's extends. The embedded broker logs normal events as errors: probes, clients that left.
const BASE_FILTER: &str = "rumqttd=off";

/// Starts logging for this process; called once, by a `main.rs`.
///
/// `filter` is a level or a list such as `info,headwater_link=debug`. The environment variable `RUST_LOG`, where set, replaces it.
///
/// # Errors
/// [`FilterError`] for a filter that cannot be read.
pub fn init_logs(filter: &str, format: LogFormat) -> Result<(), FilterError> {
    let environment = std::env::var(EnvFilter::DEFAULT_ENV).ok().filter(|value| !value.is_empty());
    let filter = env_filter(environment.as_deref().unwrap_or(filter))?;
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => logs.with_ansi(std::io::stderr().is_terminal()).init(),
        LogFormat::Json => logs.json().flatten_event(true).init(),
    }
    Ok(())
}

fn env_filter(filter: &str) -> Result<EnvFilter, FilterError> {
    let text = format!("{BASE_FILTER},{filter}");
    EnvFilter::try_new(text).map_err(|error| FilterError { found: filter.into(), reason: error.to_string() })
}

/// A log filter that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "log filter: expected a level, or a list such as info,headwater_link=debug, found {found:?}: {reason}"
)]
pub struct FilterError {
    found: String,
    reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_may_name_levels_and_targets() {
        for filter in ["info", "warn,headwater_link=debug", "off", "rumqttd=info"] {
            assert!(env_filter(filter).is_ok(), "{filter}");
        }
        let error = env_filter("info,headwater_link=loud").expect_err("no such level");
        assert!(error.to_string().contains("headwater_link=loud"), "{error}");
    }

    #[test]
    fn the_filter_of_the_caller_wins_over_the_base_filter() {
        let filter = env_filter("info,rumqttd=warn").expect("a filter").to_string();
        assert!(filter.contains("rumqttd=warn") && !filter.contains("rumqttd=off"), "{filter}");
    }
}
