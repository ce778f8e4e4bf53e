//! ffmpeg pipes a video into `headwater-device`, as in `docs/sources.md`, and every frame is decided.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use headwater_inference::manifest::Configuration;
use headwater_inference::policy::Policy;
use headwater_inference::testing::TinyNetwork;
use headwater_samples::{Shape, View, image_codec};
use headwater_tests::group::{WAIT_LIMIT, bundle, client_of, embedded_broker, group_at, patient, start};
use headwater_tests::programs::service;
use tokio::time::timeout;

const FRAMES: usize = 25;

fn has_ffmpeg() -> bool {
    let found = Command::new("ffmpeg").arg("-version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let is_there = found.is_ok_and(|status| status.success());
    if !is_there {
        println!("skipped: there is no ffmpeg (scripts/install/test-tools installs it)");
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
    let network = TinyNetwork { policy: patient(Policy::default()), ..TinyNetwork::of(Configuration::B) };
    let bundle_path = folder.path().join("single.hwb");
    let bundle_bytes = network.bundle();
    std::fs::write(&bundle_path, &bundle_bytes).expect("the folder can be written");
    let mut settings = group_at(embedded_broker(), bundle(&bundle_bytes));
    settings.slots.clear();
    let site = settings.site.clone();
    let group = start(settings).await;
    let mut client = client_of(&group).await;
    let mut ffmpeg = Command::new("ffmpeg")
        .args(["-v", "error", "-nostdin", "-re", "-i"])
        .arg(&video)
        .args(["-vf", "scale=8:8", "-f", "rawvideo", "-pix_fmt", "rgb24", "-"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("ffmpeg starts");
    let started = SystemTime::now();
    let device = service("headwater-device", &site.broker, &bundle_path)
        .args(["--id", "cam-0", "--slot", "0", "--source-kind", "stdin", "--capture", "source", "--json"])
        .args(["--source-stdin-size", "8x8"])
        .stdin(ffmpeg.stdout.take().expect("was piped"))
        .stdout(Stdio::piped())
        .spawn()
        .expect("the device starts");
    let output = tokio::task::spawn_blocking(move || device.wait_with_output()).await.expect("waits");
    let output = output.expect("the device ends");
    assert!(output.status.success() && ffmpeg.wait().expect("ffmpeg ends").success());
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(report["source_frames"], FRAMES, "{report}");

    let all_decided = async {
        while client.account().decisions().count() < FRAMES {
            client.next().await.unwrap();
        }
    };
    let _ = timeout(WAIT_LIMIT, all_decided).await;
    let mut decided: Vec<_> = client.account().decisions().map(|decision| decision.sample.0).collect();
    decided.sort_unstable();
    assert_eq!(decided.len(), FRAMES, "each frame has one decision");
    // An id is the clock in milliseconds with all its bits, although the header of a message has only the low 32 bits.
    let ms = |time: SystemTime| time.duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as u64;
    assert!(ms(started) <= decided[0] && decided[FRAMES - 1] <= ms(SystemTime::now()) + 1000, "{decided:?}");
    assert!(client.account().decisions().all(|decision| decision.degraded.is_empty()));
    assert_eq!(client.account().contradicted_count(), 0);
    group.shutdown().await.unwrap();
}
