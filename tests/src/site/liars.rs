//! A lying cloud: an HTTP server in the place of the cloud service, which answers wrongly.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use headwater_group::GroupClient;
use headwater_inference::bundle::Bundle;
use headwater_protocol::v2::{Form, HEADER_LENGTH, InferResponse, encode_response};
use headwater_protocol::{Exit, NetworkId};

use super::account::{Reference, SampleRange, outcomes, receive, sample_now};
use super::rogue::{RogueRow, end_once, grown, seen_text};
use super::{LIMIT, Part, Site};
use crate::shipped;

/// The answer of a lying cloud to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloudLie {
    /// The answer has the id of another request.
    OtherRequest,
    /// The answer has the name of another model.
    OtherModel,
    /// The answer has the id of another network.
    OtherNetwork,
    /// The answer has logits of nine classes in place of ten.
    FewLogits,
    /// A logit of the answer is not a number.
    NotANumber,
    /// The tensor of the answer has a wrong name.
    OtherOutput,
    /// The answer has half of the body that the head announces, then the connection ends.
    CutBody,
    /// The body of the answer has 4 MB.
    LongBody,
    /// The head of the answer has 1 MB.
    LongHead,
    /// The answer is not HTTP.
    NotHttp,
    /// The answer comes one byte every 100 ms.
    Drip,
    /// There is no answer, and the connection stays open.
    Silence,
    /// There is no answer, and the connection ends.
    Close,
    /// The answer has status 500.
    ServerError,
    /// The answer has status 404, and its body is not JSON.
    NotFound,
    /// The answer has status 429 and asks for a pause of 2 s.
    TooMany,
    /// The answer is a redirect to the path of the request.
    Redirect,
    /// The answer has the right form and the wrong class. A leader cannot tell such an answer from a right one.
    WrongClass,
}

/// Every lie, with its name in the table.
pub const CLOUD_LIES: [(CloudLie, &str); 18] = [
    (CloudLie::OtherRequest, "answers another request"),
    (CloudLie::OtherModel, "answers as another model"),
    (CloudLie::OtherNetwork, "answers as another network"),
    (CloudLie::FewLogits, "nine logits for ten classes"),
    (CloudLie::NotANumber, "a logit that is no number"),
    (CloudLie::OtherOutput, "another output"),
    (CloudLie::CutBody, "a body that is cut off"),
    (CloudLie::LongBody, "a body of 4 MB"),
    (CloudLie::LongHead, "a head of 1 MB"),
    (CloudLie::NotHttp, "bytes that are not HTTP"),
    (CloudLie::Drip, "a byte every 100 ms"),
    (CloudLie::Silence, "no answer"),
    (CloudLie::Close, "closes the connection"),
    (CloudLie::ServerError, "status 500"),
    (CloudLie::NotFound, "status 404"),
    (CloudLie::TooMany, "status 429"),
    (CloudLie::Redirect, "a redirect to itself"),
    (CloudLie::WrongClass, "a sound answer with the wrong class"),
];

impl CloudLie {
    /// True when a leader can tell the answer from a right one.
    fn can_be_told(self) -> bool {
        self != Self::WrongClass
    }

    fn answer(self, request: &Request, bundle: &Bundle) -> Vec<u8> {
        let mut labels = bundle.manifest().labels.clone();
        let mut response = InferResponse {
            id: Some(request.id.clone()),
            model_name: request.model.clone(),
            network: Some(bundle.network_id()),
            logits: vec![0.0; labels.len()],
        };
        match self {
            Self::OtherRequest => response.id = Some("another".into()),
            Self::OtherModel => response.model_name = "another".into(),
            Self::OtherNetwork => response.network = Some(NetworkId([0x5a; 32])),
            Self::FewLogits => {
                response.logits.pop();
                labels.pop();
            }
            Self::NotANumber => response.logits[0] = f32::NAN,
            // The class changes with each request, so it is wrong for most requests.
            Self::WrongClass => {
                let class = request.number as usize % response.logits.len();
                response.logits[class] = 50.0;
            }
            _ => {}
        }
        let (mut body, head_bytes) = encode_response(response, Form::BINARY, &labels);
        if self == Self::OtherOutput {
            let at = body.windows(6).position(|name| name == b"logits").expect("the name of the output");
            body[at..at + 6].copy_from_slice(b"l0gits");
        }
        let head = |status: &str, more: &str, bytes: usize| {
            format!("HTTP/1.1 {status}\r\n{more}content-length: {bytes}\r\n\r\n").into_bytes()
        };
        let length = format!("{HEADER_LENGTH}: {}\r\n", head_bytes.unwrap_or_default());
        let sound = [head("200 OK", &length, body.len()), body.clone()].concat();
        match self {
            Self::CutBody => sound[..sound.len() - body.len() / 2].to_vec(),
            Self::LongBody => {
                let chunks = format!("HTTP/1.1 200 OK\r\n{length}transfer-encoding: chunked\r\n\r\n");
                [chunks.into_bytes(), format!("10000\r\n{}\r\n", "0".repeat(0x10000)).repeat(64).into_bytes()]
                    .concat()
            }
            Self::LongHead => head("200 OK", &format!("x: {}\r\n", "x".repeat(1 << 20)), 0),
            Self::NotHttp => b"SSH-2.0-another\r\n".to_vec(),
            Self::Silence | Self::Close => Vec::new(),
            Self::ServerError => head("500 Internal Server Error", "", 0),
            Self::NotFound => [head("404 Not Found", "", 9), b"<p>no</p>".to_vec()].concat(),
            Self::TooMany => head("429 Too Many Requests", "retry-after: 2\r\n", 0),
            Self::Redirect => head("302 Found", &format!("location: {}\r\n", request.path), 0),
            _ => sound,
        }
    }
}

/// A request of the aggregator for the logits of a sample.
#[derive(Debug)]
struct Request {
    path: String,
    model: String,
    id: String,
    /// Number of earlier requests at this server.
    number: u64,
}

/// A running server that answers wrongly; dropping the server frees its port.
#[derive(Debug)]
struct LyingCloud {
    requests: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    port: u16,
    accepting: Option<JoinHandle<()>>,
}

impl LyingCloud {
    /// Starts a server at a port of loopback.
    ///
    /// # Panics
    /// When the port is taken.
    fn start(port: u16, lie: CloudLie) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).expect("the cloud's port is free");
        let (requests, is_over, bundle) =
            (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default(), shipped::bundle());
        let (counted, ends) = (Arc::clone(&requests), Arc::clone(&is_over));
        let accepting = thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if is_over.load(Relaxed) {
                    return;
                }
                let (requests, is_over, bundle) =
                    (Arc::clone(&requests), Arc::clone(&is_over), Arc::clone(&bundle));
                // An error of `serve` is ignored: the aggregator may end a connection at any time.
                thread::spawn(move || serve(&stream, (lie, &bundle), (&requests, &is_over)));
            }
        });
        Self { requests: counted, is_over: ends, port, accepting: Some(accepting) }
    }
}

impl Drop for LyingCloud {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        // The server reads `is_over` when the next connection comes, so a connection is made here.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        // A panic of the server is ignored: it has freed the port too.
        let _ = self.accepting.take().map(JoinHandle::join);
    }
}

/// Answers the requests of one connection.
fn serve(
    stream: &TcpStream,
    (lie, bundle): (CloudLie, &Bundle),
    (requests, is_over): (&AtomicU64, &AtomicBool),
) -> io::Result<()> {
    // The limit is long enough for an idle connection, and short enough that the threads of an earlier lie end.
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let (mut reader, mut writer) = (BufReader::new(stream), stream);
    while !is_over.load(Relaxed) {
        let Some(request) = read_request(&mut reader, requests)? else {
            writer.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")?;
            continue;
        };
        // The lie may have ended while the thread waited for the request.
        if is_over.load(Relaxed) {
            return Ok(());
        }
        let answer = lie.answer(&request, bundle);
        match lie {
            CloudLie::Drip => {
                for byte in answer.into_iter().take_while(|_| !is_over.load(Relaxed)) {
                    writer.write_all(&[byte])?;
                    thread::sleep(Duration::from_millis(100));
                }
            }
            // The connection stays open until the aggregator gives it up.
            CloudLie::Silence => _ = io::copy(&mut reader, &mut io::sink())?,
            _ => writer.write_all(&answer)?,
        }
        if matches!(lie, CloudLie::Close | CloudLie::CutBody | CloudLie::NotHttp | CloudLie::LongBody) {
            break;
        }
    }
    Ok(())
}

/// Reads a request; `None` for a request that is not for inference. The end of the connection is an error.
fn read_request(reader: &mut impl BufRead, requests: &AtomicU64) -> io::Result<Option<Request>> {
    let mut first = String::new();
    if reader.read_line(&mut first)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    let (mut length, mut head_bytes) = (0, 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let line = line.trim_end().to_ascii_lowercase();
        let Some((name, value)) = line.split_once(':') else { break };
        match name {
            "content-length" => length = value.trim().parse().unwrap_or_default(),
            HEADER_LENGTH => head_bytes = value.trim().parse().unwrap_or_default(),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let Some(model) = path.strip_prefix("/v2/models/").and_then(|rest| rest.strip_suffix("/infer")) else {
        return Ok(None);
    };
    let head: serde_json::Value = serde_json::from_slice(body.get(..head_bytes).unwrap_or_default())?;
    let id = head["id"].as_str().unwrap_or_default().to_owned();
    let number = requests.fetch_add(1, Relaxed);
    Ok(Some(Request { model: model.to_owned(), path, id, number }))
}

/// Puts a lying cloud in the place of the site's cloud service for `time`. Returns once each group has a decision of the real cloud again.
///
/// # Panics
/// As [`outcomes`], and when a group has no decision of the real cloud in time.
pub async fn run(
    (lie, name): (CloudLie, &str),
    site: &mut Site,
    clients: &mut [GroupClient],
    (reference, time): (&Reference, Duration),
) -> RogueRow {
    site.kill(Part::Cloud);
    let cloud = LyingCloud::start(site.cloud_port, lie);
    let (before, range) = (site.metrics(), SampleRange::begin(site, 1));
    receive(clients, time).await;
    let (range, requests) = (range.ended_now(), cloud.requests.load(Relaxed));
    let outcomes = outcomes(site, clients, range, reference).await;
    drop(cloud);
    site.start(Part::Cloud);
    until_the_cloud_answers(clients).await;
    let expected = match lie.can_be_told() {
        true => "refused; each sample ends once, none wrong; the true cloud is used again",
        false => "believed, as nothing can tell it; each sample ends once",
    };
    RogueRow {
        role: "cloud",
        attempt: name.to_owned(),
        expected,
        seen: format!("{requests} requests{}", seen_text(&outcomes, &grown(&before, &site.metrics()))),
        is_sound: requests > 0 && end_once(&outcomes, lie.can_be_told()),
    }
}

/// Waits until each group has a decision of the cloud on a sample from now on.
async fn until_the_cloud_answers(clients: &mut [GroupClient]) {
    let (first, until) = (sample_now(), Instant::now() + LIMIT);
    let is_answered = |client: &GroupClient| {
        let mut decisions = client.account().decisions();
        decisions.any(|decision| decision.sample.0 >= first && decision.exit == Exit::CLOUD)
    };
    while !clients.iter().all(is_answered) {
        assert!(Instant::now() < until, "the cloud is not used again");
        receive(clients, Duration::from_millis(200)).await;
    }
}
