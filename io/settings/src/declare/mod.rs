//! Declaration of settings: a struct whose fields say where their values come from.

mod reader;

use std::ffi::OsString;
use std::fmt::Display;
use std::marker::PhantomData;
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::de::DeserializeOwned;

use crate::values::{List, Mistake, within, word};

pub(crate) use reader::Inputs;
pub use reader::{Origin, Reader, Value};

/// A struct of settings, or a part of one.
pub trait Section: Sized {
    /// Lines of the doc comment.
    const ABOUT: &'static [&'static str];

    /// Reads every field and notes every mistake; `None` if a field has no value.
    fn read(reader: &mut Reader<'_>) -> Option<Self>;
}

/// Declares structs of settings. Each field names its type, and behind `=` how it is given: [`required`], [`default`], [`optional`],
/// [`switch`], [`secret`], or a struct of further settings as [`section`], [`flat`] or [`tables`].
#[macro_export]
macro_rules! settings {
    ($(
        $(#[doc = $about:literal])+
        #[derive($($derived:path),*)]
        $vis:vis struct $name:ident {
            $($(#[doc = $doc:literal])+ $field_vis:vis $field:ident : $type:ty = $given:expr),+ $(,)?
        }
    )+) => {$(
        $(#[doc = $about])+
        #[derive($($derived),*)]
        $vis struct $name {
            $($(#[doc = $doc])+ $field_vis $field: $type),+
        }

        impl $crate::Section for $name {
            const ABOUT: &'static [&'static str] = &[$($about),+];

            fn read(reader: &mut $crate::Reader<'_>) -> Option<Self> {
                $(let $field: Option<$type> = reader.field(stringify!($field), &[$($doc),+], $given);)+
                Some(Self { $($field: $field?),+ })
            }
        }
    )+};
}

/// Reader of a field of type `T`.
pub trait Field<T> {
    /// Reads the field.
    fn read(self, reader: &mut Reader<'_>, name: &'static str, docs: &[&str]) -> Option<T>;
}

/// Turns the text of a value into a `T`. A function from the text to a result implements this trait.
pub trait Parse<T> {
    /// The value that the text stands for.
    ///
    /// # Errors
    /// The mistake in the text, with the expected and the found value.
    fn parse(&self, text: &str) -> Result<T, Mistake>;
}

/// Parses by [`FromStr`].
#[derive(Clone, Copy, Debug)]
pub struct Plain;

impl<T: FromStr<Err: Display>> Parse<T> for Plain {
    fn parse(&self, text: &str) -> Result<T, Mistake> {
        text.parse().map_err(|error: T::Err| Mistake(error.to_string()))
    }
}

impl<T, E: Display, F: Fn(&str) -> Result<T, E>> Parse<T> for F {
    fn parse(&self, text: &str) -> Result<T, Mistake> {
        self(text).map_err(|error| Mistake(error.to_string()))
    }
}

/// Reads true and false, in the environment 1 and 0 too.
fn truth(text: &str) -> Result<bool, Mistake> {
    match text {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err(Mistake(format!("expected true or false, found {text:?}"))),
    }
}

/// Marks a key whose field always has a value.
#[derive(Clone, Copy, Debug)]
pub struct Needed;

/// Marks a key that may be left out.
#[derive(Clone, Copy, Debug)]
pub struct Maybe;

/// A key, and how its value is given.
#[derive(Clone, Copy, Debug)]
pub struct Key<P, N> {
    parse: P,
    pub(crate) given: Given,
    need: PhantomData<N>,
}

/// Default, example and places of a key.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Given {
    pub(crate) default: Option<&'static str>,
    pub(crate) example: Option<&'static str>,
    pub(crate) is_required: bool,
    pub(crate) is_switch: bool,
    /// A second variable that gives the key, such as `RUST_LOG`, which other programs read too.
    pub(crate) variable: Option<&'static str>,
    pub(crate) places: Places,
}

/// Places that may give a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Places {
    #[default]
    All,
    /// The environment alone, for a secret, which neither the list of processes nor a file may show.
    Environment,
    /// Flag and environment, for an option of the process.
    Process,
    /// A flag alone, for an option of one start.
    Flag,
}

const fn key<P, N>(parse: P, given: Given) -> Key<P, N> {
    Key { parse, given, need: PhantomData }
}

const NONE: Given = Given {
    default: None,
    example: None,
    is_required: false,
    is_switch: false,
    variable: None,
    places: Places::All,
};

/// A key without which a program does not start. The example stands in the example file.
pub const fn required(example: &'static str) -> Key<Plain, Needed> {
    key(Plain, Given { example: Some(example), is_required: true, ..NONE })
}

/// A key with a default, written as a flag would give the value.
pub const fn default(text: &'static str) -> Key<Plain, Needed> {
    key(Plain, Given { default: Some(text), ..NONE })
}

/// A key that may be left out: an `Option`, or a `Vec` that is then empty. The example stands in the example file.
pub const fn optional(example: &'static str) -> Key<Plain, Maybe> {
    key(Plain, Given { example: Some(example), ..NONE })
}

/// A key that is true or false, with a flag that has no value.
pub const fn switch() -> Key<impl Fn(&str) -> Result<bool, Mistake>, Needed> {
    key(truth, Given { default: Some("false"), example: Some("true"), is_switch: true, ..NONE })
}

/// A secret, which the environment alone gives.
pub const fn secret() -> Key<Plain, Maybe> {
    key(Plain, Given { places: Places::Environment, ..NONE })
}

impl<P, N> Key<P, N> {
    /// Parses the text by a function.
    pub fn by<F>(self, parse: F) -> Key<F, N> {
        key(parse, self.given)
    }

    /// Parses a whole number of this range.
    pub fn within<T: TryFrom<u64>>(
        self,
        range: RangeInclusive<u64>,
    ) -> Key<impl Fn(&str) -> Result<T, Mistake>, N> {
        key(move |text: &str| within(range.clone(), text), self.given)
    }

    /// Parses the text as one of an enum's names.
    pub fn word<T: DeserializeOwned>(self) -> Key<impl Fn(&str) -> Result<T, Mistake>, N> {
        key(word::<T>, self.given)
    }

    /// Takes the value of another variable if the key's own variable is not set.
    #[must_use]
    pub fn or_variable(mut self, variable: &'static str) -> Self {
        self.given.variable = Some(variable);
        self
    }

    /// Lets flag and environment give the key, and no file.
    #[must_use]
    pub fn no_file(mut self) -> Self {
        self.given.places = Places::Process;
        self
    }

    /// Lets a flag alone give the key.
    #[must_use]
    pub fn flag_only(mut self) -> Self {
        self.given.places = Places::Flag;
        self
    }
}

impl<T, P: Parse<T>> Field<T> for Key<P, Needed> {
    fn read(self, reader: &mut Reader<'_>, name: &'static str, docs: &[&str]) -> Option<T> {
        reader.key(name, docs, self.given, |text| self.parse.parse(text))
    }
}

impl<T, P: Parse<T>> Field<Option<T>> for Key<P, Maybe> {
    fn read(self, reader: &mut Reader<'_>, name: &'static str, docs: &[&str]) -> Option<Option<T>> {
        Some(reader.key(name, docs, self.given, |text| self.parse.parse(text)))
    }
}

impl<T, P: Parse<List<T>>> Field<Vec<T>> for Key<P, Maybe> {
    fn read(self, reader: &mut Reader<'_>, name: &'static str, docs: &[&str]) -> Option<Vec<T>> {
        let list = reader.key(name, docs, self.given, |text| self.parse.parse(text));
        Some(list.map(|List(values)| values).unwrap_or_default())
    }
}

/// Further settings: in a section of the field's name, or beside the keys of the outer struct.
#[derive(Clone, Copy, Debug)]
pub struct Nested {
    has_name: bool,
    example: Option<(&'static str, &'static str)>,
}

impl Nested {
    /// Gives a key of the struct another example in this section.
    #[must_use]
    pub fn example(self, key: &'static str, example: &'static str) -> Self {
        Self { example: Some((key, example)), ..self }
    }
}

/// A struct of settings in a section of its own.
pub const fn section() -> Nested {
    Nested { has_name: true, example: None }
}

/// A struct of settings whose keys stand beside the keys of the outer struct.
pub const fn flat() -> Nested {
    Nested { has_name: false, example: None }
}

impl<T: Section> Field<T> for Nested {
    fn read(self, reader: &mut Reader<'_>, name: &'static str, _docs: &[&str]) -> Option<T> {
        reader.within(self.has_name.then_some(name), self.example, T::read)
    }
}

/// An array of tables; see [`Tables`].
#[derive(Clone, Copy, Debug)]
pub struct TablesOf(&'static str);

/// Tables `[[name]]`. Without any, the settings of one table stand at the top of the file, in flags and in the environment.
pub const fn tables(name: &'static str) -> TablesOf {
    TablesOf(name)
}

/// Settings of all tables of an array.
#[derive(Clone, Debug, Default)]
pub struct Tables<T> {
    /// Name of the array; `None` if one table is given without an array.
    pub array: Option<&'static str>,
    /// The settings.
    pub all: Vec<T>,
}

impl<T> Tables<T> {
    /// Prefix of the keys of a table: `group[1].`, or nothing without an array.
    pub fn place(&self, index: usize) -> String {
        place(self.array.map(|array| (array, index)))
    }
}

/// Prefix of the keys of a table; empty without a table.
pub(crate) fn place(table: Option<(&str, usize)>) -> String {
    table.map(|(array, index)| format!("{array}[{index}].")).unwrap_or_default()
}

impl<T: Section> Field<Tables<T>> for TablesOf {
    fn read(self, reader: &mut Reader<'_>, _name: &'static str, _docs: &[&str]) -> Option<Tables<T>> {
        reader.tables(self.0)
    }
}

/// Declaration of one key.
#[derive(Clone, Debug)]
pub struct Declared {
    /// Key in the file, such as `broker.address`.
    pub key: String,
    /// Flag without dashes, such as `broker-address`; `None` for a secret.
    pub flag: Option<String>,
    /// Variable, such as `HEADWATER_BROKER_ADDRESS`; `None` for an option of the command line alone.
    pub environment: Option<String>,
    /// Lines of the doc comment.
    pub description: Vec<String>,
    /// Array of tables that may hold the key; `None` for a key outside such arrays.
    pub array: Option<&'static str>,
    pub(crate) given: Given,
}

impl Declared {
    /// Returns true if a file may hold the key.
    pub(crate) fn is_in_files(&self) -> bool {
        self.given.places == Places::All
    }

    /// Returns true if the key is a setting, and not an option of the command line.
    pub(crate) fn is_setting(&self) -> bool {
        matches!(self.given.places, Places::All | Places::Environment)
    }

    /// Names of the variables that give the key; the key's own variable before the second variable.
    pub(crate) fn variables(&self) -> impl Iterator<Item = &str> {
        self.environment.as_deref().into_iter().chain(self.given.variable)
    }

    /// Value of the key in the environment, with the name of its variable; `None` if no variable of the key is set.
    pub(crate) fn variable_of<'a>(
        &self,
        environment: &'a std::collections::BTreeMap<String, OsString>,
    ) -> Option<(&'a String, &'a OsString)> {
        self.variables().find_map(|name| environment.get_key_value(name))
    }
}
