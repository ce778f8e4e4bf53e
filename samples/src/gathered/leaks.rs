//! What parts must not share: a group, or a picture byte for byte.

use std::collections::HashMap;
use std::path::Path;

use super::{GatherError, Sample};
use crate::data_set::{Leaks, Part};
use crate::split::Groups;

/// Something that belongs to one part.
#[derive(PartialEq, Eq, Hash)]
enum Kept<'a> {
    Group(&'a str),
    Picture(&'a [u8; 32]),
}

/// What a sample holds, each with the name of its owner: the sample of a group, the file of a picture.
fn kept(sample: &Sample) -> impl Iterator<Item = (Kept<'_>, &str)> {
    let group = sample.group.iter().map(|group| (Kept::Group(group), sample.name.as_str()));
    let pictures = sample.views.iter().flatten();
    group.chain(pictures.map(|picture| (Kept::Picture(&picture.hash), picture.file.as_str())))
}

/// Puts samples together that share a group or a picture.
pub(super) fn join(samples: &[Sample], groups: &mut Groups) {
    let mut first = HashMap::new();
    for (at, sample) in samples.iter().enumerate() {
        for (kept, _) in kept(sample) {
            groups.join(*first.entry(kept).or_insert(at), at);
        }
    }
}

/// Whether given parts share something: refused, or said.
pub(super) fn check(
    root: &Path,
    samples: &[Sample],
    parts: &[Part],
    leaks: Leaks,
) -> Result<Option<String>, GatherError> {
    let mut first: HashMap<Kept<'_>, (Part, &str)> = HashMap::new();
    let mut shared = 0_usize;
    let mut example = None;
    for (sample, part) in samples.iter().zip(parts) {
        for (kept, owner) in kept(sample) {
            let what = if let Kept::Group(group) = &kept { Some(*group) } else { None };
            let (other, before) = *first.entry(kept).or_insert((*part, owner));
            if other != *part {
                shared += 1;
                example.get_or_insert((what, before, owner));
            }
        }
    }
    let Some((group, first, second)) = example else { return Ok(None) };
    if leaks == Leaks::Allowed {
        return Ok(Some(format!(
            "leak: {shared} times a group or a picture is in two parts, such as in `{first}` and `{second}`; results on test are better \
             than they would be on new data"
        )));
    }
    let (root, first, second) = (root.into(), first.into(), second.into());
    Err(match group {
        Some(group) => GatherError::LeakingGroup { root, group: group.into(), first, second },
        None => GatherError::Leak { root, first, second },
    })
}
