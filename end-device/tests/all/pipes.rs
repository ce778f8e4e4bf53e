//! `headwater-device` reading a real pipe: ffmpeg, and input that is cut.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use crate::support::{Leader, broker, single};
use headwater_protocol::Kind;
use headwater_samples::{Shape, View, image_codec};

/// Number of images in the test's video.
const FRAMES: u64 = 25;

/// A device that reads standard input, in a network of one device.
fn device(dir: &Path, group: &str, more: &[&str], input: Stdio) -> Child {
    let bundle = dir.join("single.hwb");
    std::fs::write(&bundle, single().bundle()).unwrap();
    Command::new(env!("CARGO_BIN_EXE_headwater-device"))
        .args(["--site", "test", "--group", group, "--id", "cam-0", "--slot", "0", "--capture", "source"])
        .env("HEADWATER_DEVICE_SOURCE_KIND", "stdin")
        // On a busy machine no answer is sent a second time, late.
        .args(["--grace-ms", "500", "--keep-ms", "600000"])
        .args(["--json", "--broker-address", &broker().to_string()])
        .args(["--bundle", bundle.to_str().unwrap()])
        .args(more)
        .stdin(input)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn report(output: &Output) -> serde_json::Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn has_ffmpeg() -> bool {
    let found = Command::new("ffmpeg").arg("-version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let is_there = found.is_ok_and(|status| status.success());
    if !is_there {
        println!("skipped: there is no ffmpeg (scripts/install/test-tools installs it)");
    }
    is_there
}

/// A video that ffmpeg makes of [`FRAMES`] images.
fn video(dir: &Path) -> std::path::PathBuf {
    for at in 0..FRAMES {
        let shape = Shape::rgb(48, 64);
        let pixels = (0..shape.bytes()).map(|byte| (byte as u64 * (at + 1) / 7 % 251) as u8).collect();
        let file = image_codec::png(&View::new(shape, pixels)).unwrap();
        std::fs::write(dir.join(format!("{at:03}.png")), file).unwrap();
    }
    let video = dir.join("video.avi");
    let made = Command::new("ffmpeg")
        .args(["-v", "error", "-framerate", "25", "-i"])
        .arg(dir.join("%03d.png"))
        .args(["-c:v", "mpeg4"])
        .arg(&video)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    video
}

fn ffmpeg(arguments: &[&str], video: &Path, to: &[&str]) -> Child {
    Command::new("ffmpeg")
        .args(["-v", "error", "-nostdin"])
        .args(arguments)
        .arg("-i")
        .arg(video)
        .args(to)
        .arg("-")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Receives this many summaries of a group; returns their ids.
async fn summaries(leader: &mut Leader, count: u64) -> BTreeSet<u64> {
    let mut ids = BTreeSet::new();
    while (ids.len() as u64) < count {
        let received = leader.answer().await;
        assert_eq!(received.message().body.kind(), Kind::Summary);
        assert!(ids.insert(received.message().header.sample.0), "an id came twice");
    }
    ids
}

#[tokio::test]
async fn each_frame_of_a_video_from_ffmpeg_becomes_a_summary() {
    if !has_ffmpeg() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let video = video(dir.path());
    let formats: [(&str, &[&str], &[&str]); 6] = [
        (
            "rgb24",
            &["-vf", "scale=8:8", "-f", "rawvideo", "-pix_fmt", "rgb24"],
            &["--source-stdin-size", "8x8"],
        ),
        ("y4m", &["-f", "yuv4mpegpipe", "-pix_fmt", "yuv420p"], &[]),
        ("ppm", &["-f", "image2pipe", "-c:v", "ppm"], &[]),
        (
            "sized",
            &["-f", "rawvideo", "-pix_fmt", "rgb24"],
            &["--source-stdin-size", "64x48", "--source-roi", "25%,0%,50%,100%"],
        ),
        ("mjpeg", &["-f", "image2pipe", "-c:v", "mjpeg"], &["--source-stdin-format", "mjpeg"]),
        ("png", &["-f", "image2pipe", "-c:v", "png"], &["--source-stdin-format", "mjpeg"]),
    ];
    for (name, to, flags) in formats {
        let mut leader = Leader::of(&format!("ffmpeg-{name}")).await;
        let mut source = ffmpeg(&[], &video, to);
        let pipe = source.stdout.take().unwrap();
        let child = device(dir.path(), &format!("ffmpeg-{name}"), flags, pipe.into());
        summaries(&mut leader, FRAMES).await;
        let report = report(&child.wait_with_output().unwrap());
        assert!(source.wait().unwrap().success());
        assert_eq!(report["captured"], FRAMES, "{name}: {report}");
        assert_eq!(report["source_frames"], FRAMES, "{name}: {report}");
        assert_eq!(report["sent"]["summary"]["messages"], FRAMES, "{name}: {report}");
        assert_eq!(report["frame_faults"], serde_json::json!({}), "{name}: {report}");
    }
}

/// A recipe of `docs/sources.md`: the arguments of ffmpeg, and the flags of the device that concern the source.
fn recipe(heading: &str) -> (Vec<&'static str>, Vec<&'static str>) {
    let page = include_str!("../../../docs/sources.md");
    let (_, section) = page.split_once(&format!("\n## {heading}\n")).expect("the section");
    let (_, block) = section.split_once("$ ffmpeg ").expect("a recipe");
    let (block, _) = block.split_once("```").expect("the end of the recipe");
    let mut words = block.split_whitespace().filter(|word| *word != "\\");
    let ffmpeg = words.by_ref().take_while(|word| *word != "|").collect();
    let flags: Vec<_> = words.skip(1).collect();
    let of_source = flags.chunks(2).filter(|flag| flag[0].starts_with("--source-"));
    (ffmpeg, of_source.flatten().copied().collect())
}

/// The arguments with `others` in place of `replaced`.
fn replaced<'a>(arguments: &[&'a str], replaced: &[&str], others: &[&'a str]) -> Vec<&'a str> {
    let at = arguments.windows(replaced.len()).position(|window| window == replaced).expect("in the recipe");
    [&arguments[..at], others, &arguments[at + replaced.len()..]].concat()
}

/// Runs a recipe until five frames are answered, and then kills ffmpeg.
async fn five_frames(group: &str, ffmpeg: &[&str], flags: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let mut leader = Leader::of(group).await;
    let mut source =
        Command::new("ffmpeg").args(ffmpeg).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let pipe = source.stdout.take().unwrap();
    let child = device(dir.path(), group, flags, pipe.into());
    summaries(&mut leader, 5).await;
    source.kill().unwrap();
    source.wait().unwrap();
    let report = report(&child.wait_with_output().unwrap());
    assert!(report["source_frames"].as_u64().unwrap() >= 5, "{report}");
}

/// The recipe for RTSP between two processes of ffmpeg: the ffmpeg of the recipe listens, and a second one is the camera.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_recipe_for_rtsp_gives_frames() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    if !has_ffmpeg() {
        return;
    }
    // An address of this process alone: all of 127.0.0.0/8 is loopback on Linux.
    let id = std::process::id();
    let url = format!("rtsp://127.83.{}.{}:8554/stream", id >> 8 & 255, id & 255);
    let (ffmpeg, flags) = recipe("ffmpeg: RTSP");
    let ffmpeg = replaced(
        &ffmpeg,
        &["-i", "rtsp://camera.local/stream"],
        &["-rtsp_flags", "listen", "-i", url.as_str()],
    );
    let is_over = Arc::new(AtomicBool::new(false));
    let camera = std::thread::spawn({
        let (is_over, url) = (Arc::clone(&is_over), url.clone());
        // The camera is refused until the ffmpeg of the recipe listens.
        move || {
            while !is_over.load(Ordering::Relaxed) {
                let mut camera = Command::new("ffmpeg");
                camera.args(["-v", "error", "-nostdin", "-re", "-f", "lavfi", "-i", "testsrc2=size=640x480"]);
                camera.args(["-c:v", "mpeg4", "-f", "rtsp", "-rtsp_transport", "tcp", &url]);
                camera.stderr(Stdio::null()).status().unwrap();
            }
        }
    });
    five_frames("recipe-rtsp", &ffmpeg, &flags).await;
    is_over.store(true, Ordering::Relaxed);
    camera.join().unwrap();
}

/// The recipe for a webcam, with a test picture of ffmpeg in the place of the camera.
#[tokio::test]
async fn the_recipe_for_a_webcam_gives_frames() {
    if !has_ffmpeg() {
        return;
    }
    let (ffmpeg, flags) = recipe("ffmpeg: a webcam");
    let camera = ["-f", "v4l2", "-i", "/dev/video0"];
    let ffmpeg = replaced(&ffmpeg, &camera, &["-re", "-f", "lavfi", "-i", "testsrc2=size=640x480"]);
    five_frames("recipe-webcam", &ffmpeg, &flags).await;
}

#[tokio::test]
async fn an_ffmpeg_that_dies_ends_the_device_cleanly() {
    if !has_ffmpeg() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let video = video(dir.path());
    let mut leader = Leader::of("ffmpeg-dies").await;
    // ffmpeg plays the video at the rate of the video, in an endless loop.
    let to = ["-vf", "scale=8:8", "-f", "rawvideo", "-pix_fmt", "rgb24"];
    let mut source = ffmpeg(&["-re", "-stream_loop", "-1"], &video, &to);
    let pipe = source.stdout.take().unwrap();
    let child = device(dir.path(), "ffmpeg-dies", &["--source-stdin-size", "8x8"], pipe.into());
    summaries(&mut leader, 5).await;
    source.kill().unwrap();
    source.wait().unwrap();
    let report = report(&child.wait_with_output().unwrap());
    assert!(report["captured"].as_u64().unwrap() >= 5, "{report}");
    assert_eq!(report["captured"], report["sent"]["summary"]["messages"], "{report}");
}

#[tokio::test]
async fn a_cut_frame_at_the_end_of_the_input_is_counted_and_the_exit_is_clean() {
    let dir = tempfile::tempdir().unwrap();
    let mut leader = Leader::of("cut-input").await;
    let flags = ["--source-stdin-format", "gray", "--source-stdin-size", "4x4"];
    let mut child = device(dir.path(), "cut-input", &flags, Stdio::piped());
    let mut input = child.stdin.take().unwrap();
    input.write_all(&[7; 3 * 16 + 5]).unwrap();
    drop(input);
    summaries(&mut leader, 3).await;
    let report = report(&child.wait_with_output().unwrap());
    assert_eq!(report["captured"], 3, "{report}");
    assert_eq!(report["frame_faults"], serde_json::json!({ "cut": 1 }), "{report}");
}

#[tokio::test]
async fn an_input_that_is_empty_ends_cleanly() {
    let dir = tempfile::tempdir().unwrap();
    let child = device(dir.path(), "empty-input", &[], Stdio::null());
    let report = report(&child.wait_with_output().unwrap());
    assert_eq!(report["captured"], 0, "{report}");
}

#[tokio::test]
async fn a_source_that_breaks_off_ends_with_code_1_and_its_report() {
    let dir = tempfile::tempdir().unwrap();
    let images = dir.path().join("images");
    std::fs::create_dir(&images).unwrap();
    let file = image_codec::png(&View::new(Shape::rgb(8, 8), vec![9; 192])).unwrap();
    std::fs::write(images.join("0.png"), file).unwrap();
    let mut leader = Leader::of("breaks-off").await;
    let path = images.to_str().unwrap();
    let flags = ["--source-kind", "folder", "--source-path", path, "--source-folder-period-ms", "20"];
    let child = device(dir.path(), "breaks-off", &flags, Stdio::null());
    summaries(&mut leader, 2).await;
    std::fs::remove_dir_all(&images).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("broke off"));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["captured"].as_u64().unwrap() >= 2, "{report}");
}
