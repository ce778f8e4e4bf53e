//! Loads settings: flag over environment over file over default; reports all mistakes at once.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::time::SystemTime;

use headwater_telemetry::{check_live, print_error};
use headwater_toml_file::{Document, last_part};
use headwater_transport::tls::Certificate;

use crate::declare::{Declared, Inputs, Origin, Reader, Section, Value};
use crate::sources::{Sources, read_document};
use crate::stop::Stop;
use crate::values::{Misfit, as_text};
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
    /// Place of the table that [`load_each`] has read, such as ` (device.toml:12)`; empty without tables.
    pub place: String,
}

/// Exit code of a program that asked whether the running program is live at every admin port that is set: 0, or 1 with the reason on standard
/// error.
pub fn checked_live<'a>(program: &str, admins: impl IntoIterator<Item = &'a AdminSettings>) -> ExitCode {
    let addresses: Vec<_> = admins.into_iter().filter_map(|admin| admin.listen).collect();
    let live = match addresses.as_slice() {
        [] => Err("admin.listen: missing; --check-live asks the admin port of the running program".into()),
        addresses => addresses.iter().try_for_each(|listen| check_live(*listen, program)),
    };
    match live {
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
    let (inputs, mistakes) = inputs_of::<S>(sources)?;
    read(&inputs, mistakes)
}

/// Meaning of a table's key that stands outside the tables of [`load_each`]: in the file, in the environment or as a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outside {
    /// Every table takes the value.
    Shared,
    /// Every table takes the value; two tables with one value are a mistake.
    Distinct,
    /// A folder. Each table takes the folder in it that has the table's `id` as its name. Two tables with one folder are a mistake.
    Folder,
    /// An address to listen at, which the first table takes. Two tables with one address are a mistake, except port 0.
    Address,
}

/// Reads the settings of several services of one process, with one table `[[array]]` of the file for each. A key of a table replaces the
/// same key outside the tables, also in the environment. Without tables these are the settings of one service. `own` are the keys of a table.
///
/// # Errors
/// As [`load`], with the mistakes of every table.
pub fn load_each<S: Program>(
    sources: Sources,
    array: &str,
    own: &[(&str, Outside)],
) -> Result<Vec<Loaded<S>>, Stop> {
    let (mut shared, mut mistakes) = inputs_of::<S>(sources)?;
    let tables = shared.document.tables.remove(array).unwrap_or_default();
    if tables.is_empty() {
        return read(&shared, mistakes).map(|one| vec![one]);
    }
    let declared = declared::<S>(S::PREFIX);
    let keys: Vec<_> = own.iter().map(|(key, _)| *key).collect();
    let mut all: Vec<Loaded<S>> = Vec::new();
    for (index, table) in tables.into_iter().enumerate() {
        let (mut inputs, place) = (shared.clone(), shared.place_of(table.line));
        inputs.table_lines = keys.iter().map(|key| ((*key).to_owned(), table.line)).collect();
        let id = table.values.get("id").map(|id| as_text(&id.value));
        for known in &declared {
            let Some((key, outside)) = own.iter().find(|(key, _)| *key == known.key) else { continue };
            match (outside, &id) {
                _ if table.values.contains_key(*key) => {
                    let flag = known.flag.as_ref().filter(|flag| shared.flags.contains_key(*flag));
                    mistakes.extend(flag.map(|flag| {
                        format!("{key}: expected in the tables [[{array}]] or as a flag, found both (flag --{flag})")
                    }));
                    inputs.leave_out(known);
                }
                (Outside::Address, _) if index > 0 => inputs.leave_out(known),
                (Outside::Folder, Some(id)) => inputs.put_into_folder(known, id),
                _ => {}
            }
        }
        for (key, found) in table.values {
            if keys.contains(&key.as_str()) {
                inputs.document.values.insert(key, found);
            } else {
                let (keys, place) = (keys.join(", "), shared.place_of(found.line));
                mistakes.push(format!("{array}.{key}: expected one of {keys}, found another key{place}"));
            }
        }
        match read::<S>(&inputs, Vec::new()) {
            Ok(loaded) => all.push(Loaded { place, ..loaded }),
            Err(stop) => mistakes.extend(stop.into_mistakes()),
        }
    }
    for (key, outside) in own.iter().filter(|(_, outside)| *outside != Outside::Shared) {
        let mut known = Vec::new();
        let values = all.iter().flat_map(|loaded| &loaded.values);
        for value in values.filter(|value| value.declared.key == *key) {
            let Some(found) = &value.toml else { continue };
            let is_any_port = || found.as_str().is_some_and(|address| address.ends_with(":0"));
            if known.contains(&found) && !(*outside == Outside::Address && is_any_port()) {
                let place = Reader::new(&shared, S::PREFIX).suffix(&value.origin);
                let text = format!("expected another one in each table [[{array}]], found {found} again");
                mistakes.push(format!("{key}: {text}{place}"));
            }
            known.push(found);
        }
    }
    // A mistake or a warning about a key outside the tables is found once for each table, and reported once.
    let mut seen = BTreeSet::new();
    mistakes.retain(|mistake| seen.insert(mistake.clone()));
    for loaded in &mut all {
        loaded.warnings.retain(|warning| seen.insert(warning.clone()));
    }
    if mistakes.is_empty() { Ok(all) } else { Err(Stop::Mistakes(mistakes)) }
}

impl Inputs {
    /// Takes a key out of every source.
    fn leave_out(&mut self, known: &Declared) {
        self.flags.retain(|flag, _| Some(flag) != known.flag.as_ref());
        self.environment.retain(|name, _| known.variables().all(|variable| variable != name));
        self.document.values.remove(&known.key);
    }

    /// Puts the name of a table behind the folder that a key names in any source.
    fn put_into_folder(&mut self, known: &Declared, name: &str) {
        let flags = self.flags.iter_mut().filter(|(flag, _)| Some(*flag) == known.flag.as_ref());
        let is_known = |found: &str| known.variables().any(|variable| variable == found);
        let variables = self.environment.iter_mut().filter(|(found, _)| is_known(found));
        for (_, folder) in flags.chain(variables) {
            *folder = Path::new(&*folder).join(name).into_os_string();
        }
        if let Some(found) = self.document.values.get_mut(&known.key) {
            found.value = Path::new(&as_text(&found.value)).join(name).display().to_string().into();
        }
    }
}

/// The values from command line, environment and file of a program, and the mistakes of the command line.
fn inputs_of<S: Program>(sources: Sources) -> Result<(Inputs, Vec<String>), Stop> {
    let declared = declared::<S>(S::PREFIX);
    let (flags, mut mistakes) = command_line::read(S::NAME, S::ABOUT, &declared, &sources.arguments)?;
    let inputs = sources.read_file(flags, &declared);
    let inputs = inputs.map_err(|of_file| Stop::Mistakes([mistakes.clone(), of_file].concat()))?;
    mistakes.extend(unreadable(&inputs, &declared));
    Ok((inputs, mistakes))
}

fn read<S: Program>(inputs: &Inputs, mut mistakes: Vec<String>) -> Result<Loaded<S>, Stop> {
    let declared = declared::<S>(S::PREFIX);
    let mut reader = Reader::new(inputs, S::PREFIX);
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
    Ok(Loaded { settings, values, warnings, place: String::new() })
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
    /// The values of all sources, with the content of the file that a flag or a variable names.
    fn read_file(
        self,
        flags: BTreeMap<String, OsString>,
        declared: &[Declared],
    ) -> Result<Inputs, Vec<String>> {
        if let Some((document, file)) = self.document {
            return Ok(Inputs { flags, environment: self.environment, document, file, ..Inputs::default() });
        }
        let option = declared.iter().find(|option| option.key == "config");
        let variable = option.and_then(|option| option.variable_of(&self.environment));
        let path = flags.get("config").or(variable.map(|(_, path)| path)).map(Path::new);
        let (document, file) = match path {
            Some(path) => (read_document(path)?, path.display().to_string()),
            None => (Document::default(), String::new()),
        };
        Ok(Inputs { flags, environment: self.environment, document, file, ..Inputs::default() })
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
    let s = if days == 1 { "" } else { "s" };
    Some(format!(
        "{key}: {file}: expected a valid certificate, found one that expired {days} day{s} ago; peers refuse it: `headwater enroll renew`"
    ))
}

/// Warnings of variables that look like settings of this program and are none.
///
/// A variable with the program's prefix is unknown unless it belongs to another program. A variable with the prefix of another
/// program is warned of if at most two letters differ from a known name.
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

/// Returns true if a variable belongs to another program, or is one that Kubernetes makes for a service named after one of our programs.
fn is_of_others(name: &str, others: &[&str]) -> bool {
    let is_other = |other: &&str| name == *other || (other.ends_with('_') && name.starts_with(other));
    let is_of_kubernetes = name.contains("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || name.contains("_PORT_")
        || name.ends_with("_PORT");
    others.iter().any(is_other) || is_of_kubernetes
}
