//! Enums whose variants are words in messages, metrics and reports.

/// Declares an enum of words. A word of a later version is read as `Unknown`, which is also the default.
macro_rules! words {
    (
        $(#[$doc:meta])*
        $words:ident { $($(#[$variant_doc:meta])* $variant:ident = $name:literal,)+ }
        $(#[$unknown_doc:meta])*
        Unknown
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[derive(serde::Serialize, serde::Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        pub enum $words {
            $($(#[$variant_doc])* #[serde(rename = $name)] $variant,)+
            $(#[$unknown_doc])*
            #[default]
            #[serde(other, rename = "unknown")]
            Unknown,
        }

        impl $words {
            /// Every word of this version, without `unknown`.
            pub const NAMES: [&'static str; [$($name),+].len()] = [$($name),+];

            /// The word.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                    Self::Unknown => "unknown",
                }
            }
        }
    };
}

pub(crate) use words;

/// True if a value is the default, so that JSON leaves the field out.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(test)]
mod tests {
    use serde::Serialize;
    use serde::de::DeserializeOwned;
    use serde_json::{from_value, json, to_value};

    use crate::status::ReportedState;
    use crate::{Degraded, Dropped, LeaveReason, TimeSource, Undecided};

    #[track_caller]
    fn check<W: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(
        names: &[&str],
        name: impl Fn(W) -> &'static str,
        unknown: &W,
    ) {
        for known in names {
            let word: W = from_value(json!(known)).unwrap();
            assert_eq!(to_value(&word).unwrap(), json!(known));
            assert_eq!(name(word), *known);
        }
        assert_eq!(&from_value::<W>(json!("of a later version")).unwrap(), unknown);
        assert_eq!(to_value(unknown).unwrap(), json!("unknown"));
    }

    #[test]
    fn names_equal_the_json_and_words_of_later_versions_are_read() {
        check(&Degraded::NAMES, Degraded::name, &Degraded::Unknown);
        check(&Undecided::NAMES, Undecided::name, &Undecided::Unknown);
        check(&Dropped::NAMES, Dropped::name, &Dropped::Unknown);
        check(&LeaveReason::NAMES, LeaveReason::name, &LeaveReason::Unknown);
        check(&TimeSource::NAMES, TimeSource::name, &TimeSource::Unknown);
        check(&ReportedState::NAMES, ReportedState::name, &ReportedState::Unknown);
    }
}
