//! First weights from another run: layers that fit take its weights, other layers are made anew. `there` is the network of the other run.
//!
//! ```text
//! section here                        section there
//! device-4, edge-1, with their heads  slot or edge i from i modulo their number there
//! local, edge, cloud                  the same
//! ```
//! Inside a section the n-th layer with weights takes the weights of the n-th layer there, if all shapes and kinds are equal. A layer whose
//! outputs are the classes fits only a network of the same classes. Statistics of batch norm come with their layer; the optimiser begins anew.

use std::collections::BTreeSet;
use std::ops::Range;

use headwater_protocol::hex;
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::experiment::{Experiment, InitInfo};
use crate::layers::{Layout, Parameter, ParameterKind, State};
use crate::network::Network;

/// Ends of the names of a layer's parameters.
const ENDS: [&str; 4] = [".weight", ".bias", ".norm.gamma", ".norm.beta"];

/// First weights of one layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerStart {
    /// Name of the layer, such as `device-0.1` or `cloud.3`.
    pub name: String,
    /// Shape of its weights, outputs first.
    pub shape: Vec<usize>,
    /// Name of the layer of the other run whose weights this layer takes; the error is the reason for which this layer is made anew.
    pub from: Result<String, String>,
    /// True when training does not change the weights.
    pub is_frozen: bool,
}

/// The reason, in words, for which a run cannot begin with some weights.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct TransferError(String);

/// A layer in a layout.
struct LayerIds {
    name: String,
    /// Name without the place in the section: `device-0`, `device-0.head`, `cloud`.
    section: String,
    /// Place among the layers of its section that have weights.
    place: usize,
    parameters: Range<usize>,
    /// Index of its batch norm in [`Layout::statistics`]; `None` without a batch norm.
    norm: Option<usize>,
}

/// Lets an experiment begin with the weights `state` of another one, and freezes the layers of `freeze` that take some: `device`, `device.0`,
/// `device.head`, `cloud.3`. `kept_apart` states that the other run has learnt no sample on which this run is measured.
///
/// # Errors
/// [`TransferError`]: no layer is in a part of `freeze`, no layer fits, or no layer would learn.
pub fn start_from(
    experiment: &mut Experiment,
    (other, state): (&Experiment, &State),
    freeze: &[String],
    kept_apart: bool,
) -> Result<Vec<LayerStart>, TransferError> {
    let mut first = experiment.first_state();
    let layers = layers_of(&experiment.network.layout);
    check_parts(&layers, freeze)?;
    let there = layers_of(&other.network.layout);
    let labels = |network: &Network| network.spec.network.network.labels.get_ref().clone();
    let same_classes = labels(&experiment.network) == labels(&other.network);
    let layout = &mut experiment.network.layout;
    let mut starts = Vec::new();
    for (at, layer) in layers.iter().enumerate() {
        let found = section_there(&layer.section, &other.network).and_then(|section| {
            there.iter().position(|other| other.section == section && other.place == layer.place)
        });
        let own = &layout.parameters[layer.parameters.clone()];
        let from = match found {
            None => Err("there is no such layer".to_owned()),
            Some(index) => {
                let taken = &other.network.layout.parameters[there[index].parameters.clone()];
                let gives_classes = gives_classes(&layers, at);
                match misfit(own, taken) {
                    Some(reason) => Err(reason),
                    None if gives_classes != self::gives_classes(&there, index) => {
                        Err("the classes come from only one of the two".to_owned())
                    }
                    None if gives_classes && !same_classes => Err("other classes".to_owned()),
                    None => Ok(index),
                }
            }
        };
        let is_frozen = from.is_ok() && freeze.iter().any(|part| is_in(&layer.name, part));
        if let Ok(index) = from {
            take(layout, layer, &mut first, (&other.network.layout, &there[index], state));
        }
        layout.parameters[layer.parameters.clone()].iter_mut().for_each(|own| own.is_frozen = is_frozen);
        starts.push(LayerStart {
            name: layer.name.clone(),
            shape: layout.parameters[layer.parameters.start].shape.clone(),
            from: from.map(|index| there[index].name.clone()),
            is_frozen,
        });
    }
    let named = |chosen: fn(&LayerStart) -> bool| -> Vec<String> {
        starts.iter().filter(|start| chosen(start)).map(|start| start.name.clone()).collect()
    };
    let (taken, new) = (named(|start| start.from.is_ok()), named(|start| start.from.is_err()));
    let frozen = named(|start| start.is_frozen);
    if taken.is_empty() {
        let reasons: BTreeSet<&String> =
            starts.iter().filter_map(|start| start.from.as_ref().err()).collect();
        let reasons = reasons.into_iter().cloned().collect::<Vec<_>>().join("; ");
        let message =
            format!("expected a network of which a layer fits this one, found none that does: {reasons}");
        return Err(TransferError(message));
    }
    if frozen.len() == starts.len() {
        let message =
            "--freeze: expected a layer that still learns, found all of them frozen; freeze fewer parts";
        return Err(TransferError(message.to_owned()));
    }
    let (run, data) = (other.info.identity.clone(), other.info.data.clone());
    let init = InitInfo { run, data, weights: hash_of(&first), taken, new, frozen, kept_apart };
    experiment.info = std::mem::take(&mut experiment.info).started_from(Some(init));
    experiment.initial = Some(first);
    Ok(starts)
}

/// The layers of a layout, in its order.
fn layers_of(layout: &Layout) -> Vec<LayerIds> {
    let mut layers: Vec<LayerIds> = Vec::new();
    let mut norms = 0..;
    for (at, Parameter { name: parameter, .. }) in layout.parameters.iter().enumerate() {
        let name = ENDS.iter().find_map(|end| parameter.strip_suffix(*end)).unwrap_or(parameter);
        if layers.last().is_none_or(|last| last.name != name) {
            let place_in = |(_, place): &(&str, &str)| place.bytes().all(|byte| byte.is_ascii_digit());
            let section = name.rsplit_once('.').filter(place_in).map_or(name, |(section, _)| section);
            let place = layers.iter().filter(|layer| layer.section == section).count();
            let (name, section) = (name.to_owned(), section.to_owned());
            layers.push(LayerIds { name, section, place, parameters: at..at, norm: None });
        }
        if let Some(layer) = layers.last_mut() {
            layer.parameters.end = at + 1;
            // Every batch norm has one gamma, and the statistics of batch norms are in the same order.
            if parameter.ends_with(".gamma") {
                layer.norm = norms.next();
            }
        }
    }
    layers
}

/// True when the outputs of a layer are scores or logits of the classes: for the last layer of a head, `local`, `edge` or `cloud`.
fn gives_classes(layers: &[LayerIds], at: usize) -> bool {
    let section = &layers[at].section;
    let ends_in_classes = !section.contains('-') || section.ends_with(".head");
    ends_in_classes && layers[at + 1..].iter().all(|later| later.section != *section)
}

/// The section there from which a section here takes its weights; `None` if there is no such section.
fn section_there(section: &str, there: &Network) -> Option<String> {
    let Some((word, rest)) = section.split_once('-') else { return Some(section.to_owned()) };
    let count = if word == "edge" { there.edges.len() } else { there.devices.len() };
    let (number, head) = rest.split_at(rest.find('.').unwrap_or(rest.len()));
    let number = number.parse::<usize>().ok()?.checked_rem(count)?;
    Some(format!("{word}-{number}{head}"))
}

/// The reason for which the parameters of one layer do not fit another; `None` if they fit.
fn misfit(here: &[Parameter], there: &[Parameter]) -> Option<String> {
    let (weight, other) = (here.first()?, there.first()?);
    let is_binary = |parameter: &Parameter| parameter.kind == ParameterKind::Binary;
    if weight.shape != other.shape {
        Some(format!("there {:?}", other.shape))
    } else if is_binary(weight) != is_binary(other) {
        Some("binary weights on one side, floats on the other".to_owned())
    } else if !here.iter().map(|own| &own.shape).eq(there.iter().map(|other| &other.shape)) {
        Some("a batch norm on one side, a bias on the other".to_owned())
    } else {
        None
    }
}

/// Copies the parameters and statistics of a layer of the other run into the state `to`.
fn take(
    layout: &Layout,
    layer: &LayerIds,
    to: &mut State,
    (there, other, state): (&Layout, &LayerIds, &State),
) {
    let own = layout.parameters[layer.parameters.clone()].iter();
    for (own, taken) in own.zip(&there.parameters[other.parameters.clone()]) {
        to.parameters[own.range.clone()].copy_from_slice(&state.parameters[taken.range.clone()]);
    }
    if let (Some(own), Some(taken)) = (layer.norm, other.norm) {
        let taken = &state.statistics[there.statistics[taken].clone()];
        to.statistics[layout.statistics[own].clone()].copy_from_slice(taken);
    }
}

/// Refuses a part to freeze in which no layer lies.
fn check_parts(layers: &[LayerIds], freeze: &[String]) -> Result<(), TransferError> {
    match freeze.iter().find(|part| !layers.iter().any(|layer| is_in(&layer.name, part))) {
        None => Ok(()),
        Some(found) => {
            let words = layers.iter().map(|layer| without_number(&layer.name));
            let known: BTreeSet<String> = words
                .flat_map(|name| [name.split('.').next().unwrap_or_default().to_owned(), name])
                .collect();
            let known = known.into_iter().collect::<Vec<_>>().join(", ");
            Err(TransferError(format!("--freeze: expected one of {known}, found {found}")))
        }
    }
}

/// True when a layer lies in a part: `device-3.0` lies in `device` and in `device.0`.
fn is_in(layer: &str, part: &str) -> bool {
    let name = without_number(layer);
    name.strip_prefix(part).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// The name of a layer without the number of its slot or edge: `device.0` for `device-3.0`.
pub fn without_number(layer: &str) -> String {
    match layer.split_once('-') {
        None => layer.to_owned(),
        Some((word, rest)) => format!("{word}{}", &rest[rest.find('.').unwrap_or(rest.len())..]),
    }
}

/// SHA-256 of all numbers of a state, first 16 hex digits.
fn hash_of(state: &State) -> String {
    let mut hash = Sha256::new();
    state.parameters.iter().chain(&state.statistics).for_each(|value| hash.update(value.to_le_bytes()));
    hex(&hash.finalize()[..8])
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use headwater_samples::Part;
    use headwater_spec::Spec;

    use super::*;
    use crate::experiment::RunInfo;
    use crate::joint::{Diverged, Trainer};
    use crate::recipe::Recipe;
    use crate::scale_out::Alone;
    use headwater_calibration::data::Parts;

    const NETWORK: &str = include_str!("../../networks/ddnn-c.toml");

    fn experiment(text: &str, seed: u64) -> Experiment {
        let spec = Spec::parse(Path::new("spec.toml"), text).unwrap();
        let recipe = Recipe { seed, epochs: 1, batch: 16, ..Recipe::read(None).unwrap() };
        let info = RunInfo::new(&spec, &recipe, "drawn".to_owned(), None);
        Experiment::new(spec, recipe, info).unwrap()
    }

    /// First weights of every layer of `text` from a network of ddnn-c, by layer.
    fn starts(text: &str, freeze: &[&str]) -> Result<(Experiment, Vec<LayerStart>), TransferError> {
        let (mut experiment, other) = (experiment(text, 1), experiment(NETWORK, 7));
        let freeze: Vec<String> = freeze.iter().map(|part| (*part).to_owned()).collect();
        let state = other.first_state();
        let starts = start_from(&mut experiment, (&other, &state), &freeze, false)?;
        Ok((experiment, starts))
    }

    #[track_caller]
    fn start<'a>(starts: &'a [LayerStart], name: &str) -> &'a LayerStart {
        starts.iter().find(|start| start.name == name).unwrap()
    }

    #[test]
    fn the_same_network_takes_every_layer_with_its_statistics() {
        let (experiment, starts) = starts(NETWORK, &[]).unwrap();
        assert!(starts.iter().all(|start| start.from.as_ref() == Ok(&start.name)), "{starts:?}");
        assert_eq!(experiment.first_state(), experiment.network.layout.initial(7));
        let layout = &experiment.network.layout;
        let norms = layers_of(layout).iter().filter(|layer| layer.norm.is_some()).count();
        assert_eq!(norms, layout.statistics.len());
    }

    #[test]
    fn other_classes_make_the_last_layer_of_every_exit_anew_and_nothing_else() {
        let text = NETWORK.replacen("\"t-shirt/top\"", "\"something else\"", 1);
        assert_ne!(text, NETWORK);
        let (_, starts) = starts(&text, &["device"]).unwrap();
        let new: BTreeSet<String> = starts
            .iter()
            .filter(|start| start.from.is_err())
            .map(|start| without_number(&start.name))
            .collect();
        let last = starts.last().unwrap();
        assert!(new.len() == 2 && new.contains("device.head") && last.from.is_err(), "{new:?}");
        let frozen = starts.iter().filter(|start| start.is_frozen).map(|start| without_number(&start.name));
        // A head that is made anew has to learn.
        assert!(frozen.clone().count() > 0 && frozen.clone().all(|name| name.starts_with("device.")));
        assert!(!start(&starts, "device-0.head").is_frozen);
    }

    #[test]
    fn more_cameras_take_the_weights_of_the_cameras_again_from_the_first() {
        let text = NETWORK.replace("count = 6", "count = 8");
        let (_, starts) = starts(&text, &[]).unwrap();
        assert_eq!(start(&starts, "device-7.0").from, Ok("device-1.0".to_owned()));
        assert_eq!(start(&starts, "device-7.head").from, Ok("device-1.head".to_owned()));
    }

    #[test]
    fn another_view_size_keeps_convolutions_and_makes_layers_over_whole_maps_anew() {
        let text = NETWORK.replace("input = [1, 32, 32]", "input = [1, 48, 48]");
        let text = text.replace("input = [3, 32, 32]", "input = [3, 48, 48]");
        assert_ne!(text, NETWORK);
        let (_, starts) = starts(&text, &[]).unwrap();
        assert!(start(&starts, "device-0.0").from.is_ok());
        let refused = start(&starts, "device-0.head").from.as_ref().unwrap_err();
        assert!(refused.starts_with("there ["), "{refused}");
    }

    #[test]
    fn parts_that_are_not_there_and_parts_that_leave_nothing_to_learn_are_refused() {
        let error = starts(NETWORK, &["sky"]).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("expected one of cloud, cloud.0") && error.ends_with("found sky"), "{error}");
        let all = starts(NETWORK, &["device", "cloud"]).map(|_| ()).unwrap_err();
        assert!(all.to_string().contains("found all of them frozen"), "{all}");
    }

    #[test]
    fn frozen_layers_keep_every_bit_while_the_others_learn() {
        let parts = Parts::drawn(64, 16, 16);
        let [train, validation] = [Part::Train, Part::Validation].map(|part| parts.part(part, None, 1));
        for freeze in ["device", "cloud"] {
            let (experiment, starts) = starts(NETWORK, &[freeze]).unwrap();
            let before = experiment.first_state();
            let mut trainer = Trainer::new(&experiment, &Alone, [&train, &validation], None);
            trainer.run(|_| Ok::<(), Diverged>(())).unwrap();
            let (layout, after) = (&experiment.network.layout, &trainer.checkpoint.state);
            for (layer, start) in layers_of(layout).iter().zip(&starts) {
                let parameters = &layout.parameters[layer.parameters.clone()];
                let same = |of: Range<usize>| before.parameters[of.clone()] == after.parameters[of];
                let is_same = parameters.iter().all(|parameter| same(parameter.range.clone()));
                assert_eq!(is_same, start.is_frozen, "{} with {freeze} frozen", layer.name);
                if let Some(norm) = layer.norm {
                    let of = layout.statistics[norm].clone();
                    let is_same = before.statistics[of.clone()] == after.statistics[of];
                    assert_eq!(is_same, start.is_frozen, "statistics of {}", layer.name);
                }
            }
        }
    }
}
