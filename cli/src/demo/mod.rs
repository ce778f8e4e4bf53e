//! `headwater demo`: every tier in this process, on loopback, about real images.

mod cast;
mod ledger;
pub mod plan;
mod progress;
pub mod report;
mod run;
mod sizes;
mod table;

use std::sync::Arc;

use anyhow::Context;
use headwater_inference::bundle::Bundle;
use headwater_inference::policy::{ExitThreshold, Threshold};
use headwater_samples::archive::{Archive, ArchiveOptions};

use crate::args::DemoArgs;
use crate::{BadUsage, shipped};
use plan::Victim;

pub use report::DemoReport;
pub use table::Table;

/// Runs the demo and prints its account on stdout.
///
/// # Errors
/// [`BadUsage`] for arguments that do not fit the network; otherwise what went wrong with which part.
pub fn run(args: &DemoArgs) -> anyhow::Result<()> {
    let report = report(args)?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        println!("{}", Table(&report));
    }
    Ok(())
}

/// Runs the demo.
///
/// # Errors
/// As [`run`].
pub fn report(args: &DemoArgs) -> anyhow::Result<DemoReport> {
    let bundle = Arc::new(bundle(args)?);
    let frames = Arc::new(frames(args)?);
    let mut policy = bundle.policy().clone();
    if let Some(window_ms) = args.window_ms {
        policy.window_ms = window_ms;
    }
    if let Some(threshold) = args.threshold {
        let threshold = ExitThreshold::new(threshold).map_err(|e| BadUsage(format!("--threshold: {e}")))?;
        policy.local.threshold = Threshold::One(threshold);
    }
    policy.check().map_err(|e| BadUsage(e.to_string()))?;
    check(args, &bundle, &frames)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("starting the async runtime")?;
    runtime.block_on(run::run(args, bundle, policy, frames))
}

fn bundle(args: &DemoArgs) -> anyhow::Result<Bundle> {
    match &args.bundle {
        Some(path) => Bundle::open(path).with_context(|| format!("opening the bundle {}", path.display())),
        None => Bundle::from_bytes(shipped::BUNDLE).context("opening the shipped bundle"),
    }
}

fn frames(args: &DemoArgs) -> anyhow::Result<Archive> {
    match &args.frames {
        Some(path) => Archive::open(path).with_context(|| format!("opening the frames {}", path.display())),
        None => Archive::read(shipped::FRAMES, "the shipped frames", &ArchiveOptions::default())
            .context("opening the shipped frames"),
    }
}

/// What the arguments ask must fit the network and the frames.
fn check(args: &DemoArgs, bundle: &Bundle, frames: &Archive) -> Result<(), BadUsage> {
    let network = bundle.manifest();
    let slots = usize::from(network.slots);
    if frames.is_empty() {
        return Err(BadUsage("--frames: expected at least one sample, found none".into()));
    }
    if frames.slots() != slots {
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
    for kill in &args.kill {
        if let Victim::Device(slot) = kill.victim
            && slot.index() >= slots
        {
            return Err(BadUsage(format!(
                "--kill device:{slot}: the network has the slots 0 to {}",
                slots.saturating_sub(1)
            )));
        }
    }
    Ok(())
}
