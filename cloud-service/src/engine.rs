//! Choice of the engine that runs the cloud section.

use std::sync::Arc;

use headwater_inference::engine::{Engine, TractEngine, onnx_runtime};
use tracing::info;

use crate::settings::{CloudConfig, EngineChoice};

/// Chooses the engine by the settings. For `auto` without a library in the settings: ONNX Runtime if it loads, else tract.
///
/// # Errors
/// The reason why ONNX Runtime does not load, if the settings require it or name its library.
pub(crate) fn choose(settings: &CloudConfig) -> Result<Arc<dyn Engine>, String> {
    let library = settings.onnxruntime.as_deref();
    let engine: Arc<dyn Engine> = match settings.engine {
        EngineChoice::Tract => Arc::new(TractEngine::new()),
        EngineChoice::Ort => onnx_runtime(library)?,
        // A library that the settings name and that does not load is a mistake in the settings.
        EngineChoice::Auto if library.is_some() => onnx_runtime(library)?,
        EngineChoice::Auto => onnx_runtime(library).unwrap_or_else(|reason| {
            info!("{reason}; the cloud section runs in tract, which is slower");
            Arc::new(TractEngine::new())
        }),
    };
    info!(engine = engine.name(), "engine chosen");
    Ok(engine)
}
