//! Checkpoints: the state from which a run resumes to the same result, as a [file of numbers](headwater_calibration::number_file):
//! parameters, statistics, first and second moments, outer velocity, and the parameters and statistics of the best epoch, if the run exports
//! the best epoch. All are in one file, so that a kill at any moment leaves a valid checkpoint; the last two checkpoints are kept.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::layers::State;
use crate::loss::LossSums;
use crate::optimiser::Moments;
use headwater_calibration::by_exit::ByExit;
use headwater_calibration::number_file::{self, Magic, write_whole};
use headwater_calibration::part_logits::ExitShares;

const MAGIC: Magic = *b"HWCKPT02";
/// End of the names of checkpoints.
const END: &str = ".hwck";
/// Number of checkpoints kept in a folder, and of files of each rank.
const KEPT: usize = 2;

/// Progress of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Epochs finished.
    pub epoch: u32,
    /// Steps finished in the unfinished epoch.
    pub step_in_epoch: u32,
    /// Steps finished since the beginning of the run.
    pub step: u64,
    /// Loss and right answers, summed over the unfinished epoch.
    #[serde(rename = "figures")]
    pub sums: LossSums,
    /// Records of the finished epochs.
    pub epochs: Vec<EpochRecord>,
    /// Seconds of training so far, over all starts.
    pub seconds: f64,
    /// Exchange among ranks so far.
    pub scale_out: ScaleOutProgress,
    /// The exported epoch: the latest one within one standard error of the best on validation; `None` if the last epoch is exported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best: Option<u32>,
}

/// Results of one epoch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EpochRecord {
    /// Number of the epoch, from 1.
    pub epoch: u32,
    /// Mean loss over the augmented train part.
    pub loss: f64,
    /// Share of correct answers of each exit while training.
    #[serde(flatten, with = "headwater_calibration::by_exit::train")]
    pub train: ByExit<f64>,
    /// Share of correct answers on the validation part.
    pub validation: ExitShares,
    /// Mean cross-entropy on the validation part, over all exits and the samples with a view; `None` without such samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation_loss: Option<f64>,
    /// Step size at the end of the epoch.
    pub learning_rate: f32,
}

/// Exchange among ranks so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScaleOutProgress {
    /// Number of ranks since the last start of the run.
    pub ranks: usize,
    /// Number of exchanges of gradients or weights; in a run of one rank, the number of steps.
    pub exchanges: u64,
    /// Bytes that rank 0 has sent to other ranks, without the headers of the transport.
    pub sent_bytes: u64,
}

/// A saved run.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    /// Progress of the run.
    pub progress: Progress,
    /// Parameters and running statistics.
    pub state: State,
    /// State of the optimiser.
    pub moments: Moments,
    /// Velocity of the outer optimiser of local steps; empty in other runs.
    pub outer_velocity: Vec<f32>,
    /// State at the end of the epoch [`Progress::best`]; `None` if the last epoch is exported.
    pub best: Option<State>,
}

#[derive(Serialize, Deserialize)]
struct Header {
    run: String,
    progress: Progress,
}

/// A checkpoint that cannot be written or used.
#[derive(Debug, Error)]
#[error("checkpoint {}: {reason}", .file.display())]
pub struct CheckpointError {
    file: PathBuf,
    reason: String,
    /// True when the file is from another version of the program, or from a run with another spec, recipe, seed or data.
    is_foreign: bool,
}

impl CheckpointError {
    fn new(file: &Path, reason: impl fmt::Display) -> Self {
        Self { file: file.to_owned(), reason: reason.to_string(), is_foreign: false }
    }
}

impl Progress {
    /// Record of the epoch that is exported: [`best`](Self::best), or the last one.
    pub fn exported(&self) -> Option<&EpochRecord> {
        let best = self.best.and_then(|best| self.epochs.iter().find(|record| record.epoch == best));
        best.or(self.epochs.last())
    }
}

impl EpochRecord {
    /// Mean share of right answers on the validation part over the exits.
    pub fn score(&self) -> f64 {
        let shares = self.validation.exits.iter().map(|(_, share)| *share);
        shares.sum::<f64>() / self.validation.exits.iter().count().max(1) as f64
    }
}

impl Checkpoint {
    /// The checkpoint of a state before the first step.
    pub fn new(state: State, moments: Moments) -> Self {
        Self { progress: Progress::default(), state, moments, outer_velocity: Vec::new(), best: None }
    }

    /// The checkpoint with the state that is exported in place of the newest one.
    #[must_use]
    pub fn exported(mut self) -> Self {
        self.state = self.best.take().unwrap_or(self.state);
        self
    }

    /// Keeps the present state, which belongs to the last record, unless an earlier epoch was better on validation by more than one standard
    /// error of `independent` samples; keeps nothing if `independent` is 0. A smaller difference may be chance, and later epochs have smaller
    /// steps behind them (one-standard-error rule: Breiman et al., Classification and Regression Trees, 1984, section 3.4.3).
    pub fn keep_best(&mut self, independent: u64) {
        let Some(last) = self.progress.epochs.last().filter(|_| independent > 0) else { return };
        let highest = self.progress.epochs.iter().map(EpochRecord::score).fold(0.0, f64::max);
        // One right and one wrong sample are added: without them the standard error at 100 % would be 0.
        let (all, right) = (independent as f64 + 2.0, independent as f64 * highest + 1.0);
        let error = (right / all * (1.0 - right / all) / all).sqrt();
        if last.score() >= highest - error {
            self.progress.best = Some(last.epoch);
            self.best = Some(self.state.clone());
        }
    }

    /// Writes the checkpoint into `folder` and removes all but the last two.
    ///
    /// # Errors
    /// The file cannot be written, or the folder cannot be listed.
    pub fn write(&self, folder: &Path, run: &str) -> Result<(), CheckpointError> {
        let file = folder.join(name(self.progress.step));
        let failed = |error| CheckpointError::new(&file, error);
        write_whole(&file, &self.encode(run)).map_err(failed)?;
        // The sync makes the rename itself durable. A folder that cannot be synced does not stop the run.
        let _ = File::open(folder).and_then(|folder| folder.sync_all());
        remove_old(folder, END).map_err(failed)
    }

    /// The newest valid checkpoint in `folder`, and the errors of newer checkpoints that were skipped.
    ///
    /// # Errors
    /// A checkpoint is of another run or version, or the folder cannot be listed.
    pub fn newest(folder: &Path, run: &str) -> Result<(Option<Self>, Vec<CheckpointError>), CheckpointError> {
        Self::newest_before(folder, run, u64::MAX)
    }

    /// As [`newest`](Self::newest), among the checkpoints before step `step`; `u64::MAX` for all checkpoints.
    ///
    /// # Errors
    /// As [`newest`](Self::newest).
    pub fn newest_before(
        folder: &Path,
        run: &str,
        step: u64,
    ) -> Result<(Option<Self>, Vec<CheckpointError>), CheckpointError> {
        let mut skipped = Vec::new();
        let failed = |error| CheckpointError::new(folder, error);
        let end = folder.join(name(step));
        for file in
            list(folder, END).map_err(failed)?.into_iter().filter(|file| step == u64::MAX || *file < end)
        {
            let read = fs::read(&file).map_err(|error| CheckpointError::new(&file, error));
            match read.and_then(|bytes| Self::decode(&file, &bytes, run)) {
                Ok(checkpoint) => return Ok((Some(checkpoint), skipped)),
                Err(error) if error.is_foreign => return Err(error),
                Err(error) => skipped.push(error),
            }
        }
        Ok((None, skipped))
    }

    /// The bytes of a checkpoint of a run.
    pub fn encode(&self, run: &str) -> Vec<u8> {
        let Moments { first, second } = &self.moments;
        let lists = [&self.state.parameters, &self.state.statistics, first, second, &self.outer_velocity];
        let best = self.best.iter().flat_map(|best| [&best.parameters, &best.statistics]);
        let lists: Vec<&[f32]> = lists.into_iter().chain(best).map(Vec::as_slice).collect();
        let header = Header { run: run.to_owned(), progress: self.progress.clone() };
        number_file::encode(MAGIC, header, &lists)
    }

    /// The checkpoint in the bytes of a file.
    ///
    /// # Errors
    /// [`CheckpointError`]: damaged, of another version, or of another run.
    pub fn decode(file: &Path, bytes: &[u8], run: &str) -> Result<Self, CheckpointError> {
        let damaged = |reason: String| {
            CheckpointError::new(file, format!("{reason}; the run was probably killed while writing it"))
        };
        let foreign =
            |reason: String| CheckpointError { is_foreign: true, ..CheckpointError::new(file, reason) };
        if let Some(form) = bytes.first_chunk::<8>().filter(|form| **form != MAGIC && form[..6] == MAGIC[..6])
        {
            let [expected, found] = [&MAGIC, form].map(|form| String::from_utf8_lossy(form));
            return Err(foreign(format!(
                "expected form {expected}, found form {found}, of another version of headwater-train; choose another --out to train again, or finish the \
                 run with that version"
            )));
        }
        let (header, mut lists): (Header, Vec<Vec<f32>>) =
            number_file::decode(MAGIC, bytes).map_err(|error| damaged(error.to_string()))?;
        if header.run != run {
            return Err(foreign(format!(
                "expected run {run}, found run {}; choose another --out",
                header.run
            )));
        }
        let expected = if header.progress.best.is_some() { 7 } else { 5 };
        let of_other_number =
            |found: usize| damaged(format!("expected {expected} lists of numbers, found {found}"));
        if lists.len() != expected {
            return Err(of_other_number(lists.len()));
        }
        let best = <[Vec<f32>; 2]>::try_from(lists.split_off(5)).ok();
        let [parameters, statistics, first, second, outer_velocity] =
            <[Vec<f32>; 5]>::try_from(lists).map_err(|lists| of_other_number(lists.len()))?;
        let state = |parameters, statistics| State { parameters, statistics, coding: None };
        Ok(Self {
            progress: header.progress,
            state: state(parameters, statistics),
            moments: Moments { first, second },
            outer_velocity,
            best: best.map(|[parameters, statistics]| state(parameters, statistics)),
        })
    }
}

fn name(step: u64) -> String {
    format!("checkpoint-{step:09}{END}")
}

/// Removes the files of a folder whose names end in `end`, except the newest [`KEPT`] files.
pub(crate) fn remove_old(folder: &Path, end: &str) -> io::Result<()> {
    list(folder, end)?.into_iter().skip(KEPT).for_each(|old| {
        let _ = fs::remove_file(old);
    });
    Ok(())
}

/// Files of a folder whose names end in `end`, newest first.
fn list(folder: &Path, end: &str) -> io::Result<Vec<PathBuf>> {
    let files = fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
    let mut files = files.collect::<io::Result<Vec<_>>>()?;
    files.retain(|file| file.file_name().is_some_and(|name| name.to_string_lossy().ends_with(end)));
    files.sort_unstable_by(|a, b| b.cmp(a));
    Ok(files)
}

#[cfg(test)]
mod tests {
    use headwater_protocol::Exit;

    use super::*;

    #[test]
    fn the_latest_epoch_within_one_standard_error_of_the_best_is_kept() {
        let state = |number: f32| State { parameters: vec![number], statistics: vec![], coding: None };
        let mut run = Checkpoint::new(state(0.0), Moments::new(0));
        let mut kept = Vec::new();
        // Of 100 independent samples: the standard error at 0.9 is 0.03.
        for (epoch, share) in (1..).zip([0.5, 0.85, 0.9, 0.88, 0.86, 0.94, 0.90]) {
            run.state = state(epoch as f32);
            run.progress.epochs.push(EpochRecord {
                epoch,
                loss: 0.0,
                train: ByExit::default(),
                validation: ExitShares {
                    devices: vec![],
                    exits: [(Exit::LOCAL, share + 0.01), (Exit::CLOUD, share - 0.01)].into_iter().collect(),
                },
                validation_loss: None,
                learning_rate: 0.1,
            });
            run.keep_best(0);
            assert_eq!(run.progress.best, kept.last().copied().flatten(), "no validation part, no choice");
            run.keep_best(100);
            kept.push(run.progress.best);
        }
        assert_eq!(kept, [Some(1), Some(2), Some(3), Some(4), Some(4), Some(6), Some(6)]);
        assert_eq!(run.progress.exported().map(|record| record.epoch), Some(6));
        assert_eq!(run.clone().exported().state, state(6.0));
        let read = |run: &Checkpoint| Checkpoint::decode(Path::new("file"), &run.encode("run"), "run");
        assert_eq!(read(&run).unwrap(), run);
        let progress = Progress { best: None, ..run.progress.clone() };
        for (wrong, expected) in [
            (Checkpoint { best: None, ..run.clone() }, "expected 7 lists of numbers, found 5"),
            (Checkpoint { progress, ..run.clone() }, "expected 5 lists of numbers, found 7"),
        ] {
            let error = read(&wrong).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
