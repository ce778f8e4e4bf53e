//! Engines of the sections that a tier runs: each section is loaded as its program loads it.

use headwater_cloud_service::{CloudSettings, EngineChoice, choose_engine};
use headwater_edge_aggregator::{AggregatorSettings, GroupSettings, Role, local_edges};
use headwater_end_device::{ChosenEngine, DeviceSettings};
use headwater_inference::bundle::{Bundle, Networks};
use headwater_inference::engine::{PackedEngine, TractEngine};
use headwater_inference::leader::Exits;
use headwater_inference::sections::{CloudSection, DeviceSection, EdgeSection};

use super::finding::Finding;
use super::tier::{Tier, TierNetworks, TierSettings};

/// Name of the check.
const CHECK: &str = "engine";

const INSTALL: &str = "install ONNX Runtime 1.24 or later and name its library in `onnxruntime`";

/// Loads the sections of a tier in the engines that its program would take.
pub(super) fn check(tier: &Tier, networks: &TierNetworks) -> Vec<Finding> {
    match &tier.settings {
        TierSettings::Device(settings) => networks.iter().flatten().map(|of| device(settings, of)).collect(),
        TierSettings::Cloud(settings) => networks.iter().flatten().map(|of| cloud(settings, of)).collect(),
        TierSettings::Aggregator(loaded) => aggregator(loaded, networks),
    }
}

fn device(settings: &DeviceSettings, networks: &Networks) -> Finding {
    let (bundle, slot) = (networks.current(), settings.slot);
    let chosen = match ChosenEngine::new(settings, bundle) {
        Ok(chosen) => chosen,
        Err(error) => return Finding::fail(CHECK, error.to_string(), INSTALL),
    };
    let name = chosen.engine.name();
    if let Err(error) = DeviceSection::load(bundle, slot, &*chosen.engine) {
        let advice = "take a bundle with this slot's section, or correct `slot`";
        return Finding::fail(CHECK, format!("section of slot {slot}: {error}"), advice);
    }
    match chosen.replaced {
        Some(reason) => Finding::warn(
            CHECK,
            format!("tract, which is slower: {reason}"),
            format!("export a bundle with packed sections, or: {INSTALL}"),
        ),
        None => Finding::ok(CHECK, format!("{name}{}", instructions(name))),
    }
}

/// Loads the exits of each leader, and the edge sections that this process runs.
fn aggregator(loaded: &AggregatorSettings, networks: &TierNetworks) -> Vec<Finding> {
    let (mut findings, mut edges) = (Vec::new(), 0);
    for (index, (group, networks)) in loaded.groups.all.iter().zip(networks).enumerate() {
        let Some(networks) = networks else { continue };
        for (_, bundle) in networks.bundles().iter() {
            match group_sections(group, bundle) {
                Ok(loaded) => edges += loaded,
                Err(reason) => {
                    let found = format!("{}{reason}", loaded.groups.place(index));
                    findings.push(Finding::fail(CHECK, found, "take a bundle with the sections of this group's edges, or correct `edge` or `local_edges`"));
                }
            }
        }
    }
    if findings.is_empty() && edges > 0 {
        findings.push(Finding::ok(CHECK, format!("tract (built in) loads {edges} edge sections")));
    }
    findings
}

/// Loads what a leader or an edge runs of one network; gives the number of edge sections.
fn group_sections(group: &GroupSettings, bundle: &Bundle) -> Result<usize, String> {
    let engine = TractEngine::new();
    let edges = match group
        .role()
        .map_err(|misfits| misfits.into_iter().map(String::from).collect::<Vec<_>>().join("; "))?
    {
        Role::Edge { edge, .. } => vec![edge],
        role @ Role::Leader { .. } => {
            Exits::load(bundle, &engine).map_err(|error| format!("exits: {error}"))?;
            let count = bundle.manifest().edge.as_ref().map_or(0, |tier| tier.groups.len());
            local_edges(&role, count).map_err(|error| error.to_string())?
        }
    };
    for edge in &edges {
        EdgeSection::load(bundle, edge.index(), &engine)
            .map_err(|error| format!("section of edge {edge}: {error}"))?;
    }
    Ok(edges.len())
}

fn cloud(settings: &CloudSettings, networks: &Networks) -> Finding {
    let engine = match choose_engine(&settings.service) {
        Ok(engine) => engine,
        Err(reason) => return Finding::fail(CHECK, reason, INSTALL),
    };
    let sections = networks.bundles().iter().map(|(_, bundle)| section(bundle, &*engine));
    if let Some(error) = sections.filter_map(Result::err).next() {
        return Finding::fail(CHECK, error, "take a bundle with the cloud's section");
    }
    match (settings.service.engine, engine.name()) {
        (EngineChoice::Auto, "tract") => Finding::ok(
            CHECK,
            format!("tract (built in); no library of ONNX Runtime is found, which is faster: {INSTALL}"),
        ),
        (EngineChoice::Auto | EngineChoice::Tract | EngineChoice::Ort, name) => Finding::ok(CHECK, name),
    }
}

fn section(bundle: &Bundle, engine: &dyn headwater_inference::engine::Engine) -> Result<(), String> {
    CloudSection::load(bundle, engine).map(drop).map_err(|error| error.to_string())
}

fn instructions(engine: &str) -> String {
    if engine == "packed" { format!(", with {} instructions", PackedEngine.path()) } else { String::new() }
}
