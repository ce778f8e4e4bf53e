//! Regions of one camera as slots, from the spec to the bundle, and the data that is opened for that bundle.

use std::path::Path;

use headwater_inference::bundle::Bundle;
use headwater_protocol::{Fit, Slot};
use headwater_samples::{Shape, View, image_codec};

use crate::program::{NETWORKS, ended, json, run};

/// Photos of one camera: of class `a` its left half is bright, of class `b` its right half.
fn write_photos(folder: &Path) {
    let shape = Shape::rgb(24, 40);
    for (part, photos) in [("train", 0..32_usize), ("val", 32..40), ("test", 40..48)] {
        for class in ["a", "b"] {
            let folder = folder.join(part).join(class);
            std::fs::create_dir_all(&folder).unwrap();
            for photo in photos.clone() {
                let pixel = |at: usize| {
                    let is_bright = (at % 40 < 20) == (class == "a");
                    let noise = (at * 31 + photo * 17) % 60;
                    (noise + if is_bright { 180 } else { 10 }) as u8
                };
                let view = View::new(shape, (0..shape.bytes()).map(pixel).collect());
                let file = folder.join(format!("{photo}.png"));
                std::fs::write(file, image_codec::png(&view).unwrap()).unwrap();
            }
        }
    }
}

#[test]
fn several_regions_of_one_camera_train_as_slots_and_stand_in_the_bundle() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (photos, network, ran) = (path("photos"), path("halves.toml"), path("run"));
    write_photos(Path::new(&photos));
    let text = std::fs::read_to_string(Path::new(NETWORKS).join("ddnn-c.toml")).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("labels = ")).collect();
    let regions = "regions = [\"0%,0%,50%,100%\", \"50%,0%,50%,100%\"]";
    let framed = format!("count = 2\nfit = \"letterbox\"\n{regions}");
    let spec = lines.join("\n").replace("count = 6", &framed);
    std::fs::write(&network, &spec).unwrap();
    let data = ["--data", "folders", "--data-dir", &photos];
    let train = ["train", "--network", &network, "--out", &ran, "--epochs", "1"];
    ended(&run(&[&train[..], &data].concat()), 0, &[]);

    let file = Path::new(&ran).join("bundle.hwb");
    let bundle = Bundle::open(&file).unwrap();
    let view = &bundle.manifest().preprocessing;
    let framings: Vec<_> = Slot::first(2).map(|slot| view.framing(slot)).collect();
    assert!(framings.iter().all(|framing| framing.fit == Fit::Letterbox), "{framings:?}");
    let found = framings.iter().map(|framing| framing.roi.unwrap().to_string()).collect::<Vec<_>>();
    assert_eq!(found, ["0%,0%,50%,100%", "50%,0%,50%,100%"]);
    // The run and its bundle open the photos alike: one image for two slots.
    let eval = |path: &str| json(&run(&[&["eval", path, "--json"][..], &data].concat()), 0);
    assert_eq!(eval(&ran), eval(file.to_str().unwrap()));

    std::fs::write(&network, spec.replace("count = 2", "count = 3")).unwrap();
    let refused = run(&[&train[..], &data].concat());
    ended(&refused, 2, &["expected a region for each of 3 slots, found 2 regions"]);
    let drawn = ["--data", "drawn", "--data-dir", "."];
    std::fs::write(&network, spec).unwrap();
    ended(&run(&[&train[..], &drawn].concat()), 2, &["device.regions", "found 2 regions"]);
}
