//! Messages to the service manager that started the process (systemd, `sd_notify(3)`): ready, state, watchdog, stopping.
//!
//! Without the variable `NOTIFY_SOCKET` nobody listens, and nothing is sent.

use std::env;
use std::sync::Arc;
use std::time::Duration;

use sd_notify::{NotifyState, watchdog_enabled};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};
use tracing::error;

use crate::admin::{Health, Liveness};
use crate::notify_socket::NotifySocket;

/// Time between two checks of the health of a process without a watchdog.
const EVERY: Duration = Duration::from_secs(5);

/// Number of reports of a live process within the watchdog's time.
const WATCHDOG_SHARE: u32 = 3;

/// The service manager of a process.
#[derive(Clone, Debug)]
pub struct ServiceManager {
    /// `None` if there is no manager to tell.
    socket: Option<Arc<NotifySocket>>,
    /// Time without a watchdog message after which the manager ends the process.
    watchdog: Option<Duration>,
}

/// The task that reports state and liveness to the manager; it ends when this value is dropped.
#[derive(Debug, Default)]
pub struct WatchdogTask {
    /// Empty without a manager.
    _task: JoinSet<()>,
}

impl ServiceManager {
    /// The manager that the environment names.
    pub fn of_process() -> Self {
        let name = env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty());
        let socket = name.map(|name| Arc::new(NotifySocket::new(name)));
        Self { watchdog: watchdog_enabled().filter(|_| socket.is_some()), socket }
    }

    /// No manager: for a service inside another program.
    pub const fn none() -> Self {
        Self { socket: None, watchdog: None }
    }

    /// Tells the manager that the process is ready. The returned task then tells each new state, sends messages again that the manager did
    /// not take, and feeds the watchdog while the service is live. Needs a tokio runtime.
    #[must_use = "dropping the value ends the task"]
    pub fn ready(&self, health: Arc<dyn Health>) -> WatchdogTask {
        let Some(socket) = self.socket.clone() else { return WatchdogTask::default() };
        let mut told = state_of(&*health);
        socket.tell(&[NotifyState::Ready, NotifyState::Status(&told)]);
        let (watchdog, every) = (self.watchdog, self.watchdog.map_or(EVERY, |time| time / WATCHDOG_SHARE));
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut ticks = interval(every.max(Duration::from_millis(1)));
            // After a pause of the process one message is enough: a message for each missed tick would fill the manager's queue.
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut was_live = true;
            loop {
                ticks.tick().await;
                socket.send_waiting();
                let state = state_of(&*health);
                let is_live = health.liveness() == Liveness::Live;
                if is_live && watchdog.is_some() {
                    socket.send(&[NotifyState::Watchdog]);
                }
                if was_live && !is_live {
                    error!(state, watchdog = watchdog.is_some(), "the service is not live any more");
                }
                was_live = is_live;
                if state != told && socket.send(&[NotifyState::Status(&state)]) {
                    told = state;
                }
            }
        });
        WatchdogTask { _task: task }
    }

    /// Tells the manager that the process reads its files again; [`ServiceManager::reloaded`] must follow.
    pub fn reloading(&self) {
        if let Some(socket) = &self.socket {
            let now = NotifyState::monotonic_usec_now();
            socket.tell(&[NotifyState::Reloading].into_iter().chain(now).collect::<Vec<_>>());
        }
    }

    /// Tells the manager that the process has read its files.
    pub fn reloaded(&self) {
        if let Some(socket) = &self.socket {
            socket.tell_next(&[NotifyState::Ready]);
        }
    }

    /// Tells the manager that the process stops.
    pub fn stopping(&self) {
        if let Some(socket) = &self.socket {
            socket.tell(&[NotifyState::Stopping, NotifyState::Status("stopping")]);
        }
    }
}

/// The state of the service as one line.
fn state_of(health: &dyn Health) -> String {
    match (health.liveness(), health.unready_reason()) {
        (Liveness::Failed(reason), _) => one_line("failed", &reason),
        (Liveness::Live, Some(reason)) => one_line("not ready", &reason),
        (Liveness::Live, None) => "ready".into(),
    }
}

fn one_line(state: &str, reason: &str) -> String {
    let reason = reason.trim().replace('\n', "; ");
    if reason.is_empty() { state.into() } else { format!("{state}: {reason}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notify_socket::tests::Manager;

    struct Fixed(Liveness, Option<String>);

    impl Health for Fixed {
        fn liveness(&self) -> Liveness {
            self.0.clone()
        }

        fn unready_reason(&self) -> Option<String> {
            self.1.clone()
        }
    }

    #[track_caller]
    fn check(health: &Fixed, expected: &str) {
        assert_eq!(state_of(health), expected);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_manager_whose_queue_was_full_learns_later_that_the_process_is_ready() {
        let (listener, socket) = Manager::with_full_queue("ready");
        let watchdog = Some(Duration::from_millis(3));
        let manager = ServiceManager { socket: Some(Arc::new(socket)), watchdog };
        let _task = manager.ready(Arc::new(Fixed(Liveness::Live, None)));
        // The worker thread runs the task while the test's thread waits.
        listener.until("READY=1");
    }

    #[test]
    fn the_state_is_one_line() {
        check(&Fixed(Liveness::Live, None), "ready");
        check(&Fixed(Liveness::Live, Some(String::new())), "not ready");
        check(&Fixed(Liveness::Live, Some("no broker\nno cloud\n".into())), "not ready: no broker; no cloud");
        check(&Fixed(Liveness::Failed("disk".into()), None), "failed: disk");
    }
}
