//! Mistakes of a site file, each with its line.

use std::collections::BTreeSet;

use headwater_settings::{Loaded, Stop};

/// Every mistake that was found in a site file.
pub(super) struct Mistakes {
    file: String,
    found: Vec<String>,
}

impl Mistakes {
    pub(super) fn new(file: impl Into<String>) -> Self {
        Self { file: file.into(), found: Vec::new() }
    }

    /// Adds a mistake of a key in a line.
    pub(super) fn add(&mut self, key: &str, text: &str, line: usize) {
        self.found.push(format!("{key}: {text} ({}:{line})", self.file));
    }

    /// The settings; nothing where they have mistakes, which are added.
    pub(super) fn taken<S>(&mut self, loaded: Result<Loaded<S>, Stop>) -> Option<S> {
        match loaded {
            Ok(loaded) => Some(loaded.settings),
            Err(Stop::Mistakes(mistakes)) => {
                self.found.extend(mistakes);
                None
            }
            Err(Stop::Help(_)) => None,
        }
    }

    /// The mistakes, each once: cameras share the settings of `[device]`, and so their mistakes.
    pub(super) fn into_found(mut self) -> Vec<String> {
        let mut named = BTreeSet::new();
        self.found.retain(|mistake| named.insert(mistake.clone()));
        self.found
    }
}
