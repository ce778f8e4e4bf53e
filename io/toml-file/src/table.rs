//! Tables of a TOML file whose keys may be left out: one declaration for key, help, default and range.

use std::fmt::Display;
use std::ops::RangeInclusive;

use crate::mistake::Mistake;

/// Declares a table: each key with its help, type, default and, for numbers, range.
///
/// ```
/// headwater_toml_file::table! {
///     /// Checkpoints of a run.
///     Checkpoints {
///         /// Steps between checkpoints.
///         steps: u32 = 400, 1..=1_000_000;
///     }
/// }
/// assert_eq!(Checkpoints::default().out_of_range("checkpoint."), []);
/// let mistakes = Checkpoints { steps: 0 }.out_of_range("checkpoint.");
/// assert_eq!(mistakes[0].to_string(), "checkpoint.steps: expected 1 to 1000000, found 0");
/// ```
#[macro_export]
macro_rules! table {
    ($(#[$attribute:meta])* $name:ident {
        $($(#[$help:meta])* $key:ident: $type:ty = $default:expr $(, $range:expr)?;)*
    }) => {
        $(#[$attribute])*
        #[derive(Clone, Debug, PartialEq, ::serde::Deserialize, ::serde::Serialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct $name {
            $($(#[$help])* pub $key: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($key: $default,)* }
            }
        }

        impl $name {
            /// Numbers out of their range; `prefix` is the name of the table with a dot.
            pub fn out_of_range(&self, prefix: &str) -> Vec<$crate::Mistake> {
                let key = |key: &str| format!("{prefix}{key}");
                let checked = [$($($crate::check_range(key(stringify!($key)), &self.$key, &$range),)?)*];
                checked.into_iter().flatten().collect()
            }
        }
    };
}

/// The mistake if a number is not in its range; `None` if it is.
pub fn check_range<T: PartialOrd + Display>(
    key: String,
    found: &T,
    range: &RangeInclusive<T>,
) -> Option<Mistake> {
    let text = || format!("expected {} to {}, found {found}", range.start(), range.end());
    (!range.contains(found)).then(|| Mistake::of_key(key, text()))
}
