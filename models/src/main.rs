//! `headwater-train`: trains, evaluates and exports networks.

use std::process::ExitCode;

mod commands;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    commands::main()
}
