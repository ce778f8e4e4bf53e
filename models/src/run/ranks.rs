//! Training on several ranks in run folders: rank 0 writes the checkpoints; each rank writes what it alone has into the run folder of its machine, which
//! may be the same folder.

use std::time::Instant;

use super::rank_file::RankFile;
use super::{RunError, RunFolder};
use crate::data::Samples;
use crate::experiment::Experiment;
use crate::scale_out::message::{Reader, put_u64};
use crate::scale_out::{Communicator, RankState};
use crate::training::{Checkpoint, Event, Trainer};

/// Trains to the end of the recipe on all ranks, from the newest checkpoint of rank 0, and returns the last checkpoint. `train` and `validation` are
/// the shards of this rank. Every rank must come here.
///
/// # Errors
/// [`RunError`]: a folder cannot be written, has checkpoints of another run, or lacks the file of a rank.
///
/// # Panics
/// When the recipe has no `scale_out`.
pub fn train_on_ranks(
    experiment: &Experiment,
    ranks: &dyn Communicator,
    folder: &RunFolder,
    [train, validation]: [&Samples; 2],
    mut notify: impl FnMut(&Event<'_>),
) -> Result<Checkpoint, RunError> {
    let identity = &experiment.info.identity;
    let mut skipped = Vec::new();
    let from = newest(experiment, ranks, folder, &mut skipped)?;
    if let Some((from, _)) = &from {
        notify(&Event::Resumed { progress: &from.progress, skipped: &skipped });
    }
    let seconds = from.as_ref().map_or(0.0, |(from, _)| from.progress.seconds);
    let mut trainer = Trainer::on_ranks(experiment, ranks, [train, validation], from);
    let started = Instant::now();
    trainer.run(|mut event| -> Result<(), RunError> {
        notify(&event);
        if let Event::Checkpoint(checkpoint, state) = &mut event {
            if let Some(state) = state {
                let step = checkpoint.progress.step;
                let file = RankFile { run: identity.clone(), step, rank: ranks.rank(), ranks: ranks.ranks() };
                file.write(&folder.path, state)?;
                // Every rank has written its file before the checkpoint says that there are files.
                ranks.all_gather(&[]);
            }
            if ranks.rank() == 0 {
                checkpoint.progress.seconds = seconds + started.elapsed().as_secs_f64();
                checkpoint.write(&folder.path, identity)?;
                folder.write_metrics(&checkpoint.progress.epochs)?;
            }
        }
        Ok(())
    })?;
    Ok(trainer.checkpoint)
}

/// The newest checkpoint of rank 0, and the states of the ranks that wrote it, wherever their files are.
fn newest(
    experiment: &Experiment,
    ranks: &dyn Communicator,
    folder: &RunFolder,
    skipped: &mut Vec<crate::training::CheckpointError>,
) -> Result<Option<(Checkpoint, Vec<RankState>)>, RunError> {
    let identity = &experiment.info.identity;
    let mut own = Vec::new();
    if ranks.rank() == 0 {
        let (found, errors) = Checkpoint::newest(&folder.path, identity)?;
        own = found.map_or_else(Vec::new, |found| found.encode(identity));
        skipped.extend(errors);
    }
    let bytes = ranks.all_gather(&own).swap_remove(0);
    if bytes.is_empty() {
        return Ok(None);
    }
    let checkpoint = Checkpoint::decode(&folder.path, &bytes, identity)?;
    let before = checkpoint.progress.scale_out.map_or(0, |progress| progress.ranks);
    let has_states = experiment.recipe.scale_out.is_some_and(|recipe| recipe.has_rank_state());
    if !has_states {
        return Ok(Some((checkpoint, Vec::new())));
    }
    let states = rank_states(ranks, folder, (identity, checkpoint.progress.step), before)?;
    Ok(Some((checkpoint, states)))
}

/// The states of `before` ranks at a step, each from the first rank that has its file.
fn rank_states(
    ranks: &dyn Communicator,
    folder: &RunFolder,
    (run, step): (&str, u64),
    before: usize,
) -> Result<Vec<RankState>, RunError> {
    let file = |rank| RankFile { run: run.to_owned(), step, rank, ranks: before };
    let own: Vec<Option<Vec<u8>>> = (0..before).map(|rank| file(rank).read(&folder.path)).collect();
    let has: Vec<u8> = own.iter().map(|file| u8::from(file.is_some())).collect();
    let has = ranks.all_gather(&has);
    let mut message = Vec::new();
    for (rank, bytes) in own.iter().enumerate() {
        let sender = has.iter().position(|of| of[rank] == 1);
        let bytes = bytes.as_deref().filter(|_| sender == Some(ranks.rank())).unwrap_or_default();
        put_u64(&mut message, bytes.len() as u64);
        message.extend(bytes);
    }
    let all = ranks.all_gather(&message);
    let mut readers: Vec<Reader<'_>> = all.iter().map(|message| Reader(message)).collect();
    let found = (0..before).map(|rank| {
        let files = readers.iter_mut().map(|reader| {
            let len = reader.u64() as usize;
            reader.bytes(len)
        });
        let files: Vec<&[u8]> = files.collect();
        files.into_iter().find_map(|bytes| file(rank).decode(bytes))
    });
    let found: Vec<Option<RankState>> = found.collect();
    let missing: Vec<String> =
        (0..before).filter(|rank| found[*rank].is_none()).map(|rank| rank.to_string()).collect();
    if !missing.is_empty() {
        return Err(RunError::MissingRankFiles { step, ranks: before, missing: missing.join(", ") });
    }
    Ok(found.into_iter().flatten().collect())
}
