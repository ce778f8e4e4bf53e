//! Pipes and video files as sources: the frames that become samples, and their ids.

use std::io::{Cursor, Write};

use headwater_end_device::{Capture, Device, Ended, SourceSettings, SourceWord, StdinFormat};

use crate::support::source::{
    JPEG, ended, folder, leader_of, open, pipe, png, ppm, receives_summaries, rgb24, single_config, started,
};
use crate::support::{single_bundle, until};

#[tokio::test]
async fn the_newest_frame_of_a_pipe_answers_a_trigger() {
    let mut leader = leader_of("newest").await;
    let (reader, mut writer) = std::io::pipe().unwrap();
    let mut device = started("newest", Capture::Trigger, pipe(reader, StdinFormat::Rgb24)).await;
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
async fn files_on_a_pipe_are_samples_and_cut_or_stray_bytes_are_counted() {
    let mut leader = leader_of("files").await;
    let (reader, mut writer) = std::io::pipe().unwrap();
    let mut device = started("files", Capture::Source, pipe(reader, StdinFormat::Mjpeg)).await;
    let stream = [png(1), b"between".to_vec(), png(2), png(3)[..50].to_vec()].concat();
    writer.write_all(&stream).unwrap();
    drop(writer);
    receives_summaries(&mut leader, [1, 2]).await;
    assert_eq!(ended(&mut device).await, Ended::Source);
    let report = device.shutdown().await;
    assert_eq!(report.counts.frame_faults, [("cut", 1), ("stray_bytes", 1)].into());
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

#[tokio::test]
async fn an_image_without_its_end_takes_no_other_with_it() {
    let (half, unended) = (&JPEG[..892], &JPEG[..JPEG.len() - 2]);
    let _leader = leader_of("unended").await;
    for (stream, frames, cut) in [
        ([half, JPEG, half, JPEG], 2, 2),
        ([JPEG, JPEG, JPEG, half], 3, 1),
        ([unended, JPEG, unended, JPEG], 4, 0),
        ([unended; 4], 4, 0),
        // The cuts are in the header of the image, after its application data.
        ([&JPEG[..21], JPEG, &JPEG[..160], JPEG], 2, 2),
    ] {
        let pipe = pipe(Cursor::new(stream.concat()), StdinFormat::Mjpeg);
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
        let stream = Cursor::new([rgb24(start), rgb24(start)].concat());
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
