//! A snapshot URL: a GET at each capture, abandoned after a timeout (if the clock causes captures: before the next one is due).

use std::error::Error;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use bytes::Bytes;
use headwater_protocol::SampleId;
use headwater_samples::View;
use headwater_transport::{Connector, Endpoint, HttpClient, HttpClientConfig, Secret};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use hyper::header::{ACCEPT, AUTHORIZATION, CONNECTION, CONTENT_TYPE, HeaderValue, USER_AGENT};
use hyper::{Request, Response, StatusCode};
use tokio::task::JoinSet;

use super::MAX_FRAME_BYTES;
use super::faults::FrameFault;
use super::preprocess::Preprocessor;
use crate::config::Capture;
use crate::error::DeviceError;
use crate::report::SharedReport;
use crate::settings::HttpSettings;

/// Largest number of requests under way: a camera slower than the captures does not get more and more requests.
const MAX_REQUESTS: usize = 4;

/// Client of a camera.
pub(crate) struct SnapshotClient {
    url: Endpoint,
    http: HttpClient,
    authorization: Option<HeaderValue>,
    timeout: Duration,
    preprocessor: Preprocessor,
}

/// The view of a requested sample.
pub(crate) struct Snapshot {
    pub(crate) sample: SampleId,
    pub(crate) captured_us: u64,
    pub(crate) view: View,
}

/// Requests under way and their results.
pub(crate) struct SnapshotRequests {
    client: Arc<SnapshotClient>,
    faults: SharedReport,
    under_way: JoinSet<Option<Snapshot>>,
}

impl SnapshotClient {
    /// Makes a client, and reads user and password if they are in a file.
    pub(crate) fn open(
        settings: &HttpSettings,
        capture: Capture,
        preprocessor: Preprocessor,
    ) -> Result<Self, DeviceError> {
        let url = settings
            .url
            .clone()
            .ok_or_else(|| DeviceError::source_of_frames("http", "expected source.http.url, found none"))?;
        let pair = match &settings.auth_file {
            Some(path) => {
                let secret = Secret::of_file(path);
                Some(secret.map_err(|reason| DeviceError::source_of_frames("auth_file", reason))?.get())
            }
            None => settings.auth.clone(),
        };
        let authorization = pair.map(|pair| basic_authorization(&pair)).transpose().map_err(|reason| {
            DeviceError::source_of_frames("user and password of the snapshot URL", reason)
        })?;
        let timeout = settings.timeout(capture);
        // A connection per request: the next capture may be far away.
        let config = HttpClientConfig { connect_timeout: timeout, idle_timeout: timeout, max_idle: 0 };
        let http = config.client(Connector::default());
        Ok(Self { url, http, authorization, timeout, preprocessor })
    }

    pub(crate) fn start(self, faults: SharedReport) -> SnapshotRequests {
        SnapshotRequests { client: Arc::new(self), faults, under_way: JoinSet::new() }
    }

    /// Requests a snapshot. `None` after a fault, which is counted.
    async fn view(&self, faults: &SharedReport) -> Option<View> {
        let fetched = tokio::time::timeout(self.timeout, self.fetch()).await.unwrap_or_else(|_| {
            Err((FrameFault::TIMEOUT, format!("no answer within {} ms", self.timeout.as_millis())))
        });
        let bytes = fetched
            .map_err(|(fault, detail)| faults.count_fault(fault, format_args!("{}: {detail}", self.url)))
            .ok()?;
        let (preprocessor, name, faults) = (self.preprocessor, self.url.to_string(), faults.clone());
        let view = tokio::task::spawn_blocking(move || {
            let view = preprocessor.image(&bytes, &name, &faults)?;
            faults.count_frame();
            Some(view)
        });
        view.await.ok().flatten()
    }

    async fn fetch(&self) -> Result<Bytes, (FrameFault, String)> {
        let mut request = Request::get(self.url.uri().map_err(unreachable)?)
            .header(USER_AGENT, concat!("headwater-device/", env!("CARGO_PKG_VERSION")))
            .header(ACCEPT, "image/*")
            .header(CONNECTION, "close");
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let request = request.body(Full::default()).map_err(unreachable)?;
        let response = self.http.request(request).await.map_err(|error| {
            let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
            (FrameFault::UNREACHABLE, format!("{error}{cause}"))
        })?;
        body_of(response).await
    }
}

fn unreachable(error: impl std::fmt::Display) -> (FrameFault, String) {
    (FrameFault::UNREACHABLE, error.to_string())
}

/// The header value for `user:password` (RFC 7617), marked as sensitive so that it is never printed.
fn basic_authorization(pair: &str) -> Result<HeaderValue, String> {
    let fail = || "expected user:password in one line".to_owned();
    if !pair.contains(':') || pair.chars().any(char::is_control) {
        return Err(fail());
    }
    let mut value = HeaderValue::from_str(&format!("Basic {}", BASE64.encode(pair))).map_err(|_| fail())?;
    value.set_sensitive(true);
    Ok(value)
}

async fn body_of(response: Response<Incoming>) -> Result<Bytes, (FrameFault, String)> {
    let status = response.status();
    if status != StatusCode::OK {
        return Err((FrameFault::STATUS, format!("expected status 200, found {status}")));
    }
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind: String = kind.chars().take(60).collect::<String>().to_ascii_lowercase();
    if ["text/", "multipart/", "application/json", "application/xml"].iter().any(|no| kind.starts_with(no)) {
        return Err((FrameFault::NOT_AN_IMAGE, format!("expected an image, found {kind}")));
    }
    let oversize = || (FrameFault::OVERSIZE, format!("expected at most {MAX_FRAME_BYTES} bytes, found more"));
    if response.body().size_hint().lower() > MAX_FRAME_BYTES {
        return Err(oversize());
    }
    let body = Limited::new(response.into_body(), MAX_FRAME_BYTES as usize).collect().await;
    let body = body.map_err(|error| match error.is::<LengthLimitError>() {
        true => oversize(),
        false => (FrameFault::CUT, format!("in the middle of the body: {error}")),
    })?;
    let bytes = body.to_bytes();
    if super::image_files::is_cut(&bytes) {
        return Err((FrameFault::CUT, format!("the image ends after {} bytes", bytes.len())));
    }
    Ok(bytes)
}

impl SnapshotRequests {
    /// Requests a snapshot, which a later [`SnapshotRequests::next`] returns. With too many requests under way, counts a fault instead.
    pub(crate) fn start(&mut self, sample: SampleId, captured_us: u64) {
        if self.under_way.len() >= MAX_REQUESTS {
            let detail = format_args!("{}: {MAX_REQUESTS} requests are unanswered", self.client.url);
            self.faults.count_fault(FrameFault::BUSY, detail);
            return;
        }
        let (client, faults) = (Arc::clone(&self.client), self.faults.clone());
        self.under_way.spawn(async move {
            client.view(&faults).await.map(|view| Snapshot { sample, captured_us, view })
        });
    }

    /// The next snapshot. Cancelling the wait loses nothing.
    pub(crate) async fn next(&mut self) -> Snapshot {
        loop {
            match self.under_way.join_next().await {
                Some(Ok(Some(snapshot))) => return snapshot,
                // The fault is counted already.
                Some(_) => {}
                None => pending().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_and_password_become_the_header_of_the_standard() {
        // RFC 7617, section 2.
        let header = basic_authorization("Aladdin:open sesame").unwrap();
        assert_eq!(header, "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        assert!(basic_authorization("nobody").is_err() && basic_authorization("a:b\r\nX: y").is_err());
        assert!(!format!("{:?}", basic_authorization("a:b").unwrap()).contains("Basic"));
    }
}
