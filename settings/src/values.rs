//! Types of settings whose messages say what was expected and what was found.

use std::fmt::{self, Display};
use std::str::FromStr;

use serde::de::value::StrDeserializer;
use serde::de::{DeserializeOwned, IntoDeserializer};
use thiserror::Error;

/// A whole number from `MIN` to `MAX`, kept as a `T` that can hold all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bounded<const MIN: u64, const MAX: u64, T = u64>(T);

impl<const MIN: u64, const MAX: u64, T: TryFrom<u64> + Copy> Bounded<MIN, MAX, T> {
    /// The number.
    pub fn get(self) -> T {
        self.0
    }
}

impl<const MIN: u64, const MAX: u64, T: TryFrom<u64>> FromStr for Bounded<MIN, MAX, T> {
    type Err = Mistake;

    fn from_str(text: &str) -> Result<Self, Mistake> {
        let number = text.parse().ok().filter(|number| (MIN..=MAX).contains(number));
        let number = number.and_then(|number| T::try_from(number).ok());
        number.map(Self).ok_or_else(|| Mistake(format!("expected {MIN} to {MAX}, found {text}")))
    }
}

impl<const MIN: u64, const MAX: u64, T: Display> Display for Bounded<MIN, MAX, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
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

/// Reads one of an enum's names, as its `Deserialize` knows them; for `#[conf(value_parser = word)]`.
///
/// # Errors
/// [`Mistake`] that lists the names.
pub fn word<T: DeserializeOwned>(text: &str) -> Result<T, Mistake> {
    let text: StrDeserializer<'_, Mistake> = text.into_deserializer();
    T::deserialize(text)
}

/// Description of a value that a setting refuses: expected and found.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Mistake(pub String);

impl serde::de::Error for Mistake {
    fn custom<M: Display>(message: M) -> Self {
        Self(message.to_string())
    }

    fn unknown_variant(found: &str, expected: &'static [&'static str]) -> Self {
        let expected: Vec<_> = expected.iter().map(|name| format!("{name:?}")).collect();
        let expected = match expected.split_last() {
            Some((last, [])) => last.clone(),
            Some((last, others)) => format!("{} or {last}", others.join(", ")),
            None => "nothing".into(),
        };
        Self(format!("expected {expected}, found {found:?}"))
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
            let mistake = text.parse::<Bounded<1, 65_536, usize>>().unwrap_err();
            assert_eq!(mistake.0, format!("expected 1 to 65536, found {text}"));
        }
        assert_eq!("65536".parse::<Bounded<1, 65_536, usize>>().unwrap().get(), 65_536);
        assert!("300".parse::<Bounded<0, 1000, u8>>().is_err(), "a type that cannot hold the number");
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
