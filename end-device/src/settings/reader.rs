//! Keys of a configuration, each taken once, with every mistake.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use headwater_protocol::Origin;
use toml::Value;

/// The keys that were given, and what was found wrong with them.
pub(super) struct Reader {
    pub(super) table: toml::Table,
    pub(super) origins: BTreeMap<String, Origin>,
    pub(super) mistakes: Vec<String>,
}

impl Reader {
    /// Where a key's value came from.
    pub(super) fn origin(&self, key: &str) -> Origin {
        self.origins.get(key).copied().unwrap_or(Origin::Default)
    }

    pub(super) fn wrong(&mut self, key: &str, reason: impl fmt::Display) {
        self.mistakes.push(format!("{key}: {reason}"));
    }

    pub(super) fn required<T, E: fmt::Display>(
        &mut self,
        key: &str,
        parse: impl FnOnce(String) -> Result<T, E>,
    ) -> Option<T> {
        if !self.table.contains_key(key) {
            self.mistakes.push(format!("{key}: missing"));
        }
        self.optional(key, parse)
    }

    pub(super) fn optional<T, E: fmt::Display>(
        &mut self,
        key: &str,
        parse: impl FnOnce(String) -> Result<T, E>,
    ) -> Option<T> {
        let parsed = match self.table.remove(key)? {
            Value::String(text) => parse(text).map_err(|error| error.to_string()),
            // A flag such as `--id 7` reads as a number.
            Value::Integer(number) => parse(number.to_string()).map_err(|error| error.to_string()),
            other => Err(format!("expected text, found {}", other.type_str())),
        };
        parsed.map_err(|reason| self.mistakes.push(format!("{key}: {reason}"))).ok()
    }

    pub(super) fn number(&mut self, key: &str, range: RangeInclusive<u64>) -> Option<u64> {
        let found = self.table.remove(key)?;
        let number = found.as_integer().and_then(|number| u64::try_from(number).ok());
        let number = number.filter(|number| range.contains(number));
        if number.is_none() {
            self.mistakes.push(format!(
                "{key}: expected {} to {}, found {found}",
                range.start(),
                range.end()
            ));
        }
        number
    }

    pub(super) fn has_mistake(&self, key: &str) -> bool {
        self.mistakes
            .iter()
            .any(|mistake| mistake.strip_prefix(key).is_some_and(|rest| rest.starts_with(':')))
    }
}

pub(super) fn as_value(text: &str) -> Value {
    text.parse().map_or_else(|_| Value::String(text.into()), Value::Integer)
}

pub(super) fn path(text: String) -> Result<PathBuf, &'static str> {
    if text.is_empty() { Err("expected a path, found nothing") } else { Ok(PathBuf::from(text)) }
}
