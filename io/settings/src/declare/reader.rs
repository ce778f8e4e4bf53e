//! Reads declared keys from their sources, and notes every mistake.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fmt;

use headwater_toml_file::{Document, Located, no_such_key};
use toml::Value as Toml;

use super::{Declared, Field, Given, Places, Section, Tables, place};
use crate::values::{Mistake, as_text, as_toml, literal};

/// One setting in effect.
#[derive(Clone, Debug)]
pub struct Value {
    /// The setting's declaration.
    pub declared: Declared,
    /// Array and position of the table that the setting belongs to; `None` outside tables.
    pub table: Option<(&'static str, usize)>,
    /// Value as a file would hold it; `None` if nothing is set, and for a secret.
    pub toml: Option<Toml>,
    /// Source of the value.
    pub origin: Origin,
}

impl Value {
    /// Key with the place of its table.
    pub fn key(&self) -> String {
        place(self.table) + &self.declared.key
    }
}

/// Source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A flag of the command line.
    Flag(String),
    /// An environment variable.
    Environment(String),
    /// A line of the file.
    File(usize),
    /// The default of the declaration, which may be none.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(name) => write!(f, "flag --{name}"),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::File(line) => write!(f, "file, line {line}"),
            Self::Default => f.write_str("default"),
        }
    }
}

/// Values of the command line, the environment and the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inputs {
    /// Values by flag; a switch has none.
    pub(crate) flags: BTreeMap<String, OsString>,
    pub(crate) environment: BTreeMap<String, OsString>,
    pub(crate) document: Document,
    /// Name of the file; empty for a text without one.
    pub(crate) file: String,
    /// For each key of a table, the line of the table, which a mistake names if no source has the key.
    pub(crate) table_lines: BTreeMap<String, usize>,
}

impl Inputs {
    /// A line of the file in brackets, to be put behind the text of a mistake.
    pub(crate) fn place_of(&self, line: usize) -> String {
        match self.file.as_str() {
            "" => format!(" (line {line})"),
            file => format!(" ({file}:{line})"),
        }
    }
}

/// Reads keys. Collects the declarations, the values found, and the mistakes.
#[derive(Debug)]
pub struct Reader<'a> {
    inputs: &'a Inputs,
    prefix: &'static str,
    document: Document,
    sections: Vec<&'static str>,
    /// A key of the section that is being read, and the example that the section gives it.
    example: Option<(&'static str, &'static str)>,
    array: Option<&'static str>,
    table: Option<(&'static str, usize)>,
    /// Every key in the order of declaration.
    pub(crate) values: Vec<Value>,
    pub(crate) mistakes: Vec<String>,
    /// Keys whose value is missing or wrong; a default or an example stands in for the value.
    pub(crate) wrong: BTreeSet<String>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(inputs: &'a Inputs, prefix: &'static str) -> Self {
        Self {
            inputs,
            prefix,
            document: inputs.document.clone(),
            sections: Vec::new(),
            example: None,
            array: None,
            table: None,
            values: Vec::new(),
            mistakes: Vec::new(),
            wrong: BTreeSet::new(),
        }
    }

    /// Reads a field.
    pub fn field<T>(&mut self, name: &'static str, docs: &[&str], field: impl Field<T>) -> Option<T> {
        field.read(self, name, docs)
    }

    /// Reads a struct, whose keys are in a section if `section` names one.
    pub(crate) fn within<T>(
        &mut self,
        section: Option<&'static str>,
        example: Option<(&'static str, &'static str)>,
        read: impl Fn(&mut Self) -> Option<T>,
    ) -> Option<T> {
        let outer = self.sections.len();
        self.example = example;
        self.sections.extend(section);
        let found = read(self);
        self.sections.truncate(outer);
        self.example = None;
        found
    }

    /// Reads one key. After a mistake the default or the example stands in for the value, so that the other settings can still be checked
    /// against each other.
    pub(crate) fn key<T>(
        &mut self,
        name: &'static str,
        docs: &[&str],
        given: Given,
        parse: impl Fn(&str) -> Result<T, Mistake>,
    ) -> Option<T> {
        let example = self.example.filter(|(key, _)| *key == name).map(|(_, example)| example);
        let given = Given { example: example.or(given.example), ..given };
        let declared = self.declare(name, docs, given);
        let found = self.find(&declared);
        let shown = |toml: &Toml| declared.is_in_files().then(|| toml.clone());
        let (toml, origin) = found.unzip();
        let default = given.default.map(literal);
        let in_effect = toml.as_ref().or(default.as_ref());
        let value = Value {
            toml: in_effect.and_then(shown),
            origin: origin.unwrap_or(Origin::Default),
            table: self.table,
            declared,
        };
        let stand_in = || parse(&as_text(&literal(given.default.or(given.example)?))).ok();
        let read = match in_effect {
            Some(Toml::Integer(_) | Toml::String(_))
                if given.is_switch && matches!(value.origin, Origin::File(_)) =>
            {
                let found = in_effect.map(ToString::to_string).unwrap_or_default();
                Err(Mistake(format!("expected true or false, found {found}")))
            }
            Some(toml) => parse(&as_text(toml)).map(Some).map_err(|mistake| mistake.with_found(toml)),
            None if given.is_required => Err(Mistake("missing".into())),
            None => Ok(None),
        };
        let read = read.unwrap_or_else(|Mistake(text)| {
            let line = self.inputs.table_lines.get(&value.declared.key).filter(|_| in_effect.is_none());
            let place = line.map_or_else(|| self.suffix(&value.origin), |line| self.inputs.place_of(*line));
            self.mistakes.push(format!("{}: {text}{place}", value.key()));
            self.wrong.insert(value.key());
            if given.is_required || given.default.is_some() { stand_in() } else { None }
        });
        self.values.push(value);
        read
    }

    fn declare(&self, name: &str, docs: &[&str], given: Given) -> Declared {
        let words: Vec<&str> = self.sections.iter().copied().chain([name]).collect();
        let flag = (given.places != Places::Environment).then(|| words.join("-").replace('_', "-"));
        let variable = || format!("{}{}", self.prefix, words.join("_").to_uppercase());
        Declared {
            key: words.join("."),
            flag,
            environment: (given.places != Places::Flag).then(variable),
            description: docs.iter().map(|line| line.trim().to_owned()).collect(),
            array: self.array,
            given,
        }
    }

    /// The value from the source of the highest precedence. In a table of an array only the file counts, and a switch of the command line.
    fn find(&mut self, declared: &Declared) -> Option<(Toml, Origin)> {
        let in_file = if declared.is_in_files() { self.document.values.remove(&declared.key) } else { None };
        let in_file = in_file.map(|Located { value, line }| (value, Origin::File(line)));
        let flag = declared.flag.as_ref().and_then(|flag| self.inputs.flags.get_key_value(flag));
        let flag = flag.map(|(flag, value)| (of_os(value), Origin::Flag(flag.clone())));
        if self.table.is_some() {
            return flag.filter(|_| declared.given.is_switch).or(in_file);
        }
        let variable = declared.variable_of(&self.inputs.environment);
        let variable = variable.map(|(name, value)| (of_os(value), Origin::Environment(name.clone())));
        flag.or(variable).or(in_file)
    }

    /// Reads an array of tables; if the file has no such array, reads one table from the other settings.
    pub(crate) fn tables<T: Section>(&mut self, array: &'static str) -> Option<Tables<T>> {
        self.array = Some(array);
        let documents = self.document.tables.remove(array).unwrap_or_default();
        if documents.is_empty() {
            let read = T::read(self);
            self.array = None;
            return read.map(|table| Tables { array: None, all: vec![table] });
        }
        self.refuse_outside::<T>(array);
        let outer = std::mem::take(&mut self.document);
        let mut all = Vec::new();
        for (index, document) in documents.into_iter().enumerate() {
            (self.document, self.table) = (document, Some((array, index)));
            let first = self.values.len();
            all.push(T::read(self));
            self.refuse_unknown(first);
        }
        (self.document, self.table, self.array) = (outer, None, None);
        let all: Option<_> = all.into_iter().collect();
        all.map(|all| Tables { array: Some(array), all })
    }

    /// Refuses settings of a table that stand outside the tables. A switch of the command line holds for every table.
    fn refuse_outside<T: Section>(&mut self, array: &str) {
        let nothing = Inputs::default();
        let mut of_table = Reader::new(&nothing, self.prefix);
        T::read(&mut of_table);
        for Value { declared, .. } in of_table.values {
            let in_file = self.document.values.remove(&declared.key);
            let flag = declared.flag.as_ref().filter(|flag| self.inputs.flags.contains_key(*flag));
            let flag = flag.filter(|_| !declared.given.is_switch);
            let variable = declared.variable_of(&self.inputs.environment);
            let origins = flag.map(|flag| Origin::Flag(flag.clone())).into_iter();
            let origins = origins.chain(variable.map(|(name, _)| Origin::Environment(name.clone())));
            for origin in origins.chain(in_file.map(|found| Origin::File(found.line))) {
                let (key, suffix) = (&declared.key, self.suffix(&origin));
                self.mistakes.push(format!(
                    "{key}: expected one {array} by settings of its own or several as [[{array}]], found both; write the setting into a \
                     table [[{array}]], or leave it out{suffix}"
                ));
            }
        }
    }

    /// Refuses the keys of the file that no field has read. `first` is the position of the table's first value in `values`.
    pub(crate) fn refuse_unknown(&mut self, first: usize) {
        let document = std::mem::take(&mut self.document);
        let keys = document.values.into_iter().map(|(key, found)| (key, found.line));
        let tables = document.tables.into_iter();
        let tables = tables.map(|(key, tables)| (key, tables.first().map_or(1, |table| table.line)));
        let known = || self.values[first..].iter().map(|value| &value.declared);
        let mut mistakes: Vec<_> = keys
            .chain(tables)
            .map(|(key, line)| {
                let in_files = known().filter(|known| known.is_in_files()).map(|known| known.key.as_str());
                let own = known().find(|known| known.key == key);
                let is_section = known().any(|known| known.key.starts_with(&format!("{key}.")));
                let reason = match own.and_then(|known| known.environment.as_ref()) {
                    Some(variable) => format!("only in the environment, {variable}"),
                    None if is_section => format!("expected a section [{key}], found a value"),
                    None => no_such_key(&key, in_files),
                };
                format!("{}{key}: {reason}{}", place(self.table), self.suffix(&Origin::File(line)))
            })
            .collect();
        self.mistakes.append(&mut mistakes);
    }

    /// The place of a mistake in brackets, to be put behind the mistake's text; empty for a default.
    pub(crate) fn suffix(&self, origin: &Origin) -> String {
        match origin {
            Origin::File(line) => self.inputs.place_of(*line),
            Origin::Flag(_) | Origin::Environment(_) => format!(" ({origin})"),
            Origin::Default => String::new(),
        }
    }
}

/// A value of the command line or the environment as a file would hold it.
fn of_os(value: &OsStr) -> Toml {
    as_toml(&value.to_string_lossy())
}
