//! Reading a page `/status`. Texts that a finding repeats are short.

use headwater_protocol::status::{AggregatorStatus, CloudStatus, DeviceStatus, GroupStatus, StatusPage};
use serde_json::{Map, Value};

use super::tier::TierKind;

/// Longest text of a page that a finding repeats, in characters.
const MAX_CHARS: usize = 300;

/// A page whose own part is not read yet.
pub(super) type AnyPage = StatusPage<Map<String, Value>>;

/// Own part of a page.
#[derive(Debug)]
pub(super) enum OwnStatus {
    Device(Box<DeviceStatus>),
    Aggregator(AggregatorStatus),
    Cloud(CloudStatus),
}

/// A page that was read.
pub(super) type Page = StatusPage<OwnStatus>;

/// Reads the own part of a page; the reason where it has another form.
pub(super) fn read_own(kind: TierKind, page: AnyPage) -> Result<Page, String> {
    let StatusPage { schema, program, version, time, uptime_s, live, ready, unready_reason, own } = page;
    let own = Value::Object(own);
    let own = match kind {
        TierKind::Device => serde_json::from_value(own).map(|own| OwnStatus::Device(Box::new(own))),
        TierKind::Aggregator => serde_json::from_value(own).map(OwnStatus::Aggregator),
        TierKind::Cloud => serde_json::from_value(own).map(OwnStatus::Cloud),
    };
    let own = own.map_err(|error| clipped(&error.to_string()))?;
    Ok(Page { schema, program, version, time, uptime_s, live, ready, unready_reason, own })
}

/// Groups of a page; none but of an aggregator.
pub(super) fn groups(page: Option<&Page>) -> &[GroupStatus] {
    match page.map(|page| &page.own) {
        Some(OwnStatus::Aggregator(own)) => &own.groups,
        Some(OwnStatus::Device(_) | OwnStatus::Cloud(_)) | None => &[],
    }
}

/// A reason after a colon; nothing without one.
pub(super) fn because(reason: Option<&String>) -> String {
    reason.map(|reason| format!(": {}", clipped(reason))).unwrap_or_default()
}

/// The first characters of a text, without control characters.
pub(super) fn clipped(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MAX_CHARS).collect()
}
