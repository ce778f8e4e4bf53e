//! `headwater-device`: one device agent as a process.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use headwater_end_device::{Device, DeviceHandle, DeviceReport, DeviceSettings, Ended, OpenedSettings};
use headwater_inference::policy::{LivePolicy, Reread};
use headwater_settings::{Sources, Stop, checked_live, print_result};
use headwater_telemetry::{ReloadSignal, ServiceManager, init_logs, print_error, stop_signal};
use tracing::{info, warn};

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
    if settings.command_line.check_live {
        return checked_live(PROGRAM, &settings.admin);
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

/// Reads the policy file again, and logs the result in one line.
fn reload_policy(policy: &mut LivePolicy, device: &DeviceHandle) {
    let reread = policy.read_again();
    let (present, id) = policy.in_effect();
    match reread {
        Reread::NoFile => info!("SIGHUP: the device has no policy file (`policy`), so its policy stays"),
        Reread::Unchanged => info!(policy = %id, "SIGHUP: the policy is unchanged"),
        Reread::Refused(mistake) => {
            warn!(policy = %id, %mistake, "SIGHUP: the policy file is refused, and the earlier policy stays");
        }
        Reread::Changed { from, differences } => {
            let changes = differences.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            device.set_policy(present, *id);
            info!(%from, policy = %id, changes, "SIGHUP: another policy holds for samples answered from now on");
        }
    }
}

/// Runs the device. One thread handles messages; the section has its own.
#[tokio::main(flavor = "current_thread")]
async fn run(settings: &DeviceSettings) -> anyhow::Result<(DeviceReport, Ended)> {
    let stop = stop_signal().context("waiting for a signal")?;
    let mut reloads = ReloadSignal::new().context("waiting for a signal")?;
    let opened = settings.open()?;
    let mut policy = opened.live_policy(settings);
    let OpenedSettings { config, bundle, source } = opened;
    settings.security.warn_of_link("broker.address", &settings.broker.address);
    let mut device = Device::start(config, Arc::new(bundle), source).await?;
    #[cfg(feature = "admin")]
    let _admin = device.start_admin(&settings.admin).await?;
    #[cfg(not(feature = "admin"))]
    anyhow::ensure!(
        settings.admin.listen.is_none(),
        "admin.listen: this build of the agent has no admin listener (it was made without the feature `admin`)"
    );
    let manager = ServiceManager::of_process();
    let signs_of_life = manager.ready(device.health());
    let mut stop = std::pin::pin!(stop);
    let ended = loop {
        tokio::select! {
            () = &mut stop => break Ended::Stopped,
            ended = device.ended() => break ended,
            () = reloads.next() => {
                manager.reloading();
                reload_policy(&mut policy, &device);
                manager.reloaded();
            }
        }
    };
    if ended == Ended::Model {
        bail!("the model thread ended");
    }
    tracing::info!("stopping");
    manager.stopping();
    let report = device.shutdown().await;
    drop(signs_of_life);
    Ok((report, ended))
}
