//! Frames, sources of frames, and devices of one camera.

use std::path::Path;

use headwater_end_device::{
    Capture, Device, DeviceError, DeviceHandle, DeviceSettings, Ended, OpenedDevice, Source, SourceSettings,
    StdinFormat, StdinSettings,
};
use headwater_inference::engine::TractEngine;
use headwater_inference::manifest::Preprocessing;
use headwater_inference::sections::DeviceSection;
use headwater_protocol::{Body, Slot};
use headwater_samples::{Shape, View, image_codec};
use headwater_settings::Sources;
use tokio::time::timeout;

use super::{Leader, PATIENCE, config, network, scores_bytes, set_capture, single_bundle};

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

/// The frame as raw RGB, with the three colours of each pixel together.
pub(crate) fn rgb24(seed: u64) -> Vec<u8> {
    let planes = pixels(seed);
    (0..64).flat_map(|at| [planes[at], planes[64 + at], planes[128 + at]]).collect()
}

/// The scores of the section of a network of one device.
pub(crate) fn scores(seed: u64) -> Vec<u8> {
    let mut section = DeviceSection::load(&single_bundle(), slot(), &TractEngine::new()).unwrap();
    scores_bytes(&section.run(&pixels(seed), 1).unwrap()[0])
}

/// Settings of a source from flags, which are separated by spaces.
pub(crate) fn source(flags: &str) -> SourceSettings {
    loaded(Sources::default().with_arguments(flags.split(' ')))
}

pub(crate) fn loaded(sources: Sources) -> SourceSettings {
    let required = "site = \"s\"\ngroup = \"g\"\nid = \"i\"\nslot = 0\nbundle = \"b\"\n";
    DeviceSettings::load(sources.with_file(required)).expect("valid settings").settings.source
}

pub(crate) fn archive(path: &Path) -> SourceSettings {
    source(&format!("--source-path {}", path.display()))
}

pub(crate) fn folder(path: &Path) -> SourceSettings {
    let timing = "--source-folder-period-ms 1 --source-max-age-ms 60000";
    source(&format!("--source-kind folder --source-path {} --source-folder-end end {timing}", path.display()))
}

pub(crate) fn watch(path: &Path, existing: &str) -> SourceSettings {
    let timing = "--source-watch-poll-ms 10 --source-max-age-ms 60000";
    let path = path.display();
    source(&format!("--source-kind watch --source-path {path} --source-watch-existing {existing} {timing}"))
}

pub(crate) fn open(settings: &SourceSettings) -> Result<Source, DeviceError> {
    Source::open(settings, Capture::Trigger, slot(), &preprocessing())
}

pub(crate) fn single_config(group: &str, capture: Capture) -> OpenedDevice {
    let mut config = config(group, 0);
    set_capture(&mut config, capture);
    // No leader settles the samples, so the device waits for the whole grace period at its end.
    config.settings.grace_ms = 200;
    config
}

/// A source of frames from a reader; raw frames have 8 x 8 pixels.
pub(crate) fn pipe(input: impl std::io::Read + Send + 'static, format: StdinFormat) -> Source {
    let frames = StdinSettings { format, size: (format == StdinFormat::Rgb24).then_some([8, 8]) };
    Source::of_reader(input, frames, slot(), &preprocessing()).unwrap()
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

pub(crate) fn ppm(seed: u64) -> Vec<u8> {
    [b"P6\n8 8\n255\n".as_slice(), &rgb24(seed)].concat()
}

/// A JPEG whose header ends after 623 bytes.
pub(crate) const JPEG: &[u8] = include_bytes!("../../../../io/samples/tests/images/sampled-420.jpg");
