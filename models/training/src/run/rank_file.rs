//! The files of ranks beside a checkpoint: the state that one rank alone has, as a [file of numbers](headwater_calibration::number_file).
//!
//! ```text
//! RUN/checkpoint-000000400.hwck              of rank 0, written last
//!     checkpoint-000000400-rank-1.hwrank     on the machine of each rank
//! ```

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::checkpoint::remove_old;
use crate::optimiser::Moments;
use crate::scale_out::RankState;
use headwater_calibration::number_file::{self, Magic, write_whole};

const MAGIC: Magic = *b"HWRANK01";

/// Identity of a file of a rank, stored as its header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RankFile {
    /// Identity of the run.
    pub(super) run: String,
    /// Step of the checkpoint.
    pub(super) step: u64,
    /// Number of the rank, from 0.
    pub(super) rank: usize,
    /// Number of ranks.
    pub(super) ranks: usize,
}

impl RankFile {
    fn path(&self, folder: &Path) -> PathBuf {
        folder.join(format!("checkpoint-{:09}-rank-{}.hwrank", self.step, self.rank))
    }

    /// Writes the state of the rank into `folder`, and removes all but its last two files.
    ///
    /// # Errors
    /// Writing failed.
    pub(super) fn write(&self, folder: &Path, state: &RankState) -> io::Result<()> {
        let file = self.path(folder);
        let RankState { moments, sent_residual, owned_residual } = state;
        let lists = [&moments.first, &moments.second, sent_residual, owned_residual];
        write_whole(&file, &number_file::encode(MAGIC, self, &lists.map(Vec::as_slice)))
            .map_err(|error| io::Error::new(error.kind(), format!("writing {}: {error}", file.display())))?;
        remove_old(folder, &format!("-rank-{}.hwrank", self.rank))
    }

    /// The bytes of the file in `folder`; `None` if the file cannot be read, is damaged, or is of another run, step, rank or number of ranks.
    pub(super) fn read(&self, folder: &Path) -> Option<Vec<u8>> {
        let bytes = fs::read(self.path(folder)).ok()?;
        self.decode(&bytes).is_some().then_some(bytes)
    }

    /// The state in the bytes of the file; `None` if the bytes are damaged or of another run, step, rank or number of ranks.
    pub(super) fn decode(&self, bytes: &[u8]) -> Option<RankState> {
        let (header, lists): (Self, Vec<Vec<f32>>) = number_file::decode(MAGIC, bytes).ok()?;
        let [first, second, sent_residual, owned_residual] = <[Vec<f32>; 4]>::try_from(lists).ok()?;
        (header == *self).then_some(RankState {
            moments: Moments { first, second },
            sent_residual,
            owned_residual,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_two_files_of_a_rank_stay_and_a_file_is_that_of_its_rank_and_step() {
        let folder = tempfile::tempdir().unwrap();
        let file = |step, rank| RankFile { run: "run".into(), step, rank, ranks: 2 };
        let state = RankState {
            moments: Moments { first: vec![1.0], second: vec![2.0] },
            sent_residual: vec![3.0],
            owned_residual: vec![],
        };
        for step in [4, 8, 12] {
            file(step, 0).write(folder.path(), &state).unwrap();
            file(step, 1).write(folder.path(), &state).unwrap();
        }
        assert_eq!(file(4, 1).read(folder.path()), None);
        for step in [8, 12] {
            let bytes = file(step, 1).read(folder.path()).unwrap();
            assert_eq!(file(step, 1).decode(&bytes), Some(state.clone()));
            assert_eq!(file(step, 0).decode(&bytes), None);
        }
        std::fs::write(file(12, 1).path(folder.path()), b"HWRANK01").unwrap();
        assert_eq!(file(12, 1).read(folder.path()), None);
    }
}
