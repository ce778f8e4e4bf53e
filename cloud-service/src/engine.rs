//! Choice of the engine that runs the cloud section.

use std::sync::Arc;

use headwater_inference::engine::{Engine, TractEngine};
use tracing::info;

use crate::settings::{CloudConfig, EngineChoice};

/// The engine of the settings.
///
/// # Errors
/// The reason why ONNX Runtime does not load, where the settings require ONNX Runtime.
pub(crate) fn choose(settings: &CloudConfig) -> Result<Arc<dyn Engine>, String> {
    let engine: Arc<dyn Engine> = match settings.engine {
        EngineChoice::Tract => Arc::new(TractEngine::new()),
        EngineChoice::Ort => onnx_runtime(settings)?,
        // A library that is named and does not load is a mistake in the settings.
        EngineChoice::Auto if settings.onnxruntime.is_some() => onnx_runtime(settings)?,
        EngineChoice::Auto => onnx_runtime(settings).unwrap_or_else(|reason| {
            info!("{reason}; the cloud section runs in tract, which is slower");
            Arc::new(TractEngine::new())
        }),
    };
    info!(engine = engine.name(), "engine chosen");
    Ok(engine)
}

#[cfg(feature = "ort")]
fn onnx_runtime(settings: &CloudConfig) -> Result<Arc<dyn Engine>, String> {
    let engine = headwater_inference::engine::OrtEngine::load_library(settings.onnxruntime.as_deref());
    engine.map(|engine| Arc::new(engine) as _).map_err(|error| error.to_string())
}

#[cfg(not(feature = "ort"))]
fn onnx_runtime(_: &CloudConfig) -> Result<Arc<dyn Engine>, String> {
    Err("ONNX Runtime: this program was built without it (feature `ort`)".into())
}
