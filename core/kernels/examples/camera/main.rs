//! A camera without an operating system, in memory of fixed size.
//!
//! The packed section for the first device of the shipped network is a static array, and so is the view, one of the shipped samples.
//! The section runs without allocation; the crate is built without `std`.
//!
//! `cargo run --release -p headwater-kernels --example camera`
//!
//! `section.hwpk` is `device-0.packed` of `models/shipped/fashion-6cam.hwb`; `view.chw` are the pixels of `00000/cam0.webp` of
//! `io/samples/shipped/fashion-6cam-300.tar.gz`, channel by channel.

use headwater_kernels::{Affine, CodePath, Outputs, Plan, Scratch, Section, SumTable, Threshold, Weights};

static SECTION: [u8; 2730] = *include_bytes!("section.hwpk");
static VIEW: [u8; 3 * 32 * 32] = *include_bytes!("view.chw");

const LABELS: [&str; 10] = [
    "t-shirt/top",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
];

/// Runs the section on the view as often as the argument says, or once without an argument.
/// `scripts/check/instructions` counts the instructions of several runs.
fn main() -> Result<(), String> {
    let runs: u32 = match std::env::args().nth(1) {
        None => 1,
        Some(runs) => runs.parse().map_err(|_| format!("runs: expected a whole number, found {runs:?}"))?,
    };
    let plan = Plan::read(&SECTION).expect("a packed section");
    // The fastest code path; a microcontroller has the portable one.
    let path = CodePath::best();
    let needs = plan.needs(path);

    // Weights in the order in which kernels read them. A board prepares them once.
    let mut words = [0; 320];
    let mut signs = [0; 72];
    let mut thresholds = [Threshold::default(); 8];
    let mut classes = [Affine::default(); LABELS.len()];
    let weights_bytes =
        size_of_val(&words) + size_of_val(&signs) + size_of_val(&thresholds) + size_of_val(&classes);
    let weights = Weights {
        words: &mut words,
        signs: &mut signs,
        vectors: &mut [],
        thresholds: &mut thresholds,
        classes: &mut classes,
    };
    let section = Section::load(&plan, path, &SECTION, weights).expect("a packed section");

    // Scratch memory, the same for every view.
    let mut words = [0; 288];
    let mut tables = [SumTable::default(); 9];
    let mut sums = [0; 105];
    assert_eq!((words.len(), tables.len(), sums.len()), (needs.words, needs.tables, needs.sums));
    let (mut scores, mut features) = ([0; LABELS.len()], [0; 256]);
    for _ in 0..runs {
        let scratch = Scratch { words: &mut words, tables: &mut tables, sums: &mut sums, bytes: &mut [] };
        section.run(&VIEW, scratch, Outputs { scores: &mut scores, features: &mut features });
    }

    let best = (0..LABELS.len()).max_by_key(|&class| scores[class]).unwrap_or(0);
    println!("class         {}, score {:.3}", LABELS[best], scores[best] as f32 * plan.scale());
    println!("section       {} bytes, as shipped", SECTION.len());
    println!("weights       {weights_bytes} bytes, as run");
    println!("scratch       {} bytes", size_of_val(&words) + size_of_val(&tables) + size_of_val(&sums));
    Ok(())
}
