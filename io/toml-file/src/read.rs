//! Reads a text into a type, with every mistake at once.
//!
//! serde stops at the first mistake. The wrong value is then left out, and the text is read again, until no new mistake is found:
//!
//! ```text
//! count = "x"      1st pass: device.count: expected usize      2nd pass: without device.count
//! inptu = 3                                                    device.inptu: no such key
//! ```

use std::collections::BTreeSet;
use std::fmt::{self, Display};

use serde::Deserialize;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error as _, Expected, IntoDeserializer, MapAccess,
    SeqAccess, Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_spanned::de::{SpannedDeserializer, is_spanned};
use toml::de::{DeTable, DeValue, ValueDeserializer};
use toml::{Spanned, Value};

use crate::document::{Document, line_at, syntax_mistakes};
use crate::mistake::Mistake;
use crate::nearest::no_such_key;

/// The mistakes in the order of their lines, each with the line of its key in the text.
pub fn with_lines(text: &str, mut mistakes: Vec<Mistake>) -> Vec<Mistake> {
    let values = Document::parse(text).unwrap_or_default().values;
    for mistake in &mut mistakes {
        mistake.line = values.get(&mistake.key).map(|found| found.line).or(mistake.line);
    }
    mistakes.sort_by_key(|mistake| mistake.line);
    mistakes
}

/// Reads the text of a file into a type.
///
/// # Errors
/// Every mistake, in the order of their lines.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, Vec<Mistake>> {
    // More mistakes than a person corrects at once; each costs a pass.
    const MAX_MISTAKES: usize = 100;
    let (table, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        return Err(syntax_mistakes(text, &errors));
    }
    let top = Spanned::new(table.span(), DeValue::Table(table.into_inner()));
    let (mut left_out, mut mistakes) = (BTreeSet::new(), Vec::<Mistake>::new());
    while mistakes.len() < MAX_MISTAKES {
        let place = Place { path: String::new(), start: None, left_out: &left_out };
        let error = match T::deserialize(Node { value: top.clone(), place }) {
            Ok(read) if mistakes.is_empty() => return Ok(read),
            Ok(_) => break,
            Err(error) => error,
        };
        if !error.follows_from(&left_out) {
            mistakes.push(error.mistake(text));
        }
        if error.path.is_empty() || !left_out.insert(error.path) {
            break;
        }
    }
    mistakes.sort_by_key(|mistake| mistake.line);
    Err(mistakes)
}

/// Place of a value in the text.
#[derive(Clone)]
struct Place<'a> {
    /// Key with its tables; empty for the whole text.
    path: String,
    /// Position of the key in the text.
    start: Option<usize>,
    /// Paths of values that are left out.
    left_out: &'a BTreeSet<String>,
}

/// A value to be read, and its place.
struct Node<'a> {
    value: Spanned<DeValue<'a>>,
    place: Place<'a>,
}

impl Place<'_> {
    /// Place of a value within the value at this place.
    fn inner(&self, path: String, start: usize) -> Self {
        Self { path, start: Some(start), left_out: self.left_out }
    }
}

/// A value that is neither a table nor an array.
fn scalar(value: Spanned<DeValue<'_>>) -> Result<Value, Error> {
    Value::deserialize(ValueDeserializer::from(value)).map_err(|error| Error::custom(error.message()))
}

fn join(table: &str, name: &str) -> String {
    if table.is_empty() { name.to_owned() } else { format!("{table}.{name}") }
}

impl<'de> Node<'de> {
    /// Reads the value. serde may find a mistake only after the value is read, so the place is added here too.
    fn read<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Error> {
        let (place, shown) = (self.place.clone(), self.shown());
        seed.deserialize(self).map_err(|error| error.with_found(shown).at(&place))
    }

    /// The value as text; `None` for a table or an array.
    fn shown(&self) -> Option<String> {
        let is_scalar = !matches!(self.value.get_ref(), DeValue::Table(_) | DeValue::Array(_));
        is_scalar.then(|| Some(scalar(self.value.clone()).ok()?.to_string())).flatten()
    }

    fn is_read(&self) -> bool {
        !self.place.left_out.contains(&self.place.path)
    }
}

impl<'de> Deserializer<'de> for Node<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let place = self.place;
        let span = self.value.span();
        let read = match self.value.into_inner() {
            DeValue::Table(table) => visitor.visit_map(Table::new(table, &place)),
            DeValue::Array(array) => {
                let nodes = array.into_iter().enumerate().map(|(index, value)| {
                    let place = place.inner(format!("{}[{index}]", place.path), value.span().start);
                    Node { value, place }
                });
                visitor.visit_seq(List(nodes.filter(Node::is_read).collect::<Vec<_>>().into_iter()))
            }
            value => match scalar(Spanned::new(span, value))? {
                Value::String(text) => visitor.visit_string(text),
                Value::Integer(number) => visitor.visit_i64(number),
                Value::Float(number) => visitor.visit_f64(number),
                Value::Boolean(value) => visitor.visit_bool(value),
                other => Err(Error::invalid_type(Unexpected::Other(other.type_str()), &visitor)),
            },
        };
        read.map_err(|error| error.at(&place))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        let place = self.place.clone();
        visitor.visit_newtype_struct(self).map_err(|error| error.at(&place))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        if is_spanned(name) {
            let span = self.value.span();
            return visitor.visit_map(SpannedDeserializer::new(self, span));
        }
        self.deserialize_any(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let shown = self.shown().unwrap_or_else(|| "no word".into());
        let place = self.place;
        let read = match self.value.into_inner() {
            DeValue::String(name) => visitor.visit_enum(name.into_owned().into_deserializer()),
            _ => Err(Error::custom(format_args!("expected {}, found {shown}", one_of(variants)))),
        };
        read.map_err(|error| error.at(&place))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        seq tuple tuple_struct map identifier ignored_any
    }
}

impl<'de> IntoDeserializer<'de, Error> for Node<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// The keys of a table, without the keys that are left out.
struct Table<'a> {
    entries: std::vec::IntoIter<(String, Node<'a>)>,
    value: Option<Node<'a>>,
}

impl<'a> Table<'a> {
    fn new(table: DeTable<'a>, place: &Place<'a>) -> Self {
        let entries = table.into_iter().map(|(name, value)| {
            let place = place.inner(join(&place.path, name.get_ref()), name.span().start);
            (name.into_inner().into_owned(), Node { value, place })
        });
        let entries: Vec<_> = entries.filter(|(_, node)| node.is_read()).collect();
        Self { entries: entries.into_iter(), value: None }
    }
}

impl<'de> MapAccess<'de> for Table<'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some((name, node)) = self.entries.next() else { return Ok(None) };
        let place = node.place.clone();
        self.value = Some(node);
        let key = seed.deserialize(IntoDeserializer::<Error>::into_deserializer(name));
        // The place already names the key.
        key.map(Some).map_err(|error| Error { field: None, ..error }.at(&place))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let node = self.value.take().ok_or_else(|| Error::custom("a value without its key"))?;
        node.read(seed)
    }
}

/// The elements of an array, without the elements that are left out.
struct List<'a>(std::vec::IntoIter<Node<'a>>);

impl<'de> SeqAccess<'de> for List<'de> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        self.0.next().map(|node| node.read(seed)).transpose()
    }
}

/// The first mistake of a pass.
#[derive(Debug, Default)]
struct Error {
    /// Path of the value or the key; empty for the whole text.
    path: String,
    /// Position of the key in the text.
    start: Option<usize>,
    has_place: bool,
    /// A key within the value.
    field: Option<String>,
    /// True when other mistakes may have caused this mistake.
    is_incomplete: bool,
    text: String,
}

impl Error {
    /// The mistake at a place, unless an inner place is known.
    fn at(self, place: &Place<'_>) -> Self {
        if self.has_place {
            return self;
        }
        Self { path: place.path.clone(), start: place.start, has_place: true, ..self }
    }

    /// The mistake with the found value, unless the text names the value already.
    fn with_found(mut self, found: Option<String>) -> Self {
        if let Some(found) = found.filter(|_| !self.has_place && !self.text.contains("found ")) {
            self.text.push_str(&format!(", found {found}"));
        }
        self
    }

    /// Returns true if a value that is left out explains the mistake.
    fn follows_from(&self, left_out: &BTreeSet<String>) -> bool {
        let key = self.field.as_ref().map_or(format!("{}[", self.path), |field| join(&self.path, field));
        self.is_incomplete && left_out.iter().any(|path| path.starts_with(&key))
    }

    fn mistake(&self, text: &str) -> Mistake {
        let key = self.field.as_ref().map_or(self.path.clone(), |field| join(&self.path, field));
        Mistake { line: self.start.map(|start| line_at(text, start)), key, text: self.text.clone() }
    }
}

impl Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}

impl serde::de::Error for Error {
    fn custom<M: Display>(message: M) -> Self {
        Self { text: message.to_string(), ..Self::default() }
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::custom(format_args!("expected {expected}, found {found}"))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(found, expected)
    }

    fn invalid_length(found: usize, expected: &dyn Expected) -> Self {
        let error = Self::custom(format_args!("expected {expected}, found {found} values"));
        Self { is_incomplete: true, ..error }
    }

    fn unknown_variant(found: &str, expected: &'static [&'static str]) -> Self {
        Self::custom(format_args!("expected {}, found {found:?}", one_of(expected)))
    }

    fn unknown_field(found: &str, expected: &'static [&'static str]) -> Self {
        let error = Self::custom(no_such_key(found, expected.iter().copied()));
        Self { field: Some(found.to_owned()), ..error }
    }

    fn missing_field(field: &'static str) -> Self {
        Self { field: Some(field.to_owned()), is_incomplete: true, ..Self::custom("missing") }
    }
}

/// Names in quotes: "a", "b" or "c".
pub fn one_of(names: &[&str]) -> String {
    let names: Vec<_> = names.iter().map(|name| format!("{name:?}")).collect();
    match names.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => "nothing".into(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Network {
        name: String,
        device: Device,
        #[serde(default)]
        row: Vec<Row>,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Device {
        count: Spanned<u8>,
        input: [usize; 3],
        share: Option<f32>,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
    enum Row {
        Pool { size: usize },
        Rule { rule: Rule },
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Rule {
        Entropy,
        MaxProbability,
    }

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        let mistakes = read::<Network>(text).unwrap_err();
        assert_eq!(mistakes.iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_text_without_mistakes_is_read() {
        let text = "name = \"n\"\n[device]\ncount = 6\ninput = [1, 2, 3]\nshare = 1\n\
                    [[row]]\nkind = \"pool\"\nsize = 2\n[[row]]\nkind = \"rule\"\nrule = \"max_probability\"";
        let network: Network = read(text).unwrap();
        assert_eq!((*network.device.count.get_ref(), network.device.share), (6, Some(1.0)));
        assert_eq!(&text[network.device.count.span()], "6");
        assert_eq!(network.row, [Row::Pool { size: 2 }, Row::Rule { rule: Rule::MaxProbability }]);
    }

    #[test]
    fn every_mistake_is_named_once_with_line_and_key() {
        check(
            "nme = \"n\"\n[device]\ncount = 300\ninput = [1, \"x\", 3]\nshare = \"low\"\nshore = 1\n\
             [[row]]\nkind = \"pool\"\nsise = 2\n[[row]]\nkind = \"rule\"\nrule = \"odds\"",
            &[
                "name: missing",
                "line 1: nme: no such key; did you mean `name`?",
                "line 3: device.count: expected u8, found integer `300`",
                "line 4: device.input[1]: expected usize, found string \"x\"",
                "line 5: device.share: expected f32, found string \"low\"",
                "line 6: device.shore: no such key; did you mean `share`?",
                "line 7: row[0].sise: no such key; did you mean `size`?",
                "line 10: row[1]: expected \"entropy\" or \"max_probability\", found \"odds\"",
            ],
        );
    }

    #[test]
    fn what_is_missing_is_named_with_the_line_of_its_table() {
        check("", &["name: missing"]);
        check(
            "name = \"n\"\n[device]\ninput = [1, 2]",
            &[
                "line 2: device.count: missing",
                "line 3: device.input: expected an array of length 3, found 2 values",
            ],
        );
    }

    #[test]
    fn a_text_that_is_no_toml_is_named_with_its_lines() {
        let mistakes = read::<Network>("a = \n[b\n").unwrap_err();
        assert_eq!(mistakes.iter().map(|mistake| mistake.line).collect::<Vec<_>>(), [Some(1), Some(2)]);
        assert!(mistakes[0].in_file(Path::new("n.toml")).starts_with("n.toml:1: "), "{mistakes:?}");
    }
}
