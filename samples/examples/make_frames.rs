//! Makes the shipped frames:
//! `cargo run --release -p headwater-samples --example make_frames -- --data-dir DIR --count 300 --out FILE`
//!
//! `DIR` contains the four Fashion-MNIST files.

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use headwater_samples::fashion_6cam::{Fashion6Cam, write_test_archive};

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

fn make(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let fashion = Fashion6Cam::open(&arguments.data_dir)?;
    for (slot, camera) in fashion.cameras().iter().enumerate() {
        println!("camera {slot}: {camera:.3?}");
    }
    let written = write_test_archive(&fashion, arguments.count, &arguments.out)?;
    println!("{}: {written:?}", arguments.out.display());
    Ok(())
}
