//! Run folders and bundles alike, and training that begins with the weights of either.

use std::path::Path;
use std::process::Output;

use headwater_inference::bundle::Bundle;
use serde_json::Value;

use crate::program::{NETWORKS, SHIPPED, ended, json, run};

const DATA: [&str; 4] = ["--data", "drawn", "--data-dir", "."];

fn train(out: &Path, further: &[&str]) -> Output {
    let network = format!("{NETWORKS}/ddnn-c.toml");
    let out = out.to_str().unwrap();
    let usual = ["train", "--network", &network, "--limit-train", "160", "--epochs", "1", "--out", out];
    run(&[&usual[..], &DATA, further].concat())
}

#[test]
fn a_run_folder_and_its_bundle_say_alike_what_they_got_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("run");
    let output = train(&folder, &[]);
    ended(&output, 0, &[]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("test by class") && said.contains("wrong answers:"), "{said}");

    let bundle = folder.join("bundle.hwb");
    let eval = |path: &Path| {
        let path = ["eval", path.to_str().unwrap(), "--limit", "64", "--json"];
        json(&run(&[&path[..], &DATA].concat()), 0)
    };
    let found = eval(&folder);
    assert_eq!(found, eval(&bundle));
    let rows = found["by_class"]["given"]["matrix"].as_array().unwrap();
    let counts = rows.iter().flat_map(|row| row.as_array().unwrap()).map(|count| count.as_u64().unwrap());
    assert_eq!((rows.len(), counts.sum::<u64>()), (10, 64));
    let wrong = found["by_class"]["wrong"].as_array().unwrap().len() as f64;
    assert!((found["overall"].as_f64().unwrap() - (1.0 - wrong / 64.0)).abs() < 1e-9, "{found}");

    let report = std::fs::read(folder.join("report.json")).unwrap();
    let report: Value = serde_json::from_slice(&report).unwrap();
    assert_eq!(report["validation"]["by_class"]["labels"].as_array().unwrap().len(), 10);
    let handed_out = Bundle::open(&bundle).unwrap();
    assert!(handed_out.report().unwrap()["test"]["by_class"].is_null(), "files are named to nobody else");

    std::fs::remove_file(&bundle).unwrap();
    let tune = ["tune", folder.to_str().unwrap(), "--loss", "0.5"];
    ended(&run(&[&tune[..], &DATA].concat()), 2, &["expected a finished run with bundle.hwb, found none"]);
}

#[test]
fn training_begins_with_the_weights_of_a_run_or_of_a_bundle_that_has_them() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let (first, weights) = (path("first"), path("weights.hwb"));
    let (first, weights) = (first.to_str().unwrap(), weights.to_str().unwrap());
    ended(&train(&path("first"), &[]), 0, &[]);
    let export = ["export", first, "--out", weights, "--with-training-weights"];
    ended(&run(&[&export[..], &DATA].concat()), 0, &[]);
    let parity = json(&run(&[&["parity", weights, "--limit", "32", "--json"][..], &DATA].concat()), 0);
    assert_eq!(parity[0]["samples"], 32);

    let before = std::fs::read(weights).unwrap();
    let unnamed = run(&[&["export", weights][..], &DATA].concat());
    ended(&unnamed, 2, &["weights.hwb: expected --out with a bundle"]);
    assert!(before == std::fs::read(weights).unwrap(), "no export overwrites the only file unasked");

    let begun = ["--seed", "5", "--freeze", "device.0"];
    let from = |name, init| train(&path(name), &[&["--init", init][..], &begun].concat());
    ended(&from("second", first), 0, &["first weights from", "6 x [8, 3, 3, 3]", "from device.0, frozen"]);
    ended(&from("third", weights), 0, &[]);
    let network = |name: &str| Bundle::open(path(name).join("bundle.hwb")).unwrap().network_id();
    assert_eq!(network("second"), network("third"));
    assert_ne!(network("second"), network("first"));
    let info: Value =
        serde_json::from_slice(&std::fs::read(path("second").join("run.json")).unwrap()).unwrap();
    assert_eq!((&info["init"]["kept_apart"], &info["init"]["new"]), (&true.into(), &Value::Array(vec![])));
    // The same command finds the finished run; another beginning is another run.
    ended(&from("second", weights), 0, &[]);
    ended(
        &train(&path("second"), &["--seed", "5"]),
        2,
        &["seed or data: the first weights, or what is frozen"],
    );
    ended(&train(&path("second"), &["--seed", "6"]), 2, &["seed (there 5, here 6)"]);

    let none = train(&path("fourth"), &["--init", SHIPPED]);
    ended(&none, 2, &["a bundle exported with --with-training-weights, found a bundle without"]);
    let sky = train(&path("fourth"), &["--init", first, "--freeze", "sky"]);
    ended(&sky, 2, &["--freeze: expected one of cloud, cloud.0", "found sky"]);
    assert!(!path("fourth").exists());
}
