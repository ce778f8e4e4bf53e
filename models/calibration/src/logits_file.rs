//! Files with the logits of every exit and device of a network for a part of the data. Thresholds, tables and plots are made from
//! such files without running the network.

use std::fs;
use std::path::{Path, PathBuf};

use headwater_protocol::{Exit, SlotSet};
use headwater_samples::NO_CLASS;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::data::{AbsentView, Pixels, Samples};
use crate::number_file::{self, Magic, write_whole};
use crate::part_logits::PartLogits;

const MAGIC: Magic = *b"HWLOGI01";

/// Logits of a part, and the labels and presence by which answers are judged.
#[derive(Clone, Debug, PartialEq)]
pub struct PartFile {
    /// The samples, without their views.
    pub samples: Samples,
    /// Logits of every device and exit.
    pub logits: PartLogits,
}

#[derive(Serialize, Deserialize)]
struct Header {
    run: String,
    shape: [usize; 3],
    slots: usize,
    classes: usize,
    labels: Vec<u16>,
    groups: Vec<u32>,
    /// For each sample the set of slots that see it, as bits.
    seen: Vec<u64>,
    absent: AbsentView,
    devices: usize,
    exits: Vec<Exit>,
    /// Number of lists with the bytes of coded maps: one per slot, or 0 if maps are not coded.
    #[serde(default)]
    map_bytes: usize,
}

/// A file of logits that cannot be used.
#[derive(Debug, Error)]
#[error("logits {}: {reason}", file.display())]
pub struct LogitsFileError {
    file: PathBuf,
    reason: String,
}

impl LogitsFileError {
    fn new(file: &Path, reason: &dyn ToString) -> Self {
        Self { file: file.to_owned(), reason: reason.to_string() }
    }
}

/// Writes the logits of `samples` by the run `run`; after a kill the file is either the old or the new one.
///
/// # Errors
/// [`LogitsFileError`]: writing failed.
pub fn write(file: &Path, run: &str, samples: &Samples, logits: &PartLogits) -> Result<(), LogitsFileError> {
    let header = Header {
        run: run.to_owned(),
        shape: samples.shape,
        slots: samples.slots,
        classes: samples.classes,
        labels: samples.labels.clone(),
        groups: samples.groups.clone(),
        seen: samples.seen.iter().map(|seen| seen.bits()).collect(),
        absent: samples.absent,
        devices: logits.devices.len(),
        exits: logits.exits.iter().map(|(exit, _)| exit).collect(),
        map_bytes: logits.map_bytes.len(),
    };
    let devices = logits.devices.iter().map(Vec::as_slice);
    let exits = logits.exits.iter().map(|(_, logits)| logits.as_slice());
    let lists: Vec<&[f32]> = devices.chain(exits).chain(logits.map_bytes.iter().map(Vec::as_slice)).collect();
    let bytes = number_file::encode(MAGIC, header, &lists);
    write_whole(file, &bytes).map_err(|error| LogitsFileError::new(file, &error))
}

/// Reads the logits of the run `run`.
///
/// # Errors
/// [`LogitsFileError`]: no such file, cut off, altered, of another run, or with a header that contradicts itself.
pub fn read(file: &Path, run: &str) -> Result<PartFile, LogitsFileError> {
    let bytes = fs::read(file).map_err(|error| LogitsFileError::new(file, &error))?;
    let (header, mut lists): (Header, _) =
        number_file::decode(MAGIC, &bytes).map_err(|error| LogitsFileError::new(file, &error))?;
    if header.run != run {
        let reason = format!("expected those of run {run}, found run {}", header.run);
        return Err(LogitsFileError::new(file, &reason));
    }
    let Header { shape, slots, classes, labels, groups, seen, absent, devices, exits, map_bytes, .. } =
        header;
    let values = labels.len().checked_mul(classes);
    let of_logits = devices.saturating_add(exits.len());
    let has_lengths = of_logits.checked_add(map_bytes) == Some(lists.len())
        && (map_bytes == 0 || map_bytes == slots)
        && lists[..of_logits].iter().all(|list| Some(list.len()) == values)
        && lists[of_logits..].iter().all(|list| list.len() == labels.len())
        && seen.len() == labels.len()
        && (groups.is_empty() || groups.len() == labels.len());
    if !has_lengths {
        return Err(LogitsFileError::new(file, &"its lists have other lengths than its header says"));
    }
    if exits.is_empty() || !exits.is_sorted_by(|before, after| before < after) {
        let reason = format!("expected one exit or more, shallowest first and each once, found {exits:?}");
        return Err(LogitsFileError::new(file, &reason));
    }
    let is_unknown = |label: &u16| usize::from(*label) >= classes && *label != NO_CLASS;
    if let Some(label) = labels.iter().copied().find(is_unknown) {
        let reason = format!("expected labels below its {classes} classes, found {label}");
        return Err(LogitsFileError::new(file, &reason));
    }
    let map_bytes = lists.split_off(of_logits);
    let of_exits = lists.split_off(devices);
    let exits = exits.into_iter().zip(of_exits).collect();
    let logits = PartLogits { classes, devices: lists, exits, map_bytes };
    let seen = seen.into_iter().map(SlotSet::from_bits).collect();
    let (pixels, part_indices) = (Pixels::default(), Vec::new());
    let samples = Samples { shape, slots, classes, labels, groups, seen, pixels, absent, part_indices };
    Ok(PartFile { samples, logits })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Parts;
    use headwater_samples::Part;

    #[test]
    fn a_file_gives_back_what_was_written_and_is_refused_for_another_run() {
        let samples = Parts::drawn(4, 4, 3).part(Part::Test, None, 1);
        let values = |first: f32| (0..30).map(|value| first + value as f32).collect::<Vec<f32>>();
        let exits = [(Exit::LOCAL, values(1.0)), (Exit::CLOUD, values(2.0))];
        let logits = PartLogits {
            classes: 10,
            devices: vec![values(0.0); 6],
            exits: exits.into_iter().collect(),
            map_bytes: vec![vec![7.0, 0.0, 250.0]; 6],
        };
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("test.hwlogits");
        write(&file, "run", &samples, &logits).unwrap();
        let found = read(&file, "run").unwrap();
        assert_eq!(found.logits, logits);
        assert_eq!(found.samples, samples.without_pixels());
        let error = read(&file, "other").unwrap_err().to_string();
        assert!(error.contains("expected those of run other, found run run"), "{error}");
    }

    #[test]
    fn a_header_that_contradicts_itself_is_refused() {
        let samples = Parts::drawn(4, 4, 3).part(Part::Test, None, 1);
        let values = || vec![0.0; 30];
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("test.hwlogits");
        let check = |samples: &Samples, exits: Vec<(Exit, Vec<f32>)>, expected: &str| {
            let logits = PartLogits {
                classes: 10,
                devices: vec![values()],
                exits: exits.into_iter().collect(),
                map_bytes: Vec::new(),
            };
            write(&file, "run", samples, &logits).unwrap();
            let error = read(&file, "run").unwrap_err().to_string();
            assert!(error.contains(expected), "{expected}: {error}");
        };
        let local = || vec![(Exit::LOCAL, values())];
        check(&samples, Vec::new(), "expected one exit or more");
        check(&samples, vec![(Exit::LOCAL, vec![0.0; 29])], "other lengths than its header says");
        check(
            &Samples { groups: vec![0; 2], ..samples.clone() },
            local(),
            "other lengths than its header says",
        );
        check(
            &Samples { labels: vec![0, 10, 1], ..samples },
            local(),
            "labels below its 10 classes, found 10",
        );
    }
}
