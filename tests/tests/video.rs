//! The recipe of `docs/sources.md`, whole: a real ffmpeg plays a video into the real `headwater-device`, and each of its frames is decided.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use headwater_inference::bundle::Bundle;
use headwater_inference::manifest::Configuration;
use headwater_inference::policy::Policy;
use headwater_inference::testing::TinyNetwork;
use headwater_protocol::{SampleId, Slot};
use headwater_samples::{Shape, View, image_codec};
use headwater_tests::process::program;
use headwater_tests::tiers::{Plan, device_config, names};
use tokio::time::{Instant, sleep};

const FRAMES: usize = 25;

fn has_ffmpeg() -> bool {
    let found = Command::new("ffmpeg").arg("-version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let is_there = found.is_ok_and(|status| status.success());
    if !is_there {
        println!("skipped: there is no ffmpeg (scripts/install-test-tools installs it)");
    }
    is_there
}

fn video(folder: &Path) -> PathBuf {
    for at in 0..FRAMES {
        let shape = Shape::rgb(48, 64);
        let pixels = (0..shape.bytes()).map(|byte| (byte * (at + 1) / 7 % 251) as u8).collect();
        let file = image_codec::png(&View::new(shape, pixels)).expect("a view becomes PNG");
        std::fs::write(folder.join(format!("{at:03}.png")), file).expect("the folder can be written");
    }
    let video = folder.join("video.avi");
    let made = Command::new("ffmpeg")
        .args(["-v", "error", "-framerate", "25", "-i"])
        .arg(folder.join("%03d.png"))
        .args(["-c:v", "mpeg4"])
        .arg(&video)
        .status()
        .expect("ffmpeg starts");
    assert!(made.success());
    video
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_frame_of_a_video_is_decided() {
    if !has_ffmpeg() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let video = video(folder.path());
    // Waits that no busy test machine reaches.
    let policy = Policy { window_ms: 10_000, features_ms: 10_000, deadline_ms: 20_000, ..Policy::default() };
    let network = TinyNetwork { policy, ..TinyNetwork::of(Configuration::B) };
    let bundle_path = folder.path().join("alone.hwb");
    std::fs::write(&bundle_path, network.bundle()).expect("the folder can be written");
    let bundle = Bundle::open(&bundle_path).expect("a sound bundle");
    let tiers = Plan { slots: Vec::new(), ..Plan::of(bundle) }.start().await;
    let mut observer = tiers.observer().await;

    let slot = Slot::new(0).expect("below 64");
    let config = device_config(slot, tiers.broker.clone());
    let (site, group) = names();
    let mut ffmpeg = Command::new("ffmpeg")
        .args(["-v", "error", "-nostdin", "-re", "-i"])
        .arg(&video)
        .args(["-vf", "scale=8:8", "-f", "rawvideo", "-pix_fmt", "rgb24", "-"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("ffmpeg starts");
    let started = SystemTime::now();
    let device = Command::new(program("headwater-device"))
        .args(["--site", site.as_str(), "--group", group.as_str(), "--id", config.id.as_str(), "--slot", "0"])
        .args(["--broker", &tiers.broker.to_string(), "--source", "stdin", "--capture", "source", "--json"])
        .arg("--bundle")
        .arg(&bundle_path)
        .stdin(ffmpeg.stdout.take().expect("was piped"))
        .stdout(Stdio::piped())
        .spawn()
        .expect("the device starts");
    let output = tokio::task::spawn_blocking(move || device.wait_with_output()).await.expect("waits");
    let output = output.expect("the device ends");
    assert!(output.status.success() && ffmpeg.wait().expect("ffmpeg ends").success());
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(report["source_frames"], FRAMES, "{report}");

    let until = Instant::now() + Duration::from_secs(20);
    while observer.heard.len() < FRAMES && Instant::now() < until {
        // Listens to what has come.
        observer.heard_about(SampleId(0)).await;
        sleep(Duration::from_millis(10)).await;
    }
    let mut decided: Vec<_> = observer.heard.iter().map(|decision| decision.sample.0).collect();
    decided.sort_unstable();
    decided.dedup();
    assert_eq!(decided.len(), FRAMES, "each frame has a decision of its own");
    // Ids are the milliseconds of the device's clock, whole, though a header carries half of one.
    let ms = |time: SystemTime| time.duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as u64;
    assert!(ms(started) <= decided[0] && decided[FRAMES - 1] <= ms(SystemTime::now()) + 1000, "{decided:?}");
    assert!(observer.heard.iter().all(|decision| decision.degraded.is_empty()), "{:?}", observer.heard);
    observer.assert_no_contradiction();
    tiers.shutdown().await;
}
