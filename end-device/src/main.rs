//! `headwater-device`: one device agent as a process.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use headwater_end_device::{Device, DeviceReport, DeviceSettings, Ended, OpenedSettings};
use headwater_settings::{Sources, Stop, print_result};
use headwater_telemetry::{init_logs, print_error, stop_signal};
use tracing::warn;

/// Name of this program in messages.
const PROGRAM: &str = "headwater-device";

/// Exit code of bad usage or configuration.
const BAD_USAGE: u8 = 2;

fn main() -> ExitCode {
    let loaded = match DeviceSettings::load(Sources::of_process()) {
        Ok(loaded) => loaded,
        Err(stop) => return stop.print(PROGRAM),
    };
    let settings = &loaded.settings;
    if let Err(mistake) = init_logs(&settings.log.filter, settings.log.format) {
        return Stop::Mistakes(vec![format!("log.filter: {mistake}")]).print(PROGRAM);
    }
    loaded.warnings.iter().for_each(|warning| warn!("{warning}"));
    if settings.command_line.check_config {
        let checked = settings
            .open()
            .and_then(|OpenedSettings { config, bundle, source }| Device::check(&config, &bundle, &source));
        return match checked {
            Ok(()) => print_result(PROGRAM, &loaded.to_toml(None)),
            Err(error) => fail(BAD_USAGE, &error.into()),
        };
    }
    if let Err(error) = settings.config() {
        return fail(BAD_USAGE, &error.into());
    }
    match run(settings) {
        Ok((report, ended)) => {
            let printed = match settings.json {
                true => print_result(PROGRAM, &format!("{}\n", serde_json::json!(report))),
                false => ExitCode::SUCCESS,
            };
            // The log names the fault of the source.
            if ended == Ended::SourceBroke { ExitCode::FAILURE } else { printed }
        }
        Err(error) => fail(1, &error),
    }
}

fn fail(code: u8, error: &anyhow::Error) -> ExitCode {
    print_error(&format!("{PROGRAM}: {error:#}"));
    ExitCode::from(code)
}

/// Runs the device. One thread handles messages; the section has its own.
#[tokio::main(flavor = "current_thread")]
async fn run(settings: &DeviceSettings) -> anyhow::Result<(DeviceReport, Ended)> {
    let OpenedSettings { config, bundle, source } = settings.open()?;
    settings.security.warn_of_link("broker.address", &settings.broker.address);
    let mut device = Device::start(config, Arc::new(bundle), source).await?;
    #[cfg(feature = "admin")]
    let _admin = device.start_admin(&settings.admin).await?;
    #[cfg(not(feature = "admin"))]
    anyhow::ensure!(
        settings.admin.listen.is_none(),
        "admin.listen: this build of the agent has no admin listener (it was made without the feature `admin`)"
    );
    let stop = stop_signal().context("waiting for a signal")?;
    let ended = tokio::select! {
        () = stop => Ended::Stopped,
        ended = device.ended() => ended,
    };
    if ended == Ended::Model {
        bail!("the model thread ended");
    }
    tracing::info!("stopping");
    Ok((device.shutdown().await, ended))
}
