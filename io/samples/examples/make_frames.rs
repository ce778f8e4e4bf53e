//! Makes the shipped frames:
//! `cargo run --release -p headwater-samples --example make_frames -- DIR FILE`
//!
//! `DIR` contains the four Fashion-MNIST files.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use headwater_samples::archive::{ArchiveWriter, FrameFormat, Labels};
use headwater_samples::fashion_6cam::{Camera, Fashion6Cam, LABELS, SEED, SHAPE, SLOTS};
use headwater_samples::{DataSet, Part, image_codec};

/// Number of samples.
const COUNT: usize = 300;

fn main() -> ExitCode {
    let words: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [data_dir, out] = words.as_slice() else {
        eprintln!("usage: make_frames DIR FILE");
        return ExitCode::from(2);
    };
    match make(data_dir, out) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("make_frames: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Writes the first test samples. The frames are lossless WebP or PNG, whichever is shorter in total.
fn make(data_dir: &Path, out: &Path) -> Result<(), Box<dyn Error>> {
    let fashion = Fashion6Cam::open(data_dir)?;
    for (slot, camera) in Camera::all().iter().enumerate() {
        println!("camera {slot}: {camera:.3?}");
    }
    let samples: Vec<_> = (0..COUNT).map(|index| fashion.sample(Part::Test, index)).collect();
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
    fs::write(out, &archive)?;
    let (out, archive_bytes) = (out.display(), archive.len());
    println!(
        "{out}: {COUNT} samples, {frames} frames as {format:?}, {archive_bytes} bytes; frames alone: \
         {webp_bytes} bytes as WebP, {png_bytes} as PNG"
    );
    Ok(())
}
