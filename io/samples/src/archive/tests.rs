use std::borrow::Cow;
use std::fs;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::testing::{gzip, packed, refused};
use crate::{SampleViews, image_codec};

const SHAPE: Shape = Shape::rgb(4, 5);

fn labels(slots: usize) -> Labels {
    Labels::new("a test", slots, SHAPE, &["a", "b"])
}

fn view(fill: u8) -> View {
    View::new(SHAPE, (0..SHAPE.bytes()).map(|at| fill.wrapping_add(at as u8)).collect())
}

/// Sample 0 in view of slots 0 and 2, sample 1 of slot 1, sample 2 of none.
fn samples() -> Vec<SampleViews> {
    vec![
        SampleViews { label: Some(1), views: vec![Some(view(1)), None, Some(view(2))] },
        SampleViews { label: None, views: vec![None, Some(view(3)), None] },
        SampleViews { label: Some(0), views: vec![None, None, None] },
    ]
}

fn archive_bytes(samples: &[SampleViews], format: FrameFormat) -> Vec<u8> {
    let mut writer = ArchiveWriter::new(labels(3), format);
    samples.iter().for_each(|sample| writer.push(sample).unwrap());
    writer.finish(Vec::new()).unwrap()
}

fn open(bytes: &[u8]) -> Result<Archive, DataError> {
    Archive::read(bytes, "some", &ArchiveOptions::default())
}

fn json(samples: usize, frames: Option<usize>) -> Vec<u8> {
    Labels { frames, classes: vec![Some(0); samples], ..labels(2) }.to_json().unwrap()
}

/// Views of a sample. A broken frame panics.
fn read_back(archive: &Archive, sample: usize) -> SampleViews {
    let view = |slot| match archive.frame(sample, slot) {
        Frame::View(view) => Some(view.into_owned()),
        Frame::NotInView => None,
        Frame::Broken(broken) => panic!("{broken}"),
    };
    SampleViews { label: archive.labels.classes[sample], views: (0..archive.slots()).map(view).collect() }
}

fn open_slot(bytes: &[u8], slot: usize) -> Result<Archive, DataError> {
    Archive::read(bytes, "some", &ArchiveOptions { slot: Some(slot), ..ArchiveOptions::default() })
}

#[test]
fn samples_are_read_back_from_an_archive_in_either_format() {
    for format in [FrameFormat::WebP, FrameFormat::Png] {
        let archive = open(&archive_bytes(&samples(), format)).unwrap();
        let read: Vec<_> = (0..archive.len()).map(|index| read_back(&archive, index)).collect();
        assert_eq!(read, samples());
        assert_eq!((archive.slots(), archive.shape, archive.labels.frames), (3, SHAPE, Some(3)));
    }
}

#[test]
fn the_same_samples_give_the_same_bytes() {
    assert_eq!(archive_bytes(&samples(), FrameFormat::WebP), archive_bytes(&samples(), FrameFormat::WebP));
}

#[test]
fn a_folder_and_its_packed_archive_have_the_same_samples() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = archive_bytes(&samples(), FrameFormat::Png);
    tar::Archive::new(flate2::read::GzDecoder::new(&bytes[..])).unpack(dir.path()).unwrap();
    fs::write(dir.path().join("README.md"), "not a frame").unwrap();
    let archive = Archive::open(dir.path()).unwrap();
    let read: Vec<_> = (0..archive.len()).map(|index| read_back(&archive, index)).collect();
    assert_eq!(read, samples());
}

#[test]
fn an_archive_opened_for_one_slot_has_its_frames_only() {
    let bytes = archive_bytes(&samples(), FrameFormat::WebP);
    let archive = open_slot(&bytes, 2).unwrap();
    assert_eq!(archive.frame(0, 2), Frame::View(Cow::Owned(view(2))));
    assert_eq!(archive.frame(1, 2), Frame::NotInView);
    assert_eq!(archive.frames.len(), 1);
    refused(open_slot(&bytes, 3), &["expected a slot below 3, found 3"]);
}

#[test]
fn frames_are_resized_to_the_requested_shape() {
    let bytes = archive_bytes(&samples(), FrameFormat::WebP);
    let options = ArchiveOptions { shape: Some(Shape::rgb(2, 2)), ..ArchiveOptions::default() };
    let sample = read_back(&Archive::read(&bytes, "some", &options).unwrap(), 0);
    assert_eq!(sample.views[0].as_ref().unwrap().shape, Shape::rgb(2, 2));
}

#[test]
fn a_broken_frame_is_named_and_the_others_stay_usable() {
    let png = image_codec::png(&view(9)).unwrap();
    let bytes = packed(&[
        ("labels.json", &json(2, Some(3))),
        ("00000/cam0.png", &png[..20]),
        ("00000/cam1.png", &png),
        ("00001/cam0.webp", b""),
    ]);
    let archive = open(&bytes).unwrap();
    let Frame::Broken(broken) = archive.frame(0, 0) else { panic!("a broken frame") };
    assert!(broken.to_string().starts_with("frame 00000/cam0.png: decode 20 bytes"), "{broken}");
    assert_eq!(archive.frame(0, 1), Frame::View(Cow::Owned(view(9))));
    assert_eq!(archive.broken().count(), 2);
}

#[test]
fn a_frame_beyond_the_limit_is_broken_and_such_labels_are_refused() {
    let long = vec![0; image_codec::MAX_FILE_BYTES as usize + 1];
    let archive = open(&packed(&[("labels.json", &json(1, None)), ("00000/cam0.png", &long)])).unwrap();
    let reason = "expected at most 33554432 bytes, found 33554433".to_string();
    assert_eq!(archive.frame(0, 0), Frame::Broken(BrokenFrame { name: "00000/cam0.png".into(), reason }));
    refused(open(&packed(&[("labels.json", &long)])), &["at most 33554432 bytes in labels.json"]);
}

#[test]
fn an_archive_cut_anywhere_is_refused() {
    let bytes = archive_bytes(&samples(), FrameFormat::WebP);
    for length in 0..bytes.len() {
        let error = open(&bytes[..length]).err().expect("refused");
        let expected = error.to_string().contains("found one that ends after") || length < 2;
        assert!(expected, "cut to {length} of {} bytes: {error}", bytes.len());
    }
}

#[test]
fn a_tar_cut_before_compression_is_refused() {
    let mut tar = Vec::new();
    let whole = archive_bytes(&samples(), FrameFormat::WebP);
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&whole[..]), &mut tar).unwrap();
    let frames_end = tar.len() - 1024;
    for length in (0..frames_end).step_by(64) {
        assert!(open(&gzip(&tar[..length])).is_err(), "cut to {length} of {} bytes", tar.len());
    }
}

#[test]
fn a_flipped_bit_is_refused_or_changes_nothing() {
    let bytes = archive_bytes(&samples(), FrameFormat::WebP);
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 0x10;
        // Times in the gzip header, and runs of zeros copied from elsewhere, may change without changing the
        // content.
        if let Ok(archive) = open(&changed) {
            assert_eq!(read_back(&archive, 0), samples()[0], "byte {at} of {}", bytes.len());
            assert_eq!(read_back(&archive, 1), samples()[1], "byte {at} of {}", bytes.len());
        }
    }
}

#[test]
fn a_missing_file_is_named() {
    refused(Archive::open(Path::new("no/such.tar.gz")), &["no/such.tar.gz", "cannot be read"]);
}

#[test]
fn invalid_labels_are_refused() {
    refused(open(&packed(&[("00000/cam0.png", b"")])), &["labels.json", "found none"]);
    refused(open(&packed(&[("labels.json", b"{")])), &["labels.json", "EOF"]);
    let with = |labels: Labels| open(&packed(&[("labels.json", &labels.to_json().unwrap())]));
    refused(with(Labels { format: 2, ..labels(2) }), &["expected format 1, found 2"]);
    refused(with(labels(0)), &["expected 1 to 256 slots, found 0"]);
    refused(
        with(Labels { classes: vec![Some(2)], ..labels(2) }),
        &["classes below 2", "found 2 at sample 0"],
    );
    refused(with(Labels { frames: Some(7), ..labels(2) }), &["expected 7 frames", "found 0"]);
}

#[test]
fn frames_beyond_the_labels_are_refused() {
    let with = |name: &str| open(&packed(&[("labels.json", &json(1, None)), (name, b"x")]));
    refused(with("00001/cam0.png"), &["samples below 1"]);
    refused(with("00000/cam2.png"), &["slots below 2"]);
    refused(with("00000/cam0.gif"), &["00000/cam0.gif", "expected frames named"]);
}

#[test]
fn two_files_for_one_view_are_refused() {
    let files: [(&str, &[u8]); 3] =
        [("labels.json", &json(1, None)), ("00000/cam0.png", b""), ("00000/cam0.webp", b"")];
    refused(open(&packed(&files)), &["one file for a view", "`00000/cam0.png` and `00000/cam0.webp`"]);
}

#[test]
fn the_number_of_files_and_the_inflated_length_are_bounded() {
    let options = ArchiveOptions::default();
    let mut members = Collector::new(Path::new("many"), &options);
    let mut add = || members.add("README.md", 0, || Ok(Ok(Vec::new())));
    assert!((0..200_000).all(|_| add().is_ok()));
    assert!(add().unwrap_err().to_string().contains("at most 200000 files"));
    let long = packed(&[("README.md", &[0; 3000])]);
    let error = crate::tar_gz::visit(&long[..], "long", 3000, &mut |_| Ok(())).unwrap_err().to_string();
    assert!(error.contains("at most 3000 bytes in all"), "{error}");
}

#[test]
fn a_sample_with_other_slots_or_another_shape_is_not_written() {
    let mut writer = ArchiveWriter::new(labels(2), FrameFormat::Png);
    let error = writer.push(&samples()[0]).unwrap_err().to_string();
    assert_eq!(error, "frames: sample 0: expected 2 slots, found 3 slots");
    let other = View::new(Shape::rgb(1, 1), vec![0; 3]);
    let error =
        writer.push(&SampleViews { label: None, views: vec![None, Some(other)] }).unwrap_err().to_string();
    assert_eq!(error, "frames: sample 0: expected 3x4x5, found 3x1x1");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn garbage_inside_a_valid_gzip_never_panics(content in vec(any::<u8>(), 0..2000)) {
        prop_assert!(open(&gzip(&content)).is_err());
    }
}
