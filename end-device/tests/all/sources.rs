//! Sources of frames with a real broker, a real section, real files, pipes and sockets.

use std::io::Write;
use std::path::Path;

use crate::support::{
    self, Leader, PATIENCE, bundle, config, leader_and_device, network, refusal, scores_bytes, set_capture,
    single_bundle, until,
};
use headwater_end_device::{
    Capture, Device, DeviceError, DeviceHandle, DeviceSettings, Ended, OpenedDevice, Source, SourceSettings,
    SourceWord, StdinFormat, StdinSettings,
};
use headwater_inference::engine::TractEngine;
use headwater_inference::manifest::Preprocessing;
use headwater_inference::sections::DeviceSection;
use headwater_protocol::{Body, Kind, Slot, frame_details};
use headwater_samples::{Shape, View, image_codec};
use headwater_settings::Sources;
use tokio::time::timeout;

pub(crate) fn slot() -> Slot {
    Slot::new(0).unwrap()
}

pub(crate) fn preprocessing() -> Preprocessing {
    network().manifest().preprocessing
}

fn pixels(seed: u64) -> Vec<u8> {
    network().view_of(seed)
}

pub(crate) fn png(seed: u64) -> Vec<u8> {
    image_codec::png(&View::new(Shape::rgb(8, 8), pixels(seed))).unwrap()
}

/// The frame as raw RGB: the three colours of each pixel together.
fn rgb24(seed: u64) -> Vec<u8> {
    let planes = pixels(seed);
    (0..64).flat_map(|at| [planes[at], planes[64 + at], planes[128 + at]]).collect()
}

/// The scores of the single device's section.
fn scores(seed: u64) -> Vec<u8> {
    let mut section = DeviceSection::load(&single_bundle(), slot(), &TractEngine::new()).unwrap();
    scores_bytes(&section.run(&pixels(seed), 1).unwrap()[0])
}

/// Settings of a source, from flags with spaces between them.
pub(crate) fn source(flags: &str) -> SourceSettings {
    loaded(Sources::default().with_arguments(flags.split(' ')))
}

fn loaded(sources: Sources) -> SourceSettings {
    let required = "site = \"s\"\ngroup = \"g\"\nid = \"i\"\nslot = 0\nbundle = \"b\"\n";
    DeviceSettings::load(sources.with_file(required)).expect("valid settings").settings.source
}

fn archive(path: &Path) -> SourceSettings {
    source(&format!("--source-path {}", path.display()))
}

fn folder(path: &Path) -> SourceSettings {
    let timing = "--source-folder-period-ms 1 --source-max-age-ms 60000";
    source(&format!("--source-kind folder --source-path {} --source-folder-end end {timing}", path.display()))
}

fn watch(path: &Path, existing: &str) -> SourceSettings {
    let timing = "--source-watch-poll-ms 10 --source-max-age-ms 60000";
    let path = path.display();
    source(&format!("--source-kind watch --source-path {path} --source-watch-existing {existing} {timing}"))
}

pub(crate) fn open(settings: &SourceSettings) -> Result<Source, DeviceError> {
    Source::open(settings, Capture::Trigger, slot(), &preprocessing())
}

fn single_config(group: &str, capture: Capture) -> OpenedDevice {
    let mut config = config(group, 0);
    set_capture(&mut config, capture);
    // No leader settles the samples, so the device waits for the whole grace period at its end.
    config.settings.grace_ms = 200;
    config
}

/// Frames on a pipe.
pub(crate) fn pipe(input: impl std::io::Read + Send + 'static, format: StdinFormat) -> Source {
    let frames = StdinSettings { format, size: (format == StdinFormat::Rgb24).then_some([8, 8]) };
    Source::of_reader(input, frames, None, slot(), &preprocessing()).unwrap()
}

pub(crate) async fn leader_of(group: &str) -> Leader {
    let mut leader = Leader::of(group).await;
    leader.network = single_bundle().network_id();
    leader
}

pub(crate) async fn started(group: &str, capture: Capture, source: Source) -> DeviceHandle {
    let device = Device::start(single_config(group, capture), single_bundle(), source).await.unwrap();
    timeout(PATIENCE, device.connected()).await.unwrap();
    device
}

pub(crate) fn faults(device: &DeviceHandle, code: &str) -> u64 {
    device.report().counts.frame_faults.get(code).copied().unwrap_or(0)
}

/// Receives the summaries of these frames in their order, and checks that ids grow; returns the ids.
pub(crate) async fn receives_summaries(
    leader: &mut Leader,
    seeds: impl IntoIterator<Item = u64>,
) -> Vec<u64> {
    let mut ids = Vec::new();
    for seed in seeds {
        let received = leader.answer().await;
        let message = received.message();
        assert_eq!(message.body, Body::Summary(&scores(seed)), "frame {seed}");
        ids.push(message.header.sample.0);
    }
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "{ids:?}");
    ids
}

pub(crate) async fn ended(device: &mut DeviceHandle) -> Ended {
    timeout(PATIENCE, device.ended()).await.expect("it ends")
}

#[tokio::test]
async fn each_image_of_a_folder_becomes_a_sample_and_the_last_one_ends_the_device() {
    let dir = tempfile::tempdir().unwrap();
    for seed in 0..5 {
        std::fs::write(dir.path().join(format!("{seed:03}.png")), png(seed)).unwrap();
    }
    std::fs::write(dir.path().join("002b.png"), &png(9)[..40]).unwrap();
    let mut leader = leader_of("folder").await;
    let mut device = started("folder", Capture::Source, open(&folder(dir.path())).unwrap()).await;
    receives_summaries(&mut leader, 0..5).await;
    assert_eq!(ended(&mut device).await, Ended::Source);
    let report = device.shutdown().await;
    assert_eq!(
        (
            report.counts.captured,
            report.counts.source_frames,
            support::sent_of(&report, Kind::Summary).messages
        ),
        (5, 5, 5)
    );
    assert_eq!(report.counts.frame_faults.get("cut"), Some(&1), "{report:?}");
}

#[tokio::test]
async fn an_answer_names_its_file_and_number_where_the_device_names_frames() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("belt")).unwrap();
    let write = |name: &str, bytes: &[u8]| std::fs::write(dir.path().join("belt").join(name), bytes).unwrap();
    write("0.png", &png(0));
    write("0b.png", &png(9)[..40]);
    write("1.png", &png(1));
    let mut leader = leader_of("named").await;
    let mut config = single_config("named", Capture::Source);
    config.settings.name_frames = true;
    let source = open(&folder(dir.path())).unwrap();
    let mut device = Device::start(config, single_bundle(), source).await.unwrap();
    for (seed, frame, file) in [(0, 0, "belt/0.png"), (1, 2, "belt/1.png")] {
        let received = leader.answer().await;
        assert_eq!(received.message().body, Body::Summary(&scores(seed)), "frame {seed}");
        let details = frame_details(&received.payload, &support::limits()).expect("a name");
        assert_eq!((details.frame, details.file), (frame, file));
    }
    assert_eq!(ended(&mut device).await, Ended::Source);
}

#[tokio::test]
async fn the_newest_frame_of_a_pipe_answers_a_trigger() {
    let mut leader = leader_of("newest").await;
    let (reader, mut writer) = std::io::pipe().unwrap();
    let raw = StdinSettings { format: StdinFormat::Rgb24, size: Some([8, 8]) };
    let pipe = Source::of_reader(reader, raw, None, slot(), &preprocessing()).unwrap();
    let mut device = started("newest", Capture::Trigger, pipe).await;
    leader.triggers(1);
    until(&device, |report| report.counts.frame_faults.get("none_yet") == Some(&1)).await;
    writer.write_all(&[rgb24(3), rgb24(4)].concat()).unwrap();
    until(&device, |report| report.counts.source_frames == 2).await;
    leader.triggers(2);
    assert_eq!(receives_summaries(&mut leader, [4]).await, [2]);
    drop(writer);
    assert_eq!(ended(&mut device).await, Ended::Source);
}

#[tokio::test]
async fn a_frame_that_is_too_old_is_not_used_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("0.png"), png(0)).unwrap();
    let timing = "--source-folder-period-ms 3600000 --source-max-age-ms 1";
    let settings = source(&format!("--source-kind folder --source-path {} {timing}", dir.path().display()));
    let leader = leader_of("stale").await;
    let device = started("stale", Capture::Trigger, open(&settings).unwrap()).await;
    until(&device, |report| report.counts.source_frames == 1).await;
    // A fast device sends some samples while the frame is young. Each is settled before the next, since those on their way are not sent yet.
    let mut sample = 0;
    while faults(&device, "stale") == 0 {
        sample += 1;
        leader.triggers(sample);
        until(&device, |report| {
            let stale = report.counts.frame_faults.get("stale").copied().unwrap_or(0);
            report.counts.captured == sample
                && stale + support::sent_of(report, Kind::Summary).messages == sample
        })
        .await;
    }
}

#[tokio::test]
async fn a_frozen_camera_that_goes_away_is_stale_and_frozen_again_when_it_comes_back_so() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, seed| {
        std::fs::write(dir.path().join("part"), png(seed)).unwrap();
        std::fs::rename(dir.path().join("part"), dir.path().join(name)).unwrap();
    };
    let settings = SourceSettings { frozen_frames: 2, max_age_ms: Some(1), ..watch(dir.path(), "skip") };
    let mut leader = leader_of("frozen-away").await;
    let device = started("frozen-away", Capture::Trigger, open(&settings).unwrap()).await;
    assert_eq!(leader.frozen().await, None);
    write("1.png", 1);
    until(&device, |report| report.counts.source_frames == 1).await;
    write("2.png", 1);
    assert!(leader.frozen().await.is_some());
    // A fast device captures some samples while the frozen frame is young: they count nowhere else.
    let mut sample = 0;
    while faults(&device, "stale") < 10 {
        sample += 1;
        leader.triggers(sample);
        until(&device, |report| report.counts.captured == sample).await;
    }
    assert_eq!(leader.frozen().await, None);
    assert_eq!(device.health().status()["source"]["frozen"], serde_json::Value::Null);
    write("3.png", 1);
    let reason = leader.frozen().await.expect("a reason");
    assert!(reason.contains("2 frames are equal"), "{reason}");
    write("4.png", 2);
    assert_eq!(leader.frozen().await, None);
    until(&device, |report| report.counts.source_frames == 2).await;
    let counts = device.report().counts;
    assert_eq!((counts.frozen, counts.frame_faults.get("frozen")), (false, Some(&2)));
}

#[tokio::test]
async fn a_watched_folder_gives_each_new_file_once_and_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    std::fs::write(path("0-before.png"), png(0)).unwrap();
    let mut leader = leader_of("watch").await;
    let watched = open(&watch(dir.path(), "skip")).unwrap();
    let device = started("watch", Capture::Source, watched).await;

    // A file that is renamed into the folder, as careful programs do.
    std::fs::write(path("1.png.part"), png(1)).unwrap();
    std::fs::rename(path("1.png.part"), path("1.png")).unwrap();
    receives_summaries(&mut leader, [1]).await;

    // A file that is written in two parts, with a pause in which it does not change.
    let whole = png(2);
    let mut file = std::fs::File::create(path("2.png")).unwrap();
    file.write_all(&whole[..whole.len() / 2]).unwrap();
    until(&device, |report| report.counts.frame_faults.contains_key("cut")).await;
    file.write_all(&whole[whole.len() / 2..]).unwrap();
    receives_summaries(&mut leader, [2]).await;

    // The same name again, and in a new folder.
    std::fs::write(path("2.png"), png(3)).unwrap();
    receives_summaries(&mut leader, [3]).await;
    std::fs::create_dir_all(path("2026-11-25/10")).unwrap();
    std::fs::write(path("2026-11-25/10/2.png"), png(4)).unwrap();
    receives_summaries(&mut leader, [4]).await;
    std::fs::write(path("2026-11-25/notes.txt"), "").unwrap();
    until(&device, |report| report.counts.passed_over.get("other_name") == Some(&1)).await;
    assert_eq!(device.shutdown().await.counts.source_frames, 4);
}

#[tokio::test]
async fn a_watched_folder_takes_existing_images_if_configured() {
    let dir = tempfile::tempdir().unwrap();
    for seed in [2, 1, 3] {
        std::fs::write(dir.path().join(format!("{seed}.png")), png(seed)).unwrap();
    }
    let mut leader = leader_of("existing").await;
    let taking = open(&watch(dir.path(), "take")).unwrap();
    let _device = started("existing", Capture::Source, taking).await;
    receives_summaries(&mut leader, 1..4).await;
}

#[tokio::test]
async fn files_on_a_pipe_are_samples_and_cut_or_stray_bytes_are_counted() {
    let mut leader = leader_of("files").await;
    let (reader, mut writer) = std::io::pipe().unwrap();
    let mjpeg = StdinSettings { format: StdinFormat::Mjpeg, size: None };
    let pipe = Source::of_reader(reader, mjpeg, None, slot(), &preprocessing()).unwrap();
    let mut device = started("files", Capture::Source, pipe).await;
    let stream = [png(1), b"between".to_vec(), png(2), png(3)[..50].to_vec()].concat();
    writer.write_all(&stream).unwrap();
    drop(writer);
    receives_summaries(&mut leader, [1, 2]).await;
    assert_eq!(ended(&mut device).await, Ended::Source);
    let report = device.shutdown().await;
    assert_eq!(report.counts.frame_faults, [("cut", 1), ("stray_bytes", 1)].into());
}

/// A frame as a PPM.
pub(crate) fn ppm(seed: u64) -> Vec<u8> {
    [b"P6\n8 8\n255\n".as_slice(), &rgb24(seed)].concat()
}

#[tokio::test]
async fn a_video_file_is_played_to_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("video.ppm");
    std::fs::write(&path, [ppm(4), ppm(5), ppm(6)].concat()).unwrap();
    let mut leader = leader_of("video-file").await;
    let settings = SourceSettings { kind: SourceWord::File, ..folder(&path) };
    let mut device = started("video-file", Capture::Source, open(&settings).unwrap()).await;
    receives_summaries(&mut leader, [4, 5, 6]).await;
    assert_eq!(ended(&mut device).await, Ended::Source);
    let missing = SourceSettings { path: Some(dir.path().join("none.y4m")), ..settings };
    assert!(open(&missing).err().expect("a refusal").to_string().contains("No such file"));
}

/// A JPEG whose header ends after 623 bytes.
const JPEG: &[u8] = include_bytes!("../../../io/samples/tests/images/sampled-420.jpg");

#[tokio::test]
async fn an_image_without_its_end_takes_no_other_with_it() {
    let (half, unended) = (&JPEG[..892], &JPEG[..JPEG.len() - 2]);
    let _leader = leader_of("unended").await;
    for (stream, frames, cut) in [
        ([half, JPEG, half, JPEG], 2, 2),
        ([JPEG, JPEG, JPEG, half], 3, 1),
        ([unended, JPEG, unended, JPEG], 4, 0),
        ([unended; 4], 4, 0),
        // In the head of the image, behind its application data.
        ([&JPEG[..21], JPEG, &JPEG[..160], JPEG], 2, 2),
    ] {
        let pipe = pipe(std::io::Cursor::new(stream.concat()), StdinFormat::Mjpeg);
        let mut device = started("unended", Capture::Source, pipe).await;
        assert_eq!(ended(&mut device).await, Ended::Source);
        let counts = device.shutdown().await.counts;
        let found_cut = counts.frame_faults.get("cut").copied().unwrap_or(0);
        assert_eq!((counts.source_frames, found_cut), (frames, cut), "{:?}", counts.frame_faults);
    }
}

#[tokio::test]
async fn ids_of_frames_grow_over_a_restart() {
    let state = tempfile::tempdir().unwrap();
    let mut leader = leader_of("ids").await;
    let mut last = 0;
    for start in 0..3 {
        let stream = std::io::Cursor::new([rgb24(start), rgb24(start)].concat());
        let pipe = pipe(stream, StdinFormat::Rgb24);
        let mut config = single_config("ids", Capture::Source);
        config.settings.state_dir = Some(state.path().into());
        // No leader settles the samples. Without a spool each start sends its own samples only.
        config.settings.spool.max_bytes = 0;
        let mut device = Device::start(config, single_bundle(), pipe).await.unwrap();
        let ids = receives_summaries(&mut leader, [start, start]).await;
        assert!(ids[0] > last, "{ids:?} after {last}");
        last = ids[1];
        assert_eq!(ended(&mut device).await, Ended::Source);
        device.shutdown().await;
        // The next start reads an id a minute ahead, as if the clock had been set back since.
        let kept = state.path().join("sample");
        let line = std::fs::read_to_string(&kept).unwrap();
        let id: u64 = line.trim().strip_prefix("format 2: ").unwrap().parse().unwrap();
        assert_eq!(id, last);
        std::fs::write(&kept, format!("format 2: {}\n", id + 60_000)).unwrap();
        last = id + 60_000;
    }
}

#[tokio::test]
async fn a_trigger_that_goes_backwards_is_refused_and_counted() {
    let (mut leader, device) = leader_and_device("backwards", 0).await;
    for sample in [10, 4, 3, 11] {
        leader.triggers(sample);
    }
    assert_eq!(leader.answered().await.0, 10);
    assert_eq!(leader.answered().await.0, 11);
    let report = device.report();
    assert_eq!((report.counts.captured, report.counts.repeated, report.counts.backwards), (2, 0, 2));
}

#[tokio::test]
async fn a_trigger_far_ahead_is_captured_and_answered_when_a_second_one_confirms_it() {
    let (mut leader, device) = leader_and_device("implausible", 0).await;
    let far = 1 << 40;
    let refused = || device.health().status()["captures"]["refused_trigger"].clone();
    leader.triggers(10);
    leader.triggers(far);
    until(&device, |report| report.counts.implausible == 1).await;
    let reason = refused().as_str().expect("a reason").to_owned();
    assert!(reason.starts_with(&format!("the trigger of sample {far}, newest 10: ")), "{reason}");
    leader.triggers(11);
    until(&device, |report| report.counts.captured == 3).await;
    assert_eq!(refused(), serde_json::Value::Null);
    for sample in [u64::MAX, far + 1, far + 2] {
        leader.triggers(sample);
    }
    for sample in [10, 11, far + 1, far + 2] {
        assert_eq!(leader.answered().await, (sample, false));
    }
    let counts = device.report().counts;
    assert_eq!((counts.captured, counts.backwards, counts.implausible), (5, 0, 3));
}

#[tokio::test]
async fn a_device_that_followed_a_wrong_trigger_is_put_back_by_the_leader_s_account() {
    let (mut leader, device) = leader_and_device("put-back", 0).await;
    leader.triggers(1 << 40);
    leader.answer().await;
    leader.triggers(5);
    let refused = || device.health().status()["captures"]["refused_trigger"].is_string();
    until(&device, |report| report.counts.backwards == 1).await;
    assert!(refused(), "until the device is put back");
    leader.settles(&[(1, 4)], &[]);
    // The wrong trigger waits for a second one near it, and the next right one ends that.
    until(&device, |report| report.counts.trigger_waits).await;
    assert!(!refused());
    leader.gets(6).await;
    until(&device, |report| !report.counts.trigger_waits).await;
    assert_eq!(device.report().counts.backwards, 1);
}

#[tokio::test]
async fn a_region_outside_the_frames_is_refused_with_their_size() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("0.png"), png(0)).unwrap();
    let frames = dir.path().join("frames.tar.gz");
    support::write_frames(&frames);
    let roi = Some("4,4,5,4".parse().unwrap());
    let raw = "--source-kind stdin --source-stdin-format gray --source-stdin-size 8x8";
    for settings in [folder(dir.path()), archive(&frames), source(raw)] {
        let error = open(&SourceSettings { roi, ..settings }).err().expect("a refusal").to_string();
        assert!(error.contains("8x8") && error.contains("4,4,5,4"), "{error}");
    }
    // A watched folder knows the size of a frame only when it comes.
    let leader = leader_of("roi").await;
    let settings = SourceSettings { roi, ..watch(dir.path(), "take") };
    let device = started("roi", Capture::Trigger, open(&settings).unwrap()).await;
    until(&device, |report| report.counts.frame_faults.get("roi_outside") == Some(&1)).await;
    drop(leader);
}

#[test]
fn a_device_without_settings_takes_the_region_of_its_slot_in_training() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("0.png"), png(0)).unwrap();
    let regions = ["0,0,4,4", "4,4,5,4"].map(|region| region.parse().unwrap()).to_vec();
    let view = Preprocessing { regions, ..preprocessing() };
    let open = |settings: &SourceSettings, slot: u8| {
        Source::open(settings, Capture::Trigger, Slot::new(slot).unwrap(), &view).map(drop)
    };
    let own = folder(dir.path());
    assert!(open(&own, 0).is_ok());
    let error = open(&own, 1).unwrap_err().to_string();
    assert!(error.contains("8x8") && error.contains("4,4,5,4"), "{error}");
    let roi = Some("4,4,4,4".parse().unwrap());
    assert!(open(&SourceSettings { roi, ..own }, 1).is_ok(), "the settings win");
}

#[tokio::test]
async fn frames_are_samples_only_of_a_network_of_one_device_and_a_source_with_its_own_timing() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("0.png"), png(0)).unwrap();
    let config = || single_config("refused", Capture::Source);
    let error = refusal(config(), bundle(), open(&folder(dir.path())).unwrap()).await.to_string();
    assert!(error.contains("one of 3"), "{error}");
    let frames = dir.path().join("frames.tar.gz");
    support::write_frames(&frames);
    let frames = open(&archive(&frames)).unwrap();
    let error = refusal(config(), single_bundle(), frames).await.to_string();
    assert!(error.starts_with("capture = \"source\": expected a source"), "{error}");
}

#[cfg(feature = "http")]
mod http {
    use headwater_end_device::MAX_FRAME_BYTES;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpSocket, TcpStream};
    use tokio::sync::mpsc;

    use super::*;

    /// Reply of the camera to one request.
    enum CameraReply {
        Image(Vec<u8>),
        Status(&'static str, &'static str, Vec<u8>),
        /// Names a length and sends less.
        Short(Vec<u8>),
        /// The whole answer, header and body.
        Raw(Vec<u8>),
        /// A body without end, sent until the peer closes the connection.
        Endless,
        Nothing,
    }

    async fn send_reply(mut socket: TcpStream, reply: CameraReply) -> Option<TcpStream> {
        let header = |status: &str, kind: &str, length: usize| {
            format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n")
                .into_bytes()
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
    async fn camera(script: Vec<CameraReply>) -> (String, mpsc::UnboundedReceiver<String>) {
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

    fn http(url: &str, timeout_ms: u64) -> SourceSettings {
        let flags =
            format!("--source-kind http --source-http-url {url} --source-http-timeout-ms {timeout_ms}");
        let auth = [("HEADWATER_DEVICE_SOURCE_HTTP_AUTH", "user:s3cret")];
        loaded(Sources::default().with_arguments(flags.split(' ')).with_environment(auth))
    }

    #[tokio::test]
    async fn a_snapshot_is_asked_for_at_each_capture_with_user_and_password() {
        let (url, mut received) = camera(vec![CameraReply::Image(png(1)), CameraReply::Image(png(2))]).await;
        let mut leader = leader_of("snapshot").await;
        let device = started("snapshot", Capture::Trigger, open(&http(&url, 60_000)).unwrap()).await;
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
        let (url, _heard) = camera(script).await;
        let mut leader = leader_of("no-image").await;
        let device = started("no-image", Capture::Trigger, open(&http(&url, 60_000)).unwrap()).await;
        for sample in 1..=bad {
            leader.triggers(sample);
            until(&device, |report| report.counts.frame_faults.values().sum::<u64>() == sample).await;
        }
        leader.triggers(bad + 1);
        assert_eq!(receives_summaries(&mut leader, [5]).await, [bad + 1]);
        let report = device.report();
        let expected = [
            ("not_an_image", 2),
            ("status", 2),
            ("oversize", 2),
            ("broken", 2),
            ("cut", 3),
            ("bad_answer", 2),
        ]
        .into();
        assert_eq!(report.counts.frame_faults, expected);
        assert_eq!((report.counts.captured, report.counts.source_frames), (bad + 1, 1));
    }

    /// An answer with this head, whose lines are split by `|`, and an image.
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
            // A length that is too long, or none, and an answer without a header.
            raw(&format!("HTTP/1.1 200 OK|{}", length(2)), &png(0)),
            raw("HTTP/1.0 200 OK", &png(0)),
            CameraReply::Raw(png(0)),
            // Lines that end with a line feed alone, and a body in chunks.
            CameraReply::Raw([&b"HTTP/1.1 200 OK\nServer: cam\n\n"[..], &png(0)].concat()),
            raw(
                "HTTP/1.1 200 OK|Transfer-Encoding: chunked",
                &[&b"10\r\n"[..], &png(0)[..16], b"\r\n400;x=1\r\n", &png(0)[16..], &[0; 0x400]].concat(),
            ),
            // In parts, the first of which is cut or broken; and parts without end.
            raw(multipart, &[part(&png(0)[..50]), part(&png(0)), b"--b--".to_vec()].concat()),
            raw(multipart, &[part(&JPEG[..892]), part(&broken_png()), part(&png(0))].concat()),
            raw(&format!("{multipart}|Content-Length: 99999999"), &part(&png(0)).repeat(3)),
            raw("HTTP/1.1 203 Non-Authoritative Information", &png(0)),
        ];
        let count = script.len() as u64;
        let (url, _heard) = camera(script).await;
        let mut leader = leader_of("sloppy").await;
        let device = started("sloppy", Capture::Trigger, open(&http(&url, 60_000)).unwrap()).await;
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
        let (url, _heard) = camera(bodies.map(CameraReply::Image).into()).await;
        let leader = leader_of("unended-snapshot").await;
        let device = started("unended-snapshot", Capture::Trigger, open(&http(&url, 60_000)).unwrap()).await;
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
        script.extend(
            (0..10).map(|_| CameraReply::Status("503 Service Unavailable", "text/plain", Vec::new())),
        );
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
        // Away, back with the same frame, and alive.
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
        let (url, mut received) = camera(vec![ask("1"), image(), image(), ask("2"), image(), ask("2")]).await;
        let mut leader = leader_of("digest").await;
        let device = started("digest", Capture::Trigger, open(&http(&url, 60_000)).unwrap()).await;
        for sample in 1..=3 {
            leader.triggers(sample);
            assert_eq!(receives_summaries(&mut leader, [7]).await, [sample]);
        }
        // The same nonce is refused: the password is wrong now, and there is no second request.
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
        // A slow moment of the machine may cost more samples than the first.
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

        // A socket that does not listen keeps its port.
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
        let (url, _heard) = camera((0..8).map(|_| CameraReply::Nothing).collect()).await;
        let leader = leader_of("slow-camera").await;
        let device = started("slow-camera", Capture::Trigger, open(&http(&url, 60_000)).unwrap()).await;
        (1..=10).for_each(|sample| leader.triggers(sample));
        until(&device, |report| report.counts.captured == 10).await;
        assert_eq!(faults(&device, "busy"), 6);
    }
}
