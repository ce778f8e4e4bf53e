//! Starting the services of one group, in this process or as programs.

mod device_totals;
mod in_process;
mod program;
mod programs;
mod service;

pub use device_totals::DeviceTotals;
pub use in_process::{InProcessGroup, InProcessSettings};
pub use program::{Program, find_program};
pub use programs::{ProgramGroup, ProgramPaths, ProgramSettings};
pub use service::{Service, SiteSettings, StartError, separate_edges};
