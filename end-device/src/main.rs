//! `headwater-device`: one device agent as a process.

mod args;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use headwater_end_device::{Device, DeviceReport, Ended, Given, Settings, Source};
use headwater_inference::bundle::Bundle;
use tracing_subscriber::EnvFilter;

use args::Args;

/// Exit code of bad usage or configuration.
const BAD_USAGE: u8 = 2;

fn main() -> ExitCode {
    let (args, given) = Args::read();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let colours = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours).init();
    let settings = match read_settings(&args, &given) {
        Ok(settings) => settings,
        Err(error) => {
            eprintln!("headwater-device: {error:#}\nheadwater-device --help explains every setting");
            return ExitCode::from(BAD_USAGE);
        }
    };
    if args.check_config {
        settings.effective().iter().for_each(|line| println!("{line}"));
        return ExitCode::SUCCESS;
    }
    match run(settings) {
        Ok((report, ended)) => {
            if args.json {
                println!("{}", serde_json::json!(report));
            }
            // What was wrong with the source is in the log by now.
            if ended == Ended::SourceBroke { ExitCode::FAILURE } else { ExitCode::SUCCESS }
        }
        Err(error) => {
            eprintln!("headwater-device: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn read_settings(args: &Args, given: &[Given]) -> anyhow::Result<Settings> {
    let file = match &args.config {
        Some(path) => Some(
            std::fs::read_to_string(path)
                .with_context(|| format!("reading settings from {}", path.display()))?,
        ),
        None => None,
    };
    let mut settings = Settings::read(file.as_deref(), given)?;
    if let Some(path) = &settings.policy {
        settings.config.read_policy(path)?;
    }
    Ok(settings)
}

/// One thread for the conversation is enough; the section has its own.
#[tokio::main(flavor = "current_thread")]
async fn run(settings: Settings) -> anyhow::Result<(DeviceReport, Ended)> {
    let Settings { config, bundle, source, .. } = settings;
    let bundle = Bundle::open(&bundle).with_context(|| format!("loading the bundle {}", bundle.display()))?;
    let source = Source::open(&source, config.slot, &bundle.manifest().preprocessing)?;
    let mut device = Device::start(config, Arc::new(bundle), source).await?;
    let ended = tokio::select! {
        signal = stop_signal() => signal.map(|()| Ended::Stopped).context("waiting for a signal")?,
        ended = device.ended() => ended,
    };
    if ended == Ended::Model {
        bail!("the model thread ended");
    }
    tracing::info!("stopping");
    Ok((device.shutdown().await, ended))
}

/// Ctrl-C, or the signal with which a service manager stops a process.
async fn stop_signal() -> std::io::Result<()> {
    #[cfg(unix)]
    {
        let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        tokio::select! {
            pressed = tokio::signal::ctrl_c() => pressed,
            _ = terminate.recv() => Ok(()),
        }
    }
    #[cfg(not(unix))]
    tokio::signal::ctrl_c().await
}
