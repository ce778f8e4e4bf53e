//! `headwater-device` as a process: time to the first answer, memory, settings, exit codes.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::support::{self, Leader, broker};
use headwater_protocol::Kind;

/// Longest time from the start of the process to its first answer.
const FIRST_ANSWER: Duration = Duration::from_millis(300);

/// Largest resident memory of an agent that has answered, in KiB.
#[cfg(target_os = "linux")]
const RESIDENT_KIB: u64 = 40 * 1024;

/// Starts a device with the tiny network; each test has a separate group.
fn spawn(group: &str) -> (tempfile::TempDir, Child) {
    let (dir, bundle, frames) = files();
    let names = ["--site", "test", "--group", group, "--id", "cam-0", "--slot", "0", "--json"];
    let mut device = device(&names);
    device.args(["--broker-address", &broker().to_string(), "--bundle", &bundle, "--source-path", &frames]);
    let child = device.spawn().unwrap();
    (dir, child)
}

fn device(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headwater-device"));
    command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn output(args: &[&str]) -> Output {
    device(args).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn ask_to_stop(child: &Child) {
    let killed = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
}

#[cfg(target_os = "linux")]
fn resident_kib(child: &Child) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Starts a device, and returns the time until its first answer.
async fn first_answer(group: &str) -> (Duration, Child, Leader) {
    let mut leader = Leader::of(group).await;
    let start = Instant::now();
    let (_dir, child) = spawn(group);
    leader.status().await;
    leader.triggers(1);
    assert_eq!(leader.answer().await.message().body.kind(), Kind::Summary);
    (start.elapsed(), child, leader)
}

/// A device that has answered 99 samples.
async fn after_99_answers(group: &str) -> Child {
    let (_, child, mut leader) = first_answer(group).await;
    (2..100).for_each(|sample| leader.triggers(sample));
    while leader.answered().await.0 != 99 {}
    child
}

#[cfg(target_os = "linux")]
#[tokio::test]
#[cfg_attr(
    debug_assertions,
    ignore = "the limit is one of release builds: code that is not optimised fills more"
)]
async fn memory_stays_small() {
    let child = after_99_answers("memory").await;
    let resident = resident_kib(&child);
    ask_to_stop(&child);
    assert!(child.wait_with_output().unwrap().status.success());
    assert!(resident < RESIDENT_KIB, "{resident} KiB");
}

#[tokio::test]
async fn the_report_is_printed_at_the_end() {
    let child = after_99_answers("report").await;
    ask_to_stop(&child);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["captured"], 99, "{report}");
}

#[tokio::test]
#[ignore = "timing: needs an idle machine"]
async fn the_first_answer_comes_soon() {
    let mut soonest = Duration::MAX;
    // The shortest time of three attempts counts, since other work on the machine only adds time.
    for attempt in 0..3 {
        let (time, child, _leader) = first_answer(&format!("first-{attempt}")).await;
        soonest = soonest.min(time);
        ask_to_stop(&child);
        assert!(child.wait_with_output().unwrap().status.success());
    }
    assert!(soonest < FIRST_ANSWER, "{soonest:?}");
}

/// Flags that check the settings of a device of the tiny network with this bundle and these frames, then the flags in `more`. Without the
/// first flag, `--check-config`, the device starts.
fn flags<'a>(bundle: &'a str, frames: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let names = ["--check-config", "--site", "hall", "--group", "gate", "--id", "cam-0", "--slot", "0"];
    [&names[..], &["--bundle", bundle, "--source-path", frames], more].concat()
}

/// A folder with a bundle and frames that fit it.
fn files() -> (tempfile::TempDir, String, String) {
    let dir = tempfile::tempdir().unwrap();
    let (bundle, frames) = (dir.path().join("tiny.hwb"), dir.path().join("frames.tar.gz"));
    std::fs::write(&bundle, support::network().bundle()).unwrap();
    support::write_frames(&frames);
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let (bundle, frames) = (text(&bundle), text(&frames));
    (dir, bundle, frames)
}

#[test]
fn bad_settings_end_with_code_2_and_every_mistake() {
    let output = output(&["--slot", "64", "--broker-address", "http://somewhere"]);
    assert_eq!(output.status.code(), Some(2));
    let stderr = stderr(&output);
    for mistake in ["site: missing", "slot: expected 0 to 63, found 64", "found \"http\"", "bundle: missing"]
    {
        assert!(stderr.contains(mistake), "{mistake:?} in {stderr}");
    }
    assert_eq!(self::output(&["--colour", "red"]).status.code(), Some(2));
}

#[test]
fn a_bundle_that_cannot_be_used_ends_with_code_1_and_its_name() {
    let (dir, bundle, frames) = files();
    let cut = dir.path().join("cut.hwb");
    let whole = std::fs::read(&bundle).unwrap();
    std::fs::write(&cut, &whole[..whole.len() / 2]).unwrap();
    let flags = flags(cut.to_str().unwrap(), &frames, &[]);
    let started = output(&flags[1..]);
    assert_eq!(started.status.code(), Some(1));
    assert!(stderr(&started).contains("cut.hwb"), "{}", stderr(&started));
    let checked = output(&flags);
    assert_eq!(checked.status.code(), Some(2));
    assert!(stderr(&checked).contains("cut.hwb"), "{}", stderr(&checked));
}

#[test]
fn check_config_prints_a_file_that_it_accepts_with_the_origin_of_each_value() {
    let (dir, bundle, frames) = files();
    let file = dir.path().join("device.toml");
    let text = format!(
        "site = \"hall\"\ngroup = \"gate\"\nid = \"cam-0\"\nslot = 0\nbundle = {bundle:?}\nkeep_ms = 9000\n\
         [source]\npath = {frames:?}\n"
    );
    std::fs::write(&file, text).unwrap();
    let output = device(&["--check-config", "--config", file.to_str().unwrap(), "--source-kind", "http"])
        .args(["--source-http-url", "http://cam/snap?pwd=hush", "--source-roi", "10%,0%,50%,100%"])
        .env("HEADWATER_DEVICE_SOURCE_HTTP_AUTH", "user:hush")
        .env("HEADWATER_DEVICE_SITE", "yard")
        .output()
        .unwrap();
    let shown = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    for (line, origin) in [
        ("site = \"yard\"", "environment"),
        ("keep_ms = 9000", "file"),
        ("grace_ms = 2000", "default"),
        ("max_bytes = 67108864", "default"),
        ("kind = \"http\"", "flag"),
        ("# timeout_ms is not set", "default"),
        ("roi = \"10%,0%,50%,100%\"", "flag"),
        ("# auth is a secret", "environment"),
        ("# state_dir is not set", "default"),
    ] {
        let found = shown.lines().find(|found| found.starts_with(line));
        let comment = format!("# {origin}");
        assert!(found.is_some_and(|found| found.contains(&comment)), "{line} in {shown}");
    }
    // `source.path` in the file belongs to the kind of source that the flag replaces, so it is not shown.
    assert!(!shown.contains("frames.tar.gz") && !shown.contains("hush"), "{shown}");
    std::fs::write(&file, &shown).unwrap();
    let again = self::output(&["--check-config", "--config", file.to_str().unwrap()]);
    assert!(again.status.success(), "{}\n{shown}", stderr(&again));
}

#[test]
fn a_slot_that_the_network_does_not_have_is_named_with_its_slots() {
    let (_dir, bundle, frames) = files();
    let flags = flags(&bundle, &frames, &[]).into_iter().map(|flag| if flag == "0" { "7" } else { flag });
    let output = output(&flags.collect::<Vec<_>>());
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("slot: the network has slots 0 to "), "{}", stderr(&output));
}

#[test]
fn a_policy_that_cannot_be_used_ends_with_code_2_and_the_mistake() {
    let (dir, bundle, frames) = files();
    let file = dir.path().join("policy.toml");
    std::fs::write(&file, "[device]\nthreshold = 1.5\n").unwrap();
    for (policy, wrong) in [
        (file.to_str().unwrap(), "policy.toml:2: device.threshold: "),
        (dir.path().join("none.toml").to_str().unwrap(), "No such file"),
    ] {
        let flags = flags(&bundle, &frames, &["--policy", policy]);
        for flags in [&flags[..], &flags[1..]] {
            let output = output(flags);
            assert_eq!(output.status.code(), Some(2));
            let stderr = stderr(&output);
            assert!(stderr.contains(policy) && stderr.contains(wrong), "{stderr}");
        }
    }
}

#[test]
fn mistakes_of_the_source_are_named_at_once_and_no_secret_is_repeated() {
    let flags = "--check-config --site hall --group gate --slot 0 --bundle b --id cam/0 --source-kind htttp \
                 --source-http-url http://user:hush@cam/ --source-stdin-size 4by4 --source-roi 1,2,3";
    let output = output(&flags.split_whitespace().collect::<Vec<_>>());
    assert_eq!(output.status.code(), Some(2));
    let stderr = stderr(&output);
    for mistake in [
        "id: ",
        "source.kind: expected \"archive\", \"folder\", \"watch\", \"http\", \"stdin\", \"command\" or \"file\", found \"htttp\"",
        "source.http.url: expected a URL without user and password, found one with them",
        "source.stdin.size: expected WxH",
        "source.roi: roi: expected \"x,y,w,h\"",
    ] {
        assert!(stderr.contains(mistake), "{mistake:?} in {stderr}");
    }
    assert!(!stderr.contains("hush"), "{stderr}");
}

#[test]
fn help_teaches() {
    let output = output(&["--help"]);
    let help = String::from_utf8_lossy(&output.stdout).into_owned();
    for word in ["--keep-ms", "mqtt://host:port", "HEADWATER_DEVICE_SLOT", "Example"] {
        assert!(help.contains(word), "{word:?} in {help}");
    }
}
