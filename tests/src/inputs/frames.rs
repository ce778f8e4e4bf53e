//! Frames that `headwater-device` gets from a pipe, from folders, and from cameras.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;
use std::thread;

use headwater_transport::held_port;
use serde_json::Value;

use super::pictures::{self, flat_png, half, jpeg, numbered, png, unended, webp, without_tables};
use super::running::{Ended, Running, metric, ran};
use super::{Case, CaseFolder, case, pipe, wait, write};
use crate::programs::{command, http};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = streams();
    cases.extend(folders());
    cases.extend(sloppy_cameras());
    cases.extend(cameras());
    cases.extend(still_cameras());
    cases
}

/// Kinds 2 and 5: streams of sound and damaged images.
fn streams() -> Vec<Case> {
    vec![
        case(2, "stream-cut", &["exit 0", "frames 1\n", "faults {\"cut\":1}"], |case| {
            stream(case, &[png(1), half(&jpeg())], &[])
        }),
        case(
            2,
            "stream-raw-cut",
            &["exit 0", "frames 1\n", "faults {\"cut\":1}", "20 of 48 bytes"],
            |case| {
                let source = ["--source-kind", "stdin", "--source-stdin-size", "4x4", "--capture", "source"];
                frames_of(&Running::start(case, device(case).args(source), &[7; 48 + 20]).ended())
            },
        ),
        case(5, "stream-bad-good-bad-good", &["exit 0", "frames 2\n", "faults {\"cut\":2}"], |case| {
            stream(case, &[half(&jpeg()), jpeg(), half(&jpeg()), jpeg()], &[])
        }),
        case(5, "stream-head-then-good-good", &["exit 0", "frames 2\n", "faults {\"cut\":1}"], |case| {
            stream(case, &[jpeg()[..100].to_vec(), jpeg(), jpeg()], &[])
        }),
        case(5, "stream-without-ends", &["exit 0", "frames 4\n", "faults {}"], |case| {
            stream(case, &[0, 1, 2, 3].map(|number| unended(&numbered(&jpeg(), number))), &[])
        }),
        case(5, "stream-without-tables", &["exit 0", "frames 2\n", "faults {}"], |case| {
            stream(case, &[without_tables(&jpeg()), jpeg()], &[])
        }),
        case(5, "stream-with-thumbnail", &["exit 0", "frames 2\n", "faults {}"], |case| {
            stream(case, &[pictures::jpeg_with_thumbnail(), jpeg()], &[])
        }),
        case(5, "stream-of-all-formats", &["exit 0", "frames 7\n", "faults {}"], |case| {
            let restarts = pictures::file("restarts-422.jpg");
            let progressive = pictures::file("progressive-420.jpg");
            let grey = pictures::file("grey-optimized.jpg");
            stream(case, &[png(1), jpeg(), webp(2), restarts, progressive, grey, png(3)], &[])
        }),
        case(5, "stream-half-png-then-png", &["exit 0", "frames 2\n", "faults {\"cut\":2}"], |case| {
            stream(case, &[half(&png(1)), png(2), half(&webp(3)), webp(4)], &[])
        }),
    ]
}

/// Kinds 2, 4 and 6: folders that are played or watched.
fn folders() -> Vec<Case> {
    vec![
        case(2, "played-cut", &["exit 0", "frames 1\n", "faults {\"cut\":2}"], |case| {
            played(case, &[("a.jpg", half(&jpeg())), ("b.png", half(&png(1))), ("c.png", png(2))])
        }),
        case(
            4,
            "played-pipe",
            &["exit 0", "frames 2\n", "faults {}", "passed over {\"no_file\":1}", "b.jpg"],
            |case| {
                pipe(&case.path.join("frames"), "b.jpg");
                played(case, &[("a.png", png(1)), ("c.png", png(2)), (".part/d.png", half(&png(3)))])
            },
        ),
        case(
            4,
            "played-other-names",
            &["exit 0", "frames 1\n", "faults {}", "passed over {\"other_name\":2}"],
            |case| played(case, &[("a.png", png(1)), ("notes.txt", vec![7]), ("b.png.part", vec![7])]),
        ),
        case(6, "played-12-megapixels", &["exit 0", "frames 1\n", "faults {}"], |case| {
            played(case, &[("a.jpg", pictures::large_jpeg(4032, 3024))])
        }),
        case(
            6,
            "played-above-64-megapixels",
            &["exit 0", "frames 1\n", "faults {\"oversize\":1}", "64 megapixels"],
            |case| played(case, &[("a.jpg", pictures::large_jpeg(8200, 8192)), ("b.png", png(1))]),
        ),
        case(6, "watched-folders-by-date", &["exit 0", "frames 3\n", "faults {}"], |case| {
            let files = [
                ("2026-11-25/23/x.jpg", numbered(&jpeg(), 1)),
                ("2026-11-26/00/x.jpg", numbered(&jpeg(), 2)),
                ("y.png", png(1)),
            ];
            watched(case, &files, 3)
        }),
    ]
}

const FRAME: &[&str] = &["exit 0", "\na frame\n", "faults []"];

/// Kinds 5 and 6: answers with a whole image in unusual forms of HTTP or JPEG.
fn sloppy_cameras() -> Vec<Case> {
    vec![
        sloppy(6, "camera-folded-line", || answer("Server: cam| build 7|Content-Type: image/jpeg", &jpeg())),
        sloppy(6, "camera-space-before-colon", || {
            answer("X-Frame-Options : SAMEORIGIN|Content-Type: image/jpeg", &jpeg())
        }),
        sloppy(6, "camera-line-without-colon", || {
            answer("Wed, 01 Jan 2020|Content-Type: image/jpeg", &jpeg())
        }),
        sloppy(6, "camera-status-line-twice", || answer("HTTP/1.0 200 OK|Content-Type: image/jpeg", &jpeg())),
        sloppy(6, "camera-http-1-0", || [&b"HTTP/1.0 200 OK\r\n\r\n"[..], &jpeg()].concat()),
        sloppy(6, "camera-bare-line-feeds", || {
            [&b"HTTP/1.1 200 OK\nContent-Type: image/jpeg\n\n"[..], &jpeg()].concat()
        }),
        sloppy(6, "camera-jpeg-as-text", || answer("Content-Type: text/plain", &jpeg())),
        sloppy(6, "camera-jpeg-as-stream", || answer("content-type: application/octet-stream", &jpeg())),
        sloppy(6, "camera-jpeg-as-multipart", || {
            answer("Content-Type: multipart/x-mixed-replace;boundary=b", &jpeg())
        }),
        sloppy(6, "camera-line-break-before-jpeg", || {
            answer("Content-Type: image/jpg", &[&b"\r\n"[..], &jpeg()].concat())
        }),
        sloppy(6, "camera-multipart", || {
            answer(
                "Content-Type: multipart/x-mixed-replace; boundary=\"--b\"",
                &[&b"----b\r\nContent-Type: image/jpeg\r\n\r\n"[..], &jpeg(), b"\r\n----b\r\n"].concat(),
            )
        }),
        sloppy(5, "camera-bad-part-then-good", || {
            let parts = [&b"--b\r\n\r\n"[..], &half(&jpeg()), b"\r\n--b\r\n\r\n", &jpeg()];
            answer("Content-Type: multipart/x-mixed-replace; boundary=b", &parts.concat())
        }),
        sloppy(6, "camera-chunks", || {
            let (first, rest) = (jpeg()[..100].to_vec(), jpeg()[100..].to_vec());
            let length = format!("{:x}\r\n", rest.len());
            let chunks =
                [&b"64\r\n"[..], &first, b"\r\n", length.as_bytes(), &rest, b"\r\n0\r\n\r\n"].concat();
            answer("Transfer-Encoding: chunked", &chunks)
        }),
        sloppy(6, "camera-without-tables", || answer("Content-Type: image/jpeg", &without_tables(&jpeg()))),
        sloppy(6, "camera-without-end", || answer("Content-Type: image/jpeg", &unended(&jpeg()))),
    ]
}

/// A case with a camera whose answers have a whole image, which the device must take.
fn sloppy(kind: usize, name: &'static str, answer: fn() -> Vec<u8>) -> Case {
    case(kind, name, FRAME, move |case| camera(case, move |_| answer()))
}

/// Kinds 2, 6 and 12: passwords, addresses, and answers without a whole image.
fn cameras() -> Vec<Case> {
    /// Answers a request that has digest authentication with an image, and any other request with status 401.
    fn digest(head: &str, algorithm: &str) -> Vec<u8> {
        if head.contains("Digest username=\"user\"") && head.contains("response=\"") {
            return answer("Content-Type: image/jpeg", &jpeg());
        }
        let ask = format!("WWW-Authenticate: Digest realm=\"cam\", qop=\"auth\", nonce=\"1\"{algorithm}");
        refusal("401 Unauthorized", &ask)
    }
    vec![
        case(6, "camera-digest-md5", FRAME, |case| camera_at(case, SNAPSHOT, true, |head| digest(head, ""))),
        case(6, "camera-digest-sha-256", FRAME, |case| {
            camera_at(case, SNAPSHOT, true, |head| digest(head, ", algorithm=SHA-256"))
        }),
        case(
            12,
            "camera-digest-without-password",
            &["exit 0", "\nno frame\n", "faults [\"status\"]", "401", "source.http.auth_file"],
            |case| camera(case, |head| digest(head, "")),
        ),
        case(6, "camera-address-as-pasted", FRAME, |case| {
            camera_at(case, " HTTP://127.0.0.1:PORT/snap?user=a b&n=\u{e4}", false, |head| {
                match head.contains("/snap?user=a%20b&n=%C3%A4") {
                    true => answer("Content-Type: image/jpeg", &jpeg()),
                    false => refusal("404 Not Found", "X: y"),
                }
            })
        }),
        case(
            12,
            "camera-moved",
            &["\nno frame\n", "faults [\"status\"]", "http://cam.local:80/other", "!s3cret"],
            |case| camera(case, |_| refusal("302 Found", "Location: http://cam.local/other?pw=s3cret")),
        ),
        case(
            12,
            "camera-login-page",
            &["\nno frame\n", "faults [\"not_an_image\"]", "text/html", "please log in"],
            |case| camera(case, |_| answer("Content-Type: text/html", b"<html>please log in</html>")),
        ),
        case(
            12,
            "camera-of-rtsp",
            &["\nno frame\n", "faults [\"not_an_image\"]", "that begin \"RTSP/1.0 400 Bad Request"],
            |case| camera(case, |_| b"RTSP/1.0 400 Bad Request\r\n\r\n".to_vec()),
        ),
        case(2, "camera-cut", &["\nno frame\n", "faults [\"cut\"]"], |case| {
            camera(case, |_| answer("Content-Type: image/jpeg", &half(&jpeg())))
        }),
        case(12, "camera-address-of-rtsp", &["exit 2", "source.http.url", "ffmpeg", "!s3cret"], |case| {
            let source = ["--source-kind", "http", "--source-http-url", "rtsp://u:s3cret@cam/1"];
            ran(case, device(case).args(source))
        }),
    ]
}

/// Kind 11: a device whose camera is frozen or covered gives no answers; a device whose camera sees a still scene does.
fn still_cameras() -> Vec<Case> {
    const FIVE: &[&str] = &["--source-frozen-frames", "5"];
    vec![
        case(
            11,
            "camera-frozen",
            &["exit 0", "frames 4\n", "faults {\"frozen\":6}", "5 frames are equal: the camera is frozen"],
            |case| stream(case, &[0; 10].map(|_| jpeg()), FIVE),
        ),
        case(
            11,
            "camera-alive-again",
            &["exit 0", "frames 8\n", "faults {\"frozen\":2}", "frames answer again"],
            |case| {
                let frames = [0, 0, 0, 0, 0, 0, 1, 2, 3, 4].map(|number| numbered(&jpeg(), number));
                stream(case, &frames, FIVE)
            },
        ),
        // Two greys by turns stand for the noise of a sensor: no frame equals the frame before.
        case(
            11,
            "camera-covered",
            &["exit 0", "frames 4\n", "faults {\"frozen\":6}", "dark or covered"],
            |case| stream(case, &[0, 1, 0, 1, 0, 1, 0, 1, 0, 1].map(|noise| flat_png(100 + noise)), FIVE),
        ),
        case(11, "camera-still-scene", &["exit 0", "frames 10\n", "faults {}"], |case| {
            stream(case, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9].map(|number| numbered(&jpeg(), number)), FIVE)
        }),
        case(11, "recording-of-equal-frames", &["exit 0", "frames 7\n", "faults {}"], |case| {
            let names = ["0.jpg", "1.jpg", "2.jpg", "3.jpg", "4.jpg", "5.jpg", "6.jpg"];
            played(case, &names.map(|name| (name, jpeg())))
        }),
    ]
}

/// The command of a device with the network of one device.
fn device(case: &CaseFolder<'_>) -> Command {
    let mut device = command("headwater-device");
    device.args(["--site", "inputs", "--group", case.name, "--id", "cam-0", "--slot", "0", "--json"]);
    // No leader settles the samples, so the device ends only after the whole grace period.
    device.args(["--grace-ms", "100", "--broker-address", &case.shared.broker.to_string()]);
    device.arg("--bundle").arg(&case.shared.bundles[0]);
    device
}

fn report(ended: &Ended) -> Value {
    serde_json::from_str(&ended.output).unwrap_or_default()
}

/// Exit code, counts of frames, faults and files that were passed over, and the log.
fn frames_of(ended: &Ended) -> String {
    let report = report(ended);
    let [frames, faults, passed_over] =
        ["source_frames", "frame_faults", "passed_over"].map(|key| report[key].to_string());
    format!("{}\nframes {frames}\nfaults {faults}\npassed over {passed_over}\n{}", ended.exit, ended.log)
}

/// Gives a device these image files, one after the other, on its standard input.
fn stream(case: &CaseFolder<'_>, files: &[Vec<u8>], more: &[&str]) -> String {
    let mut device = device(case);
    device.args(["--source-kind", "stdin", "--source-stdin-format", "mjpeg", "--capture", "source"]);
    frames_of(&Running::start(case, device.args(more), &files.concat()).ended())
}

fn write_frames(case: &CaseFolder<'_>, files: &[(&str, Vec<u8>)]) {
    files.iter().for_each(|(name, bytes)| write(&case.path.join("frames"), name, bytes));
}

/// Lets a device play a folder with these files once.
fn played(case: &CaseFolder<'_>, files: &[(&str, Vec<u8>)]) -> String {
    write_frames(case, files);
    let mut device = device(case);
    device.args(["--source-kind", "folder", "--source-folder-end", "end", "--source-folder-period-ms", "1"]);
    device.args(["--capture", "source", "--source-path"]).arg(case.path.join("frames"));
    frames_of(&Running::start(case, &mut device, &[]).ended())
}

/// Lets a device watch a folder into which these files come, until the device has counted `count` frames and faults.
fn watched(case: &CaseFolder<'_>, files: &[(&str, Vec<u8>)], count: u64) -> String {
    fs::create_dir_all(case.path.join("frames")).expect("the folder can be written");
    let port = held_port().expect("a free port");
    let mut device = device(case);
    device.args(["--source-kind", "watch", "--source-watch-existing", "take"]);
    device.args(["--source-watch-poll-ms", "10", "--capture", "source"]);
    device.args(["--admin-listen", &format!("127.0.0.1:{port}"), "--source-path"]);
    let running = Running::start(case, device.arg(case.path.join("frames")), &[]);
    wait(|| !http(port, "GET /live", "", &[]).is_empty());
    write_frames(case, files);
    wait(|| counted(port) >= count);
    frames_of(&running.terminate())
}

/// Number of frames and faults that a running device has counted.
fn counted(port: u16) -> u64 {
    metric(port, "headwater_device_source_frames_total") + metric(port, "headwater_device_frame_faults_total")
}

const SNAPSHOT: &str = "http://127.0.0.1:PORT/snap.jpg";

/// An answer with status 200, the header lines of `lines` (separated by `|`), and a body that ends with the connection.
fn answer(lines: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\n{}\r\n\r\n", lines.replace('|', "\r\n"));
    [head.as_bytes(), body].concat()
}

fn refusal(status: &str, line: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\n{line}\r\nContent-Length: 0\r\n\r\n").into_bytes()
}

/// Gives a device a camera at [`SNAPSHOT`] without a password. `answer` makes an answer from the head of a request.
fn camera(case: &CaseFolder<'_>, answer: impl Fn(&str) -> Vec<u8> + Send + 'static) -> String {
    camera_at(case, SNAPSHOT, false, answer)
}

/// Gives a device a camera until the device has counted a frame or a fault. `PORT` in the URL becomes the camera's port.
fn camera_at(
    case: &CaseFolder<'_>,
    url: &str,
    has_password: bool,
    answer: impl Fn(&str) -> Vec<u8> + Send + 'static,
) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let camera_port = listener.local_addr().expect("a bound listener has an address").port();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let (mut head, mut byte) = (Vec::<u8>::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read == 1) {
                head.push(byte[0]);
            }
            // The device may have closed the connection.
            let _ = stream.write_all(&answer(&String::from_utf8_lossy(&head)));
        }
    });
    let port = held_port().expect("a free port");
    let mut device = device(case);
    device.args(["--source-kind", "http", "--source-http-url"]);
    device.arg(url.replace("PORT", &camera_port.to_string()));
    device.args(["--capture", "clock", "--period-ms", "1000", "--source-http-timeout-ms", "900"]);
    device.args(["--admin-listen", &format!("127.0.0.1:{port}")]);
    if has_password {
        device.env("HEADWATER_DEVICE_SOURCE_HTTP_AUTH", "user:s3cret");
    }
    let running = Running::start(case, &mut device, &[]);
    wait(|| counted(port) > 0);
    let ended = running.terminate();
    let report = report(&ended);
    let frame = if report["source_frames"].as_u64() > Some(0) { "a frame" } else { "no frame" };
    let faults: Vec<_> =
        report["frame_faults"].as_object().into_iter().flat_map(serde_json::Map::keys).collect();
    format!("{}\n{frame}\nfaults {faults:?}\n{}", ended.exit, ended.log)
}
