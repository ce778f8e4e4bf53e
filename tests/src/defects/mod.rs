//! The defects of the first users: each fix as an edit that takes it out, and the tests that fail without it.
//!
//! ```text
//! tests/defects.toml ──> Table ──> an edit ──> Edited (in a copy of the tracked files) ──> Cargo runs the named tests ──> Finding
//! ```

mod cargo;
mod finding;
mod table;

pub use cargo::{Cargo, Outcome};
pub use finding::{Finding, baseline, find};
pub use table::{Change, Edit, Edited, LAST_DEFECT, Table, TestRun};
