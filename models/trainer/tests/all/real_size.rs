//! A view of a real size from its spec to its bundle: four packed blocks, a coded map wider than a word, pools in the cloud.

use std::path::Path;

use headwater_calibration::data::Parts;
use headwater_inference::bundle::Bundle;
use headwater_inference::engine::{PackedEngine, TractEngine};
use headwater_inference::sections::{DeviceSection, MapCoder};
use headwater_protocol::Slot;
use headwater_samples::fashion_6cam::Fashion6Cam;
use headwater_samples::{DataSet, Part, Shape};
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

const SHAPE: Shape = Shape { channels: 3, height: 120, width: 160 };
/// Side of a view of the drawings.
const SIDE: usize = 32;

/// Drawings whose views are enlarged: each pixel is the nearest one of the drawing.
struct Enlarged(Fashion6Cam);

impl DataSet for Enlarged {
    fn labels(&self) -> Vec<String> {
        self.0.labels()
    }

    fn slots(&self) -> usize {
        self.0.slots()
    }

    fn shape(&self) -> Shape {
        SHAPE
    }

    fn len(&self, part: Part) -> usize {
        self.0.len(part)
    }

    fn label(&self, part: Part, index: usize) -> u16 {
        self.0.label(part, index)
    }

    fn view_into(&self, part: Part, index: usize, slot: usize, pixels: &mut [u8]) -> bool {
        let Shape { height, width, .. } = SHAPE;
        let mut drawing = vec![0; SHAPE.channels * SIDE * SIDE];
        let seen = self.0.view_into(part, index, slot, &mut drawing);
        if seen {
            for (at, pixel) in pixels.iter_mut().enumerate() {
                let (channel, y, x) = (at / width / height, at / width % height, at % width);
                *pixel = drawing[(channel * SIDE + y * SIDE / height) * SIDE + x * SIDE / width];
            }
        }
        seen
    }
}

#[test]
fn four_packed_blocks_over_a_view_of_120x160_export_with_a_coded_map_of_80_columns() {
    let spec = Spec::parse(Path::new("real-size.toml"), SPEC).unwrap();
    let parts = Parts::of(Box::new(Enlarged(Fashion6Cam::drawn(32, 24, 8)))).first_slot();
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
