//! Small grouped data as commands: thresholds from out-of-fold logits, and no promise. The files have the form of `eth80` and are made up.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use headwater_calibration::data::load;
use headwater_inference::bundle::Bundle;
use headwater_inference::policy::Policy;
use headwater_samples::Part;
use headwater_samples::data_set::OpenOptions;
use serde_json::Value;

const OBJECTS: usize = 72;
const VIEWS: usize = 41;
const VIEW_BYTES: usize = 3 * 32 * 32;
const NETWORK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../networks/eth80.toml");
const SHIPPED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../shipped/fashion-6cam.hwb");

/// Files of `eth80` whose pixels depend on the class and the object.
fn write_data(folder: &Path) {
    let labels: Vec<u8> = (0..OBJECTS).map(|object| (object / 9) as u8).collect();
    let file = [&[0, 0, 8, 1, 0, 0, 0, OBJECTS as u8][..], &labels].concat();
    std::fs::write(folder.join("eth80-labels-idx1-ubyte"), file).unwrap();
    let mut file = vec![0, 0, 8, 5];
    file.extend([OBJECTS, VIEWS, 3, 32, 32].iter().flat_map(|size| (*size as u32).to_be_bytes()));
    for object in 0..OBJECTS {
        let class = object / 9;
        let pixel = |at: usize| ((at * (class + 2) / 40 + object * 7 + at % 13) % 256) as u8;
        file.extend((0..VIEWS * VIEW_BYTES).map(pixel));
    }
    std::fs::write(folder.join("eth80-views-idx5-ubyte"), file).unwrap();
}

struct Fixture {
    folder: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        write_data(folder.path());
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs a command on the data.
    fn command(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_headwater-train"))
            .args(arguments)
            .args(["--data", "eth80", "--data-dir"])
            .arg(self.folder.path())
            .output()
            .unwrap()
    }

    /// Trains for an epoch into the folder `run`, and returns standard error.
    fn train(&self, run: &str, arguments: &[&str]) -> String {
        let out = self.path(run);
        let fixed = ["train", "--network", NETWORK, "--epochs", "1", "--out", out.to_str().unwrap()];
        let output = self.command(&[&fixed[..], arguments].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        said
    }

    fn report(&self, run: &str) -> Value {
        serde_json::from_slice(&std::fs::read(self.path(run).join("report.json")).unwrap()).unwrap()
    }

    fn policy(&self, run: &str) -> Policy {
        Bundle::open(self.path(run).join("bundle.hwb")).unwrap().policy().clone()
    }

    /// Message of `tune` for a bundle whose data allows no promise.
    fn refusal(&self, bundle: &Path) -> String {
        let output = self.command(&["tune", bundle.to_str().unwrap(), "--loss", "0.5", "--require-promise"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        said
    }
}

#[test]
fn thresholds_come_from_out_of_fold_logits_which_a_run_trains_once() {
    let data = Fixture::new();
    let said = data.train("run", &[]);
    assert!(said.contains("fold 4 of 4: training on 144 samples, 48 are left out"), "{said}");
    assert!(said.contains("fold 2 of 4  epoch   1/1"), "{said}");
    let thresholds = &data.report("run")["thresholds"];
    assert_eq!(thresholds["from"], "out-of-fold logits of 192 training samples in 48 groups");
    let risk = thresholds["lost"].as_f64().unwrap() - thresholds["won"].as_f64().unwrap();
    assert!(risk <= 0.005, "the measured risk is within the target: {thresholds}");
    let policy = data.policy("run");
    assert_eq!(policy.promises, []);

    // An export, and the same command again, end with the same policy and train no fold.
    std::fs::remove_file(data.path("run").join("bundle.hwb")).unwrap();
    let (run, out) = (data.path("run"), data.path("again.hwb"));
    let output = data.command(&["export", run.to_str().unwrap(), "--out", out.to_str().unwrap()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(data.policy("run"), policy);
    let said = data.train("run", &[]);
    assert!(!said.contains("fold "), "{said}");
    assert_eq!(data.policy("run"), policy);

    // Under another fold, samples that the run was trained on may be in other parts, so `export` refuses.
    let other = ["export", run.to_str().unwrap(), "--out", out.to_str().unwrap(), "--fold", "3"];
    let output = data.command(&other);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("expected the data of the run, eth80, found eth80, fold 3"), "{said}");
    let bundle = data.path("run").join("bundle.hwb");
    let said = data.command(&["eval", bundle.to_str().unwrap(), "--fold", "3"]);
    assert!(
        String::from_utf8_lossy(&said.stderr)
            .contains("was trained on eth80; samples of eth80, fold 3 may be")
    );

    // Without the file of logits, `export` fails and does not choose thresholds from other logits.
    let logits = data.path("run").join("out-of-fold.hwlogits");
    std::fs::rename(&logits, data.path("kept.hwlogits")).unwrap();
    let output = data.command(&["export", run.to_str().unwrap(), "--out", out.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("expected out-of-fold.hwlogits"), "{said}");
    assert_eq!(data.policy("run"), policy);

    // A damaged file is named.
    std::fs::write(data.path("run").join("out-of-fold.hwlogits"), b"HWLOGT01").unwrap();
    let output = data.command(&["export", run.to_str().unwrap(), "--out", out.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("out-of-fold.hwlogits: shorter than its hash"),
        "{said}"
    );
}

#[test]
fn a_recipe_without_folds_takes_the_thresholds_from_validation() {
    let data = Fixture::new();
    let recipe = data.path("recipe.toml");
    let text = headwater_training::recipe::DEFAULT.replace("# folds = 4", "folds = 0");
    std::fs::write(&recipe, text).unwrap();
    let said = data.train("run", &["--recipe", recipe.to_str().unwrap()]);
    assert!(!said.contains("fold "), "{said}");
    assert_eq!(data.report("run")["thresholds"]["from"], "logits of 32 validation samples in 8 groups");
    assert!(!data.path("run").join("out-of-fold.hwlogits").exists());

    // For a network that was trained on this data, the message also has the number of samples that a promise needs.
    let said = data.refusal(&data.path("run").join("bundle.hwb"));
    for part in [
        "eth80: expected a calibration part, found none",
        "a promise of 0.5 points at 95 % needs at least 598 independent samples",
        "for the present thresholds",
        "all parts together have 72 objects or scenes: this data allows no promise",
    ] {
        assert!(said.contains(part), "{part:?} in {said}");
    }
}

#[test]
fn frames_of_the_street_are_groups() {
    let data = std::env::var_os("HEADWATER_DATA")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"), PathBuf::from);
    let archive = data.join("epfl-multicam/epfl-multicam.tar.gz");
    if !archive.is_file() {
        println!(
            "left out: no epfl-multicam found; set HEADWATER_DATA to the folder that holds `epfl-multicam`"
        );
        return;
    }
    let parts = load("folders", &archive, OpenOptions::default()).unwrap();
    let groups = |part| {
        let groups = (0..parts.data.len(part)).map(|index| parts.data.group(part, index).unwrap());
        groups.collect::<BTreeSet<u32>>().len()
    };
    assert_eq!([Part::Train, Part::Validation, Part::Test].map(groups), [160, 17, 24]);
    assert_eq!(parts.data.len(Part::Calibration), 0);
}

/// Drawings as the frames of a recording, two objects a frame, in folders `PART/CLASS/FRAME-OBJECT`.
fn write_recording(folder: &Path) {
    let output = Command::new(env!("CARGO_BIN_EXE_headwater-train"))
        .args(["convert", "--data", "drawn", "--data-dir", ".", "--limit", "240", "--out"])
        .arg(folder)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let entries = |folder: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let mut entries: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
        entries.sort();
        entries
    };
    for (number, part) in entries(folder).iter().enumerate() {
        let samples = entries(part).into_iter().flat_map(|class| entries(&class));
        for (index, sample) in samples.enumerate() {
            // Frames 8 to 127, 1008 to 1127, ...: their numbers have no leading zeros.
            let name = format!("{}-{index}", 1000 * number + 8 + index / 2);
            std::fs::rename(&sample, sample.with_file_name(name)).unwrap();
        }
    }
}

#[test]
fn a_recording_is_one_group_unless_a_block_length_is_stated() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("recording");
    write_recording(&data);
    let tune = |arguments: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_headwater-train"))
            .args(["tune", SHIPPED, "--kept-apart", "--loss", "50", "--require-promise"])
            .args(["--data", "folders", "--data-dir"])
            .arg(&data)
            .args(arguments)
            .output()
            .unwrap()
    };
    #[track_caller]
    fn is_refused(output: &Output, part: &str) {
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(part), "{said}");
    }
    is_refused(&tune(&["--largest-group", "2"]), "--block-length N states after how many frames");
    let blocks = ["--block-length", "4", "--largest-group", "8"];
    is_refused(&tune(&[&blocks[..], &["--promise", "losses"]].concat()), "ask for `net`");
    is_refused(
        &tune(&["--block-length", "4", "--largest-group", "7"]),
        "a group has more than the 7 samples that were declared",
    );
    is_refused(
        &tune(&["--block-length", "30", "--largest-group", "60"]),
        "expected at least 5 independent groups in the calibration part, found 2",
    );
    is_refused(
        &tune(&["--block-length", "200", "--largest-group", "400"]),
        "expected two blocks of 200 frames or more in the part val",
    );
    let output = tune(&[&blocks[..], &["--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    // Every second block of 30 is a group: 15 groups.
    assert_eq!(
        (&found["promises"][0]["part"]["groups"], &found["promises"][0]["part"]["samples"]),
        (&15.into(), &120.into())
    );
    assert_eq!(found["promises"][0]["part"]["largest_group"], 8);
    assert_eq!(found["promises"][0]["part"]["data"], "folders, blocks of 4 frames");

    // Parts drawn at random from a recording would share neighbouring frames, so `convert` refuses without `--allow-leaks`.
    let drawn = folder.path().join("drawn");
    std::fs::rename(data.join("train"), &drawn).unwrap();
    let convert = |arguments: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_headwater-train"))
            .args(["convert", "--data", "folders", "--data-dir"])
            .arg(&drawn)
            .args(["--out", folder.path().join("out").to_str().unwrap()])
            .args(arguments)
            .output()
            .unwrap()
    };
    is_refused(&convert(&[]), "divide the recording by time");
    let output = convert(&["--allow-leaks"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("frames of one recording without parts"), "{said}");
}

#[test]
fn a_block_length_is_for_recordings() {
    let output = Command::new(env!("CARGO_BIN_EXE_headwater-train"))
        .args(["tune", SHIPPED, "--data", "drawn", "--data-dir", ".", "--loss", "1", "--block-length", "3"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("--block-length: expected the frames of a recording"), "{said}");
}
