//! Paths of images in class folders: part, class, sample and slot.

use crate::Part;
use crate::error::Mismatch;
use crate::file_names::{camera, image_stem, number, one_form};

const LAYOUT: &str = "PART/CLASS/IMAGE or PART/CLASS/SAMPLE/camN.EXT with a PART of train, val, test or calibration, or the same without PART/";

/// Part (`None` in data without parts), folder of the class in composed form (Unicode NFC), and name. Samples are ordered by this key.
pub(super) type SampleKey = (Option<Part>, String, SampleName);

/// Name and ending of a sample: a folder and no ending, or a file without its ending and the ending. Two files may differ in the ending alone.
pub(super) type SampleName = (String, String);

/// Parses the path of an image: its sample, and its slot where a sample has a folder.
///
/// # Errors
/// [`Mismatch`] for an image outside of the layout.
pub(super) fn parse_path(name: &str) -> Result<(SampleKey, Option<usize>), Mismatch> {
    let steps = steps(name);
    let (file, folders) = steps.split_last().ok_or_else(|| outside(name))?;
    let (stem, ending) = image_stem(file);
    let part = folders.first().and_then(|first| Part::named(first));
    let (class, sample, slot) = match &folders[usize::from(part.is_some())..] {
        [class] => (*class, (stem, ending), None),
        [class, sample] => (*class, (*sample, ""), Some(camera(stem).ok_or_else(|| outside(name))?)),
        _ => return Err(outside(name)),
    };
    let sample = (sample.0.to_owned(), sample.1.to_owned());
    Ok(((part, one_form(class).into_owned(), sample), slot))
}

fn outside(name: &str) -> Mismatch {
    Mismatch::new(LAYOUT, format!("`{name}`"))
}

/// Part and class of a folder at the level of classes, in data with parts or without.
pub(super) fn class_folder(name: &str) -> Option<(Option<Part>, String)> {
    match steps(name).as_slice() {
        [part, class] => Some((Some(Part::named(part)?), one_form(class).into_owned())),
        [class] if Part::named(class).is_none() => Some((None, one_form(class).into_owned())),
        _ => None,
    }
}

/// Number of the frame in a sample's name `FRAME-OBJECT`; `None` if the name is not of two numbers.
pub(super) fn frame(sample: &str) -> Option<u64> {
    let (frame, object) = sample.split_once('-')?;
    number::<u64>(object).and(number(frame))
}

fn steps(name: &str) -> Vec<&str> {
    name.split('/').filter(|step| !step.is_empty() && *step != ".").collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::labelled_files::folder_name;

    /// Part, class, sample, slot.
    type Expected<'a> = (Option<Part>, &'a str, (&'a str, &'a str), Option<usize>);

    #[track_caller]
    fn check(name: &str, expected: Result<Expected<'_>, ()>) {
        let found = parse_path(name);
        let found = found.as_ref().map_err(|mismatch| assert_eq!(*mismatch, outside(name))).map(
            |((part, class, (stem, ending)), slot)| {
                (*part, class.as_str(), (stem.as_str(), ending.as_str()), *slot)
            },
        );
        assert_eq!(found, expected, "{name}");
    }

    #[test]
    fn files_and_folders_of_samples_are_parsed_with_parts_and_without() {
        check("train/car/1.png", Ok((Some(Part::Train), "car", ("1", "png"), None)));
        check("./validation/car/7/cam3.JPG", Ok((Some(Part::Validation), "car", ("7", ""), Some(3))));
        check("car/1.2.webp", Ok((None, "car", ("1.2", "webp"), None)));
        check("car/n01230", Ok((None, "car", ("n01230", ""), None)));
        check("car/7/cam31.jpeg", Ok((None, "car", ("7", ""), Some(31))));
    }

    #[test]
    fn an_image_outside_of_the_layout_is_an_error() {
        for name in [
            "1.png",
            "train/1.png/2.png/3.png",
            "a/b/c/cam0.png",
            "car/7/left.png",
            "test/car/7/camx.png",
            "car/7/cam+1.png",
            "",
        ] {
            check(name, Err(()));
        }
    }

    #[test]
    fn a_class_name_becomes_a_folder_name_for_every_file_system() {
        for (class, folder) in [
            ("car", "car"),
            ("t-shirt/top", "t-shirt%2Ftop"),
            ("100%", "100%25"),
            ("..", "%2E%2E"),
            ("lost+found", "%6Cost+found"),
            ("Größe x", "Größe x"),
        ] {
            assert_eq!(folder_name(class), folder);
        }
    }
}
