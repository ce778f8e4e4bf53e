//! Messages and exit codes of the command.

use std::path::Path;

use headwater_samples::catalogue::CATALOGUE;
use headwater_samples::{Shape, View, image_codec};

use crate::program::{SHIPPED, ended, json, run};

const NETWORK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../networks/ddnn-c.toml");

#[track_caller]
fn refuses(arguments: &[&str], message: &str) {
    ended(&run(arguments), 2, &[message]);
}

#[test]
fn a_spec_that_does_not_fit_is_refused_with_file_and_line() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("zero.toml");
    std::fs::write(&file, std::fs::read_to_string(NETWORK).unwrap().replace("count = 6", "count = 0"))
        .unwrap();
    let file = file.to_str().unwrap();
    refuses(
        &["train", "--network", file, "--data", "drawn", "--data-dir", "."],
        &format!("{file}:10: device.count: expected 1 to 64 device slots, found 0"),
    );
}

#[test]
fn a_network_beyond_any_memory_is_refused_before_anything_is_allocated() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("wide.toml");
    let wide = "{ kind = \"fc\", outputs = 16000000, activation = \"relu\" },";
    let text = std::fs::read_to_string(NETWORK).unwrap();
    let text = text.replace("{ kind = \"fc\" },", &format!("{wide}\n{wide}\n{{ kind = \"fc\" }},"));
    std::fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();
    // 16,000,000 by 16,000,000 weights of 40 bytes.
    let words = [file, "memory: training this network in batches of 128 takes about 95", "set `batch` lower"];
    ended(&run(&["train", "--network", file, "--data", "drawn", "--data-dir", "."]), 2, &words);
}

#[test]
fn an_endless_spec_or_recipe_is_refused() {
    let endless = "/dev/zero: expected at most 1 MiB, found more";
    refuses(&["train", "--network", "/dev/zero", "--data-dir", "."], endless);
    refuses(&["train", "--network", NETWORK, "--recipe", "/dev/zero", "--data-dir", "."], endless);
}

#[test]
fn a_spec_for_other_data_is_refused() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("five.toml");
    std::fs::write(&file, std::fs::read_to_string(NETWORK).unwrap().replace("count = 6", "count = 5"))
        .unwrap();
    let arguments = ["train", "--network", file.to_str().unwrap(), "--data", "drawn", "--data-dir", "."];
    refuses(&arguments, "device.count: expected 6 as in the data, found 5");
}

#[test]
fn a_missing_data_folder_an_unknown_data_set_and_a_missing_file_are_named() {
    refuses(&["train", "--network", NETWORK, "--data-dir", "/nowhere"], "/nowhere: cannot be read");
    refuses(
        &["eval", SHIPPED, "--data", "mnist"],
        "--data mnist: expected --data-dir with it, the folder of its files, found none",
    );
    let files = Path::new(&fresh("idx")).join("train-images-idx3-ubyte");
    std::fs::create_dir_all(files.parent().unwrap()).unwrap();
    std::fs::write(&files, "").unwrap();
    refuses(
        &["eval", SHIPPED, "--data-dir", files.parent().unwrap().to_str().unwrap()],
        "found files that are those of fashion-6cam, fashion-mnist, mnist; name one by --data",
    );
    let of = |data| ["train", "--network", NETWORK, "--data", data, "--data-dir", "/nowhere"];
    let names = CATALOGUE.iter().map(|info| info.name).collect::<Vec<_>>().join(", ");
    refuses(&of("imagenet"), &format!("data set: expected one of {names}, found `imagenet`"));
    refuses(&of("mvmc"), "data set mvmc: /nowhere: expected `MVMC.npz` or `mvmc.npz`, found none");
    refuses(&of("table"), "data set table: /nowhere: cannot be read");
    refuses(&of("mnist"), "data set mnist: /nowhere: expected `train-images-idx3-ubyte.gz` or");
    refuses(&["train", "--network", "none.toml", "--data-dir", "."], "none.toml");
    refuses(&["eval", "none.hwb", "--data-dir", "."], "none.hwb");
}

#[test]
fn help_names_every_command_with_examples_and_exit_codes() {
    let output = run(&["--help"]);
    let text = String::from_utf8_lossy(&output.stdout);
    for word in [
        "new",
        "train",
        "eval",
        "tune",
        "export",
        "parity",
        "single-camera",
        "convert",
        "Examples",
        "Exit codes",
    ] {
        assert!(text.contains(word), "no {word:?} in the help");
    }
}

/// A path that only one test uses, and at which nothing exists.
fn fresh(name: &str) -> String {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    for path in [folder.clone(), folder.with_extension("partial")] {
        if path.exists() {
            std::fs::remove_dir_all(path).unwrap();
        }
    }
    folder.to_str().unwrap().to_owned()
}

#[test]
fn a_data_set_is_converted_to_folders_once_and_the_folders_are_read() {
    let out = fresh("converted");
    let drawn = ["convert", "--data", "drawn", "--data-dir", ".", "--limit", "12", "--out", &out];
    let written = json(&run(&[&drawn[..], &["--json"]].concat()), 0);
    let parts = ["train", "validation", "test", "calibration"].map(|part| written[part].as_u64().unwrap());
    assert_eq!(parts.iter().sum::<u64>() + written["not_in_view"].as_u64().unwrap(), 48);
    refuses(&drawn, "converted: expected an empty folder or none, found one with files in it");

    let again = fresh("converted-again");
    let folders =
        ["convert", "--data", "folders", "--data-dir", &out, "--slots", "6", "--out", &again, "--json"];
    let read = json(&run(&folders), 0);
    for key in
        ["labels", "slots", "shape", "train", "validation", "test", "calibration", "images", "image_bytes"]
    {
        assert_eq!(read[key], written[key], "{key}");
    }
    refuses(
        &[&folders[..], &["--split", "8,1,1"]].concat(),
        "expected no split, found one; the data has parts of its own",
    );
    refuses(&[&folders[..], &["--split", "8,2"]].concat(), "found `8,2`");
    refuses(&[&folders[..], &["--shape", "2x32x32"]].concat(), "expected CxHxW");
    let mnist = ["convert", "--data", "mnist", "--data-dir", ".", "--split-seed", "1", "--out", &again];
    refuses(&mnist, "data set mnist: expected no split, found one");
}

#[test]
fn a_leak_is_refused_unless_it_is_allowed_and_then_warned_of() {
    let folder = fresh("leaks");
    let grey = Shape { channels: 1, height: 4, width: 4 };
    let picture = image_codec::png(&View::new(grey, vec![90; 16])).unwrap();
    for part in ["train", "val", "test"] {
        let class = Path::new(&folder).join(part).join("a");
        std::fs::create_dir_all(&class).unwrap();
        std::fs::write(class.join("x.png"), &picture).unwrap();
    }
    let out = fresh("leaks-out");
    let convert = ["convert", "--data", "folders", "--data-dir", &folder, "--out", &out];
    refuses(
        &convert,
        "expected no image in two parts (a camera that does not see a sample has no file), found the same bytes in `train/a/x.png` and `val/a/x.png`",
    );
    ended(&run(&[&convert[..], &["--allow-leaks"]].concat()), 0, &["warning: folders: leak: 2 times"]);
}

#[test]
fn what_is_left_out_is_a_warning_and_refused_by_strict() {
    let folder = fresh("left-out");
    for (fill, part) in [(10, "train"), (20, "val"), (30, "test")] {
        let class = Path::new(&folder).join(part).join("a");
        std::fs::create_dir_all(&class).unwrap();
        let view = View::new(Shape { channels: 1, height: 4, width: 4 }, vec![fill; 16]);
        std::fs::write(class.join("x"), image_codec::png(&view).unwrap()).unwrap();
    }
    let out = fresh("left-out-strict");
    let convert = ["convert", "--data", "folders", "--data-dir", &folder, "--strict", "--out", &out];
    ended(&run(&convert), 0, &[]);
    std::fs::write(Path::new(&folder).join("train/a/old.bmp"), b"BM").unwrap();
    let note = "1 entries are left out: 1 .bmp (such as `train/a/old.bmp`)";
    let out = fresh("left-out-noted");
    let convert = ["convert", "--data", "folders", "--data-dir", &folder, "--out", &out];
    ended(&run(&convert), 0, &[&format!("warning: folders: {note}")]);
    refuses(
        &[&convert[..], &["--strict"]].concat(),
        &format!("expected nothing to be left out (--strict), found {note}"),
    );
}

#[test]
fn a_sample_that_no_camera_sees_is_left_out_of_folders_and_refused_by_strict() {
    let (folder, out) = (fresh("unseen"), fresh("unseen-out"));
    std::fs::create_dir_all(&folder).unwrap();
    for (fill, name) in [(10, "a.png"), (20, "b.png")] {
        let view = View::new(Shape { channels: 1, height: 4, width: 4 }, vec![fill; 16]);
        std::fs::write(Path::new(&folder).join(name), image_codec::png(&view).unwrap()).unwrap();
    }
    let table = "class,part,file\na,train,a.png\na,val,b.png\na,test,\n";
    std::fs::write(Path::new(&folder).join("labels.csv"), table).unwrap();
    let convert = ["convert", "--data", "table", "--data-dir", &folder, "--out", &out];
    refuses(&[&convert[..], &["--strict"]].concat(), "found none for sample 0 of test");
    ended(&run(&convert), 0, &["warning: no sample of test was written"]);
}
