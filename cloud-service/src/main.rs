//! `headwater-cloud`: reads flags, environment and file, starts the service, waits for a signal.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser};
use headwater_cloud_service::{CloudConfig, CloudError, EngineChoice, run};
use headwater_inference::bundle::Bundle;
use headwater_protocol::{Origin, effective_line};
use tokio::signal::unix::{SignalKind, signal};
use tracing::{error, info};
use tracing_subscriber::EnvFilter;

/// Runs the cloud section of a bundle, or of the current and the next, behind the Open Inference Protocol v2.
#[derive(Debug, Parser)]
#[command(name = "headwater-cloud", version, about)]
struct Flags {
    /// The bundle whose cloud section answers.
    #[arg(long, env = "HEADWATER_BUNDLE")]
    bundle: PathBuf,
    /// The bundle of the next network, while a group switches over to it: requests that name it are answered by it.
    #[arg(long, env = "HEADWATER_CLOUD_NEXT_BUNDLE", value_name = "FILE")]
    next_bundle: Option<PathBuf>,
    /// A TOML file with settings; see `headwater-cloud.toml` for all of them with their defaults.
    #[arg(long, env = "HEADWATER_CLOUD_CONFIG")]
    config: Option<PathBuf>,
    /// Address to listen on, e.g. 0.0.0.0:8600.
    #[arg(long, env = "HEADWATER_CLOUD_LISTEN")]
    listen: Option<SocketAddr>,
    /// Name of the model in `/v2/models/{name}`.
    #[arg(long, env = "HEADWATER_CLOUD_MODEL_NAME")]
    model_name: Option<String>,
    /// What runs the cloud section: auto (ort where its library is found, else tract), tract, ort.
    #[arg(long, env = "HEADWATER_CLOUD_ENGINE")]
    engine: Option<EngineChoice>,
    /// The shared library of ONNX Runtime, 1.24 or later; without it the usual places are looked at.
    #[arg(long, env = "ORT_DYLIB_PATH", value_name = "FILE")]
    onnxruntime: Option<PathBuf>,
    /// Most samples in one run of the model; more serves more a second under load and costs memory.
    #[arg(long, env = "HEADWATER_CLOUD_MAX_BATCH")]
    max_batch: Option<usize>,
    /// Most requests queued or running, of each network; one more is answered with 429.
    #[arg(long, env = "HEADWATER_CLOUD_MOST_REQUESTS")]
    most_requests: Option<usize>,
    /// Longest time a request may take, ms.
    #[arg(long, env = "HEADWATER_CLOUD_DEADLINE_MS")]
    deadline_ms: Option<u32>,
    /// Longest time that shutdown waits for requests in flight, ms.
    #[arg(long, env = "HEADWATER_CLOUD_GRACE_MS")]
    grace_ms: Option<u32>,
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
    match serve(&flags, config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            error!("{problem:#}");
            let is_usage = matches!(problem.downcast_ref(), Some(CloudError::Config(_)));
            ExitCode::from(if is_usage { 2 } else { 1 })
        }
    }
}

/// Flag over environment over file over default.
fn settings(flags: &Flags) -> Result<CloudConfig, Vec<String>> {
    let mut config = CloudConfig::default();
    if let Some(path) = &flags.config {
        let named = |mistake: String| format!("{}: {mistake}", path.display());
        let text = std::fs::read_to_string(path).map_err(|error| vec![named(error.to_string())])?;
        config.read_toml(&text).map_err(|mistakes| mistakes.into_iter().map(named).collect::<Vec<_>>())?;
    }
    let Flags {
        next_bundle,
        listen,
        model_name,
        engine,
        onnxruntime,
        max_batch,
        most_requests,
        deadline_ms,
        grace_ms,
        ..
    } = flags;
    config.next_bundle = next_bundle.clone().or(config.next_bundle);
    config.listen = listen.unwrap_or(config.listen);
    config.max_batch = max_batch.unwrap_or(config.max_batch);
    config.most_requests = most_requests.unwrap_or(config.most_requests);
    config.deadline_ms = deadline_ms.unwrap_or(config.deadline_ms);
    config.grace_ms = grace_ms.unwrap_or(config.grace_ms);
    config.engine = engine.unwrap_or(config.engine);
    config.onnxruntime = onnxruntime.clone().or(config.onnxruntime);
    if let Some(name) = model_name {
        config.model_name.clone_from(name);
    }
    config.check().map(|()| config)
}

/// The settings in effect, and where each came from.
fn show(flags: &Flags, matches: &ArgMatches, config: &CloudConfig) {
    let text = flags.config.as_ref().and_then(|path| std::fs::read_to_string(path).ok());
    let file: toml::Table = text.and_then(|text| text.parse().ok()).unwrap_or_default();
    let origin = |key: &str| match matches.try_contains_id(key).map(|_| matches.value_source(key)) {
        Ok(Some(ValueSource::CommandLine)) => Origin::Flag,
        Ok(Some(ValueSource::EnvVariable)) => Origin::Environment,
        _ if file.contains_key(key) => Origin::File,
        _ => Origin::Default,
    };
    let bundle = toml::Value::from(flags.bundle.display().to_string()).to_string();
    println!("{}", effective_line("bundle", Some(&bundle), origin("bundle")));
    for (key, value) in config.effective() {
        println!("{}", effective_line(key, value.map(|value| value.to_string()).as_deref(), origin(key)));
    }
}

#[tokio::main]
async fn serve(flags: &Flags, config: CloudConfig) -> anyhow::Result<()> {
    let bundle =
        Bundle::open(&flags.bundle).with_context(|| format!("opening bundle {}", flags.bundle.display()))?;
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
    let shutdown = async {
        tokio::select! { _ = terminate.recv() => {} _ = interrupt.recv() => {} }
        info!("stopping");
    };
    let report = run(config, Arc::new(bundle), shutdown).await?;
    info!(answered = report.answered, samples = report.samples, batches = report.batches, "stopped");
    Ok(())
}
