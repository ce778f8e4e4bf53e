//! Warnings of a finished run: in its report, and last on standard error.

use std::path::Path;

use serde_json::Value;

use crate::program::{NETWORKS, ended, run};

#[test]
fn a_class_with_few_samples_is_named_last_and_in_the_report_and_again_by_an_export() {
    let folder = tempfile::tempdir().unwrap();
    let (data, out) = (folder.path().join("data"), folder.path().join("run"));
    let [data_dir, out_dir] = [&data, &out].map(|path| path.to_str().unwrap());
    ended(
        &run(&["convert", "--data", "drawn", "--data-dir", ".", "--limit", "160", "--out", data_dir]),
        0,
        &[],
    );
    let class = std::fs::read_dir(data.join("train")).unwrap().next().unwrap().unwrap().path();
    for sample in std::fs::read_dir(&class).unwrap().skip(2) {
        std::fs::remove_dir_all(sample.unwrap().path()).unwrap();
    }
    let network = Path::new(NETWORKS).join("ddnn-c.toml");
    let of_data = ["--data", "folders", "--data-dir", data_dir];
    let train = ["train", "--network", network.to_str().unwrap(), "--epochs", "1", "--out", out_dir];
    for command in [&train[..], &["export", out_dir]] {
        let output = run(&[command, &of_data[..]].concat());
        ended(&output, 0, &[]);
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().last().unwrap();
        assert!(last.starts_with("warning: class imbalance in the train part: "), "{said}");
        let report: Value = serde_json::from_slice(&std::fs::read(out.join("report.json")).unwrap()).unwrap();
        let warnings = report["warnings"].as_array().unwrap();
        assert!(warnings.iter().any(|warning| warning["code"] == "class_imbalance"), "{warnings:?}");
        assert_eq!(report["exported_epoch"]["epoch"], 1);
    }
}
