//! Settings that do not fit each other, found although other settings cannot be read.
//!
//! The settings are read a second time without the wrong ones, which then have their defaults. A missing one gets a placeholder. What
//! the program's own check then finds is reported too, unless the finding names a setting that was wrong or missing.

use crate::declared::Declared;
use crate::load::{Inputs, Settings};
use crate::mistakes::last_part;

/// Value of a required setting that is wrong or missing: a name, a path and a number at once.
const PLACEHOLDER: &str = "1";

/// Mistakes of settings that do not fit each other, beside the mistakes `found` of values that are wrong or missing.
pub(crate) fn misfits<S: Settings>(
    mut inputs: Inputs,
    declared: &[Declared],
    found: &[String],
) -> Vec<String> {
    let is_wrong = |option: &&Declared| {
        found
            .iter()
            .any(|mistake| mistake.strip_prefix(&option.key).is_some_and(|rest| rest.starts_with(": ")))
    };
    let wrong: Vec<_> = declared.iter().filter(is_wrong).collect();
    for option in &wrong {
        forget::<S>(&mut inputs, option);
        let is_missing = found.contains(&format!("{}: missing", option.key));
        if let Some(variable) = option.environment.clone().filter(|_| is_missing || option.is_required) {
            inputs.environment.insert(variable, PLACEHOLDER.into());
        }
    }
    let environment = inputs.with_file(declared);
    let settings = S::conf_builder().args(&inputs.arguments).env(environment).try_parse();
    let misfits = settings.map(|settings: S| settings.check()).unwrap_or_default();
    misfits.into_iter().filter(|misfit| !wrong.iter().any(|option| names(misfit, option))).collect()
}

/// Whether a mistake names a setting.
fn names(mistake: &str, option: &Declared) -> bool {
    let words = mistake.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.into_iter().any(|word| word == last_part(&option.key))
}

/// Takes a setting out of every source.
pub(crate) fn forget<S: Settings>(inputs: &mut Inputs, option: &Declared) {
    inputs.file.remove(&option.key);
    variables::<S>(option).for_each(|variable| _ = inputs.environment.remove(variable));
    let Some(flag) = option.flag.as_ref().map(|flag| format!("--{flag}")) else { return };
    let mut arguments = std::mem::take(&mut inputs.arguments).into_iter();
    while let Some(argument) = arguments.next() {
        let text = argument.to_string_lossy();
        match text.strip_prefix(&flag) {
            // The value is the next argument.
            Some("") => _ = arguments.next(),
            Some(rest) if rest.starts_with('=') => {}
            Some(_) | None => inputs.arguments.push(argument),
        }
    }
}

/// Where a setting is given, as an addition to a mistake.
pub(crate) fn is_given<S: Settings>(inputs: &Inputs, option: &Declared) -> Vec<String> {
    let flag = option.flag.as_deref().filter(|flag| conf::find_parameter(flag, &inputs.arguments).is_some());
    let variables = variables::<S>(option).filter(|variable| inputs.environment.contains_key(*variable));
    let flag = flag.map(|flag| format!(" (flag --{flag})"));
    let variables = variables.map(|variable| format!(" (environment {variable})"));
    let file = inputs.file.contains_key(&option.key).then(String::new);
    flag.into_iter().chain(variables).chain(file).collect()
}

/// Names of the variables that give a setting.
fn variables<S: Settings>(option: &Declared) -> impl Iterator<Item = &str> {
    let aliases = S::ALIASES.iter().filter(|(_, key)| *key == option.key).map(|(alias, _)| *alias);
    option.environment.as_deref().into_iter().chain(aliases)
}
