//! Where a file or folder stands in a tree.

use crate::data_set::Part;

/// Endings of images.
pub(super) const IMAGES: [&str; 4] = ["png", "jpg", "jpeg", "webp"];

/// Where an image lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// `None` in a tree without parts.
    pub(super) part: Option<Part>,
    pub(super) class: String,
    pub(super) sample: String,
    /// `None` where the sample is one file.
    pub(super) slot: Option<usize>,
}

/// Where a file belongs; `None` for one that is no image, or hidden. An error for an image that lies where none belongs.
pub(super) fn place(name: &str) -> Result<Option<Place>, ()> {
    let Some(steps) = steps(name) else { return Ok(None) };
    let Some((file, folders)) = steps.split_last() else { return Ok(None) };
    let Some((stem, end)) = file.rsplit_once('.') else { return Ok(None) };
    if !IMAGES.contains(&end.to_ascii_lowercase().as_str()) {
        return Ok(None);
    }
    let (part, below) = match folders {
        [first, below @ ..] if Part::named(first).is_some() => (Part::named(first), below),
        _ => (None, folders),
    };
    match below {
        [class] => Ok(Some(Place { part, class: (*class).into(), sample: stem.into(), slot: None })),
        [class, sample] => {
            let slot = stem.strip_prefix("cam").and_then(|slot| slot.parse().ok()).ok_or(())?;
            Ok(Some(Place { part, class: (*class).into(), sample: (*sample).into(), slot: Some(slot) }))
        }
        _ => Err(()),
    }
}

/// Part and class, if a folder stands where that of a class does in a tree with parts, or in one without.
pub(super) fn class_folder(name: &str) -> Option<(Option<Part>, String)> {
    match steps(name)?.as_slice() {
        [part, class] => Some((Some(Part::named(part)?), (*class).into())),
        [class] if Part::named(class).is_none() => Some((None, (*class).into())),
        _ => None,
    }
}

/// The steps of a path; `None` where one is hidden.
fn steps(name: &str) -> Option<Vec<&str>> {
    let steps: Vec<&str> = name.split('/').filter(|step| !step.is_empty() && *step != ".").collect();
    steps.iter().all(|step| !step.starts_with('.')).then_some(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Part, class, sample, slot.
    type Expected<'a> = (Option<Part>, &'a str, &'a str, Option<usize>);

    #[track_caller]
    fn check(name: &str, expected: Result<Option<Expected<'_>>, ()>) {
        let found = place(name);
        let found = found.as_ref().map(|place| {
            place.as_ref().map(|place| (place.part, place.class.as_str(), place.sample.as_str(), place.slot))
        });
        assert_eq!(found, expected.as_ref().map(|place| *place), "{name}");
    }

    #[test]
    fn both_forms_are_told_apart_with_parts_and_without() {
        check("train/car/1.png", Ok(Some((Some(Part::Train), "car", "1", None))));
        check("./validation/car/7/cam3.JPG", Ok(Some((Some(Part::Validation), "car", "7", Some(3)))));
        check("car/1.2.webp", Ok(Some((None, "car", "1.2", None))));
        check("car/7/cam31.jpeg", Ok(Some((None, "car", "7", Some(31)))));
    }

    #[test]
    fn images_elsewhere_are_errors_and_other_files_are_not() {
        for name in
            ["1.png", "train/1.png/2.png/3.png", "a/b/c/cam0.png", "car/7/left.png", "test/car/7/camx.png"]
        {
            check(name, Err(()));
        }
        for name in ["README", "a/b/c/d/notes.txt", "car/._1.png", ".cache/a/b/1.png", ""] {
            check(name, Ok(None));
        }
    }
}
