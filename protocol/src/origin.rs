//! Where the value of a setting came from, and how an effective configuration is shown.

use std::fmt;

/// Where a value came from; an earlier one wins over a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// The command line.
    Flag,
    /// An environment variable.
    Environment,
    /// The file of settings.
    File,
    /// Nobody set it.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Flag => "flag",
            Self::Environment => "environment",
            Self::File => "file",
            Self::Default => "default",
        })
    }
}

/// One line of an effective configuration: `keep_ms = 5000    # default`. `value` is as a TOML file would have it; `None` is shown
/// as a comment, since TOML has no word for nothing.
pub fn effective_line(key: &str, value: Option<&str>, origin: Origin) -> String {
    const COLUMN: usize = 44;
    let setting = match value {
        Some(value) => format!("{key} = {value}"),
        None => format!("# {key} is not set"),
    };
    format!("{setting:COLUMN$} # {origin}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_toml_and_says_where_the_value_came_from() {
        let line = effective_line("keep_ms", Some("5000"), Origin::Environment);
        assert!(line.starts_with("keep_ms = 5000 ") && line.ends_with("# environment"), "{line}");
        let line = effective_line("state_dir", None, Origin::Default);
        assert!(line.starts_with("# state_dir is not set"), "{line}");
    }
}
