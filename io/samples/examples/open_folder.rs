//! Opens a folder of images as a data set and prints its contents:
//! `cargo run --release -p headwater-samples --example open_folder -- DIR_OR_TAR_GZ`
//!
//! `docs/data.md` describes the layout of `DIR`: PART/CLASS/IMAGE, or CLASS/IMAGE, or either with a folder of camN.png for each sample.

use std::path::Path;
use std::process::ExitCode;

use headwater_samples::catalogue::open;
use headwater_samples::data_set::OpenOptions;
use headwater_samples::{DataError, DataSet, NO_CLASS, Part, Shape};

fn main() -> ExitCode {
    let Some(path) = std::env::args_os().nth(1) else {
        eprintln!("usage: open_folder DIR_OR_TAR_GZ");
        return ExitCode::from(2);
    };
    match print_contents(Path::new(&path)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("open_folder: {error}");
            ExitCode::FAILURE
        }
    }
}

fn print_contents(path: &Path) -> Result<(), DataError> {
    // The shape that a network takes; `None` takes the shape of the first image.
    let options = OpenOptions { shape: Some(Shape::rgb(32, 32)), ..OpenOptions::default() };
    let data = open("folders", path, options)?;
    println!("{} slots, views of {}", data.slots(), data.shape());
    for part in Part::ALL {
        println!("{}: {} samples", part.name(), data.len(part));
        for (class, name) in data.labels().iter().enumerate() {
            let of_class = |index: &usize| usize::from(data.label(part, *index)) == class;
            println!("  {name}: {}", (0..data.len(part)).filter(of_class).count());
        }
        let of_nothing = |index: &usize| data.label(part, *index) == NO_CLASS;
        println!("  nothing: {}", (0..data.len(part)).filter(of_nothing).count());
    }
    for (slot, share) in shares(&*data).into_iter().enumerate() {
        println!("slot {slot} sees {:.1} % of the samples", 100.0 * share);
    }
    data.notes().iter().for_each(|note| println!("note: {note}"));
    Ok(())
}

/// Share of all samples that each slot sees.
fn shares(data: &dyn DataSet) -> Vec<f64> {
    let samples: Vec<(Part, usize)> =
        Part::ALL.into_iter().flat_map(|part| (0..data.len(part)).map(move |index| (part, index))).collect();
    let mut view = vec![0; data.shape().bytes()];
    let mut seen =
        |slot| samples.iter().filter(|(part, at)| data.view_into(*part, *at, slot, &mut view)).count();
    (0..data.slots()).map(|slot| seen(slot) as f64 / samples.len().max(1) as f64).collect()
}
