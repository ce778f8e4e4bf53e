//! Changes of single keys of a policy file.

use headwater_protocol::Exit;
use headwater_toml_file::{Document, nearest};
use serde_json::Value;

use super::key::{PINNED, USE};
use super::values::PolicyValue;
use super::{Policy, PolicyChanges};

/// A change of one key of a policy file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyEdit {
    key: String,
    value: Option<String>,
}

impl PolicyEdit {
    /// Reads `KEY=VALUE`, or `KEY=` to take the key out of the file. A value that is not TOML is taken as a word without its quotes.
    ///
    /// # Errors
    /// The mistake in one line: an unknown key, or a value that the key cannot have.
    pub fn parse(argument: &str) -> Result<Self, String> {
        let Some((key, value)) = argument.split_once('=') else {
            return Err(format!("expected KEY=VALUE, such as window_ms=80, found {argument:?}"));
        };
        let (edit, text) = (Self::unset(key)?, value.trim());
        if text.is_empty() {
            return Ok(edit);
        }
        let is_value = Document::parse(&format!("value = {text}")).is_ok();
        edit.with_value(if is_value { text.to_owned() } else { Value::from(text).to_string() }, text)
    }

    /// A key with its value in JSON; null takes the key out of the file.
    ///
    /// # Errors
    /// As [`PolicyEdit::parse`].
    pub fn from_json(key: &str, value: Value) -> Result<Self, String> {
        let edit = Self::unset(key)?;
        if value.is_null() {
            return Ok(edit);
        }
        let text = PolicyValue(value).to_string();
        edit.with_value(text.clone(), &text)
    }

    /// A change that takes a key out of the file.
    ///
    /// # Errors
    /// An unknown key, with the known keys.
    pub fn unset(key: &str) -> Result<Self, String> {
        let key = key.trim().to_owned();
        let exit = key.rsplit_once('.').and_then(|(exit, _)| Exit::from_name(exit));
        let mut known = Policy::keys(Exit::FIRST.into_iter().chain(exit.filter(|exit| exit.index() > 0)));
        known.extend([USE, PINNED].map(str::to_owned));
        if !known.contains(&key) {
            let near = nearest(&key, known.iter().map(String::as_str));
            let hint = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
            let known = known.join(", ");
            return Err(format!("{key}: expected a key of a policy ({known}), found another{hint}"));
        }
        Ok(Self { key, value: None })
    }

    /// Checks the value alone, before the whole file is checked, so that the mistake names the argument as it was given.
    fn with_value(self, value: String, given: &str) -> Result<Self, String> {
        let changes = PolicyChanges::parse(&format!("{} = {value}", self.key))
            .map_err(|mistake| format!("{}={given}: {}", self.key, mistake.reason()))?;
        if changes.keys().ne([self.key.as_str()]) {
            return Err(format!("{}: expected one value, found several lines", self.key));
        }
        Ok(Self { value: Some(value), ..self })
    }

    /// The key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The value as in a policy file; `None` takes the key out of the file.
    pub fn value(&self) -> Option<&str> {
        self.value.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check_refused(argument: &str, expected: &str) {
        let error = PolicyEdit::parse(argument).unwrap_err();
        assert!(error.contains(expected), "{expected} in {error}");
    }

    #[test]
    fn mistakes_name_the_argument_and_what_was_expected() {
        check_refused(
            "local.threshold=1.5",
            "local.threshold=1.5: local.threshold: exit threshold: expected a number in [0, 1], found 1.5",
        );
        check_refused("local.rule=odds", "local.rule=odds: local.rule: expected \"entropy\", ");
        check_refused("window_ms=0", "window_ms=0: window_ms: expected 1 to 60000 milliseconds, found 0");
        check_refused("window_ms=0.5", "window_ms=0.5: ");
        check_refused("local.treshold=0.5", "local.treshold: expected a key of a policy (window_ms, ");
        check_refused("local.treshold=0.5", "found another; did you mean `local.threshold`?");
        check_refused("windw_ms=5", "did you mean `window_ms`?");
        check_refused("window_ms", "expected KEY=VALUE, such as window_ms=80, found \"window_ms\"");
        check_refused("local={}", "local: expected a key");
        check_refused("local.weights={ bias = 1 }", "local.weights.entropy: missing");
        check_refused("use=a b", "use=a b: ");
        check_refused("window_ms=1\nlate_ms=2", "window_ms: expected one value, found several lines");
    }

    #[test]
    fn a_value_of_json_is_that_of_an_argument() {
        for (key, value, argument) in [
            ("window_ms", json!(40), "window_ms=40"),
            ("local.threshold", json!([0.5, 0.25]), "local.threshold=[0.5, 0.25]"),
            ("local.rule", json!("margin"), "local.rule=margin"),
            ("use", json!("frugal"), "use=frugal"),
            ("window_ms", json!(null), "window_ms="),
            (
                "local.weights",
                json!({"bias": 1, "disagreement": 2, "entropy": 3, "margin": 4, "present": 5}),
                "local.weights={ bias = 1, disagreement = 2, entropy = 3, margin = 4, present = 5 }",
            ),
        ] {
            assert_eq!(PolicyEdit::from_json(key, value), PolicyEdit::parse(argument), "{argument}");
        }
        let refused = PolicyEdit::from_json("window_ms", json!({"a\" = 1\nlate_ms": 2})).unwrap_err();
        assert!(refused.starts_with("window_ms="), "{refused}");
    }
}
