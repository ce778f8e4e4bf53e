//! `headwater-train new`, and `train` without a network: spec and recipe from the data alone.

use std::path::Path;

use headwater_samples::{Shape, View, image_codec};
use headwater_spec::Spec;
use headwater_training::recipe::Recipe;

use crate::program::{NETWORKS, ended, json, run};

/// Writes photos of a class into each part of a folder: stripes of so many pixels, other ones in each photo.
fn write_class(folder: &Path, class: &str, width: usize, photos: [usize; 3]) {
    let shape = Shape::rgb(80, 100);
    for (part, photos) in ["train", "val", "test"].into_iter().zip(photos) {
        let folder = folder.join(part).join(class);
        std::fs::create_dir_all(&folder).unwrap();
        for photo in 0..photos {
            let seed = 7 * photo + part.len();
            let pixel = |at: usize| {
                let (plane, row, column) = (at / 8000, at / 100 % 80, at % 100);
                let stripe = (column + seed * row / 9) / width % 2;
                (40 * plane + 120 * stripe + seed % 40) as u8
            };
            let view = View::new(shape, (0..shape.bytes()).map(pixel).collect());
            std::fs::write(folder.join(format!("{photo}.png")), image_codec::png(&view).unwrap()).unwrap();
        }
    }
}

#[test]
fn spec_and_recipe_for_a_folder_of_photos_fit_and_an_edited_one_stays() {
    let folder = tempfile::tempdir().unwrap();
    let (photos, out) = (folder.path().join("my photos"), folder.path().join("out"));
    write_class(&photos, "wide", 11, [12, 2, 2]);
    write_class(&photos, "narrow", 3, [2, 2, 2]);
    let new = ["new", "--data", photos.to_str().unwrap(), "--out", out.to_str().unwrap()];
    let output = run(&new);
    let read_as = "my photos: read as --data folders, told by its files";
    ended(&output, 0, &[read_as, "`narrow` has 2 train samples", "class imbalance in the train part"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("2 classes (narrow 2, wide 12 in train), 14 train, 4 validation"), "{said}");
    assert!(said.contains("4 val samples know one near 90 % as"), "{said}");
    assert!(said.trim_end().ends_with(&format!("--data '{}'", photos.display())), "as it was given: {said}");

    let spec = Spec::read(&out.join("spec.toml")).unwrap();
    assert_eq!((spec.network.network.name.as_str(), spec.network.slots()), ("my-photos", 1));
    assert_eq!((spec.network.view(), spec.network.network.labels.get_ref().len()), ([3, 80, 96], 2));
    let recipe = Recipe::read(Some(&out.join("recipe.toml"))).unwrap();
    assert!(recipe.steps(14) >= 1000, "{recipe:?}");

    std::fs::write(out.join("recipe.toml"), "epochs = 3\n").unwrap();
    ended(&run(&new), 2, &["spec.toml: expected no file, found one, which may be edited"]);
    assert_eq!(std::fs::read_to_string(out.join("recipe.toml")).unwrap(), "epochs = 3\n");
    let other = folder.path().join("other");
    let same = photos.join(".");
    let new = ["new", "--data", same.to_str().unwrap(), "--out", other.to_str().unwrap(), "--json"];
    let found = json(&run(&new), 0);
    assert_eq!(found["view"], serde_json::json!([3, 80, 96]));
    assert_eq!(found["found"]["of_class"], serde_json::json!([2, 12]));
    let text = |folder: &Path| std::fs::read_to_string(folder.join("spec.toml")).unwrap();
    assert_eq!(text(&other), text(&out), "one folder has one spec, whatever its path: a run is known by it");
}

#[test]
fn one_class_is_refused_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    write_class(folder.path(), "only", 5, [3, 1, 1]);
    let data = folder.path().to_str().unwrap();
    let words = ["expected two classes or more, found [\"only\"]; give each class a folder of its own"];
    ended(&run(&["new", "--data", data]), 2, &words);
    ended(&run(&["train", "--data", data]), 2, &words);
}

#[test]
fn train_without_a_network_trains_what_new_chooses_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (out, ran) = (path("out"), path("ran"));
    let drawn = ["--data", "drawn", "--data-dir", "."];
    ended(&run(&[&["new", "--out", out.as_str()][..], &drawn].concat()), 0, &[]);
    let train =
        [&["train", "--out", ran.as_str(), "--limit-train", "96", "--epochs", "1"][..], &drawn].concat();
    let says = "no --network: spec and recipe are chosen from the data; `headwater-train new --data drawn --data-dir .` writes them";
    ended(&run(&train), 0, &[says]);
    let text = |folder: &str| std::fs::read_to_string(Path::new(folder).join("spec.toml")).unwrap();
    assert_eq!(text(&out), text(&ran));
    let chosen = Recipe::read(Some(&Path::new(&out).join("recipe.toml"))).unwrap();
    let trained = Recipe::read(Some(&Path::new(&ran).join("recipe.toml"))).unwrap();
    assert_eq!(Recipe { epochs: 1, ..chosen }, trained);
}

#[test]
fn labels_that_a_spec_leaves_out_are_those_of_the_data_in_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(Path::new(NETWORKS).join("ddnn-c.toml")).unwrap();
    let without: Vec<&str> = text.lines().filter(|line| !line.starts_with("labels = ")).collect();
    let (network, ran) = (folder.path().join("own.toml"), folder.path().join("run"));
    std::fs::write(&network, without.join("\n")).unwrap();
    let train = ["train", "--network", network.to_str().unwrap(), "--out", ran.to_str().unwrap()];
    let data = ["--data", "drawn", "--data-dir", ".", "--limit-train", "64", "--epochs", "1"];
    ended(&run(&[&train[..], &data].concat()), 0, &[]);
    let [spec, whole] = [ran.join("spec.toml"), Path::new(NETWORKS).join("ddnn-c.toml")]
        .map(|file| Spec::read(&file).unwrap());
    assert_eq!(spec.network.network.labels.get_ref(), whole.network.network.labels.get_ref());
}
