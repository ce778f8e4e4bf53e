//! `headwater-train train --init`: beginning with the weights of another run.

use std::path::PathBuf;

use clap::Args;
use headwater_training::experiment::Experiment;
use headwater_training::transfer::{LayerStart, start_from, without_number};

use super::Failure;
use super::output::print_error;
use super::saved::{TrainedRun, trained};

/// Arguments for the first weights.
#[derive(Args)]
pub(crate) struct Init {
    /// Begin with the weights of a run folder, or of a bundle that was exported --with-training-weights: every layer whose shape fits takes
    /// them, the others are made anew, and a table says which. Other classes, other cameras and another view size are fine
    /// (docs/training.md); give fewer --epochs.
    #[arg(long, value_name = "RUN|BUNDLE")]
    pub(super) init: Option<PathBuf>,
    /// Parts whose weights stay as --init gives them: device, device.0 (its first block), device.head, local, edge, cloud, cloud.2. A layer
    /// that is made anew learns all the same.
    #[arg(long, value_name = "PART", value_delimiter = ',', requires = "init")]
    freeze: Vec<String>,
    /// States that the run of --init has learnt no sample of the validation, calibration and test part. Without it, figures on other data
    /// than that run's come with a warning and without a promise.
    #[arg(long, requires = "init")]
    kept_apart: bool,
}

impl Init {
    /// Lets an experiment begin with the weights that are asked for, if any are, and prints which layers take them.
    pub(crate) fn start(&self, experiment: &mut Experiment) -> Result<(), Failure> {
        let Some(path) = &self.init else { return Ok(()) };
        let TrainedRun { experiment: other, checkpoint } = trained(path)?;
        let kept_apart = self.kept_apart || experiment.info.is_apart_from(&other.info);
        let starts = start_from(experiment, (&other, &checkpoint.state), &self.freeze, kept_apart)
            .map_err(|error| Failure::usage(anyhow::anyhow!("--init {}: {error}", path.display())))?;
        let name = &other.network.spec.network.network.name;
        print_error(&format!("first weights from {}, {name} on {}:", path.display(), other.info.data));
        lines(&starts).iter().for_each(|line| print_error(line));
        Ok(())
    }
}

/// A line for each layer; slots and edges of equal outcome share a line.
fn lines(starts: &[LayerStart]) -> Vec<String> {
    let mut rows: Vec<([String; 3], usize)> = Vec::new();
    for start in starts {
        let outcome = match (&start.from, start.is_frozen) {
            (Ok(from), true) => format!("from {}, frozen", without_number(from)),
            (Ok(from), false) => format!("from {}", without_number(from)),
            (Err(why), _) => format!("new: {why}"),
        };
        let row = [without_number(&start.name), format!("{:?}", start.shape), outcome];
        match rows.iter_mut().find(|(known, _)| *known == row) {
            Some((_, count)) => *count += 1,
            None => rows.push((row, 1)),
        }
    }
    let line = |([name, shape, outcome], count): &([String; 3], usize)| {
        let times = if *count > 1 { format!("{count} x ") } else { String::new() };
        format!("  {name:<14} {:<22} {outcome}", times + shape)
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_of_equal_outcome_share_a_line_and_a_new_layer_says_why() {
        let start = |name: &str, from: Result<&str, &str>, is_frozen| LayerStart {
            name: name.to_owned(),
            shape: vec![8, 3],
            from: from.map(str::to_owned).map_err(str::to_owned),
            is_frozen,
        };
        let starts = [
            start("device-0.0", Ok("device-0.0"), true),
            start("device-1.0", Ok("device-0.0"), true),
            start("cloud.1", Err("other classes"), false),
        ];
        let found = lines(&starts);
        assert_eq!(found[0], "  device.0       2 x [8, 3]             from device.0, frozen");
        assert_eq!(found[1], "  cloud.1        [8, 3]                 new: other classes");
    }
}
