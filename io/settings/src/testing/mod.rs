//! Sources of settings that a test gives.

use std::ffi::OsString;

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
    #[must_use]
    pub fn with_file(mut self, text: impl Into<String>) -> Self {
        self.file = Some(text.into());
        self
    }
}
