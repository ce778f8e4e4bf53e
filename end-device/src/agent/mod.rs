//! A device at work: one task that captures and answers (`answering.rs`), hears what others say (`hearing.rs`), and sends late what could
//! not be sent in time (`late.rs`).

mod answering;
mod hearing;
mod late;

use std::time::{Duration, Instant};

use headwater_link::Incoming;
use headwater_protocol::{Slot, Status};
use tokio::sync::{mpsc, watch};
use tracing::{error, info};

use crate::capture::Schedule;
use crate::conduct::Conduct;
use crate::model::{Done, Model};
use crate::moment::Moment;
use crate::outbox::Outbox;
use crate::recent::Recent;
use crate::sample_clock::SampleClock;
use crate::source::{Event, Feed};
use crate::unsettled::Unsettled;

/// Frames that are samples come at most once in so long, so that each has a millisecond of its own.
const FRAME_EVERY: Duration = Duration::from_millis(1);

/// What the device task owns.
pub(crate) struct Agent {
    pub(crate) slot: Slot,
    pub(crate) feed: Feed,
    /// Ids of samples where each frame of the source is one.
    pub(crate) sample_clock: Option<SampleClock>,
    pub(crate) model: Model,
    pub(crate) conduct: Conduct,
    pub(crate) unsettled: Unsettled,
    pub(crate) recent: Recent,
    pub(crate) outbox: Outbox,
    pub(crate) topics: AgentTopics,
    pub(crate) schedule: Option<Schedule>,
    /// How long it goes on answering after its source has ended, until all is settled.
    pub(crate) grace: Duration,
    /// Zero of the device's own clock.
    pub(crate) start: Instant,
    /// When it last looked at what is unsettled.
    pub(crate) last_look: Instant,
    pub(crate) up: Status,
    pub(crate) connected: watch::Sender<bool>,
    pub(crate) has_been_connected: bool,
}

/// Names of the topics the agent hears.
#[derive(Clone, Debug)]
pub(crate) struct AgentTopics {
    pub(crate) trigger: String,
    pub(crate) request: String,
    pub(crate) settled: String,
    pub(crate) status: String,
}

/// Why a device ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was told to.
    Stopped,
    /// Its source of frames came to its end, and every frame was answered.
    Source,
    /// Its source of frames broke off.
    SourceBroke,
    /// Its model thread failed.
    Model,
}

impl Agent {
    /// Until `stop` says so, or the source has ended; then sends what is captured already. The link is the caller's to shut down.
    pub(crate) async fn run(
        mut self,
        mut incoming: mpsc::Receiver<Incoming>,
        mut done: mpsc::Receiver<Done>,
        mut stop: watch::Receiver<bool>,
    ) -> Ended {
        self.note_unsettled();
        let mut due = self.next_capture();
        let mut ended = Ended::Stopped;
        // Once the source has ended: when to leave at the latest, and whether every frame was answered.
        let (mut leave, mut is_drained) = (None, false);
        let mut next_frame = None;
        loop {
            tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => break,
                () = at(self.next_look()) => self.look(),
                done = done.recv(), if !is_drained => match done {
                    Some(done) => self.on_done(done),
                    None if leave.is_some() => is_drained = true,
                    None => {
                        self.on_model_gone();
                        ended = Ended::Model;
                        break;
                    }
                },
                Some(event) = incoming.recv() => self.on_incoming(event),
                () = at(due) => {
                    self.on_clock();
                    due = self.next_capture();
                }
                event = next(&mut self.feed, next_frame), if leave.is_none() && self.takes_frames() => match event {
                    Event::Own(view) => {
                        self.on_own_frame(view);
                        next_frame = Some(Instant::now() + FRAME_EVERY);
                    }
                    #[cfg(feature = "http")]
                    Event::Answer { sample, captured_us, view } => {
                        self.run_section(sample, captured_us, std::borrow::Cow::Owned(view));
                    }
                    Event::Ended { is_clean } => {
                        info!(is_clean, "the source of frames has ended");
                        ended = if is_clean { Ended::Source } else { Ended::SourceBroke };
                        leave = Some(Instant::now() + self.grace);
                        self.model.close();
                    }
                },
                () = at(leave) => break,
            }
            // Asked for features once more, or told that nobody will ask.
            if is_drained && self.unsettled.is_empty() {
                break;
            }
        }
        self.model.close();
        while let Some(done) = done.recv().await {
            self.on_done(done);
        }
        self.unsettled.close(self.now());
        self.note_unsettled();
        if let Some(clock) = &self.sample_clock {
            clock.close();
        }
        ended
    }

    /// A device that cannot answer must not look alive: the broker publishes the last will.
    fn on_model_gone(&self) {
        error!("the model thread ended; the device stops");
        self.outbox.link.kill();
    }

    fn note_unsettled(&self) {
        self.outbox.report().note_unsettled(&self.unsettled);
    }

    fn is_connected(&self) -> bool {
        *self.connected.borrow()
    }

    fn now(&self) -> Moment {
        Moment::now(self.start)
    }
}

/// What the source has by itself, at the earliest at `from`; nothing is lost when the wait is given up.
async fn next(feed: &mut Feed, from: Option<Instant>) -> Event {
    if let Some(from) = from.filter(|from| *from > Instant::now()) {
        tokio::time::sleep_until(from.into()).await;
    }
    feed.next().await
}

async fn at(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}
