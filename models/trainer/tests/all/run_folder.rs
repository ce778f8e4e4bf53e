//! Run folders as commands use them: data and files that do not belong to the run are refused before anything is computed.

use std::path::Path;
use std::process::Output;

use headwater_training::run::RunFolder;

use crate::program::{NETWORKS, SHIPPED, ended, run as command};

fn train(network: &Path, data: [&str; 2], run: &Path) -> Output {
    let [name, folder] = data;
    command(&[
        "train",
        "--network",
        network.to_str().unwrap(),
        "--data",
        name,
        "--data-dir",
        folder,
        "--limit-train",
        "160",
        "--epochs",
        "1",
        "--out",
        run.to_str().unwrap(),
    ])
}

#[track_caller]
fn is_refused(output: &Output, part: &str) {
    ended(output, 2, &[part]);
}

#[track_caller]
fn is_done(output: &Output) {
    ended(output, 0, &[]);
}

#[test]
fn a_run_is_that_of_its_spec_recipe_and_one_command() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let drawn = ["drawn", "."];
    let network = Path::new(NETWORKS).join("ddnn-c.toml");
    is_done(&train(&network, drawn, &run));

    let lock = RunFolder { path: run.clone() }.lock().unwrap();
    is_refused(&train(&network, drawn, &run), "expected no other command at work on this run");
    drop(lock);

    let out = folder.path().join("out.hwb");
    let export = || {
        let (run, out) = (run.to_str().unwrap(), out.to_str().unwrap());
        command(&["export", run, "--out", out, "--data", "drawn", "--data-dir", "."])
    };
    is_done(&export());
    for (file, key, value) in [
        ("spec.toml", "aggregation = \"ap\"", "aggregation = \"mp\""),
        ("recipe.toml", "seed = 1", "seed = 2"),
    ] {
        let text = std::fs::read_to_string(run.join(file)).unwrap();
        assert!(text.contains(key), "{text}");
        std::fs::write(run.join(file), text.replace(key, value)).unwrap();
        is_refused(&export(), "they were changed since");
        std::fs::write(run.join(file), text).unwrap();
    }
}

#[test]
fn a_run_resumes_with_the_samples_with_which_it_began_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (data, run) = (folder.path().join("data"), folder.path().join("run"));
    let data = data.to_str().unwrap();
    is_done(&command(&["convert", "--data", "drawn", "--data-dir", ".", "--limit", "160", "--out", data]));
    let network = Path::new(NETWORKS).join("ddnn-c.toml");
    is_done(&train(&network, ["folders", data], &run));
    is_done(&train(&network, ["folders", data], &run));

    let eval = |part| command(&["eval", SHIPPED, "--data", "folders", "--data-dir", data, "--part", part]);
    is_done(&eval("calibration"));
    std::fs::remove_dir_all(Path::new(data).join("calibration")).unwrap();
    is_refused(
        &eval("calibration"),
        "--part calibration: expected samples, found none: folders has no such part",
    );
    is_refused(&train(&network, ["folders", data], &run), "the files of the data have changed");
}

#[test]
fn a_name_that_no_bundle_can_have_is_refused_before_training() {
    let folder = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(Path::new(NETWORKS).join("ddnn-c.toml")).unwrap();
    let name = text.lines().find(|line| line.starts_with("name = ")).unwrap();
    for wrong in ["my network", "", "../../escaped"] {
        let spec = folder.path().join("spec.toml");
        std::fs::write(&spec, text.replace(name, &format!("name = \"{wrong}\""))).unwrap();
        is_refused(
            &train(&spec, ["drawn", "."], &folder.path().join("run")),
            "network.name: expected 1 to 64",
        );
        assert!(!folder.path().join("run").exists());
    }
}

#[test]
fn ranks_need_a_program_with_mpi() {
    // The tests are built without MPI.
    let network = Path::new(NETWORKS).join("ddnn-c.toml");
    let output =
        command(&["train", "--network", network.to_str().unwrap(), "--data-dir", ".", "--workers", "mpi"]);
    is_refused(&output, "expected a headwater-train with MPI, found one without");
}

#[test]
fn copies_in_the_calibration_part_end_every_promise() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    is_done(&command(&[
        "convert",
        "--data",
        "drawn",
        "--data-dir",
        ".",
        "--limit",
        "160",
        "--out",
        data.to_str().unwrap(),
    ]));
    let class = std::fs::read_dir(data.join("calibration")).unwrap().next().unwrap().unwrap().path();
    let sample = std::fs::read_dir(&class).unwrap().next().unwrap().unwrap().path();
    std::fs::create_dir(class.join("copy")).unwrap();
    for view in std::fs::read_dir(&sample).unwrap() {
        let view = view.unwrap();
        std::fs::copy(view.path(), class.join("copy").join(view.file_name())).unwrap();
    }
    let data = data.to_str().unwrap();
    let words = "one with the same image in samples that would count as independent";
    let tune = ["tune", SHIPPED, "--loss", "20", "--require-promise", "--kept-apart"];
    is_refused(&command(&[&tune[..], &["--data", "folders", "--data-dir", data]].concat()), words);
    let output =
        train(&Path::new(NETWORKS).join("ddnn-c.toml"), ["folders", data], &folder.path().join("run"));
    is_done(&output);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        said.contains("measured, not promised") && said.contains(&format!("no promise: {words}")),
        "{said}"
    );
}
