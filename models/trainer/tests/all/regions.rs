//! Regions of one camera as slots, from the spec to the bundle, and the data that is opened for that bundle.

use std::path::Path;

use headwater_inference::bundle::Bundle;
use headwater_protocol::{Fit, Slot};
use headwater_samples::Shape;

use crate::program::{DRAWN, Scratch, ended, json, run_on, without_labels};

/// Photos of one camera: of class `a` its left half is bright, of class `b` its right half.
fn write_photos(folder: &Scratch) {
    for (part, photos) in [("train", 0..32_usize), ("val", 32..40), ("test", 40..48)] {
        for class in ["a", "b"] {
            for photo in photos.clone() {
                let pixel = |at: usize| {
                    let is_bright = (at % 40 < 20) == (class == "a");
                    let noise = (at * 31 + photo * 17) % 60;
                    (noise + if is_bright { 180 } else { 10 }) as u8
                };
                folder.write_image(&format!("photos/{part}/{class}/{photo}.png"), Shape::rgb(24, 40), pixel);
            }
        }
    }
}

#[test]
fn several_regions_of_one_camera_train_as_slots_and_stand_in_the_bundle() {
    let folder = Scratch::new();
    let (photos, ran) = (folder.path("photos"), folder.path("run"));
    write_photos(&folder);
    let regions = "regions = [\"0%,0%,50%,100%\", \"50%,0%,50%,100%\"]";
    let framed = format!("count = 2\nfit = \"letterbox\"\n{regions}");
    let spec = without_labels().replace("count = 6", &framed);
    let network = folder.write("halves.toml", &spec);
    let data = ["--data", "folders", "--data-dir", &photos];
    let train = ["train", "--network", &network, "--out", &ran, "--epochs", "1"];
    ended(&run_on(&data, &train), 0, &[]);

    let file = Path::new(&ran).join("bundle.hwb");
    let bundle = Bundle::open(&file).unwrap();
    let view = &bundle.manifest().preprocessing;
    let framings: Vec<_> = Slot::first(2).map(|slot| view.framing(slot)).collect();
    assert!(framings.iter().all(|framing| framing.fit == Fit::Letterbox), "{framings:?}");
    let found = framings.iter().map(|framing| framing.roi.unwrap().to_string()).collect::<Vec<_>>();
    assert_eq!(found, ["0%,0%,50%,100%", "50%,0%,50%,100%"]);
    // The run and its bundle open the photos alike: one image for two slots.
    let eval = |path: &str| json(&run_on(&data, &["eval", path, "--json"]), 0);
    assert_eq!(eval(&ran), eval(file.to_str().unwrap()));

    folder.write("halves.toml", &spec.replace("count = 2", "count = 3"));
    ended(&run_on(&data, &train), 2, &["expected a region for each of 3 slots, found 2 regions"]);
    folder.write("halves.toml", &spec);
    ended(&run_on(&DRAWN, &train), 2, &["device.regions", "found 2 regions"]);
}
