//! Networks and experiments with which tests begin.

use std::path::Path;

use crate::experiment::{Experiment, RunInfo};
use crate::network::Network;
use crate::recipe::Recipe;
use headwater_spec::Spec;

/// Spec of six devices with binary sections and coded messages.
pub(crate) const DDNN_C: &str = include_str!("../../networks/ddnn-c.toml");

/// The network of a spec.
#[track_caller]
pub(crate) fn network(spec: &str) -> Network {
    Network::new(Spec::parse(Path::new("spec.toml"), spec).unwrap())
}

/// The experiment of a spec with the default recipe.
#[track_caller]
pub(crate) fn experiment(spec: &str) -> Experiment {
    let spec = Spec::parse(Path::new("spec.toml"), spec).unwrap();
    Experiment::new(spec, Recipe::read(None).unwrap(), RunInfo::default()).unwrap()
}
