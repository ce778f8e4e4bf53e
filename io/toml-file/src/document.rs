//! Values of a file by their keys.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::de::{DeTable, DeValue, ValueDeserializer};
use toml::{Spanned, Value};

use crate::mistake::Mistake;

/// Values of a file, or of one table of an array of tables.
#[derive(Clone, Debug, Default)]
pub struct Document {
    /// Values by key with the names of their sections, such as `broker.address`.
    pub values: BTreeMap<String, Located>,
    /// Arrays of tables by key.
    pub tables: BTreeMap<String, Vec<Document>>,
    /// Line of the first key, from 1; 0 without keys.
    pub line: usize,
}

/// A value with its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Located {
    /// The value.
    pub value: Value,
    /// Line of the key, from 1.
    pub line: usize,
}

impl Document {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// Every place that is not TOML.
    pub fn parse(text: &str) -> Result<Self, Vec<Mistake>> {
        let (table, errors) = DeTable::parse_recoverable(text);
        if !errors.is_empty() {
            return Err(syntax_mistakes(text, &errors));
        }
        let mut document = Self::default();
        document.add("", table.into_inner(), text).map_err(|error| syntax_mistakes(text, &[error]))?;
        Ok(document)
    }

    fn add(&mut self, section: &str, table: DeTable<'_>, text: &str) -> Result<(), toml::de::Error> {
        for (name, value) in table {
            let key = format!("{section}{}", name.get_ref());
            let line = line_at(text, name.span().start);
            let first = if self.line == 0 { line } else { self.line.min(line) };
            self.line = first;
            let span = value.span();
            match value.into_inner() {
                DeValue::Table(inner) => self.add(&format!("{key}."), inner, text)?,
                DeValue::Array(array)
                    if !array.is_empty() && array.iter().all(|value| value.get_ref().is_table()) =>
                {
                    let mut tables = Vec::new();
                    for value in array {
                        let mut document = Self::default();
                        if let DeValue::Table(table) = value.into_inner() {
                            document.add("", table, text)?;
                        }
                        tables.push(document);
                    }
                    self.tables.insert(key, tables);
                }
                other => {
                    let value = Value::deserialize(ValueDeserializer::from(Spanned::new(span, other)))?;
                    self.values.insert(key, Located { value, line });
                }
            }
        }
        Ok(())
    }
}

/// Places that are not TOML, in the order of their lines.
pub(crate) fn syntax_mistakes(text: &str, errors: &[toml::de::Error]) -> Vec<Mistake> {
    let mistake = |error: &toml::de::Error| {
        let line = error.span().map(|span| line_at(text, span.start));
        let mut message = error.message().trim_end().replace('\n', "; ");
        if message == "duplicate key"
            && let Some(again) = error.span().and_then(|span| text.get(span))
        {
            message += &format!(" `{again}`");
        }
        Mistake { line, key: String::new(), text: message }
    };
    let mut mistakes: Vec<_> = errors.iter().map(mistake).collect();
    mistakes.sort_by_key(|mistake| mistake.line);
    mistakes
}

/// Line of a byte position in a text, from 1.
pub fn line_at(text: &str, at: usize) -> usize {
    1 + text.bytes().take(at).filter(|&byte| byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_its_key_and_its_line() {
        let text = "a = 1\n\n[broker]\naddress = \"x\"\ntimes.first_ms = 5\n[[group]]\nname = \"north\"\n\
                    [group.journal]\npath = \"p\"\n[[group]]\nname = 3\n";
        let document = Document::parse(text).unwrap();
        let lines: Vec<_> = document.values.iter().map(|(key, found)| (key.as_str(), found.line)).collect();
        assert_eq!(lines, [("a", 1), ("broker.address", 4), ("broker.times.first_ms", 5)]);
        let groups = &document.tables["group"];
        assert_eq!((groups.len(), groups[0].line, groups[1].line), (2, 7, 11));
        assert_eq!(groups[0].values["journal.path"].line, 9);
        assert_eq!(groups[1].values["name"].value, Value::Integer(3));
    }

    #[test]
    fn every_place_that_is_no_toml_is_named_with_its_line() {
        let mistakes = Document::parse("a = \nb = 1\n[c\n").unwrap_err();
        let lines: Vec<_> = mistakes.iter().map(|mistake| mistake.line).collect();
        assert_eq!(lines, [Some(1), Some(3)], "{mistakes:?}");
        assert!(mistakes.iter().all(|mistake| !mistake.text.contains('\n')), "{mistakes:?}");
        let twice = &Document::parse("a = 1\nname = 1\nname = 2").unwrap_err()[0];
        assert_eq!((twice.line, twice.text.as_str()), (Some(3), "duplicate key `name`"));
    }

    #[test]
    fn a_list_of_values_is_a_value_and_an_empty_list_too() {
        let document = Document::parse("a = [1, 2]\nb = []").unwrap();
        assert_eq!((document.values.len(), document.tables.len()), (2, 0));
    }
}
