//! Choice of the engine that runs the section. Packed is the default. A missing engine is replaced by tract, which is logged.

use std::path::Path;

use headwater_inference::bundle::Bundle;
use headwater_inference::engine::{Engine, PackedEngine, onnx_runtime};
use headwater_inference::manifest::SectionManifest;
use headwater_inference::sections::DeviceSection;
use headwater_protocol::Slot;
use tracing::{info, warn};

use crate::config::EngineChoice;
use crate::error::DeviceError;

/// Loads the section of a slot in the chosen engine, or in tract if that one is missing.
pub(crate) fn load(
    choice: EngineChoice,
    onnxruntime: Option<&Path>,
    bundle: &Bundle,
    slot: Slot,
) -> Result<DeviceSection, DeviceError> {
    match choice {
        EngineChoice::Packed => {
            if bundle.packed_section_bytes(&SectionManifest::device_name(slot)).is_some() {
                let engine = PackedEngine;
                info!(instructions = engine.path(), "the packed engine");
                return section(bundle, slot, &engine);
            }
            warn!(%slot, "the bundle has no packed form of this section: it runs as ONNX in tract, which is slower");
            tract(bundle, slot, "the bundle has no packed form of its section")
        }
        EngineChoice::Tract => tract(bundle, slot, "the settings choose the engine tract"),
        EngineChoice::Ort => match onnx_runtime(onnxruntime) {
            Ok(engine) => section(bundle, slot, &*engine),
            // If the settings name a library, tract does not replace it.
            Err(reason) if onnxruntime.is_some() => {
                Err(DeviceError::unusable("engine of slot", slot, reason))
            }
            Err(reason) => {
                warn!(%slot, "{reason}; the section runs in tract, which is slower");
                tract(bundle, slot, &reason)
            }
        },
    }
}

fn section(bundle: &Bundle, slot: Slot, engine: &dyn Engine) -> Result<DeviceSection, DeviceError> {
    let section = DeviceSection::load(bundle, slot, engine)
        .map_err(|error| DeviceError::unusable("loading the section of slot", slot, error))?;
    info!(%slot, engine = engine.name(), "section loaded");
    Ok(section)
}

#[cfg(feature = "tract")]
fn tract(bundle: &Bundle, slot: Slot, _: &str) -> Result<DeviceSection, DeviceError> {
    section(bundle, slot, &headwater_inference::engine::TractEngine::new())
}

/// `why` names the reason for choosing tract.
#[cfg(not(feature = "tract"))]
fn tract(_: &Bundle, slot: Slot, why: &str) -> Result<DeviceSection, DeviceError> {
    let reason = format!("{why}, and this program was built without tract (feature `tract`)");
    Err(DeviceError::unusable("engine of slot", slot, reason))
}
