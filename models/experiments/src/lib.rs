//! Tables of experiments: trains the rows of an experiment file and makes their page from files of logits.
//!
//! A module imports only modules to its right or in the lines below. The test `module_orders` checks this diagram:
//!
//! ```text
//! tables          table
//! ```

pub mod table;
