//! Names inside an archive: `labels.json`, and one file per frame.

use std::fmt;

/// Name of the member with labels and classes.
pub(super) const LABELS: &str = "labels.json";
/// Frames are told apart by content; these are the names they go by.
const EXTENSIONS: [&str; 4] = ["webp", "png", "jpg", "jpeg"];

/// Place of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) sample: usize,
    pub(super) slot: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:05}/cam{}", self.sample, self.slot)
    }
}

/// What a file of an archive is, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Member {
    Labels,
    Frame(Place),
    /// Not ours and not in the way: a README beside the samples.
    Other,
    /// In a sample's folder, but no frame: a misspelt one would pass for "not in view".
    Stray,
}

impl Member {
    pub(super) fn of(name: &str) -> Self {
        let name = name.strip_prefix("./").unwrap_or(name);
        match name.split_once('/') {
            None if name == LABELS => Self::Labels,
            None => Self::Other,
            Some((folder, file)) => match (number(folder), slot(file)) {
                (Some(sample), Some(slot)) if folder.len() >= 5 => Self::Frame(Place { sample, slot }),
                (Some(_), _) => Self::Stray,
                (None, _) => Self::Other,
            },
        }
    }
}

fn slot(file: &str) -> Option<usize> {
    let (stem, extension) = file.split_once('.')?;
    EXTENSIONS.contains(&extension).then(|| number(stem.strip_prefix("cam")?)).flatten()
}

fn number(digits: &str) -> Option<usize> {
    let sound = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if sound { digits.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, expected: Member) {
        assert_eq!(Member::of(name), expected, "{name}");
    }

    #[test]
    fn names_say_what_a_member_is() {
        check("labels.json", Member::Labels);
        check("./00012/cam3.webp", Member::Frame(Place { sample: 12, slot: 3 }));
        check("123456/cam10.jpeg", Member::Frame(Place { sample: 123_456, slot: 10 }));
        check("README.md", Member::Other);
        check("docs/cam1.png", Member::Other);
    }

    #[test]
    fn a_misspelt_frame_does_not_pass_for_an_absent_one() {
        for name in [
            "00001/Cam1.png",
            "00001/cam1.bmp",
            "00001/cam+1.png",
            "00001/cam1",
            "1/cam1.png",
            "00001/x/cam1.png",
        ] {
            check(name, Member::Stray);
        }
    }

    #[test]
    fn a_written_place_is_read_back() {
        let place = Place { sample: 7, slot: 5 };
        check(&format!("{place}.png"), Member::Frame(place));
    }
}
