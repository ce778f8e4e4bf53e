//! `headwater-train new`, and `train` without a network: spec and recipe from the data alone.

use std::path::Path;

use headwater_samples::Shape;
use headwater_spec::Spec;
use headwater_training::recipe::Recipe;

use crate::program::{DDNN_C, DRAWN, Scratch, ended, json, run, run_on, stderr, stdout, without_labels};

/// Writes photos of a class into each part of the folder `my photos`: stripes of `width` pixels, different in each photo.
fn write_class(folder: &Scratch, class: &str, width: usize, photos: [usize; 3]) {
    for (part, photos) in ["train", "val", "test"].into_iter().zip(photos) {
        for photo in 0..photos {
            let seed = 7 * photo + part.len();
            let pixel = |at: usize| {
                let (plane, row, column) = (at / 8000, at / 100 % 80, at % 100);
                let stripe = (column + seed * row / 9) / width % 2;
                (40 * plane + 120 * stripe + seed % 40) as u8
            };
            folder.write_image(&format!("my photos/{part}/{class}/{photo}.png"), Shape::rgb(80, 100), pixel);
        }
    }
}

fn spec(run: &str) -> Spec {
    Spec::read(&Path::new(run).join("spec.toml")).unwrap()
}

fn recipe(run: &str) -> Recipe {
    Recipe::read(Some(&Path::new(run).join("recipe.toml"))).unwrap()
}

#[test]
fn spec_and_recipe_for_a_folder_of_photos_fit_and_an_edited_one_stays() {
    let folder = Scratch::new();
    let (photos, out) = (folder.path("my photos"), folder.path("out"));
    write_class(&folder, "wide", 11, [12, 2, 2]);
    write_class(&folder, "narrow", 3, [2, 2, 2]);
    let new = ["new", "--data", &photos, "--out", &out];
    let output = run(&new);
    let read_as = "my photos: read as --data folders, told by its files";
    ended(&output, 0, &[read_as, "`narrow` has 2 train samples", "class imbalance in the train part"]);
    let said = stdout(&output);
    let found = "found    1 camera, 2 classes (narrow 2, wide 12 in train), 14 train, 4 validation";
    assert!(said.contains(found), "{said}");
    assert!(said.contains("by 4 val samples one near 90 % is known as"), "{said}");
    assert!(said.trim_end().ends_with(&format!("--data '{photos}'")), "as it was given: {said}");

    let spec = spec(&out);
    assert_eq!((spec.network.network.name.as_str(), spec.network.slots()), ("my-photos", 1));
    assert_eq!((spec.network.view(), spec.network.network.labels.get_ref().len()), ([3, 80, 96], 2));
    assert!(recipe(&out).steps(14) >= 1000);
    let train = run(&["train", "--data", &photos, "--out", &folder.path("run"), "--epochs", "1"]);
    ended(&train, 0, &["`narrow` has 2 train samples"]);
    let warned = stderr(&train).matches("class imbalance in the train part").count();
    assert_eq!(warned, 2, "the beginning of the training warns, and its end again");

    folder.write("out/recipe.toml", "epochs = 3\n");
    ended(&run(&new), 2, &["spec.toml: expected no file, found one, which may be edited"]);
    assert_eq!(folder.read("out/recipe.toml"), "epochs = 3\n");
    let same = format!("{photos}/.");
    let found = json(&run(&["new", "--data", &same, "--out", &folder.path("other"), "--json"]), 0);
    assert_eq!(found["view"], serde_json::json!([3, 80, 96]));
    assert_eq!(found["found"]["of_class"], serde_json::json!([2, 12]));
    let [other, first] = ["other/spec.toml", "out/spec.toml"].map(|file| folder.read(file));
    assert_eq!(other, first, "one folder has one spec, whatever its path: a run is known by it");
}

#[test]
fn one_class_is_refused_with_what_to_do() {
    let folder = Scratch::new();
    write_class(&folder, "only", 5, [3, 1, 1]);
    let words = ["expected two classes or more, found [\"only\"]; give each class a folder of its own"];
    for command in ["new", "train"] {
        ended(&run(&[command, "--data", &folder.path("my photos")]), 2, &words);
    }
}

#[test]
fn train_without_a_network_trains_what_new_chooses_and_says_so() {
    let folder = Scratch::new();
    let (out, ran) = (folder.path("out"), folder.path("ran"));
    ended(&run_on(&DRAWN, &["new", "--out", &out]), 0, &[]);
    let train = ["train", "--out", &ran, "--limit-train", "96", "--epochs", "1"];
    let says = "no --network: spec and recipe are chosen from the data; `headwater-train new --data drawn --data-dir .` writes them";
    ended(&run_on(&DRAWN, &train), 0, &[says]);
    assert_eq!(spec(&out).text, spec(&ran).text);
    assert_eq!(Recipe { epochs: 1, ..recipe(&out) }, recipe(&ran));
}

#[test]
fn labels_that_a_spec_leaves_out_are_those_of_the_data_in_the_run() {
    let folder = Scratch::new();
    let (network, ran) = (folder.write("own.toml", &without_labels()), folder.path("run"));
    let train = ["train", "--network", &network, "--out", &ran, "--limit-train", "64", "--epochs", "1"];
    ended(&run_on(&DRAWN, &train), 0, &[]);
    let whole = Spec::read(Path::new(DDNN_C)).unwrap();
    assert_eq!(spec(&ran).network.network.labels.get_ref(), whole.network.network.labels.get_ref());
}
