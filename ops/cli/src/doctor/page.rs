//! The page `/status` of a running program. Texts from the page are shortened before a finding repeats them.

use headwater_protocol::status::{AggregatorStatus, CloudStatus, DeviceStatus, GroupStatus, StatusPage};
use serde_json::{Map, Value};

use super::tier::TierKind;

/// Longest text of a page that a finding repeats, in characters.
const MAX_CHARS: usize = 300;

/// A page of which only the fields that all tiers share are read; the other fields are still JSON.
pub(super) type AnyPage = StatusPage<Map<String, Value>>;

/// The part of a page that differs from tier to tier.
#[derive(Debug)]
pub(super) enum OwnStatus {
    Device(Box<DeviceStatus>),
    Aggregator(AggregatorStatus),
    Cloud(CloudStatus),
}

pub(super) type Page = StatusPage<OwnStatus>;

/// Reads the part of a page that belongs to a tier of this kind; an error says why it has another form.
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

/// Groups of an aggregator's page; empty for every other page.
pub(super) fn groups(page: Option<&Page>) -> &[GroupStatus] {
    match page.map(|page| &page.own) {
        Some(OwnStatus::Aggregator(own)) => &own.groups,
        Some(OwnStatus::Device(_) | OwnStatus::Cloud(_)) | None => &[],
    }
}

/// A reason as a text after a colon; empty without a reason.
pub(super) fn because(reason: Option<&String>) -> String {
    reason.map(|reason| format!(": {}", clipped(reason))).unwrap_or_default()
}

/// The first [`MAX_CHARS`] characters of a text, without control characters.
pub(super) fn clipped(text: &str) -> String {
    headwater_protocol::clipped(text, MAX_CHARS)
}
