//! Settings as TOML text: the settings in effect, and the commented example file.

use headwater_toml_file::last_part;

use crate::declare::{Declared, Origin, Section, Value};
use crate::load::{Loaded, declared};
use crate::values::literal;

/// Array of tables with the position of the table, and the section in it.
type Heading = (Option<(&'static str, usize)>, String);

impl<S> Loaded<S> {
    /// The settings in effect as a file that the program accepts, each with its source. A secret is named, not shown.
    pub fn to_toml(&self) -> String {
        const COLUMN: usize = 44;
        let line = |value: &Value| {
            let name = last_part(&value.declared.key);
            let setting = match (&value.toml, &value.origin) {
                (Some(toml), _) => format!("{name} = {toml}"),
                (None, Origin::Default) => format!("# {name} is not set"),
                (None, _) => format!("# {name} is a secret"),
            };
            format!("{setting:COLUMN$} # {}\n", value.origin)
        };
        sections(self.values.iter().map(|value| ((value.table, section(&value.declared)), line(value))))
    }
}

/// The commented example file of a declaration. A key that a program needs stands as a setting, every other one as a comment with its
/// example or its default.
pub fn example<S: Section>() -> String {
    let declared = declared::<S>("");
    let line = |option: &Declared| {
        let comment: String = option.description.iter().map(|line| format!("# {line}\n")).collect();
        let off = if option.given.is_required { "" } else { "# " };
        let value = option.given.example.or(option.given.default).map(literal);
        let value = value.map(|value| value.to_string()).unwrap_or_default();
        format!("{comment}{off}{} = {value}\n", last_part(&option.key))
    };
    let in_files = declared.iter().filter(|option| option.is_in_files());
    sections(in_files.map(|option| {
        let table = option.array.map(|array| (array, 0));
        ((table, section(option)), line(option))
    }))
}

fn section(declared: &Declared) -> String {
    declared.key.rsplit_once('.').map_or("", |(section, _)| section).to_owned()
}

/// Text of all lines: the lines without a section first, then section by section, then table by table.
fn sections(lines: impl Iterator<Item = (Heading, String)>) -> String {
    let lines: Vec<_> = lines.collect();
    let mut headings = vec![(None, String::new())];
    for (heading, _) in &lines {
        if !headings.contains(heading) {
            headings.push(heading.clone());
        }
    }
    headings.sort_by_key(|(table, section)| (*table, !section.is_empty()));
    let mut text = String::new();
    for heading in headings {
        match &heading {
            (None, section) if section.is_empty() => {}
            (None, section) => text.push_str(&format!("\n[{section}]\n")),
            (Some((array, _)), section) if section.is_empty() => text.push_str(&format!("\n[[{array}]]\n")),
            (Some((array, _)), section) => text.push_str(&format!("\n[{array}.{section}]\n")),
        }
        lines.iter().filter(|(of, _)| *of == heading).for_each(|(_, line)| text.push_str(line));
    }
    text
}
