//! Commands that change the group's policy, one at a time. A command's member is its sender, by the name in the topic. Devices that decide
//! by themselves must take the new policy too.
//!
//! ```text
//! policy/{name} ──> queue ──> policy file, audit file (a blocking thread) ──> policy holds ──> dev/{id}/cmd ──> births name it ──> answer
//! ```

use std::collections::VecDeque;
use std::time::Duration;

use headwater_inference::leader::Micros;
use headwater_inference::policy::Policy;
use headwater_protocol::policy_command::{PolicyAnswer, PolicyCommand, Verdict, read_command};
use headwater_protocol::{DeviceId, Exit, MemberName, PolicyId, Topic, Topics};
use tokio::task::{JoinError, JoinHandle};
use tracing::warn;

use crate::devices::registry::Registry;
use crate::publishing::outbox::Outbox;
use crate::settings::group_policy::SharedPolicy;

/// Most commands that wait; further ones are refused at once.
const MAX_WAITING: usize = 16;

/// Longest wait until every device has taken a policy. Then the answer names the devices that have not.
const PASS_LIMIT: Duration = Duration::from_secs(10);

/// Time between two commands to a device that has another policy.
const SEND_EVERY: Duration = Duration::from_secs(2);

/// The sender of a command, and the answer to it.
type Answer = (MemberName, PolicyAnswer);

/// A command that has been executed, or whose thread panicked.
pub(crate) type Executed = Result<Answer, JoinError>;

/// Commands that wait, the command that is executed, and the answer that waits for devices to take the policy.
#[derive(Debug)]
pub(crate) struct PolicyDesk {
    topics: Topics,
    prefix: String,
    /// `None` if commands cannot change the policy, because updates of the policy come from elsewhere than the policy file.
    policy: Option<SharedPolicy>,
    queue: VecDeque<(MemberName, Result<PolicyCommand, String>)>,
    running: Option<JoinHandle<Answer>>,
    /// Answer of an executed command that is not sent yet, and the time until which the answer waits for devices to take the policy.
    passing: Option<(Answer, Micros)>,
    /// Policy in effect.
    in_effect: (Policy, PolicyId),
    /// True when devices are sent the policy: its exit `device` differed from the bundle's at the start, or has changed since.
    is_passed_on: bool,
    next_send: Micros,
}

impl PolicyDesk {
    /// A desk for the group of these topics. `in_effect` is the group's policy with its id, `calibrated` the bundle's policy.
    pub(crate) fn new(
        topics: &Topics,
        policy: Option<SharedPolicy>,
        in_effect: (Policy, PolicyId),
        calibrated: &Policy,
    ) -> Self {
        Self {
            prefix: topics.every_policy().trim_end_matches('+').to_owned(),
            topics: topics.clone(),
            policy,
            queue: VecDeque::new(),
            running: None,
            passing: None,
            is_passed_on: in_effect.0.of(Exit::DEVICE) != calibrated.of(Exit::DEVICE),
            in_effect,
            next_send: Micros(0),
        }
    }

    /// The sender of a command on this topic; `None` for any other topic.
    pub(crate) fn member_of(&self, topic: &str) -> Option<MemberName> {
        let is_ours = topic.starts_with(&self.prefix);
        match is_ours.then(|| self.topics.parse(topic)) {
            Some(Ok(Topic::Policy(member))) => Some(member),
            Some(_) | None => None,
        }
    }

    /// Takes a command. A retained command is refused: the broker would repeat it on each new connection.
    pub(crate) fn receive(&mut self, member: MemberName, payload: &[u8], is_retained: bool, outbox: &Outbox) {
        if self.queue.len() == MAX_WAITING {
            let replaces = read_command::<PolicyCommand>(payload).ok().and_then(|command| command.replaces);
            let reason = format!("{MAX_WAITING} commands wait already: send it again later");
            outbox.policy_answer(&member, &PolicyAnswer::refused(replaces, reason, self.in_effect.1));
            return;
        }
        let command = match is_retained {
            true => Err("a retained command: publish it without the retain flag and clear the topic".into()),
            false => read_command(payload),
        };
        self.queue.push_back((member, command));
        self.begin();
    }

    /// Executes the next command on a thread that may block.
    fn begin(&mut self) {
        if self.running.is_some() || self.passing.is_some() {
            return;
        }
        let Some((member, command)) = self.queue.pop_front() else { return };
        let (policy, in_effect) = (self.policy.clone(), self.in_effect.1);
        self.running = Some(tokio::task::spawn_blocking(move || {
            let answer = match policy {
                Some(policy) => policy.0.lock().answer(&member, command),
                None => PolicyAnswer::refused(None, "the policy of this group comes from no file", in_effect),
            };
            (member, answer)
        }));
    }

    /// Waits until a command has been executed. Cancelling the wait loses nothing.
    pub(crate) async fn executed(&mut self) -> Executed {
        let Some(running) = &mut self.running else { return std::future::pending().await };
        let executed = running.await;
        self.running = None;
        executed
    }

    /// Takes the answer of an executed command. A policy that the command has changed is in effect already.
    pub(crate) fn take_executed(&mut self, now: Micros, executed: Executed) {
        match executed {
            Ok(answer) => self.passing = Some((answer, now + PASS_LIMIT)),
            Err(error) => {
                warn!(%error, "a policy command failed and has no answer; the next one is taken");
                self.begin();
            }
        }
    }

    /// Takes the policy that holds from now on.
    pub(crate) fn set_policy(&mut self, policy: Policy, id: PolicyId) {
        self.is_passed_on |= policy.of(Exit::DEVICE) != self.in_effect.0.of(Exit::DEVICE);
        self.in_effect = (policy, id);
        self.next_send = Micros(0);
    }

    /// Time at which [`PolicyDesk::step`] has something to do without an event.
    pub(crate) fn next_timer(&self, devices: &Registry) -> Option<Micros> {
        let send = (!self.without(devices).is_empty()).then_some(self.next_send);
        let answer = self.passing.as_ref().map(|(_, until)| *until);
        [send, answer].into_iter().flatten().min()
    }

    /// Sends the policy to devices that have another policy. Sends the answer to the command once no device has another policy, the wait is
    /// over, or the command was refused.
    pub(crate) fn step(&mut self, now: Micros, devices: &Registry, outbox: &Outbox) {
        let without = self.without(devices);
        if !without.is_empty() && self.next_send <= now {
            self.next_send = now + SEND_EVERY;
            without.iter().for_each(|device| outbox.command(device, &self.in_effect.0));
        }
        let is_done = |(answer, until): &(Answer, Micros)| {
            answer.1.verdict == Verdict::Refused || without.is_empty() || *until <= now
        };
        if let Some(((member, mut answer), _)) = self.passing.take_if(|passing| is_done(passing)) {
            if answer.verdict == Verdict::Accepted {
                answer.without = without;
            }
            outbox.policy_answer(&member, &answer);
            self.begin();
        }
    }

    /// Devices that fill a slot and decide by themselves under another policy; none while devices are not sent the policy.
    fn without(&self, devices: &Registry) -> Vec<DeviceId> {
        if !self.is_passed_on {
            return Vec::new();
        }
        let other = devices.deciding().filter(|(_, policy)| *policy != self.in_effect.1);
        other.map(|(device, _)| device.clone()).collect()
    }
}
