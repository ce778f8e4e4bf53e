//! A device section in your own program: a bundle and a view in, scores and features out.
//! `cargo run --release -p headwater-inference --features tract --example device_section -- models/shipped/fashion-6cam.hwb`

use std::error::Error;

use headwater_inference::bundle::Bundle;
use headwater_inference::engine::PackedEngine;
use headwater_inference::exit::ExitInput;
use headwater_inference::sections::DeviceSection;
use headwater_protocol::{Exit, Slot};

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: device_section BUNDLE")?;
    let bundle = Bundle::open(&path)?;
    let mut section = DeviceSection::load(&bundle, Slot::new(0)?, &PackedEngine)?;
    // Your camera's pixels go here: channels, rows, columns, a byte each; `headwater-samples` decodes and resizes images.
    let view: Vec<u8> = (0..bundle.manifest().preprocessing.view_bytes()).map(|at| at as u8).collect();
    let output = section.run(&view, 1)?.remove(0);
    let local = bundle.policy().of(Exit::LOCAL);
    let answer = local.assess(ExitInput::of_device(&output.scores));
    println!("{}: confidence {:.2}", bundle.manifest().labels[usize::from(answer.class)], answer.confidence);
    println!("features: {} bytes", output.features.len());
    Ok(())
}
