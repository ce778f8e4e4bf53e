//! Names of the settings that a program declares.

use conf::Conf;
use conf::introspection::ProgramOptionMeta;

/// Declaration of one option.
#[derive(Clone, Debug)]
pub struct Declared {
    /// Key in the settings file, such as `broker.address`.
    pub key: String,
    /// Path in the structs. Unlike the key, the path includes structs that are flattened without a prefix.
    pub(crate) path: String,
    /// `broker-address`; `None` for a secret, which the list of processes must not show.
    pub flag: Option<String>,
    /// `HEADWATER_BROKER_ADDRESS`; `None` for an option of the command line alone.
    pub environment: Option<String>,
    /// Lines of the doc comment.
    pub description: String,
    /// The default as a flag would give the value.
    pub default: Option<String>,
    /// Whether a program does not start without this setting.
    pub is_required: bool,
}

impl Declared {
    /// Every option of a program, in the order of declaration.
    pub(crate) fn of<S: Conf>() -> Vec<Self> {
        let text = |text: Option<&dyn std::fmt::Display>| text.map(ToString::to_string);
        let declared = |option: &dyn ProgramOptionMeta| {
            let (path, flag) = (option.id().to_string(), text(option.long_form()));
            Self {
                key: match &flag {
                    Some(flag) => key_of(&path, flag),
                    None => key_of_secret(&path, text(option.env_form()).as_deref()),
                },
                path,
                flag,
                environment: text(option.env_form()),
                description: text(option.description()).unwrap_or_default(),
                default: text(option.default_help_str()),
                is_required: option.is_required(),
            }
        };
        S::program_options().map(|option| declared(&option)).collect()
    }

    /// Whether this option is a setting, and not one of the command line alone.
    pub(crate) fn is_setting(&self) -> bool {
        self.environment.is_some() && self.key != "config"
    }

    /// Whether a file may hold this option. A secret is in the environment alone.
    pub(crate) fn is_in_files(&self) -> bool {
        self.is_setting() && self.flag.is_some()
    }
}

/// The suffix of the path that has the flag's words; the whole path if no suffix has them.
fn key_of(path: &str, flag: &str) -> String {
    let ends = path.rmatch_indices('.').map(|(dot, _)| &path[dot + 1..]);
    let is_key = |end: &&str| end.replace(['.', '_'], "-") == flag;
    ends.into_iter().find(is_key).unwrap_or(path).to_owned()
}

/// The longest suffix of the path that has the last words of the variable; the whole path if no suffix has them.
fn key_of_secret(path: &str, variable: Option<&str>) -> String {
    let ends = path.match_indices('.').map(|(dot, _)| &path[dot + 1..]);
    let is_key = |end: &&str| {
        let words = format!("_{}", end.replace('.', "_").to_uppercase());
        variable.is_some_and(|variable| variable.ends_with(&words))
    };
    std::iter::once(path).chain(ends).find(is_key).unwrap_or(path).to_owned()
}
