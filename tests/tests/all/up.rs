//! `headwater up`: a site from one file, the check of the file, the end of the site, and the settings files of the separate programs.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use headwater_inference::manifest::Configuration;
use headwater_inference::testing::TinyNetwork;
use headwater_samples::{Shape, View, image_codec};
use headwater_tests::programs::command;
use headwater_tests::shipped;
use headwater_transport::held_port;
use serde_json::Value;
use tempfile::TempDir;

/// A folder with a site file.
struct SiteFolder(TempDir);

impl SiteFolder {
    fn new() -> Self {
        Self(TempDir::new().expect("a temporary folder"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a file in the folder")).expect("a writable folder");
        fs::write(&path, content).expect("a writable folder");
        path
    }

    /// Writes the site file of a site with the shipped network, whose six cameras play the shipped frames.
    fn shipped(&self, keys: &str) -> PathBuf {
        let frames = shipped::frames_path().canonicalize().expect("the shipped frames");
        let camera = |slot| format!("cam-{slot} = \"{}\"\n", frames.display());
        let cameras: String = (0..6).map(camera).collect();
        let bundle = shipped::bundle_path().canonicalize().expect("the shipped bundle");
        let text =
            format!("bundle = \"{}\"\nbroker = \"embedded\"\n{keys}\n[cameras]\n{cameras}", bundle.display());
        self.write("site.toml", text)
    }

    /// Writes the site file of a network with one device, whose camera is `source`.
    fn single(&self, source: &str, more: &str) -> PathBuf {
        let bundle = self.write("single.hwb", TinyNetwork::of(Configuration::B).bundle());
        let text = format!(
            "bundle = \"{}\"\nbroker = \"embedded\"\n[cameras]\nfront = \"{source}\"\n{more}",
            bundle.display()
        );
        self.write("site.toml", text)
    }

    /// Writes the site file of one camera, whose three regions are the three slots. The command of the camera writes a line to the file `starts`
    /// at each start.
    fn regions(&self) -> PathBuf {
        let bundle = self.write("regions.hwb", TinyNetwork::of(Configuration::C).bundle());
        self.write("frames", [ppm(1), ppm(2)].concat());
        let text = format!(
            "bundle = \"{}\"\nbroker = \"embedded\"\n[cameras]\ngate = {{ from = \"cd {}; echo >> starts; cat frames\", \
             regions = [\"0%,0%,50%,100%\", \"50%,0%,50%,100%\", \"25%,0%,50%,100%\"] }}\n",
            bundle.display(),
            self.0.path().display()
        );
        self.write("site.toml", text)
    }

    fn up(&self, file: &Path, flags: &[&str]) -> Output {
        command("headwater").arg("up").arg(file).args(flags).output().expect("headwater starts")
    }

    /// Runs a site until `results` results have come, and ends the site by a signal. Returns all results, the account, and standard error.
    fn run_until(&self, file: &Path, results: usize, signal: &str) -> (Vec<Value>, Value, String) {
        let log = self.path("stderr");
        let mut up = command("headwater");
        up.arg("up").arg(file).arg("--json").stdout(Stdio::piped());
        let mut up = Running(up.stderr(File::create(&log).expect("a file")).spawn().expect("it starts"));
        let stdout = BufReader::new(up.0.stdout.take().expect("was piped"));
        let mut lines = stdout.lines().map(|line| {
            let line = line.expect("text");
            serde_json::from_str::<Value>(&line).expect("a line of JSON")
        });
        let mut values: Vec<_> = lines.by_ref().take(results).collect();
        assert_eq!(values.len(), results, "{}", fs::read_to_string(&log).unwrap());
        up.send(signal);
        values.extend(lines);
        let log = fs::read_to_string(&log).expect("standard error");
        assert!(up.0.wait().expect("it ends").success(), "{log}");
        let account = values.pop().expect("an account");
        (values, account, log)
    }
}

/// A running program; killed when dropped.
struct Running(Child);

impl Running {
    fn send(&self, signal: &str) {
        let kill = format!("kill -{signal} {}", self.0.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().expect("a shell").success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = (self.0.kill(), self.0.wait());
    }
}

/// `HUP`, or `TERM` if this process ignores SIGHUP (under `nohup`), since the programs that it starts then ignore SIGHUP too.
fn end_of_terminal() -> &'static str {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    if ignored.is_some_and(|ignored| ignored & 1 == 1) { "TERM" } else { "HUP" }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn frame(seed: u8) -> View {
    let shape = Shape::rgb(8, 8);
    View::new(shape, (0..shape.bytes()).map(|at| (at * 7) as u8 ^ seed.wrapping_mul(37)).collect())
}

fn ppm(seed: u8) -> Vec<u8> {
    let planes = frame(seed).pixels;
    let pixels = (0..64).flat_map(|at| [planes[at], planes[64 + at], planes[128 + at]]);
    b"P6\n8 8\n255\n".iter().copied().chain(pixels).collect()
}

#[test]
fn six_cameras_decide_until_the_end_in_order_and_the_period_may_change_where_nothing_is_at_stake() {
    let folder = SiteFolder::new();
    let (results, account, log) = folder.run_until(&folder.shipped("every_ms = 100"), 10, "TERM");
    assert!(log.contains("broker: the embedded one at mqtt://127.0.0.1:"), "{log}");
    assert!(results.iter().any(|result| result["label"].is_string()), "{results:?}");
    assert_eq!(account["decided"], results.len(), "each decision was printed: {account}");
    let captured = account["captured"].as_object().expect("the cameras");
    let count: u64 = captured.values().filter_map(Value::as_u64).sum();
    assert!(captured.len() == 6 && count >= 5, "{account}");
    assert_eq!((&account["unsettled"], &account["broke_off"]), (&0.into(), &Value::Array(Vec::new())));
    let sample = |results: &[Value]| {
        let own = results.iter().find(|result| result.get("republished").is_none());
        own.and_then(|result| result["sample"].as_u64()).expect("a result of this run")
    };
    let first = sample(&results);

    // Ids of a longer period are lower. The ids begin anew, since every earlier sample is settled and the broker is the site's own.
    let (results, _, log) = folder.run_until(&folder.shipped("every_ms = 200"), 2, end_of_terminal());
    assert!(
        log.contains("a clock of 200 ms from now on, before by a clock of 100 ms: ids begin anew"),
        "{log}"
    );
    assert!(sample(&results) < first, "{} after {first}", sample(&results));
}

#[test]
fn mosquitto_runs_for_a_site_without_a_broker_and_ends_with_it() {
    let folder = SiteFolder::new();
    let file = folder.shipped("every_ms = 100");
    let site = fs::read_to_string(&file).expect("the site file");
    fs::write(&file, site.replace("broker = \"embedded\"\n", "")).expect("a writable file");
    let (results, account, log) = folder.run_until(&file, 3, "INT");
    assert!(log.contains("broker: Mosquitto ("), "{log}");
    assert_eq!(account["decided"], results.len(), "each decision was printed: {account}");
    let pid = fs::read_to_string(folder.path(".headwater/mosquitto.pid")).expect("the id of the process");
    let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let config = folder.path(".headwater/mosquitto.conf").display().to_string();
    assert!(!text(&arguments).contains(&config), "Mosquitto still runs");
}

#[test]
fn a_signal_ends_a_site_that_still_waits_for_its_broker() {
    let folder = SiteFolder::new();
    let file = folder.shipped("every_ms = 100");
    let site = fs::read_to_string(&file).expect("the site file");
    let nobody = format!("\"mqtt://127.0.0.1:{}\"", held_port().expect("a free port"));
    fs::write(&file, site.replace("\"embedded\"", &nobody)).expect("a writable file");
    let mut up = command("headwater");
    let up = up.arg("up").arg(&file).stderr(Stdio::piped());
    let mut up = Running(up.spawn().expect("it starts"));
    let stderr = BufReader::new(up.0.stderr.take().expect("was piped"));
    let mut lines = stderr.lines().map(|line| line.expect("text"));
    assert!(lines.any(|line| line.starts_with("waiting for the broker")), "it ended early");
    up.send("TERM");
    let rest: Vec<String> = lines.collect();
    assert!(rest.contains(&"stopped before the site ran".to_owned()), "{rest:?}");
    assert!(up.0.wait().expect("it ends").success(), "{rest:?}");
}

#[test]
fn a_folder_is_decided_photo_by_photo_and_ends_the_site_with_its_account() {
    let folder = SiteFolder::new();
    for seed in 0..3 {
        let png = image_codec::png(&frame(seed)).expect("a view becomes a PNG");
        folder.write(&format!("photos/{seed}.png"), png);
    }
    let photos = folder.path("photos").display().to_string();
    let file = folder.single(&photos, "[device.source.folder]\nperiod_ms = 20\n");
    let output = folder.up(&file, &["--json"]);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{stderr}");
    let mut lines: Vec<Value> =
        stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let account = lines.pop().expect("an account");
    assert_eq!((&account["captured"]["front"], &account["decided"]), (&3.into(), &3.into()), "{account}");
    let mut files: Vec<_> = lines.iter().map(|result| result["views"][0]["file"].as_str()).collect();
    files.sort_unstable();
    assert_eq!(files, [Some("0.png"), Some("1.png"), Some("2.png")], "{stdout}");
    assert!(stderr.contains("front: its frames have ended; captured 3"), "{stderr}");
}

#[test]
fn what_cannot_be_used_of_a_folder_is_in_the_account_and_named_on_the_way() {
    let folder = SiteFolder::new();
    let png = image_codec::png(&frame(1)).expect("a view becomes a PNG");
    folder.write("photos/0.png", &png);
    folder.write("photos/cut.png", &png[..png.len() / 2]);
    folder.write("photos/notes.txt", "no image");
    let photos = folder.path("photos").display().to_string();
    let file = folder.single(&photos, "[device.source.folder]\nperiod_ms = 20\n");
    let output = folder.up(&file, &[]);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    let account = "captured 1 (front 1); decided 1; dropped 0; unsettled 0; frames without a view: front: cut 1; passed over: front: other_name 1";
    assert!(stdout.contains(account), "{stdout}{stderr}");
    assert!(stderr.contains("cut.png") && stderr.contains("notes.txt"), "{stderr}");
}

#[test]
fn a_snapshot_camera_that_refuses_is_named_with_its_reason() {
    let folder = SiteFolder::new();
    let camera = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let address = camera.local_addr().expect("an address");
    std::thread::spawn(move || {
        for mut socket in camera.incoming().flatten() {
            let mut head = [0; 2048];
            if socket.read(&mut head).is_ok_and(|read| read > 0) {
                let answer = "HTTP/1.1 401 Unauthorized\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
                _ = socket.write_all(answer.as_bytes());
            }
        }
    });
    let file = folder.single(&format!("http://{address}/snap.jpg"), "");
    let checked = text(&folder.up(&file, &["--check"]).stdout);
    assert!(checked.contains("status 401") && checked.contains("set source.http.auth_file"), "{checked}");
    assert!(checked.contains("open the address in a browser"), "{checked}");
    let mut up = command("headwater");
    let up = up.arg("up").arg(&file).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut up = Running(up.spawn().expect("it starts"));
    let stderr = BufReader::new(up.0.stderr.take().expect("was piped"));
    let mut lines = stderr.lines().map(|line| line.expect("text"));
    let named = lines.find(|line| line.starts_with("front: no frames:"));
    assert!(named.as_ref().is_some_and(|line| line.contains("status 401")), "{named:?}");
}

#[test]
fn a_check_opens_each_camera_and_says_what_it_gives() {
    let folder = SiteFolder::new();
    let frames = folder.write("frames", [ppm(1), ppm(2)].concat());
    let file = folder.single(&format!("cat {}", frames.display()), "");
    let output = folder.up(&file, &["--check"]);
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    assert!(text(&output.stdout).contains("camera: a frame came: 8x8 PPM"), "{}", text(&output.stdout));
    assert!(!folder.path(".headwater").exists(), "a check leaves nothing behind");

    let file = folder.single("echo no such camera >&2; exit 1", "");
    let output = folder.up(&file, &["--check"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("the command ended (exit status: 1): no such camera"));
}

#[test]
fn a_split_site_has_files_that_every_program_accepts() {
    let folder = SiteFolder::new();
    let file = folder.shipped("every_ms = 100\ngroup = \"door\"\n[device]\nkeep_ms = 9000\n[cloud.http]\nlisten = \"127.0.0.1:8700\"");
    let (split, out) = (folder.path("split"), folder.path("split").display().to_string());
    let output = folder.up(&file, &["--split", &out]);
    let printed = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let state = folder.path(".headwater");
    assert!(!state.exists() && printed.contains(&format!("mkdir -p {}", state.display())), "{printed}");
    fs::create_dir(state).expect("a writable folder");
    let devices = (0..6).map(|slot| ("headwater-device", format!("device-cam-{slot}.toml")));
    let others =
        [("headwater-aggregator", "aggregator.toml".into()), ("headwater-cloud", "cloud.toml".into())];
    for (program, name) in devices.chain(others) {
        let path = split.join(&name);
        assert!(printed.contains(&format!("{program} --config {}", path.display())), "{printed}");
        let checked = command(program).arg("--check-config").arg("--config").arg(&path).output();
        let checked = checked.expect("the program starts");
        assert!(checked.status.success(), "{name}: {}", text(&checked.stderr));
        let settings = text(&checked.stdout);
        let expected = match program {
            "headwater-device" => "keep_ms = 9000",
            "headwater-aggregator" => "url = \"http://127.0.0.1:8700\"",
            _ => "listen = \"127.0.0.1:8700\"",
        };
        assert!(settings.contains(expected), "{expected} in {settings}");
        let mode = fs::metadata(&path).expect("the file").permissions().mode() & 0o777;
        let file = fs::read_to_string(&path).expect("the file");
        assert!(
            mode == 0o600 && !file.contains("details") && !file.contains("name_frames"),
            "{mode:o} {file}"
        );
    }
    let again = folder.up(&file, &["--split", &out]);
    assert_eq!(again.status.code(), Some(2), "files that are there are kept");
}

#[test]
fn a_check_opens_a_camera_with_regions_once_and_names_the_broker() {
    let folder = SiteFolder::new();
    let output = folder.up(&folder.regions(), &["--check"]);
    let printed = text(&output.stdout);
    assert!(output.status.success(), "{printed}{}", text(&output.stderr));
    assert!(printed.contains("  ok    broker: the embedded one, as the file says"), "{printed}");
    assert_eq!(printed.matches("camera: a frame came").count(), 1, "{printed}");
    let starts = fs::read_to_string(folder.path("starts")).expect("the command ran");
    assert_eq!(starts.lines().count(), 1, "{printed}");
}

#[test]
fn regions_of_a_split_site_are_devices_of_one_file_that_the_agent_accepts() {
    let folder = SiteFolder::new();
    let split = folder.path("split").display().to_string();
    let output = folder.up(&folder.regions(), &["--split", &split]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    assert_eq!(printed.matches("headwater-device --config").count(), 1, "{printed}");
    fs::create_dir(folder.path(".headwater")).expect("a writable folder");
    let check = || {
        let mut check = command("headwater-device");
        check.arg("--check-config").arg("--config").arg(folder.path("split/device-gate-0.toml"));
        check.output().expect("the program starts")
    };
    let checked = check();
    assert!(checked.status.success(), "{}", text(&checked.stderr));
    let settings = text(&checked.stdout);
    for (slot, region) in ["0%,0%,50%,100%", "50%,0%,50%,100%", "25%,0%,50%,100%"].iter().enumerate() {
        let state = folder.path(&format!(".headwater/devices/gate-{slot}"));
        for part in [format!("id = \"gate-{slot}\""), format!("\"{region}\""), state.display().to_string()] {
            assert!(settings.contains(&part), "{part} in {settings}");
        }
    }
    let file = folder.path("split/device-gate-0.toml");
    let without_id = fs::read_to_string(&file).expect("the file").replace("id = \"gate-2\"\n", "");
    fs::write(&file, without_id).expect("a writable file");
    let checked = check();
    assert_eq!(checked.status.code(), Some(2), "{}", text(&checked.stdout));
    assert!(text(&checked.stderr).contains("id: missing"), "{}", text(&checked.stderr));
}

#[test]
fn every_mistake_of_a_site_file_is_named_at_once_with_its_line() {
    let folder = SiteFolder::new();
    let file = folder.single(
        "nowhere",
        "back = { kind = \"http\", http.url = \"ftp://cam\" }\n[device]\nkeep_mss = 1\nslot = 3\nstate_dir = \"x\"\n\
         [aggregator]\nmax_open = 0\ncloud.url = \"http://127.0.0.1:9\"\n[cloud]\nengine = \"torch\"\n",
    );
    let site = fs::read_to_string(&file).expect("the site file");
    let zip = folder.write("photos.zip", "PK");
    let (zip, site) = (zip.display(), site + "[cloud.log]\nfile = \"~/log\"\n");
    fs::write(&file, format!("every_s = 3\n{}", site.replace("nowhere", &zip.to_string())))
        .expect("a writable file");
    let output = folder.up(&file, &[]);
    assert_eq!(output.status.code(), Some(2));
    let stderr = text(&output.stderr);
    for (mistake, line) in [
        ("every_s: no such key", 1),
        ("which is no video and no program", 5),
        ("cameras: expected 1, one for each device slot", 6),
        ("source.http.url: expected the scheme http", 6),
        ("keep_mss: no such key; did you mean `keep_ms`?", 8),
        ("device.slot: the site file sets it", 9),
        ("device.state_dir: expected with one camera alone", 10),
        ("max_open: expected 1 to 65536", 12),
        ("cloud: a table of the site's own cloud", 15),
        ("engine: expected \"auto\"", 15),
        ("cloud.log.file: `~` is not the home folder", 17),
    ] {
        let place = format!("site.toml:{line})");
        let is_named = |found: &&str| found.contains(mistake) && found.ends_with(&place);
        assert_eq!(stderr.lines().filter(is_named).count(), 1, "{mistake} in line {line}: {stderr}");
    }
}
