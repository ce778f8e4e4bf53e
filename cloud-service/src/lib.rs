//! The cloud service: runs the cloud section of a network and answers by the Open Inference Protocol v2.
//!
//! ```text
//!                              ┌ permit (or 429) ─ queue ─ batcher ─ model thread ┐  current network
//! router ─ extractor (limits) ─┤                                                  ├─ answer
//!                              └ permit (or 429) ─ queue ─ batcher ─ model thread ┘  next network, while a group switches over
//! ```
//!
//! The service keeps no state between requests. It does not know devices, brokers or decisions.

mod admission;
mod app;
mod engine;
mod health;
mod infer;
mod metrics;
mod model;
mod network;
mod queue;
mod refusal;
mod refused_clients;
mod service;
mod settings;
mod status;

pub use app::{CloudState, app};
pub use engine::choose as choose_engine;
pub use metrics::CloudReport;
pub use service::{CloudError, CloudService, run};
pub use settings::{CloudConfig, CloudSettings, EngineChoice, HttpSettings, ModelSettings};
