//! Reads the text of a TOML file that a person writes: every value with its line, and the nearest known name of a misspelt key.
//!
//! The crate opens no file and reads no environment.

mod document;
mod nearest;

pub use document::{Document, Located, SyntaxMistake, line_at};
pub use nearest::{last_part, nearest, no_such_key};
