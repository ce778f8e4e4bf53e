//! Loads settings: flag over environment over file over default; reports all mistakes at once.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::Path;
use std::process::ExitCode;
use std::time::SystemTime;

use conf::Conf;
use conf::introspection::{ConfigEvent, ValueSource};
use toml::Value as Toml;

use crate::AdminSettings;
use crate::declared::Declared;
use crate::misfits::{forget, is_given, misfits};
use crate::mistakes::{
    last_part, mistakes_of, refuse_unclear_switches, refuse_unknown, rename, unknown_variables,
};
use crate::sources::{Sources, as_text, as_toml, flatten};
use headwater_telemetry::{print, print_error};
use headwater_transport::redacted;
use headwater_transport::tls::Certificate;

/// Settings of one program, or of one table of an array of tables.
pub trait Settings: Conf {
    /// Old keys and the keys that replace them. An old key, its flag and its variable are refused naming the new one.
    const RENAMED: &'static [(&'static str, &'static str)] = &[];

    /// Variables that set a key where the variable of its declaration does not.
    const ALIASES: &'static [(&'static str, &'static str)] = &[("RUST_LOG", "log.filter")];

    /// Prefix of the program's variables, those of old keys included.
    const OLD_VARIABLES: &'static str = "HEADWATER_";

    /// Variables of other programs that begin with the same prefix. A name that ends in `_` stands for all that begin with it.
    const OTHER_VARIABLES: &'static [&'static str] = &[];

    /// Keys of settings whose flag has no value.
    const SWITCHES: &'static [&'static str] = &["insecure", "admin.remote"];

    /// Mistakes of settings that are right alone and do not fit each other: key, expected, found.
    fn check(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Settings in effect, and where each came from.
#[derive(Clone, Debug)]
pub struct Loaded<S> {
    /// The settings.
    pub settings: S,
    /// Every setting in the order of declaration.
    pub values: Vec<Value>,
    /// Variables of the environment that look like settings and are none, and certificates that have expired, for the log.
    pub warnings: Vec<String>,
}

/// One setting in effect.
#[derive(Clone, Debug)]
pub struct Value {
    /// The setting's declaration.
    pub declared: Declared,
    /// Value as a file holds it; `None` where nothing is set, and for a secret.
    pub toml: Option<Toml>,
    /// Where the value came from.
    pub origin: Origin,
}

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A flag of the command line.
    Flag(String),
    /// An environment variable.
    Environment(String),
    /// The file.
    File,
    /// The default of the declaration, which may be none.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(name) => write!(f, "flag --{name}"),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::File => f.write_str("file"),
            Self::Default => f.write_str("default"),
        }
    }
}

/// Why a program ends before it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// `--help` or `--version`, with the text to print.
    Help(String),
    /// All mistakes.
    Mistakes(Vec<String>),
}

impl Stop {
    /// Prints help on standard output and mistakes on standard error; 0 after help, 2 after mistakes.
    pub fn print(&self, program: &str) -> ExitCode {
        match self {
            Self::Help(text) => print_result(program, text),
            Self::Mistakes(mistakes) => {
                print_error(&mistakes_text(program, mistakes));
                ExitCode::from(2)
            }
        }
    }
}

/// Prints what was asked for on standard output: 0, or 1 where the text cannot be written. A closed pipe counts as written.
pub fn print_result(program: &str, text: &str) -> ExitCode {
    match print(text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(&format!("{program}: writing to standard output: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Ends a program that was asked whether the running one is live: 0, or 1 with the reason on standard error.
pub fn checked_live(program: &str, admin: &AdminSettings) -> ExitCode {
    match admin.check_live(program) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            print_error(&format!("{program}: {reason}"));
            ExitCode::FAILURE
        }
    }
}

/// All mistakes as lines for people. No line repeats a password of an address.
fn mistakes_text(program: &str, mistakes: &[String]) -> String {
    let lines = mistakes.iter().map(|mistake| format!("{program}: {}\n", redacted(mistake)));
    format!("{}{program} --help explains every setting", lines.collect::<String>())
}

/// Reads the settings of a program.
///
/// # Errors
/// [`Stop`]: help that was asked for, or every mistake.
pub fn load<S: Settings>(sources: Sources) -> Result<Loaded<S>, Stop> {
    let mut mistakes = Vec::new();
    let mut inputs = Inputs::new::<S>(sources);
    let unreadable = inputs.unreadable.take();
    let loaded = checked(read::<S>(inputs, &mut mistakes)?, &mut mistakes);
    readable(unreadable)?;
    loaded.filter(|_| mistakes.is_empty()).ok_or(Stop::Mistakes(mistakes))
}

/// Keys of a declaration.
pub fn keys<S: Settings>() -> Vec<String> {
    Declared::of::<S>().into_iter().filter(Declared::is_setting).map(|option| option.key).collect()
}

/// Settings with all defaults, in tests and for parts that a program starts itself.
///
/// # Errors
/// [`Stop::Mistakes`] with each setting that has no default.
pub fn defaults<S: Settings>() -> Result<S, Stop> {
    load(Sources::default()).map(|loaded| loaded.settings)
}

/// Reads the settings of a program whose file may hold an array of tables, `[[array]]`, each with settings `T`.
///
/// A setting of `T` may stand outside the tables only where there are none: both at once is a mistake. A switch of `T` on the command line
/// holds for every table.
///
/// # Errors
/// [`Stop`]: help that was asked for, or every mistake, those of all tables included.
pub fn load_with_tables<S: Settings, T: Settings>(
    sources: Sources,
    array: &str,
) -> Result<(Loaded<S>, Vec<Loaded<T>>), Stop> {
    let mut mistakes = Vec::new();
    let mut inputs = Inputs::new::<S>(sources);
    let unreadable = inputs.unreadable.take();
    let tables = match inputs.file.remove(array) {
        Some(Toml::Array(tables)) if tables.iter().all(Toml::is_table) => tables,
        other => {
            // A setting of the same name, or a mistake that the reading finds.
            inputs.file.extend(other.map(|other| (array.to_owned(), other)));
            Vec::new()
        }
    };
    let mut environment = BTreeMap::new();
    if !tables.is_empty() {
        environment = take_switches::<S, T>(&mut inputs);
        rename::<S>(&mut inputs, &Declared::of::<S>(), &mut mistakes);
        refuse_outside_tables::<S, T>(&mut inputs, array, &mut mistakes);
    }
    let loaded = checked(read::<S>(inputs, &mut mistakes)?, &mut mistakes);
    readable(unreadable)?;
    let mut read_tables = Vec::new();
    for (index, table) in tables.into_iter().enumerate() {
        let mut of_table = Vec::new();
        let file = table.try_into().map(flatten).unwrap_or_default();
        let inputs = Inputs { file, environment: environment.clone(), ..Inputs::default() };
        read_tables.extend(checked(read::<T>(inputs, &mut of_table)?, &mut of_table));
        mistakes.extend(of_table.into_iter().map(|mistake| format!("{array}[{index}].{mistake}")));
    }
    let Some(mut loaded) = loaded.filter(|_| mistakes.is_empty()) else {
        return Err(Stop::Mistakes(mistakes));
    };
    for (index, table) in read_tables.iter().enumerate() {
        let of_table = table.warnings.iter().map(|warning| format!("{array}[{index}].{warning}"));
        loaded.warnings.extend(of_table);
    }
    Ok((loaded, read_tables))
}

/// Refuses a file that cannot be read with this mistake alone: the settings that it states are not missing.
fn readable(unreadable: Option<String>) -> Result<(), Stop> {
    unreadable.map_or(Ok(()), |mistake| Err(Stop::Mistakes(vec![mistake])))
}

/// Takes the switches of the tables out of the command line; returns the variables that set them.
fn take_switches<S: Settings, T: Settings>(inputs: &mut Inputs) -> BTreeMap<String, OsString> {
    let mut variables = BTreeMap::new();
    let of_process = keys::<S>();
    let options = Declared::of::<T>().into_iter();
    for option in options.filter(|option| of_process.contains(&option.key)) {
        let (Some(flag), Some(variable)) = (option.flag, option.environment) else { continue };
        let flag = OsString::from(format!("--{flag}"));
        if T::SWITCHES.contains(&option.key.as_str()) && inputs.arguments.contains(&flag) {
            inputs.arguments.retain(|argument| *argument != flag);
            variables.insert(variable, "true".into());
        }
    }
    variables
}

/// Takes settings of the tables out of the flags, the environment and the top of the file, each with a mistake.
fn refuse_outside_tables<S: Settings, T: Settings>(
    inputs: &mut Inputs,
    array: &str,
    mistakes: &mut Vec<String>,
) {
    let of_tables = keys::<T>();
    for option in Declared::of::<S>().iter().filter(|option| of_tables.contains(&option.key)) {
        for place in is_given::<S>(inputs, option) {
            let key = &option.key;
            mistakes.push(format!(
                "{key}: expected one {array} by settings of its own or several as [[{array}]], found both; write the setting into a \
                 table [[{array}]], or leave it out{place}"
            ));
        }
        forget::<S>(inputs, option);
    }
}

/// Sources of one declaration, with the file's keys in one map.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inputs {
    pub(crate) arguments: Vec<OsString>,
    pub(crate) environment: BTreeMap<String, OsString>,
    pub(crate) file: BTreeMap<String, Toml>,
    /// Mistake of a file that cannot be read, or is no TOML.
    pub(crate) unreadable: Option<String>,
}

impl Inputs {
    fn new<S: Settings>(sources: Sources) -> Self {
        let path = conf::find_parameter("config", &sources.arguments).or_else(|| {
            let declared = Declared::of::<S>().into_iter().find(|option| option.key == "config")?.environment;
            let aliases = S::ALIASES.iter().filter(|(_, key)| *key == "config").map(|(alias, _)| *alias);
            let mut names = declared.as_deref().into_iter().chain(aliases);
            names.find_map(|name| sources.environment.get(name)).cloned()
        });
        let (table, unreadable) = match sources.table(path.map(Into::into)) {
            Ok(table) => (table, None),
            Err(mistake) => (toml::Table::new(), Some(mistake)),
        };
        let Sources { arguments, environment, .. } = sources;
        Self { arguments, environment, file: flatten(table), unreadable }
    }

    /// The environment, with each value of the file as a variable that is not set otherwise.
    pub(crate) fn with_file(&self, declared: &[Declared]) -> BTreeMap<String, OsString> {
        let mut environment = self.environment.clone();
        for option in declared.iter().filter(|option| option.is_setting()) {
            if let (Some(variable), Some(value)) = (&option.environment, self.file.get(&option.key)) {
                environment.entry(variable.clone()).or_insert_with(|| as_text(value).into());
            }
        }
        environment
    }
}

fn checked<S: Settings>(loaded: Option<Loaded<S>>, mistakes: &mut Vec<String>) -> Option<Loaded<S>> {
    mistakes.extend(loaded.iter().flat_map(|loaded| loaded.settings.check()));
    loaded
}

/// The help with the keys of files in place of the paths in the structs.
fn with_keys(help: String, declared: &[Declared]) -> String {
    let placeholder = |name: &str| format!("<{name}>");
    declared
        .iter()
        .fold(help, |help, option| help.replace(&placeholder(&option.path), &placeholder(&option.key)))
}

/// Reads one declaration. `None` where a value is wrong or missing, which `mistakes` then say.
///
/// `conf` reads a document too, but its messages then leave out the section of a key. So each value of the file becomes a variable of
/// the environment that is not set otherwise: the order of precedence is the same, and messages have key, expected and found.
pub(crate) fn read<S: Settings>(
    mut inputs: Inputs,
    mistakes: &mut Vec<String>,
) -> Result<Option<Loaded<S>>, Stop> {
    let declared = Declared::of::<S>();
    let warnings = unknown_variables::<S>(&inputs.environment, &declared);
    rename::<S>(&mut inputs, &declared, mistakes);
    refuse_unknown(&mut inputs.file, &declared, mistakes);
    refuse_unclear_switches::<S>(&inputs, &declared, mistakes);
    let environment = inputs.with_file(&declared);
    if inputs.arguments.is_empty() {
        inputs.arguments.push("program".into());
    }
    let mut origins = BTreeMap::new();
    let note = |event: &dyn ConfigEvent| {
        let option = event.program_option();
        let origin = match event.value_source() {
            ValueSource::Args { .. } => {
                Origin::Flag(option.long_form().map(ToString::to_string).unwrap_or_default())
            }
            ValueSource::Env { var, .. } => Origin::Environment(var.to_string()),
            _ => Origin::Default,
        };
        origins.insert(option.id().to_string(), origin);
    };
    let builder = S::conf_builder().args(&inputs.arguments).env(environment.clone());
    match builder.config_logger(note).try_parse() {
        Ok(settings) => {
            let declared = declared.into_iter().filter(Declared::is_setting);
            let value = |option: Declared| {
                let origin = origins.remove(&option.path);
                let is_switch = S::SWITCHES.contains(&option.key.as_str());
                value(option, origin, &inputs, (&environment, is_switch))
            };
            let values: Vec<Value> = declared.map(value).collect();
            let warnings = warnings.into_iter().chain(values.iter().filter_map(expired)).collect();
            Ok(Some(Loaded { settings, values, warnings }))
        }
        Err(error) if error.exit_code() == 0 => Err(Stop::Help(with_keys(error.to_string(), &declared))),
        Err(error) => {
            let found = mistakes_of(&error.to_string(), &declared, &inputs.environment);
            let misfits = misfits::<S>(inputs, &declared, &found);
            mistakes.extend(found.into_iter().chain(misfits));
            Ok(None)
        }
    }
}

/// Warning of a certificate that has expired. The program starts with it, since it takes a new file while it runs.
fn expired(value: &Value) -> Option<String> {
    let key = value.declared.key.as_str();
    let file = value.toml.as_ref().filter(|_| last_part(key) == "certificate_file")?.as_str()?;
    // A file that cannot be read is a mistake of its own.
    let certificate = Certificate::read(Path::new(file)).ok()?;
    let since = SystemTime::now().duration_since(certificate.expires).ok()?;
    let days = since.as_secs() / 86_400;
    Some(format!(
        "{key}: {file}: expected a valid certificate, found one that expired {days} days ago; peers refuse it: `headwater enroll renew`"
    ))
}

/// The value of a setting. `origin` is `None` where nothing is set.
fn value(
    declared: Declared,
    origin: Option<Origin>,
    inputs: &Inputs,
    (environment, is_switch): (&BTreeMap<String, OsString>, bool),
) -> Value {
    let in_file = inputs.file.get(&declared.key).cloned();
    let text = |text: OsString| as_toml(&text.to_string_lossy());
    let (toml, origin) = match origin {
        None => (None, Origin::Default),
        Some(Origin::Flag(flag)) if is_switch => (Some(Toml::Boolean(true)), Origin::Flag(flag)),
        Some(Origin::Flag(flag)) => {
            (conf::find_parameter(&flag, &inputs.arguments).map(text), Origin::Flag(flag))
        }
        // `read` gave the file's value to a variable that the environment does not set.
        Some(Origin::Environment(name)) if in_file.is_some() && !inputs.environment.contains_key(&name) => {
            (in_file, Origin::File)
        }
        Some(Origin::Environment(name)) => {
            (environment.get(&name).cloned().map(text), Origin::Environment(name))
        }
        Some(Origin::File | Origin::Default) => (declared.default.as_deref().map(as_toml), Origin::Default),
    };
    Value { toml: toml.filter(|_| declared.is_in_files()), declared, origin }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_printed_mistake_repeats_a_password() {
        let mistakes = [
            "unexpected argument 'mqtt://user:s3cret@host' found".to_owned(),
            "TOML parse error at line 1\n  | address = \"mqtt://user:s3cret@host".to_owned(),
        ];
        let text = mistakes_text("headwater-device", &mistakes);
        assert!(!text.contains("s3cret") && text.matches("mqtt://***@host").count() == 2, "{text}");
        assert!(text.ends_with("\nheadwater-device --help explains every setting"), "{text}");
    }
}
