//! A part of a data set as an archive of frames, for devices to play.

use super::{ArchiveError, ArchiveWriter, FrameFormat, Labels};
use crate::{DataSet, Part, SampleViews, View};

/// The first `limit` samples of a part, without loss.
///
/// # Errors
/// [`ArchiveError::Encode`].
pub fn recorded(data: &dyn DataSet, part: Part, limit: usize) -> Result<ArchiveWriter, ArchiveError> {
    let (shape, slots) = (data.shape(), data.slots());
    let labels = Labels {
        format: 1,
        source: "a data set".into(),
        slots,
        view: [shape.channels, shape.height, shape.width],
        frames: None,
        labels: data.labels(),
        classes: Vec::new(),
    };
    let mut writer = ArchiveWriter::new(labels, FrameFormat::Png);
    for index in 0..data.len(part).min(limit) {
        let view = |slot| {
            let mut pixels = vec![0; shape.bytes()];
            data.view_into(part, index, slot, &mut pixels).then(|| View::new(shape, pixels))
        };
        let views = (0..slots).map(view).collect();
        writer.push(&SampleViews { label: Some(data.label(part, index)), views })?;
    }
    Ok(writer)
}

#[cfg(test)]
mod tests {
    use crate::archive::{Archive, ArchiveOptions, Frame};
    use crate::fashion_6cam::Fashion6Cam;
    use crate::{DataSet, Part};

    #[test]
    fn a_recorded_part_plays_the_same_views() {
        let data = Fashion6Cam::drawn(4, 4, 6);
        let bytes = super::recorded(&data, Part::Test, 5).unwrap().finish(Vec::new()).unwrap();
        let archive = Archive::read(&bytes, "recorded", &ArchiveOptions::default()).unwrap();
        assert_eq!((archive.len(), archive.slots()), (5, data.slots()));
        let mut pixels = vec![0; data.shape().bytes()];
        for (sample, slot) in (0..5).flat_map(|sample| (0..data.slots()).map(move |slot| (sample, slot))) {
            assert_eq!(archive.class(sample), Some(data.label(Part::Test, sample)));
            match archive.frame(sample, slot) {
                Frame::View(view) => {
                    assert!(data.view_into(Part::Test, sample, slot, &mut pixels));
                    assert_eq!(view.pixels, pixels);
                }
                Frame::NotInView => assert!(!data.view_into(Part::Test, sample, slot, &mut pixels)),
                Frame::Broken { name, reason } => panic!("{name}: {reason}"),
            }
        }
    }
}
