//! `headwater-train`: trains, evaluates and exports networks.

use std::process::ExitCode;

mod commands;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    keep_memory();
    commands::main()
}

/// Keeps freed memory in the process. Every step allocates the same buffers again; returning them to the system costs a quarter of
/// the training time in page faults.
#[expect(unsafe_code, reason = "an allocator option has no safe wrapper")]
fn keep_memory() {
    /// `mi_option_purge_delay` in mimalloc.h.
    const PURGE_DELAY: std::ffi::c_int = 15;
    unsafe extern "C" {
        fn mi_option_set(option: std::ffi::c_int, value: std::ffi::c_long);
    }
    // SAFETY: the declaration is that of mimalloc.h, which is linked as the global allocator. The call sets a number (-1: never purge)
    // before any other thread runs.
    unsafe { mi_option_set(PURGE_DELAY, -1) };
}
