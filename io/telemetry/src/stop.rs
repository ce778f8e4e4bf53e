//! The signals that end a program.

use std::io;

use tokio::signal::unix::{SignalKind, signal};

/// Waits for Ctrl-C, or for the signal with which a service manager stops a process.
///
/// # Errors
/// The system's error when a signal cannot be waited for.
pub fn stop_signal() -> io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! { _ = terminate.recv() => {} _ = interrupt.recv() => {} }
    })
}
