//! `headwater-train convert`.

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use headwater_samples::class_folders::{self, Written};
use headwater_samples::data_set::OpenOptions;
use headwater_samples::image_codec::MAX_SIDE_PX;
use headwater_samples::{DataError, Part, Shape};

use super::dataset::Dataset;
use super::output::{counted, print, print_error};
use super::progress::{Pace, StatusLine};
use super::{Failure, print_json, usage};

/// Arguments of `convert`.
#[derive(Args)]
pub(crate) struct Convert {
    #[command(flatten)]
    dataset: Dataset,
    /// Output folder of PNG images: empty, or not there yet. Until the conversion is complete the folder is called FOLDER.partial.
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// Write the first N samples of each part only.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Shape of the images, such as 3x32x32 (1x for grey), for data without a fixed shape: `folders` and `table`. Without the flag the
    /// first image has the shape; raw tensors and images with a side above 2048 need the flag.
    #[arg(long, value_name = "CxHxW", value_parser = shape)]
    shape: Option<Shape>,
    /// Number of cameras, for data without a fixed number: `eth80` (1, 2, 4, 8 or 16), `mvmc` (1 to 6).
    #[arg(long, value_name = "N")]
    slots: Option<usize>,
    /// Print the counts as one JSON object.
    #[arg(long)]
    json: bool,
}

impl Convert {
    /// Refuses a folder within the data, which the images would be part of the next time.
    fn check_out(&self) -> Result<(), Failure> {
        let whole = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let (data, out) = (self.dataset.folder(), &self.out);
        if whole(out).starts_with(whole(data)) {
            let (data, out) = (data.display(), out.display());
            return usage(format!("--out: expected a folder outside of the data {data}, found {out} in it"));
        }
        Ok(())
    }

    pub(crate) fn run(&self) -> Result<(), Failure> {
        let parts = self.dataset.open(OpenOptions {
            shape: self.shape,
            slots: self.slots,
            ..OpenOptions::default()
        })?;
        self.check_out()?;
        let data = &*parts.data;
        let count = |part| data.len(part).min(self.limit.unwrap_or(usize::MAX));
        let mut all = Part::ALL.into_iter().flat_map(|part| (0..count(part)).map(move |index| (part, index)));
        let is_unseen =
            |(part, index): &(Part, usize)| data.sample(*part, *index).views.iter().all(Option::is_none);
        if self.dataset.strict
            && let Some((part, index)) = all.find(is_unseen)
        {
            return usage(format!(
                "{}: expected a camera that sees each sample, since others have no file (--strict), found none for sample {index} of {}",
                self.dataset.folder().display(),
                part.name()
            ));
        }
        let (mut status, started) = (StatusLine::new(), Instant::now());
        let written = class_folders::write(data, &self.out, self.limit, |done, total| {
            status.show(|| {
                let pace = Pace::of(done as u64, started.elapsed());
                let pace = pace.map_or_else(String::new, |pace| {
                    let left_s = pace.time_for((total - done) as u64).as_secs();
                    format!(", {:.0} a second, {left_s} s left", pace.per_second)
                });
                format!("{done} of {total} samples{pace}")
            });
        });
        status.clear();
        let written = written.map_err(|error| match error {
            DataError::Options { .. } => Failure::usage(error),
            other => other.into(),
        })?;
        if written.shared > 0 {
            let shared = written.shared;
            print_error(&format!(
                "warning: {shared} images are in another part too, byte for byte: `folders` accepts such data with --allow-leaks only"
            ));
        }
        if let Some(part) = Part::REQUIRED.into_iter().find(|part| written.samples[*part as usize] == 0) {
            let part = part.name();
            print_error(&format!(
                "warning: no sample of {part} was written: `folders` refuses data without {part}"
            ));
        }
        let Written { samples: [train, validation, test, calibration], images, bytes, not_in_view, shared } =
            written;
        if self.json {
            return print_json(&serde_json::json!({
                "data": self.dataset.identity(),
                "out": self.out,
                "labels": data.labels(),
                "slots": data.slots(),
                "shape": parts.shape(),
                "train": train,
                "validation": validation,
                "test": test,
                "calibration": calibration,
                "images": images,
                "image_bytes": bytes,
                "not_in_view": not_in_view,
                "shared": shared,
            }));
        }
        print(&format!(
            "{}: {train} train, {validation} validation, {test} test, {calibration} calibration samples of {} and {}, {}, {bytes} bytes\n",
            self.out.display(),
            counted(data.slots(), "slot"),
            data.shape(),
            counted(images, "image")
        ))?;
        if not_in_view > 0 {
            print(&format!("{not_in_view} samples without a view have no file and are left out\n"))?;
        }
        Ok(())
    }
}

/// Parses a shape as it is printed: `3x32x32`.
fn shape(text: &str) -> Result<Shape, String> {
    let sides: Option<Vec<usize>> = text.split('x').map(|side| side.parse().ok()).collect();
    let is_side = |side: usize| (1..=MAX_SIDE_PX as usize).contains(&side);
    match sides.as_deref() {
        Some(&[channels @ (1 | 3), height, width]) if is_side(height) && is_side(width) => {
            Ok(Shape { channels, height, width })
        }
        _ => Err(format!(
            "expected CxHxW with 1 or 3 channels and sides of 1 to {MAX_SIDE_PX}, such as 3x32x32"
        )),
    }
}
