//! A site in this process, until a signal or the end of every source.
//!
//! ```text
//! start: broker, cloud, leader, devices          end: devices, leader, cloud, broker
//! results and account ──> stdout                 states of the cameras ──> stderr
//! ```

use std::collections::HashSet;
use std::fs::{self, File, TryLockError};
use std::future::pending;
use std::net::Ipv4Addr;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context, bail};
use headwater_cloud_service::CloudService;
use headwater_edge_aggregator::{Aggregator, GroupReport};
use headwater_group::{ClientSettings, GroupClient, GroupError, GroupEvent};
use headwater_protocol::status::GroupState;
use headwater_protocol::{ResultMessage, SampleId};
use headwater_telemetry::{print_error, stop_signal};
use headwater_transport::Endpoint;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep, timeout_at};

use super::account::{Account, LastRun};
use super::broker::Broker;
use super::cameras::Cameras;
use super::site_file::{BrokerChoice, Site};
use crate::BadUsage;
use crate::args::UpArgs;
use crate::progress::waiting;
use crate::trigger::result_line;

/// Time between two checks of the cameras and the broker.
const POLL: Duration = Duration::from_millis(250);

/// Longest wait for the broker to accept this program.
const CONNECT_LIMIT: Duration = Duration::from_secs(20);

/// Longest wait until the leader leads.
const LEADING_LIMIT: Duration = Duration::from_secs(30);

/// Longest wait, at the end, for results that are on their way from the broker.
const LAST_RESULTS_LIMIT: Duration = Duration::from_secs(10);

/// Longest wait for cameras after a failure.
const CAMERAS_LIMIT: Duration = Duration::from_secs(1);

/// Least number of latest results that are remembered to recognise repeats: as many as a leader publishes again. At most twice as many are
/// remembered.
const REMEMBERED: usize = 1024;

/// Runs a site. Returns true when no camera broke off.
pub(super) async fn run(site: Site, args: &UpArgs) -> anyhow::Result<bool> {
    let mut cameras = Cameras::default();
    let ended = Box::pin(serve(site, args, &mut cameras)).await;
    // The cameras still run if the start failed or a second signal came.
    cameras.end(CAMERAS_LIMIT).await;
    ended
}

/// Waits for Ctrl-C, SIGTERM, or the end of the terminal (SIGHUP). Under `nohup` the end of the terminal does not count.
fn end_signal() -> anyhow::Result<impl Future<Output = ()>> {
    const WAITING: &str = "waiting for a signal";
    let stop = stop_signal().context(WAITING)?;
    let outlives = outlives_terminal(&fs::read_to_string("/proc/self/status").unwrap_or_default());
    let hang_up = (!outlives).then(|| signal(SignalKind::hangup())).transpose().context(WAITING)?;
    Ok(async move {
        let hung_up = async {
            match hang_up {
                Some(mut hang_up) => _ = hang_up.recv().await,
                None => pending().await,
            }
        };
        tokio::select! { () = stop => {} () = hung_up => {} }
    })
}

/// Returns true when `/proc/self/status` says that SIGHUP, the lowest bit of `SigIgn`, is ignored.
fn outlives_terminal(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

/// The services of a site, without the cameras.
struct Services {
    broker: Broker,
    cloud: Option<CloudService>,
    aggregator: Aggregator,
    results: Results,
    last_run: LastRun,
}

async fn start(site: Site, args: &UpArgs, cameras: &mut Cameras) -> anyhow::Result<Services> {
    let broker = Broker::start(site.broker.as_ref(), &site.state_dir).await?;
    let last_run = LastRun::read(&site.state_dir, site.capture());
    let folders = site.devices.iter().filter_map(|device| device.settings.state_dir.as_deref());
    let is_new = args.new_numbering || last_run.is_forgotten(broker.is_own(), folders)?;
    let cloud = start_cloud(&site).await?;
    let (aggregator, client) = start_leader(&site, &broker.address, cloud.as_ref(), is_new).await?;
    until_leading(&aggregator).await?;
    last_run.write(None)?;
    let was_cut_off = last_run.was_cut_off();
    let results = Results { client, is_json: args.json, was_cut_off, shown: 0, before: HashSet::new() };
    cameras.start(site.devices, &broker.address).await?;
    Ok(Services { broker, cloud, aggregator, results, last_run })
}

async fn serve(site: Site, args: &UpArgs, cameras: &mut Cameras) -> anyhow::Result<bool> {
    let mut stop = pin!(end_signal()?);
    let _held = held(&site.state_dir)?;
    let started = tokio::select! {
        started = start(site, args, cameras) => started?,
        () = &mut stop => {
            print_error("stopped before the site ran");
            return Ok(true);
        }
    };
    let Services { mut broker, cloud, aggregator, mut results, last_run } = started;
    let (mut account, mut poll) = (Account::default(), tokio::time::interval(POLL));
    // After a failure, such as a closed terminal or a broker that ended, cameras and services still end in order.
    let mut failure = None;
    while !cameras.running.is_empty() && failure.is_none() {
        tokio::select! {
            () = &mut stop => break,
            Some(ended) = cameras.running.join_next() => {
                let ended = ended.context("running a camera")?;
                cameras.show_end(&ended);
                account.add(ended);
            }
            event = results.client.next() => failure = results.show(event).err(),
            _ = poll.tick() => {
                cameras.show(&aggregator);
                failure = broker.ended().map(anyhow::Error::msg);
            }
        }
    }
    print_error("stopping: the last answers are waited for");
    let mut again = pin!(end_signal()?);
    let mut ending = pin!(async {
        cameras.stop();
        while let Some(ended) = cameras.running.join_next().await {
            ended.into_iter().for_each(|ended| account.add(ended));
        }
        let groups = aggregator.shutdown().await;
        groups.into_iter().for_each(|ended| account.add_group(ended));
        if let Some(cloud) = cloud {
            cloud.shutdown().await;
        }
        account
    });
    let account = loop {
        tokio::select! {
            account = &mut ending => break account,
            event = results.client.next(), if failure.is_none() => failure = results.show(event).err(),
            () = &mut again => bail!("stopped before the last answers; what is unsettled waits for the next start"),
        }
    };
    let until = Instant::now() + LAST_RESULTS_LIMIT;
    while failure.is_none()
        && results.shown < account.decided
        && let Ok(event) = timeout_at(until, results.client.next()).await
    {
        failure = results.show(event).err();
    }
    last_run.write(failure.is_none().then_some(&account))?;
    broker.stop().await?;
    let text = if args.json { serde_json::to_string(&account)? } else { account.to_string() };
    crate::print(&(text + "\n"))?;
    failure.map_or(Ok(account.broke_off.is_empty()), Err)
}

/// Makes the state folder and locks it until the returned file is dropped: a second run would end the broker of the first.
fn held(state_dir: &Path) -> anyhow::Result<File> {
    let shown = state_dir.display();
    fs::create_dir_all(state_dir).with_context(|| format!("making {shown}"))?;
    let file = File::create(state_dir.join("up.lock")).with_context(|| format!("writing into {shown}"))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => bail!("{shown}: another `headwater up` uses this state folder"),
        Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("locking {shown}")),
    }
}

/// Bad usage with the mistakes that a service found in the files that its settings name.
#[expect(clippy::needless_pass_by_value, reason = "`map_err` gives the error by value")]
fn unusable(mistakes: Vec<String>) -> BadUsage {
    BadUsage(mistakes.join("\n  "))
}

/// Starts the site's own cloud, at a free port unless the file names one; `None` for a site whose cloud runs elsewhere.
async fn start_cloud(site: &Site) -> anyhow::Result<Option<CloudService>> {
    let Some(cloud) = &site.cloud else { return Ok(None) };
    let networks = cloud.settings.open_networks().map_err(unusable)?;
    cloud.settings.keep_release(&networks).map_err(BadUsage)?;
    let mut config = cloud.settings.service.clone();
    if !cloud.document.values.contains_key("http.listen") {
        config.http.listen = (Ipv4Addr::LOCALHOST, 0).into();
    }
    let started = CloudService::start(config, networks).await.context("starting the cloud")?;
    Ok(Some(started))
}

/// Starts the leader, and a client that reads the leader's results.
async fn start_leader(
    site: &Site,
    broker: &Endpoint,
    cloud: Option<&CloudService>,
    is_new_numbering: bool,
) -> anyhow::Result<(Aggregator, GroupClient)> {
    let mut settings = site.aggregator.settings.clone();
    settings.shared.broker.address = broker.clone();
    if let Some(cloud) = cloud {
        settings.shared.cloud.url = Some(Endpoint::http(&format!("http://{}", cloud.addr()))?);
    }
    let mut config = settings.open_checked().map_err(unusable)?;
    settings.keep_releases(&config).map_err(BadUsage)?;
    config.groups.iter_mut().for_each(|group| group.new_numbering = is_new_numbering);
    let group = config.groups.first().context("the leader has no group")?.settings.clone();
    let access = settings.shared.security.broker_access(&settings.shared.broker).map_err(unusable)?;
    if matches!(site.broker, Some(BrokerChoice::At(_))) {
        waiting(&format!("the broker {broker}"), CONNECT_LIMIT);
    }
    let client = GroupClient::connect(ClientSettings {
        broker: access,
        client_id: format!("headwater-up-{}-{}-{}", group.site, group.group, std::process::id()),
        site: group.site,
        group: group.group,
        network: site.bundle.network_id(),
        wait_limit: CONNECT_LIMIT,
    })
    .await?;
    let aggregator = Aggregator::start(config).await.context("starting the leader")?;
    Ok((aggregator, client))
}

/// Waits until the leader leads: earlier answers would be late, and a short folder could end before anybody takes its answers.
async fn until_leading(aggregator: &Aggregator) -> anyhow::Result<()> {
    let until = Instant::now() + LEADING_LIMIT;
    let state = || {
        aggregator.reports().into_iter().find_map(|report| match report {
            GroupReport::Leader(leader) => {
                Some((leader.lead, leader.claim.waits_for, leader.broker.status.reason))
            }
            GroupReport::Edge(_) => None,
        })
    };
    loop {
        let (lead, other, broker) = state().unwrap_or_default();
        if lead == GroupState::Leading {
            return Ok(());
        }
        if Instant::now() >= until {
            let found = match (other, broker) {
                (Some(other), _) => format!("{other}; stop that process, or name another group"),
                (None, Some(reason)) => format!("none; its connection to the broker: {reason}"),
                (None, None) => "none; the log says why".to_owned(),
            };
            bail!(
                "expected the group's leader in this process within {} s, found {found}",
                LEADING_LIMIT.as_secs()
            );
        }
        sleep(POLL / 5).await;
    }
}

/// Results of the group, which are printed as they come.
struct Results {
    client: GroupClient,
    is_json: bool,
    /// True when the run before may not have printed its last results.
    was_cut_off: bool,
    /// Number of printed results of this run.
    shown: u64,
    /// Samples of results that are older than the client's account.
    before: HashSet<SampleId>,
}

impl Results {
    fn show(&mut self, event: Result<GroupEvent, GroupError>) -> anyhow::Result<()> {
        let sample = match event {
            Ok(GroupEvent::Decided(sample)) => sample,
            Err(error @ GroupError::Closed) => return Err(error.into()),
            Err(error) => {
                print_error(&error.to_string());
                return Ok(());
            }
            Ok(_) => return Ok(()),
        };
        let (account, republished) = (self.client.account(), self.client.is_republished);
        let Some(decision) = account.decision(sample) else { return Ok(()) };
        // The leader begins with results of earlier runs, which it publishes again.
        let is_known = republished && self.shown == 0 && !self.was_cut_off;
        if !is_known && !self.before.contains(&sample) {
            let message = ResultMessage { decision: decision.clone(), republished };
            crate::print(&line(&message, self.is_json)?)?;
            // Results of earlier runs do not count.
            self.shown += u64::from(!republished);
        }
        if account.decisions().count() >= REMEMBERED {
            self.before = account.decisions().map(|decision| decision.sample).collect();
            self.client.begin_account();
        }
        Ok(())
    }
}

/// A result with the end of its line.
fn line(message: &ResultMessage, is_json: bool) -> anyhow::Result<String> {
    if is_json {
        return Ok(serde_json::to_string(message).context("writing a result")? + "\n");
    }
    let ResultMessage { decision, republished } = message;
    let mark = if *republished { "  published again" } else { "" };
    let latency = Duration::from_micros(decision.stages.decided_us);
    Ok(format!("{}{mark}\n", result_line(decision, Some(latency))))
}

#[cfg(test)]
mod tests {
    use headwater_protocol::testing;

    use super::*;

    #[test]
    fn a_state_folder_has_one_run() {
        let folder = tempfile::tempdir().unwrap();
        let state_dir = folder.path().join("a/b");
        let first = held(&state_dir).unwrap();
        assert!(held(&state_dir).unwrap_err().to_string().contains("another `headwater up`"));
        drop(first);
        held(&state_dir).unwrap();
    }

    #[test]
    fn a_program_under_nohup_outlives_its_terminal() {
        let status = |mask: &str| format!("SigBlk:\t0000000000000001\nSigIgn:\t{mask}\n");
        assert!(outlives_terminal(&status("0000000000001001")));
        assert!(!outlives_terminal(&status("0000000000001000")) && !outlives_terminal(""));
    }

    #[test]
    fn a_result_of_before_the_run_is_marked() {
        let decision = testing::decision(17);
        for republished in [false, true] {
            let message = ResultMessage { decision: decision.clone(), republished };
            assert_eq!(line(&message, false).unwrap().ends_with("  published again\n"), republished);
            assert_eq!(line(&message, true).unwrap().ends_with("\"republished\":true}\n"), republished);
        }
    }
}
