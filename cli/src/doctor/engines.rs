//! Engines of the sections that a tier runs.

use headwater_cloud_service::{CloudSettings, EngineChoice, choose_engine};
use headwater_end_device::{ChosenEngine, DeviceSettings};
use headwater_inference::bundle::{Bundle, Networks};
use headwater_inference::engine::PackedEngine;
use headwater_inference::sections::{CloudSection, DeviceSection};
use headwater_protocol::Slot;

use super::finding::Finding;
use super::tier::{Tier, TierNetworks, TierSettings};

const INSTALL: &str = "install ONNX Runtime 1.24 or later and name its library in `onnxruntime`";

/// Loads the sections of a tier in the engines that its program would take.
pub(super) fn check(tier: &Tier, networks: &TierNetworks) -> Vec<Finding> {
    match &tier.settings {
        TierSettings::Device(settings) => networks.iter().flatten().map(|of| device(settings, of)).collect(),
        TierSettings::Cloud(settings) => networks.iter().flatten().map(|of| cloud(settings, of)).collect(),
        TierSettings::Aggregator(_) => {
            let edges = |networks: &Networks| networks.current().manifest().edge.is_some();
            let has_edges = networks.iter().flatten().any(edges);
            has_edges
                .then(|| Finding::ok("engine", "edge sections run in tract (built in)"))
                .into_iter()
                .collect()
        }
    }
}

fn device(settings: &DeviceSettings, networks: &Networks) -> Finding {
    let bundle = networks.current();
    let Ok(slot) = Slot::new(settings.slot.get()) else {
        return Finding::fail("engine", format!("slot {} is none", settings.slot), "correct `slot`");
    };
    let chosen = match ChosenEngine::new(&settings.options, bundle, slot) {
        Ok(chosen) => chosen,
        Err(error) => return Finding::fail("engine", error.to_string(), INSTALL),
    };
    let name = chosen.engine.name();
    if let Err(error) = DeviceSection::load(bundle, slot, &*chosen.engine) {
        let advice = "take a bundle with this slot's section, or correct `slot`";
        return Finding::fail("engine", format!("section of slot {slot}: {error}"), advice);
    }
    match chosen.replaced {
        Some(reason) => Finding::warn(
            "engine",
            format!("tract, which is slower: {reason}"),
            format!("export a bundle with packed sections, or: {INSTALL}"),
        ),
        None => Finding::ok("engine", format!("{name}{}", instructions(name))),
    }
}

fn cloud(settings: &CloudSettings, networks: &Networks) -> Finding {
    let engine = match choose_engine(&settings.service) {
        Ok(engine) => engine,
        Err(reason) => return Finding::fail("engine", reason, INSTALL),
    };
    let sections = networks.bundles().iter().map(|(_, bundle)| section(bundle, &*engine));
    if let Some(error) = sections.filter_map(Result::err).next() {
        return Finding::fail("engine", error, "take a bundle with the cloud's section");
    }
    match (settings.service.engine, engine.name()) {
        (EngineChoice::Auto, "tract") => Finding::ok(
            "engine",
            format!("tract (built in); no library of ONNX Runtime is found, which is faster: {INSTALL}"),
        ),
        (EngineChoice::Auto | EngineChoice::Tract | EngineChoice::Ort, name) => Finding::ok("engine", name),
    }
}

fn section(bundle: &Bundle, engine: &dyn headwater_inference::engine::Engine) -> Result<(), String> {
    CloudSection::load(bundle, engine).map(drop).map_err(|error| error.to_string())
}

fn instructions(engine: &str) -> String {
    if engine == "packed" { format!(", with {} instructions", PackedEngine.path()) } else { String::new() }
}
