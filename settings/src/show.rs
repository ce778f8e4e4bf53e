//! Settings as TOML text: those in effect, and the commented example file.

use crate::load::{Inputs, Loaded, Origin, Settings, Value, read};
use crate::mistakes::last_part;
use crate::sources::flatten;

impl<S> Loaded<S> {
    /// Leaves out the values of a struct of the settings that is not in use.
    #[must_use]
    pub fn without(mut self, part: &str) -> Self {
        let is_of = |path: &str| path.strip_prefix(part).is_some_and(|rest| rest.starts_with('.'));
        self.values.retain(|value| !is_of(&value.declared.path));
        self
    }

    /// The settings in effect as a file that the program accepts, each with where the value came from. `array` is the name of the array
    /// of tables that this table belongs to. A secret is named, not shown.
    pub fn to_toml(&self, array: Option<&str>) -> String {
        const COLUMN: usize = 44;
        sections(&self.values, array, |name, value| {
            let setting = match (&value.toml, &value.origin) {
                (Some(toml), _) => format!("{name} = {toml}"),
                (None, Origin::Default) => format!("# {name} is not set"),
                (None, _) => format!("# {name} is a secret"),
            };
            format!("{setting:COLUMN$} # {}\n", value.origin)
        })
    }
}

/// The commented example file of a declaration. `values` is a file with a value for each key that has no default. A key that a program
/// needs stands as a setting, every other one as a comment with its default or that value.
///
/// # Errors
/// Every key without default and value, and every mistake of the values.
pub fn example<S: Settings>(array: Option<&str>, values: &str) -> Result<String, Vec<String>> {
    let mut mistakes = Vec::new();
    let file = values.parse().map_err(|error: toml::de::Error| vec![error.to_string()])?;
    let inputs = Inputs { file: flatten(file), ..Inputs::default() };
    // No arguments, so that nobody asks for help.
    let loaded = read::<S>(inputs, &mut mistakes).ok().flatten();
    let values = loaded.map(|loaded| loaded.values).unwrap_or_default();
    // A secret has no place in a file.
    let values: Vec<_> = values.into_iter().filter(|value| value.declared.is_in_files()).collect();
    let without = values.iter().filter(|value| value.toml.is_none());
    mistakes.extend(without.map(|value| format!("{}: expected an example, found none", value.declared.key)));
    if !mistakes.is_empty() {
        return Err(mistakes);
    }
    Ok(sections(&values, array, |name, value| {
        let comment: String =
            value.declared.description.lines().map(|line| format!("# {}\n", line.trim())).collect();
        let off = if value.declared.is_required { "" } else { "# " };
        let toml = value.toml.as_ref().map(ToString::to_string).unwrap_or_default();
        format!("{comment}{off}{name} = {toml}\n")
    }))
}

/// Text of all values: those without a section first, then section by section.
fn sections(values: &[Value], array: Option<&str>, line: impl Fn(&str, &Value) -> String) -> String {
    let section_of =
        |value: &Value| value.declared.key.rsplit_once('.').map_or("", |(section, _)| section).to_owned();
    let mut names = vec![String::new()];
    for section in values.iter().map(section_of) {
        if !names.contains(&section) {
            names.push(section);
        }
    }
    let mut text = String::new();
    for section in names {
        match (array, section.as_str()) {
            (None, "") => {}
            (None, section) => text.push_str(&format!("\n[{section}]\n")),
            (Some(array), "") => text.push_str(&format!("\n[[{array}]]\n")),
            (Some(array), section) => text.push_str(&format!("\n[{array}.{section}]\n")),
        }
        for value in values.iter().filter(|value| section_of(value) == section) {
            text.push_str(&line(last_part(&value.declared.key), value));
        }
    }
    text
}
