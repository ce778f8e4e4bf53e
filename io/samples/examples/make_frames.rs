//! Makes the shipped frames:
//! `cargo run --release -p headwater-samples --example make_frames -- --data-dir DIR --count 300 --out FILE`
//!
//! `DIR` contains the four Fashion-MNIST files.

use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use headwater_samples::archive::{ArchiveWriter, FrameFormat, Labels};
use headwater_samples::fashion_6cam::{Camera, Fashion6Cam, LABELS, SEED, SHAPE, SLOTS};
use headwater_samples::{DataSet, Part, image_codec};

const USAGE: &str = "usage: make_frames --data-dir DIR --count N --out FILE";

fn main() -> ExitCode {
    let Some(arguments) = Arguments::parse(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match make(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("make_frames: {error}");
            ExitCode::FAILURE
        }
    }
}

struct Arguments {
    data_dir: PathBuf,
    count: usize,
    out: PathBuf,
}

impl Arguments {
    fn parse(mut words: impl Iterator<Item = String>) -> Option<Self> {
        let (mut data_dir, mut count, mut out) = (None, None, None);
        while let (Some(flag), value) = (words.next(), words.next()) {
            let value = value?;
            match flag.as_str() {
                "--data-dir" => data_dir = Some(value.into()),
                "--count" => count = Some(value.parse().ok()?),
                "--out" => out = Some(value.into()),
                _ => return None,
            }
        }
        Some(Self { data_dir: data_dir?, count: count?, out: out? })
    }
}

/// Writes the first test samples. The frames are lossless WebP or PNG, whichever is shorter in total.
fn make(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let fashion = Fashion6Cam::open(&arguments.data_dir)?;
    for (slot, camera) in Camera::all().iter().enumerate() {
        println!("camera {slot}: {camera:.3?}");
    }
    let count = arguments.count.min(fashion.len(Part::Test));
    let samples: Vec<_> = (0..count).map(|index| fashion.sample(Part::Test, index)).collect();
    let (mut frames, mut webp_bytes, mut png_bytes) = (0, 0, 0);
    for view in samples.iter().flat_map(|sample| &sample.views).flatten() {
        frames += 1;
        webp_bytes += image_codec::webp_lossless(view)?.len();
        png_bytes += image_codec::png(view)?.len();
    }
    let source = format!(
        "first test samples of fashion-6cam, seed {SEED}; articles: Fashion-MNIST, MIT licence, \
         (c) 2017 Zalando SE"
    );
    let format = if webp_bytes <= png_bytes { FrameFormat::WebP } else { FrameFormat::Png };
    let mut writer = ArchiveWriter::new(Labels::new(&source, SLOTS, SHAPE, &LABELS), format);
    for sample in &samples {
        writer.push(sample)?;
    }
    let archive = writer.finish(Vec::new())?;
    fs::write(&arguments.out, &archive)?;
    let (out, archive_bytes) = (arguments.out.display(), archive.len());
    println!(
        "{out}: {count} samples, {frames} frames as {format:?}, {archive_bytes} bytes; frames alone: \
         {webp_bytes} bytes as WebP, {png_bytes} as PNG"
    );
    Ok(())
}
