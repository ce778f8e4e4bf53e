//! Draws small defects on crops of `neu-defects`, as class folders with parts:
//! `cargo run --release -p headwater-samples --example draw_defects -- --data FILE --out DIR`
//!
//! `FILE` is `neu-defects.tar.gz`. A crop has 160x120 pixels. A dot is 3.5 to 8.4 pixels wide, a ring 6.6 to 13.6, and a
//! line 8 to 19.2 pixels long. Each part takes its crops from the images of the same part of `neu-defects`, so no image is in two parts.

use std::error::Error;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use flate2::read::GzDecoder;
use image::{GrayImage, Luma, imageops};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

const USAGE: &str = "usage: draw_defects --data FILE --out DIR";
const SEED: u64 = 20_261_127;
/// Parts with their number of images: 330 for training and validation, 240 for the test.
const PARTS: [(&str, usize); 3] = [("train", 270), ("val", 60), ("test", 240)];
/// Folder of `neu-defects` that gives the crops of each part.
const SOURCES: [&str; 3] = ["train/", "val/", "test/"];
const SIZE: (u32, u32) = (160, 120);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [data_flag, data, out_flag, out] = words.as_slice() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    if (data_flag.as_str(), out_flag.as_str()) != ("--data", "--out") {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    }
    match draw(Path::new(data), &PathBuf::from(out)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("draw_defects: {error}");
            ExitCode::FAILURE
        }
    }
}

fn draw(data: &Path, out: &Path) -> Result<(), Box<dyn Error>> {
    let mut random = ChaCha8Rng::seed_from_u64(SEED);
    for ((part, count), source) in PARTS.into_iter().zip(SOURCES) {
        let images = images(data, source)?;
        if images.is_empty() {
            return Err(format!("{}: expected images in {source}, found none", data.display()).into());
        }
        for index in 0..count {
            let class = Defect::ALL[index % Defect::ALL.len()];
            let image = &images[random.random_range(0..images.len())];
            let (left, top) = (random.random_range(0..=200 - SIZE.0), random.random_range(0..=200 - SIZE.1));
            let mut crop = imageops::crop_imm(image, left, top, SIZE.0, SIZE.1).to_image();
            class.draw(&mut crop, &mut random);
            let folder = out.join(part).join(class.name());
            fs::create_dir_all(&folder)?;
            crop.save(folder.join(format!("{index:03}.png")))?;
        }
    }
    Ok(())
}

/// The grey images of 200x200 pixels below a folder of the archive, in the order of their names.
fn images(data: &Path, source: &str) -> Result<Vec<GrayImage>, Box<dyn Error>> {
    let mut named = Vec::new();
    for entry in tar::Archive::new(GzDecoder::new(File::open(data)?)).entries()? {
        let mut entry = entry?;
        let name = entry.path()?.display().to_string();
        if !name.starts_with(source) {
            continue;
        }
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes)?;
        let image = image::load_from_memory(&bytes).map_err(|error| format!("{name}: {error}"))?.to_luma8();
        if image.dimensions() != (200, 200) {
            return Err(format!("{name}: expected 200x200 pixels, found {:?}", image.dimensions()).into());
        }
        named.push((name, image));
    }
    named.sort_by(|(first, _), (second, _)| first.cmp(second));
    Ok(named.into_iter().map(|(_, image)| image).collect())
}

#[derive(Clone, Copy)]
enum Defect {
    Dot,
    Line,
    Ring,
}

impl Defect {
    const ALL: [Self; 3] = [Self::Dot, Self::Line, Self::Ring];

    fn name(self) -> &'static str {
        match self {
            Self::Dot => "dot",
            Self::Line => "line",
            Self::Ring => "ring",
        }
    }

    /// Draws the defect darker or brighter than its surroundings, with its centre at least 12 pixels away from every edge.
    fn draw(self, image: &mut GrayImage, random: &mut ChaCha8Rng) {
        let radius: f32 = random.random_range(2.5..6.0);
        let angle: f32 = random.random_range(0.0..std::f32::consts::PI);
        let contrast: f32 =
            random.random_range(50.0..90.0) * if random.random_bool(0.5) { 1.0 } else { -1.0 };
        let x = random.random_range(12.0..SIZE.0 as f32 - 12.0);
        let y = random.random_range(12.0..SIZE.1 as f32 - 12.0);
        for (column, row, Luma([value])) in image.enumerate_pixels_mut() {
            let (dx, dy) = (column as f32 - x, row as f32 - y);
            let distance = dx.hypot(dy);
            let (along, across) = (dx * angle.cos() + dy * angle.sin(), dy * angle.cos() - dx * angle.sin());
            // `beyond` is the distance in pixels from the edge of the defect, negative inside the defect.
            let beyond = match self {
                Self::Dot => distance - 0.7 * radius,
                Self::Ring => (distance - radius).abs() - 0.8,
                Self::Line => (along.abs() - 1.6 * radius).max(across.abs() - 0.8),
            };
            let cover = (0.5 - beyond).clamp(0.0, 1.0);
            *value = (f32::from(*value) + contrast * cover).clamp(0.0, 255.0) as u8;
        }
    }
}
