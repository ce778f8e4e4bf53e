//! A view of a real size from its spec to its bundle: four packed blocks, a coded map wider than a word, pools in the cloud.

use std::path::Path;

use headwater_calibration::data::load;
use headwater_inference::bundle::Bundle;
use headwater_inference::engine::{PackedEngine, TractEngine};
use headwater_inference::sections::{DeviceSection, MapCoder};
use headwater_protocol::Slot;
use headwater_samples::data_set::{Leaks, OpenOptions};
use headwater_samples::fashion_6cam::Fashion6Cam;
use headwater_samples::{Part, Shape, class_folders};
use headwater_spec::Spec;

use crate::program::{Trained, trained};

const SPEC: &str = r#"
[network]
name = "real-size"
configuration = "b"
labels = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]
[device]
count = 1
input = [3, 120, 160]
blocks = [
    { kind = "convp", filters = 8, kernel = 5, stride = 2, pad = 2, pool_stride = 1 },
    { kind = "convp", filters = 16, pool_stride = 1 },
    { kind = "convp", filters = 16, pool_stride = 1 },
    { kind = "convp", filters = 16, pool_stride = 1 },
]
sent_channels = 4
head = { kind = "fc", binary = true }
[cloud]
aggregation = "mp"
blocks = [
    { kind = "pool", size = 4, stride = 4 },
    { kind = "conv", filters = 8 },
    { kind = "pool", global = true, average = true },
    { kind = "fc" },
]
[wire]
scores = "4_bits"
features = "coded"
"#;

#[test]
fn four_packed_blocks_over_a_view_of_120x160_export_with_a_coded_map_of_80_columns() {
    let spec = Spec::parse(Path::new("real-size.toml"), SPEC).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    class_folders::write(&Fashion6Cam::drawn(32, 24, 8), &data, None, |_, _| ()).unwrap();
    let (shape, leaks) = (Some(Shape::rgb(120, 160)), Leaks::Allowed);
    let options = OpenOptions { shape, leaks, ..OpenOptions::default() };
    let parts = load("folders", &data, options).unwrap().first_slot();
    let samples = Part::ALL.map(|part| parts.part(part, None, 2));
    let Trained { finished, .. } = trained(spec, samples, (1, 16, 1.0));

    // Export is refused without parity, of tract and of the packed section.
    let bundle = Bundle::from_bytes(&finished.exported.bytes).unwrap();
    let features = bundle.manifest().features;
    assert_eq!(features.shape(), [4, 60, 80]);
    let packed = finished.exported.packed.as_ref().unwrap();
    assert!(packed.bits > 0 && packed.bits.is_multiple_of(4 * 60 * 80), "{packed:?}");

    let slot = Slot::first(1).next().unwrap();
    let coder = MapCoder::of(&bundle, slot).unwrap().unwrap();
    let view: Vec<u8> = (0..3 * 120 * 160).map(|at| (at % 251) as u8).collect();
    let [packed, tract] = [
        DeviceSection::load(&bundle, slot, &PackedEngine).unwrap().run(&view, 1).unwrap().remove(0),
        DeviceSection::load(&bundle, slot, &TractEngine).unwrap().run(&view, 1).unwrap().remove(0),
    ];
    assert_eq!(packed.scores, tract.scores);
    let (body, mut map) = (coder.encode(&packed.features).unwrap(), Vec::new());
    coder.decode(&body, &mut map).unwrap();
    assert_eq!(map, packed.features);
}
