//! The event loop of a member: each round reads the clocks once and gives the member, with that time, the messages that have come.

use std::ops::ControlFlow;

use headwater_link::Incoming;
use headwater_telemetry::WorkLoop;
use tokio::sync::mpsc;
use tokio::time::sleep_until;

use crate::clock::{Clock, Moment};

/// Most messages that are taken from the link in one round.
const ROUND_MESSAGES: usize = 256;

/// A member of a group: the leader, or an edge under one network. [`EventLoop`] waits for its input and calls `round`.
pub(crate) trait RoundHandler {
    /// Input other than messages of the broker.
    type Input;
    /// Reason why the member ends by itself.
    type End;

    /// Time at which the next round is due without input or messages; `last` is the time of the last round. `None` if no time is waited for.
    fn next_timer(&self, last: Moment) -> Option<tokio::time::Instant>;

    /// True if messages are taken; otherwise they wait in the link.
    fn takes_messages(&self) -> bool;

    /// Waits for input other than messages of the broker. Cancelling the wait loses nothing.
    async fn next_input(&mut self) -> Self::Input;

    /// One round: the input that ended the wait, and the messages that have come.
    async fn round(
        &mut self,
        at: Moment,
        input: Option<Self::Input>,
        messages: impl Iterator<Item = Incoming>,
    ) -> ControlFlow<Self::End>;
}

/// Reason why the rounds ended.
pub(crate) enum End<E> {
    /// A stop was requested.
    Requested,
    /// The task of the link ended.
    LinkEnded,
    /// The member ended by itself.
    Own(E),
}

/// The source of the messages and the time of a member's rounds.
pub(crate) struct EventLoop {
    clock: Clock,
    last: Moment,
    incoming: mpsc::Receiver<Incoming>,
    messages: Vec<Incoming>,
    work_loop: WorkLoop,
}

impl EventLoop {
    pub(crate) fn new(clock: Clock, incoming: mpsc::Receiver<Incoming>, work_loop: WorkLoop) -> Self {
        Self { last: clock.read(), clock, incoming, messages: Vec::new(), work_loop }
    }

    /// Reads the clocks, for what happens outside of rounds.
    pub(crate) fn read_clock(&mut self) -> Moment {
        self.last = self.clock.read();
        self.last
    }

    /// Runs rounds until `stop` ends, the link ends, or the member ends by itself.
    pub(crate) async fn run<H: RoundHandler>(
        &mut self,
        handler: &mut H,
        stop: impl Future<Output = ()>,
    ) -> End<H::End> {
        let mut stop = std::pin::pin!(stop);
        loop {
            let timer = handler.next_timer(self.last);
            let takes_messages = handler.takes_messages();
            let mut input = None;
            self.work_loop.end_round();
            tokio::select! {
                biased;
                () = &mut stop => return End::Requested,
                // Input comes before messages: a new policy holds for the samples that the messages open.
                first = handler.next_input() => input = Some(first),
                taken = self.incoming.recv_many(&mut self.messages, ROUND_MESSAGES), if takes_messages => if taken == 0 {
                    return End::LinkEnded;
                },
                () = sleep_until(timer.unwrap_or(self.last.instant)), if timer.is_some() => {}
            }
            self.work_loop.begin_round();
            // Messages are read in every round, also if input ended the wait: input cannot starve messages.
            while takes_messages
                && self.messages.len() < ROUND_MESSAGES
                && let Ok(message) = self.incoming.try_recv()
            {
                self.messages.push(message);
            }
            let at = self.read_clock();
            if let ControlFlow::Break(end) = handler.round(at, input, self.messages.drain(..)).await {
                return End::Own(end);
            }
        }
    }
}
