//! The cloud service: runs the deep tail behind the Open Inference Protocol v2.
//!
//! A request's way: router → extractor (body limit) → permit (429 when out) → bounded queue → batcher → model thread → reply.
//! The service keeps nothing between requests and knows nothing of devices, brokers or decisions.

mod app;
mod batch;
mod config;
mod counters;
mod engine;
mod histogram;
mod infer;
mod model;
mod model_name;
mod queue;
mod refusal;
mod server;
mod service;

pub use app::{CloudState, app};
pub use config::{CloudConfig, EngineChoice};
pub use counters::CloudReport;
pub use service::{CloudError, CloudHandle, CloudService, run};
