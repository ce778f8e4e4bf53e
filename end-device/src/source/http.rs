//! A snapshot URL: a GET at each capture, abandoned before the next capture is due.

use std::error::Error;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use headwater_protocol::SampleId;
use headwater_samples::View;
use headwater_transport::{Connector, Endpoint, HttpClient, HttpClientConfig};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::header::{ACCEPT, AUTHORIZATION, CONNECTION, CONTENT_TYPE, HeaderValue, USER_AGENT};
use hyper::{Request, Response, StatusCode};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::config::{HttpAuth, MAX_FRAME_BYTES};
use super::faults::{FaultCounter, FrameFault};
use super::preprocess::Preprocessor;
use crate::error::DeviceError;

/// Requests under way. A camera slower than the captures does not get more and more of them.
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
    faults: FaultCounter,
    under_way: JoinSet<()>,
    sender: mpsc::Sender<Snapshot>,
    snapshots: mpsc::Receiver<Snapshot>,
}

impl SnapshotClient {
    /// Makes a client, and reads user and password if they are in a file.
    pub(crate) fn open(
        url: &Endpoint,
        timeout_ms: u64,
        auth: &HttpAuth,
        preprocessor: Preprocessor,
    ) -> Result<Self, DeviceError> {
        let pair = match auth {
            HttpAuth::None => None,
            HttpAuth::Given(secret) => Some(secret.0.clone()),
            HttpAuth::File(path) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|error| DeviceError::source_of_frames(path.display(), error))?;
                Some(text.lines().next().unwrap_or_default().to_owned())
            }
        };
        let authorization = pair.map(|pair| basic_authorization(&pair)).transpose().map_err(|reason| {
            DeviceError::source_of_frames("user and password of the snapshot URL", reason)
        })?;
        let timeout = Duration::from_millis(timeout_ms.max(1));
        // A connection per request: the next capture may be far away.
        let config = HttpClientConfig { connect_timeout: timeout, idle_timeout: timeout, max_idle: 0 };
        let http = config.client(Connector::default());
        Ok(Self { url: url.clone(), http, authorization, timeout, preprocessor })
    }

    pub(crate) fn start(self, faults: FaultCounter) -> SnapshotRequests {
        let (sender, snapshots) = mpsc::channel(MAX_REQUESTS);
        SnapshotRequests { client: Arc::new(self), faults, under_way: JoinSet::new(), sender, snapshots }
    }

    /// Requests a snapshot; a fault is counted.
    async fn view(&self, faults: &FaultCounter) -> Option<View> {
        let fetched = tokio::time::timeout(self.timeout, self.fetch()).await.unwrap_or_else(|_| {
            Err((FrameFault::Timeout, format!("no answer within {} ms", self.timeout.as_millis())))
        });
        let bytes = fetched
            .map_err(|(fault, detail)| faults.count(fault, format_args!("{}: {detail}", self.url)))
            .ok()?;
        let (preprocessor, name, faults) = (self.preprocessor, self.url.to_string(), faults.clone());
        let view = tokio::task::spawn_blocking(move || {
            let view = preprocessor.image(&bytes, &name, &faults)?;
            faults.count_frame();
            Some(view)
        });
        view.await.ok().flatten()
    }

    async fn fetch(&self) -> Result<Vec<u8>, (FrameFault, String)> {
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
            (FrameFault::Unreachable, format!("{error}{cause}"))
        })?;
        body_of(response).await
    }
}

fn unreachable(error: impl std::fmt::Display) -> (FrameFault, String) {
    (FrameFault::Unreachable, error.to_string())
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

async fn body_of(response: Response<Incoming>) -> Result<Vec<u8>, (FrameFault, String)> {
    let status = response.status();
    if status != StatusCode::OK {
        return Err((FrameFault::Status, format!("expected status 200, found {status}")));
    }
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind: String = kind.chars().take(60).collect::<String>().to_ascii_lowercase();
    if ["text/", "multipart/", "application/json", "application/xml"].iter().any(|no| kind.starts_with(no)) {
        return Err((FrameFault::NotAnImage, format!("expected an image, found {kind}")));
    }
    let oversize = || (FrameFault::Oversize, format!("expected at most {MAX_FRAME_BYTES} bytes, found more"));
    let mut body = response.into_body();
    if body.size_hint().lower() > MAX_FRAME_BYTES {
        return Err(oversize());
    }
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame =
            frame.map_err(|error| (FrameFault::Cut, format!("in the middle of the body: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        if (bytes.len() + data.len()) as u64 > MAX_FRAME_BYTES {
            return Err(oversize());
        }
        bytes.extend_from_slice(&data);
    }
    if super::image_files::is_cut(&bytes) {
        return Err((FrameFault::Cut, format!("the image ends after {} bytes", bytes.len())));
    }
    Ok(bytes)
}

impl SnapshotRequests {
    /// Requests a snapshot; it comes out of [`SnapshotRequests::next`].
    pub(crate) fn start(&mut self, sample: SampleId, captured_us: u64) {
        while self.under_way.try_join_next().is_some() {}
        if self.under_way.len() >= MAX_REQUESTS {
            let detail = format_args!("{}: {MAX_REQUESTS} requests are unanswered", self.client.url);
            self.faults.count(FrameFault::Busy, detail);
            return;
        }
        let (client, faults, sender) = (Arc::clone(&self.client), self.faults.clone(), self.sender.clone());
        self.under_way.spawn(async move {
            if let Some(view) = client.view(&faults).await {
                // The receiver is gone when the device ends.
                let _ = sender.send(Snapshot { sample, captured_us, view }).await;
            }
        });
    }

    /// The next snapshot. Cancelling the wait loses nothing.
    pub(crate) async fn next(&mut self) -> Snapshot {
        match self.snapshots.recv().await {
            Some(snapshot) => snapshot,
            // Never: `self` holds a sender.
            None => pending().await,
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
