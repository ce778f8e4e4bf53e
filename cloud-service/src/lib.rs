//! The cloud service: runs the cloud section of a network and answers by the Open Inference Protocol v2.
//!
//! ```text
//!                              ┌ permit (or 429) ─ queue ─ batcher ─ model thread ┐  current network
//! router ─ extractor (limits) ─┤                                                  ├─ answer
//!                              └ permit (or 429) ─ queue ─ batcher ─ model thread ┘  next network, while a group switches over
//! ```
//!
//! The service keeps no state between requests. It does not know devices, brokers or decisions.
//!
//! A module imports only modules to its right or in the lines below. The test `module_orders` checks this diagram:
//!
//! ```text
//! service         checks  service
//! requests        app  grpc  infer
//! state           status  metadata  state
//! networks        network  model  body  queue
//! clients         admission  refused_clients  refusal
//! ground          metrics  health  engine  settings  error
//! ```

mod admission;
mod app;
mod body;
mod checks;
mod engine;
mod error;
#[cfg(feature = "grpc")]
mod grpc;
mod health;
mod infer;
mod metadata;
mod metrics;
mod model;
mod network;
mod queue;
mod refusal;
mod refused_clients;
mod service;
mod settings;
mod state;
mod status;

pub use app::app;
pub use error::CloudError;
pub use metrics::{CloudReport, ModelCounts};
pub use service::{CloudService, run};
pub use settings::{CloudConfig, CloudSettings, EngineChoice, GrpcSettings, HttpSettings, ModelSettings};
pub use state::CloudState;
