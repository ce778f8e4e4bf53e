//! A run of the demo: starts the services, triggers samples at the given rate, kills services, and waits for the last decision.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use headwater_group::{ClientSettings, GroupClient, GroupEvent};
use headwater_inference::policy::Policy;
use headwater_protocol::SampleId;
use tokio::time::sleep_until;

use super::demo_site::{DemoSite, READY_LIMIT, broker, operator, site_settings};
use super::inputs::Inputs;
use super::report::{DemoReport, image_sizes};
use crate::args::DemoArgs;
use crate::option_values::{Kill, MAX_UNSETTLED, Rate};
use crate::progress::{Progress, waiting};

/// Longest wait for the broker to accept the demo.
const CONNECT_LIMIT: Duration = Duration::from_secs(20);
/// Time between two checks for programs that have ended by themselves.
const END_POLL: Duration = Duration::from_millis(250);
/// Ids kept free below a run's first id for trial samples: four a second, for up to [`READY_LIMIT`].
const TRIAL_IDS: u64 = 500;
/// If nothing changes for this long after the deadline of the latest sample, all samples without an end count as lost.
const LOST_AFTER: Duration = Duration::from_secs(12);

pub(super) async fn run(args: &DemoArgs, inputs: &Inputs, policy: Policy) -> anyhow::Result<DemoReport> {
    let frames = Arc::clone(&inputs.frames);
    let sizes =
        tokio::task::spawn_blocking(move || image_sizes(&frames)).await.context("encoding the views")??;
    let policy_ms = u64::from(policy.deadline_ms) + u64::from(policy.late_ms);
    let (promises, promise_line) = (policy.promises.clone(), policy.promise_line());
    let lost_after = LOST_AFTER + Duration::from_millis(policy_ms);
    let (broker, _embedded) = broker(args)?;
    let site = site_settings(args, broker)?;
    if args.broker.is_some() {
        waiting(&format!("the broker {}", site.broker), CONNECT_LIMIT);
    }
    let security = operator(args, &site.group);
    let mut client = GroupClient::connect(ClientSettings {
        broker: security.access(&site.broker)?,
        site: site.site.clone(),
        group: site.group.clone(),
        network: inputs.bundle.network_id(),
        client_id: "headwater-demo".into(),
        wait_limit: CONNECT_LIMIT,
    })
    .await?;
    if args.broker.is_some() || args.processes {
        waiting("all services to find each other", READY_LIMIT);
    }
    let mut services = DemoSite::start(args, site, inputs, policy).await?;
    let frame_count = inputs.frames.len() as u64;
    let first = first_sample(frame_count, args.broker.is_some());
    // Programs cannot be asked whether they have found each other. A trial sample that is decided with every view shows that they have.
    if let DemoSite::Programs { .. } = services {
        client.wait_limit = READY_LIMIT;
        let trial = SampleId(first.0 - TRIAL_IDS);
        tokio::select! {
            complete = client.wait_for_complete_decision(trial) => { complete?; }
            ended = wait_until_ended(&mut services) => bail!(ended),
        }
        client.begin_account();
    }
    let mut run = Run::new(args, client, first, lost_after);
    run.run_to_end(&mut services).await?;
    let totals = services.shutdown().await?;
    let report = DemoReport::new(run.client.account(), totals, sizes, &inputs.frames);
    Ok(DemoReport { promises, promise_line, ..report })
}

async fn wait_until_ended(services: &mut DemoSite) -> String {
    loop {
        if let Some(ended) = services.ended() {
            return ended;
        }
        tokio::time::sleep(END_POLL).await;
    }
}

/// Triggers samples and counts their decisions.
struct Run<'a> {
    args: &'a DemoArgs,
    client: GroupClient,
    first: SampleId,
    triggered: u64,
    /// Kills that are still due, in reverse order of time.
    kills: Vec<Kill>,
    lost_after: Duration,
    start: Instant,
    /// Samples without a decision or drop when the last event was recorded.
    unsettled: u64,
    /// Time at which a sample was last triggered, decided or dropped.
    last_change: Instant,
    progress: Progress,
}

impl<'a> Run<'a> {
    fn new(args: &'a DemoArgs, client: GroupClient, first: SampleId, lost_after: Duration) -> Self {
        let mut kills = args.kill.clone();
        kills.sort_by_key(|kill| std::cmp::Reverse(kill.at));
        let start = Instant::now();
        Self {
            args,
            client,
            first,
            triggered: 0,
            kills,
            lost_after,
            start,
            unsettled: 0,
            last_change: start,
            progress: Progress::new(args.samples, args.json),
        }
    }

    async fn run_to_end(&mut self, services: &mut DemoSite) -> anyhow::Result<()> {
        let mut next_end_poll = self.start;
        loop {
            let now = Instant::now();
            self.kill_due(services, now).await;
            // Each poll asks the operating system about every process, so polls are less frequent than messages.
            if now >= next_end_poll {
                next_end_poll = now + END_POLL;
                if let Some(ended) = services.ended() {
                    bail!(ended);
                }
            }
            while self.may_trigger(now) {
                self.client.trigger(SampleId(self.first.0 + self.triggered)).await?;
                self.triggered += 1;
                self.last_change = now;
            }
            let has_all = self.triggered == self.args.samples && self.client.account().unsettled_count() == 0;
            if has_all || now - self.last_change > self.lost_after {
                break;
            }
            let next = self.next_due();
            tokio::select! {
                event = self.client.next() => {
                    self.record(event?);
                    while let Some(event) = self.client.try_next()? {
                        self.record(event);
                    }
                }
                () = sleep_until(next.into()) => {}
            }
        }
        self.progress.finish();
        Ok(())
    }

    fn may_trigger(&self, now: Instant) -> bool {
        let is_due = match self.args.rate {
            Rate::PerSecond(rate) => (now - self.start).as_secs_f64() * rate >= self.triggered as f64,
            Rate::Max => self.client.account().unsettled_count() < MAX_UNSETTLED as u64,
        };
        self.triggered < self.args.samples && is_due
    }

    /// Time of the next trigger, of the next kill, or of the end of the run, whichever is first.
    fn next_due(&self) -> Instant {
        let end = self.last_change + self.lost_after + Duration::from_millis(1);
        let trigger = match self.args.rate {
            Rate::PerSecond(rate) if self.triggered < self.args.samples => {
                self.start + Duration::from_secs_f64(self.triggered as f64 / rate)
            }
            _ => end,
        };
        let kill = self.kills.last().map_or(end, |kill| self.start + kill.at);
        trigger.min(kill).min(end)
    }

    async fn kill_due(&mut self, services: &mut DemoSite, now: Instant) {
        let elapsed = now - self.start;
        while self.kills.last().is_some_and(|kill| kill.at <= elapsed) {
            if let Some(Kill { service, .. }) = self.kills.pop() {
                services.kill(service).await;
                self.progress.print_line(&format!("{:.1} s: killed {service}", elapsed.as_secs_f64()));
            }
        }
    }

    fn record(&mut self, event: GroupEvent) {
        let account = self.client.account();
        if let GroupEvent::Decided(sample) = event
            && sample >= self.first
            && let Some(decision) = account.decision(sample)
        {
            self.progress.decided(decision);
        }
        let unsettled = account.unsettled_count();
        if unsettled != self.unsettled {
            self.unsettled = unsettled;
            self.last_change = Instant::now();
        }
    }
}

/// Seconds from 1970 to 2025.
const YEAR_2025_S: u64 = 1_735_689_600;

/// First id of a run: a multiple of the number of frames, so that the run begins with the first frame. An embedded broker knows no earlier
/// run, so ids are small and take few bytes. At a shared broker the upper bits are the seconds since 2025: each run has higher ids than
/// earlier runs, if these triggered at most 2^13 (8,192) samples a second. An id takes six bytes until 2042.
fn first_sample(frames: u64, is_foreign_broker: bool) -> SampleId {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let by_clock = since_1970.saturating_sub(YEAR_2025_S) << 13;
    let least = if is_foreign_broker { by_clock.max(TRIAL_IDS) } else { TRIAL_IDS };
    SampleId(least.next_multiple_of(frames.max(1)))
}
