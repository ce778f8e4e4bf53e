//! Choice of the engine that runs the section. The packed engine is the default. If the chosen engine is missing, tract replaces it, with a
//! warning in the log.

use std::sync::Arc;

use headwater_inference::bundle::Bundle;
use headwater_inference::engine::{Engine, PackedEngine, onnx_runtime};
use headwater_inference::manifest::SectionManifest;
use headwater_inference::sections::DeviceSection;
use headwater_protocol::Slot;
use tracing::{info, warn};

use crate::config::EngineChoice;
use crate::error::DeviceError;
use crate::settings::DeviceSettings;

/// Engine of a device's section.
pub(crate) struct ChosenEngine {
    pub(crate) engine: Arc<dyn Engine>,
    /// Reason for which tract replaces the engine of the settings; `None` if the engine of the settings is used.
    pub(crate) replaced: Option<String>,
}

impl ChosenEngine {
    /// The engine that the settings name, or tract if that engine is missing.
    ///
    /// # Errors
    /// [`DeviceError::Unusable`] if the settings name a library of ONNX Runtime that does not load, or if tract is needed and the program
    /// was built without it.
    pub(crate) fn new(settings: &DeviceSettings, bundle: &Bundle) -> Result<Self, DeviceError> {
        let (library, slot) = (settings.onnxruntime.as_deref(), settings.slot);
        let missing = match settings.engine {
            EngineChoice::Packed => {
                if bundle.packed_section_bytes(&SectionManifest::device_name(slot)).is_some() {
                    info!(instructions = PackedEngine.path(), "the packed engine");
                    return Ok(Self { engine: Arc::new(PackedEngine), replaced: None });
                }
                "the bundle has no packed form of this section".into()
            }
            EngineChoice::Tract => {
                let engine = tract(slot, "the settings choose the engine tract")?;
                return Ok(Self { engine, replaced: None });
            }
            EngineChoice::Ort => match onnx_runtime(library) {
                Ok(engine) => return Ok(Self { engine, replaced: None }),
                // If the settings name a library, tract does not replace it.
                Err(reason) if library.is_some() => {
                    return Err(DeviceError::unusable("engine of slot", slot, reason));
                }
                Err(reason) => reason,
            },
        };
        Ok(Self { engine: tract(slot, &missing)?, replaced: Some(missing) })
    }
}

/// Loads the section of a slot in the chosen engine, or in tract if that engine is missing.
pub(crate) fn load(settings: &DeviceSettings, bundle: &Bundle) -> Result<DeviceSection, DeviceError> {
    let ChosenEngine { engine, replaced } = ChosenEngine::new(settings, bundle)?;
    let slot = settings.slot;
    if let Some(reason) = replaced {
        warn!(%slot, "{reason}: the section runs as ONNX in tract, which is slower");
    }
    let section = DeviceSection::load(bundle, slot, &*engine)
        .map_err(|error| DeviceError::unusable("loading the section of slot", slot, error))?;
    info!(%slot, engine = engine.name(), "section loaded");
    Ok(section)
}

#[cfg(feature = "tract")]
fn tract(_: Slot, _: &str) -> Result<Arc<dyn Engine>, DeviceError> {
    Ok(Arc::new(headwater_inference::engine::TractEngine::new()))
}

/// Fails, since the program was built without tract; `why` says what tract is needed for.
#[cfg(not(feature = "tract"))]
fn tract(slot: Slot, why: &str) -> Result<Arc<dyn Engine>, DeviceError> {
    let reason = format!("{why}, and this program was built without tract (feature `tract`)");
    Err(DeviceError::unusable("engine of slot", slot, reason))
}
