//! `headwater-aggregator`: reads flags, environment and files, starts the aggregator, waits for a signal.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser};
use headwater_edge_aggregator::{AggregatorConfig, AggregatorError, Finished, JournalConfig, run};
use headwater_inference::bundle::{Bundle, Networks};
use headwater_link::BrokerAddress;
use headwater_protocol::{EdgeId, GroupId, Origin, SiteId, effective_line};
use tokio::signal::unix::{SignalKind, signal};
use tracing::{error, info};
use tracing_subscriber::EnvFilter;

/// Leads the decisions of one group of devices, or runs one edge section for the leader (--role edge).
#[derive(Debug, Parser)]
#[command(name = "headwater-aggregator", version, about)]
struct Flags {
    /// The bundle the devices run; its labels, policy and local exit are used here.
    #[arg(long, env = "HEADWATER_BUNDLE")]
    bundle: PathBuf,
    /// The bundle that devices are switching to, while they are restarted with it one by one (docs/rollover.md). Its own policy holds
    /// for it.
    #[arg(long, env = "HEADWATER_NEXT_BUNDLE", value_name = "BUNDLE")]
    next_bundle: Option<PathBuf>,
    /// A TOML file with settings; see `headwater-aggregator.toml` for all of them with their defaults.
    #[arg(long, env = "HEADWATER_AGGREGATOR_CONFIG")]
    config: Option<PathBuf>,
    /// A TOML file with thresholds and timing, in place of the bundle's policy; see docs/policy.toml.
    #[arg(long, env = "HEADWATER_POLICY")]
    policy: Option<PathBuf>,
    /// Site of the group.
    #[arg(long, env = "HEADWATER_SITE")]
    site: Option<SiteId>,
    /// The group to lead, or to be an edge of.
    #[arg(long, env = "HEADWATER_GROUP")]
    group: Option<GroupId>,
    /// "leader" decides; "edge" runs one edge section of a network with several edges. (default leader)
    #[arg(long, env = "HEADWATER_ROLE", value_name = "WORD")]
    role: Option<String>,
    /// With --role edge: which edge of the network, from 0.
    #[arg(long, env = "HEADWATER_EDGE", value_name = "N")]
    edge: Option<usize>,
    /// With --role edge: its name in topics. (default: "edge-" and the number)
    #[arg(long, env = "HEADWATER_EDGE_ID", value_name = "NAME")]
    edge_id: Option<EdgeId>,
    /// As leader: edges of the network that run in this process, e.g. 0,1. (default: the only one; of several, none)
    #[arg(long, env = "HEADWATER_OWN_EDGES", value_name = "LIST", value_delimiter = ',')]
    own_edges: Option<Vec<usize>>,
    /// Where the broker is, e.g. `mqtt://10.0.0.5:1883`.
    #[arg(long, env = "HEADWATER_BROKER")]
    broker: Option<BrokerAddress>,
    /// Where the cloud service is, e.g. `http://10.0.0.9:8600`; without one unsure samples are answered locally, degraded.
    #[arg(long, env = "HEADWATER_CLOUD_URL")]
    cloud_url: Option<String>,
    /// Name of the model at the cloud service.
    #[arg(long, env = "HEADWATER_CLOUD_MODEL_NAME")]
    cloud_model: Option<String>,
    /// File in which decisions are written before they are published; without one nothing survives the process.
    #[arg(long, env = "HEADWATER_JOURNAL")]
    journal: Option<PathBuf>,
    /// Prints every setting that is in effect and where it came from (flag, environment, file, default), and ends: 0, or 2 with every
    /// mistake.
    #[arg(long)]
    check_config: bool,
}

fn main() -> ExitCode {
    let matches = Flags::command().get_matches();
    let flags = Flags::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let colours = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours).init();
    let config = match settings(&flags) {
        Ok(config) => config,
        Err(mistakes) => {
            mistakes.iter().for_each(|mistake| error!("{mistake}"));
            return ExitCode::from(2);
        }
    };
    if flags.check_config {
        show(&flags, &matches, &config);
        return ExitCode::SUCCESS;
    }
    match lead(&flags, config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            error!("{problem:#}");
            let is_usage = matches!(problem.downcast_ref(), Some(AggregatorError::Config(_)));
            ExitCode::from(if is_usage { 2 } else { 1 })
        }
    }
}

/// Flag over environment over file over default; every mistake of every file at once.
fn settings(flags: &Flags) -> Result<AggregatorConfig, Vec<String>> {
    let mut config = default_settings()?;
    let mut mistakes = Vec::new();
    if let Some(path) = &flags.config {
        read(path, &mut mistakes, |text| config.read_toml(text));
    }
    if let Some(path) = &flags.policy {
        read(path, &mut mistakes, |text| config.read_policy_toml(text));
    }
    let Flags { site, group, broker, cloud_url, cloud_model, journal, .. } = flags;
    overwrite(&mut config.site, site.as_ref());
    overwrite(&mut config.group, group.as_ref());
    overwrite(&mut config.broker, broker.as_ref());
    overwrite(&mut config.cloud_model, cloud_model.as_ref());
    match config.role_of(flags.role.as_deref(), flags.own_edges.clone(), flags.edge, flags.edge_id.clone()) {
        Ok(role) => config.role = role,
        Err(wrong) => mistakes.extend(wrong),
    }
    config.cloud_url = cloud_url.clone().or(config.cloud_url);
    if let Some(path) = journal {
        let from_file = config.journal.take().unwrap_or_else(|| JournalConfig::new(path));
        config.journal = Some(JournalConfig { path: path.clone(), ..from_file });
    }
    mistakes.extend(config.check().err().unwrap_or_default());
    if mistakes.is_empty() { Ok(config) } else { Err(mistakes) }
}

/// The settings in effect, and where each came from.
fn show(flags: &Flags, matches: &ArgMatches, config: &AggregatorConfig) {
    let text = flags.config.as_ref().and_then(|path| std::fs::read_to_string(path).ok());
    let file: toml::Table = text.and_then(|text| text.parse().ok()).unwrap_or_default();
    let origin =
        |key: &str| match matches.try_contains_id(id_of(key)).map(|_| matches.value_source(id_of(key))) {
            Ok(Some(ValueSource::CommandLine)) => Origin::Flag,
            Ok(Some(ValueSource::EnvVariable)) => Origin::Environment,
            _ if file.contains_key(key) => Origin::File,
            _ => Origin::Default,
        };
    let path = |path: &PathBuf| toml::Value::from(path.display().to_string()).to_string();
    println!("{}", effective_line("bundle", Some(&path(&flags.bundle)), origin("bundle")));
    let next = flags.next_bundle.as_ref().map(path);
    println!("{}", effective_line("next_bundle", next.as_deref(), origin("next_bundle")));
    println!("{}", effective_line("policy", flags.policy.as_ref().map(path).as_deref(), origin("policy")));
    for (key, value) in config.effective() {
        println!("{}", effective_line(key, value.map(|value| value.to_string()).as_deref(), origin(key)));
    }
}

/// The flag of a key is its name, but for one.
fn id_of(key: &str) -> &str {
    if key == "journal_path" { "journal" } else { key }
}

fn default_settings() -> Result<AggregatorConfig, Vec<String>> {
    let of = |error: String| vec![error];
    Ok(AggregatorConfig::new(
        SiteId::new("home").map_err(|error| of(error.to_string()))?,
        GroupId::new("demo").map_err(|error| of(error.to_string()))?,
        BrokerAddress::mqtt("127.0.0.1", 1883).map_err(|error| of(error.to_string()))?,
    ))
}

fn read(path: &Path, mistakes: &mut Vec<String>, into: impl FnOnce(&str) -> Result<(), Vec<String>>) {
    let named = |mistake: String| format!("{}: {mistake}", path.display());
    match std::fs::read_to_string(path) {
        Ok(text) => mistakes.extend(into(&text).err().unwrap_or_default().into_iter().map(named)),
        Err(error) => mistakes.push(named(error.to_string())),
    }
}

fn overwrite<T: Clone>(setting: &mut T, flag: Option<&T>) {
    if let Some(value) = flag {
        setting.clone_from(value);
    }
}

#[tokio::main]
async fn lead(flags: &Flags, config: AggregatorConfig) -> anyhow::Result<()> {
    let open = |path: &PathBuf| {
        let bundle = Bundle::open(path).with_context(|| format!("opening bundle {}", path.display()))?;
        anyhow::Ok(Arc::new(bundle))
    };
    let current = open(&flags.bundle)?;
    let networks = match &flags.next_bundle {
        Some(next) => Networks::both(current, open(next)?)
            .map_err(|error| AggregatorError::Config(vec![format!("next_bundle: {error}")]))?,
        None => current.into(),
    };
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
    let shutdown = async {
        tokio::select! { _ = terminate.recv() => {} _ = interrupt.recv() => {} }
        info!("stopping");
    };
    match run(config, networks, shutdown).await? {
        Finished::Leader(report) => info!(decided = report.decided, open = report.open, "stopped"),
        Finished::Edge(report) => info!(answered = report.answered, gone = report.gone, "stopped"),
    }
    Ok(())
}
