//! A running member of a group: an event loop with a connection to the broker and a report.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use headwater_link::{Link, WireBytes};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle};
use tracing::error;

use crate::aggregator::AggregatorError;
use crate::journal::JournalError;

/// A running member of a group. Dropping the value stops the member as [`Member::shutdown`] does, without waiting.
#[derive(Debug)]
pub struct Member<R> {
    pub(crate) link: Link,
    pub(crate) grace: Duration,
    pub(crate) report: Arc<Mutex<R>>,
    pub(crate) stop: watch::Sender<bool>,
    pub(crate) worker: JoinHandle<Result<(), JournalError>>,
}

/// Report of a member, with the bytes on its connection to the broker.
pub trait MemberReport: Clone + Send + 'static {
    /// Sets the bytes on the socket.
    fn set_wire(&mut self, wire: WireBytes);
}

impl<R: MemberReport> Member<R> {
    /// Counts since the start.
    pub fn report(&self) -> R {
        self.reader()()
    }

    /// A function that reads the counts, also after the member has ended.
    pub(crate) fn reader(&self) -> impl Fn() -> R + Send + Sync + 'static + use<R> {
        let (link, report) = (self.link.clone(), Arc::clone(&self.report));
        move || {
            let mut report = report.lock().unwrap_or_else(PoisonError::into_inner).clone();
            report.set_wire(link.wire());
            report
        }
    }

    /// Whether the member is connected to the broker.
    pub fn is_connected(&self) -> bool {
        self.link.is_connected()
    }

    /// Stops, each step within the grace time: accepts no new samples, finishes the open ones, lets the broker take the last messages.
    ///
    /// # Errors
    /// [`AggregatorError`] when the member had stopped by itself before.
    pub async fn shutdown(mut self) -> Result<R, AggregatorError> {
        self.stop.send_replace(true);
        let ended = (&mut self.worker).await;
        self.finish(ended).await
    }

    /// Runs until `stop` ends, or until the member ends by itself.
    ///
    /// # Errors
    /// [`AggregatorError`] when the member stopped by itself.
    pub(crate) async fn run(mut self, stop: impl Future<Output = ()>) -> Result<R, AggregatorError> {
        tokio::select! {
            () = stop => self.shutdown().await,
            ended = &mut self.worker => self.finish(ended).await,
        }
    }

    /// Ends everything at once, as SIGKILL would; returns when the task has ended.
    pub async fn kill(mut self) {
        self.link.kill();
        self.worker.abort();
        // The abort is the expected end.
        let _ = (&mut self.worker).await;
    }

    async fn finish(self, ended: Result<Result<(), JournalError>, JoinError>) -> Result<R, AggregatorError> {
        self.link.shutdown(self.grace).await;
        match ended {
            Ok(Ok(())) => Ok(self.report()),
            Ok(Err(journal)) => {
                error!(%journal, "stopped");
                Err(journal.into())
            }
            Err(panic) => Err(AggregatorError::Stopped(panic.to_string())),
        }
    }
}
