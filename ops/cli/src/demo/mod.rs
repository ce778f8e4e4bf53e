//! `headwater demo`: every tier on loopback, in this process or as programs, with real images.

mod demo_site;
mod inputs;
pub mod report;
mod run;
mod table;

use anyhow::Context;
use headwater_group::start::{Service, separate_edges};
use headwater_inference::bundle::Bundle;
use headwater_protocol::EdgeSet;
use headwater_samples::archive::Archive;

use crate::args::DemoArgs;
use crate::{BadUsage, shipped};

pub use report::DemoReport;
pub use table::Table;

/// Runs the demo and prints the report on stdout.
///
/// # Errors
/// [`BadUsage`] for arguments that do not fit the network; otherwise the service and its failure.
pub fn run(args: &DemoArgs) -> anyhow::Result<()> {
    let inputs = inputs::read(args)?;
    let (bundle, frames) = (&inputs.bundle, &inputs.frames);
    let mut policy = shipped::policy(bundle, args.policy.as_deref())?;
    if let Some(window_ms) = args.window_ms {
        policy.window_ms = window_ms;
    }
    policy.check().map_err(|e| BadUsage(e.to_string()))?;
    check(args, bundle, frames)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("starting the async runtime")?;
    let report = runtime.block_on(run::run(args, &inputs, policy))?;
    let answer = if args.json { serde_json::to_string_pretty(&report)? } else { Table(&report).to_string() };
    crate::print(&(answer + "\n"))
}

/// Checks that the arguments fit the network and the frames.
fn check(args: &DemoArgs, bundle: &Bundle, frames: &Archive) -> Result<(), BadUsage> {
    let network = bundle.manifest();
    let slots = usize::from(network.slots);
    if frames.is_empty() {
        return Err(BadUsage("--frames: expected at least one sample, found none".into()));
    }
    if frames.slots() < slots {
        let found = frames.slots();
        return Err(BadUsage(format!(
            "--frames: the network has {slots} device slots, the frames are of {found} cameras"
        )));
    }
    let (expected, found) = (&network.preprocessing, frames.shape);
    if expected.view_bytes() != found.bytes() {
        return Err(BadUsage(format!(
            "--frames: the network takes views of [{}, {}, {}], the frames have {found}",
            expected.channels, expected.height, expected.width
        )));
    }
    let edges: EdgeSet = separate_edges(network).collect();
    for kill in &args.kill {
        let expected = match kill.service {
            Service::Device(slot) if slot.index() >= slots => {
                format!("device:{slot}: the network has the slots 0 to {}", slots.saturating_sub(1))
            }
            Service::Edge(edge) if !edges.contains(edge) => {
                format!("edge:{edge}: the network has {} separate edges, from 0", edges.len())
            }
            Service::Device(_) | Service::Edge(_) | Service::Leader | Service::Cloud => continue,
        };
        return Err(BadUsage(format!("--kill {expected}")));
    }
    Ok(())
}
