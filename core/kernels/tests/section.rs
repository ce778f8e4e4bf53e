//! Packed sections against the reference on every code path, over many shapes, and bytes that are refused.

use headwater_kernels::testing::reference;
use headwater_kernels::{
    Affine, BlockParts, CodePath, Convp, HeadParts, InputKind, Map, OwnedSection, PackedError, Plan,
    Threshold, Window, packed_len, write,
};
use proptest::prelude::*;

/// The parts of a section before they are packed.
#[derive(Clone, Debug)]
struct Parts {
    input: InputKind,
    blocks: Vec<(Convp, Vec<bool>, Vec<Threshold>)>,
    head: Vec<bool>,
    classes: Vec<Affine>,
    /// Number of channels that are features.
    sent: usize,
}

impl Parts {
    fn bytes(&self) -> Result<Vec<u8>, PackedError> {
        let blocks: Vec<_> = self
            .blocks
            .iter()
            .map(|(shape, weights, thresholds)| BlockParts { shape: *shape, weights, thresholds })
            .collect();
        let head = HeadParts { weights: &self.head, classes: &self.classes, scale: 0.5 };
        let mut bytes = Vec::new();
        write(self.input, &blocks, &head, self.sent, |part| bytes.extend_from_slice(part)).map(|()| bytes)
    }

    fn input_bytes(&self) -> usize {
        let values = self.blocks[0].0.input.len();
        if self.input == InputKind::Pixels { values } else { packed_len(values) }
    }

    /// Scores and features by the plain reference.
    fn reference(&self, input: &[u8]) -> (Vec<i32>, Vec<bool>) {
        let mut features: Vec<bool> = Vec::new();
        if self.input == InputKind::Bits {
            features =
                (0..self.blocks[0].0.input.len()).map(|at| input[at / 8] >> (at % 8) & 1 == 1).collect();
        }
        for (index, (shape, weights, thresholds)) in self.blocks.iter().enumerate() {
            let Map { height, width, .. } = shape.input;
            let value = |channel: usize, row: usize, column: usize| {
                let at = (channel * height + row) * width + column;
                if index == 0 && self.input == InputKind::Pixels {
                    i32::from(input[at])
                } else {
                    i32::from(features[at]) * 2 - 1
                }
            };
            let mut output = vec![false; shape.output().len()];
            reference::convp(*shape, value, weights, thresholds, &mut output);
            features = output;
        }
        let rows = self.head.chunks_exact(features.len());
        let scores = rows
            .zip(&self.classes)
            .map(|(row, class)| reference::dot(row, &features) * class.factor + class.offset);
        let scores = scores.collect();
        let output = self.blocks.last().expect("at least one block").0.output();
        features.truncate(self.sent * output.height * output.width);
        (scores, features)
    }
}

/// Reads a section and runs it twice on one code path: the first run must not change the second.
fn run(bytes: &[u8], input: &[u8], path: CodePath) -> Result<(Vec<i32>, Vec<u8>), PackedError> {
    let mut section = OwnedSection::load(bytes, path)?;
    section.run(&input.iter().map(|byte| !byte).collect::<Vec<_>>());
    let (scores, features) = section.run(input);
    let (scores, features) = (scores.to_vec(), features.to_vec());
    for (limits, score) in section.score_limits().zip(&scores) {
        assert!(limits.contains(score), "{score} outside {limits:?}");
    }
    Ok((scores, features))
}

#[track_caller]
fn check(parts: &Parts, input: &[u8]) {
    let bytes = parts.bytes().unwrap();
    let (scores, features) = parts.reference(input);
    let mut packed = vec![0u8; packed_len(features.len())];
    for (at, &bit) in features.iter().enumerate() {
        packed[at / 8] |= u8::from(bit) << (at % 8);
    }
    for path in CodePath::available().flat_map(|path| [path, path.low_memory()]) {
        let found = run(&bytes, input, path).unwrap();
        assert_eq!(found, (scores.clone(), packed.clone()), "{}", path.name());
    }
}

fn any_window(max_kernel: usize) -> impl Strategy<Value = Window> {
    (1..=max_kernel, 1usize..=3)
        .prop_flat_map(|(kernel, stride)| (0..kernel).prop_map(move |pad| Window { kernel, stride, pad }))
}

/// Windows of the convolution and the pooling of a block. Half of the pairs are the windows of DDNN.
fn block_windows(kernel: usize) -> impl Strategy<Value = (Window, Window)> {
    let ddnn = Window { kernel: 3, stride: 1, pad: 1 };
    prop_oneof![
        2 => Just((ddnn, Window { stride: 2, ..ddnn })),
        1 => (any_window(kernel), any_window(4)),
        1 => any_window(kernel).prop_map(move |conv| (Window { stride: 1, ..conv }, ddnn)),
    ]
}

fn fits(shape: Convp) -> bool {
    let window_fits = |window: Window, map: Map| {
        let side = map.height.min(map.width) + 2 * window.pad;
        window.kernel <= side
    };
    window_fits(shape.conv, shape.input) && window_fits(shape.pool, shape.convolved())
}

/// Shapes of one to three blocks.
fn any_shapes(
    kind: InputKind,
    first: Map,
    kernel: usize,
    filters: usize,
) -> impl Strategy<Value = (InputKind, Vec<Convp>)> {
    prop::collection::vec((block_windows(kernel), 1..=filters), 1..4).prop_filter_map("fits", move |blocks| {
        let mut input = first;
        let mut shapes = Vec::new();
        for ((conv, pool), filters) in blocks {
            let shape = Convp { input, filters, conv, pool };
            if !fits(shape) {
                break;
            }
            input = shape.output();
            shapes.push(shape);
        }
        (!shapes.is_empty()).then_some((kind, shapes))
    })
}

fn any_parts((input, shapes): (InputKind, Vec<Convp>)) -> impl Strategy<Value = Parts> {
    let output = shapes.last().expect("at least one block").output();
    // At least half of the sections send all channels.
    let sent = prop_oneof![Just(output.channels), 1..=output.channels];
    let blocks: Vec<_> = shapes
        .into_iter()
        .enumerate()
        .map(|(index, shape)| {
            let reach =
                (shape.taps() * if index == 0 && input == InputKind::Pixels { 255 } else { 1 }) as i32;
            // Most sums are near zero, so most thresholds are drawn near zero; some are the lowest and the highest allowed.
            let near = (reach / 8).max(1);
            let from = prop_oneof![8 => -near..=near, 1 => Just(-reach), 1 => Just(reach + 1)];
            let threshold = (from, any::<bool>()).prop_map(|(from, flipped)| Threshold { from, flipped });
            (
                Just(shape),
                prop::collection::vec(any::<bool>(), shape.filters * shape.taps()),
                prop::collection::vec(threshold, shape.filters),
            )
        })
        .collect();
    let affine = (-1000..1000, -5000..5000).prop_map(|(factor, offset)| Affine { factor, offset });
    (blocks, prop::collection::vec(affine, 1..5), sent).prop_flat_map(move |(blocks, classes, sent)| {
        let weights = prop::collection::vec(any::<bool>(), output.len() * classes.len());
        (Just(blocks), weights, Just(classes)).prop_map(move |(blocks, head, classes)| Parts {
            sent,
            input,
            blocks,
            head,
            classes,
        })
    })
}

/// A block whose rows take two words before pooling and one word after it.
fn two_words_to_one() -> impl Strategy<Value = (Parts, Vec<u8>)> {
    let input = Map { channels: 2, height: 3, width: 65 };
    let (conv, pool) = (Window { kernel: 3, stride: 1, pad: 1 }, Window { kernel: 2, stride: 2, pad: 0 });
    let shape =
        prop_oneof![Just(3usize), Just(40)].prop_map(move |filters| Convp { input, filters, conv, pool });
    shape.prop_map(|shape| (InputKind::Bits, vec![shape])).prop_flat_map(any_parts).prop_flat_map(|parts| {
        let input = prop::collection::vec(any::<u8>(), parts.input_bytes());
        (Just(parts), input)
    })
}

/// A section over a view of a real size: a first block of stride 2, blocks of many channels, maps wider than a word.
fn view_of_a_real_size() -> impl Strategy<Value = (Parts, Vec<u8>)> {
    let pool = Window { kernel: 3, stride: 2, pad: 1 };
    let conv = Window { stride: 1, ..pool };
    let block = |input, filters, conv| Convp { input, filters, conv, pool };
    let view = Map { channels: 3, height: 40, width: 320 };
    let first = block(view, 8, Window { kernel: 5, stride: 2, pad: 2 });
    let second = block(first.output(), 40, conv);
    let third = block(second.output(), 64, conv);
    assert_eq!(first.output(), Map { channels: 8, height: 10, width: 80 });
    let parts = any_parts((InputKind::Pixels, vec![first, second, third]));
    parts.prop_flat_map(|parts| (Just(parts), prop::collection::vec(any::<u8>(), 3 * 40 * 320)))
}

/// Sections over pixels or bits, with channels and sides in a range.
fn any_case(
    channels: std::ops::Range<usize>,
    sides: std::ops::Range<usize>,
    kernel: usize,
    filters: usize,
) -> impl Strategy<Value = (Parts, Vec<u8>)> {
    let map = (prop_oneof![Just(1usize), Just(3), channels], sides.clone(), sides)
        .prop_map(|(channels, height, width)| Map { channels, height, width });
    let kind = prop_oneof![Just(InputKind::Pixels), Just(InputKind::Bits)];
    (kind, map)
        .prop_flat_map(move |(kind, map)| any_shapes(kind, map, kernel, filters))
        .prop_flat_map(any_parts)
        .prop_flat_map(|parts| {
            let input = prop::collection::vec(any::<u8>(), parts.input_bytes());
            (Just(parts), input)
        })
}

proptest! {
    // The reference takes long for these shapes, so there are fewer cases than usual.
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn many_filters_over_rows_longer_than_a_word_equal_the_reference((parts, pixels) in any_case(1..6, 50..80, 3, 40)) {
        check(&parts, &pixels);
    }
}

proptest! {
    // The reference takes long for these shapes, so there are fewer cases than usual.
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn many_channels_over_maps_of_several_words_equal_the_reference((parts, pixels) in any_case(33..140, 8..20, 4, 70)) {
        check(&parts, &pixels);
    }
}

proptest! {
    // The reference takes long for this shape.
    #![proptest_config(ProptestConfig::with_cases(3))]
    #[test]
    fn a_section_over_a_view_of_a_real_size_equals_the_reference((parts, pixels) in view_of_a_real_size()) {
        check(&parts, &pixels);
    }
}

proptest! {
    #[test]
    fn every_code_path_equals_the_reference((parts, pixels) in any_case(1..6, 1..24, 5, 9)) {
        check(&parts, &pixels);
    }

    #[test]
    fn rows_longer_than_a_word_equal_the_reference((parts, pixels) in any_case(1..6, 50..80, 3, 3)) {
        check(&parts, &pixels);
    }

    #[test]
    fn channels_that_fill_words_equal_the_reference((parts, pixels) in any_case(1..150, 3..8, 3, 140)) {
        check(&parts, &pixels);
    }

    #[test]
    fn many_filters_with_long_kernels_equal_the_reference((parts, pixels) in any_case(1..12, 1..20, 8, 70)) {
        check(&parts, &pixels);
    }

    #[test]
    fn rows_pooled_from_two_words_to_one_equal_the_reference((parts, pixels) in two_words_to_one()) {
        check(&parts, &pixels);
    }

    #[test]
    fn random_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(Plan::read(&bytes).is_err());
    }

    #[test]
    fn a_changed_byte_never_panics((parts, pixels) in any_case(1..6, 1..10, 3, 4), at in any::<prop::sample::Index>(), to in any::<u8>()) {
        let mut bytes = parts.bytes().unwrap();
        let at = at.index(bytes.len());
        bytes[at] = to;
        // A changed weight leaves a valid section; a changed shape mostly implies another length, which is refused.
        if let Ok(plan) = Plan::read(&bytes) {
            prop_assert_eq!(plan.bytes(), bytes.len());
            let pixels: Vec<u8> = pixels.iter().copied().cycle().take(plan.input_bytes()).collect();
            if plan.input().len() < 1 << 16 {
                _ = run(&bytes, &pixels, CodePath::best());
            }
        }
    }

    #[test]
    fn a_truncated_section_is_refused((parts, _) in any_case(1..6, 1..10, 3, 4), cut in any::<prop::sample::Index>()) {
        let bytes = parts.bytes().unwrap();
        prop_assert!(Plan::read(&bytes[..cut.index(bytes.len())]).is_err());
    }
}

fn small() -> Parts {
    let window = Window { kernel: 3, stride: 1, pad: 1 };
    let shape = Convp {
        input: Map { channels: 1, height: 4, width: 4 },
        filters: 1,
        conv: window,
        pool: Window { stride: 2, ..window },
    };
    Parts {
        input: InputKind::Pixels,
        blocks: vec![(shape, vec![true; 9], vec![Threshold { from: 0, flipped: false }])],
        sent: 1,
        head: vec![true; 4],
        classes: vec![Affine { factor: 1, offset: 0 }],
    }
}

/// The parts of `small` with more filters.
fn with_filters(filters: usize) -> Parts {
    let mut parts = small();
    let (shape, weights, thresholds) = &mut parts.blocks[0];
    shape.filters = filters;
    (*weights, *thresholds) = (weights.repeat(filters), thresholds.repeat(filters));
    Parts { head: vec![true; 4 * filters], ..parts }
}

#[track_caller]
fn refused(change: impl FnOnce(&mut Parts), message: &str) {
    let mut parts = small();
    change(&mut parts);
    assert_eq!(parts.bytes().unwrap_err().to_string(), message);
}

#[test]
fn a_fault_in_the_parts_is_named_when_they_are_written() {
    refused(
        |parts| parts.blocks[0].2[0].from = 9 * 255 + 2,
        "packed section, block 0, threshold: expected -2295 to 2296, found 2297",
    );
    refused(
        |parts| parts.blocks[0].1.truncate(8),
        "packed section, block 0, weights: expected 9 to 9, found 8",
    );
    refused(
        |parts| parts.blocks[0].0.conv.pad = 3,
        "packed section, block 0, kernel: expected 0 to 2, found 3",
    );
    refused(
        |parts| parts.classes[0].factor = i32::MAX,
        "packed section, largest score: expected 0 to 2147483647, found 8589934588",
    );
    refused(|parts| parts.sent = 2, "packed section, sent channels: expected 1 to 1, found 2");
    refused(
        |parts| parts.blocks[0].0.conv.kernel = 0,
        "packed section, block 0, kernel: expected 1 to 64, found 0",
    );
    refused(Parts::without_classes, "packed section, classes: expected 1 to 4096, found 0");
}

impl Parts {
    fn without_classes(&mut self) {
        self.classes.clear();
    }
}

#[test]
fn a_fault_in_the_bytes_is_named_when_they_are_read() {
    let bytes = small().bytes().unwrap();
    let read = |at: usize, to: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = to;
        run(&bytes, &[0; 16], CodePath::PORTABLE).unwrap_err().to_string()
    };
    assert_eq!(read(0, b'x'), "packed section: expected it to begin with `HWpk`");
    let of_1 = "packed section: expected version 3, found 1; export the network again";
    assert_eq!(read(4, 1), of_1);
    assert_eq!(read(5, 0), "packed section, blocks: expected 1 to 8, found 0");
    assert_eq!(read(19, 0xff), "packed section, unit of the scores: expected a positive, finite number");
    assert_eq!(read(24, 65), "packed section, block 0, kernel: expected 1 to 64, found 65");
    assert_eq!(read(31, 0xff), "packed section, weights: expected zero bits after the last, found bits set");
    assert_eq!(read(35, 1), "packed section, block 0, threshold: expected -2295 to 2296, found 16777216");
    let two_of_three = Parts { sent: 2, ..with_filters(3) }.bytes().unwrap();
    assert_eq!((bytes[20], two_of_three[20]), (1, 2));
    for (sent, expected) in [(0, "found 0"), (4, "found 4"), (9, "found 9")] {
        let mut changed = two_of_three.clone();
        changed[20] = sent;
        let error = run(&changed, &[0; 16], CodePath::PORTABLE).unwrap_err().to_string();
        assert_eq!(error, format!("packed section, sent channels: expected 1 to 3, {expected}"));
    }
    let longer = [&bytes[..], &[0]].concat();
    let error = run(&longer, &[0; 16], CodePath::PORTABLE).unwrap_err();
    assert_eq!(error, PackedError::Length { expected: bytes.len(), found: bytes.len() + 1 });
}
