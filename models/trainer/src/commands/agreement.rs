//! `headwater-train train --workers mpi`: the check that all ranks have the same program, spec, recipe and data.

use anyhow::Context;
use headwater_calibration::data::{Parts, fingerprint};
use headwater_protocol::hex;
use headwater_samples::Part;
use headwater_spec::Spec;
use headwater_training::recipe::Recipe;
use headwater_training::scale_out::Communicator;
use headwater_training::scale_out::agreement::RankFacts;
use sha2::{Digest, Sha256};

use super::{Failure, usage};

/// Name of this machine.
pub(super) fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if name.trim().is_empty() { "an unnamed machine".to_owned() } else { name.trim().to_owned() }
}

/// Version and hash of this program: ranks read the messages of one build.
fn program() -> Result<String, Failure> {
    let file = std::env::current_exe().and_then(std::fs::read).context("reading this program")?;
    let hash = hex(&Sha256::digest(file)[..8]);
    Ok(format!("headwater-train {} with SHA-256 {hash}", env!("CARGO_PKG_VERSION")))
}

/// Refuses one rank alone, `shards` in the recipe, a batch that ranks and threads do not divide, and ranks with another program, spec, recipe or
/// data than rank 0.
pub(super) fn check(
    ranks: &dyn Communicator,
    spec: &Spec,
    recipe: &Recipe,
    (parts, limit_train, data): (&Parts, Option<usize>, String),
) -> Result<(), Failure> {
    let (all, threads) = (ranks.ranks(), recipe.workers);
    if all < 2 {
        return usage(
            "--workers mpi: expected at least 2 ranks, found 1; start with `mpirun -n 2 headwater-train train --workers mpi ...`, or leave \
             --workers mpi out",
        );
    }
    if recipe.shards > 1 {
        return usage("shards: expected none with --workers mpi, where each rank has one");
    }
    let batch = recipe.scale_out().batch(recipe.batch, all);
    if !batch.is_multiple_of(all * threads) {
        let next = batch.next_multiple_of(all * threads);
        return usage(format!(
            "batch: expected a multiple of {all} ranks times {threads} threads, found {batch}; {next} is one"
        ));
    }
    let text = |name: &str, text: String| (name.to_owned(), text);
    let part =
        |part: Part, limit| text(&format!("data, part {}", part.name()), fingerprint(parts, part, limit));
    let facts = RankFacts {
        host: host(),
        texts: vec![
            text("program", program()?),
            text("spec", spec.text.clone()),
            text("recipe", toml::to_string(recipe).context("writing the recipe")?),
            text("data", data),
            part(Part::Train, limit_train),
            part(Part::Validation, None),
        ],
    };
    match facts.difference(ranks) {
        None => Ok(()),
        Some(difference) => usage(format!("ranks differ: {difference}")),
    }
}
