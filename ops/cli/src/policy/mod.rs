//! `headwater policy`: shows the policy in effect, and changes a policy file, here or at a running leader.

mod send;
mod set;
mod show;

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Subcommand;
use headwater_inference::policy::PolicyChanges;
use headwater_link::Endpoint;
use headwater_protocol::{GroupId, MemberName, PolicyId, SiteId};

use crate::security_args::SecurityArgs;

/// Arguments of `headwater policy`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  headwater policy show                                    the calibrated policy of the shipped bundle
  headwater policy show network.hwb --policy policy.toml   with the changes of a file
  headwater policy set policy.toml local.threshold=0.4 window_ms=80 --bundle network.hwb
  headwater policy set policy.toml 'local.threshold=[0.6, 0.5, 0.4]' edge.rule=margin
  headwater policy set policy.toml local.threshold=        back to the calibrated value
  headwater policy send --site hall --group gate local.threshold=0.4 --why 'night shift'
                                                           the same, in the file of a running leader
A policy file states only what it changes (docs/policy.toml). headwater-aggregator and headwater-device take it with --policy, and read
it again at SIGHUP.
Exit codes: 0 done, 1 a file that cannot be read or written, or a leader that refuses, 2 a mistake in the arguments or the policy.")]
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
    /// Change the policy of a running group: the leader checks the change, writes its policy file and answers.
    Send(Box<SendArgs>),
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
    #[arg(value_name = "KEY=VALUE", required = true)]
    values: Vec<String>,
    /// Check the changed file against the policy of this bundle too.
    #[arg(long, value_name = "FILE")]
    bundle: Option<PathBuf>,
}

/// Arguments of `headwater policy send`.
#[derive(Debug, clap::Args)]
struct SendArgs {
    /// Values, such as `local.threshold=0.4`; `KEY=` takes the key out of the leader's file, back to the calibrated value.
    #[arg(value_name = "KEY=VALUE", required_unless_present = "release")]
    values: Vec<String>,
    /// MQTT broker of the group, mqtt://host:port, or mqtts://host:port with TLS.
    #[arg(long, value_name = "ADDRESS", default_value = "mqtt://127.0.0.1:1883", value_parser = Endpoint::broker)]
    broker: Endpoint,
    /// Site of the group.
    #[arg(long, value_name = "NAME")]
    site: SiteId,
    /// The group.
    #[arg(long, value_name = "NAME")]
    group: GroupId,
    /// Name under which the broker lets this client send commands: the name in its certificate.
    #[arg(long, value_name = "NAME", default_value = "operator")]
    member: MemberName,
    /// Id of the policy that the change is for; the policy in effect by default.
    #[arg(long, value_name = "ID")]
    replaces: Option<PolicyId>,
    /// Allow plans again, which the leader refuses after an operator's change.
    #[arg(long, conflicts_with_all = ["values", "plan"])]
    release: bool,
    /// Send the change as a plan: it is refused while an operator's change holds, and keeps no later plan out.
    #[arg(long)]
    plan: bool,
    /// Reason, for the leader's audit file.
    #[arg(long, value_name = "TEXT")]
    why: Option<String>,
    /// Print the answer as one JSON object.
    #[arg(long)]
    json: bool,
    /// Identity and trust.
    #[command(flatten)]
    security: SecurityArgs,
}

/// Runs the subcommand.
///
/// # Errors
/// [`BadUsage`](crate::BadUsage) for arguments or a policy that cannot be used; otherwise a file that cannot be read or written.
pub fn run(args: &PolicyArgs) -> anyhow::Result<()> {
    match &args.command {
        PolicyCommand::Show(args) => show::run(args),
        PolicyCommand::Set(args) => set::run(args),
        PolicyCommand::Send(args) => send::run(args),
    }
}

/// Reads the text of a policy file. The callers check the text; a mistake in it is bad usage, and a file that cannot be read is not.
fn read_text(file: &Path) -> anyhow::Result<String> {
    PolicyChanges::read_text(file).with_context(|| format!("reading the policy {}", file.display()))
}
