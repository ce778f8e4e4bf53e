//! The model's name in a path. A name that is not UTF-8 gets an answer of the error table too.

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use headwater_protocol::Fault;

use crate::refusal::Refusal;

#[derive(Debug)]
pub(crate) struct ModelName(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for ModelName {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        match Path::<String>::from_request_parts(parts, state).await {
            Ok(Path(name)) => Ok(Self(name)),
            Err(_) => Err(Refusal::new(
                Fault::NotFound,
                "the model's name: expected percent-encoded UTF-8, found something else",
            )),
        }
    }
}
