//! Logs, metrics and the admin port: one set-up for all services.
//!
//! A service declares its metrics in one file and registers them with [`Metrics`]. There are two kinds of declaration: counters that
//! the service increments itself, and [`ReportMetric`]s that are read from a report when somebody asks. The crate does not know what
//! a service measures.

mod admin;
mod logs;
mod metrics;
mod report;
#[cfg(feature = "testing")]
pub mod testing;

pub use admin::AdminServer;
pub use logs::{FilterError, LogFormat, init_logs};
pub use metrics::{DURATION_BUCKETS_S, METRICS_CONTENT_TYPE, Metrics};
pub use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};
pub use report::ReportMetric;
