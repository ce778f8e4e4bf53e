//! Command line of a program, made from the declarations.

use std::collections::BTreeMap;
use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, Command};
use headwater_toml_file::nearest;

use crate::declare::{Declared, Places};
use crate::stop::Stop;

/// Values by flag, and every mistake of the command line.
///
/// # Errors
/// [`Stop::Help`] for `--help` and `--version`.
pub(crate) fn read(
    name: &'static str,
    about: &[&str],
    declared: &[Declared],
    arguments: &[OsString],
) -> Result<(BTreeMap<String, OsString>, Vec<String>), Stop> {
    let command = command(name, about, declared);
    let (mut arguments, mut mistakes) = (arguments.to_vec(), Vec::new());
    // clap stops at the first mistake. The command line is then read again without the wrong argument.
    let matches = loop {
        match command.clone().try_get_matches_from(&arguments) {
            Ok(matches) => break matches,
            Err(error) if error.exit_code() == 0 => return Err(Stop::Help(error.to_string())),
            Err(error) => {
                mistakes.push(mistake(&error, declared));
                if !leave_out(&mut arguments, &error) {
                    break ArgMatches::default();
                }
            }
        }
    };
    let given = declared.iter().filter_map(|option| Some((option, option.flag.clone()?)));
    let values = given.filter_map(|(option, flag)| Some((value(&matches, option)?, flag)));
    Ok((values.map(|(value, flag)| (flag, value)).collect(), mistakes))
}

/// Leaves out the argument of a mistake with its value. Returns false if the mistake names none of the arguments.
fn leave_out(arguments: &mut Vec<OsString>, error: &clap::Error) -> bool {
    let Some(flag) = argument(error).split([' ', '=']).next().filter(|flag| !flag.is_empty()) else {
        return false;
    };
    let is_flag = |argument: &OsString| {
        let rest = argument.to_str().and_then(|argument| argument.strip_prefix(flag));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
    };
    let Some(at) = arguments.iter().position(is_flag) else { return false };
    let has_value = arguments[at] == *flag
        && flag.starts_with('-')
        && arguments.get(at + 1).is_some_and(|value| !value.as_encoded_bytes().starts_with(b"-"));
    arguments.drain(at..=at + usize::from(has_value));
    true
}

fn value(matches: &ArgMatches, option: &Declared) -> Option<OsString> {
    match option.given.is_switch {
        true => matches.try_get_one::<bool>(&option.key).ok()??.then(|| "true".into()),
        false => matches.try_get_one::<OsString>(&option.key).ok()?.cloned(),
    }
}

fn command(name: &'static str, about: &[&str], declared: &[Declared]) -> Command {
    let lines: Vec<_> = about.iter().map(|line| line.trim().to_owned()).collect();
    let command = Command::new(name).version(env!("CARGO_PKG_VERSION")).about(paragraphs(&lines));
    let flags = declared.iter().filter_map(|option| Some((option, option.flag.clone()?)));
    command.args(flags.map(|(option, flag)| {
        let arg = Arg::new(option.key.clone()).long(flag).help(help(option));
        match option.given.is_switch {
            true => arg.action(ArgAction::SetTrue),
            false => arg
                .value_name(option.key.clone())
                .allow_negative_numbers(true)
                .value_parser(clap::value_parser!(OsString)),
        }
    }))
}

/// Description of an option with its variables and its default.
fn help(option: &Declared) -> String {
    let mut text = paragraphs(&option.description);
    if option.given.places != Places::Flag {
        let variables: Vec<_> = option.variables().collect();
        text.push_str(&format!(" [env: {}]", variables.join(", ")));
    }
    if let Some(default) = option.given.default.filter(|_| !option.given.is_switch) {
        text.push_str(&format!(" [default: {default}]"));
    }
    text
}

/// Lines of a paragraph joined; an empty line between two paragraphs.
fn paragraphs(lines: &[String]) -> String {
    let paragraphs = lines.split(String::is_empty).map(|lines| lines.join(" "));
    paragraphs.collect::<Vec<_>>().join("\n\n")
}

/// Argument of a mistake, as clap shows the argument; empty if the mistake names none.
fn argument(error: &clap::Error) -> &str {
    match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(argument)) => argument,
        Some(ContextValue::Strings(arguments)) => arguments.first().map_or("", String::as_str),
        _ => "",
    }
}

/// A mistake of the command line, in words for people.
fn mistake(error: &clap::Error, declared: &[Declared]) -> String {
    let argument = argument(error);
    match error.kind() {
        ErrorKind::UnknownArgument => {
            let flags = declared.iter().filter_map(|option| option.flag.as_deref());
            match argument.strip_prefix("--").and_then(|flag| nearest(flag, flags)) {
                Some(near) => format!("{argument}: no such flag; did you mean --{near}?"),
                None => format!("{argument}: no such flag"),
            }
        }
        ErrorKind::ArgumentConflict => format!("{argument}: expected once, found twice"),
        ErrorKind::InvalidValue => format!("{argument}: expected a value, found none"),
        ErrorKind::TooManyValues => format!("{argument}: expected no value, found one"),
        kind => format!("{argument}: {kind}"),
    }
}
