//! Errors as HTTP answers: the one place where a fault becomes a status and a body.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use headwater_protocol::Fault;
use headwater_protocol::v2::V2Error;
use serde_json::json;

/// Answer without logits. The message names the caller's mistake and nothing internal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) fault: Fault,
    pub(crate) message: String,
}

impl Refusal {
    pub(crate) fn new(fault: Fault, message: impl Into<String>) -> Self {
        Self { fault, message: message.into() }
    }

    /// A fault of the service; the reason is in the log.
    pub(crate) fn internal() -> Self {
        Self::new(Fault::Internal, "the model failed on this request; the server's log has the reason")
    }
}

/// The beginning of a text that a client sent, for a message.
pub(crate) fn clipped(text: &str) -> String {
    text.chars().take(64).collect()
}

impl From<V2Error> for Refusal {
    fn from(error: V2Error) -> Self {
        Self::new(Fault::Malformed, error.to_string())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status =
            StatusCode::from_u16(self.fault.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = json!({ "error": self.message, "code": self.fault.code() }).to_string();
        let mut response = (status, [(header::CONTENT_TYPE, "application/json")], body).into_response();
        if self.fault.is_passing() {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_and_code_come_from_the_one_table() {
        for fault in Fault::all() {
            let response = Refusal::new(fault, "why").into_response();
            assert_eq!(response.status().as_u16(), fault.http_status());
            assert_eq!(response.headers().contains_key(header::RETRY_AFTER), fault.is_passing());
        }
    }
}
