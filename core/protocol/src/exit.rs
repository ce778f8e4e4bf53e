//! The exits of a network, and values by exit.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde::{Serialize, Serializer};

/// The part of the network in which an exit lies; the parts are in order from the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ExitWord {
    /// Exit on the device, in networks of one device.
    Device,
    /// Exit over the aggregated scores of the devices.
    Local,
    /// Exit over the scores of the edge sections.
    Edge,
    /// Exit of the cloud's section.
    Cloud,
}

/// An exit of a network: a word and an index among the exits of that word, both in order from the input.
///
/// Index 0 is written as the word alone, such as `local`; a higher index follows a dot, such as `cloud.1`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Exit {
    word: ExitWord,
    index: u8,
}

/// Names by word and index.
const NAMES: [[&str; Exit::MAX_OF_WORD]; 4] = [
    ["device", "device.1", "device.2", "device.3", "device.4", "device.5", "device.6", "device.7"],
    ["local", "local.1", "local.2", "local.3", "local.4", "local.5", "local.6", "local.7"],
    ["edge", "edge.1", "edge.2", "edge.3", "edge.4", "edge.5", "edge.6", "edge.7"],
    ["cloud", "cloud.1", "cloud.2", "cloud.3", "cloud.4", "cloud.5", "cloud.6", "cloud.7"],
];

impl Exit {
    /// Largest number of exits with one word.
    pub const MAX_OF_WORD: usize = 8;

    /// First exit on the device.
    pub const DEVICE: Self = Self { word: ExitWord::Device, index: 0 };
    /// First exit over the aggregated scores of the devices.
    pub const LOCAL: Self = Self { word: ExitWord::Local, index: 0 };
    /// First exit over the scores of the edge sections.
    pub const EDGE: Self = Self { word: ExitWord::Edge, index: 0 };
    /// First exit of the cloud's section.
    pub const CLOUD: Self = Self { word: ExitWord::Cloud, index: 0 };

    /// The first exit of each word, from the input.
    pub const FIRST: [Self; 4] = [Self::DEVICE, Self::LOCAL, Self::EDGE, Self::CLOUD];

    /// The exit with the name `name`; `None` for any other text, also for `cloud.0` and `cloud.01`: each exit has one name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::FIRST.into_iter().find_map(|first| {
            let index = NAMES[first.word as usize].iter().position(|known| *known == name)?;
            Some(Self { index: index as u8, ..first })
        })
    }

    /// The part of the network in which the exit lies.
    pub const fn word(self) -> ExitWord {
        self.word
    }

    /// Index among the exits with the same word, in order from the input.
    pub const fn index(self) -> usize {
        self.index as usize
    }

    /// Name in results, metrics and reports.
    pub const fn name(self) -> &'static str {
        NAMES[self.word as usize][self.index as usize]
    }
}

impl fmt::Debug for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for Exit {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Exit {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = std::borrow::Cow::<str>::deserialize(from)?;
        Self::from_name(&name).ok_or_else(|| {
            let shown: String = name.chars().take(40).collect();
            D::Error::custom(format_args!(
                "exit: expected device, local, edge or cloud, or a further one such as cloud.1 (up to .{}), found {shown:?}",
                Self::MAX_OF_WORD - 1
            ))
        })
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Exit {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Exit".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "Where a sample left the network; a further exit of the same word has its index from the input.",
            "type": "string",
            "pattern": "^(device|local|edge|cloud)(\\.[1-7])?$"
        })
    }
}

/// Values for some of the exits, in order from the input.
///
/// In JSON, an object with the names of the exits as keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct ByExit<T>(BTreeMap<Exit, T>);

impl<T> Default for ByExit<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T> ByExit<T> {
    /// The value of an exit; `None` if the exit has none.
    pub fn get(&self, exit: Exit) -> Option<&T> {
        self.0.get(&exit)
    }

    /// The value of an exit; if there is none, `make` makes one.
    pub fn get_or_insert_with(&mut self, exit: Exit, make: impl FnOnce() -> T) -> &mut T {
        self.0.entry(exit).or_insert_with(make)
    }

    /// Sets the value of an exit.
    pub fn insert(&mut self, exit: Exit, value: T) {
        self.0.insert(exit, value);
    }

    /// Removes the value of an exit, if there is one.
    pub fn remove(&mut self, exit: Exit) {
        self.0.remove(&exit);
    }

    /// Exits and their values, in order from the input.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (Exit, &T)> {
        self.0.iter().map(|(exit, value)| (*exit, value))
    }

    /// For the same exits, the values that `of` makes from the values of this map.
    pub fn map<U>(&self, mut of: impl FnMut(Exit, &T) -> U) -> ByExit<U> {
        ByExit(self.iter().map(|(exit, value)| (exit, of(exit, value))).collect())
    }
}

impl<T> FromIterator<(Exit, T)> for ByExit<T> {
    fn from_iter<I: IntoIterator<Item = (Exit, T)>>(values: I) -> Self {
        Self(values.into_iter().collect())
    }
}

/// The value of an exit.
///
/// # Panics
/// If the exit has no value.
impl<T> std::ops::Index<Exit> for ByExit<T> {
    type Output = T;

    fn index(&self, exit: Exit) -> &T {
        self.get(exit).unwrap_or_else(|| panic!("the network has no exit `{}`", exit.name()))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for ByExit<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Values<T>(std::marker::PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Values<T> {
            type Value = ByExit<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("values by exit")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ByExit<T>, A::Error> {
                let mut all = BTreeMap::new();
                while let Some((exit, value)) = map.next_entry::<Exit, T>()? {
                    if all.insert(exit, value).is_some() {
                        return Err(A::Error::custom(format_args!("exit {} twice", exit.name())));
                    }
                }
                Ok(ByExit(all))
            }
        }
        from.deserialize_map(Values(std::marker::PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_str, from_value, json, to_string};

    use super::*;

    #[test]
    fn the_first_exit_of_a_word_is_written_as_the_word_and_others_with_their_index() {
        for (word, names) in Exit::FIRST.into_iter().zip(NAMES) {
            for (index, name) in names.into_iter().enumerate() {
                let exit = Exit::from_name(name).unwrap();
                assert_eq!((exit.word(), exit.index(), exit.name()), (word.word(), index, name));
                assert_eq!(to_string(&exit).unwrap(), format!("{name:?}"));
                assert_eq!(from_value::<Exit>(json!(name)).unwrap(), exit);
                let expected =
                    if index == 0 { word.name().into() } else { format!("{}.{index}", word.name()) };
                assert_eq!(name, expected);
            }
        }
    }

    #[test]
    fn other_names_are_no_exits() {
        for name in
            ["", "cloud.0", "cloud.01", "cloud.8", "cloud.", ".1", "Cloud", "sky", "cloud.1.1", "cloud.-1"]
        {
            assert_eq!(Exit::from_name(name), None, "{name}");
        }
        let error = from_value::<Exit>(json!("sky.1")).unwrap_err().to_string();
        assert!(error.contains("such as cloud.1") && error.ends_with("found \"sky.1\""), "{error}");
    }

    #[test]
    fn values_are_in_the_order_of_the_exits_for_any_order_of_insertion() {
        let further = Exit::from_name("cloud.1").unwrap();
        let values = ByExit::from_iter([(further, 'e'), (Exit::CLOUD, 'c'), (Exit::DEVICE, 'd')]);
        let found: Vec<_> = values.iter().collect();
        assert_eq!(found, [(Exit::DEVICE, &'d'), (Exit::CLOUD, &'c'), (further, &'e')]);
        assert_eq!((values.get(Exit::EDGE), values[further]), (None, 'e'));
        let text = to_string(&values).unwrap();
        assert_eq!(text, r#"{"device":"d","cloud":"c","cloud.1":"e"}"#);
        assert_eq!(from_str::<ByExit<char>>(&text).unwrap(), values);
        let twice = from_str::<ByExit<u8>>(r#"{"cloud.1":1,"cloud.1":2}"#).unwrap_err().to_string();
        assert!(twice.contains("exit cloud.1 twice"), "{twice}");
    }
}
