//! A value for each exit that a network has.

use headwater_protocol::Exit;

/// A value for each exit that a network has, shallowest first; other exits have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByExit<T>([Option<T>; Exit::ALL.len()]);

impl<T> Default for ByExit<T> {
    fn default() -> Self {
        Self([const { None }; Exit::ALL.len()])
    }
}

impl<T> ByExit<T> {
    /// The value of an exit; `None` where the network has no such exit.
    pub fn get(&self, exit: Exit) -> Option<&T> {
        self.0[exit as usize].as_ref()
    }

    /// The value of an exit, to be changed or set.
    pub fn slot(&mut self, exit: Exit) -> &mut Option<T> {
        &mut self.0[exit as usize]
    }

    /// Exits and their values, shallowest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (Exit, &T)> {
        Exit::ALL.into_iter().zip(&self.0).filter_map(|(exit, value)| Some((exit, value.as_ref()?)))
    }

    /// A new value for each of the same exits.
    pub fn map<U>(&self, mut of: impl FnMut(Exit, &T) -> U) -> ByExit<U> {
        self.iter().map(|(exit, value)| (exit, of(exit, value))).collect()
    }
}

impl<T> FromIterator<(Exit, T)> for ByExit<T> {
    fn from_iter<I: IntoIterator<Item = (Exit, T)>>(values: I) -> Self {
        let mut all = Self::default();
        values.into_iter().for_each(|(exit, value)| *all.slot(exit) = Some(value));
        all
    }
}

/// The value of an exit that the network has.
///
/// # Panics
/// When the network has no such exit.
impl<T> std::ops::Index<Exit> for ByExit<T> {
    type Output = T;

    fn index(&self, exit: Exit) -> &T {
        self.get(exit).unwrap_or_else(|| panic!("the network has no exit `{}`", exit.name()))
    }
}

/// Defines modules for `#[serde(flatten, with = ..)]`: each writes the values into the surrounding JSON object, one key per exit.
/// Other keys of the object are ignored.
macro_rules! keys {
    ($($(#[$doc:meta])* $module:ident = $before:literal, $after:literal;)*) => {$(
        $(#[$doc])*
        pub mod $module {
            use headwater_protocol::Exit;
            use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error};
            use serde::ser::{Serialize, Serializer};

            use super::ByExit;

            fn key(exit: Exit) -> String {
                format!(concat!($before, "{}", $after), exit.name())
            }

            /// Writes the keys.
            ///
            /// # Errors
            /// The errors of the serializer.
            pub fn serialize<T: Serialize, S: Serializer>(values: &ByExit<T>, to: S) -> Result<S::Ok, S::Error> {
                to.collect_map(values.iter().map(|(exit, value)| (key(exit), value)))
            }

            /// Reads the keys that are present.
            ///
            /// # Errors
            /// The errors of the deserializer, or a value of another type.
            pub fn deserialize<'de, T, D>(from: D) -> Result<ByExit<T>, D::Error>
            where
                T: DeserializeOwned,
                D: Deserializer<'de>,
            {
                let mut object = serde_json::Map::deserialize(from)?;
                let present = Exit::ALL.into_iter().filter_map(|exit| Some((exit, object.remove(&key(exit))?)));
                let values = present.map(|(exit, value)| Ok((exit, serde_json::from_value(value)?)));
                values.collect::<Result<_, serde_json::Error>>().map_err(D::Error::custom)
            }
        }
    )*};
}

keys! {
    /// `local`, `cloud`, …
    plain = "", "";
    /// `train_local`, …
    train = "train_", "";
    /// `local_share`, …
    share = "", "_share";
    /// `local_accuracy`, …
    accuracy = "", "_accuracy";
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Figures {
        samples: u64,
        #[serde(flatten, with = "super::plain")]
        every: ByExit<f64>,
        #[serde(flatten, with = "super::share")]
        share: ByExit<f64>,
    }

    #[test]
    fn the_values_are_keys_among_the_other_keys_of_an_object() {
        let every = ByExit::from_iter([(Exit::Cloud, 0.1), (Exit::Local, 1.0)]);
        let figures = Figures { samples: 7, every, share: every.map(|_, value| value / 3.0) };
        let text = serde_json::to_string(&figures).unwrap();
        assert!(
            text.starts_with(r#"{"samples":7,"local":1.0,"cloud":0.1,"local_share":0.3333333333333333,"#)
        );
        assert_eq!(serde_json::from_str::<Figures>(&text).unwrap(), figures);
    }

    #[test]
    fn exits_are_iterated_shallowest_first_for_any_order_of_insertion() {
        let values = ByExit::from_iter([(Exit::Cloud, 'c'), (Exit::Device, 'd')]);
        assert_eq!(values.iter().collect::<Vec<_>>(), [(Exit::Device, &'d'), (Exit::Cloud, &'c')]);
        assert_eq!((values.get(Exit::Edge), values[Exit::Cloud]), (None, 'c'));
    }
}
