//! State of an open connection: the event that is awaited, and since when.
//!
//! ```text
//! accepted ──> Head ──> Request ──> Idle ──first byte──> Head ──> ...
//!                        │   ▲
//!                        ▼   │
//!                        Body          beside each of these states: an answer that the peer does not read
//! ```

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, sleep_until};

use super::ServerLimits;
use super::closed::CloseReason;
use crate::connection::Duplex;

/// State of one connection, shared by its socket, its requests and the server.
#[derive(Debug)]
pub(super) struct Activity {
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    phase: Phase,
    /// Requests from their heads to their answers; HTTP/1 has one at a time.
    requests: usize,
    /// Requests whose bodies are awaited.
    bodies: usize,
    /// Time since which the socket takes no more bytes of an answer; `None` if the socket has taken all bytes.
    unread_since: Option<Instant>,
    /// True when the connection speaks HTTP/2.
    is_http2: bool,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// The head of a request is awaited: the connection's first head, or a head that has begun.
    Head { since: Instant },
    /// The body of a request is awaited.
    Body { since: Instant },
    /// A request is worked on.
    Request,
    /// The last request is answered, and no next one has begun.
    Idle { since: Instant },
}

/// Kind of a wait for the peer, in the order in which waiting connections are closed to make room for new connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WaitKind {
    /// A head or a body has not arrived.
    Request,
    /// An answer is not read.
    Reader,
    /// A kept-alive connection has no request.
    Idle,
}

impl Activity {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            state: Mutex::new(State {
                phase: Phase::Head { since: now },
                requests: 0,
                bodies: 0,
                unread_since: None,
                is_http2: false,
            }),
        }
    }

    /// The peer's present wait, and since when; `None` while the server works on a request.
    pub(super) fn wait(&self) -> Option<(WaitKind, Instant)> {
        let State { phase, unread_since, .. } = self.state();
        if let Some(since) = unread_since {
            return Some((WaitKind::Reader, since));
        }
        match phase {
            Phase::Head { since } | Phase::Body { since } => Some((WaitKind::Request, since)),
            Phase::Idle { since } => Some((WaitKind::Idle, since)),
            Phase::Request => None,
        }
    }

    /// Returns true if the connection still waits for the head of a request: closing the connection then loses no answer.
    pub(super) fn awaits_head(&self) -> bool {
        matches!(self.state().phase, Phase::Head { .. })
    }

    /// Waits until one of the limits is exceeded, and returns the reason to close the connection.
    ///
    /// Two checks are at most the shortest limit apart. So a limit that begins after a check ends no earlier than the next check, and no
    /// event has to wake this future.
    pub(super) async fn overdue(&self, limits: &ServerLimits) -> CloseReason {
        let shortest = limits.head_timeout.min(limits.answer_timeout).min(limits.idle_timeout);
        loop {
            let now = Instant::now();
            let check = match self.deadline(limits) {
                Some((at, reason)) if at <= now => return reason,
                Some((at, _)) => at.min(now + shortest),
                None => now + shortest,
            };
            sleep_until(check).await;
        }
    }

    fn deadline(&self, limits: &ServerLimits) -> Option<(Instant, CloseReason)> {
        let State { phase, unread_since, .. } = self.state();
        if let Some(since) = unread_since {
            return Some((since + limits.answer_timeout, CloseReason::AnswerTimeout));
        }
        match phase {
            Phase::Head { since } => Some((since + limits.head_timeout, CloseReason::HeadTimeout)),
            Phase::Idle { since } => Some((since + limits.idle_timeout, CloseReason::IdleTimeout)),
            // The service bounds the time for a body and the time of its own work.
            Phase::Body { .. } | Phase::Request => None,
        }
    }

    /// Notes that the connection speaks HTTP/2, and has no request yet.
    #[cfg(feature = "grpc-server")]
    pub(super) fn speaks_http2(&self) {
        self.change(|state| (state.is_http2, state.phase) = (true, Phase::Idle { since: Instant::now() }));
    }

    /// Counts a request, from its head until the returned value is dropped.
    pub(super) fn request(self: &Arc<Self>) -> Counted {
        self.count(|state| &mut state.requests)
    }

    /// Counts a request whose body is awaited, until the returned value is dropped. Requests whose bodies arrive slowly do not keep the
    /// connection from being closed.
    pub(super) fn body(self: &Arc<Self>) -> Counted {
        self.count(|state| &mut state.bodies)
    }

    fn count(self: &Arc<Self>, of: fn(&mut State) -> &mut usize) -> Counted {
        self.recount(|state| *of(state) += 1);
        Counted { activity: Arc::clone(self), of }
    }

    fn recount(&self, count: impl FnOnce(&mut State)) {
        self.change(|state| {
            count(state);
            let since = Instant::now();
            state.phase = match state.phase {
                _ if state.requests > state.bodies => Phase::Request,
                awaited @ Phase::Body { .. } if state.bodies > 0 => awaited,
                _ if state.bodies > 0 => Phase::Body { since },
                _ => Phase::Idle { since },
            };
        });
    }

    /// Notes that bytes have arrived. Bytes of HTTP/2 may be no head, but a ping or room for an answer.
    fn read(&self) {
        self.change(|state| {
            if matches!(state.phase, Phase::Idle { .. }) && !state.is_http2 {
                state.phase = Phase::Head { since: Instant::now() };
            }
        });
    }

    /// Notes a write; `all` is true if the socket has taken all bytes.
    fn wrote(&self, all: bool) {
        self.change(|state| {
            state.unread_since = if all { None } else { state.unread_since.or_else(|| Some(Instant::now())) };
        });
    }

    fn state(&self) -> State {
        *self.state.lock()
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock());
    }
}

/// Adds one to a count of the state, until this value is dropped.
pub(super) struct Counted {
    activity: Arc<Activity>,
    of: fn(&mut State) -> &mut usize,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.activity.recount(|state| *(self.of)(state) -= 1);
    }
}

/// An accepted connection, with or without TLS, that notes its reads and writes.
pub(super) struct WatchedStream {
    stream: Box<dyn Duplex>,
    activity: Arc<Activity>,
}

impl WatchedStream {
    pub(super) fn new(stream: Box<dyn Duplex>, activity: Arc<Activity>) -> Self {
        Self { stream, activity }
    }

    fn note_write(&self, result: &Poll<io::Result<usize>>, bytes: usize) {
        match result {
            Poll::Ready(Ok(written)) => self.activity.wrote(*written >= bytes),
            Poll::Pending => self.activity.wrote(false),
            // The connection is broken and ends.
            Poll::Ready(Err(_)) => {}
        }
    }
}

impl AsyncRead for WatchedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let result = Pin::new(&mut self.stream).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.activity.read();
        }
        result
    }
}

impl AsyncWrite for WatchedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.note_write(&result, buf.len());
        result
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.note_write(&result, bufs.iter().map(|buf| buf.len()).sum());
        result
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
