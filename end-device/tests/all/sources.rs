//! Folders, archives and the ids of samples, with a real broker, a real section and real files.

use std::io::Write;

use headwater_end_device::{Capture, Device, Ended, Source, SourceSettings};
use headwater_inference::manifest::Preprocessing;
use headwater_protocol::{Body, Kind, Slot, frame_details};

use crate::support::source::{
    archive, ended, faults, folder, leader_of, open, png, preprocessing, receives_summaries, scores,
    single_config, source, started, watch,
};
use crate::support::{self, bundle, leader_and_device, refusal, single_bundle, until};

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
async fn a_frame_that_is_too_old_is_not_used_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("0.png"), png(0)).unwrap();
    let timing = "--source-folder-period-ms 3600000 --source-max-age-ms 1";
    let settings = source(&format!("--source-kind folder --source-path {} {timing}", dir.path().display()));
    let leader = leader_of("stale").await;
    let device = started("stale", Capture::Trigger, open(&settings).unwrap()).await;
    until(&device, |report| report.counts.source_frames == 1).await;
    // A fast device answers some samples while the frame is young. Each sample is answered or counted as stale before the next trigger.
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
    // A fast device captures some samples while the frozen frame is young: they are neither answered nor counted as stale.
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

    // A file of the same name, in the same folder and then in a new one.
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
    // The wrong trigger waits for a second trigger near it, until the next right trigger comes.
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
    // The size of a frame in a watched folder is known only when the frame comes.
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
