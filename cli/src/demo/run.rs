//! The run: start the cast, trigger samples at the asked rate, kill who is to be killed, wait for the last decision.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use bytes::Bytes;
use headwater_inference::bundle::Bundle;
use headwater_inference::policy::Policy;
use headwater_link::{Incoming, Link, LinkConfig, QoS};
use headwater_protocol::{
    Body, Boot, Decision, Header, Limits, Message, SampleId, Settled, Topic, Topics, encode,
};
use headwater_samples::archive::Archive;
use tokio::sync::mpsc;
use tokio::time::{Instant as Wake, sleep_until, timeout};

use super::cast::Cast;
use super::ledger::Ledger;
use super::material::Material;
use super::plan::{Kill, MOST_UNSETTLED, Rate};
use super::progress::Progress;
use super::report::{BytesReport, DemoReport, share};
use super::sizes::image_sizes;
use crate::args::DemoArgs;

/// Longest wait for all parts to find each other.
const READY_LIMIT: Duration = Duration::from_secs(20);
/// Between looks at whether a process ended by itself.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Longest wait for one rehearsed sample, and runs through the frames that ids are kept free for.
const REHEARSAL: Duration = Duration::from_millis(500);
const REHEARSALS: u64 = 1000;
/// How long after the last trigger a sample without a decision counts as lost: far above any deadline of a policy's default.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) async fn run(args: &DemoArgs, material: &Material, policy: Policy) -> anyhow::Result<DemoReport> {
    let Material { bundle, frames, .. } = material;
    let sizes = {
        let frames = Arc::clone(frames);
        tokio::task::spawn_blocking(move || image_sizes(&frames)).await.context("encoding the views")??
    };
    let mut cast = Cast::start(args, material, policy).await?;
    timeout(READY_LIMIT, cast.ready()).await.with_context(|| {
        format!("waiting {READY_LIMIT:?} for all parts to connect over {}: is a broker there?", cast.broker())
    })?;

    let mut director = Director::new(args, &cast, bundle, frames).await?;
    if cast.needs_rehearsal() {
        director.rehearse(&mut cast).await?;
    }
    director.play(&mut cast).await?;
    let Director { ledger, .. } = director;

    let cast_report = cast.shutdown().await?;
    let account = ledger.account();
    let views = cast_report.views.max(1) as f64;
    let per_view = |bytes: u64| bytes as f64 / views;
    Ok(DemoReport {
        samples: account.samples,
        decided: account.decided,
        accuracy: share(account.right, account.decided),
        exits: account.exits,
        bytes: BytesReport {
            raw: sizes.raw,
            jpeg: sizes.jpeg,
            webp: sizes.webp,
            body: per_view(cast_report.body_bytes),
            payload: per_view(cast_report.payload_bytes),
            wire_sent: per_view(cast_report.wire_sent),
            wire_received: per_view(cast_report.wire_received),
            cloud: share(account.edge_cloud_bytes, account.decided),
        },
        degraded: account.degraded,
        dropped: account.dropped,
        missing: account.missing,
        lost: account.lost,
        duplicated: account.duplicated,
        decisions_per_second: account.decisions_per_second,
    })
}

/// Triggers samples and listens to what becomes of them.
struct Director<'a> {
    link: Link,
    incoming: mpsc::Receiver<Incoming>,
    topics: Topics,
    header: Header,
    frames: &'a Archive,
    first: SampleId,
    total: u64,
    rate: Rate,
    /// In the order of their times, the last first.
    kills: Vec<Kill>,
    ledger: Ledger,
    progress: Progress,
}

impl<'a> Director<'a> {
    async fn new(
        args: &DemoArgs,
        cast: &Cast,
        bundle: &Bundle,
        frames: &'a Archive,
    ) -> anyhow::Result<Director<'a>> {
        let topics = cast.topics();
        let config = LinkConfig::new(cast.broker(), "headwater-demo")
            .subscribe(topics.name(&Topic::Result), QoS::AtLeastOnce)
            .subscribe(topics.name(&Topic::Settled), QoS::AtMostOnce);
        let (link, mut incoming) = Link::start(config)?;
        let connected = async {
            while let Some(event) = incoming.recv().await {
                if matches!(event, Incoming::Connected) {
                    return true;
                }
            }
            false
        };
        if !timeout(READY_LIMIT, connected).await.context("connecting to the broker")? {
            bail!("the link to the broker ended before it was up");
        }
        let first = first_sample(frames.len() as u64);
        let mut kills = args.kill.clone();
        kills.sort_by_key(|kill| std::cmp::Reverse(kill.at));
        Ok(Director {
            link,
            incoming,
            topics,
            header: Header {
                late: false,
                network: bundle.network_id().tag(),
                sample_low: 0,
                boot: Boot(0),
                age_ms: 0,
            },
            frames,
            first,
            total: args.samples,
            rate: args.rate,
            kills,
            ledger: Ledger::default(),
            progress: Progress::new(args.samples, args.json),
        })
    }

    /// Tries samples until one is decided with every view: then everyone has found the others. They are not counted.
    async fn rehearse(&mut self, cast: &mut Cast) -> anyhow::Result<()> {
        let until = Instant::now() + READY_LIMIT;
        for attempt in 0.. {
            if let Some(end) = cast.ended() {
                bail!(end);
            }
            if Instant::now() >= until {
                bail!(
                    "waited {READY_LIMIT:?} for all processes to find each other, and one is still missing"
                );
            }
            // Below the run's ids, a multiple of the frames apart, so that each rehearses the next frame.
            let sample = SampleId(self.first.0 - REHEARSALS * self.frames.len() as u64 + attempt);
            self.send_trigger(sample).await?;
            let decided = async {
                while let Some(event) = self.incoming.recv().await {
                    if let Some(Heard::Result(decision)) = self.read(&event)?
                        && decision.sample == sample
                    {
                        return Ok(decision.presence.missing_count() == 0 && decision.degraded.is_empty());
                    }
                }
                bail!("the link to the broker ended during the rehearsal")
            };
            match timeout(REHEARSAL, decided).await {
                Ok(is_whole) => {
                    if is_whole? {
                        return Ok(());
                    }
                }
                Err(_) => continue,
            }
            sleep_until(Wake::now() + Duration::from_millis(20)).await;
        }
        Ok(())
    }

    async fn play(&mut self, cast: &mut Cast) -> anyhow::Result<()> {
        let start = Instant::now();
        let mut triggered = 0;
        let mut batch = Vec::new();
        let mut last_change = start;
        let mut next_look = start;
        loop {
            let now = Instant::now();
            self.kill_due(cast, now - start).await;
            // Asks the system about every process, so not at each message.
            if now >= next_look {
                next_look = now + LOOK_EVERY;
                if let Some(end) = cast.ended() {
                    bail!(end);
                }
            }
            while triggered < self.total && self.may_trigger(triggered, now - start) {
                self.trigger(SampleId(self.first.0 + triggered)).await?;
                triggered += 1;
                last_change = now;
            }
            let everything_ended = triggered == self.total && self.ledger.unsettled() == 0;
            if everything_ended || now - last_change > PATIENCE {
                break;
            }
            let wake =
                self.next_wake(start, triggered).min(last_change + PATIENCE + Duration::from_millis(1));
            tokio::select! {
                count = self.incoming.recv_many(&mut batch, 256) => {
                    if count == 0 {
                        bail!("the link to the broker ended in the middle of the run");
                    }
                    for event in batch.drain(..) {
                        if self.take(&event)? {
                            last_change = Instant::now();
                        }
                    }
                }
                () = sleep_until(Wake::from_std(wake)) => {}
            }
        }
        self.progress.finish();
        Ok(())
    }

    fn may_trigger(&self, triggered: u64, elapsed: Duration) -> bool {
        match self.rate {
            Rate::PerSecond(rate) => elapsed.as_secs_f64() * rate >= triggered as f64,
            Rate::Max => self.ledger.unsettled() < MOST_UNSETTLED as u64,
        }
    }

    /// When something is due that no message will announce.
    fn next_wake(&self, start: Instant, triggered: u64) -> Instant {
        let far = Instant::now() + PATIENCE;
        let trigger = match self.rate {
            Rate::PerSecond(rate) if triggered < self.total => {
                start + Duration::from_secs_f64(triggered as f64 / rate)
            }
            _ => far,
        };
        let kill = self.kills.last().map_or(far, |kill| start + kill.at);
        trigger.min(kill)
    }

    async fn kill_due(&mut self, cast: &mut Cast, elapsed: Duration) {
        while self.kills.last().is_some_and(|kill| kill.at <= elapsed) {
            if let Some(kill) = self.kills.pop() {
                let what = cast.kill(kill.victim).await;
                self.progress.say(&format!("{:.1} s: killed {what}", elapsed.as_secs_f64()));
            }
        }
    }

    async fn trigger(&mut self, sample: SampleId) -> anyhow::Result<()> {
        let class = self.frames.class((sample.0 % self.frames.len() as u64) as usize);
        self.ledger.triggered(sample, class, Instant::now());
        self.send_trigger(sample).await
    }

    async fn send_trigger(&self, sample: SampleId) -> anyhow::Result<()> {
        let header = Header { sample_low: sample.low(), ..self.header };
        // A trigger's body has one length, whatever the network's shapes.
        let limits = Limits::default();
        let mut payload = Vec::new();
        encode(&Message { header, body: Body::Trigger(sample) }, &limits, &mut payload)?;
        self.link
            .publish_when_free(
                &self.topics.name(&Topic::Trigger),
                Bytes::from(payload),
                QoS::AtMostOnce,
                false,
            )
            .await
            .with_context(|| format!("triggering sample {sample}"))
    }

    /// True when a sample came to its end.
    fn take(&mut self, event: &Incoming) -> anyhow::Result<bool> {
        match self.read(event)? {
            Some(Heard::Result(decision)) => {
                let first = self.ledger.decided((*decision).clone(), Instant::now());
                if first {
                    self.progress.decided(&decision);
                }
                Ok(first)
            }
            Some(Heard::Settled(settled)) => {
                let before = self.ledger.unsettled();
                self.ledger.settled(settled);
                Ok(self.ledger.unsettled() < before)
            }
            None => Ok(false),
        }
    }

    fn read(&self, event: &Incoming) -> anyhow::Result<Option<Heard>> {
        let Incoming::Message { topic, payload, .. } = event else { return Ok(None) };
        Ok(match self.topics.parse(topic) {
            Ok(Topic::Result) => {
                Some(Heard::Result(serde_json::from_slice(payload).context("reading a decision")?))
            }
            Ok(Topic::Settled) => {
                Some(Heard::Settled(serde_json::from_slice(payload).context("reading the leader's account")?))
            }
            _ => None,
        })
    }
}

/// What the leader said.
enum Heard {
    Result(Box<Decision>),
    Settled(Settled),
}

/// Ids only grow, also from run to run: seconds since 1970 in the upper bits leave room for a million samples a second. A
/// multiple of the number of frames, so that the first sample is the first frame.
fn first_sample(frames: u64) -> SampleId {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let first = seconds << 20;
    SampleId(first - first % frames.max(1))
}
