//! Sources of settings, before they are read.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use headwater_toml_file::Document;

/// Longest settings file that is read, in bytes. The settings files of a site have some kilobytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Command line, environment and file of a program.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    pub(crate) arguments: Vec<OsString>,
    pub(crate) environment: BTreeMap<String, OsString>,
    /// Values in place of a file, and the name of the file that they come from.
    pub(crate) document: Option<(Document, String)>,
}

impl Sources {
    /// Arguments and environment of the process. The file is the one that `--config` or its environment variable names.
    pub fn of_process() -> Self {
        let environment = std::env::vars_os();
        // A variable whose name is not UTF-8 is no setting.
        let environment = environment.filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
        let arguments = std::env::args_os().collect();
        Self { arguments, environment: environment.collect(), ..Self::default() }
    }

    /// A settings file alone, as a program would read it: no arguments, no environment.
    pub fn of_file(path: &Path) -> Self {
        let arguments = ["program".into(), "--config".into(), path.into()];
        Self { arguments: arguments.into(), ..Self::default() }
    }

    /// Values that come from another file, whose name mistakes repeat with the values' lines; no arguments, no environment.
    pub fn of_document(document: Document, file: impl Into<String>) -> Self {
        Self { document: Some((document, file.into())), ..Self::default() }
    }
}

/// Values of a settings file.
///
/// # Errors
/// The reason why the file cannot be read, or every place that is not TOML, each behind the name of the file.
pub fn read_document(path: &Path) -> Result<Document, Vec<String>> {
    let text = headwater_transport::read_bounded(path, MAX_FILE_BYTES).and_then(|bytes| {
        String::from_utf8(bytes).map_err(|error| {
            let found = error.utf8_error().valid_up_to();
            format!("expected text in UTF-8, found another byte after {found} bytes")
        })
    });
    let text = text.map_err(|reason| vec![format!("{}: {reason}", path.display())])?;
    Document::parse(&text).map_err(|mistakes| mistakes.iter().map(|mistake| mistake.in_file(path)).collect())
}
