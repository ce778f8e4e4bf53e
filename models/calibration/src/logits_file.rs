//! Files with the logits of every exit and device of a network for a part of the data. Thresholds, tables and plots are made from
//! such files without running the network.

use std::path::{Path, PathBuf};
use std::{fs, io};

use headwater_protocol::{Exit, SlotSet};
use headwater_samples::NO_CLASS;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::data::{AbsentView, Samples};
use crate::number_file::{self, Magic, write_whole};
use crate::part_logits::{EvaluatedPart, PartLogits};

const MAGIC: Magic = *b"HWLOGI01";

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

/// The bytes of a file with the logits of `samples` by the run `run`.
pub fn encode(run: &str, samples: &Samples, logits: &PartLogits) -> Vec<u8> {
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
    number_file::encode(MAGIC, header, &lists)
}

/// Writes the logits of `samples` by the run `run`; after a kill the file is either the old or the new one.
///
/// # Errors
/// [`LogitsFileError`]: writing failed.
pub fn write(file: &Path, run: &str, samples: &Samples, logits: &PartLogits) -> Result<(), LogitsFileError> {
    let failed = |error: io::Error| LogitsFileError { file: file.to_owned(), reason: error.to_string() };
    write_whole(file, &encode(run, samples, logits)).map_err(failed)
}

/// Reads the logits of the run `run`, without the views of the samples.
///
/// # Errors
/// [`LogitsFileError`]: no such file, cut off, altered, of another run, or with a header that contradicts itself.
pub fn read(file: &Path, run: &str) -> Result<EvaluatedPart, LogitsFileError> {
    let bytes = fs::read(file).map_err(|error| error.to_string());
    let found = bytes.and_then(|bytes| decode(run, &bytes));
    found.map_err(|reason| LogitsFileError { file: file.to_owned(), reason })
}

/// The logits of the run `run` in the bytes of a file.
///
/// # Errors
/// In words: cut off, altered, of another run, or with a header that contradicts itself.
pub fn decode(run: &str, bytes: &[u8]) -> Result<EvaluatedPart, String> {
    let (header, mut lists): (Header, _) =
        number_file::decode(MAGIC, bytes).map_err(|error| error.to_string())?;
    if header.run != run {
        return Err(format!("expected those of run {run}, found run {}", header.run));
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
        return Err("its lists have other lengths than its header says".to_owned());
    }
    if exits.is_empty() || !exits.is_sorted_by(|before, after| before < after) {
        return Err(format!("expected one exit or more, shallowest first and each once, found {exits:?}"));
    }
    let is_unknown = |label: &u16| usize::from(*label) >= classes && *label != NO_CLASS;
    if let Some(label) = labels.iter().copied().find(is_unknown) {
        return Err(format!("expected labels below its {classes} classes, found {label}"));
    }
    let map_bytes = lists.split_off(of_logits);
    let of_exits = lists.split_off(devices);
    let exits = exits.into_iter().zip(of_exits).collect();
    let logits = PartLogits { classes, devices: lists, exits, map_bytes };
    let seen = seen.into_iter().map(SlotSet::from_bits).collect();
    let samples = Samples { shape, slots, classes, labels, groups, seen, absent, ..Samples::default() };
    Ok(EvaluatedPart { samples, logits })
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
