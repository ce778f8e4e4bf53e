//! Messages and exit codes of the command.

use headwater_samples::Shape;
use headwater_samples::catalogue::CATALOGUE;

use crate::program::{DDNN_C as NETWORK, DRAWN, SHIPPED, Scratch, ended, json, run, run_on, stdout};

/// Shape of a small grey image.
const GREY: Shape = Shape { channels: 1, height: 4, width: 4 };

#[track_caller]
fn refuses(arguments: &[&str], message: &str) {
    ended(&run(arguments), 2, &[message]);
}

#[test]
fn a_spec_that_does_not_fit_itself_or_the_data_is_refused() {
    let folder = Scratch::new();
    for (count, expected) in [
        ("count = 0", "spec.toml:10: device.count: expected 1 to 64 device slots, found 0"),
        ("count = 5", "spec.toml: device.count: expected 6 as in the data, found 5"),
    ] {
        let text = std::fs::read_to_string(NETWORK).unwrap().replace("count = 6", count);
        let train = ["train", "--network", &folder.write("spec.toml", &text)];
        ended(&run_on(&DRAWN, &train), 2, &[expected]);
    }
}

#[test]
fn a_network_beyond_any_memory_is_refused_before_anything_is_allocated() {
    let folder = Scratch::new();
    let wide = "{ kind = \"fc\", outputs = 16000000, activation = \"relu\" },";
    let text = std::fs::read_to_string(NETWORK).unwrap();
    let text = text.replace("{ kind = \"fc\" },", &format!("{wide}\n{wide}\n{{ kind = \"fc\" }},"));
    let file = folder.write("wide.toml", &text);
    // 16,000,000 by 16,000,000 weights of 40 bytes.
    let words = ["memory: training this network in batches of 128 takes about 95", "`batch` lower", &file];
    ended(&run_on(&DRAWN, &["train", "--network", &file]), 2, &words);
}

#[test]
fn an_endless_spec_or_recipe_is_refused() {
    let endless = "/dev/zero: expected at most 1 MiB, found more";
    refuses(&["train", "--network", "/dev/zero", "--data-dir", "."], endless);
    refuses(&["train", "--network", NETWORK, "--recipe", "/dev/zero", "--data-dir", "."], endless);
}

#[test]
fn a_missing_data_folder_an_unknown_data_set_and_a_missing_file_are_named() {
    refuses(&["train", "--network", NETWORK, "--data-dir", "/nowhere"], "/nowhere: cannot be read");
    refuses(
        &["eval", SHIPPED, "--data", "mnist"],
        "--data mnist: expected --data-dir with it, the folder of its files, found none",
    );
    let folder = Scratch::new();
    folder.write("train-images-idx3-ubyte", "");
    refuses(
        &["eval", SHIPPED, "--data-dir", &folder.path("")],
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
    let text = stdout(&output);
    let commands = "new train eval tune export parity single-camera convert";
    for word in commands.split(' ').chain(["Examples", "Exit codes"]) {
        assert!(text.contains(word), "no {word:?} in the help");
    }
}

#[test]
fn a_data_set_is_converted_to_folders_once_and_the_folders_are_read() {
    let folder = Scratch::new();
    let (out, again) = (folder.path("converted"), folder.path("again"));
    let drawn = ["convert", "--data", "drawn", "--data-dir", ".", "--limit", "12", "--out", &out];
    let written = json(&run_on(&["--json"], &drawn), 0);
    let parts = ["train", "validation", "test", "calibration"].map(|part| written[part].as_u64().unwrap());
    assert_eq!(parts.iter().sum::<u64>() + written["not_in_view"].as_u64().unwrap(), 48);
    refuses(&drawn, "converted: expected an empty folder or none, found one with files in it");

    let folders =
        ["convert", "--data", "folders", "--data-dir", &out, "--slots", "6", "--out", &again, "--json"];
    let read = json(&run(&folders), 0);
    for key in
        ["labels", "slots", "shape", "train", "validation", "test", "calibration", "images", "image_bytes"]
    {
        assert_eq!(read[key], written[key], "{key}");
    }
    for (further, expected) in [
        (["--split", "8,1,1"], "expected no split, found one; the data has parts of its own"),
        (["--split", "8,2"], "found `8,2`"),
        (["--shape", "2x32x32"], "expected CxHxW"),
    ] {
        ended(&run_on(&further, &folders), 2, &[expected]);
    }
    let mnist = ["convert", "--data", "mnist", "--data-dir", ".", "--split-seed", "1", "--out", &again];
    refuses(&mnist, "data set mnist: expected no split, found one");
}

#[test]
fn a_leak_is_refused_unless_it_is_allowed_and_then_warned_of() {
    let folder = Scratch::new();
    for part in ["train", "val", "test"] {
        folder.write_image(&format!("data/{part}/a/x.png"), GREY, |_| 90);
    }
    let (data, out) = (folder.path("data"), folder.path("out"));
    let convert = ["convert", "--data", "folders", "--data-dir", &data, "--out", &out];
    refuses(
        &convert,
        "expected no image in two parts (a camera that does not see a sample has no file), found the same bytes in `train/a/x.png` and `val/a/x.png`",
    );
    ended(&run_on(&["--allow-leaks"], &convert), 0, &["warning: folders: leak: 2 times"]);
}

#[test]
fn what_is_left_out_is_a_warning_and_refused_by_strict() {
    let folder = Scratch::new();
    for (fill, part) in [(10, "train"), (20, "val"), (30, "test")] {
        folder.write_image(&format!("data/{part}/a/x"), GREY, |_| fill);
    }
    let (data, out, noted) = (folder.path("data"), folder.path("out"), folder.path("noted"));
    let convert = |out: &str, strict: &[&str]| {
        run_on(strict, &["convert", "--data", "folders", "--data-dir", &data, "--out", out])
    };
    ended(&convert(&out, &["--strict"]), 0, &[]);
    folder.write("data/train/a/old.bmp", "BM");
    let note = "1 entries are left out: 1 .bmp (such as `train/a/old.bmp`)";
    ended(&convert(&noted, &[]), 0, &[&format!("warning: folders: {note}")]);
    let refusal = format!("expected nothing to be left out (--strict), found {note}");
    ended(&convert(&noted, &["--strict"]), 2, &[&refusal]);
}

#[test]
fn a_sample_that_no_camera_sees_is_left_out_of_folders_and_refused_by_strict() {
    let folder = Scratch::new();
    for (fill, name) in [(10, "data/a.png"), (20, "data/b.png")] {
        folder.write_image(name, GREY, |_| fill);
    }
    folder.write("data/labels.csv", "class,part,file\na,train,a.png\na,val,b.png\na,test,\n");
    let (data, out) = (folder.path("data"), folder.path("out"));
    let convert = ["convert", "--data", "table", "--data-dir", &data, "--out", &out];
    ended(&run_on(&["--strict"], &convert), 2, &["found none for sample 0 of test"]);
    ended(&run(&convert), 0, &["warning: no sample of test was written"]);
}
