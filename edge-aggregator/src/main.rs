//! `headwater-aggregator`: reads settings, starts the aggregator, waits for a signal.

use std::process::ExitCode;

use headwater_edge_aggregator::{
    AggregatorConfig, AggregatorError, AggregatorSettings, GroupReport, GroupSettings, run,
};
use headwater_settings::{Sources, Stop, checked_live, load, print_checked};
use headwater_telemetry::{
    ReloadSignal, ServiceManager, init_logs, print_error, runtime_with_reloads, stop_signal,
};
use tokio::runtime::Builder;
use tracing::{error, info, warn};

const PROGRAM: &str = "headwater-aggregator";

fn main() -> ExitCode {
    let (runtime, reloads) = match runtime_with_reloads(&mut Builder::new_multi_thread()) {
        Ok(started) => started,
        Err(error) => {
            print_error(&format!("{PROGRAM}: starting the runtime: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let loaded = match load::<AggregatorSettings>(Sources::of_process()) {
        Ok(loaded) => loaded,
        Err(stop) => return stop.print(PROGRAM),
    };
    let log = &loaded.settings.shared.log;
    if let Err(mistake) = init_logs(&log.filter, log.format) {
        return Stop::Mistakes(vec![format!("log.filter: {mistake}")]).print(PROGRAM);
    }
    if loaded.settings.command_line.check_live {
        return checked_live(PROGRAM, [&loaded.settings.shared.admin]);
    }
    loaded.warnings.iter().for_each(|warning| warn!("{warning}"));
    if loaded.settings.command_line.check_config {
        return print_checked(&loaded, &loaded.settings.checks().0);
    }
    let config = match loaded.settings.open_checked() {
        Ok(config) => config,
        Err(mistakes) => return Stop::Mistakes(mistakes).print(PROGRAM),
    };
    if let Err(mistake) = loaded.settings.keep_releases(&config) {
        return Stop::Mistakes(vec![mistake]).print(PROGRAM);
    }
    let led = runtime.block_on(lead(config, reloads));
    // Dropping the runtime would wait for a blocking thread that reads a file; if the file system hangs, that wait would not end.
    runtime.shutdown_background();
    match led {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(AggregatorError::Config(mistakes)) => Stop::Mistakes(mistakes).print(PROGRAM),
        Err(failure) => {
            error!("{failure}");
            ExitCode::FAILURE
        }
    }
}

/// Reads the settings again, for the setting `devices` of each group.
fn read_groups() -> Result<Vec<GroupSettings>, String> {
    match load::<AggregatorSettings>(Sources::of_process()) {
        Ok(loaded) => Ok(loaded.settings.groups.all),
        Err(Stop::Mistakes(mistakes)) => Err(mistakes.join("; ")),
        Err(Stop::Help(_)) => Err("expected settings, found a request for help".into()),
    }
}

/// Runs until a signal comes or every group has ended; returns whether every group ended without an error.
async fn lead(config: AggregatorConfig, reloads: ReloadSignal) -> Result<bool, AggregatorError> {
    let no_signal = |error| AggregatorError::Stopped(format!("waiting for a signal: {error}"));
    let stop = stop_signal().map_err(no_signal)?;
    let shutdown = async {
        stop.await;
        info!("stopping");
    };
    let mut all_well = true;
    for end in run(config, ServiceManager::of_process(), reloads, read_groups, shutdown).await? {
        let group = &end.group;
        match end.outcome {
            Ok(GroupReport::Leader(report)) => {
                info!(%group, decided = report.decided, open = report.open, "stopped");
            }
            Ok(GroupReport::Edge(report)) => {
                info!(%group, answered = report.answered, gone = report.gone, "stopped");
            }
            Err(failure) => {
                all_well = false;
                error!(%group, %failure, "failed");
            }
        }
    }
    Ok(all_well)
}
