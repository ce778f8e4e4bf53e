//! Reading a page `/status` of any version: what a page does not have is absent, and texts are short.

use serde_json::Value;

/// Longest text of a page that a finding repeats, in characters.
const MAX_CHARS: usize = 300;

/// A list of a page; empty where it has none.
pub(super) fn list<'a>(page: &'a Value, key: &str) -> Vec<&'a Value> {
    page[key].as_array().map(|list| list.iter().collect()).unwrap_or_default()
}

/// A text of a page, clipped.
pub(super) fn text(page: &Value, key: &str) -> Option<String> {
    page[key].as_str().map(clipped)
}

/// The first characters of a text, without control characters.
pub(super) fn clipped(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MAX_CHARS).collect()
}
