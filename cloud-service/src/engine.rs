//! Which engine runs the cloud section: ONNX Runtime where its library is there, else tract.

use std::sync::Arc;

use headwater_inference::engine::{Engine, TractEngine};
use tracing::info;

use crate::config::{CloudConfig, EngineChoice};

/// The engine that the settings ask for.
///
/// # Errors
/// Why ONNX Runtime, asked for by name, cannot be used.
pub(crate) fn choose(config: &CloudConfig) -> Result<Arc<dyn Engine>, String> {
    let engine: Arc<dyn Engine> = match config.engine {
        EngineChoice::Tract => Arc::new(TractEngine::new()),
        EngineChoice::Ort => onnx_runtime(config)?,
        // A library that was named and does not load is a mistake to be told, not to be passed over.
        EngineChoice::Auto if config.onnxruntime.is_some() => onnx_runtime(config)?,
        EngineChoice::Auto => onnx_runtime(config).unwrap_or_else(|reason| {
            info!("{reason}; the cloud section runs in tract, which is slower");
            Arc::new(TractEngine::new())
        }),
    };
    info!(engine = engine.name(), "engine chosen");
    Ok(engine)
}

#[cfg(feature = "ort")]
fn onnx_runtime(config: &CloudConfig) -> Result<Arc<dyn Engine>, String> {
    let engine = headwater_inference::engine::OrtEngine::load_library(config.onnxruntime.as_deref());
    engine.map(|engine| Arc::new(engine) as _).map_err(|error| error.to_string())
}

#[cfg(not(feature = "ort"))]
fn onnx_runtime(_: &CloudConfig) -> Result<Arc<dyn Engine>, String> {
    Err("ONNX Runtime: this program was built without it (feature `ort`)".into())
}
