//! The signal that asks a service to read its files again: SIGHUP, as by `systemctl reload`.

use std::io;

/// Requests to read files again.
#[derive(Debug)]
pub struct ReloadSignal {
    #[cfg(unix)]
    hangup: tokio::signal::unix::Signal,
}

impl ReloadSignal {
    /// Begins to take requests. Before this call the signal ends the process. Needs a tokio runtime.
    ///
    /// # Errors
    /// The system's error when the signal cannot be waited for.
    pub fn new() -> io::Result<Self> {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            Ok(Self { hangup: signal(SignalKind::hangup())? })
        }
        #[cfg(not(unix))]
        Ok(Self {})
    }

    /// Waits for the next request; for ever where the system has no such signal. Requests that come meanwhile count once. Cancelling the
    /// wait loses nothing.
    pub async fn next(&mut self) {
        #[cfg(unix)]
        if self.hangup.recv().await.is_some() {
            return;
        }
        std::future::pending::<()>().await;
    }
}
