//! `headwater-device`: one device agent as a process, or several that see parts of one camera.

use std::future::poll_fn;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::task::Poll;

use anyhow::{Context, anyhow};
use headwater_end_device::{Device, DeviceHandle, DeviceReport, DeviceSettings, Ended, Source};
use headwater_inference::policy::LivePolicy;
use headwater_protocol::DeviceId;
use headwater_settings::{Level, Loaded, Sources, Stop, checked_live, print_checked, print_result};
use headwater_telemetry::{
    AdminServer, Health, Liveness, ReloadSignal, ServiceManager, init_logs, print_error,
    runtime_with_reloads, stop_signal,
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
    let devices = match DeviceSettings::load_each(Sources::of_process()) {
        Ok(devices) => devices,
        Err(stop) => return stop.print(PROGRAM),
    };
    // `load_each` gives at least one device. Options of the process, such as `log` and `json`, are the same in the settings of every device.
    let settings = &devices[0].settings;
    if let Err(mistake) = init_logs(&settings.log.filter, settings.log.format) {
        return Stop::Mistakes(vec![format!("log.filter: {mistake}")]).print(PROGRAM);
    }
    if settings.command_line.check_live {
        return checked_live(PROGRAM, devices.iter().map(|device| &device.settings.admin));
    }
    devices.iter().flat_map(|device| &device.warnings).for_each(|warning| warn!("{warning}"));
    if settings.command_line.check_config {
        return print_checks(&devices);
    }
    if let Some(error) =
        devices.iter().find_map(|device| of_device(device, device.settings.open_access()).err())
    {
        return fail(BAD_USAGE, &error);
    }
    let ran = runtime.block_on(run(&devices, reloads));
    // The shutdown does not wait for the runtime's threads, since one that reads from a hanging file system may never end.
    runtime.shutdown_background();
    match ran {
        Ok((reports, ended)) => {
            let lines = reports.iter().map(|report| format!("{}\n", serde_json::json!(report)));
            let printed = match settings.json {
                true => print_result(PROGRAM, &lines.collect::<String>()),
                false => ExitCode::SUCCESS,
            };
            // The fault of the source is in the log already.
            if ended == Ended::SourceBroke { ExitCode::FAILURE } else { printed }
        }
        Err(error) => fail(1, &error),
    }
}

fn fail(code: u8, error: &anyhow::Error) -> ExitCode {
    print_error(&format!("{PROGRAM}: {error:#}"));
    ExitCode::from(code)
}

/// Prints the checks and the settings of each device; if a check fails, prints the failed checks of all devices alone.
fn print_checks(devices: &[Loaded<DeviceSettings>]) -> ExitCode {
    let checks = devices.iter().map(|device| {
        let mut found = device.settings.checks().0;
        let fails = found.iter_mut().filter(|finding| finding.level == Level::Fail);
        fails.for_each(|finding| finding.found += &device.place);
        found
    });
    let checks: Vec<_> = checks.collect();
    let all = checks.concat();
    if all.iter().any(|finding| finding.level == Level::Fail) {
        return print_checked(&devices[0], &all);
    }
    devices.iter().zip(&checks).fold(ExitCode::SUCCESS, |_, (device, found)| print_checked(device, found))
}

/// Adds to an error the id of the device and the place of its table in the file, if the process has several devices.
fn of_device<T>(
    device: &Loaded<DeviceSettings>,
    result: Result<T, impl Into<anyhow::Error>>,
) -> anyhow::Result<T> {
    let result: anyhow::Result<T> = result.map_err(Into::into);
    match device.place.as_str() {
        "" => result,
        place => result.with_context(|| format!("device {}{place}", device.settings.id)),
    }
}

/// A running device, its policy and its admin listener.
struct Running {
    device: DeviceHandle,
    policy: LivePolicy,
    admin: Option<AdminServer>,
}

/// Health of every device of the process, with its name.
struct AllDevices(Vec<(DeviceId, Arc<dyn Health>)>);

impl AllDevices {
    /// The first reason that a device gives, with the id of the device if the process has several; `None` if no device gives a reason.
    fn first(&self, reason: impl Fn(&Arc<dyn Health>) -> Option<String>) -> Option<String> {
        let (id, reason) = self.0.iter().find_map(|(id, device)| Some((id, reason(device)?)))?;
        Some(if self.0.len() > 1 { format!("device {id}: {reason}") } else { reason })
    }
}

impl Health for AllDevices {
    fn liveness(&self) -> Liveness {
        let failed = self.first(|device| match device.liveness() {
            Liveness::Live => None,
            Liveness::Failed(reason) => Some(reason),
        });
        failed.map_or(Liveness::Live, Liveness::Failed)
    }

    fn unready_reason(&self) -> Option<String> {
        self.first(|device| device.unready_reason())
    }
}

/// Waits until every device has ended by itself, or the section of one device has failed; the position of that device is the error.
async fn all_ended(running: &mut [Running]) -> Result<Ended, usize> {
    poll_fn(|context| {
        let ended = running.iter_mut().map(|one| pin!(one.device.ended()).poll(context));
        end_of_all(&ended.collect::<Vec<_>>())
    })
    .await
}

/// End of the process by the ends of its devices; the position of a device whose section has failed is an error.
fn end_of_all(ended: &[Poll<Ended>]) -> Poll<Result<Ended, usize>> {
    let place_of = |reason| ended.iter().position(|ended| *ended == Poll::Ready(reason));
    match (place_of(Ended::Model), place_of(Ended::SourceBroke)) {
        (Some(failed), _) => Poll::Ready(Err(failed)),
        _ if ended.iter().any(Poll::is_pending) => Poll::Pending,
        (None, Some(_)) => Poll::Ready(Ok(Ended::SourceBroke)),
        (None, None) => Poll::Ready(Ok(Ended::Source)),
    }
}

/// Reads the policy file again on a thread that may block, and logs the result in one line.
async fn reload_policy(
    device: &DeviceId,
    mut policy: LivePolicy,
    handle: &DeviceHandle,
) -> anyhow::Result<LivePolicy> {
    let read = tokio::task::spawn_blocking(move || (policy.read_again(), policy)).await;
    let (reread, policy) = read.context("reading the policy again")?;
    let (present, id) = policy.in_effect();
    match reread.earlier() {
        Some(from) => {
            handle.set_policy(present, *id);
            info!(%device, %from, policy = %id, "SIGHUP: {reread}");
        }
        None if reread.is_refused() => warn!(%device, policy = %id, "SIGHUP: {reread}"),
        None => info!(%device, policy = %id, "SIGHUP: {reread}"),
    }
    Ok(policy)
}

/// Starts the devices. Several devices get their frames from one camera.
async fn start(devices: &[Loaded<DeviceSettings>]) -> anyhow::Result<Vec<Running>> {
    let (mut opened, mut sources) = (Vec::new(), Vec::new());
    for device in devices {
        let (one, bundle, source) = of_device(device, device.settings.open())?;
        of_device(device, device.settings.keep_release(&bundle))?;
        opened.push((one, bundle));
        sources.push(source);
    }
    let mut running = Vec::new();
    for ((device, (one, bundle)), source) in devices.iter().zip(opened).zip(Source::of_one_camera(sources)) {
        let settings = &device.settings;
        settings.security.warn_of_link("broker.address", &settings.broker.address);
        let policy = one.live_policy(&bundle);
        let started = of_device(device, Device::start(one, Arc::new(bundle), source).await)?;
        #[cfg(feature = "admin")]
        let admin = of_device(device, started.start_admin(&settings.admin).await)?;
        #[cfg(not(feature = "admin"))]
        let admin = match settings.admin.listen {
            None => None,
            Some(_) => anyhow::bail!(
                "admin.listen: this build of the agent has no admin listener (it was made without the feature `admin`)"
            ),
        };
        running.push(Running { device: started, policy, admin });
    }
    Ok(running)
}

/// Runs the devices. The async runtime has one thread, which handles messages; a section that is not brief has its own thread.
async fn run(
    devices: &[Loaded<DeviceSettings>],
    mut reloads: ReloadSignal,
) -> anyhow::Result<(Vec<DeviceReport>, Ended)> {
    let stop = stop_signal().context("waiting for a signal")?;
    let mut running = start(devices).await?;
    let manager = ServiceManager::of_process();
    let ids = || devices.iter().map(|device| &device.settings.id);
    let health = ids().cloned().zip(running.iter().map(|one| one.device.health())).collect();
    let watchdog_task = manager.ready(Arc::new(AllDevices(health)));
    let mut stop = pin!(stop);
    let ended = loop {
        tokio::select! {
            () = &mut stop => break Ok(Ended::Stopped),
            ended = all_ended(&mut running) => break ended,
            () = reloads.next() => {}
        }
        manager.reloading();
        let reload = async {
            for (id, one) in ids().zip(&mut running) {
                one.policy = reload_policy(id, one.policy.clone(), &one.device).await?;
            }
            anyhow::Ok(())
        };
        tokio::select! {
            // A file system that hangs must not keep the process from stopping.
            () = &mut stop => break Ok(Ended::Stopped),
            reloaded = reloads.during(reload) => reloaded?,
        }
        manager.reloaded();
    };
    if let Err(failed) = ended {
        // The failed device ends without an MQTT disconnect, so that the broker publishes its last will.
        drop(running.remove(failed));
    }
    tracing::info!("stopping");
    manager.stopping();
    let stopped = running.into_iter().map(|Running { device, admin, .. }| {
        tokio::spawn(async move {
            let report = device.shutdown().await;
            drop(admin);
            report
        })
    });
    let mut reports = Vec::new();
    for report in stopped.collect::<Vec<_>>() {
        reports.push(report.await.context("stopping a device")?);
    }
    drop(watchdog_task);
    match ended {
        Ok(ended) => Ok((reports, ended)),
        Err(failed) => of_device(&devices[failed], Err(anyhow!("the model thread ended"))),
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll::{Pending, Ready};

    use super::*;

    #[test]
    fn one_devices_failed_section_ends_the_process_and_one_devices_end_does_not() {
        for (ended, expected) in [
            ([Pending, Ready(Ended::Source)], Pending),
            ([Pending, Ready(Ended::Model)], Ready(Err(1))),
            ([Ready(Ended::SourceBroke), Ready(Ended::Source)], Ready(Ok(Ended::SourceBroke))),
            ([Ready(Ended::Source); 2], Ready(Ok(Ended::Source))),
        ] {
            assert_eq!(end_of_all(&ended), expected, "{ended:?}");
        }
    }

    struct Failed(Option<&'static str>);

    impl Health for Failed {
        fn liveness(&self) -> Liveness {
            self.0.map_or(Liveness::Live, |reason| Liveness::Failed(reason.into()))
        }
    }

    #[test]
    fn the_reason_of_a_device_names_it_among_several() {
        let device =
            |id: &str, reason| (DeviceId::new(id).unwrap(), Arc::new(Failed(reason)) as Arc<dyn Health>);
        let two = AllDevices(vec![device("left", None), device("right", Some("it hangs"))]);
        assert_eq!(two.liveness(), Liveness::Failed("device right: it hangs".into()));
        assert_eq!(two.unready_reason().unwrap(), "device right: it hangs");
        let one = AllDevices(vec![device("only", Some("it hangs"))]);
        assert_eq!(one.liveness(), Liveness::Failed("it hangs".into()));
        assert_eq!(AllDevices(vec![device("left", None)]).unready_reason(), None);
    }
}
