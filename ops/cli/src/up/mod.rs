//! `headwater up`: a site in one process, from one file.
//!
//! ```text
//! site.toml ──> Site ──┬── run     services, results, states of the cameras, account
//! (site_file, camera)  ├── check   findings, and one frame of each camera
//!                      └── split   files of the separate programs
//! ```

mod account;
mod broker;
mod camera;
mod cameras;
mod check;
mod run;
mod site_file;
mod split;

use std::time::Duration;

use anyhow::Context;

use crate::BadUsage;
use crate::args::UpArgs;
use site_file::Site;

/// Longest wait for tasks and threads at the end. A device kills its command two seconds after it has asked the command to end.
const END_LIMIT: Duration = Duration::from_secs(3);

/// Runs, checks or splits a site. Returns true when no check fails and no camera broke off.
///
/// # Errors
/// [`BadUsage`] with every mistake of the file; otherwise the service and its failure.
pub fn run(args: &UpArgs) -> anyhow::Result<bool> {
    let site =
        Site::read(&args.file, args.split.is_some()).map_err(|mistakes| BadUsage(mistakes.join("\n  ")))?;
    if let Some(folder) = &args.split {
        return split::write(&site, &args.file, folder).map(|()| true);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.context("starting the async runtime")?;
    let ended = match args.check {
        true => runtime.block_on(check::check(&site, args.json)),
        false => runtime.block_on(run::run(site, args)),
    };
    // The end of the devices' tasks ends their commands. A thread that reads from a hanging file system would keep the program alive.
    runtime.shutdown_timeout(END_LIMIT);
    ended
}
