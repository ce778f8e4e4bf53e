//! Small grouped data as commands: thresholds from out-of-fold logits, and no promise. The files have the form of `eth80` and are made up.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Output;

use headwater_calibration::data::load;
use headwater_inference::bundle::Bundle;
use headwater_inference::policy::Policy;
use headwater_samples::Part;
use headwater_samples::data_set::OpenOptions;

use crate::program::{DRAWN, SHIPPED, Scratch, ended, json, public_data, run_on, stderr};

const OBJECTS: usize = 72;
const VIEWS: usize = 41;
const VIEW_BYTES: usize = 3 * 32 * 32;
const NETWORK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../networks/eth80.toml");

/// A folder with files of `eth80` whose pixels depend on the class and the object.
fn made_up() -> Scratch {
    let folder = Scratch::new();
    let labels: Vec<u8> = (0..OBJECTS).map(|object| (object / 9) as u8).collect();
    let file = [&[0, 0, 8, 1, 0, 0, 0, OBJECTS as u8][..], &labels].concat();
    std::fs::write(folder.path("eth80-labels-idx1-ubyte"), file).unwrap();
    let mut file = vec![0, 0, 8, 5];
    file.extend([OBJECTS, VIEWS, 3, 32, 32].iter().flat_map(|size| (*size as u32).to_be_bytes()));
    for object in 0..OBJECTS {
        let class = object / 9;
        let pixel = |at: usize| ((at * (class + 2) / 40 + object * 7 + at % 13) % 256) as u8;
        file.extend((0..VIEWS * VIEW_BYTES).map(pixel));
    }
    std::fs::write(folder.path("eth80-views-idx5-ubyte"), file).unwrap();
    folder
}

/// Runs a command on the made-up data.
fn command(data: &Scratch, arguments: &[&str]) -> Output {
    run_on(&["--data", "eth80", "--data-dir", &data.path("")], arguments)
}

/// Trains for an epoch into the folder `run`, and returns standard error.
#[track_caller]
fn train(data: &Scratch, arguments: &[&str]) -> String {
    let fixed = ["train", "--network", NETWORK, "--epochs", "1", "--out", &data.path("run")];
    let output = command(data, &[&fixed[..], arguments].concat());
    ended(&output, 0, &[]);
    stderr(&output)
}

fn policy(data: &Scratch) -> Policy {
    Bundle::open(data.path("run/bundle.hwb")).unwrap().policy().clone()
}

#[test]
fn thresholds_come_from_out_of_fold_logits_which_a_run_trains_once() {
    let data = made_up();
    let said = train(&data, &[]);
    assert!(said.contains("fold 4 of 4: training on 144 samples, 48 are left out"), "{said}");
    assert!(said.contains("fold 2 of 4  epoch   1/1"), "{said}");
    let thresholds = &data.json("run/report.json")["thresholds"];
    assert_eq!(thresholds["from"], "out-of-fold logits of 192 training samples in 48 groups");
    let risk = thresholds["lost"].as_f64().unwrap() - thresholds["won"].as_f64().unwrap();
    assert!(risk <= 0.005, "the measured risk is within the target: {thresholds}");
    let chosen = policy(&data);
    assert_eq!(chosen.promises, []);

    // An export, and the same command again, end with the same policy and train no fold.
    std::fs::remove_file(data.path("run/bundle.hwb")).unwrap();
    let (run, out) = (data.path("run"), data.path("again.hwb"));
    let export = ["export", &run, "--out", &out];
    ended(&command(&data, &export), 0, &[]);
    assert_eq!(policy(&data), chosen);
    let said = train(&data, &[]);
    assert!(!said.contains("fold "), "{said}");
    assert_eq!(policy(&data), chosen);

    // Under another fold, samples that the run was trained on may be in other parts, so `export` refuses.
    let other = command(&data, &[&export[..], &["--fold", "3"]].concat());
    ended(&other, 2, &["expected the data of the run, eth80, found eth80, fold 3"]);
    let eval = command(&data, &["eval", &run, "--fold", "3"]);
    ended(&eval, 0, &["was trained on eth80; samples of eth80, fold 3 may be"]);

    // Without the file of logits, `export` fails and does not choose thresholds from other logits.
    let logits = data.path("run/out-of-fold.hwlogits");
    std::fs::remove_file(&logits).unwrap();
    ended(&command(&data, &export), 2, &["expected out-of-fold.hwlogits"]);
    assert_eq!(policy(&data), chosen);

    // A damaged file is named.
    std::fs::write(logits, b"HWLOGT01").unwrap();
    ended(&command(&data, &export), 1, &["out-of-fold.hwlogits: shorter than its hash"]);
}

#[test]
fn a_recipe_without_folds_takes_the_thresholds_from_validation() {
    let data = made_up();
    let text = headwater_training::recipe::DEFAULT.replace("# folds = 4", "folds = 0");
    let said = train(&data, &["--recipe", &data.write("recipe.toml", &text)]);
    assert!(!said.contains("fold "), "{said}");
    let thresholds = &data.json("run/report.json")["thresholds"];
    assert_eq!(thresholds["from"], "logits of 32 validation samples in 8 groups");
    assert!(!Path::new(&data.path("run/out-of-fold.hwlogits")).exists());

    // For a network that was trained on this data, the message also has the number of samples that a promise needs.
    let words = [
        "eth80: expected a calibration part, found none",
        "a promise of 0.5 points at 95 % needs at least 598 independent samples",
        "for the present thresholds",
        "all parts together have 72 objects or scenes: this data allows no promise",
    ];
    let tune = ["tune", &data.path("run"), "--loss", "0.5", "--require-promise"];
    ended(&command(&data, &tune), 2, &words);
}

#[test]
fn frames_of_the_street_are_groups() {
    let Some(archive) = public_data("epfl-multicam/epfl-multicam.tar.gz") else { return };
    let parts = load("folders", &archive, OpenOptions::default()).unwrap();
    let groups = |part| parts.groups(part, None).into_iter().collect::<BTreeSet<u32>>().len();
    assert_eq!([Part::Train, Part::Validation, Part::Test].map(groups), [160, 17, 24]);
    assert_eq!(parts.data.len(Part::Calibration), 0);
}

/// Names drawings as the frames of a recording, two objects a frame, in folders `PART/CLASS/FRAME-OBJECT`.
fn name_as_recording(folder: &Path) {
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
    let folder = Scratch::new();
    let data = folder.write_drawn("recording", "240");
    name_as_recording(Path::new(&data));
    let tune = |arguments: &[&str]| {
        let fixed = ["tune", SHIPPED, "--kept-apart", "--loss", "50", "--require-promise"];
        run_on(&["--data", "folders", "--data-dir", &data], &[&fixed[..], arguments].concat())
    };
    let blocks = ["--block-length", "4", "--largest-group", "8"];
    for (arguments, expected) in [
        (&["--largest-group", "2"][..], "--block-length N states after how many frames"),
        (&[&blocks[..], &["--promise", "losses"]].concat(), "ask for `net`"),
        (
            &["--block-length", "4", "--largest-group", "7"],
            "a group has more than the 7 samples that were declared",
        ),
        (
            &["--block-length", "30", "--largest-group", "60"],
            "expected at least 5 independent groups in the calibration part, found 2",
        ),
        (
            &["--block-length", "200", "--largest-group", "400"],
            "expected two blocks of 200 frames or more in the part val",
        ),
    ] {
        ended(&tune(arguments), 2, &[expected]);
    }
    let found = json(&tune(&[&blocks[..], &["--json"]].concat()), 0);
    let part = &found["promises"][0]["part"];
    // There are 30 blocks of 4 frames, and every second block is a group: 15 groups.
    assert_eq!((&part["groups"], &part["samples"]), (&15.into(), &120.into()));
    assert_eq!((&part["largest_group"], &part["data"]), (&8.into(), &"folders, blocks of 4 frames".into()));

    // Parts drawn at random from a recording would share neighbouring frames, so `convert` refuses without `--allow-leaks`.
    let train = format!("{data}/train");
    let convert = ["convert", "--data", "folders", "--data-dir", &train, "--out", &folder.path("out")];
    ended(&run_on(&[], &convert), 2, &["divide the recording by time"]);
    ended(&run_on(&["--allow-leaks"], &convert), 0, &["frames of one recording without parts"]);
}

#[test]
fn a_block_length_is_for_recordings() {
    let output = run_on(&DRAWN, &["tune", SHIPPED, "--loss", "1", "--block-length", "3"]);
    ended(&output, 2, &["--block-length: expected the frames of a recording"]);
}
