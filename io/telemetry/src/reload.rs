//! The signal that asks a service to read its files again: SIGHUP, as by `systemctl reload`.

use std::io;

use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::warn;

/// Requests to read files again.
#[derive(Debug)]
pub struct ReloadSignal {
    hangup: Signal,
    /// True when a request came while files were read.
    is_requested: bool,
}

impl ReloadSignal {
    /// Begins to take requests; before that, the signal ends the process (see [`runtime_with_reloads`]). Needs a tokio runtime.
    ///
    /// # Errors
    /// The system's error when the signal cannot be waited for.
    pub fn new() -> io::Result<Self> {
        Ok(Self { hangup: signal(SignalKind::hangup())?, is_requested: false })
    }

    /// Waits for the next request. Requests that come meanwhile count once. Cancelling the wait loses nothing.
    pub async fn next(&mut self) {
        if !std::mem::take(&mut self.is_requested) {
            self.signal().await;
        }
    }

    /// Runs the reading of files to its end. A request that comes meanwhile is logged and kept for [`ReloadSignal::next`]: the files may
    /// have changed after they were read.
    pub async fn during<T>(&mut self, reading: impl Future<Output = T>) -> T {
        let mut reading = std::pin::pin!(reading);
        loop {
            tokio::select! {
                biased;
                read = &mut reading => return read,
                () = self.signal() => {
                    self.is_requested = true;
                    warn!("SIGHUP: the files of the request before are still being read; they are read again afterwards");
                }
            }
        }
    }

    async fn signal(&mut self) {
        if self.hangup.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}

/// A runtime, and the requests to read files again. A program makes this its first call, so that the signal does not end the program
/// while it starts.
///
/// # Errors
/// The system's error when there can be no thread, or the signal cannot be waited for.
pub fn runtime_with_reloads(builder: &mut Builder) -> io::Result<(Runtime, ReloadSignal)> {
    let runtime = builder.enable_all().build()?;
    let reloads = {
        let _context = runtime.enter();
        ReloadSignal::new()?
    };
    Ok((runtime, reloads))
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::process::{Command, id};
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn requests_during_a_reading_are_the_next_one() {
        let (mut reloads, mut other) = (ReloadSignal::new().unwrap(), ReloadSignal::new().unwrap());
        let reading = async {
            for _ in 0..2 {
                assert!(Command::new("kill").args(["-HUP", &id().to_string()]).status().unwrap().success());
                other.next().await;
                // The signal is noted before the reading ends.
                tokio::task::yield_now().await;
            }
            "read"
        };
        assert_eq!(reloads.during(reading).await, "read");
        timeout(Duration::from_secs(60), reloads.next()).await.expect("the requests count once");
        tokio::select! {
            biased;
            () = reloads.next() => panic!("there was one request more"),
            () = ready(()) => {}
        }
    }
}
