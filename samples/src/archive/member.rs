//! Names of members: `labels.json`, and one file per frame.

use std::fmt;

/// Name of the member with labels and classes.
pub(super) const LABELS: &str = "labels.json";
/// Extensions of frames. The content decides about the format, not the extension.
const EXTENSIONS: [&str; 4] = ["webp", "png", "jpg", "jpeg"];

/// Sample and slot of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FrameId {
    pub(super) sample: usize,
    pub(super) slot: usize,
}

impl fmt::Display for FrameId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:05}/cam{}", self.sample, self.slot)
    }
}

/// Kind of a member, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Member {
    Labels,
    Frame(FrameId),
    /// A file that the archive ignores, such as a README next to the samples.
    Other,
    /// A file in a sample's folder that is no frame. A misspelt frame would count as "not in view".
    Misnamed,
}

impl Member {
    pub(super) fn of(name: &str) -> Self {
        let name = name.strip_prefix("./").unwrap_or(name);
        match name.split_once('/') {
            None if name == LABELS => Self::Labels,
            None => Self::Other,
            Some((folder, file)) => match (number(folder), slot(file)) {
                (Some(sample), Some(slot)) if folder.len() >= 5 => Self::Frame(FrameId { sample, slot }),
                (Some(_), _) => Self::Misnamed,
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
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { digits.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, expected: Member) {
        assert_eq!(Member::of(name), expected, "{name}");
    }

    #[test]
    fn a_name_determines_the_kind_of_a_member() {
        check("labels.json", Member::Labels);
        check("./00012/cam3.webp", Member::Frame(FrameId { sample: 12, slot: 3 }));
        check("123456/cam10.jpeg", Member::Frame(FrameId { sample: 123_456, slot: 10 }));
        check("README.md", Member::Other);
        check("docs/cam1.png", Member::Other);
    }

    #[test]
    fn a_misspelt_frame_is_not_taken_for_an_absent_one() {
        for name in [
            "00001/Cam1.png",
            "00001/cam1.bmp",
            "00001/cam+1.png",
            "00001/cam1",
            "1/cam1.png",
            "00001/x/cam1.png",
        ] {
            check(name, Member::Misnamed);
        }
    }

    #[test]
    fn a_written_frame_id_is_read_back() {
        let id = FrameId { sample: 7, slot: 5 };
        check(&format!("{id}.png"), Member::Frame(id));
    }
}
