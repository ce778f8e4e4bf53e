//! Run folders as commands use them: data and files that do not belong to the run are refused before anything is computed.

use std::path::Path;
use std::process::Output;

use headwater_training::run::RunFolder;

use crate::program::{DDNN_C, DRAWN, SHIPPED, Scratch, ended, run, run_on, stdout, train_ddnn_c};

/// Trains on the first samples into the folder `run`.
fn train(data: &[&str], folder: &Scratch) -> Output {
    train_ddnn_c(data, &folder.path("run"), &["--limit-train", "160"])
}

#[test]
fn a_run_is_that_of_its_spec_recipe_and_one_command() {
    let folder = Scratch::new();
    ended(&train(&DRAWN, &folder), 0, &[]);

    let lock = RunFolder { path: folder.path("run").into() }.lock().unwrap();
    ended(&train(&DRAWN, &folder), 2, &["expected no other command at work on this run"]);
    drop(lock);

    let export = ["export", &folder.path("run"), "--out", &folder.path("out.hwb")];
    ended(&run_on(&DRAWN, &export), 0, &[]);
    for (file, key, value) in [
        ("run/spec.toml", "aggregation = \"ap\"", "aggregation = \"mp\""),
        ("run/recipe.toml", "seed = 1", "seed = 2"),
    ] {
        let text = folder.read(file);
        assert!(text.contains(key), "{text}");
        folder.write(file, &text.replace(key, value));
        ended(&run_on(&DRAWN, &export), 2, &["they were changed since"]);
        folder.write(file, &text);
    }
}

#[test]
fn a_run_resumes_with_the_samples_with_which_it_began_alone() {
    let folder = Scratch::new();
    let data = ["--data", "folders", "--data-dir", &folder.write_drawn("data", "160")];
    ended(&train(&data, &folder), 0, &[]);
    ended(&train(&data, &folder), 0, &[]);

    let eval = ["eval", SHIPPED, "--part", "calibration"];
    ended(&run_on(&data, &eval), 0, &[]);
    std::fs::remove_dir_all(folder.path("data/calibration")).unwrap();
    let refusal = "--part calibration: expected samples, found none: folders has no such part";
    ended(&run_on(&data, &eval), 2, &[refusal]);
    ended(&train(&data, &folder), 2, &["the files of the data have changed"]);
}

#[test]
fn a_name_that_no_bundle_can_have_is_refused_before_training() {
    let folder = Scratch::new();
    let (text, out) = (std::fs::read_to_string(DDNN_C).unwrap(), folder.path("run"));
    let name = text.lines().find(|line| line.starts_with("name = ")).unwrap();
    for wrong in ["my network", "", "../../escaped"] {
        let spec = folder.write("spec.toml", &text.replace(name, &format!("name = \"{wrong}\"")));
        let output = run_on(&DRAWN, &["train", "--network", &spec, "--out", &out]);
        ended(&output, 2, &["network.name: expected 1 to 64"]);
        assert!(!Path::new(&out).exists());
    }
}

#[test]
fn ranks_need_a_program_with_mpi() {
    // The tests are built without MPI.
    let output = run(&["train", "--network", DDNN_C, "--data-dir", ".", "--workers", "mpi"]);
    ended(&output, 2, &["expected a headwater-train with MPI, found one without"]);
}

#[test]
fn copies_in_the_calibration_part_end_every_promise() {
    let folder = Scratch::new();
    let data = ["--data", "folders", "--data-dir", &folder.write_drawn("data", "160")];
    let class = std::fs::read_dir(folder.path("data/calibration")).unwrap().next().unwrap().unwrap().path();
    let sample = std::fs::read_dir(&class).unwrap().next().unwrap().unwrap().path();
    std::fs::create_dir(class.join("copy")).unwrap();
    for view in std::fs::read_dir(&sample).unwrap() {
        let view = view.unwrap();
        std::fs::copy(view.path(), class.join("copy").join(view.file_name())).unwrap();
    }
    let words = "one with the same image in samples that would count as independent";
    let tune = ["tune", SHIPPED, "--loss", "20", "--require-promise", "--kept-apart"];
    ended(&run_on(&data, &tune), 2, &[words]);
    let output = train(&data, &folder);
    ended(&output, 0, &[]);
    let said = stdout(&output);
    for part in ["measured, not promised", &format!("no promise: {words}")] {
        assert!(said.contains(part), "{said}");
    }
}
