//! From the bytes of a frame to the view of the network, or to a fault.

use std::time::Instant;

use headwater_inference::manifest::Preprocessing;
use headwater_protocol::Slot;
use headwater_samples::image_codec::CodecError;
use headwater_samples::roi::{self, Framing, RawFormat, RoiError};
use headwater_samples::{Shape, View};

use super::camera_check::{CameraCheck, hash_of};
use super::faults::{FrameFault, Missing};
use crate::report::SharedReport;
use crate::settings::{SourceSettings, SourceWord};

/// The shape of a view, and how a frame becomes the view.
#[derive(Clone, Debug)]
pub(crate) struct Preprocessor {
    pub(crate) shape: Shape,
    pub(crate) framing: Framing,
    /// Check of a camera; `None` for a recording.
    pub(crate) camera: Option<CameraCheck>,
}

/// Format and size of raw frames.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawFrames {
    pub(crate) format: RawFormat,
    /// Width and height in pixels.
    pub(crate) size: [u32; 2],
    /// Name of the format for people.
    pub(crate) kind: &'static str,
}

impl SourceSettings {
    /// Conversion of a frame to the view of a slot: as in training, unless the settings say otherwise.
    pub(crate) fn framing(&self, view: &Preprocessing, slot: Slot) -> Framing {
        // The frames of an archive are views, which are cut already.
        let is_archive = self.kind == SourceWord::Archive;
        let trained = if is_archive { Framing::default() } else { view.framing(slot) };
        Framing { roi: self.roi.or(trained.roi), fit: self.fit.unwrap_or(trained.fit) }
    }

    /// Difference of the views from those of training by the settings, in words. A region of a network that was trained on whole images is no
    /// difference: the images may have been cut before.
    pub(crate) fn difference_from_training(&self, view: &Preprocessing, slot: Slot) -> Option<String> {
        let (trained, used) = (view.framing(slot), self.framing(view, slot));
        let is_other = used.fit != trained.fit || trained.roi.is_some() && used.roi != trained.roi;
        (is_other && self.kind != SourceWord::Archive).then(|| {
            format!(
                "source.roi, source.fit: expected for slot {slot}, as in training, {trained}; found {used}"
            )
        })
    }
}

impl Preprocessor {
    pub(crate) fn new(view: &Preprocessing, framing: Framing) -> Self {
        let [channels, height, width] = [view.channels, view.height, view.width].map(|side| side as usize);
        Self { shape: Shape { channels, height, width }, framing, camera: None }
    }

    /// The view in an image file.
    pub(crate) fn image(&self, bytes: &[u8], report: &SharedReport) -> Result<View, Missing> {
        report.note_format(|| Some((roi::size(bytes).ok()?, image_kind(bytes))));
        let view = timed(report, || roi::decode(bytes, self.shape, self.framing));
        self.checked(view, self.hash_of(bytes), report)
    }

    /// The view in raw pixels.
    pub(crate) fn raw(
        &self,
        pixels: Vec<u8>,
        raw: RawFrames,
        report: &SharedReport,
    ) -> Result<View, Missing> {
        report.note_format(|| Some((raw.size, raw.kind)));
        let hash = self.hash_of(&pixels);
        let view = timed(report, || roi::from_raw(pixels, raw.format, raw.size, self.shape, self.framing));
        self.checked(view, hash, report)
    }

    fn hash_of(&self, frame: &[u8]) -> u64 {
        self.camera.as_ref().map_or(0, |_| hash_of(frame))
    }

    /// Names the fault of a frame without a view, and refuses the view of a camera that is frozen, dark or covered.
    fn checked(
        &self,
        view: Result<View, RoiError>,
        frame: u64,
        report: &SharedReport,
    ) -> Result<View, Missing> {
        let view = view.map_err(|error| {
            let fault = match &error {
                RoiError::Region(_) => FrameFault::ROI_OUTSIDE,
                RoiError::Codec(CodecError::Cut { .. }) => FrameFault::CUT,
                RoiError::Codec(CodecError::Oversize { .. }) => FrameFault::OVERSIZE,
                _ => FrameFault::BROKEN,
            };
            (fault, error.to_string())
        })?;
        match &self.camera {
            Some(camera) => camera.pass(frame, view, report),
            None => Ok(view),
        }
    }
}

/// Runs the preparation of a view, and counts its time.
fn timed<T>(report: &SharedReport, prepare: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let view = prepare();
    report.lock().preparation.add(begun.elapsed());
    view
}

/// Name of an image file's format.
fn image_kind(bytes: &[u8]) -> &'static str {
    match bytes {
        [0xff, ..] => "JPEG",
        [0x89, ..] => "PNG",
        _ => "WebP",
    }
}

#[cfg(test)]
mod tests {
    use headwater_inference::manifest::PixelScale;
    use headwater_samples::image_codec;
    use headwater_samples::roi::Fit;

    use super::*;

    /// A network of two slots, which see the halves of a camera's frames.
    fn halves() -> Preprocessing {
        let regions = ["0%,0%,50%,100%", "50%,0%,50%,100%"].map(|region| region.parse().unwrap()).to_vec();
        let fit = Some(Fit::Letterbox);
        Preprocessing { channels: 3, height: 6, width: 6, scale: PixelScale::Unit, fit, regions }
    }

    fn slot(number: u8) -> Slot {
        Slot::new(number).unwrap()
    }

    fn watched() -> SourceSettings {
        SourceSettings { kind: SourceWord::Watch, ..headwater_settings::defaults() }
    }

    #[test]
    fn a_device_without_settings_has_the_views_of_training_and_counts_their_time() {
        let (view, report) = (halves(), SharedReport::default());
        let frame = View::new(Shape::rgb(8, 20), (0..480_usize).map(|at| (at * 7 % 251) as u8).collect());
        let file = image_codec::png(&frame).unwrap();
        for number in 0..2 {
            let framing = watched().framing(&view, slot(number));
            let found = Preprocessor::new(&view, framing).image(&file, &report).unwrap();
            let roi = Some(view.regions[usize::from(number)]);
            let trained = Framing { roi, fit: Fit::Letterbox };
            assert_eq!(found, roi::decode(&file, Shape::rgb(6, 6), trained).unwrap(), "slot {number}");
        }
        assert_eq!(report.lock().preparation.count(), 2);
    }

    #[test]
    fn settings_win_and_their_difference_from_training_is_named() {
        let (view, mut settings) = (halves(), watched());
        assert_eq!(settings.difference_from_training(&view, slot(1)), None);
        settings.roi = Some("0,0,4,4".parse().unwrap());
        let difference = settings.difference_from_training(&view, slot(1)).unwrap();
        assert!(
            difference.contains("expected for slot 1, as in training, region 50%,0%,50%,100%, letterbox")
        );
        assert!(difference.ends_with("found region 0,0,4,4, letterbox"), "{difference}");
        let whole = Preprocessing { fit: None, regions: Vec::new(), ..view };
        assert_eq!(settings.difference_from_training(&whole, slot(1)), None, "images may have been cut");
        settings.fit = Some(Fit::Crop);
        assert!(settings.difference_from_training(&whole, slot(1)).unwrap().contains("stretch"));
    }

    #[test]
    fn the_frames_of_an_archive_are_views_already() {
        let settings = SourceSettings { kind: SourceWord::Archive, ..watched() };
        assert_eq!(settings.framing(&halves(), slot(0)), Framing::default());
        assert_eq!(settings.difference_from_training(&halves(), slot(0)), None);
    }
}
