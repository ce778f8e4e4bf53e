//! Snapshot URLs as a source: the answers of cameras, and the requests to them.

use headwater_end_device::{Capture, DeviceHandle, MAX_FRAME_BYTES, SourceSettings};
use headwater_settings::Sources;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::mpsc;

use crate::support::source::{JPEG, faults, leader_of, loaded, open, png, receives_summaries, started};
use crate::support::{Leader, until};

/// Headers of the requests that a camera got.
type Heard = mpsc::UnboundedReceiver<String>;

/// Reply of the camera to one request.
pub(crate) enum CameraReply {
    Image(Vec<u8>),
    Status(&'static str, &'static str, Vec<u8>),
    /// An answer whose body has fewer bytes than the header names.
    Short(Vec<u8>),
    /// The whole answer, header and body.
    Raw(Vec<u8>),
    /// A body without end, sent until the peer closes the connection.
    Endless,
    Nothing,
}

async fn send_reply(mut socket: TcpStream, reply: CameraReply) -> Option<TcpStream> {
    let header = |status: &str, kind: &str, length: usize| {
        format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n").into_bytes()
    };
    let bytes = match reply {
        CameraReply::Image(body) => [header("200 OK", "image/png", body.len()), body].concat(),
        CameraReply::Status(status, kind, body) => [header(status, kind, body.len()), body].concat(),
        CameraReply::Short(body) => [header("200 OK", "image/png", body.len() + 1), body].concat(),
        CameraReply::Raw(bytes) => bytes,
        CameraReply::Nothing => return Some(socket),
        CameraReply::Endless => {
            let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
            if socket.write_all(head.as_bytes()).await.is_ok() {
                let chunk = [b"10000\r\n".to_vec(), vec![0xff; 0x10000], b"\r\n".to_vec()].concat();
                // Sends more bytes than the socket buffers hold.
                let max_chunks = 16 * MAX_FRAME_BYTES as usize / chunk.len();
                for _ in 0..max_chunks {
                    if socket.write_all(&chunk).await.is_err() {
                        return None;
                    }
                }
            }
            panic!("the client read the whole body");
        }
    };
    // In some tests the peer closes the connection before the end.
    let _ = socket.write_all(&bytes).await;
    None
}

/// A camera with one reply for each request; returns its URL and the headers of the requests.
pub(crate) async fn camera(script: Vec<CameraReply>) -> (String, Heard) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/snap.png?token=s3cret", listener.local_addr().unwrap());
    let (heads, received) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut open = Vec::new();
        for reply in script {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(socket.read_u8().await.unwrap());
            }
            heads.send(String::from_utf8(head).unwrap()).unwrap();
            open.extend(send_reply(socket, reply).await);
        }
        std::future::pending::<()>().await;
    });
    (url, received)
}

pub(crate) fn http(url: &str, timeout_ms: u64) -> SourceSettings {
    let flags = format!("--source-kind http --source-http-url {url} --source-http-timeout-ms {timeout_ms}");
    let auth = [("HEADWATER_DEVICE_SOURCE_HTTP_AUTH", "user:s3cret")];
    loaded(Sources::default().with_arguments(flags.split(' ')).with_environment(auth))
}

/// A leader, and a connected device whose camera has these replies.
async fn asked(group: &str, script: Vec<CameraReply>) -> (Leader, DeviceHandle, Heard) {
    let (url, heard) = camera(script).await;
    let leader = leader_of(group).await;
    (leader, started(group, Capture::Trigger, open(&http(&url, 60_000)).unwrap()).await, heard)
}

#[tokio::test]
async fn a_snapshot_is_asked_for_at_each_capture_with_user_and_password() {
    let (mut leader, device, mut received) =
        asked("snapshot", vec![CameraReply::Image(png(1)), CameraReply::Image(png(2))]).await;
    for seed in [1, 2] {
        leader.triggers(seed);
        assert_eq!(receives_summaries(&mut leader, [seed]).await, [seed]);
    }
    let head = received.recv().await.unwrap();
    assert!(head.starts_with("GET /snap.png?token=s3cret HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("\r\nAuthorization: Basic dXNlcjpzM2NyZXQ=\r\n"), "{head}");
    assert_eq!(device.report().counts.source_frames, 2);
}

/// A PNG whose structure is whole and whose pixels are not.
fn broken_png() -> Vec<u8> {
    [&png(1)[..60], &[0; 20], &png(1)[80..]].concat()
}

#[tokio::test]
async fn replies_that_are_no_image_are_counted_by_kind_and_leave_the_slot_missing() {
    let broken = broken_png();
    let script = vec![
        CameraReply::Status("200 OK", "text/html; charset=utf-8", b"<html>please log in</html>".to_vec()),
        CameraReply::Status("404 Not Found", "text/plain", b"no".to_vec()),
        CameraReply::Status("302 Found", "text/plain", Vec::new()),
        CameraReply::Status("200 OK", "image/png", vec![0; MAX_FRAME_BYTES as usize + 1]),
        CameraReply::Endless,
        CameraReply::Image(broken.clone()),
        // Two images that are broken, and none that is sound.
        CameraReply::Image(broken.repeat(2)),
        CameraReply::Image(png(1)[..70].to_vec()),
        CameraReply::Short(png(1)[..70].to_vec()),
        CameraReply::Image(Vec::new()),
        CameraReply::Raw(b"RTSP/1.0 400 Bad Request\r\n\r\n".to_vec()),
        CameraReply::Raw(b"HTTP/1.1 twohundred\r\n\r\n".to_vec()),
        CameraReply::Raw(Vec::new()),
        CameraReply::Image(png(5)),
    ];
    let bad = script.len() as u64 - 1;
    let (mut leader, device, _heard) = asked("no-image", script).await;
    for sample in 1..=bad {
        leader.triggers(sample);
        until(&device, |report| report.counts.frame_faults.values().sum::<u64>() == sample).await;
    }
    leader.triggers(bad + 1);
    assert_eq!(receives_summaries(&mut leader, [5]).await, [bad + 1]);
    let report = device.report();
    let expected =
        [("not_an_image", 2), ("status", 2), ("oversize", 2), ("broken", 2), ("cut", 3), ("bad_answer", 2)]
            .into();
    assert_eq!(report.counts.frame_faults, expected);
    assert_eq!((report.counts.captured, report.counts.source_frames), (bad + 1, 1));
}

/// An answer with this header, whose lines are separated by `|`, and this body.
fn raw(head: &str, body: &[u8]) -> CameraReply {
    CameraReply::Raw([head.replace('|', "\r\n").as_bytes(), b"\r\n\r\n", body].concat())
}

#[tokio::test]
async fn an_image_in_an_answer_is_a_frame_whatever_stands_around_it() {
    let length = |more: usize| format!("Content-Length: {}", png(0).len() + more);
    let sloppy = |lines: &str| raw(&format!("HTTP/1.1 200 OK|{lines}|{}", length(0)), &png(0));
    let part = |body: &[u8]| {
        let head = format!("--b\r\nContent-Type: image/png\r\nContent-Length: {}\r\n\r\n", body.len());
        [head.as_bytes(), body, b"\r\n"].concat()
    };
    let multipart = "HTTP/1.1 200 OK|Content-Type: multipart/x-mixed-replace; boundary=b";
    let script = vec![
        sloppy("Wed, 01 Jan 2020 00:00:00 GMT"),
        sloppy("Server: cam| build 7"),
        sloppy("X-Frame-Options : SAMEORIGIN"),
        sloppy("HTTP/1.0 200 OK"),
        sloppy("Content-Type: text/html; charset=utf-8"),
        sloppy("CONTENT-TYPE:application/octet-stream"),
        sloppy("Content-Encoding: none|Content-Type: text/plain"),
        sloppy("Content-Type: multipart/x-mixed-replace;boundary=b"),
        raw(&format!("HTTP/1.1 200 OK|{}", length(2)), &[b"\r\n", &png(0)[..]].concat()),
        // Answers with a length that is too long, without a length, and without a header.
        raw(&format!("HTTP/1.1 200 OK|{}", length(2)), &png(0)),
        raw("HTTP/1.0 200 OK", &png(0)),
        CameraReply::Raw(png(0)),
        // Lines that end with a line feed alone, and a body in chunks.
        CameraReply::Raw([&b"HTTP/1.1 200 OK\nServer: cam\n\n"[..], &png(0)].concat()),
        raw(
            "HTTP/1.1 200 OK|Transfer-Encoding: chunked",
            &[&b"10\r\n"[..], &png(0)[..16], b"\r\n400;x=1\r\n", &png(0)[16..], &[0; 0x400]].concat(),
        ),
        // Multipart answers: the first parts are cut or broken, or the parts do not end.
        raw(multipart, &[part(&png(0)[..50]), part(&png(0)), b"--b--".to_vec()].concat()),
        raw(multipart, &[part(&JPEG[..892]), part(&broken_png()), part(&png(0))].concat()),
        raw(&format!("{multipart}|Content-Length: 99999999"), &part(&png(0)).repeat(3)),
        raw("HTTP/1.1 203 Non-Authoritative Information", &png(0)),
    ];
    let count = script.len() as u64;
    let (mut leader, device, _heard) = asked("sloppy", script).await;
    for sample in 1..=count {
        leader.triggers(sample);
        assert_eq!(receives_summaries(&mut leader, [0]).await, [sample]);
    }
    assert_eq!(device.report().counts.frame_faults, [].into());
}

#[tokio::test]
async fn a_jpeg_whose_end_marker_is_missing_is_a_frame_and_half_a_jpeg_is_none() {
    let unended = &JPEG[..JPEG.len() - 2];
    let part = [b"--b\r\nContent-Type: image/jpeg\r\n\r\n", unended, b"\r\n"].concat();
    let bodies = [unended.to_vec(), part.repeat(2), JPEG[..892].to_vec()];
    let (leader, device, _heard) = asked("unended-snapshot", bodies.map(CameraReply::Image).into()).await;
    for sample in 1..=2 {
        leader.triggers(sample);
        until(&device, |report| report.counts.source_frames == sample).await;
    }
    leader.triggers(3);
    until(&device, |report| report.counts.frame_faults == [("cut", 1)].into()).await;
}

#[tokio::test]
async fn a_frozen_camera_gives_no_answers_and_says_so_in_its_status() {
    let image = |seed| CameraReply::Image(png(seed));
    let mut script = vec![image(1), image(1), image(1)];
    script.extend((0..10).map(|_| CameraReply::Status("503 Service Unavailable", "text/plain", Vec::new())));
    script.extend([image(1), image(2)]);
    let (url, _heard) = camera(script).await;
    let mut leader = leader_of("frozen").await;
    let settings = SourceSettings { frozen_frames: 3, ..http(&url, 60_000) };
    let device = started("frozen", Capture::Trigger, open(&settings).unwrap()).await;
    assert_eq!(leader.frozen().await, None);
    for sample in 1..=2 {
        leader.triggers(sample);
        assert_eq!(receives_summaries(&mut leader, [1]).await, [sample]);
    }
    leader.triggers(3);
    let reason = leader.frozen().await.expect("a reason");
    assert!(reason.contains("3 frames are equal"), "{reason}");
    assert_eq!(device.health().status()["source"]["frozen"], reason);
    assert!(device.report().counts.frozen);
    // The camera is away, comes back with the same frame, and then gives another frame.
    for sample in 4..=13 {
        leader.triggers(sample);
        until(&device, |report| report.counts.frame_faults.get("status") == Some(&(sample - 3))).await;
    }
    assert_eq!(leader.frozen().await, None);
    for (sample, frozen) in [(14, Some(reason)), (15, None)] {
        leader.triggers(sample);
        assert_eq!(leader.frozen().await, frozen);
    }
    assert_eq!(receives_summaries(&mut leader, [2]).await, [15]);
    let counts = device.report().counts;
    let expected = [("frozen", 2), ("status", 10)].into();
    assert_eq!((counts.frozen, counts.captured, counts.frame_faults), (false, 15, expected));
}

#[tokio::test]
async fn a_camera_that_asks_for_digest_authentication_gets_it() {
    let ask = |nonce: &str| {
        let challenge = format!(r#"Digest realm="cam", qop="auth", nonce="{nonce}", algorithm=SHA-256"#);
        raw(&format!("HTTP/1.1 401 Unauthorized|WWW-Authenticate: {challenge}|Content-Length: 0"), b"")
    };
    let image = || CameraReply::Image(png(7));
    let script = vec![ask("1"), image(), image(), ask("2"), image(), ask("2")];
    let (mut leader, device, mut received) = asked("digest", script).await;
    for sample in 1..=3 {
        leader.triggers(sample);
        assert_eq!(receives_summaries(&mut leader, [7]).await, [sample]);
    }
    // The camera refuses a request with its present nonce, so the password is wrong now: there is no second request.
    leader.triggers(4);
    until(&device, |report| report.counts.frame_faults.get("status") == Some(&1)).await;
    for sent in [
        "Basic dXNlcjpzM2NyZXQ=",
        r#"nonce="1", uri="/snap.png?token=s3cret""#,
        "nc=00000002",
        "nc=00000003",
        r#"nonce="2""#,
        "nc=00000002",
    ] {
        let head = received.recv().await.unwrap();
        assert!(head.contains("\r\nAuthorization: ") && head.contains(sent), "{sent} in {head}");
    }
}

#[tokio::test]
async fn a_camera_that_hangs_or_is_away_costs_a_sample_and_not_the_device() {
    let images = (0..20).map(|_| CameraReply::Image(png(2)));
    let (url, _heard) = camera(std::iter::once(CameraReply::Nothing).chain(images).collect()).await;
    let mut leader = leader_of("hangs").await;
    let device = started("hangs", Capture::Trigger, open(&http(&url, 3_000)).unwrap()).await;
    // On a busy machine more samples than the first may run into the timeout.
    let mut sample = 0;
    while device.report().counts.source_frames == 0 {
        sample += 1;
        leader.triggers(sample);
        until(&device, |report| {
            let faults: u64 = report.counts.frame_faults.values().sum();
            report.counts.source_frames + faults == sample
        })
        .await;
    }
    assert!(faults(&device, "timeout") > 0);
    assert_eq!(receives_summaries(&mut leader, [2]).await, [sample]);

    // The socket keeps its port but does not listen, so that a connection is refused.
    let silent = TcpSocket::new_v4().unwrap();
    silent.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let url = format!("http://{}/", silent.local_addr().unwrap());
    let leader = leader_of("no-camera").await;
    let device = started("no-camera", Capture::Trigger, open(&http(&url, 60_000)).unwrap()).await;
    leader.triggers(1);
    until(&device, |report| report.counts.frame_faults.get("unreachable") == Some(&1)).await;
}

#[tokio::test]
async fn captures_beyond_the_unanswered_requests_of_a_slow_camera_are_dropped_at_once() {
    let (leader, device, _heard) = asked("slow-camera", (0..8).map(|_| CameraReply::Nothing).collect()).await;
    (1..=10).for_each(|sample| leader.triggers(sample));
    until(&device, |report| report.counts.captured == 10).await;
    assert_eq!(faults(&device, "busy"), 6);
}
