//! Which engine runs the section: the packed one where the section has that form, else tract, with a line in the log.

use headwater_inference::bundle::Bundle;
use headwater_inference::engine::{Engine, PackedEngine, TractEngine};
use headwater_inference::manifest::SectionManifest;
use headwater_inference::sections::{DeviceSection, SectionError};
use headwater_protocol::Slot;
use tracing::{info, warn};

use crate::config::EngineChoice;

/// Loads the section of a slot in the engine chosen, or in tract where the packed one cannot run it.
pub(crate) fn load(choice: EngineChoice, bundle: &Bundle, slot: Slot) -> Result<DeviceSection, SectionError> {
    if choice == EngineChoice::Packed {
        if bundle.packed_section_bytes(&SectionManifest::device_name(slot)).is_some() {
            let engine = PackedEngine::new();
            let section = DeviceSection::load(bundle, slot, &engine)?;
            info!(%slot, engine = engine.name(), instructions = engine.path(), "section loaded");
            return Ok(section);
        }
        warn!(%slot, "the bundle has no packed form of this section: it runs as ONNX in tract, which is slower");
    }
    let engine = TractEngine::new();
    let section = DeviceSection::load(bundle, slot, &engine)?;
    info!(%slot, engine = engine.name(), "section loaded");
    Ok(section)
}
