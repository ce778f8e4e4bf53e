//! The engine of binary sections; it runs their packed form with [`headwater_kernels`].

mod section;
#[cfg(test)]
mod tests;

use headwater_kernels::CodePath;

use super::{Engine, EngineError, Section};
use crate::bundle::SectionBytes;
use section::PackedSection;

const NAME: &str = "packed";

/// Runs packed sections with the fastest instructions of this processor.
#[derive(Clone, Copy, Debug)]
pub struct PackedEngine {
    path: CodePath,
}

impl PackedEngine {
    /// The engine; it has no settings.
    pub fn new() -> Self {
        Self { path: CodePath::best() }
    }

    /// Name of the instructions that it uses.
    pub fn path(&self) -> &'static str {
        self.path.name()
    }
}

impl Default for PackedEngine {
    fn default() -> Self {
        Self::new()
    }
}

impl Engine for PackedEngine {
    fn name(&self) -> &'static str {
        NAME
    }

    fn load(&self, section: &SectionBytes<'_>) -> Result<Box<dyn Section>, EngineError> {
        Ok(Box::new(PackedSection::load(section, self.path)?))
    }
}
