//! Sources of settings that a test gives.

use std::ffi::OsString;

use headwater_toml_file::Document;

use crate::sources::Sources;

impl Sources {
    /// Sets the arguments, which are given without the program's name.
    #[must_use]
    pub fn with_arguments<A: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments = [OsString::from("program")].into_iter().collect();
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Sets all environment variables.
    #[must_use]
    pub fn with_environment<'a>(mut self, variables: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        self.environment =
            variables.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
        self
    }

    /// Sets the text of the settings file, in place of the file that `--config` names.
    ///
    /// # Panics
    /// For a text that is no TOML.
    #[must_use]
    pub fn with_file(mut self, text: impl Into<String>) -> Self {
        let document = Document::parse(&text.into()).expect("a test gives TOML");
        self.document = Some((document, String::new()));
        self
    }
}
