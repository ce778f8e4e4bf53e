//! Messages to the service manager that started the process (systemd, `sd_notify(3)`): ready, state, watchdog, stopping.
//!
//! Without the variable `NOTIFY_SOCKET` nobody listens, and nothing is sent.

use std::env;
use std::sync::Arc;
use std::time::Duration;

use sd_notify::{NotifyState, notify, watchdog_enabled};
use tokio::task::JoinHandle;
use tokio::time::interval;
use tracing::{debug, error};

use crate::admin::{Health, Liveness};

/// Time between two looks at the health of a process without a watchdog.
const EVERY: Duration = Duration::from_secs(5);

/// Share of the watchdog's time after which the process says again that it lives.
const WATCHDOG_SHARE: u32 = 3;

/// The service manager of a process.
#[derive(Clone, Copy, Debug)]
pub struct ServiceManager {
    listens: bool,
    /// Time without a sign of life after which the manager ends the process.
    watchdog: Option<Duration>,
}

/// Tells the manager that the process lives; ends when dropped.
#[derive(Debug)]
pub struct SignsOfLife {
    task: Option<JoinHandle<()>>,
}

impl ServiceManager {
    /// The manager that the environment names.
    pub fn of_process() -> Self {
        let listens = env::var_os("NOTIFY_SOCKET").is_some_and(|socket| !socket.is_empty());
        Self { listens, watchdog: watchdog_enabled().filter(|_| listens) }
    }

    /// No manager: for a service inside another program.
    pub const fn none() -> Self {
        Self { listens: false, watchdog: None }
    }

    /// Says that the process is ready. From then on tells the state when it changes, and feeds the watchdog while the service is live.
    /// Needs a tokio runtime.
    #[must_use = "dropping the value ends the signs of life"]
    pub fn ready(&self, health: Arc<dyn Health>) -> SignsOfLife {
        if !self.listens {
            return SignsOfLife { task: None };
        }
        let mut state = state_of(&*health);
        send(&[NotifyState::Ready, NotifyState::Status(&state)]);
        let (watchdog, every) = (self.watchdog, self.watchdog.map_or(EVERY, |time| time / WATCHDOG_SHARE));
        let task = tokio::spawn(async move {
            let mut ticks = interval(every.max(Duration::from_millis(1)));
            let mut was_live = true;
            loop {
                ticks.tick().await;
                let now = state_of(&*health);
                if now != state {
                    state = now;
                    send(&[NotifyState::Status(&state)]);
                }
                let is_live = health.liveness() == Liveness::Live;
                if is_live && watchdog.is_some() {
                    send(&[NotifyState::Watchdog]);
                }
                if was_live && !is_live {
                    error!(
                        state,
                        "the service is not live any more; the service manager is not told otherwise"
                    );
                }
                was_live = is_live;
            }
        });
        SignsOfLife { task: Some(task) }
    }

    /// Says that the process reads its files again; [`ServiceManager::reloaded`] follows.
    pub fn reloading(&self) {
        if self.listens {
            let now = NotifyState::monotonic_usec_now();
            send(&[NotifyState::Reloading].into_iter().chain(now).collect::<Vec<_>>());
        }
    }

    /// Says that the process has read its files.
    pub fn reloaded(&self) {
        if self.listens {
            send(&[NotifyState::Ready]);
        }
    }

    /// Says that the process stops.
    pub fn stopping(&self) {
        if self.listens {
            send(&[NotifyState::Stopping, NotifyState::Status("stopping")]);
        }
    }
}

impl Drop for SignsOfLife {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// The state as one line.
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

fn send(states: &[NotifyState<'_>]) {
    // A manager that is gone needs no words, and the service works without one.
    if let Err(error) = notify(states) {
        debug!(%error, "the service manager was not told");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn the_state_is_one_line() {
        check(&Fixed(Liveness::Live, None), "ready");
        check(&Fixed(Liveness::Live, Some(String::new())), "not ready");
        check(&Fixed(Liveness::Live, Some("no broker\nno cloud\n".into())), "not ready: no broker; no cloud");
        check(&Fixed(Liveness::Failed("disk".into()), None), "failed: disk");
    }
}
