//! Logs, printed text, metrics, the admin port and the signals that end a program or let it read files again: one set-up for all services.
//!
//! A [`ReportMetric`] is read from a report of the service at each request for the metrics; [`report!`] declares the metric beside the
//! count that it shows. The crate does not know what a service measures.
//!
//! A module imports only modules to its right or in the lines below. The test `module_orders` checks this diagram:
//!
//! ```text
//! tests           testing
//! of a service    live_check  service_manager  admin  report
//! of a program    logs  reload  stop  output  work_loops
//! shared          metrics  notify_socket
//! ```

mod admin;
mod live_check;
mod logs;
mod metrics;
mod notify_socket;
mod output;
mod reload;
mod report;
mod service_manager;
mod stop;
#[cfg(feature = "testing")]
pub mod testing;
mod work_loops;

pub use admin::{AdminServer, Health, Liveness, Program, certificate_status, fields_of};
pub use live_check::check_live;
pub use logs::{FilterError, LogFormat, check_filter, init_logs};
pub use metrics::{DURATION_BUCKETS_S, METRICS_CONTENT_TYPE, Metrics};
pub use output::{print, print_error};
pub use reload::{ReloadSignal, runtime_with_reloads};
pub use report::{DurationCounts, MetricValue, ReportMetric, ValuesByTwoLabels};
pub use service_manager::{ServiceManager, WatchdogTask};
pub use stop::stop_signal;
pub use work_loops::{WorkLoop, WorkLoops};
