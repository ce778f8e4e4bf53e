//! Leaks between parts: a group, or an image byte for byte, that two parts share.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use super::LabelledSample;
use crate::data_set::Leaks;
use crate::error::Mismatch;
use crate::split::Groups;
use crate::{DataError, Part};

/// A thing that may be in one part only.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Unshared<'a> {
    Group(&'a str),
    /// Hash of an image file.
    Image(&'a [u8; 32]),
}

/// Group and images of a sample. A group comes with the name of the sample, an image with its path.
fn unshared(sample: &LabelledSample) -> impl Iterator<Item = (Unshared<'_>, &str)> {
    let group = sample.group.iter().map(|group| (Unshared::Group(group), sample.name.as_str()));
    let images = sample.views.iter().flatten();
    group.chain(images.map(|image| (Unshared::Image(&image.hash), image.path.as_str())))
}

/// Joins samples that share a group or an image.
pub(super) fn join(samples: &[LabelledSample], groups: &mut Groups) {
    let mut first = HashMap::new();
    for (at, sample) in samples.iter().enumerate() {
        for (thing, _) in unshared(sample) {
            groups.join(*first.entry(thing).or_insert(at), at);
        }
    }
}

/// Reason why the calibration part allows no promise, in words: the part shares groups or images with another part, or has one image in
/// samples of different groups, which would count as independent. `None` if a promise is allowed.
pub(super) fn promise_obstacle(samples: &[LabelledSample], parts: &[Part]) -> Option<String> {
    let (mut elsewhere, mut within) = (HashSet::new(), HashMap::new());
    let of = |is_calibration: bool| {
        let all = samples.iter().zip(parts).enumerate();
        all.filter(move |(_, (_, part))| (**part == Part::Calibration) == is_calibration).flat_map(
            |(at, (sample, _))| unshared(sample).map(move |(thing, name)| (at, sample, thing, name)),
        )
    };
    elsewhere.extend(of(false).map(|(_, _, thing, _)| thing));
    for (at, sample, thing, name) in of(true) {
        if elsewhere.contains(&thing) {
            return Some(format!("one that shares groups or images with another part, such as in `{name}`"));
        }
        let Unshared::Image(_) = thing else { continue };
        let group = sample.group.as_deref();
        let (first, first_group, first_name) = *within.entry(thing).or_insert((at, group, name));
        if first != at && (group.is_none() || group != first_group) {
            return Some(format!(
                "one with the same image in samples that would count as independent, `{first_name}` and `{name}`"
            ));
        }
    }
    None
}

/// Refuses parts that share a group or an image. If leaks are allowed, returns a note about the leaks instead.
pub(super) fn check(
    root: &Path,
    samples: &[LabelledSample],
    parts: &[Part],
    leaks: Leaks,
) -> Result<Option<String>, DataError> {
    let mut first_use: HashMap<Unshared<'_>, (Part, &str)> = HashMap::new();
    let mut count = 0_usize;
    let mut example = None;
    for (sample, part) in samples.iter().zip(parts) {
        for (thing, second) in unshared(sample) {
            let (first_part, first) = *first_use.entry(thing).or_insert((*part, second));
            if first_part != *part {
                count += 1;
                example.get_or_insert((thing, first, second));
            }
        }
    }
    let Some((thing, first, second)) = example else { return Ok(None) };
    if leaks == Leaks::Allowed {
        return Ok(Some(format!(
            "leak: {count} times a group or an image is in two parts, such as in `{first}` and `{second}`; results on test are better \
             than they would be on new data"
        )));
    }
    let (expected, found) = match thing {
        Unshared::Group(group) => {
            ("no group in two parts", format!("`{group}` of samples `{first}` and `{second}`"))
        }
        Unshared::Image(_) => (
            "no image in two parts (a camera that does not see a sample has no file)",
            format!("the same bytes in `{first}` and `{second}`"),
        ),
    };
    let advice = "keep all images of one scene in one part, or results on test mean nothing (--allow-leaks takes the data as it is)";
    Err(Mismatch::new(expected, format!("{found}; {advice}")).invalid(root.display()))
}
