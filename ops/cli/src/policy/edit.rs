//! Changes to the text of a policy file. Comments and the order of keys stay.

use headwater_inference::policy::{Policy, PolicyChanges};
use headwater_protocol::Exit;
use headwater_settings::nearest;
use toml_edit::{Document, DocumentMut, Item, Table, Value};

use crate::BadUsage;

/// A change of one key.
#[derive(Clone, Debug)]
pub(super) struct Edit {
    pub(super) key: String,
    /// The value; `None` takes the key out of the file.
    value: Option<Value>,
}

impl Edit {
    /// Reads `KEY=VALUE` or `KEY=`. Text that is no number, list or quoted word is taken as a word.
    pub(super) fn parse(argument: &str) -> Result<Self, BadUsage> {
        let Some((key, value)) = argument.split_once('=') else {
            return Err(BadUsage(format!("expected KEY=VALUE, such as window_ms=80, found {argument:?}")));
        };
        let (mut edit, text) = (Self::unset(key)?, value.trim());
        if !text.is_empty() {
            let value = text.parse::<Value>().unwrap_or_else(|_| text.into());
            // The value alone is checked first, so that the mistake names the argument.
            PolicyChanges::parse(&format!("{} = {value}", edit.key))
                .map_err(|mistake| BadUsage(format!("{}={text}: {}", edit.key, mistake.reason())))?;
            edit.value = Some(value);
        }
        Ok(edit)
    }

    /// Takes a key out of the file.
    pub(super) fn unset(key: &str) -> Result<Self, BadUsage> {
        let key = key.trim().to_owned();
        let exit = key.rsplit_once('.').and_then(|(exit, _)| Exit::from_name(exit));
        let known = Policy::keys(Exit::FIRST.into_iter().chain(exit.filter(|exit| exit.index() > 0)));
        if !known.contains(&key) {
            let near = nearest(&key, known.iter().map(String::as_str));
            let hint = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
            return Err(BadUsage(format!(
                "{key}: expected a key of a policy ({}), found another{hint}",
                known.join(", ")
            )));
        }
        Ok(Self { key, value: None })
    }

    /// Whether the change gives the key a value.
    pub(super) fn is_set(&self) -> bool {
        self.value.is_some()
    }

    /// The text after the change.
    ///
    /// # Errors
    /// Text that is not TOML, or has something else in the place of a section.
    pub(super) fn apply_to(&self, text: &str) -> Result<String, String> {
        match &self.value {
            Some(value) => set(text, &self.key, value.clone()),
            None => remove(text, &self.key),
        }
    }
}

/// Section and name of a key.
fn parts(key: &str) -> (Option<&str>, &str) {
    key.rsplit_once('.').map_or((None, key), |(section, name)| (Some(section), name))
}

fn set(text: &str, key: &str, mut value: Value) -> Result<String, String> {
    let mut document: DocumentMut = text.parse().map_err(|error: toml_edit::TomlError| error.to_string())?;
    // A text of comments alone has them behind its last key. They shall stay in front of the new one.
    let comments = document.is_empty().then(|| document.trailing().as_str().unwrap_or_default().to_owned());
    if comments.is_some() {
        document.set_trailing("");
    }
    let comments = comments.filter(|comments| !comments.is_empty());
    let (section, name) = parts(key);
    let table = match section {
        None => document.as_table_mut() as &mut dyn toml_edit::TableLike,
        Some(section) => {
            let mut table = document.as_table_mut() as &mut dyn toml_edit::TableLike;
            let mut names = section.split('.').peekable();
            while let Some(name) = names.next() {
                let mut new = Table::new();
                // The section of a further exit stands without an empty one of its word above.
                new.set_implicit(names.peek().is_some());
                if let Some(comments) = &comments {
                    new.decor_mut().set_prefix(format!("{comments}\n"));
                }
                let item = table.entry(name).or_insert(Item::Table(new));
                let found = item.as_table_like_mut();
                table = found.ok_or_else(|| format!("{section}: expected a section, found a value"))?;
            }
            table
        }
    };
    match table.get_mut(name).and_then(Item::as_value_mut) {
        Some(old) => {
            // The comment behind the value belongs to its decoration.
            *value.decor_mut() = old.decor().clone();
            *old = value;
        }
        None => {
            table.insert(name, Item::Value(value));
            if let (None, Some(comments), Some(mut key)) = (section, &comments, table.key_mut(name)) {
                key.leaf_decor_mut().set_prefix(format!("{comments}\n"));
            }
        }
    }
    Ok(document.to_string())
}

/// Removes the lines of a key. Comments above the key stay.
fn remove(text: &str, key: &str) -> Result<String, String> {
    let document = Document::parse(text.to_owned()).map_err(|error| error.to_string())?;
    let (section, name) = parts(key);
    let mut sections = section.iter().flat_map(|section| section.split('.'));
    let table = sections.try_fold(document.as_item(), |item, name| item.get(name));
    let found = table.and_then(Item::as_table_like).and_then(|table| table.get_key_value(name));
    let Some((found, item)) = found else { return Ok(text.to_owned()) };
    let is_dotted = item.as_table().is_some_and(Table::is_dotted);
    if let (Some(section), true) = (section, is_dotted || table.is_some_and(Item::is_inline_table)) {
        // Other keys may stand on the line of an inline table, or between the lines of dotted keys.
        let mut document = document.into_mut();
        let item = section.split('.').try_fold(document.as_item_mut(), |item, name| item.get_mut(name));
        item.and_then(Item::as_table_like_mut).map(|table| table.remove(name));
        return Ok(document.to_string());
    }
    let (Some(first), Some(last)) = (found.span(), item.span()) else {
        return Err(format!("{key}: its lines are not known; take it out by hand"));
    };
    // The span of a section is that of its header.
    let inner = item.as_table().into_iter().flat_map(Table::iter).filter_map(|(_, value)| value.span());
    let last_end = inner.map(|span| span.end).fold(last.end, usize::max);
    let begin = text[..first.start].rfind('\n').map_or(0, |at| at + 1);
    let end = text[last_end..].find('\n').map_or(text.len(), |at| last_end + at + 1);
    Ok(format!("{}{}", &text[..begin], &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, argument: &str, expected: &str) {
        let edit = Edit::parse(argument).unwrap();
        assert_eq!(edit.apply_to(text).unwrap(), expected);
    }

    #[track_caller]
    fn check_refused(argument: &str, expected: &str) {
        let error = Edit::parse(argument).unwrap_err().to_string();
        assert!(error.contains(expected), "{expected} in {error}");
    }

    #[test]
    fn a_further_exit_has_a_section_of_its_own() {
        check("", "cloud.1.threshold=0.25", "[cloud.1]\nthreshold = 0.25\n");
        let below = "[cloud]\nthreshold = 1.0\n\n[cloud.1]\nthreshold = 0.5\n";
        check(below, "cloud.1.threshold=0.25", &below.replace("0.5", "0.25"));
        for text in [
            "[cloud.1]\nthreshold = 0.5\n",
            "cloud.1.threshold = 0.5\n",
            "[cloud]\n1 = { threshold = 0.5 }\n",
        ] {
            let back = Edit::unset("cloud.1.threshold").unwrap().apply_to(text).unwrap();
            assert_eq!(PolicyChanges::parse(&back).unwrap().keys().count(), 0, "{back}");
        }
    }

    #[test]
    fn a_value_is_replaced_and_comments_stay() {
        check(
            "# mine\nwindow_ms = 40 # short\n\n[local]\n# sure enough\nthreshold = 0.5 # found by hand\n",
            "local.threshold=0.4",
            "# mine\nwindow_ms = 40 # short\n\n[local]\n# sure enough\nthreshold = 0.4 # found by hand\n",
        );
        check("local.threshold = 0.5\n", "local.threshold=[0.6, 0.5]", "local.threshold = [0.6, 0.5]\n");
        check("local = { threshold = 0.5 }\n", "local.threshold=1", "local = { threshold = 1 }\n");
    }

    #[test]
    fn a_new_key_comes_into_its_section_and_behind_the_comments_of_an_empty_file() {
        check("", "window_ms=40", "window_ms = 40\n");
        check("", "edge.rule=margin", "[edge]\nrule = \"margin\"\n");
        check(
            "[local]\nthreshold = 0.5\n",
            "local.rule=margin",
            "[local]\nthreshold = 0.5\nrule = \"margin\"\n",
        );
        check("[local]\nthreshold = 0.5\n", "window_ms=9", "window_ms = 9\n[local]\nthreshold = 0.5\n");
        check("# a\n\n# b\n", "window_ms=9", "# a\n\n# b\n\nwindow_ms = 9\n");
        check("# a\n", "edge.rule=margin", "# a\n\n[edge]\nrule = \"margin\"\n");
    }

    #[test]
    fn a_key_is_taken_out_with_its_lines_and_comments_above_stay() {
        let text =
            "# of the file\nwindow_ms = 40 # short\n[local]\nthreshold = [\n  0.5,\n]\nrule = \"margin\"\n";
        check(text, "window_ms=", "# of the file\n[local]\nthreshold = [\n  0.5,\n]\nrule = \"margin\"\n");
        check(
            text,
            "local.threshold=",
            "# of the file\nwindow_ms = 40 # short\n[local]\nrule = \"margin\"\n",
        );
        check(text, "edge.rule=", text);
        check(
            "local = { threshold = 0.5, rule = \"margin\" }\n",
            "local.threshold=",
            "local = { rule = \"margin\" }\n",
        );
        check("window_ms = 40", "window_ms=", "");
    }

    #[test]
    fn the_example_file_takes_every_key() {
        let example = include_str!("../../../../docs/policy.toml");
        const WEIGHTS: &str =
            "{ bias = -4.5, disagreement = 2.0, entropy = 3.0, margin = 0.0, present = -0.1 }";
        for (key, value) in Policy::default().values() {
            let value = if value.is_none() { WEIGHTS.to_owned() } else { value.to_string() };
            let edit = Edit::parse(&format!("{key}={value}")).unwrap();
            let changed = edit.apply_to(example).unwrap();
            assert!(changed.starts_with(example), "{changed}");
            assert_eq!(PolicyChanges::parse(&changed).unwrap().keys().collect::<Vec<_>>(), [&key]);
            let back = Edit::unset(&key).unwrap().apply_to(&changed).unwrap();
            assert_eq!(PolicyChanges::parse(&back).unwrap().keys().count(), 0, "{back}");
        }
    }

    #[test]
    fn weights_are_one_key_as_an_inline_table_or_a_section() {
        const WEIGHTS: &str = "{ bias = 1, disagreement = 2, entropy = 3, margin = 4, present = 5 }";
        let section = format!(
            "[local]\nthreshold = 0.5\n\n[local.weights]\n{}\n\n[edge]\nthreshold = 0.4\n",
            WEIGHTS.trim_matches(['{', '}']).replace(", ", "\n").trim()
        );
        let changed = Edit::parse(&format!("local.weights={WEIGHTS}")).unwrap().apply_to(&section).unwrap();
        let keys =
            |text: &str| PolicyChanges::parse(text).unwrap().keys().map(str::to_owned).collect::<Vec<_>>();
        assert!(changed.contains(&format!("weights = {WEIGHTS}")), "{changed}");
        assert_eq!(keys(&changed), ["edge.threshold", "local.threshold", "local.weights"]);
        let dotted = WEIGHTS.trim_matches(['{', '}']).trim().replace(", ", "\nlocal.weights.");
        let dotted = format!("local.weights.{dotted}\nlocal.threshold = 0.5\nedge.threshold = 0.4\n");
        for text in [&section, &changed, &dotted] {
            let without = Edit::unset("local.weights").unwrap().apply_to(text).unwrap();
            assert_eq!(keys(&without), ["edge.threshold", "local.threshold"], "{without}");
        }
        check_refused(
            "local.weights={ bias = 1 }",
            "local.weights={ bias = 1 }: local.weights.entropy: missing",
        );
    }

    #[test]
    fn mistakes_name_the_argument_and_what_was_expected() {
        check_refused(
            "local.threshold=1.5",
            "local.threshold=1.5: local.threshold: exit threshold: expected a number in [0, 1], found 1.5",
        );
        check_refused("local.rule=odds", "local.rule=odds: local.rule: expected \"entropy\", ");
        check_refused("window_ms=0", "window_ms=0: window_ms: expected 1 to 60000 milliseconds, found 0");
        check_refused("window_ms=0.5", "window_ms=0.5: ");
        check_refused("local.treshold=0.5", "local.treshold: expected a key of a policy (window_ms, ");
        check_refused("local.treshold=0.5", "found another; did you mean `local.threshold`?");
        check_refused("windw_ms=5", "did you mean `window_ms`?");
        check_refused("window_ms", "expected KEY=VALUE, such as window_ms=80, found \"window_ms\"");
        check_refused("local={}", "local: expected a key");
        assert!(Edit::parse("local.rule=margin").unwrap().apply_to("local = 3").is_err());
    }
}
