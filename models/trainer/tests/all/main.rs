//! `headwater-train` from outside: training, its files, and its commands.

mod best_epoch;
mod checkpoint;
mod command_line;
mod configurations;
mod damaged_texts;
mod divergence;
mod gradients;
mod grouped;
mod live_account;
mod new;
mod program;
mod promises;
mod real_size;
mod regions;
mod resume;
mod run_folder;
mod saved;
mod small_run;
#[cfg(feature = "experiments")]
mod table;
mod tune;
mod views;
mod warnings;
