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
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use tokio::net::TcpStream;
use tokio::sync::watch;
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
        let calls = Calls { answer: service(), limits, connection };
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
            .max_header_list_size(MAX_HEAD_BYTES)
            .handshake(stream)
            .await?;
        let activity = &self.connection.activity;
        activity.begins_http2();
        let (mut running, mut is_stopping) = (JoinSet::new(), false);
        loop {
            tokio::select! {
                accepted = connection.accept() => {
                    let Some(call) = accepted else { return Ok(()) };
                    let (request, respond) = call?;
                    activity.works();
                    running.spawn(self.clone().one(request, respond));
                }
                Some(_) = running.join_next() => {
                    if running.is_empty() {
                        activity.answered();
                    }
                }
                // A dropped sender stops the connection too.
                _ = stopping.wait_for(|&stop| stop), if !is_stopping => {
                    is_stopping = true;
                    connection.graceful_shutdown();
                }
            }
        }
    }

    /// Answers one call.
    async fn one(self, request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
        if let Err(error) = self.ask(request, &mut respond).await {
            debug!(%error, "a call broke");
            respond.send_reset(Reason::CANCEL);
        }
    }

    async fn ask(
        self,
        request: Request<RecvStream>,
        respond: &mut SendResponse<Bytes>,
    ) -> Result<(), h2::Error> {
        let (head, body) = request.into_parts();
        let kind = head.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        if head.method != Method::POST || !kind.is_some_and(|kind| kind.starts_with(b"application/grpc")) {
            let mut response = Response::new(());
            *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            return respond.send_response(response, true).map(|_| ());
        }
        let result = match read_message(body, &self.limits).await {
            Ok((message, is_compressed)) => {
                let (path, headers) = (head.uri.path().to_owned(), head.headers);
                let call = GrpcCall { path, headers, message, is_compressed, connection: self.connection };
                tokio::select! {
                    result = (self.answer)(call) => result,
                    // The caller has left.
                    _ = poll_fn(|cx| respond.poll_reset(cx)) => return Ok(()),
                }
            }
            Err(Unread::Refused(status)) => Err(status),
            Err(Unread::Broken(error)) => return Err(error),
        };
        write_answer(respond, result)
    }
}

/// Why the message of a call is not there.
enum Unread {
    Refused(GrpcStatus),
    Broken(h2::Error),
}

/// Reads the one message of a call; says whether it is compressed.
async fn read_message(mut body: RecvStream, limits: &GrpcLimits) -> Result<(Bytes, bool), Unread> {
    let refuse = |code, message: String| Unread::Refused(GrpcStatus { code, message });
    let max = limits.message_bytes;
    let reading = async {
        let mut read = BytesMut::new();
        while let Some(data) = body.data().await {
            let data = data.map_err(Unread::Broken)?;
            if read.len() + data.len() > PREFIX_BYTES + max {
                return Err(refuse(RESOURCE_EXHAUSTED, format!("message: expected at most {max} bytes")));
            }
            body.flow_control().release_capacity(data.len()).map_err(Unread::Broken)?;
            read.extend_from_slice(&data);
        }
        Ok(read.freeze())
    };
    let late = || refuse(DEADLINE_EXCEEDED, "message: it did not arrive in time".into());
    let mut read = timeout(limits.message_timeout, reading).await.map_err(|_| late())??;
    let not_one = |read: &Bytes| {
        refuse(
            INVALID_ARGUMENT,
            format!(
                "expected one message after its {PREFIX_BYTES} bytes of length, found {} bytes",
                read.len()
            ),
        )
    };
    let Some((&[flag, a, b, c, d], _)) = read.split_first_chunk() else { return Err(not_one(&read)) };
    if u32::from_be_bytes([a, b, c, d]) as usize != read.len() - PREFIX_BYTES || flag > 1 {
        return Err(not_one(&read));
    }
    Ok((read.split_off(PREFIX_BYTES), flag == 1))
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
