//! `headwater-train` from outside: training, its files, and its commands.

mod checkpoint;
mod command_line;
mod configurations;
mod damaged_texts;
mod divergence;
mod gradients;
mod grouped;
mod live_account;
mod program;
mod promises;
mod resume;
mod run_folder;
mod small_run;
#[cfg(feature = "experiments")]
mod table;
mod tune;
