//! Accuracy and memory of the packed network of `core/kernels/examples/digit` on the whole test part of MNIST.

use std::path::Path;

use headwater_kernels::{CodePath, OwnedSection, Plan, Threshold};
use headwater_samples::{DataSet, Part, mnist};

const SECTION: &[u8] = include_bytes!("../../../core/kernels/examples/digit/section.hwpk");
/// Most bytes for weights and temporaries: as many as eBNN takes (Embedded Binarized Neural Networks, 2017).
const MAX_BYTES: usize = 15_000;
/// Fewest of the 10,000 test images that must be classified right.
const MIN_RIGHT: usize = 9_800;

#[test]
fn weights_and_temporaries_take_15_kb() {
    let plan = Plan::read(SECTION).unwrap();
    let needs = plan.needs(CodePath::PORTABLE.low_memory());
    let weights = 8 * needs.weights
        + needs.signs
        + size_of::<Threshold>() * needs.thresholds
        + size_of::<headwater_kernels::Affine>() * plan.classes();
    let outputs = 4 * plan.classes() + plan.features().len().div_ceil(8);
    let temporaries = 8 * needs.words + 512 * needs.tables + 2 * needs.sums + outputs;
    println!("weights {weights} bytes, temporaries {temporaries} bytes");
    assert!(weights + temporaries <= MAX_BYTES, "{weights} + {temporaries}");
}

#[test]
fn the_network_reads_98_of_100_digits_of_the_test_part() {
    let Some(data) = std::env::var_os("HEADWATER_DATA").map(|root| Path::new(&root).join("mnist")) else {
        println!("left out: HEADWATER_DATA is not set");
        return;
    };
    let mnist = mnist::digits(&data).expect("the folder is there, so it must be sound");
    let mut sections: Vec<OwnedSection> = CodePath::available()
        .flat_map(|path| [path, path.low_memory()])
        .map(|path| OwnedSection::load(SECTION, path).expect("a packed section"))
        .collect();
    let (mut right, mut view) = (0, vec![0; mnist.shape().bytes()]);
    for index in 0..mnist.len(Part::Test) {
        assert!(mnist.view_into(Part::Test, index, 0, &mut view));
        let answers: Vec<Vec<i32>> =
            sections.iter_mut().map(|section| section.run(&view).0.to_vec()).collect();
        assert!(answers.iter().all(|scores| *scores == answers[0]), "image {index}: paths differ");
        let best = (0..answers[0].len()).max_by_key(|&class| answers[0][class]).unwrap();
        right += usize::from(best == usize::from(mnist.label(Part::Test, index)));
    }
    println!("{right} of {} right", mnist.len(Part::Test));
    assert!(right >= MIN_RIGHT, "{right}");
}
