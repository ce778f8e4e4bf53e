//! A snapshot URL: a GET request at each capture, abandoned after the timeout of the settings. The first image in the answer that is neither
//! cut nor broken is the frame, whatever content type the header names. Slots that see parts of one camera share the answer.

mod login;

use std::collections::VecDeque;
use std::error::Error;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use headwater_protocol::SampleId;
use headwater_samples::View;
use headwater_transport::{Connector, Endpoint, HttpAnswers, HttpClient, HttpClientConfig, Secret};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap,
    HeaderValue, LOCATION, USER_AGENT,
};
use hyper::http::response::Parts;
use hyper::{Request, Response, StatusCode};
use parking_lot::Mutex;
use tokio::sync::OnceCell;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::MAX_FRAME_BYTES;
use super::faults::{FrameFault, Missing};
use super::frame_channel::NamedView;
use super::image_splitter::ImageSplitter;
use super::preprocess::{Preprocessor, SourceFrame, views};
use crate::config::Capture;
use crate::error::DeviceError;
use crate::settings::HttpSettings;
use login::Login;

/// Largest number of requests under way, so that a camera that is slower than the captures does not get more and more requests.
const MAX_REQUESTS: usize = 4;

/// Client of a camera.
pub(crate) struct SnapshotClient {
    url: Endpoint,
    http: HttpClient,
    login: Option<Login>,
    timeout: Duration,
    /// The slots that run, each with its place, a number that stays the same while other slots end.
    slots: Mutex<Vec<(usize, Preprocessor)>>,
    /// The latest samples that several slots ask for, each with its snapshot.
    shared: Mutex<VecDeque<(SampleId, Arc<OnceCell<SlotViews>>)>>,
    /// Held while an image is decoded.
    decoding: tokio::sync::Mutex<()>,
}

/// The view of each slot in a snapshot, or the fault, with the place of the slot.
type SlotViews = Vec<(usize, Result<View, Missing>)>;

/// The view of a snapshot.
pub(crate) struct Snapshot {
    /// The sample, with the time of the capture in microseconds since the device's start.
    pub(crate) capture: (SampleId, u64),
    pub(crate) frame: NamedView,
}

/// Requests under way and their results.
pub(crate) struct SnapshotRequests {
    client: Arc<SnapshotClient>,
    /// Place among the client's slots.
    place: usize,
    slot: Preprocessor,
    under_way: JoinSet<Option<Snapshot>>,
}

impl SnapshotClient {
    /// Makes a client, and reads user and password if they are in a file.
    pub(crate) fn open(settings: &HttpSettings, capture: Capture) -> Result<Self, DeviceError> {
        let url = settings
            .url
            .clone()
            .ok_or_else(|| DeviceError::source_of_frames("http", "expected source.http.url, found none"))?;
        let file = settings.auth_file.as_ref().map(Secret::of_file).transpose();
        let pair = file.map_err(|reason| DeviceError::source_of_frames("auth_file", reason))?;
        let pair = pair.or_else(|| settings.auth.clone());
        let login = pair.map(|pair| Login::of_pair(&pair.get())).transpose().map_err(|reason| {
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
        Ok(Self {
            url,
            http,
            login,
            timeout,
            slots: Mutex::default(),
            shared: Mutex::default(),
            decoding: tokio::sync::Mutex::default(),
        })
    }

    pub(crate) fn start(self: Arc<Self>, slot: Preprocessor) -> SnapshotRequests {
        let place = {
            let mut slots = self.slots.lock();
            let place = slots.last().map_or(0, |(place, _)| place + 1);
            slots.push((place, slot.clone()));
            place
        };
        SnapshotRequests { client: self, place, slot, under_way: JoinSet::new() }
    }

    /// The snapshot of a sample. It is requested once, by the first slot that asks for it.
    fn shared_snapshot(&self, sample: SampleId) -> Arc<OnceCell<SlotViews>> {
        let mut shared = self.shared.lock();
        if let Some((_, snapshot)) = shared.iter().find(|(known, _)| *known == sample) {
            return Arc::clone(snapshot);
        }
        let snapshot = Arc::<OnceCell<SlotViews>>::default();
        if self.slots.lock().len() > 1 {
            shared.truncate(MAX_REQUESTS - 1);
            shared.push_front((sample, Arc::clone(&snapshot)));
        }
        snapshot
    }

    /// The view of a slot in the snapshot of a sample, which is requested unless another slot has requested it; `None` for a fault, which is
    /// counted.
    async fn view(&self, sample: SampleId, place: usize, slot: &Preprocessor) -> Option<View> {
        let snapshot = self.shared_snapshot(sample);
        let slots = snapshot.get_or_init(|| self.request_views()).await;
        let found = slots.iter().find(|(of, _)| *of == place).map(|(_, found)| found.clone());
        let not_started = || Err((FrameFault::NONE_YET, "the slot started after the snapshot".into()));
        let found = found.unwrap_or_else(not_started);
        if let Err((_, detail)) = &found {
            slot.report.note_waits(format!("{}: {detail}", self.url));
        }
        let view = slot.report.counted(&self.url, found);
        view.inspect(|_| slot.report.count_frame())
    }

    /// Requests a snapshot for the slots that run now.
    async fn request_views(&self) -> SlotViews {
        let slots = self.slots.lock().clone();
        let missing =
            |missing: Missing| slots.iter().map(|(place, _)| (*place, Err(missing.clone()))).collect();
        self.views_of_sound_image(&slots).await.unwrap_or_else(missing)
    }

    /// The views of the first image of an answer that is neither cut nor broken. The camera has `timeout` to send this image.
    async fn views_of_sound_image(&self, slots: &[(usize, Preprocessor)]) -> Result<SlotViews, Missing> {
        let until = Instant::now() + self.timeout;
        let late =
            || (FrameFault::TIMEOUT, format!("no whole answer within {} ms", self.timeout.as_millis()));
        let mut answer = timeout_at(until, self.fetch()).await.unwrap_or_else(|_| Err(late()))?;
        loop {
            // An answer with more and more images at hand never waits, so that `timeout_at` would not end it.
            if Instant::now() >= until {
                return Err(answer.fault.take().unwrap_or_else(late));
            }
            let file = timeout_at(until, answer.next_image()).await;
            let file = file.unwrap_or_else(|_| Err(answer.fault.take().unwrap_or_else(late)))?;
            let slots = slots.to_vec();
            // A small file may need 250 MB of memory, so one is decoded at a time.
            let _one = self.decoding.lock().await;
            let prepared = tokio::task::spawn_blocking(move || {
                let found = views(SourceFrame::File(file), slots.iter().map(|(_, slot)| slot));
                slots.iter().map(|(place, _)| *place).zip(found).collect::<SlotViews>()
            });
            let found = prepared.await.map_err(|error| (FrameFault::BROKEN, error.to_string()))?;
            match found.first() {
                Some((_, Err(missing))) if [FrameFault::CUT, FrameFault::BROKEN].contains(&missing.0) => {
                    answer.fault.get_or_insert_with(|| missing.clone());
                }
                _ => return Ok(found),
            }
        }
    }

    /// The answer with its images. If the camera asks for digest authentication, a second request is sent.
    async fn fetch(&self) -> Result<AnswerImages, Missing> {
        let (response, nonce) = self.request().await?;
        let refused = |reason| (FrameFault::STATUS, format!("status 401 Unauthorized: {reason}"));
        let response = match (response.status(), &self.login) {
            (StatusCode::UNAUTHORIZED, Some(login)) => {
                login.take_challenge(response.headers(), nonce.as_deref()).map_err(refused)?;
                self.request().await?.0
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
            status if status.is_success() => Ok(AnswerImages::new(response)),
            status => {
                let to = self.new_address(response.headers());
                Err((FrameFault::STATUS, format!("expected status 200, found {status}{to}")))
            }
        }
    }

    /// Text of an error about a redirect: the new address, without the query, and advice; empty without a new address.
    fn new_address(&self, headers: &HeaderMap) -> String {
        let location = headers.get(LOCATION).and_then(|location| location.to_str().ok());
        let url = location.and_then(|to| match to.starts_with('/') && !to.starts_with("//") {
            true => Some(self.url.with_path(to)),
            false => Endpoint::http(to).ok(),
        });
        let Some(url) = url else { return String::new() };
        let advice = match url.scheme().uses_tls() {
            true => "there is no TLS to cameras: allow http in the camera's settings",
            false => "set source.http.url to an address that answers itself",
        };
        format!(" to {url}: {advice}")
    }

    /// The answer to a request, and the nonce of the request's digest; `None` for a request without a digest.
    async fn request(&self) -> Result<(Response<Incoming>, Option<String>), Missing> {
        let mut request = Request::get(self.url.uri().map_err(bad_request)?)
            .header(USER_AGENT, concat!("headwater-device/", env!("CARGO_PKG_VERSION")))
            .header(ACCEPT, "image/*, */*;q=0.5")
            .header(ACCEPT_ENCODING, "identity")
            .header(CONNECTION, "close");
        let authorization = self.login.as_ref().and_then(|login| login.authorization(self.url.path()));
        let (authorization, nonce) = authorization.unzip();
        if let Some(authorization) = authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let request = request.body(Full::default()).map_err(bad_request)?;
        let response = self.http.request(request).await.map_err(|error| {
            let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
            match error.is_connect() {
                true => (FrameFault::UNREACHABLE, format!("{error}{cause}")),
                false => (
                    FrameFault::BAD_ANSWER,
                    format!("the camera was reached, its answer cannot be read{cause}"),
                ),
            }
        })?;
        Ok((response, nonce.flatten()))
    }
}

fn bad_request(error: impl std::fmt::Display) -> Missing {
    (FrameFault::UNREACHABLE, error.to_string())
}

/// Images of an answer, read one after the other, since a multipart answer may go on for ever.
struct AnswerImages {
    headers: HeaderMap,
    body: Incoming,
    /// Bytes of the body that are not split yet.
    bytes: Bytes,
    images: ImageSplitter,
    /// Bytes of the body so far.
    read: u64,
    /// The first bytes of the body, for an error.
    shown: Vec<u8>,
    /// Fault of the first image that gives no view.
    fault: Option<Missing>,
}

/// Largest number of first bytes of a body or a header that an error repeats.
const SHOWN_BYTES: usize = 40;

impl AnswerImages {
    fn new(response: Response<Incoming>) -> Self {
        let (Parts { headers, .. }, body) = response.into_parts();
        let (images, bytes, shown) = (ImageSplitter::new(MAX_FRAME_BYTES), Bytes::new(), Vec::new());
        Self { headers, body, bytes, images, read: 0, shown, fault: None }
    }

    /// The next image file, which its structure shows to be whole. At the end of the answer the error is the first fault, or that there is no
    /// image.
    async fn next_image(&mut self) -> Result<Vec<u8>, Missing> {
        let broke_off = loop {
            let mut left = &self.bytes[..];
            let part = self.images.next_part(&mut left);
            self.bytes = self.bytes.slice_ref(left);
            match part {
                Some(Ok(file)) => return Ok(file),
                Some(Err((FrameFault::STRAY, _))) => continue,
                Some(Err(missing)) => {
                    self.fault.get_or_insert(missing);
                    continue;
                }
                None if self.read > MAX_FRAME_BYTES => {
                    let detail = format!(
                        "expected an image within {MAX_FRAME_BYTES} bytes, found more bytes and none"
                    );
                    return Err(self.fault.take().unwrap_or((FrameFault::OVERSIZE, detail)));
                }
                None => {}
            }
            match self.body.frame().await {
                Some(Ok(frame)) => self.bytes = frame.into_data().unwrap_or_default(),
                Some(Err(error)) => break Some(error),
                None => break None,
            }
            self.read += self.bytes.len() as u64;
            self.shown.extend(self.bytes.iter().take(SHOWN_BYTES - self.shown.len()));
        };
        let cut = broke_off.map(|error| (FrameFault::CUT, format!("in the middle of the body: {error}")));
        let last = match self.images.unfinished() {
            Some(Ok(file)) => return Ok(file),
            None | Some(Err((FrameFault::STRAY, _))) => cut,
            Some(Err(missing)) => cut.or(Some(missing)),
        };
        Err(self.fault.take().or(last).unwrap_or_else(|| self.no_image()))
    }

    /// The fault of an answer without an image.
    fn no_image(&self) -> Missing {
        if self.read == 0 {
            return (FrameFault::CUT, "the body is empty".into());
        }
        let [kind, encoding] = [CONTENT_TYPE, CONTENT_ENCODING].map(|name| {
            let value = self.headers.get(name).map_or(&b"none"[..], HeaderValue::as_bytes);
            value[..value.len().min(SHOWN_BYTES)].escape_ascii()
        });
        let (read, shown) = (self.read, self.shown.escape_ascii());
        let detail = format!(
            "expected an image (JPEG, PNG or WebP), found {read} bytes of type {kind} and encoding {encoding} that begin \"{shown}\""
        );
        (FrameFault::NOT_AN_IMAGE, detail)
    }
}

impl SnapshotRequests {
    /// Requests a snapshot, which a later call of [`SnapshotRequests::next`] returns. With [`MAX_REQUESTS`] under way, counts a fault instead.
    pub(crate) fn start(&mut self, sample: SampleId, captured_us: u64) {
        if self.under_way.len() >= MAX_REQUESTS {
            let detail = format_args!("{}: {MAX_REQUESTS} requests are unanswered", self.client.url);
            self.slot.report.count_fault(FrameFault::BUSY, detail);
            return;
        }
        let (client, place, slot) = (Arc::clone(&self.client), self.place, self.slot.clone());
        self.under_way.spawn(async move {
            let view = client.view(sample, place, &slot).await?;
            let frame = NamedView { view, name: None };
            Some(Snapshot { capture: (sample, captured_us), frame })
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

impl Drop for SnapshotRequests {
    fn drop(&mut self) {
        self.client.slots.lock().retain(|(place, _)| *place != self.place);
    }
}

#[cfg(test)]
mod tests {
    use headwater_samples::Shape;
    use headwater_samples::roi::Framing;

    use super::*;
    use crate::report::SharedReport;

    #[tokio::test]
    async fn a_slot_that_has_ended_is_left_out_of_later_snapshots() {
        let mut settings = headwater_settings::defaults::<HttpSettings>();
        settings.url = Some(Endpoint::http("http://cam/a").unwrap());
        let client = Arc::new(SnapshotClient::open(&settings, Capture::Trigger).unwrap());
        let (shape, framing) = (Shape::rgb(2, 2), Framing::default());
        let slot = || Preprocessor { shape, framing, camera: None, report: SharedReport::default() };
        let [first, second] = [slot(), slot()].map(|slot| Arc::clone(&client).start(slot));
        let places = || client.slots.lock().iter().map(|(place, _)| *place).collect::<Vec<_>>();
        assert_eq!(places(), [0, 1]);
        drop(first);
        assert_eq!((places(), second.place), (vec![1], 1));
    }

    #[tokio::test]
    async fn another_address_is_named_with_what_to_do_and_without_its_query() {
        let mut settings = headwater_settings::defaults::<HttpSettings>();
        settings.url = Some(Endpoint::http("http://cam:81/a?pwd=hush").unwrap());
        let client = SnapshotClient::open(&settings, Capture::Trigger).unwrap();
        for (location, expected) in [
            ("/b?pwd=hush", " to http://cam:81/b?...: set source.http.url"),
            ("http://other/c", " to http://other:80/c: set source.http.url"),
            ("https://cam/a", " to https://cam:443/a: there is no TLS to cameras"),
        ] {
            let headers: HeaderMap = [(LOCATION, HeaderValue::from_static(location))].into_iter().collect();
            let found = client.new_address(&headers);
            assert!(found.starts_with(expected), "{found}");
        }
        assert_eq!(client.new_address(&HeaderMap::new()), "");
    }
}
