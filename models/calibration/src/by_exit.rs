//! Values by exit as keys of a JSON object that has other keys too.

pub use headwater_protocol::ByExit;

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
                let object = serde_json::Map::deserialize(from)?;
                let exit = |key: &str| Exit::from_name(key.strip_prefix($before)?.strip_suffix($after)?);
                let present = object.into_iter().filter_map(|(key, value)| Some((exit(&key)?, value)));
                let values = present.map(|(exit, value)| Ok((exit, serde_json::from_value(value)?)));
                values.collect::<Result<_, serde_json::Error>>().map_err(D::Error::custom)
            }
        }
    )*};
}

keys! {
    /// Keys `local`, `cloud`, …
    plain = "", "";
    /// Keys `train_local`, `train_cloud`, …
    train = "train_", "";
    /// Keys `local_share`, `cloud_share`, …
    share = "", "_share";
    /// Keys `local_accuracy`, `cloud_accuracy`, …
    accuracy = "", "_accuracy";
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    use headwater_protocol::Exit;

    use super::ByExit;

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
        let every = ByExit::from_iter([(Exit::CLOUD, 0.1), (Exit::LOCAL, 1.0)]);
        let share = every.map(|_, value| value / 3.0);
        let figures = Figures { samples: 7, every, share };
        let text = serde_json::to_string(&figures).unwrap();
        assert!(
            text.starts_with(r#"{"samples":7,"local":1.0,"cloud":0.1,"local_share":0.3333333333333333,"#)
        );
        assert_eq!(serde_json::from_str::<Figures>(&text).unwrap(), figures);
    }
}
