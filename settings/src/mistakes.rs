//! Mistakes of settings: key, expected, found, and the nearest name that is known.

use std::collections::BTreeMap;
use std::ffi::OsString;

use toml::Value as Toml;

use crate::declared::Declared;
use crate::load::{Inputs, Settings};

/// Refusal of a key that is not known, with the nearest known one.
pub(crate) fn no_such_setting<'a>(key: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    match nearest(key, known) {
        Some(known) => format!("{key}: no such setting; did you mean `{known}`?"),
        None => format!("{key}: no such setting"),
    }
}

/// The known key nearest to a misspelt one. A key is near when at most a third of its letters change, in the whole key or behind the
/// section's name.
pub fn nearest<'a>(key: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Longer words are no typing mistakes, and the cost grows with their length.
    const MAX_LETTERS: usize = 64;
    let distance = |found: &str, known: &str| {
        let distance = strsim::osa_distance(found, known);
        (distance <= found.len().max(known.len()).div_ceil(3)).then_some(distance)
    };
    let known = known.into_iter().filter(|_| key.len() <= MAX_LETTERS);
    let near = known.filter_map(|known| {
        let behind_section = || distance(last_part(key), last_part(known));
        let near = distance(key, known).or_else(behind_section)?;
        // Keys of several sections may end alike: the nearest as a whole is meant.
        Some(((near, strsim::osa_distance(key, known)), known))
    });
    near.min_by_key(|(distances, _)| *distances).map(|(_, known)| known)
}

/// Name of a key without its section.
pub(crate) fn last_part(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or(key)
}

/// Takes keys out of the file that no file may hold, each with a mistake.
pub(crate) fn refuse_unknown(
    file: &mut BTreeMap<String, Toml>,
    declared: &[Declared],
    mistakes: &mut Vec<String>,
) {
    let in_files = || declared.iter().filter(|option| option.is_in_files()).map(|option| option.key.as_str());
    file.retain(|key, _| {
        let is_known = in_files().any(|known| known == key);
        if !is_known {
            mistakes.push(match declared.iter().find(|option| option.key == *key) {
                Some(Declared { environment: Some(variable), .. }) => {
                    format!("{key}: only in the environment, {variable}")
                }
                _ => no_such_setting(key, in_files()),
            });
        }
        is_known
    });
}

/// Refuses values of switches that are neither true nor false.
pub(crate) fn refuse_unclear_switches<S: Settings>(
    inputs: &Inputs,
    declared: &[Declared],
    mistakes: &mut Vec<String>,
) {
    for option in declared.iter().filter(|option| S::SWITCHES.contains(&option.key.as_str())) {
        let key = &option.key;
        if let Some(found) = inputs.file.get(key).filter(|value| !value.is_bool()) {
            mistakes.push(format!("{key}: expected true or false, found {found}"));
        }
        let variable = option.environment.as_ref();
        let given = variable.and_then(|variable| Some((variable, inputs.environment.get(variable)?)));
        let is_clear = |text: &OsString| ["true", "false", "1", "0"].iter().any(|clear| text == clear);
        if let Some((variable, text)) = given.filter(|(_, text)| !is_clear(text)) {
            mistakes.push(format!("{key}: expected true or false, found {text:?} (environment {variable})"));
        }
    }
}

/// Gives values under another name to the name of the declaration. An old name is a mistake; its value is still checked.
pub(crate) fn rename<S: Settings>(inputs: &mut Inputs, declared: &[Declared], mistakes: &mut Vec<String>) {
    for (alias, key) in S::ALIASES {
        let variable =
            declared.iter().find(|option| option.key == *key).and_then(|option| option.environment.clone());
        if let (Some(variable), Some(value)) = (variable, inputs.environment.get(*alias).cloned()) {
            inputs.environment.entry(variable).or_insert(value);
        }
    }
    for &(old, new) in S::RENAMED {
        let option = declared.iter().find(|option| option.key == new);
        let Some(Declared { flag: Some(flag), environment: Some(variable), .. }) = option else { continue };
        if let Some(value) = inputs.file.remove(old) {
            mistakes.push(format!("{old}: is now `{new}`"));
            inputs.file.entry(new.into()).or_insert(value);
        }
        let old_variable = variable_of::<S>(old);
        if declared.iter().all(|option| option.environment.as_ref() != Some(&old_variable))
            && let Some(value) = inputs.environment.remove(&old_variable)
        {
            mistakes.push(format!("{old_variable}: is now {variable}"));
            inputs.environment.entry(variable.clone()).or_insert(value);
        }
        let old_flag = format!("--{}", old.replace(['_', '.'], "-"));
        if declared.iter().all(|option| option.flag.as_deref() != old_flag.strip_prefix("--")) {
            for argument in &mut inputs.arguments {
                let text = argument.to_string_lossy();
                if let Some(rest) = text.strip_prefix(&old_flag)
                    && (rest.is_empty() || rest.starts_with('='))
                {
                    mistakes.push(format!("{old_flag}: is now --{flag}"));
                    *argument = format!("--{flag}{rest}").into();
                }
            }
        }
    }
}

/// Warnings of variables that look like settings of this program and are none.
///
/// A variable with the program's prefix is unknown unless it belongs to another program. A variable with another prefix is one where at
/// most two letters differ from a known name.
pub(crate) fn unknown_variables<S: Settings>(
    environment: &BTreeMap<String, OsString>,
    declared: &[Declared],
) -> Vec<String> {
    const MAX_LETTERS: usize = 2;
    let aliases = S::ALIASES.iter().map(|(alias, _)| *alias);
    let known: Vec<_> =
        declared.iter().filter_map(|option| option.environment.as_deref()).chain(aliases).collect();
    let old = |name: &str| S::RENAMED.iter().any(|(old, _)| variable_of::<S>(old) == name);
    let is_unknown = |name: &&String| {
        let is_near = || known.iter().any(|known| strsim::osa_distance(name, known) <= MAX_LETTERS);
        let is_own = name.starts_with(S::OLD_VARIABLES) && !is_of_others(name, S::OTHER_VARIABLES);
        name.starts_with(OUR_PREFIX) && !known.contains(&name.as_str()) && !old(name) && (is_own || is_near())
    };
    let warning = |name: &String| {
        let own = name.strip_prefix(S::OLD_VARIABLES).map_or(0, str::len);
        let max_letters = own.div_ceil(3).max(MAX_LETTERS);
        let near = known.iter().map(|known| (strsim::osa_distance(name, known), known));
        match near.filter(|(distance, _)| *distance <= max_letters).min_by_key(|(distance, _)| *distance) {
            Some((_, near)) => format!("{name}: no setting has this variable; did you mean {near}?"),
            None => format!("{name}: no setting has this variable"),
        }
    };
    // Longer names are no typing mistakes, and the cost grows with their length.
    let names = environment.keys().filter(|name| name.len() <= 128);
    names.filter(is_unknown).map(warning).collect()
}

/// Beginning of every variable of ours.
const OUR_PREFIX: &str = "HEADWATER_";

/// Whether a variable belongs to another program, or is one that Kubernetes makes for a service named after one of our programs.
fn is_of_others(name: &str, others: &[&str]) -> bool {
    let is_other = |other: &&str| name == *other || (other.ends_with('_') && name.starts_with(other));
    let is_of_kubernetes = name.contains("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || name.contains("_PORT_")
        || name.ends_with("_PORT");
    others.iter().any(is_other) || is_of_kubernetes
}

/// Variable of an old key.
fn variable_of<S: Settings>(old: &str) -> String {
    format!("{}{}", S::OLD_VARIABLES, old.replace('.', "_").to_uppercase())
}

/// Splits the error text of `conf` into one message per mistake. Under each title the text indents mistakes by two columns, and the
/// further lines of a long message by four.
pub(crate) fn mistakes_of(
    text: &str,
    declared: &[Declared],
    environment: &BTreeMap<String, OsString>,
) -> Vec<String> {
    let one_a_line = text.replace("\n    ", "");
    let entries =
        one_a_line.lines().take_while(|line| *line != "Help:").filter_map(|line| line.strip_prefix("  "));
    let mistakes: Vec<_> = entries.filter_map(|entry| mistake_of(entry, declared, environment)).collect();
    if mistakes.is_empty() {
        // A command line that cannot be read at all: an unknown flag, a flag without its value.
        let lines = text.lines().map(|line| line.trim_start_matches("error: ").trim());
        let lines = lines.take_while(|line| !line.starts_with("Usage")).filter(|line| !line.is_empty());
        return vec![lines.collect::<Vec<_>>().join("; ")];
    }
    mistakes
}

/// One mistake of `conf` in our words; `None` for a line that is none.
fn mistake_of(
    entry: &str,
    declared: &[Declared],
    environment: &BTreeMap<String, OsString>,
) -> Option<String> {
    let wrong_value = entry.strip_prefix("when parsing ");
    declared.iter().find_map(|option| {
        let key = &option.key;
        let by_variable = option.environment.as_ref().map(|name| {
            let is_set = environment.contains_key(name);
            (format!("env '{name}'"), if is_set { format!(" (environment {name})") } else { String::new() })
        });
        let by_flag = option.flag.as_ref().map(|name| (format!("'--{name}'"), format!(" (flag --{name})")));
        let mut places = by_variable.into_iter().chain(by_flag);
        let (place, suffix) = places.find(|(place, _)| wrong_value.unwrap_or(entry).starts_with(place))?;
        let Some(wrong_value) = wrong_value else { return Some(format!("{key}: missing")) };
        // The message after the place: ` value 'many': message`, or `: message` for a secret.
        let rest = &wrong_value[place.len()..];
        let (found, message) = match rest.strip_prefix(" value '").and_then(|rest| rest.split_once("': ")) {
            Some((_, message)) if message.contains("found") => (String::new(), message),
            Some((found, message)) => (format!(", found {found:?}"), message),
            None => (String::new(), rest.trim_start_matches(": ")),
        };
        Some(format!("{key}: {message}{found}{suffix}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(key: &str, known: &[&str], expected: &str) {
        assert_eq!(no_such_setting(key, known.iter().copied()), format!("{key}: no such setting{expected}"));
    }

    #[test]
    fn the_nearest_known_key_is_named_and_a_far_one_is_not() {
        let known = ["keep_ms", "keep_samples", "grace_ms", "broker.address"];
        check("keepms", &known, "; did you mean `keep_ms`?");
        check("keep_sample", &known, "; did you mean `keep_samples`?");
        check("keep_mss", &known, "; did you mean `keep_ms`?");
        check("adress", &known, "; did you mean `broker.address`?");
        check("boker.address", &known, "; did you mean `broker.address`?");
        check("colour", &known, "");
        check("zzz", &known, "");
        check("x", &[], "");
        check(&"k".repeat(100_000), &known, "");
    }
}
