//! The running device: one task that captures and answers (`answers.rs`), sends answers that waited for a common message
//! (`batch_sending.rs`), handles messages (`messages.rs`), and sends late the answers that could not be sent in time (`late_sending.rs`).

mod answers;
mod batch_sending;
mod late_sending;
mod messages;

use std::time::{Duration, Instant};

use headwater_inference::policy::ExitPolicy;
use headwater_link::Incoming;
use headwater_protocol::{Birth, PolicyId};
use headwater_transport::LogLimit;
use tokio::sync::{mpsc, watch};
use tracing::{error, info};

use crate::answer_batch::AnswerBatch;
use crate::capture_clock::CaptureClock;
use crate::presence_watch::PresenceWatch;
use crate::publisher::Publisher;
use crate::recent_samples::RecentSamples;
use crate::reply_rule::ReplyRule;
use crate::section_runner::{JobResult, SectionRunner};
use crate::source::{RunningSource, SourceEvent};
use crate::state_folder::FrameIds;
use crate::timestamp::{DeviceClock, Timestamp};
use crate::unsettled_answers::UnsettledAnswers;

/// Shortest time between two frames that are samples: at a higher rate their ids, which are milliseconds, would run ahead of the clock.
const FRAME_EVERY: Duration = Duration::from_millis(1);

/// State of the device's task.
pub(crate) struct Agent {
    pub(crate) source: RunningSource,
    /// Gives the ids of samples if each frame of the source is a sample; `None` for other causes of capture.
    pub(crate) frame_ids: Option<FrameIds>,
    pub(crate) section: SectionRunner,
    pub(crate) reply_rule: ReplyRule,
    /// Answers that wait for a common message.
    pub(crate) batch: AnswerBatch,
    pub(crate) unsettled: UnsettledAnswers,
    pub(crate) recent: RecentSamples,
    pub(crate) publisher: Publisher,
    pub(crate) birth: Birth,
    /// Watches the birth and status that the broker keeps for the device's id.
    pub(crate) presence: PresenceWatch,
    /// Limits log lines about messages that the broker refuses.
    pub(crate) refusal_log: LogLimit,
    /// Limits log lines about triggers that are not answered.
    pub(crate) trigger_log: LogLimit,
    pub(crate) capture_clock: Option<CaptureClock>,
    /// Longest wait, after the source has ended, for all samples to be settled.
    pub(crate) grace: Duration,
    pub(crate) clock: DeviceClock,
    /// Time of the last call of `serve_spool`.
    pub(crate) spool_served: Instant,
    pub(crate) connected: watch::Sender<bool>,
    pub(crate) has_been_connected: bool,
}

/// Channels into the agent.
pub(crate) struct AgentInputs {
    pub(crate) incoming: mpsc::Receiver<Incoming>,
    pub(crate) results: mpsc::Receiver<JobResult>,
    pub(crate) stop: watch::Receiver<bool>,
    /// Policies of the exit `device` that replace the present one.
    pub(crate) policies: watch::Receiver<Option<(ExitPolicy, PolicyId)>>,
}

/// Reason for which a device ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The device was asked to stop.
    Stopped,
    /// The source of frames came to its end, and its frames were answered.
    Source,
    /// The source of frames broke off.
    SourceBroke,
    /// The model thread failed.
    Model,
}

impl Agent {
    /// Runs until `stop`, the end of the source or the end of the model thread, then sends the answers of captured frames. The caller shuts
    /// the link down.
    pub(crate) async fn run(mut self, mut inputs: AgentInputs) -> Ended {
        self.report_unsettled();
        let ended = self.serve(&mut inputs).await;
        self.section.close();
        while let Some(result) = inputs.results.recv().await {
            self.on_result(result);
        }
        self.send_batch();
        self.unsettled.close(self.now());
        self.report_unsettled();
        if let Some(ids) = &mut self.frame_ids {
            ids.close();
        }
        ended
    }

    async fn serve(&mut self, inputs: &mut AgentInputs) -> Ended {
        let AgentInputs { incoming, results, stop, policies } = inputs;
        let mut frozen = self.publisher.report.frozen.subscribe();
        if self.publisher.report.frozen().is_some() {
            frozen.mark_changed();
        }
        let mut next_capture = self.next_capture();
        let mut next_frame = None;
        // Set once the source has ended: the reason, and the time at which the device ends even if samples are unsettled.
        let mut leaving: Option<(Ended, Instant)> = None;
        let mut is_drained = false;
        loop {
            tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => break,
                Ok(()) = policies.changed() => {
                    if let Some((policy, id)) = policies.borrow_and_update().clone() {
                        self.set_policy(policy, id);
                    }
                }
                Ok(()) = frozen.changed() => {
                    let reason = frozen.borrow_and_update().clone();
                    self.set_frozen(reason);
                }
                () = sleep_until(self.next_batch()) => self.send_batch(),
                () = sleep_until(self.next_spool_service()) => self.serve_spool(),
                () = sleep_until(self.next_correction()) => self.correct_presence(),
                result = results.recv(), if !is_drained => match result {
                    Some(result) => self.on_result(result),
                    None if leaving.is_some() => {
                        self.send_batch();
                        is_drained = true;
                    }
                    None => {
                        error!("the model thread ended; the device stops");
                        // The device cannot answer any more. The link ends without an MQTT disconnect, so that the broker publishes the last will.
                        self.publisher.link.kill();
                        return Ended::Model;
                    }
                },
                Some(event) = incoming.recv() => self.on_incoming(event),
                () = sleep_until(next_capture) => {
                    self.on_clock();
                    next_capture = self.next_capture();
                }
                event = next_event(&mut self.source, next_frame), if leaving.is_none() && self.takes_frames() => {
                    if let SourceEvent::Ended { is_clean } = event {
                        info!(is_clean, "the source of frames has ended");
                        let ended = if is_clean { Ended::Source } else { Ended::SourceBroke };
                        leaving = Some((ended, Instant::now() + self.grace));
                        self.section.close();
                    }
                    self.on_source(event);
                    next_frame = self.frame_ids.is_some().then(|| Instant::now() + FRAME_EVERY);
                }
                () = sleep_until(leaving.map(|(_, until)| until)) => break,
            }
            if is_drained && self.unsettled.is_empty() {
                break;
            }
        }
        leaving.map_or(Ended::Stopped, |(ended, _)| ended)
    }

    fn report_unsettled(&self) {
        self.unsettled.note(self.batch.len(), &mut self.publisher.report());
    }

    fn is_connected(&self) -> bool {
        *self.connected.borrow()
    }

    /// Converts a time of the device's own clock, in microseconds, to an `Instant`; a past time gives the present.
    fn instant_of(&self, us: u64) -> Instant {
        Instant::now() + Duration::from_micros(us.saturating_sub(self.now().us))
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

/// The next event of the source, at `from` at the earliest. Cancelling the wait loses nothing.
async fn next_event(source: &mut RunningSource, from: Option<Instant>) -> SourceEvent {
    if let Some(from) = from.filter(|from| *from > Instant::now()) {
        sleep_until(Some(from)).await;
    }
    source.next().await
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}
