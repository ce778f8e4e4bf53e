//! A snapshot URL: a GET at each capture, abandoned before the next capture is due. The first image in the answer is the frame, whatever
//! the header says of it.

mod login;

use std::error::Error;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use headwater_protocol::SampleId;
use headwater_samples::View;
use headwater_transport::{Connector, Endpoint, HttpAnswers, HttpClient, HttpClientConfig, Secret};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{ACCEPT, AUTHORIZATION, CONNECTION, CONTENT_TYPE, HeaderMap, LOCATION, USER_AGENT};
use hyper::{Request, Response, StatusCode};
use tokio::task::JoinSet;

use super::MAX_FRAME_BYTES;
use super::faults::{FrameFault, Missing};
use super::image_splitter::{ImageSplitter, StreamPart};
use super::preprocess::Preprocessor;
use crate::config::Capture;
use crate::error::DeviceError;
use crate::report::SharedReport;
use crate::settings::HttpSettings;
use login::Login;

/// Requests under way. A camera slower than the captures does not get more and more of them.
const MAX_REQUESTS: usize = 4;

/// Client of a camera.
pub(crate) struct SnapshotClient {
    url: Endpoint,
    http: HttpClient,
    login: Option<Login>,
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
        let login = pair.map(|pair| Login::of_pair(&pair)).transpose().map_err(|reason| {
            DeviceError::source_of_frames("user and password of the snapshot URL", reason)
        })?;
        let timeout = settings.timeout(capture);
        // A connection per request: the next capture may be far away.
        let config = HttpClientConfig {
            connect_timeout: timeout,
            idle_timeout: timeout,
            max_idle: 0,
            answers: HttpAnswers::Sloppy,
        };
        let http = config.client(Connector::default());
        Ok(Self { url, http, login, timeout, preprocessor })
    }

    pub(crate) fn start(self, faults: SharedReport) -> SnapshotRequests {
        SnapshotRequests { client: Arc::new(self), faults, under_way: JoinSet::new() }
    }

    /// Requests a snapshot; a fault is counted.
    async fn view(&self, faults: &SharedReport) -> Option<View> {
        let fetched = tokio::time::timeout(self.timeout, self.fetch()).await.unwrap_or_else(|_| {
            Err((FrameFault::TIMEOUT, format!("no whole answer within {} ms", self.timeout.as_millis())))
        });
        let bytes = fetched
            .map_err(|(fault, detail)| faults.count_fault(fault, format_args!("{}: {detail}", self.url)))
            .ok()?;
        let (preprocessor, name, faults) = (self.preprocessor.clone(), self.url.to_string(), faults.clone());
        let view = tokio::task::spawn_blocking(move || {
            let view = preprocessor.image(&bytes, &name, &faults)?;
            faults.count_frame();
            Some(view)
        });
        view.await.ok().flatten()
    }

    /// The image of an answer. A camera that asks for digest authentication is asked again.
    async fn fetch(&self) -> Result<Vec<u8>, Missing> {
        let response = self.request().await?;
        let refused = |reason| (FrameFault::STATUS, format!("status 401 Unauthorized: {reason}"));
        let response = match (response.status(), &self.login) {
            (StatusCode::UNAUTHORIZED, Some(login)) => {
                login.take_challenge(response.headers()).map_err(refused)?;
                self.request().await?
            }
            _ => response,
        };
        match response.status() {
            StatusCode::UNAUTHORIZED => Err(refused(match self.login {
                Some(_) => "the camera refuses user and password".to_owned(),
                None => {
                    let found = login::found(response.headers());
                    format!("expected a camera without user and password, {found}: set source.http.auth_file")
                }
            })),
            status if status.is_success() => image_of(response).await,
            status => {
                let to = new_address(response.headers());
                Err((FrameFault::STATUS, format!("expected status 200, found {status}{to}")))
            }
        }
    }

    async fn request(&self) -> Result<Response<Incoming>, Missing> {
        let mut request = Request::get(self.url.uri().map_err(bad_request)?)
            .header(USER_AGENT, concat!("headwater-device/", env!("CARGO_PKG_VERSION")))
            .header(ACCEPT, "image/*")
            .header(CONNECTION, "close");
        if let Some(authorization) =
            self.login.as_ref().and_then(|login| login.authorization(self.url.path()))
        {
            request = request.header(AUTHORIZATION, authorization);
        }
        let request = request.body(Full::default()).map_err(bad_request)?;
        self.http.request(request).await.map_err(|error| {
            let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
            match error.is_connect() {
                true => (FrameFault::UNREACHABLE, format!("{error}{cause}")),
                false => (
                    FrameFault::BAD_ANSWER,
                    format!("the camera was reached, its answer cannot be read{cause}"),
                ),
            }
        })
    }
}

fn bad_request(error: impl std::fmt::Display) -> Missing {
    (FrameFault::UNREACHABLE, error.to_string())
}

/// Where a camera sends its clients, without the query; for an error.
fn new_address(headers: &HeaderMap) -> String {
    let location = headers.get(LOCATION).and_then(|location| Endpoint::http(location.to_str().ok()?).ok());
    location
        .map(|url| format!(" to {url}: set source.http.url to an address that answers itself"))
        .unwrap_or_default()
}

/// The first image of an answer. The rest is left: an answer in parts may go on for ever.
async fn image_of(response: Response<Incoming>) -> Result<Vec<u8>, Missing> {
    /// First bytes of an answer without an image that an error repeats.
    const SHOWN_BYTES: usize = 40;
    let kind = response.headers().get(CONTENT_TYPE).map_or(&b"no type"[..], |kind| kind.as_bytes());
    let kind = kind[..kind.len().min(SHOWN_BYTES)].escape_ascii().to_string();
    let mut body = response.into_body();
    let mut images = ImageSplitter::new(MAX_FRAME_BYTES);
    let (mut read, mut shown, mut fault) = (0, Vec::new(), None);
    let broke_off = loop {
        let bytes = match body.frame().await {
            Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
            Some(Err(error)) => break Some(error),
            None => break None,
        };
        read += bytes.len() as u64;
        shown.extend(bytes.iter().take(SHOWN_BYTES - shown.len()));
        let mut bytes = &bytes[..];
        while let Some(part) = images.next_part(&mut bytes) {
            match part.file() {
                Ok(file) => return Ok(file),
                Err(missing) => {
                    fault = fault.or(Some(missing).filter(|(fault, _)| *fault != FrameFault::STRAY));
                }
            }
        }
        if read > MAX_FRAME_BYTES {
            let detail =
                format!("expected an image within {MAX_FRAME_BYTES} bytes, found more bytes and none");
            return Err((FrameFault::OVERSIZE, detail));
        }
    };
    match (images.unfinished().map(StreamPart::file), fault, broke_off) {
        (Some(Ok(file)), ..) => Ok(file),
        (_, Some(missing), _) => Err(missing),
        (_, None, Some(error)) => Err((FrameFault::CUT, format!("in the middle of the body: {error}"))),
        (Some(Err(missing)), None, None) if missing.0 != FrameFault::STRAY => Err(missing),
        (_, None, None) if read == 0 => Err((FrameFault::CUT, "the body is empty".into())),
        (_, None, None) => {
            let shown = shown.escape_ascii();
            let detail = format!(
                "expected an image (JPEG, PNG or WebP), found {read} bytes of {kind} that begin \"{shown}\""
            );
            Err((FrameFault::NOT_AN_IMAGE, detail))
        }
    }
}

impl SnapshotRequests {
    /// Requests a snapshot, which comes out of the next call of [`SnapshotRequests::next`].
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
