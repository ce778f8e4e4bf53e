//! Types of settings whose messages say what was expected and what was found.

use std::fmt::{self, Display};
use std::ops::RangeInclusive;
use std::str::FromStr;

use headwater_toml_file::one_of;
use serde::de::value::StrDeserializer;
use serde::de::{DeserializeOwned, IntoDeserializer};
use thiserror::Error;
use toml::Value as Toml;

/// Reads a whole number of this range.
///
/// # Errors
/// [`Mistake`] with the bounds.
pub fn within<T: TryFrom<u64>>(range: RangeInclusive<u64>, text: &str) -> Result<T, Mistake> {
    let number = text.parse().ok().filter(|number| range.contains(number));
    let number = number.and_then(|number| T::try_from(number).ok());
    number.ok_or_else(|| Mistake(format!("expected {} to {}, found {text}", range.start(), range.end())))
}

/// Values separated by commas on the command line, an array in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct List<T>(pub Vec<T>);

impl<T: FromStr<Err: Display>> FromStr for List<T> {
    type Err = Mistake;

    fn from_str(text: &str) -> Result<Self, Mistake> {
        let values = text.split(',').map(str::trim).filter(|value| !value.is_empty());
        let parse = |value: &str| {
            value.parse().map_err(|error: T::Err| Mistake(format!("{error}, found {value:?} in {text:?}")))
        };
        values.map(parse).collect::<Result<_, _>>().map(Self)
    }
}

/// Reads one of the names of an enum, as the `Deserialize` of the enum knows them.
///
/// # Errors
/// [`Mistake`] that lists the names.
pub fn word<T: DeserializeOwned>(text: &str) -> Result<T, Mistake> {
    let text: StrDeserializer<'_, Mistake> = text.into_deserializer();
    T::deserialize(text)
}

/// A value as a flag would give the value: text without quotes, lists separated by commas.
pub(crate) fn as_text(value: &Toml) -> String {
    match value {
        Toml::String(text) => text.clone(),
        Toml::Array(values) => values.iter().map(as_text).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

/// A text as a file would hold the text; numbers and booleans without quotes.
pub(crate) fn as_toml(text: &str) -> Toml {
    let number = text.parse::<i64>().ok().filter(|number| number.to_string() == text);
    match (number, text.parse::<bool>()) {
        (Some(number), _) => Toml::Integer(number),
        (None, Ok(boolean)) => Toml::Boolean(boolean),
        (None, Err(_)) => Toml::String(text.into()),
    }
}

/// A value of a declaration: an array if the text is in brackets, otherwise as [`as_toml`] reads it.
pub(crate) fn literal(text: &str) -> Toml {
    let array = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    match array {
        Some(values) => Toml::Array(values.split(',').map(|value| as_toml(value.trim())).collect()),
        None => as_toml(text),
    }
}

/// Settings that are right alone and do not fit each other. A misfit is not reported if one of its keys has a mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// The key that the message names, then the keys on which the misfit depends.
    pub keys: Vec<String>,
    text: String,
}

impl Misfit {
    /// A misfit of a key, with what was expected and found.
    pub fn new(key: impl Into<String>, text: impl Into<String>) -> Self {
        Self { keys: vec![key.into()], text: text.into() }
    }

    /// Adds a key on which the misfit depends.
    #[must_use]
    pub fn with(mut self, key: impl Into<String>) -> Self {
        self.keys.push(key.into());
        self
    }

    /// Puts `place`, the prefix of a table's keys, in front of every key.
    #[must_use]
    pub fn at(mut self, place: &str) -> Self {
        self.keys.iter_mut().for_each(|key| key.insert_str(0, place));
        self
    }
}

impl Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.keys[0], self.text)
    }
}

impl From<Misfit> for String {
    fn from(misfit: Misfit) -> Self {
        misfit.to_string()
    }
}

/// Description of a value that a setting refuses: expected and found.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Mistake(pub String);

impl Mistake {
    /// The mistake with the found value, unless the text names the value already.
    pub(crate) fn with_found(self, found: &Toml) -> Self {
        if self.0.contains(", found ") {
            self
        } else {
            Self(format!("{}, found {:?}", self.0, as_text(found)))
        }
    }
}

impl serde::de::Error for Mistake {
    fn custom<M: Display>(message: M) -> Self {
        Self(message.to_string())
    }

    fn unknown_variant(found: &str, expected: &'static [&'static str]) -> Self {
        Self(format!("expected {}, found {found:?}", one_of(expected)))
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use headwater_telemetry::LogFormat;

    use super::*;

    #[test]
    fn a_number_outside_its_range_is_refused_with_both() {
        for text in ["0", "65537", "-1", "many", "1.5", "99999999999999999999"] {
            let mistake = within::<usize>(1..=65_536, text).unwrap_err();
            assert_eq!(mistake.0, format!("expected 1 to 65536, found {text}"));
        }
        assert_eq!(within::<usize>(1..=65_536, "65536"), Ok(65_536));
        assert!(within::<u8>(0..=1000, "300").is_err(), "a type that cannot hold the number");
    }

    #[test]
    fn a_list_is_separated_by_commas() {
        assert_eq!("0, 2,5".parse(), Ok(List(vec![0, 2, 5])));
        assert_eq!("".parse(), Ok(List::<u8>(Vec::new())));
        let mistake = "0,x".parse::<List<u8>>().unwrap_err().0;
        assert!(mistake.contains("found \"x\" in \"0,x\""), "{mistake}");
    }

    #[test]
    fn a_word_that_is_not_one_of_the_names_is_refused_with_all_names() {
        #[derive(Debug, PartialEq, Deserialize)]
        #[serde(rename_all = "snake_case")]
        enum Engine {
            Packed,
            Tract,
            Ort,
        }
        assert_eq!(word("tract"), Ok(Engine::Tract));
        let mistake = word::<Engine>("torch").unwrap_err().0;
        assert_eq!(mistake, "expected \"packed\", \"tract\" or \"ort\", found \"torch\"");
    }

    #[test]
    fn a_format_of_logs_is_read_by_its_name() {
        assert_eq!((word("text"), word("json")), (Ok(LogFormat::Text), Ok(LogFormat::Json)));
        let expected = Mistake("expected \"text\" or \"json\", found \"xml\"".into());
        assert_eq!(word::<LogFormat>("xml"), Err(expected));
    }
}
