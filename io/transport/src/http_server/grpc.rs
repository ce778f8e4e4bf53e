//! Unary calls of gRPC over HTTP/2, within the bounds of the HTTP server.
//!
//! ```text
//! message = 1 byte (1: compressed as `grpc-encoding` says), 4 bytes of length (the highest first), the bytes
//! call    = head (path /package.Service/Method), one message
//! answer  = head, one message, trailers with `grpc-status`; or one head with a status that is not 0
//! ```

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use h2::RecvStream;
use h2::server::SendResponse;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::debug;

use super::accepted::Accepted;
use super::activity::WatchedStream;
use super::closed::ClosedConnections;
use super::connections::{Connections, End};
use super::{HttpListener, RequestConnection, ServerLimits, accept, handshake};
use crate::tls::{ServerIdentity, ServerSession};

/// Calls of one connection at a time; further ones wait at the client.
const MAX_CALLS: u32 = 32;

/// Bytes of a call that its client may send before the server has read them: the default of HTTP/2.
const STREAM_WINDOW_BYTES: u32 = 65_535;

/// Largest head of a call, bytes.
const MAX_HEAD_BYTES: u32 = 16 * 1024;

/// Bytes before a message: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;

/// Bounds of a server of gRPC.
#[derive(Clone, Copy, Debug)]
pub struct GrpcLimits {
    /// Bounds of its connections.
    pub server: ServerLimits,
    /// Largest message of a call, as it is sent.
    pub message_bytes: usize,
    /// Longest time in which the message of a call must arrive.
    pub message_timeout: Duration,
}

/// One call.
#[derive(Debug)]
pub struct GrpcCall {
    /// `/package.Service/Method`.
    pub path: String,
    /// Metadata of the call.
    pub headers: HeaderMap,
    /// The message as it was sent.
    pub message: Bytes,
    /// Whether the message is compressed, as the header `grpc-encoding` says.
    pub is_compressed: bool,
    /// The connection of the call.
    pub connection: RequestConnection,
}

/// Status of a call without an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrpcStatus {
    /// Code of gRPC, not 0.
    pub code: u8,
    /// What was expected and found.
    pub message: String,
}

/// The call's message is larger than the limit.
const RESOURCE_EXHAUSTED: u8 = 8;
const INVALID_ARGUMENT: u8 = 3;
const DEADLINE_EXCEEDED: u8 = 4;

/// Serves until `stop` ends, as [`super::serve`] does. `service` is called once for each accepted connection, and gives what answers a call with
/// a message.
pub async fn serve_grpc<A, F>(
    listener: impl Into<HttpListener>,
    mut service: impl FnMut() -> A,
    limits: GrpcLimits,
    closed: Arc<ClosedConnections>,
    stop: impl Future<Output = ()>,
) where
    A: Fn(GrpcCall) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<Vec<u8>, GrpcStatus>> + Send + 'static,
{
    let HttpListener { tcp, identity } = listener.into();
    let stopping = watch::Sender::new(false);
    let run = |socket, connection| {
        let session = identity.as_ref().map(ServerIdentity::http2_session);
        let room = Arc::new(Semaphore::new(limits.message_bytes));
        let calls = Calls { answer: service(), limits, connection, room };
        run_connection(socket, session, calls, stopping.subscribe())
    };
    let open = accept(tcp, run, Connections::new(limits.server, closed), stop).await;
    let tell = async {
        stopping.send_replace(true);
    };
    open.end(tell, limits.server.grace).await;
}

/// What calls of one connection share.
#[derive(Clone)]
struct Calls<A> {
    answer: A,
    limits: GrpcLimits,
    connection: RequestConnection,
    /// Bytes of messages that may arrive at one time: those of one large message, so that calls side by side need no more memory.
    room: Arc<Semaphore>,
}

/// Runs a connection from its handshake to its end. Gives the end where the handshake failed.
async fn run_connection<A, F>(
    socket: TcpStream,
    session: Option<ServerSession>,
    mut calls: Calls<A>,
    stopping: watch::Receiver<bool>,
) -> Option<End>
where
    A: Fn(GrpcCall) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<Vec<u8>, GrpcStatus>> + Send + 'static,
{
    let peer = calls.connection.peer;
    match Accepted::new(socket, session).await {
        Ok((stream, certificate)) => {
            calls.connection.certificate = certificate.map(Arc::new);
            let stream = WatchedStream::new(stream, Arc::clone(&calls.connection.activity));
            if let Err(error) = calls.run(stream, stopping).await {
                debug!(%peer, %error, "a connection broke");
            }
            None
        }
        Err(error) => Some(End::Handshake(handshake::failure(&error))),
    }
}

impl<A, F> Calls<A>
where
    A: Fn(GrpcCall) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<Vec<u8>, GrpcStatus>> + Send + 'static,
{
    /// Answers calls until the client has closed the connection, or the server stops.
    async fn run(self, stream: WatchedStream, mut stopping: watch::Receiver<bool>) -> Result<(), h2::Error> {
        let mut connection = h2::server::Builder::new()
            .max_concurrent_streams(MAX_CALLS)
            // Calls that wait for room must not take the window of the one that has it.
            .initial_connection_window_size((MAX_CALLS + 1) * STREAM_WINDOW_BYTES)
            .max_header_list_size(MAX_HEAD_BYTES)
            .handshake(stream)
            .await?;
        let (mut arriving, mut answering, mut is_stopping) = (JoinSet::new(), JoinSet::new(), false);
        loop {
            self.connection.activity.has_calls(!arriving.is_empty(), !answering.is_empty());
            tokio::select! {
                accepted = connection.accept() => {
                    let Some(call) = accepted else { return Ok(()) };
                    let (request, respond) = call?;
                    arriving.spawn(self.clone().arrive(request, respond));
                }
                Some(arrived) = arriving.join_next() => {
                    if let Ok(Some((call, respond))) = arrived {
                        answering.spawn(self.clone().answer(call, respond));
                    }
                }
                Some(_) = answering.join_next() => {}
                // A dropped sender stops the connection too.
                _ = stopping.wait_for(|&stop| stop), if !is_stopping => {
                    is_stopping = true;
                    connection.graceful_shutdown();
                }
            }
        }
    }

    /// Reads a call; `None` if there is none to answer.
    async fn arrive(
        self,
        request: Request<RecvStream>,
        mut respond: SendResponse<Bytes>,
    ) -> Option<(GrpcCall, SendResponse<Bytes>)> {
        let (head, body) = request.into_parts();
        let kind = head.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        if head.method != Method::POST || !kind.is_some_and(|kind| kind.starts_with(b"application/grpc")) {
            let mut response = Response::new(());
            *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            note_broken(respond.send_response(response, true).map(|_| ()));
            return None;
        }
        let late =
            || GrpcStatus { code: DEADLINE_EXCEEDED, message: "message: it did not arrive in time".into() };
        let reading = read_message(body, self.limits.message_bytes, &self.room);
        let read = tokio::select! {
            read = timeout(self.limits.message_timeout, reading) => read,
            _ = poll_fn(|cx| respond.poll_reset(cx)) => return None,
        };
        match read.unwrap_or_else(|_| Ok(Err(late()))) {
            Ok(Ok((message, is_compressed))) => {
                let (path, headers) = (head.uri.path().to_owned(), head.headers);
                let call = GrpcCall { path, headers, message, is_compressed, connection: self.connection };
                return Some((call, respond));
            }
            Ok(Err(status)) => note_broken(write_answer(&mut respond, Err(status))),
            Err(error) => note_broken(Err(error)),
        }
        None
    }

    /// Answers a call, unless its caller leaves before.
    async fn answer(self, call: GrpcCall, mut respond: SendResponse<Bytes>) {
        let result = tokio::select! {
            result = (self.answer)(call) => result,
            _ = poll_fn(|cx| respond.poll_reset(cx)) => return,
        };
        note_broken(write_answer(&mut respond, result));
    }
}

/// Notes a call whose answer could not be written; dropping its stream resets it.
fn note_broken(written: Result<(), h2::Error>) {
    if let Err(error) = written {
        debug!(%error, "a call broke");
    }
}

/// Reads the one message of a call, at most `max` bytes, and whether it is compressed; or refuses it.
async fn read_message(
    mut body: RecvStream,
    max: usize,
    room: &Semaphore,
) -> Result<Result<(Bytes, bool), GrpcStatus>, h2::Error> {
    let refuse = |code, message| Ok(Err(GrpcStatus { code, message }));
    let (mut read, mut reserved) = (BytesMut::new(), None);
    while let Some(data) = body.data().await {
        let data = data?;
        body.flow_control().release_capacity(data.len())?;
        read.extend_from_slice(&data);
        let Some((_, announced)) = prefix(&read) else { continue };
        if announced > max {
            let message = format!("message: expected at most {max} bytes, found {announced}");
            return refuse(RESOURCE_EXHAUSTED, message);
        }
        if read.len() > PREFIX_BYTES + announced {
            break;
        }
        if reserved.is_none() {
            // Nobody closes the semaphore.
            reserved = room.acquire_many(u32::try_from(announced).unwrap_or(u32::MAX)).await.ok();
        }
    }
    let read = read.freeze();
    match prefix(&read) {
        Some((flag @ 0..=1, bytes)) if bytes == read.len() - PREFIX_BYTES => {
            Ok(Ok((read.slice(PREFIX_BYTES..), flag == 1)))
        }
        _ => {
            let found = read.len();
            let message =
                format!("expected one message after its {PREFIX_BYTES} bytes of length, found {found} bytes");
            refuse(INVALID_ARGUMENT, message)
        }
    }
}

/// What stands before a message: the byte that says whether it is compressed, and its length.
fn prefix(read: &[u8]) -> Option<(u8, usize)> {
    let &[flag, a, b, c, d] = read.first_chunk()?;
    Some((flag, u32::from_be_bytes([a, b, c, d]) as usize))
}

fn write_answer(
    respond: &mut SendResponse<Bytes>,
    result: Result<Vec<u8>, GrpcStatus>,
) -> Result<(), h2::Error> {
    let mut response = Response::new(());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
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
            if let Ok(message) = HeaderValue::try_from(percent_encoded(&message)) {
                response.headers_mut().insert("grpc-message", message);
            }
            respond.send_response(response, true).map(|_| ())
        }
    }
}

/// A text in the letters that `grpc-message` may have.
fn percent_encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b' '..=b'~' if byte != b'%' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}
