//! Commands on run folders and on bundles, and training that begins with the weights of either.

use std::path::Path;
use std::process::Output;

use headwater_inference::bundle::Bundle;
use serde_json::Value;

use crate::program::{DRAWN, SHIPPED, Scratch, ended, json, run_on, stdout, train_ddnn_c};

fn train(out: &str, further: &[&str]) -> Output {
    train_ddnn_c(&DRAWN, out, &[&["--limit-train", "160"], further].concat())
}

#[test]
fn a_run_folder_and_its_bundle_say_alike_what_they_got_wrong() {
    let folder = Scratch::new();
    let (ran, bundle) = (folder.path("run"), folder.path("run/bundle.hwb"));
    let output = train(&ran, &[]);
    ended(&output, 0, &[]);
    let said = stdout(&output);
    assert!(said.contains("test by class") && said.contains("wrong answers:"), "{said}");

    let eval = |path: &str| json(&run_on(&DRAWN, &["eval", path, "--limit", "64", "--json"]), 0);
    let found = eval(&ran);
    assert_eq!(found, eval(&bundle));
    let rows = found["by_class"]["given"]["matrix"].as_array().unwrap();
    let counts = rows.iter().flat_map(|row| row.as_array().unwrap()).map(|count| count.as_u64().unwrap());
    assert_eq!((rows.len(), counts.sum::<u64>()), (10, 64));
    let wrong = found["by_class"]["wrong"].as_array().unwrap().len() as f64;
    assert!((found["overall"].as_f64().unwrap() - (1.0 - wrong / 64.0)).abs() < 1e-9, "{found}");

    let report = folder.json("run/report.json");
    assert_eq!(report["validation"]["by_class"]["labels"].as_array().unwrap().len(), 10);
    let handed_out = Bundle::open(&bundle).unwrap();
    assert!(handed_out.report().unwrap()["test"]["by_class"].is_null(), "files are named to nobody else");

    std::fs::remove_file(&bundle).unwrap();
    let tune = run_on(&DRAWN, &["tune", &ran, "--loss", "0.5"]);
    ended(&tune, 2, &["expected a finished run with bundle.hwb, found none"]);
}

#[test]
fn training_begins_with_the_weights_of_a_run_or_of_a_bundle_that_has_them() {
    let folder = Scratch::new();
    let path = |name: &str| folder.path(name);
    let (first, weights) = (path("first"), path("weights.hwb"));
    ended(&train(&first, &[]), 0, &[]);
    let export = ["export", &first, "--out", &weights, "--with-training-weights"];
    ended(&run_on(&DRAWN, &export), 0, &[]);
    let parity = json(&run_on(&DRAWN, &["parity", &weights, "--limit", "32", "--json"]), 0);
    assert_eq!(parity[0]["samples"], 32);

    let before = std::fs::read(&weights).unwrap();
    let unnamed = run_on(&DRAWN, &["export", &weights]);
    ended(&unnamed, 2, &["weights.hwb: expected --out with a bundle"]);
    assert!(before == std::fs::read(&weights).unwrap(), "no export overwrites the only file unasked");

    let from =
        |name, init: &str| train(&path(name), &["--init", init, "--seed", "5", "--freeze", "device.0"]);
    ended(&from("second", &first), 0, &["first weights from", "6 x [8, 3, 3, 3]", "from device.0, frozen"]);
    ended(&from("third", &weights), 0, &[]);
    let network = |name: &str| Bundle::open(path(name) + "/bundle.hwb").unwrap().network_id();
    assert_eq!(network("second"), network("third"));
    assert_ne!(network("second"), network("first"));
    let info = folder.json("second/run.json");
    assert_eq!((&info["init"]["kept_apart"], &info["init"]["new"]), (&true.into(), &Value::Array(vec![])));
    // The same command finds the finished run; other first weights make another run.
    ended(&from("second", &weights), 0, &[]);
    let seeded = |seed| train(&path("second"), &["--seed", seed]);
    ended(&seeded("5"), 2, &["seed or data: the first weights, or what is frozen"]);
    ended(&seeded("6"), 2, &["seed (there 5, here 6)"]);

    let none = train(&path("fourth"), &["--init", SHIPPED]);
    ended(&none, 2, &["a bundle exported with --with-training-weights, found a bundle without"]);
    let sky = train(&path("fourth"), &["--init", &first, "--freeze", "sky"]);
    ended(&sky, 2, &["--freeze: expected one of cloud, cloud.0", "found sky"]);
    assert!(!Path::new(&path("fourth")).exists());
}
