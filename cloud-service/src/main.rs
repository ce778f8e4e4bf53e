//! `headwater-cloud`: reads settings, starts the service, waits for a signal.

use std::process::ExitCode;

use anyhow::Context;
use headwater_cloud_service::{CloudError, CloudSettings, run};
use headwater_settings::{Sources, Stop, checked_live, load, print_checked};
use headwater_telemetry::{
    ReloadSignal, ServiceManager, init_logs, print_error, runtime_with_reloads, stop_signal,
};
use tokio::runtime::Builder;
use tracing::{error, info, warn};

const PROGRAM: &str = "headwater-cloud";

fn main() -> ExitCode {
    let (runtime, reloads) = match runtime_with_reloads(&mut Builder::new_multi_thread()) {
        Ok(started) => started,
        Err(error) => {
            print_error(&format!("{PROGRAM}: starting the runtime: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let loaded = match load::<CloudSettings>(Sources::of_process()) {
        Ok(loaded) => loaded,
        Err(stop) => return stop.print(PROGRAM),
    };
    let settings = &loaded.settings;
    if let Err(mistake) = init_logs(&settings.service.log.filter, settings.service.log.format) {
        return Stop::Mistakes(vec![format!("log.filter: {mistake}")]).print(PROGRAM);
    }
    if settings.command_line.check_live {
        return checked_live(PROGRAM, [&settings.service.admin]);
    }
    loaded.warnings.iter().for_each(|warning| warn!("{warning}"));
    if settings.command_line.check_config {
        return print_checked(&loaded, &settings.checks().0);
    }
    let served = runtime.block_on(serve(settings, reloads));
    // Dropping the runtime would wait for a blocking thread that reads a file; if the file system hangs, that wait would not end.
    runtime.shutdown_background();
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            error!("{problem:#}");
            let is_usage = matches!(problem.downcast_ref(), Some(CloudError::Config(_)));
            ExitCode::from(if is_usage { 2 } else { 1 })
        }
    }
}

async fn serve(settings: &CloudSettings, mut reloads: ReloadSignal) -> anyhow::Result<()> {
    let networks = settings.open_networks().map_err(CloudError::Config)?;
    settings.keep_release(&networks).map_err(|mistake| CloudError::Config(vec![mistake]))?;
    let stop = stop_signal().context("waiting for a signal")?;
    let _ignored = tokio::spawn(async move {
        loop {
            reloads.next().await;
            info!(
                "SIGHUP: nothing to do; certificates and keys are read again when their files change, a network needs a start"
            );
        }
    });
    let shutdown = async {
        stop.await;
        info!("stopping");
    };
    let report = run(settings.service.clone(), networks, ServiceManager::of_process(), shutdown).await?;
    let (samples, batches) = (report.of_models(|of| of.samples), report.of_models(|of| of.batches));
    info!(answered = report.answered(), samples, batches, "stopped");
    Ok(())
}
