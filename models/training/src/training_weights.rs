//! The trained weights of a run in one file, the optional last member of a bundle. The file has the latent weights of binary layers (sections
//! have only their signs), all other weights and the statistics of batch norms, with spec, recipe and epochs of the run.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::checkpoint::{Checkpoint, Progress};
use crate::experiment::{Experiment, RunInfo};
use crate::layers::State;
use crate::optimiser::Moments;
use crate::recipe::Recipe;
use headwater_calibration::number_file::{self, Magic};
use headwater_spec::Spec;

const MAGIC: Magic = *b"HWWGHT01";

#[derive(Serialize, Deserialize)]
struct Header {
    spec: String,
    recipe: String,
    run: RunInfo,
    progress: Progress,
}

/// The file of a run with the weights of a checkpoint. It ends with the SHA-256 of all bytes before.
///
/// # Errors
/// The recipe cannot be written as TOML.
pub fn encode(experiment: &Experiment, checkpoint: &Checkpoint) -> io::Result<Vec<u8>> {
    let header = Header {
        spec: experiment.network.spec.text.clone(),
        recipe: toml::to_string(&experiment.recipe).map_err(io::Error::other)?,
        run: experiment.info.clone(),
        progress: checkpoint.progress.clone(),
    };
    let State { parameters, statistics, .. } = &checkpoint.state;
    Ok(number_file::encode(MAGIC, header, &[parameters, statistics]))
}

/// The run in a file, with a checkpoint that has no state of the optimiser.
///
/// # Errors
/// The file is damaged, of another version, or contradicts itself; or the system refuses a thread.
pub fn decode(bytes: &[u8]) -> io::Result<(Experiment, Checkpoint)> {
    let (header, lists): (Header, _) = number_file::decode(MAGIC, bytes).map_err(io::Error::other)?;
    let spec = Spec::parse(Path::new("spec of the run"), &header.spec).map_err(io::Error::other)?;
    let recipe = Recipe::parse(Path::new("recipe of the run"), &header.recipe).map_err(io::Error::other)?;
    let experiment = Experiment::stored(spec, recipe, header.run)?;
    let layout = &experiment.network.layout;
    let expected = [layout.parameter_count(), layout.statistics_count()];
    match <[Vec<f32>; 2]>::try_from(lists) {
        Ok([parameters, statistics]) if [parameters.len(), statistics.len()] == expected => {
            let state = State { parameters, statistics, coding: None };
            let checkpoint = Checkpoint::new(state, Moments::new(0));
            Ok((experiment, Checkpoint { progress: header.progress, ..checkpoint }))
        }
        _ => Err(io::Error::other(format!(
            "expected {} parameters and {} statistics as its spec has, found others",
            expected[0], expected[1]
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::InitInfo;

    #[test]
    fn a_run_is_read_back_with_every_bit_of_its_weights() {
        let spec = Spec::read("../networks/ddnn-c.toml".as_ref()).unwrap();
        let recipe = Recipe::read(None).unwrap();
        let init = InitInfo { frozen: vec!["device-0.0".to_owned()], ..InitInfo::default() };
        let info = RunInfo::new(&spec, &recipe, "drawn".to_owned(), Some(7)).started_from(Some(init));
        let experiment = Experiment::new(spec, recipe, info).unwrap();
        let state = experiment.network.layout.initial(3);
        let progress = Progress { epoch: 2, step: 9, ..Progress::default() };
        let checkpoint = Checkpoint { progress, ..Checkpoint::new(state, Moments::new(0)) };
        let bytes = encode(&experiment, &checkpoint).unwrap();
        let (read, found) = decode(&bytes).unwrap();
        assert_eq!((&read.info, &read.recipe), (&experiment.info, &experiment.recipe));
        assert_eq!(found, checkpoint);
        assert!(decode(&bytes[1..]).is_err());
    }
}
