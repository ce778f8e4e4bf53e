//! Names in class folders: the path of an image, and `classes.txt` with class names in label order.
//!
//! A class name may have characters that no folder can have.

use crate::Part;
use crate::error::Mismatch;

const EXTENSIONS: [&str; 4] = ["png", "jpg", "jpeg", "webp"];
const LAYOUT: &str = "PART/CLASS/IMAGE or PART/CLASS/SAMPLE/camN.EXT with a PART of train, val, test or calibration, or the same without PART/";

/// Path of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ImagePath {
    /// `None` in data without parts.
    pub(super) part: Option<Part>,
    pub(super) class: String,
    pub(super) sample: String,
    /// `None` if a sample is one file.
    pub(super) slot: Option<usize>,
}

/// Parses the path of a file. Returns `None` for a hidden file or a file that is no image.
///
/// # Errors
/// [`Mismatch`] for an image outside of the layout.
pub(super) fn parse_path(name: &str) -> Result<Option<ImagePath>, Mismatch> {
    let Some(steps) = steps(name) else { return Ok(None) };
    let Some((file, folders)) = steps.split_last() else { return Ok(None) };
    let Some((stem, extension)) = file.rsplit_once('.') else { return Ok(None) };
    if !EXTENSIONS.contains(&extension.to_ascii_lowercase().as_str()) {
        return Ok(None);
    }
    let part = folders.first().and_then(|first| Part::named(first));
    let (class, sample, slot) = match &folders[usize::from(part.is_some())..] {
        [class] => (*class, stem, None),
        [class, sample] => {
            let slot = stem.strip_prefix("cam").and_then(|slot| slot.parse().ok());
            (*class, *sample, Some(slot.ok_or_else(|| outside(name))?))
        }
        _ => return Err(outside(name)),
    };
    Ok(Some(ImagePath { part, class: class.into(), sample: sample.into(), slot }))
}

fn outside(name: &str) -> Mismatch {
    Mismatch::new(LAYOUT, format!("`{name}`"))
}

/// Part and class of a folder at the level of classes, in data with parts or without.
pub(super) fn class_folder(name: &str) -> Option<(Option<Part>, String)> {
    match steps(name)?.as_slice() {
        [part, class] => Some((Some(Part::named(part)?), (*class).into())),
        [class] if Part::named(class).is_none() => Some((None, (*class).into())),
        _ => None,
    }
}

/// Number of the frame in a sample's name `FRAME-OBJECT`; `None` if the name is not of two numbers.
pub(super) fn frame(sample: &str) -> Option<u64> {
    let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?;
    let (frame, object) = sample.split_once('-')?;
    number(object).and_then(|_: u64| number(frame))
}

/// Steps of a path; `None` for a hidden file or folder.
fn steps(name: &str) -> Option<Vec<&str>> {
    let steps: Vec<&str> = name.split('/').filter(|step| !step.is_empty() && *step != ".").collect();
    steps.iter().all(|step| !step.starts_with('.')).then_some(steps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::labelled_files::folder_name;

    /// Part, class, sample, slot.
    type Expected<'a> = (Option<Part>, &'a str, &'a str, Option<usize>);

    #[track_caller]
    fn check(name: &str, expected: Result<Option<Expected<'_>>, ()>) {
        let found = parse_path(name);
        let found = found.as_ref().map_err(|mismatch| assert_eq!(*mismatch, outside(name))).map(|path| {
            path.as_ref().map(|path| (path.part, path.class.as_str(), path.sample.as_str(), path.slot))
        });
        assert_eq!(found, expected, "{name}");
    }

    #[test]
    fn files_and_folders_of_samples_are_parsed_with_parts_and_without() {
        check("train/car/1.png", Ok(Some((Some(Part::Train), "car", "1", None))));
        check("./validation/car/7/cam3.JPG", Ok(Some((Some(Part::Validation), "car", "7", Some(3)))));
        check("car/1.2.webp", Ok(Some((None, "car", "1.2", None))));
        check("car/7/cam31.jpeg", Ok(Some((None, "car", "7", Some(31)))));
    }

    #[test]
    fn an_image_outside_of_the_layout_is_an_error_and_another_file_is_ignored() {
        for name in
            ["1.png", "train/1.png/2.png/3.png", "a/b/c/cam0.png", "car/7/left.png", "test/car/7/camx.png"]
        {
            check(name, Err(()));
        }
        for name in ["README", "a/b/c/d/notes.txt", "car/._1.png", ".cache/a/b/1.png", ""] {
            check(name, Ok(None));
        }
    }

    #[test]
    fn a_class_name_becomes_a_folder_name_for_every_file_system() {
        for (class, folder) in [
            ("car", "car"),
            ("t-shirt/top", "t-shirt%2Ftop"),
            ("100%", "100%25"),
            ("..", "%2E%2E"),
            ("Größe x", "Größe x"),
        ] {
            assert_eq!(folder_name(class), folder);
        }
    }
}
