//! `headwater policy`: shows the policy in effect, and changes a policy file.

mod set;
mod show;

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Subcommand;

/// Arguments of `headwater policy`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  headwater policy show                                    the calibrated policy of the shipped bundle
  headwater policy show network.hwb --policy policy.toml   with the changes of a file
  headwater policy set policy.toml local.threshold=0.4 window_ms=80 --bundle network.hwb
  headwater policy set policy.toml 'local.threshold=[0.6, 0.5, 0.4]' edge.rule=margin
  headwater policy set policy.toml local.threshold=        back to the calibrated value
A policy file states only what it changes (docs/policy.toml). headwater-aggregator and headwater-device take it with --policy, and read
it again at SIGHUP.
Exit codes: 0 done, 1 a file that cannot be read or written, 2 a mistake in the arguments or the policy.")]
pub struct PolicyArgs {
    /// The action.
    #[command(subcommand)]
    command: PolicyCommand,
}

/// Subcommands of `headwater policy`.
#[derive(Debug, Subcommand)]
enum PolicyCommand {
    /// Show every value in effect, and where it comes from.
    Show(ShowArgs),
    /// Change a policy file, after a check. A file that is not there is made.
    Set(SetArgs),
}

/// Arguments of `headwater policy show`.
#[derive(Debug, clap::Args)]
struct ShowArgs {
    /// The bundle; the shipped one by default.
    bundle: Option<PathBuf>,
    /// Policy file with changes to the bundle's policy.
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Arguments of `headwater policy set`.
#[derive(Debug, clap::Args)]
struct SetArgs {
    /// The policy file.
    file: PathBuf,
    /// Values, such as `local.threshold=0.4`; `KEY=` takes the key out of the file, back to the calibrated value.
    #[arg(value_name = "KEY=VALUE")]
    values: Vec<String>,
    /// Take a key out of the file, back to the calibrated value. May be given several times.
    #[arg(long, value_name = "KEY")]
    unset: Vec<String>,
    /// Check the changed file against the policy of this bundle too.
    #[arg(long, value_name = "FILE")]
    bundle: Option<PathBuf>,
}

/// Runs the subcommand.
///
/// # Errors
/// [`BadUsage`](crate::BadUsage) for arguments or a policy that cannot be used; otherwise a file that cannot be read or written.
pub fn run(args: &PolicyArgs) -> anyhow::Result<()> {
    match &args.command {
        PolicyCommand::Show(args) => show::run(args),
        PolicyCommand::Set(args) => set::run(args),
    }
}

/// Fails where the file cannot be read; a mistake in a file that can be read is bad usage.
fn check_readable(file: &Path) -> anyhow::Result<()> {
    let of = || format!("reading the policy {}", file.display());
    // Opening a pipe would wait for its writer.
    if !std::fs::metadata(file).with_context(of)?.is_file() {
        bail!("{}: expected a regular file, found something else", of());
    }
    std::fs::File::open(file).with_context(of)?;
    Ok(())
}
