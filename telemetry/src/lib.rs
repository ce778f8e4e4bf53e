//! Logs, printed text, metrics, the admin port and the signals that end a program: one set-up for all services.
//!
//! A service declares its metrics in one file and registers them with [`Metrics`]. Counters and histograms are changed by the
//! service itself. A [`ReportMetric`] is read from a report of the service at each request for the metrics. The crate does not know
//! what a service measures.

mod admin;
mod logs;
mod metrics;
mod output;
mod report;
mod stop;
#[cfg(feature = "testing")]
pub mod testing;

pub use admin::{AdminServer, Health, Liveness};
pub use logs::{FilterError, LogFormat, check_filter, init_logs};
pub use metrics::{DURATION_BUCKETS_S, METRICS_CONTENT_TYPE, Metrics};
pub use output::{print, print_error};
pub use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};
pub use report::ReportMetric;
pub use stop::stop_signal;
