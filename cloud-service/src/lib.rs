//! The cloud service: runs the deep tail behind the Open Inference Protocol v2.
//!
//! A request's way: router → extractor (body limit) → permit (429 when out) → bounded queue → batcher → model thread → reply.
//! Behind the extractor there is one such way for each network that is held: the current one, and the next while a group switches over.
//! The service keeps nothing between requests and knows nothing of devices, brokers or decisions.

mod app;
mod batch;
mod body_limits;
mod config;
mod counters;
mod engine;
mod health;
mod held;
mod histogram;
mod infer;
mod model;
mod model_counters;
mod model_name;
mod network;
mod networks;
mod queue;
mod refusal;
mod server;
mod service;

pub use app::{CloudState, app};
pub use config::{CloudConfig, EngineChoice};
pub use counters::CloudReport;
pub use service::{CloudError, CloudHandle, CloudService, run};
