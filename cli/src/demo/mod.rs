//! `headwater demo`: every tier on loopback, in this process or each in one of its own, about real images.

mod cast;
mod children;
mod in_process;
mod ledger;
mod material;
pub mod plan;
mod progress;
pub mod report;
mod run;
mod sizes;
mod table;

use anyhow::Context;
use headwater_inference::bundle::Bundle;
use headwater_inference::policy::{ExitThreshold, Threshold};
use headwater_protocol::Exit;
use headwater_samples::archive::Archive;

use crate::BadUsage;
use crate::args::DemoArgs;
use material::Material;
use plan::Victim;

pub use report::DemoReport;
pub use table::Table;

/// Runs the demo and prints its account on stdout.
///
/// # Errors
/// [`BadUsage`] for arguments that do not fit the network; otherwise what went wrong with which part.
pub fn run(args: &DemoArgs) -> anyhow::Result<()> {
    let report = report(args)?;
    let answer = if args.json { serde_json::to_string_pretty(&report)? } else { Table(&report).to_string() };
    crate::print(&(answer + "\n"))
}

/// Runs the demo.
///
/// # Errors
/// As [`run`].
pub fn report(args: &DemoArgs) -> anyhow::Result<DemoReport> {
    let material = material::of(args)?;
    let Material { bundle, frames, .. } = &material;
    let mut policy = bundle.policy().clone();
    if let Some(window_ms) = args.window_ms {
        policy.window_ms = window_ms;
    }
    if let Some(threshold) = args.threshold {
        let threshold = ExitThreshold::new(threshold).map_err(|e| BadUsage(format!("--threshold: {e}")))?;
        if !bundle.manifest().configuration.has(Exit::Local) {
            return Err(BadUsage(
                "--threshold: this network has no exit `local`; its devices take theirs from the bundle"
                    .into(),
            )
            .into());
        }
        policy.local.threshold = Threshold::One(threshold);
    }
    policy.check().map_err(|e| BadUsage(e.to_string()))?;
    check(args, bundle, frames)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("starting the async runtime")?;
    runtime.block_on(run::run(args, &material, policy))
}

/// What the arguments ask must fit the network and the frames.
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
    let (expected, found) = (network.preprocessing, frames.shape());
    if expected.view_bytes() != found.bytes() {
        return Err(BadUsage(format!(
            "--frames: the network takes views of [{}, {}, {}], the frames have {found}",
            expected.channels, expected.height, expected.width
        )));
    }
    let edges = network.edge.as_ref().map_or(0, |edge| edge.groups.len());
    for kill in &args.kill {
        match kill.victim {
            Victim::Device(slot) if slot.index() >= slots => {
                let last = slots.saturating_sub(1);
                return Err(BadUsage(format!("--kill device:{slot}: the network has the slots 0 to {last}")));
            }
            Victim::Edge(edge) if edges < 2 || edge >= edges => {
                let there = if edges < 2 { 0 } else { edges };
                let why = format!("--kill edge:{edge}: the network has {there} edges of their own, from 0");
                return Err(BadUsage(why));
            }
            _ => {}
        }
    }
    Ok(())
}
