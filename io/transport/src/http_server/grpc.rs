//! Unary calls of gRPC over HTTP/2, within the bounds of the HTTP server.
//!
//! ```text
//! message = 1 byte (1: compressed as `grpc-encoding` says), 4 bytes of length (the highest first), the bytes
//! call    = head (path /package.Service/Method), one message
//! answer  = head, one message, trailers with `grpc-status`; or one head with a status that is not 0
//! ```

use std::future::{Future, poll_fn};
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use h2::RecvStream;
use h2::server::SendResponse;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};
use thiserror::Error;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tracing::debug;

use super::activity::WatchedStream;
use super::closed::ClosedConnections;
use super::connections::Connections;
use super::{HttpListener, RequestConnection, ServerLimits, accept};
use crate::endpoint::percent_encoded;
use crate::tls::ServerIdentity;

/// Calls of one connection at a time; further calls wait at the client.
const MAX_CALLS: u32 = 32;

/// Bytes of a call that its client may send before the server has read them: the default of HTTP/2.
const STREAM_WINDOW_BYTES: u32 = 65_535;

/// Largest head of a call, bytes.
const MAX_HEAD_BYTES: u32 = 16 * 1024;

/// Bytes before a message: the flag of compression, and the length.
const PREFIX_BYTES: usize = 5;

/// Bounds of a server of gRPC.
#[derive(Clone, Copy, Debug)]
pub struct GrpcLimits {
    /// Bounds of its connections.
    pub server: ServerLimits,
    /// Largest message of a call in bytes, as it is sent.
    pub message_bytes: usize,
}

/// One call, whose message is not read yet.
#[derive(Debug)]
pub struct GrpcCall {
    /// Path `/package.Service/Method`, and metadata.
    pub head: Parts,
    /// The connection of the call.
    pub connection: RequestConnection,
    body: RecvStream,
    max_bytes: usize,
    /// One permit for each byte of messages that the connection may be reading at one time: as many as the largest message has. A call that
    /// waits for permits may hold one stream window beside them.
    room: Arc<Semaphore>,
}

/// Reason why a call has no message.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum GrpcMessageError {
    /// The message is larger than the limit.
    #[error("{0}")]
    Oversize(String),
    /// The call is not one of gRPC, or its bytes are not one message.
    #[error("{0}")]
    Malformed(String),
}

/// Status of a call without an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrpcStatus {
    /// Code of gRPC, not 0.
    pub code: u8,
    /// What was expected and found.
    pub message: String,
}

/// Serves until `stop` ends, as [`super::serve`] does. `service` is called once for each accepted connection, and returns the function
/// that answers a call, from its head on.
pub async fn serve_grpc<A, F>(
    listener: impl Into<HttpListener>,
    mut service: impl FnMut() -> A,
    limits: GrpcLimits,
    closed: Arc<ClosedConnections>,
    stop: impl Future<Output = ()>,
) where
    A: Fn(GrpcCall) -> F + Send + 'static,
    F: Future<Output = Result<Vec<u8>, GrpcStatus>> + Send + 'static,
{
    let HttpListener { tcp, identity } = listener.into();
    let session = || identity.as_ref().map(ServerIdentity::http2_session);
    let stopping = watch::Sender::new(false);
    let run = || {
        let (answer, max_bytes, stopping) = (service(), limits.message_bytes, stopping.subscribe());
        move |stream: WatchedStream, connection: RequestConnection| {
            run_connection(stream, connection, answer, max_bytes, stopping)
        }
    };
    let open = accept(tcp, session, run, Connections::new(limits.server, closed), stop).await;
    let tell = async {
        stopping.send_replace(true);
    };
    open.end(tell, limits.server.grace).await;
}

/// Answers calls until the client has closed the connection, or the server stops.
async fn run_connection<A, F>(
    stream: WatchedStream,
    connection: RequestConnection,
    answer: A,
    max_bytes: usize,
    mut stopping: watch::Receiver<bool>,
) -> Result<(), h2::Error>
where
    A: Fn(GrpcCall) -> F,
    F: Future<Output = Result<Vec<u8>, GrpcStatus>> + Send + 'static,
{
    let mut http2 = h2::server::Builder::new()
        .max_concurrent_streams(MAX_CALLS)
        // Calls that wait for room must not take the window of the call that has room.
        .initial_connection_window_size((MAX_CALLS + 1) * STREAM_WINDOW_BYTES)
        .max_header_list_size(MAX_HEAD_BYTES)
        .handshake(stream)
        .await?;
    connection.activity.speaks_http2();
    let room = Arc::new(Semaphore::new(max_bytes));
    let (mut calls, mut is_stopping) = (JoinSet::new(), false);
    loop {
        tokio::select! {
            accepted = http2.accept() => {
                let Some(accepted) = accepted else { return Ok(()) };
                let (request, respond) = accepted?;
                let (head, body) = request.into_parts();
                let (connection, room) = (connection.clone(), Arc::clone(&room));
                let counted = connection.activity.request();
                let call = GrpcCall { head, connection, body, max_bytes, room };
                let (is_grpc, answer) = (call.is_grpc(), answer(call));
                calls.spawn(async move {
                    let _counted = counted;
                    run_call(answer, respond, is_grpc).await;
                });
            }
            Some(_) = calls.join_next() => {}
            // A dropped sender stops the connection too.
            _ = stopping.wait_for(|&stop| stop), if !is_stopping => {
                is_stopping = true;
                http2.graceful_shutdown();
            }
        }
    }
}

/// Answers a call, unless its caller leaves before. Dropping the stream of a call that is not answered resets it.
async fn run_call(
    answer: impl Future<Output = Result<Vec<u8>, GrpcStatus>>,
    mut respond: SendResponse<Bytes>,
    is_grpc: bool,
) {
    let result = tokio::select! {
        biased;
        _ = poll_fn(|cx| respond.poll_reset(cx)) => return,
        result = answer => result,
    };
    if let Err(error) = write_answer(&mut respond, is_grpc, result) {
        debug!(%error, "a call broke");
    }
}

impl GrpcCall {
    /// Reads the message. Also returns true if the message is compressed as the header `grpc-encoding` says. Meanwhile the connection
    /// counts as waiting for its peer.
    ///
    /// # Errors
    /// [`GrpcMessageError`]: another kind of call, no message or several, or a message that is too large.
    pub async fn message(&mut self) -> Result<(Bytes, bool), GrpcMessageError> {
        if !self.is_grpc() {
            let reason = "expected POST with the content type application/grpc, found another call";
            return Err(GrpcMessageError::Malformed(reason.into()));
        }
        let reading = read_message(&mut self.body, self.max_bytes, &self.room);
        self.connection.while_reading(reading).await
    }

    fn is_grpc(&self) -> bool {
        let kind = self.head.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        self.head.method == Method::POST && kind.is_some_and(|kind| kind.starts_with(b"application/grpc"))
    }
}

async fn read_message(
    body: &mut RecvStream,
    max: usize,
    room: &Semaphore,
) -> Result<(Bytes, bool), GrpcMessageError> {
    let broken = |error: h2::Error| GrpcMessageError::Malformed(format!("message: {error}"));
    let (mut read, mut reserved) = (BytesMut::new(), None);
    while let Some(data) = body.data().await {
        let data = data.map_err(broken)?;
        body.flow_control().release_capacity(data.len()).map_err(broken)?;
        read.extend_from_slice(&data);
        let Some((_, found)) = prefix(&read) else { continue };
        if found > max {
            let reason = format!("message: expected at most {max} bytes, found {found}");
            return Err(GrpcMessageError::Oversize(reason));
        }
        if read.len() > PREFIX_BYTES + found {
            break;
        }
        if reserved.is_none() {
            // Acquiring fails only for a closed semaphore, and nobody closes this one.
            reserved = room.acquire_many(u32::try_from(found).unwrap_or(u32::MAX)).await.ok();
        }
    }
    let read = read.freeze();
    match prefix(&read) {
        Some((flag @ 0..=1, bytes)) if bytes == read.len() - PREFIX_BYTES => {
            Ok((read.slice(PREFIX_BYTES..), flag == 1))
        }
        _ => {
            let found = read.len();
            let reason =
                format!("expected one message after its {PREFIX_BYTES} bytes of length, found {found} bytes");
            Err(GrpcMessageError::Malformed(reason))
        }
    }
}

/// The flag of compression and the length before a message; `None` until these bytes have arrived.
fn prefix(read: &[u8]) -> Option<(u8, usize)> {
    let &[flag, a, b, c, d] = read.first_chunk()?;
    Some((flag, u32::from_be_bytes([a, b, c, d]) as usize))
}

fn write_answer(
    respond: &mut SendResponse<Bytes>,
    is_grpc: bool,
    result: Result<Vec<u8>, GrpcStatus>,
) -> Result<(), h2::Error> {
    let mut response = Response::new(());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    if !is_grpc {
        *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    }
    match result {
        Ok(message) => {
            let mut frame = BytesMut::with_capacity(PREFIX_BYTES + message.len());
            frame.put_u8(0);
            frame.put_u32(message.len() as u32);
            frame.put_slice(&message);
            let mut stream = respond.send_response(response, false)?;
            stream.send_data(frame.freeze(), false)?;
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", HeaderValue::from_static("0"));
            stream.send_trailers(trailers)
        }
        Err(GrpcStatus { code, message }) => {
            response.headers_mut().insert("grpc-status", HeaderValue::from(u16::from(code)));
            // `grpc-message` may have printable ASCII other than `%`.
            let message = percent_encoded(&message, |byte| matches!(byte, b' '..=b'~') && byte != b'%');
            if let Ok(message) = HeaderValue::try_from(message) {
                response.headers_mut().insert("grpc-message", message);
            }
            respond.send_response(response, true).map(|_| ())
        }
    }
}
