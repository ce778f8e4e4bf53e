//! Leaks between parts: a group, or an image byte for byte, that two parts share.

use std::collections::HashMap;
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

/// Refuses parts that share a group or an image. Where leaks are allowed, returns a note about them.
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
    let mismatch = match thing {
        Unshared::Group(group) => {
            Mismatch::new("no group in two parts", format!("`{group}` of samples `{first}` and `{second}`"))
        }
        Unshared::Image(_) => Mismatch::new(
            "no image in two parts (a camera that does not see a sample has no file)",
            format!("the same bytes in `{first}` and `{second}`"),
        ),
    };
    Err(DataError::Leak { at: root.display().to_string(), mismatch })
}
