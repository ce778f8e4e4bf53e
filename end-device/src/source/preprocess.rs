//! Conversion of the bytes of a frame to the views of the slots, or to a fault.

use std::time::{Duration, Instant};

use headwater_inference::manifest::Preprocessing;
use headwater_protocol::Slot;
use headwater_samples::image_codec::CodecError;
use headwater_samples::roi::{DecodedFrame, Framing, RawFormat, RoiError};
use headwater_samples::{Shape, View};

use super::camera_check::{CameraCheck, hash_of};
use super::faults::{FrameFault, Missing};
use crate::report::SharedReport;
use crate::settings::{SourceSettings, SourceWord};

/// Preparation of the views of one slot, and the report that counts the faults of frames.
#[derive(Clone, Debug)]
pub(crate) struct Preprocessor {
    pub(crate) shape: Shape,
    pub(crate) framing: Framing,
    /// Check of a camera; `None` for a recording, or if the check is off.
    pub(crate) camera: Option<CameraCheck>,
    pub(crate) report: SharedReport,
}

/// A frame as a source gives it.
pub(crate) enum SourceFrame {
    /// An image file.
    File(Vec<u8>),
    Raw(Vec<u8>, RawFrames),
}

/// Format and size of raw frames.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawFrames {
    pub(crate) format: RawFormat,
    /// Width and height in pixels.
    pub(crate) size: [u32; 2],
    /// Name of the format, for messages.
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

    /// Text about region and fit of the settings if they differ from training; `None` if they do not, and for an archive. A region in the
    /// settings is no difference if the network was trained on whole images, since these may have been cut before.
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

/// The view of each slot in a frame, or the fault. The frame is decoded once for all slots.
pub(crate) fn views<'a>(
    frame: SourceFrame,
    slots: impl Iterator<Item = &'a Preprocessor> + Clone,
) -> Vec<Result<View, Missing>> {
    let (SourceFrame::File(bytes) | SourceFrame::Raw(bytes, _)) = &frame;
    let hash = if slots.clone().any(|slot| slot.camera.is_some()) { hash_of(bytes) } else { 0 };
    // The counted time of the preparation begins after the hash, which belongs to the check of a camera.
    let begun = Instant::now();
    // The decoded frame borrows the file, so the file must outlive the match.
    let file;
    let (decoded, kind) = match frame {
        SourceFrame::File(bytes) => {
            file = bytes;
            (DecodedFrame::of_file(&file).map_err(RoiError::from), image_kind(&file))
        }
        SourceFrame::Raw(pixels, raw) => (DecodedFrame::of_raw(pixels, raw.format, raw.size), raw.kind),
    };
    let decoded = decoded.map_err(|error| missing(&error));
    if let Ok(frame) = &decoded {
        slots.clone().for_each(|slot| slot.report.note_format(frame.size(), kind));
    }
    let decoding = begun.elapsed();
    slots.map(|slot| slot.view(&decoded, hash, decoding)).collect()
}

/// The fault of a frame without a view.
fn missing(error: &RoiError) -> Missing {
    let fault = match error {
        RoiError::Region(_) => FrameFault::ROI_OUTSIDE,
        RoiError::Codec(CodecError::Cut { .. }) => FrameFault::CUT,
        RoiError::Codec(CodecError::Oversize { .. }) => FrameFault::OVERSIZE,
        _ => FrameFault::BROKEN,
    };
    (fault, error.to_string())
}

impl Preprocessor {
    pub(crate) fn new(view: &Preprocessing, framing: Framing) -> Self {
        let [channels, height, width] = [view.channels, view.height, view.width].map(|side| side as usize);
        let shape = Shape { channels, height, width };
        Self { shape, framing, camera: None, report: SharedReport::default() }
    }

    /// The view in a frame whose bytes have this hash, or the fault of the frame or of a frozen, dark or covered camera. `decoding` is added
    /// to the counted time of the preparation.
    fn view(
        &self,
        decoded: &Result<DecodedFrame<'_>, Missing>,
        hash: u64,
        decoding: Duration,
    ) -> Result<View, Missing> {
        let begun = Instant::now();
        let view = decoded.as_ref().map_err(Clone::clone);
        let view =
            view.and_then(|frame| frame.view(self.shape, self.framing).map_err(|error| missing(&error)));
        self.report.lock().preparation.add(decoding + begun.elapsed());
        match &self.camera {
            Some(camera) => camera.pass(hash, view?, &self.report),
            None => view,
        }
    }
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
    use headwater_samples::roi::{self, Fit};

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
        let view = halves();
        let frame = View::new(Shape::rgb(8, 20), (0..480_usize).map(|at| (at * 7 % 251) as u8).collect());
        let file = image_codec::png(&frame).unwrap();
        let slots = [0, 1].map(|number| Preprocessor::new(&view, watched().framing(&view, slot(number))));
        let found = views(SourceFrame::File(file.clone()), slots.iter());
        for (number, (slot, found)) in slots.iter().zip(found).enumerate() {
            assert_eq!(slot.report.lock().preparation.count(), 1);
            assert_eq!(slot.report.latest().format.as_deref(), Some("20x8 PNG"));
            let roi = Some(view.regions[number]);
            let trained = Framing { roi, fit: Fit::Letterbox };
            assert_eq!(found, Ok(roi::decode(&file, Shape::rgb(6, 6), trained).unwrap()), "slot {number}");
        }
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
