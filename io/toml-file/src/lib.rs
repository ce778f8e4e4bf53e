//! Reads the text of a TOML file that a person writes, into a type or key by key: every mistake at once with its line, and the nearest
//! known name of a misspelt key.
//!
//! The crate opens no file and reads no environment.
//!
//! A module imports only modules to its right or in the lines below. The test `module_orders` checks this diagram:
//!
//! ```text
//! texts           read  document  edit  table
//! ground          mistake  nearest
//! ```

mod document;
#[cfg(feature = "edit")]
mod edit;
mod mistake;
mod nearest;
mod read;
mod table;

pub use document::{Document, Located, line_at};
#[cfg(feature = "edit")]
pub use edit::edit;
pub use mistake::Mistake;
pub use nearest::{last_part, nearest, no_such_key};
pub use read::{one_of, read, with_lines};
pub use table::check_range;
