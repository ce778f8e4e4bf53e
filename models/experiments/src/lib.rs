//! Tables of experiments: an experiment file names networks, recipes, seeds and folds; every run leaves files of logits; a page is made
//! of these files.
//!
//! ```text
//! experiments/NAME.toml ─[plan]─> runs ─[run]─> logits of each part and presence pattern ─[figures, metrics]─> figures ─[page]─> NAME.md, NAME.json
//!                                 data ─[simple]─> what needs no network: neighbours, presence patterns, one camera ──────────┘
//! ```
//!
//! Seeds are never pooled: a figure is computed for each run, and the page gives mean and standard deviation over runs beside the
//! binomial interval of one run.
//!
//! A module imports only modules to its right or in the lines below. The test `module_orders` checks this diagram:
//!
//! ```text
//! tables          page
//! statistics      paired  spread  simple
//! figures         figures  metrics
//! runs            run  plan  plan_file
//! ```

pub mod figures;
pub mod metrics;
pub mod page;
mod paired;
pub mod plan;
mod plan_file;
pub mod run;
pub mod simple;
mod spread;
