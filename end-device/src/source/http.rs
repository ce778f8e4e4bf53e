//! A snapshot URL: a GET at each capture, abandoned before the next capture is due.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use headwater_protocol::SampleId;
use headwater_samples::View;
use http_body_util::{BodyExt, Empty};
use hyper::body::{Body, Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, AUTHORIZATION, CONNECTION, CONTENT_TYPE, HOST, HeaderValue, USER_AGENT};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::config::{HttpAuth, MAX_FRAME_BYTES};
use super::faults::{FaultCounter, FrameFault};
use super::preprocess::Preprocessor;
use super::snapshot_url::{SnapshotUrl, basic_authorization};
use crate::error::DeviceError;

/// Requests under way. A camera slower than the captures does not get more and more of them.
const MAX_REQUESTS: usize = 4;

/// Client of a camera.
pub(crate) struct SnapshotClient {
    url: SnapshotUrl,
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
    /// Checks the URL, and reads user and password if they are in a file.
    pub(crate) fn open(
        url: &str,
        timeout_ms: u64,
        auth: &HttpAuth,
        preprocessor: Preprocessor,
    ) -> Result<Self, DeviceError> {
        let url: SnapshotUrl =
            url.parse().map_err(|reason: String| DeviceError::source_of_frames("snapshot URL", reason))?;
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
        Ok(Self { url, authorization, timeout: Duration::from_millis(timeout_ms.max(1)), preprocessor })
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
        let unreachable = |error: &dyn std::fmt::Display| (FrameFault::Unreachable, error.to_string());
        let stream =
            TcpStream::connect((self.url.host(), self.url.port())).await.map_err(|e| unreachable(&e))?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|e| unreachable(&e))?;
        // Dropped at the end of this function, however it ends.
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            // The request returns the same error.
            let _ = connection.await;
        });
        let response = sender.send_request(self.request()?).await.map_err(|e| unreachable(&e))?;
        body_of(response).await
    }

    fn request(&self) -> Result<Request<Empty<Bytes>>, (FrameFault, String)> {
        let mut request = Request::get(self.url.path())
            .header(HOST, self.url.authority())
            .header(USER_AGENT, concat!("headwater-device/", env!("CARGO_PKG_VERSION")))
            .header(ACCEPT, "image/*")
            .header(CONNECTION, "close");
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        request.body(Empty::new()).map_err(|error| (FrameFault::Unreachable, error.to_string()))
    }
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
