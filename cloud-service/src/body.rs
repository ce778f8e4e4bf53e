//! The body of a request: read within bounds, and freed of its `Content-Encoding`.

use std::fmt::Display;
use std::future::Future;
use std::io::Read;

use axum::body::{HttpBody, to_bytes};
use axum::extract::Request;
use axum::http::HeaderMap;
use bytes::Bytes;
use flate2::read::{MultiGzDecoder, ZlibDecoder};
use headwater_protocol::Fault;
use headwater_transport::RequestConnection;
use http_body_util::LengthLimitError;
use tokio::time::{Instant, timeout_at};

use crate::refusal::{Refusal, clipped};

/// HTTP's header of a body's encoding.
pub(crate) const CONTENT_ENCODING: &str = "content-encoding";

/// Reads at most `limit` bytes, until `until`; refuses a body whose announced length is larger without reading. A request that was given to
/// the router without a socket has no [`RequestConnection`].
pub(crate) async fn read(request: Request, limit: usize, until: Instant) -> Result<Bytes, Refusal> {
    let (parts, body) = request.into_parts();
    let announced = body.size_hint().lower();
    if announced > limit as u64 {
        return Err(oversize(limit, announced));
    }
    let reading = in_time("body", until, to_bytes(body, limit));
    let read = match parts.extensions.get::<RequestConnection>() {
        Some(connection) => connection.while_reading(reading).await?,
        None => reading.await?,
    };
    // Any error other than the limit's is a broken connection.
    read.map_err(|error| match error.into_inner().is::<LengthLimitError>() {
        true => oversize(limit, "more"),
        false => Refusal::new(Fault::Malformed, "body: ended early"),
    })
}

/// The result of `reading`, or a refusal that names `what` if the result is not there at `until`.
pub(crate) async fn in_time<T>(
    what: &str,
    until: Instant,
    reading: impl Future<Output = T>,
) -> Result<T, Refusal> {
    let late = |_| {
        Refusal::new(Fault::DeadlineExceeded, format!("{what}: it did not arrive within http.deadline_ms"))
    };
    timeout_at(until, reading).await.map_err(late)
}

/// The body without the encoding that the header `name` says; a body of more than `limit` bytes after decoding is refused.
pub(crate) fn decoded(body: Bytes, headers: &HeaderMap, name: &str, limit: usize) -> Result<Bytes, Refusal> {
    let encodings = headers.get_all(name).iter();
    let encodings: Vec<_> = encodings.map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
    let encoding = encodings.join(", ").to_ascii_lowercase();
    let decoder: Box<dyn Read + '_> = match encoding.trim() {
        "" | "identity" => return Ok(body),
        "gzip" | "x-gzip" => Box::new(MultiGzDecoder::new(&body[..])),
        "deflate" => Box::new(ZlibDecoder::new(&body[..])),
        other => {
            let message = format!("{name}: expected gzip, deflate or identity, found {:?}", clipped(other));
            return Err(Refusal::new(Fault::UnknownEncoding, message));
        }
    };
    let mut plain = Vec::new();
    decoder.take(limit as u64 + 1).read_to_end(&mut plain).map_err(|error| {
        let expected = encoding.trim();
        Refusal::new(Fault::Malformed, format!("body: expected whole {expected}, as {name} says: {error}"))
    })?;
    if plain.len() > limit { Err(oversize(limit, "more after decoding")) } else { Ok(plain.into()) }
}

pub(crate) fn oversize(limit: usize, found: impl Display) -> Refusal {
    Refusal::new(Fault::Oversize, format!("body: expected at most {limit} bytes, found {found}"))
}
