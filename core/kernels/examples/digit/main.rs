//! Reads a handwritten digit without an operating system, in memory of fixed size.
//!
//! The packed network for MNIST is a static array, and the digit is drawn below. Nothing allocates; the crate is built without `std`.
//!
//! `cargo run --release -p headwater-kernels --example digit`
//!
//! `section.hwpk` is `device-0.packed` of the bundle that `headwater-train train --network models/networks/mnist.toml --data mnist`
//! writes; `docs/results/kernels.md` has its accuracy.

use headwater_kernels::{Affine, CodePath, Outputs, Plan, Scratch, Section, SumTable, Threshold, Weights};

static SECTION: &[u8] = include_bytes!("section.hwpk");

/// A digit of 14x14 squares, two characters each. Each square is four of the network's 28x28 pixels.
const DRAWN: [&str; SIDE / 2] = [
    "                            ",
    "                            ",
    "      ::########::          ",
    "      ##############        ",
    "                ::##        ",
    "                ##::        ",
    "              ::##          ",
    "              ##::          ",
    "            ::##            ",
    "            ##::            ",
    "          ::##              ",
    "          ##::              ",
    "                            ",
    "                            ",
];
const SIDE: usize = 28;

fn drawn() -> [u8; SIDE * SIDE] {
    let mut pixels = [0; SIDE * SIDE];
    for (at, pixel) in pixels.iter_mut().enumerate() {
        let (y, x) = (at / SIDE, at % SIDE);
        *pixel = match DRAWN[y / 2].as_bytes()[x / 2 * 2] {
            b'#' => 255,
            b':' => 128,
            _ => 0,
        };
    }
    pixels
}

fn main() {
    let plan = Plan::read(SECTION).expect("a packed section");
    // The path with the instructions that the program is compiled for, and with the least memory.
    let path = CodePath::PORTABLE.low_memory();
    let needs = plan.needs(path);

    // Weights in the order in which kernels read them. A board prepares them once.
    let mut words = [0; 550];
    let mut signs = [0; 72];
    let mut thresholds = [Threshold::default(); 64];
    let mut classes = [Affine::default(); 10];
    let weights_bytes =
        size_of_val(&words) + size_of_val(&signs) + size_of_val(&thresholds) + size_of_val(&classes);
    let weights = Weights {
        words: &mut words,
        signs: &mut signs,
        vectors: &mut [],
        thresholds: &mut thresholds,
        classes: &mut classes,
    };
    let section = Section::load(&plan, path, SECTION, weights).expect("a packed section");

    // Scratch memory, the same for every digit.
    let mut words = [0; 898];
    let mut tables = [SumTable::default(); 3];
    let mut sums = [0; 35];
    assert_eq!((words.len(), tables.len(), sums.len()), (needs.words, needs.tables, needs.sums));
    let (mut scores, mut features) = ([0; 10], [0; 245]);
    let scratch_bytes = size_of_val(&words)
        + size_of_val(&tables)
        + size_of_val(&sums)
        + size_of_val(&scores)
        + size_of_val(&features);
    let scratch = Scratch { words: &mut words, tables: &mut tables, sums: &mut sums, bytes: &mut [] };
    section.run(&drawn(), scratch, Outputs { scores: &mut scores, features: &mut features });

    let best = (0..10).max_by_key(|&class| scores[class]).unwrap_or(0);
    println!("class         {best}, score {:.3}", scores[best] as f32 * plan.scale());
    println!("section       {} bytes, as shipped", SECTION.len());
    println!("weights       {weights_bytes} bytes, as run");
    println!("scratch       {scratch_bytes} bytes");
    println!("in all        {} bytes", weights_bytes + scratch_bytes);
}
