//! `headwater-device`: one device agent as a process.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use headwater_end_device::{Device, DeviceHandle, DeviceReport, DeviceSettings, Ended};
use headwater_inference::policy::LivePolicy;
use headwater_settings::{Sources, Stop, checked_live, print_checked, print_result};
use headwater_telemetry::{
    ReloadSignal, ServiceManager, init_logs, print_error, runtime_with_reloads, stop_signal,
};
use tokio::runtime::Builder;
use tracing::{info, warn};

/// Name of this program in messages.
const PROGRAM: &str = "headwater-device";

/// Exit code of bad usage or configuration.
const BAD_USAGE: u8 = 2;

fn main() -> ExitCode {
    let (runtime, reloads) = match runtime_with_reloads(&mut Builder::new_current_thread()) {
        Ok(started) => started,
        Err(error) => return fail(1, &error.into()),
    };
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
        return print_checked(&loaded, &settings.checks().0);
    }
    if let Err(error) = settings.open_access() {
        return fail(BAD_USAGE, &error.into());
    }
    let ran = runtime.block_on(run(settings, reloads));
    // A thread that reads from a hanging file system would keep a runtime that waits for its threads alive for ever.
    runtime.shutdown_background();
    match ran {
        Ok((report, ended)) => {
            let printed = match settings.json {
                true => print_result(PROGRAM, &format!("{}\n", serde_json::json!(report))),
                false => ExitCode::SUCCESS,
            };
            // The log has named the fault of the source already.
            if ended == Ended::SourceBroke { ExitCode::FAILURE } else { printed }
        }
        Err(error) => fail(1, &error),
    }
}

fn fail(code: u8, error: &anyhow::Error) -> ExitCode {
    print_error(&format!("{PROGRAM}: {error:#}"));
    ExitCode::from(code)
}

/// Reads the policy file again, off the async thread, and logs the result in one line.
async fn reload_policy(mut policy: LivePolicy, device: &DeviceHandle) -> anyhow::Result<LivePolicy> {
    let read = tokio::task::spawn_blocking(move || (policy.read_again(), policy)).await;
    let (reread, policy) = read.context("reading the policy again")?;
    let (present, id) = policy.in_effect();
    match reread.earlier() {
        Some(from) => {
            device.set_policy(present, *id);
            info!(%from, policy = %id, "SIGHUP: {reread}");
        }
        None if reread.is_refused() => warn!(policy = %id, "SIGHUP: {reread}"),
        None => info!(policy = %id, "SIGHUP: {reread}"),
    }
    Ok(policy)
}

/// Runs the device. The async runtime has one thread, which handles messages; a section that is not brief has its own thread.
async fn run(settings: &DeviceSettings, mut reloads: ReloadSignal) -> anyhow::Result<(DeviceReport, Ended)> {
    let stop = stop_signal().context("waiting for a signal")?;
    let (opened, bundle, source) = settings.open()?;
    settings.keep_release(&bundle)?;
    let mut policy = opened.live_policy(&bundle);
    settings.security.warn_of_link("broker.address", &settings.broker.address);
    let mut device = Device::start(opened, Arc::new(bundle), source).await?;
    #[cfg(feature = "admin")]
    let _admin = device.start_admin(&settings.admin).await?;
    #[cfg(not(feature = "admin"))]
    anyhow::ensure!(
        settings.admin.listen.is_none(),
        "admin.listen: this build of the agent has no admin listener (it was made without the feature `admin`)"
    );
    let manager = ServiceManager::of_process();
    let watchdog_task = manager.ready(device.health());
    let mut stop = std::pin::pin!(stop);
    let ended = loop {
        tokio::select! {
            () = &mut stop => break Ended::Stopped,
            ended = device.ended() => break ended,
            () = reloads.next() => {}
        }
        manager.reloading();
        tokio::select! {
            // A file system that hangs must not keep the process from stopping.
            () = &mut stop => break Ended::Stopped,
            reloaded = reloads.during(reload_policy(policy, &device)) => policy = reloaded?,
        }
        manager.reloaded();
    };
    if ended == Ended::Model {
        bail!("the model thread ended");
    }
    tracing::info!("stopping");
    manager.stopping();
    let report = device.shutdown().await;
    drop(watchdog_task);
    Ok((report, ended))
}
