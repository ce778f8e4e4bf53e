//! Devices of one process that see regions of one camera, which is opened once.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use headwater_end_device::{
    Capture, CommandEnd, CommandSettings, Device, DeviceHandle, DeviceSettings, Source, SourceSettings,
    SourceWord,
};
use headwater_protocol::{Body, SampleId, Slot};
use headwater_samples::{Shape, View, image_codec};
use headwater_settings::{Loaded, Sources, Stop};
use tokio::time::{sleep, timeout};

#[cfg(feature = "http")]
use crate::http::{CameraReply, camera, http};
use crate::support::source::{preprocessing, source};
use crate::support::{self, Leader, PATIENCE, broker, bundle, config, scores_bytes, until};

/// The halves of a frame.
const REGIONS: [&str; 2] = ["0%,0%,50%,100%", "50%,0%,50%,100%"];

/// A frame of 16x8 pixels, whose halves are the views of slots 0 and 1 of a sample.
fn frame(sample: u64) -> Vec<u8> {
    let views = [0, 1].map(|slot| support::view(sample, slot).expect("in view"));
    let rows = (0..3 * 8).flat_map(|row| [0, 1].map(|half: usize| views[half][row * 8..][..8].to_vec()));
    let pixels = rows.collect::<Vec<_>>().concat();
    image_codec::png(&View::new(Shape::rgb(8, 16), pixels)).unwrap()
}

/// The scores of these slots for a sample, sorted.
fn expected(sample: u64, slots: &[u8]) -> Vec<Vec<u8>> {
    let mut scores: Vec<_> =
        slots.iter().map(|slot| scores_bytes(&support::expected(sample, *slot))).collect();
    scores.sort();
    scores
}

/// The sample and the scores of the next summary.
async fn summary(leader: &mut Leader) -> (SampleId, Vec<u8>) {
    let received = leader.answer().await;
    let message = received.message();
    let Body::Summary(scores) = message.body else { panic!("{received:?}") };
    (message.header.sample, scores.to_vec())
}

/// Checks that the next summaries are of this sample, one of each slot.
async fn receives(leader: &mut Leader, sample: u64, slots: &[u8]) {
    let mut found = Vec::new();
    for _ in slots {
        let (of, scores) = summary(leader).await;
        assert_eq!(of, SampleId(sample));
        found.push(scores);
    }
    found.sort();
    assert_eq!(found, expected(sample, slots));
}

/// The devices of slots 0 and 1, which see the halves of one camera.
async fn halves(group: &str, camera: &SourceSettings) -> Vec<DeviceHandle> {
    let open = |(slot, region): (u8, &&str)| {
        let settings = SourceSettings { roi: Some(region.parse().unwrap()), ..camera.clone() };
        Source::open(&settings, Capture::Trigger, Slot::new(slot).unwrap(), &preprocessing()).unwrap()
    };
    let sources = Source::of_one_camera((0..).zip(&REGIONS).map(open).collect());
    let mut devices = Vec::new();
    for (slot, source) in (0..).zip(sources) {
        let device = Device::start(config(group, slot), bundle(), source).await.unwrap();
        timeout(PATIENCE, device.connected()).await.unwrap();
        devices.push(device);
    }
    devices
}

/// A command that gives one frame, and appends its process id to the file `starts` at each start.
fn command(dir: &Path) -> String {
    std::fs::write(dir.join("frame.png"), frame(1)).unwrap();
    format!("cd '{}'; echo $$ >> starts; cat frame.png; exec sleep 100000", dir.display())
}

fn starts(dir: &Path) -> usize {
    std::fs::read_to_string(dir.join("starts")).unwrap().lines().count()
}

/// True while the process of the command's latest start exists.
fn runs(dir: &Path) -> bool {
    let ids = std::fs::read_to_string(dir.join("starts")).unwrap();
    let signal =
        Command::new("kill").args(["-0", ids.lines().last().unwrap()]).stderr(Stdio::null()).status();
    signal.unwrap().success()
}

#[tokio::test]
async fn two_regions_of_a_command_answer_one_trigger_and_the_command_runs_once_until_the_last_device_ends() {
    let dir = tempfile::tempdir().unwrap();
    let command = CommandSettings { run: Some(command(dir.path())), end: CommandEnd::Restart };
    let (kind, max_age_ms) = (SourceWord::Command, Some(60_000));
    let camera = SourceSettings { kind, command, max_age_ms, path: None, ..source("--source-path none") };
    let mut leader = Leader::of("regions").await;
    let mut devices = halves("regions", &camera).await;
    for device in &devices {
        until(device, |report| report.counts.source_frames == 1).await;
    }
    leader.triggers(1);
    receives(&mut leader, 1, &[0, 1]).await;
    devices.remove(0).shutdown().await;
    leader.triggers(2);
    let (sample, scores) = summary(&mut leader).await;
    assert_eq!((sample, vec![scores]), (SampleId(2), expected(1, &[1])));
    assert!(runs(dir.path()));
    devices.remove(0).shutdown().await;
    let ended = async {
        while runs(dir.path()) {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, ended).await.expect("the command ends with the last device");
    assert_eq!(starts(dir.path()), 1);
}

#[cfg(feature = "http")]
#[tokio::test]
async fn two_regions_of_a_snapshot_url_share_one_request_for_each_capture() {
    let (url, mut heard) = camera([1, 2].map(|sample| CameraReply::Image(frame(sample))).into()).await;
    let mut leader = Leader::of("regions-http").await;
    let _devices = halves("regions-http", &http(&url, 60_000)).await;
    for sample in 1..=2 {
        leader.triggers(sample);
        receives(&mut leader, sample, &[0, 1]).await;
        assert!(heard.recv().await.is_some());
    }
    assert!(heard.try_recv().is_err(), "a third request");
}

/// A settings file of two devices; `first` has keys of the first device's table.
fn settings(dir: &Path, group: &str, source: &str, first: &str) -> std::path::PathBuf {
    let (file, network) = (dir.join("device.toml"), dir.join("tiny.hwb"));
    std::fs::write(&network, support::network().bundle()).unwrap();
    let text = format!(
        "site = \"test\"\ngroup = \"{group}\"\nbundle = {network:?}\ncapture = \"clock\"\nperiod_ms = 50\n\
         [broker]\naddress = \"{}\"\n[source]\n{source}\n\
         [[devices]]\n{first}\nslot = 0\n\
         [[devices]]\nid = \"right\"\nslot = 1\nsource.roi = \"{}\"\n",
        broker(),
        REGIONS[1]
    );
    std::fs::write(&file, text).unwrap();
    file
}

fn device(settings: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headwater-device"));
    // With a long `keep_ms` no sample is answered a second time, late.
    command
        .args(["--json", "--keep-ms", "600000", "--config"])
        .arg(settings)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Asks a process to stop, and waits for its end.
fn stopped(child: Child) -> Output {
    let asked = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(asked.success());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    output
}

#[tokio::test]
async fn a_process_with_two_tables_is_two_devices_whose_clock_gives_both_the_same_sample() {
    let dir = tempfile::tempdir().unwrap();
    let source = format!("kind = \"command\"\nmax_age_ms = 60000\ncommand.run = {:?}", command(dir.path()));
    let first = format!("id = \"left\"\nsource.roi = \"{}\"", REGIONS[0]);
    let mut leader = Leader::of("regions-process").await;
    let file = settings(dir.path(), "regions-process", &source, &first);
    let state = dir.path().join("state");
    let child = device(&file).env("HEADWATER_DEVICE_STATE_DIR", &state).spawn().unwrap();
    let mut found: BTreeMap<SampleId, Vec<Vec<u8>>> = BTreeMap::new();
    let mut both = loop {
        let (sample, scores) = summary(&mut leader).await;
        let of_sample = found.entry(sample).or_default();
        of_sample.push(scores);
        if of_sample.len() == 2 {
            break of_sample.clone();
        }
    };
    both.sort();
    assert_eq!(both, expected(1, &[0, 1]));
    let reports = String::from_utf8(stopped(child).stdout).unwrap();
    let reports: Vec<serde_json::Value> =
        reports.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let devices: Vec<_> = reports.iter().map(|report| report["device"].as_str().unwrap()).collect();
    assert_eq!((devices, starts(dir.path())), (vec!["left", "right"], 1));
    assert!(["left", "right"].iter().all(|id| state.join(id).join("boot").is_file()));
}

#[tokio::test]
async fn a_region_outside_the_frames_silences_its_own_device_and_the_log_names_that_one() {
    let dir = tempfile::tempdir().unwrap();
    let source = format!("kind = \"command\"\nmax_age_ms = 60000\ncommand.run = {:?}", command(dir.path()));
    let first = "id = \"left\"\nsource.roi = \"90,0,8,8\"";
    let mut leader = Leader::of("regions-fault").await;
    let child = device(&settings(dir.path(), "regions-fault", &source, first)).spawn().unwrap();
    let (_, scores) = summary(&mut leader).await;
    assert_eq!(vec![scores], expected(1, &[1]));
    let log = stderr(&stopped(child));
    let fault = log.lines().find(|line| line.contains("roi_outside"));
    assert!(fault.is_some_and(|line| line.contains("device=left")), "{log}");
}

#[cfg(feature = "admin")]
#[tokio::test]
async fn check_live_asks_the_admin_port_of_every_device() {
    let dir = tempfile::tempdir().unwrap();
    let local = "127.0.0.1:0".parse().unwrap();
    let live = support::started(config("regions-live", 0)).await;
    let admin = headwater_settings::AdminSettings { listen: Some(local), remote: false };
    let admin = live.start_admin(&admin).await.unwrap().unwrap();
    let silent = std::net::TcpListener::bind(local).unwrap();
    let silent_address = silent.local_addr().unwrap();
    let first = format!("id = \"left\"\nadmin.listen = \"{}\"", admin.address());
    let file = settings(dir.path(), "regions-live", "path = \"none\"", &first);
    let check = || {
        let mut command = device(&file);
        command.arg("--check-live");
        tokio::task::spawn_blocking(move || command.output().unwrap())
    };
    let output = check().await.unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    // The last table of the file is that of the device `right`.
    let text = std::fs::read_to_string(&file).unwrap() + &format!("admin.listen = \"{silent_address}\"\n");
    std::fs::write(&file, text).unwrap();
    std::thread::spawn(move || silent.accept().map(drop));
    let output = check().await.unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains(&silent_address.to_string()), "{}", stderr(&output));
}

#[test]
fn check_config_prints_the_settings_of_each_table() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("0.png"), frame(1)).unwrap();
    let source = format!("kind = \"folder\"\npath = {:?}", dir.path());
    let check = |region: &str| {
        let first = format!("id = \"left\"\nsource.roi = \"{region}\"");
        device(&settings(dir.path(), "regions-check", &source, &first))
            .arg("--check-config")
            .output()
            .unwrap()
    };
    let output = check(REGIONS[0]);
    assert!(output.status.success(), "{}", stderr(&output));
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(["id = \"left\"", "id = \"right\""].iter().all(|id| shown.contains(id)), "{shown}");
    let output = check("90,0,8,8");
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("device.toml:12)"), "{}", stderr(&output));
}

/// Settings of the devices `left` and `right`, whose tables have these further keys, with variables of the environment.
fn loaded(
    [left, right]: [&str; 2],
    variables: &[(&'static str, &'static str)],
) -> Result<Vec<Loaded<DeviceSettings>>, Stop> {
    let file = format!(
        "site = \"s\"\ngroup = \"g\"\nbundle = \"b\"\nsource.path = \"f\"\n\
         [[devices]]\nid = \"left\"\nslot = 0\n{left}\n[[devices]]\nid = \"right\"\nslot = 1\n{right}\n"
    );
    let sources = Sources::default().with_file(file).with_environment(variables.iter().copied());
    DeviceSettings::load_each(sources)
}

#[test]
fn a_table_wins_over_the_environment_of_its_unit_and_another_takes_a_folder_of_its_own() {
    let unit = [("HEADWATER_DEVICE_STATE_DIR", "/var/lib/headwater"), ("HEADWATER_DEVICE_ID", "unit")];
    let devices = loaded(["state_dir = \"/srv/left\"", ""], &unit).unwrap();
    let folders: Vec<_> = devices.iter().map(|device| device.settings.state_dir.as_deref()).collect();
    assert_eq!(folders, ["/srv/left", "/var/lib/headwater/right"].map(|folder| Some(Path::new(folder))));
    assert!(devices[1].to_toml().contains("state_dir = \"/var/lib/headwater/right\""));
}

#[test]
fn an_admin_address_outside_the_tables_is_the_first_devices_and_no_two_have_the_same() {
    let devices = loaded(["", ""], &[("HEADWATER_DEVICE_ADMIN_LISTEN", "127.0.0.1:9602")]).unwrap();
    let listen: Vec<_> = devices.iter().map(|device| device.settings.admin.listen.is_some()).collect();
    assert_eq!(listen, [true, false]);
    assert!(loaded(["admin.listen = \"127.0.0.1:0\""; 2], &[]).is_ok());
    let Err(Stop::Mistakes(mistakes)) = loaded(["admin.listen = \"127.0.0.1:9602\""; 2], &[]) else {
        panic!("expected a mistake");
    };
    assert!(
        mistakes.len() == 1 && mistakes[0].starts_with("admin.listen: expected another one"),
        "{mistakes:?}"
    );
}

#[test]
fn what_stands_outside_the_tables_is_warned_of_and_missed_once() {
    let devices = loaded(["", ""], &[("HEADWATER_DEVICE_COLOUR", "red")]).unwrap();
    assert_eq!(devices.iter().map(|device| device.warnings.len()).sum::<usize>(), 1);
    let file = "[[devices]]\nid = \"left\"\n[[devices]]\nid = \"right\"\nslot = 1\n";
    let sources = Sources::default().with_file(file).with_arguments(["--id", "flag", "--source-path", "f"]);
    let Err(Stop::Mistakes(mut mistakes)) = DeviceSettings::load_each(sources) else {
        panic!("expected mistakes");
    };
    mistakes.sort_unstable();
    let id = "id: expected in the tables [[devices]] or as a flag, found both (flag --id)";
    assert_eq!(
        mistakes,
        ["bundle: missing", "group: missing", id, "site: missing", "slot: missing (line 2)"]
    );
}

#[test]
fn a_region_or_a_name_of_one_device_that_is_wrong_is_refused_with_its_line() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("0.png"), frame(1)).unwrap();
    let source = format!("kind = \"folder\"\npath = {:?}", dir.path());
    for (first, code, parts) in [
        ("id = \"left\"\nsource.roi = \"9,0,8,8\"", 1, ["device left", "device.toml:12)", "9,0,8,8", "16x8"]),
        ("id = \"left\"\nsource.roi = \"1,2,3\"", 2, ["source.roi: ", "device.toml:13)", "x,y,w,h", "1,2,3"]),
        ("id = \"right\"", 2, ["id: expected another one", "device.toml:15)", "[[devices]]", "\"right\""]),
        (
            "id = \"left\"\nkeep_ms = 9",
            2,
            ["devices.keep_ms: expected one of id, slot", "device.toml:13)", "", ""],
        ),
        ("source.fit = \"crop\"", 2, ["id: missing", "device.toml:12)", "", ""]),
    ] {
        let output = device(&settings(dir.path(), "regions-wrong", &source, first)).output().unwrap();
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{text}");
        assert!(parts.iter().all(|part| text.contains(part)), "{parts:?} in {text}");
    }
}
