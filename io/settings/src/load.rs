//! Loads settings: flag over environment over file over default; reports all mistakes at once.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::time::SystemTime;

use headwater_telemetry::print_error;
use headwater_toml_file::{Document, last_part};
use headwater_transport::tls::Certificate;

use crate::declare::{Declared, Inputs, Origin, Reader, Section, Value};
use crate::sources::Sources;
use crate::stop::Stop;
use crate::values::Misfit;
use crate::{AdminSettings, command_line};

/// Settings of one program.
pub trait Program: Section {
    /// Name of the program.
    const NAME: &'static str;

    /// Beginning of the names of the program's environment variables.
    const PREFIX: &'static str;

    /// Environment variables of other programs that begin with the same prefix. A name that ends in `_` stands for all that begin with it.
    const OTHER_VARIABLES: &'static [&'static str] = &[];

    /// Mistakes of settings that are right alone and do not fit each other. `values` tell where each value came from.
    fn check(&self, values: &[Value]) -> Vec<Misfit>;
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

/// Exit code of a program that asked whether the running one is live: 0, or 1 with the reason on standard error.
pub fn checked_live(program: &str, admin: &AdminSettings) -> ExitCode {
    match admin.check_live(program) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            print_error(&format!("{program}: {reason}"));
            ExitCode::FAILURE
        }
    }
}

/// Reads the settings of a program.
///
/// # Errors
/// [`Stop`]: help that was asked for, or every mistake. If the file cannot be read as TOML, its settings are not checked.
pub fn load<S: Program>(sources: Sources) -> Result<Loaded<S>, Stop> {
    let declared = declared::<S>(S::PREFIX);
    let (flags, mut mistakes) = command_line::read(S::NAME, S::ABOUT, &declared, &sources.arguments)?;
    let inputs = sources.read_file(flags, &declared);
    let inputs = inputs.map_err(|of_file| Stop::Mistakes([mistakes.clone(), of_file].concat()))?;
    mistakes.extend(unreadable(&inputs, &declared));
    let mut reader = Reader::new(&inputs, S::PREFIX);
    let settings = S::read(&mut reader);
    reader.refuse_unknown(0);
    mistakes.append(&mut reader.mistakes);
    let misfits = settings.iter().flat_map(|settings| settings.check(&reader.values));
    let misfits = misfits.filter(|misfit| misfit.keys.iter().all(|key| !reader.wrong.contains(key)));
    mistakes.extend(misfits.map(|misfit| {
        let origin = reader.values.iter().find(|value| Some(&value.key()) == misfit.keys.first());
        format!("{misfit}{}", origin.map(|value| reader.suffix(&value.origin)).unwrap_or_default())
    }));
    let Some(settings) = settings.filter(|_| mistakes.is_empty()) else {
        return Err(Stop::Mistakes(mistakes));
    };
    let mut values = reader.values;
    let mut warnings = unknown_variables::<S>(&inputs.environment, &declared);
    warnings.extend(values.iter().filter_map(expired));
    values.retain(|value| value.declared.is_setting());
    Ok(Loaded { settings, values, warnings })
}

/// Every key of a declaration, in order.
pub(crate) fn declared<S: Section>(prefix: &'static str) -> Vec<Declared> {
    let nothing = Inputs::default();
    let mut reader = Reader::new(&nothing, prefix);
    S::read(&mut reader);
    reader.values.into_iter().map(|value| value.declared).collect()
}

/// Settings with all defaults, in tests and for parts that a program starts itself. A required key has its example as its value.
///
/// # Panics
/// Never: tests read each default and each example.
pub fn defaults<S: Section>() -> S {
    let nothing = Inputs::default();
    S::read(&mut Reader::new(&nothing, "")).expect("declared values are read by tests")
}

/// Mistakes for flags and variables whose value is not UTF-8.
fn unreadable(inputs: &Inputs, declared: &[Declared]) -> Vec<String> {
    let flags = inputs.flags.iter().map(|(flag, value)| (Origin::Flag(flag.clone()), value));
    let variables = declared.iter().filter_map(|option| option.variable_of(&inputs.environment));
    let variables = variables.map(|(name, value)| (Origin::Environment(name.clone()), value));
    let unreadable = flags.chain(variables).filter(|(_, value)| value.to_str().is_none());
    unreadable.map(|(origin, _)| format!("{origin}: expected text in UTF-8, found other bytes")).collect()
}

impl Sources {
    /// All inputs, with the content of the file that a flag or a variable names.
    fn read_file(
        self,
        flags: BTreeMap<String, OsString>,
        declared: &[Declared],
    ) -> Result<Inputs, Vec<String>> {
        if let Some((document, file)) = self.document {
            return Ok(Inputs { flags, environment: self.environment, document, file });
        }
        let option = declared.iter().find(|option| option.key == "config");
        let variable = option.and_then(|option| option.variable_of(&self.environment));
        let path = flags.get("config").or(variable.map(|(_, path)| path)).map(Path::new);
        let (text, file) = match (self.file, path) {
            (Some(text), _) => (text, String::new()),
            (None, Some(path)) => {
                let name = path.display().to_string();
                let text = crate::sources::read(path).map_err(|reason| vec![format!("{name}: {reason}")])?;
                (text, name)
            }
            (None, None) => (String::new(), String::new()),
        };
        let shown = |mistake: &headwater_toml_file::Mistake| match file.as_str() {
            "" => mistake.to_string(),
            file => mistake.in_file(Path::new(file)),
        };
        let document = Document::parse(&text);
        let document = document.map_err(|mistakes| mistakes.iter().map(shown).collect::<Vec<_>>())?;
        Ok(Inputs { flags, environment: self.environment, document, file })
    }
}

/// Warning that a certificate has expired. The program starts all the same, since it takes a new file while it runs.
fn expired(value: &Value) -> Option<String> {
    let key = value.key();
    let file = value.toml.as_ref().filter(|_| last_part(&key) == "certificate_file")?.as_str()?;
    // A file that cannot be read is named as a mistake elsewhere.
    let certificate = Certificate::read(Path::new(file)).ok()?;
    let since = SystemTime::now().duration_since(certificate.expires).ok()?;
    let days = since.as_secs() / 86_400;
    Some(format!(
        "{key}: {file}: expected a valid certificate, found one that expired {days} days ago; peers refuse it: `headwater enroll renew`"
    ))
}

/// Warnings of variables that look like settings of this program and are none.
///
/// A variable with the program's prefix is unknown unless it belongs to another program. A variable with another prefix is one where at
/// most two letters differ from a known name.
fn unknown_variables<S: Program>(
    environment: &BTreeMap<String, OsString>,
    declared: &[Declared],
) -> Vec<String> {
    const MAX_LETTERS: usize = 2;
    let known: Vec<_> = declared.iter().flat_map(Declared::variables).collect();
    let is_unknown = |name: &&String| {
        let is_near = || known.iter().any(|known| strsim::osa_distance(name, known) <= MAX_LETTERS);
        let is_own = name.starts_with(S::PREFIX) && !is_of_others(name, S::OTHER_VARIABLES);
        name.starts_with(OUR_PREFIX) && !known.contains(&name.as_str()) && (is_own || is_near())
    };
    let warning = |name: &String| {
        let own = name.strip_prefix(S::PREFIX).map_or(0, str::len);
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
