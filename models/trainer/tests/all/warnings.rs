//! Warnings of a finished run: in its report, and last on standard error.

use crate::program::{Scratch, ended, run_on, stderr, train_ddnn_c};

#[test]
fn a_class_with_few_samples_is_named_last_and_in_the_report_and_again_by_an_export() {
    let folder = Scratch::new();
    let (data, out) = (folder.write_drawn("data", "160"), folder.path("run"));
    let class = std::fs::read_dir(folder.path("data/train")).unwrap().next().unwrap().unwrap().path();
    for sample in std::fs::read_dir(&class).unwrap().skip(2) {
        std::fs::remove_dir_all(sample.unwrap().path()).unwrap();
    }
    let data = ["--data", "folders", "--data-dir", &data];
    for is_export in [false, true] {
        let export = || run_on(&data, &["export", &out]);
        let output = if is_export { export() } else { train_ddnn_c(&data, &out, &[]) };
        ended(&output, 0, &[]);
        let said = stderr(&output);
        let last = said.lines().last().unwrap();
        assert!(last.starts_with("warning: class imbalance in the train part: "), "{said}");
        let report = folder.json("run/report.json");
        let warnings = report["warnings"].as_array().unwrap();
        assert!(warnings.iter().any(|warning| warning["code"] == "class_imbalance"), "{warnings:?}");
        let exported = &report["exported_epoch"];
        assert!(["epoch", "highest_epoch", "last_epoch"].iter().all(|key| exported[*key] == 1), "{exported}");
        assert!(exported["score"].is_f64() && exported["score"] == exported["highest_score"], "{exported}");
    }
}
