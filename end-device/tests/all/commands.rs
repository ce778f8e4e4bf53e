//! A command as a source: its restarts, its end, and output that cannot be read.

use std::path::Path;
use std::time::Duration;

use headwater_end_device::{
    Capture, CommandEnd, CommandSettings, Ended, Source, SourceSettings, SourceWord, StdinFormat,
    StdinSettings,
};
use tokio::time::timeout;

use crate::support::PATIENCE;
use crate::support::source::{
    ended, faults, leader_of, open, pipe, png, ppm, preprocessing, receives_summaries, slot, source, started,
};

/// A source with the shell command `line`, which runs in `dir`. The file `frames` in this folder has two PPM frames.
fn command(dir: &Path, line: &str, end: CommandEnd) -> Source {
    std::fs::write(dir.join("frames"), [ppm(1), ppm(2)].concat()).unwrap();
    let run = format!("cd '{}'; {line}", dir.display());
    let command = CommandSettings { run: Some(run), end };
    let kind = SourceWord::Command;
    open(&SourceSettings { kind, command, path: None, ..source("--source-path none") }).unwrap()
}

/// True while the shell that wrote its process id to the file `pid` exists. An ended shell exists until the source's thread takes its exit
/// status, which happens once no process holds the output open any more.
fn lives(dir: &Path) -> bool {
    let process = std::fs::read_to_string(dir.join("pid")).unwrap();
    let kill = format!("kill -0 {}", process.trim());
    let mut found = std::process::Command::new("sh");
    found.args(["-c", &kill]).stderr(std::process::Stdio::null()).status().unwrap().success()
}

async fn is_over(dir: &Path) {
    let over = async {
        while lives(dir) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, over).await.expect("the command ends");
}

#[tokio::test]
async fn a_command_that_ends_is_started_again_and_says_why_it_ended() {
    let dir = tempfile::tempdir().unwrap();
    let mut leader = leader_of("command").await;
    let source = command(dir.path(), "cat frames; echo unplugged >&2; exit 3", CommandEnd::Restart);
    let device = started("command", Capture::Source, source).await;
    receives_summaries(&mut leader, [1, 2, 1, 2]).await;
    let says_why = || {
        let waits = device.health().status()["source"]["waits"].clone();
        waits.as_str().is_some_and(|why| why.contains("exit status: 3): unplugged; it starts again in"))
    };
    timeout(PATIENCE, async {
        while !says_why() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
    .expect("a reason");
    assert_eq!(device.health().status()["source"]["format"], "8x8 PPM");
    device.shutdown().await;
}

#[tokio::test]
async fn a_command_that_may_end_ends_the_device_cleanly_only_if_it_succeeded() {
    let dir = tempfile::tempdir().unwrap();
    for (group, line, expected) in [
        ("command-ends", "cat frames", Ended::Source),
        ("command-fails", "cat frames; exit 3", Ended::SourceBroke),
    ] {
        let mut leader = leader_of(group).await;
        let source = command(dir.path(), line, CommandEnd::End);
        let mut device = started(group, Capture::Source, source).await;
        receives_summaries(&mut leader, [1, 2]).await;
        assert_eq!(ended(&mut device).await, expected, "{line}");
        device.shutdown().await;
    }
}

#[tokio::test]
async fn a_command_without_further_frames_is_ended_with_the_device() {
    let dir = tempfile::tempdir().unwrap();
    let mut leader = leader_of("command-hangs").await;
    let line = "echo $$ > pid; cat frames; exec sleep 100000";
    let source = command(dir.path(), line, CommandEnd::Restart);
    let device = started("command-hangs", Capture::Source, source).await;
    receives_summaries(&mut leader, [1, 2]).await;
    device.shutdown().await;
    is_over(dir.path()).await;
}

#[tokio::test]
async fn output_that_holds_no_frames_is_named_and_not_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let _leader = leader_of("command-raw").await;
    let source = command(dir.path(), "printf 'raw pixels of some size'", CommandEnd::Restart);
    let mut device = started("command-raw", Capture::Source, source).await;
    assert_eq!(ended(&mut device).await, Ended::SourceBroke);
    let waits = device.health().status()["source"]["waits"].clone();
    let waits = waits.as_str().expect("a reason");
    assert!(waits.contains("found \"raw pixels\"") && waits.contains("-f yuv4mpegpipe"), "{waits}");
}

#[tokio::test]
async fn a_command_that_ignores_its_end_is_killed_with_its_children() {
    let dir = tempfile::tempdir().unwrap();
    let mut leader = leader_of("command-ignores").await;
    let line = "trap '' TERM; echo $$ > pid; sleep 100000 & cat frames; while :; do sleep 1; done";
    let source = command(dir.path(), line, CommandEnd::Restart);
    let device = started("command-ignores", Capture::Source, source).await;
    receives_summaries(&mut leader, [1, 2]).await;
    device.shutdown().await;
    is_over(dir.path()).await;
}

#[tokio::test]
async fn a_child_that_outlives_its_command_is_ended_and_delays_no_restart() {
    let dir = tempfile::tempdir().unwrap();
    let mut leader = leader_of("command-child").await;
    // The child holds only standard error open.
    let source = command(dir.path(), "sleep 100000 > /dev/null & cat frames; exit 3", CommandEnd::Restart);
    let device = started("command-child", Capture::Source, source).await;
    receives_summaries(&mut leader, [1, 2, 1, 2]).await;
    device.shutdown().await;
}

#[tokio::test]
async fn a_trial_of_a_source_returns_when_its_command_has_ended() {
    let dir = tempfile::tempdir().unwrap();
    let source = command(dir.path(), "echo $$ > pid; cat frames; exec sleep 100000", CommandEnd::Restart);
    assert_eq!(source.first_frame(PATIENCE).await, Ok(Some("8x8 PPM".to_owned())));
    assert!(!lives(dir.path()));
}

#[tokio::test]
async fn damaged_output_after_a_frame_and_output_that_is_cut_at_once_are_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    for (group, first, second, cut) in [
        ("command-damaged", "cat frames", "printf 'ten bits a colour'", 0),
        ("command-cut", "printf YUV4", "cat frames", 1),
        ("command-cut-head", "printf 'YUV4MPEG2 W8'", "cat frames", 1),
    ] {
        let mut leader = leader_of(group).await;
        let line = format!(
            "echo >> {group}; case $(wc -l < {group}) in *1) {first} ;; *2) {second} ;; *) cat frames ;; esac"
        );
        let device = started(group, Capture::Source, command(dir.path(), &line, CommandEnd::Restart)).await;
        receives_summaries(&mut leader, [1, 2, 1, 2]).await;
        assert_eq!(faults(&device, "cut"), cut, "{group}");
        device.shutdown().await;
    }
}

#[tokio::test]
async fn a_size_with_a_stream_that_carries_its_own_is_refused_by_name() {
    let streams =
        [("y4m", b"YUV4MPEG2 W8 H8 F25:1\n".to_vec()), ("PPM or PGM", ppm(1)), ("JPEG, PNG or WebP", png(1))];
    for (index, (name, stream)) in streams.into_iter().enumerate() {
        let group = format!("size-{index}");
        let _leader = leader_of(&group).await;
        let frames = StdinSettings { format: StdinFormat::Auto, size: Some([8, 8]) };
        let source =
            Source::of_reader(std::io::Cursor::new(stream), frames, slot(), &preprocessing()).unwrap();
        let mut device = started(&group, Capture::Source, source).await;
        assert_eq!(ended(&mut device).await, Ended::SourceBroke, "{name}");
        let waits = device.health().status()["source"]["waits"].to_string();
        assert!(waits.contains(&format!("found {name}: leave the size out")), "{waits}");
        assert_eq!(device.report().counts.source_frames, 0);
    }
    // If the settings name the format, the pixels may begin with any bytes.
    let _leader = leader_of("size-told").await;
    let pixels = [b"P6 ".as_slice(), &[7; 8 * 8 * 3 - 3]].concat();
    let mut device =
        started("size-told", Capture::Source, pipe(std::io::Cursor::new(pixels), StdinFormat::Rgb24)).await;
    assert_eq!(ended(&mut device).await, Ended::Source);
    assert_eq!(device.report().counts.source_frames, 1);
}
