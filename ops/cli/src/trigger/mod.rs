//! `headwater trigger`: asks a running group for samples, and prints their results.

mod found_group;
mod list;
mod plan;
mod summary;

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use headwater_group::{ClientSettings, GroupClient, GroupError, GroupEvent};
use headwater_link::{Acknowledgement, Delivery};
use headwater_protocol::{NetworkId, SampleId, Trigger, is_near};
use headwater_telemetry::print_error;
use tokio::time::sleep_until;

use crate::BadUsage;
use crate::args::TriggerArgs;
use crate::progress::{Progress, waiting};
use found_group::find_group;
use list::SampleList;
use plan::Plan;
use summary::Summary;
pub(crate) use summary::result_line;

/// Samples per second without `--rate`.
const DEFAULT_RATE: f64 = 1.0;
/// Longest wait for the broker to accept the command.
const CONNECT_LIMIT: Duration = Duration::from_secs(20);
/// Longest wait, at the end, until the last triggers are sent to the broker.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// Sends the triggers, and prints the results if `--watch` is given.
///
/// # Errors
/// [`BadUsage`] for ids that are too large, and for a list with mistakes. Otherwise the broker's refusal, a group without devices or
/// without triggers, and with `--watch` a sample without a result.
pub fn run(args: &TriggerArgs) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("starting the async runtime")?.block_on(trigger(args))
}

async fn trigger(args: &TriggerArgs) -> anyhow::Result<()> {
    let broker = args.security.access(&args.broker)?;
    let list = args.list.as_deref().map(SampleList::open).transpose()?;
    if args.rate.is_some() && list.as_ref().is_some_and(SampleList::has_times) {
        return Err(BadUsage("--rate: the list has times of its own".into()).into());
    }
    waiting(&format!("the broker {}", args.broker), CONNECT_LIMIT);
    let mut client = GroupClient::connect(ClientSettings {
        broker,
        site: args.site.clone(),
        group: args.group.clone(),
        // This network is replaced below, once the births of the devices have named the right one.
        network: NetworkId([0; 32]),
        client_id: format!("headwater-trigger-{}", std::process::id()),
        wait_limit: CONNECT_LIMIT,
    })
    .await?;
    let (network, newest) = find_group(&mut client, args).await?;
    client.set_network(network);
    client.begin_account();
    let rate = args.rate.unwrap_or(DEFAULT_RATE);
    let plan = match (list, args.id) {
        (Some(list), _) => Some(Plan::list(list, rate)),
        (None, Some(id)) => Plan::range(id, 1, rate),
        (None, None) => newest.0.checked_add(1).and_then(|first| Plan::range(first, args.count, rate)),
    };
    let plan = plan.ok_or_else(no_more_ids)?;
    check_distance(&plan, newest)?;
    let first = plan.first();
    if first <= newest {
        print_error(&format!(
            "sample {first} is not newer than the newest one of the leader, {newest}: it is settled already, or is refused",
        ));
    }
    let mut run = Run::new(args, client, plan);
    run.run_to_end().await?;
    run.finish().await
}

/// Refuses ids that the group's leader would not answer: ids above the highest possible one, and a first id far above the group's newest
/// one, unless the second id is near the first. Before the first sample of a group, no id is too far.
fn check_distance(plan: &Plan, newest: SampleId) -> Result<(), BadUsage> {
    if plan.last() > Trigger::MAX_ID {
        return Err(no_more_ids());
    }
    let first = plan.first();
    let is_confirmed = plan.count() > 1 && is_near(plan.sample(1), first);
    if newest == SampleId(0) || first <= newest || is_near(first, newest) || is_confirmed {
        return Ok(());
    }
    let most = newest.0.saturating_add(Trigger::MAX_STEP);
    Err(BadUsage(format!(
        "trigger: expected an id up to {most} (the newest of the group is {newest}), found {first}; one further ahead is answered when a \
         second one near it follows (--list); nothing was sent"
    )))
}

fn no_more_ids() -> BadUsage {
    BadUsage(format!("trigger: expected ids up to {}, found later ones; nothing was sent", Trigger::MAX_ID))
}

/// Waits for the broker's answer to `trigger`; waits for ever if `trigger` is `None`.
async fn answer(trigger: &mut Option<Acknowledgement>) -> Delivery {
    match trigger {
        Some(trigger) => trigger.wait().await,
        None => std::future::pending().await,
    }
}

struct Run<'a> {
    args: &'a TriggerArgs,
    client: GroupClient,
    plan: Plan,
    /// Number of triggers that were sent. It is the place of the next sample in the plan.
    sent: u64,
    /// The first trigger, until the broker has answered it. One answer is enough to know whether the broker allows triggers.
    first_trigger: Option<Acknowledgement>,
    start: Instant,
    /// Time at which a trigger was last sent, or a sample last decided or dropped.
    last_change: Instant,
    unsettled: u64,
    progress: Progress,
}

impl<'a> Run<'a> {
    fn new(args: &'a TriggerArgs, client: GroupClient, plan: Plan) -> Self {
        let start = Instant::now();
        // Results in a terminal show the progress, and a moving line would mix with them.
        let is_quiet = args.watch && std::io::stdout().is_terminal();
        let progress = Progress::new(plan.count(), is_quiet || !args.watch);
        Self {
            args,
            client,
            plan,
            sent: 0,
            first_trigger: None,
            start,
            last_change: start,
            unsettled: 0,
            progress,
        }
    }

    async fn run_to_end(&mut self) -> anyhow::Result<()> {
        let count = self.plan.count();
        loop {
            let now = Instant::now();
            while self.sent < count && self.trigger_time() <= now {
                let sent = self.trigger(self.plan.sample(self.sent)).await;
                sent.with_context(|| format!("after {} of {count} triggers", self.sent))?;
                (self.sent, self.last_change) = (self.sent + 1, now);
            }
            let is_answered = self.first_trigger.is_none();
            let has_all = self.sent == count && is_answered && !self.waits_for_results();
            let limit = self.last_change + Duration::from_secs(self.args.timeout_s);
            if has_all || (self.sent == count && now >= limit) {
                return Ok(());
            }
            let next = if self.sent < count { self.trigger_time() } else { limit };
            tokio::select! {
                event = self.client.next() => self.record(event?)?,
                answer = answer(&mut self.first_trigger) => {
                    self.first_trigger = None;
                    self.client.check_trigger(answer)?;
                }
                () = sleep_until(next.into()) => {}
            }
        }
    }

    /// Sends a trigger. Only the first trigger is sent with an acknowledgement of the broker.
    async fn trigger(&mut self, sample: SampleId) -> Result<(), GroupError> {
        if self.sent > 0 {
            return self.client.trigger(sample).await;
        }
        self.first_trigger = Some(self.client.trigger_acknowledged(sample)?);
        Ok(())
    }

    fn waits_for_results(&self) -> bool {
        self.args.watch && self.client.account().unsettled_count() > 0
    }

    fn trigger_time(&self) -> Instant {
        self.start + self.plan.due(self.sent)
    }

    fn record(&mut self, event: GroupEvent) -> anyhow::Result<()> {
        let unsettled = self.client.account().unsettled_count();
        if unsettled != self.unsettled {
            (self.unsettled, self.last_change) = (unsettled, Instant::now());
        }
        let GroupEvent::Decided(sample) = event else { return Ok(()) };
        let is_ours = self.plan.has_sent(sample, self.sent);
        let Some(decided) = self.client.account().sample(sample).filter(|_| is_ours && self.args.watch)
        else {
            return Ok(());
        };
        let latency = decided.latency();
        let Some((decision, _)) = &decided.decision else { return Ok(()) };
        self.progress.decided(decision);
        let line = match self.args.json {
            true => serde_json::to_string(decision).context("writing a result")?,
            false => result_line(decision, latency),
        };
        crate::print(&(line + "\n"))
    }

    /// Closes the connection and prints the account.
    async fn finish(self) -> anyhow::Result<()> {
        self.progress.finish();
        let summary = Summary::of(&self);
        self.client.close(CLOSE_LIMIT).await;
        let text = if self.args.json { serde_json::to_string(&summary)? } else { summary.to_string() };
        crate::print(&(text + "\n"))?;
        if summary.without_result > 0 && self.args.watch {
            bail!(
                "{} of {} samples have no result {} s after the last news: is an aggregator up for {}/{}, with the bundle of its \
                 devices? Its log says what it refuses. And may this client read the topic `result` at the broker (role `operator` or \
                 `consumer`)?",
                summary.without_result,
                summary.triggered,
                self.args.timeout_s,
                self.args.site,
                self.args.group
            );
        }
        if let Some(undecided) = summary.not_decided() {
            bail!("{undecided}");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_far_from_the_newest_one_are_refused_before_anything_is_sent() {
        let newest = SampleId(5_000_000_000);
        let check = |first: u64, count: u64| check_distance(&Plan::range(first, count, 1.0).unwrap(), newest);
        assert!(check(5_000_000_001, 10).is_ok() && check(5_000_001_000, 1).is_ok() && check(100, 1).is_ok());
        assert!(check(5_000_001_001, 2).is_ok(), "the second one confirms the first");
        let far = check(5_000_001_001, 1).unwrap_err().0;
        assert!(far.contains("expected an id up to 5000001000") && far.contains("found 5000001001"), "{far}");
        let new_group = |first: u64| check_distance(&Plan::range(first, 1, 1.0).unwrap(), SampleId(0));
        assert!(new_group(100).is_ok() && new_group(Trigger::MAX_ID.0).is_ok());
        assert!(new_group(Trigger::MAX_ID.0 + 1).is_err());
    }
}
