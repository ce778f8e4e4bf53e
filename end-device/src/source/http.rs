//! A snapshot URL: a GET at each capture, given up before the next one is due.

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
use super::faults::{Faults, FrameFault};
use super::prepare::Prepare;
use super::snapshot_url::{SnapshotUrl, basic};
use crate::error::DeviceError;

/// Answers waited for at once; a camera that is slower than the captures is not asked more and more.
const MOST_UNDER_WAY: usize = 4;

/// A camera that is asked for each frame.
pub(crate) struct Snapshots {
    url: SnapshotUrl,
    authorization: Option<HeaderValue>,
    timeout: Duration,
    prepare: Prepare,
}

/// What became of one capture; no view where something went wrong, which is counted by then.
pub(crate) struct Answer {
    pub(crate) sample: SampleId,
    pub(crate) captured_us: u64,
    pub(crate) view: Option<View>,
}

/// Snapshots under way.
pub(crate) struct Asking {
    snapshots: Arc<Snapshots>,
    faults: Faults,
    under_way: JoinSet<()>,
    sender: mpsc::Sender<Answer>,
    answers: mpsc::Receiver<Answer>,
}

impl Snapshots {
    /// Reads the URL, and user and password where they are in a file.
    pub(crate) fn open(
        url: &str,
        timeout_ms: u64,
        auth: &HttpAuth,
        prepare: Prepare,
    ) -> Result<Self, DeviceError> {
        let url: SnapshotUrl =
            url.parse().map_err(|reason| DeviceError::Source { what: "snapshot URL".into(), reason })?;
        let pair = match auth {
            HttpAuth::None => None,
            HttpAuth::Given(secret) => Some(secret.0.clone()),
            HttpAuth::File(path) => {
                let text = std::fs::read_to_string(path).map_err(|error| DeviceError::Source {
                    what: path.display().to_string(),
                    reason: error.to_string(),
                })?;
                Some(text.lines().next().unwrap_or_default().to_owned())
            }
        };
        let authorization = pair.map(|pair| basic(&pair)).transpose().map_err(|reason| {
            DeviceError::Source { what: "user and password of the snapshot URL".into(), reason }
        })?;
        Ok(Self { url, authorization, timeout: Duration::from_millis(timeout_ms.max(1)), prepare })
    }

    pub(crate) fn start(self, faults: Faults) -> Asking {
        let (sender, answers) = mpsc::channel(MOST_UNDER_WAY);
        let snapshots = Arc::new(self);
        Asking { snapshots, faults, under_way: JoinSet::new(), sender, answers }
    }

    async fn view(&self, faults: &Faults) -> Option<View> {
        let bytes = match tokio::time::timeout(self.timeout, self.fetch()).await {
            Ok(Ok(bytes)) => bytes,
            Ok(Err((fault, what))) => {
                faults.count(fault, format_args!("{}: {what}", self.url));
                return None;
            }
            Err(_) => {
                let ms = self.timeout.as_millis();
                faults.count(FrameFault::Timeout, format_args!("{}: no answer within {ms} ms", self.url));
                return None;
            }
        };
        let (prepare, name, faults) = (self.prepare, self.url.to_string(), faults.clone());
        let view = tokio::task::spawn_blocking(move || {
            let view = prepare.image(&bytes, &name, &faults)?;
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
        // Ends with this function, however it ends.
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            // What went wrong comes out of the request as well.
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
    if super::files::is_cut(&bytes) {
        return Err((FrameFault::Cut, format!("the image ends after {} bytes", bytes.len())));
    }
    Ok(bytes)
}

impl Asking {
    /// Asks for a frame; the answer comes out of [`Asking::answer`].
    pub(crate) fn ask(&mut self, sample: SampleId, captured_us: u64) {
        while self.under_way.try_join_next().is_some() {}
        if self.under_way.len() >= MOST_UNDER_WAY {
            let what =
                format_args!("{}: {MOST_UNDER_WAY} answers are waited for already", self.snapshots.url);
            self.faults.count(FrameFault::Busy, what);
            return;
        }
        let (snapshots, faults, sender) =
            (Arc::clone(&self.snapshots), self.faults.clone(), self.sender.clone());
        self.under_way.spawn(async move {
            let view = snapshots.view(&faults).await;
            // Nobody waits for it when the device ends.
            let _ = sender.send(Answer { sample, captured_us, view }).await;
        });
    }

    /// The next answer.
    pub(crate) async fn answer(&mut self) -> Option<Answer> {
        self.answers.recv().await
    }
}
