//! Messages to the service manager that started the process (systemd, `sd_notify(3)`): ready, state, watchdog, stopping.
//!
//! Without the variable `NOTIFY_SOCKET` nobody listens, and nothing is sent.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sd_notify::{NotifyState, watchdog_enabled};
use tokio::task::JoinHandle;
use tokio::time::interval;
use tracing::{debug, error, warn};

use crate::admin::{Health, Liveness};

/// Time between two checks of the health of a process without a watchdog.
const EVERY: Duration = Duration::from_secs(5);

/// Part of the watchdog's time after which the process reports again that it is live.
const WATCHDOG_SHARE: u32 = 3;

/// The service manager of a process.
#[derive(Clone, Copy, Debug)]
pub struct ServiceManager {
    listens: bool,
    /// Time without a watchdog message after which the manager ends the process.
    watchdog: Option<Duration>,
}

/// The task that reports state and liveness to the manager; it ends when this value is dropped.
#[derive(Debug)]
pub struct WatchdogTask {
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
    #[must_use = "dropping the value ends the task"]
    pub fn ready(&self, health: Arc<dyn Health>) -> WatchdogTask {
        if !self.listens {
            return WatchdogTask { task: None };
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
                    error!(state, watchdog = watchdog.is_some(), "the service is not live any more");
                }
                was_live = is_live;
            }
        });
        WatchdogTask { task: Some(task) }
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

impl Drop for WatchdogTask {
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
    /// Whether the log says that the manager was not told.
    static IS_LOGGED: AtomicBool = AtomicBool::new(false);
    let Some(socket) = env::var_os("NOTIFY_SOCKET") else { return };
    // The service works without a manager.
    if let Err(error) = send_to(&socket, states) {
        if IS_LOGGED.swap(true, Ordering::Relaxed) {
            debug!(%error, "the service manager was not told");
        } else {
            let socket = socket.to_string_lossy();
            warn!(%socket, %error, "the service manager was not told (NOTIFY_SOCKET); this line comes once");
        }
    }
}

/// Sends one message. A manager that does not read loses the message: waiting for it would stop the service.
fn send_to(socket: &OsStr, states: &[NotifyState<'_>]) -> io::Result<()> {
    let text: String = states.iter().map(|state| format!("{state}\n")).collect();
    let sender = UnixDatagram::unbound()?;
    sender.set_nonblocking(true)?;
    sender.connect_addr(&address_of(socket)?)?;
    sender.send(text.as_bytes()).map(drop)
}

/// Address of a socket: a path, or after `@` a name without a file.
fn address_of(socket: &OsStr) -> io::Result<SocketAddr> {
    match socket.as_bytes().strip_prefix(b"@") {
        None => SocketAddr::from_pathname(socket),
        #[cfg(target_os = "linux")]
        Some(name) => <SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(name),
        #[cfg(not(target_os = "linux"))]
        Some(_) => Err(io::Error::new(io::ErrorKind::Unsupported, "a name without a file needs Linux")),
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
    fn a_manager_that_does_not_read_stops_nothing() {
        let folder = std::env::temp_dir().join(format!("headwater-manager-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("notify");
        let _manager = UnixDatagram::bind(&path).unwrap();
        let full = (0..100_000).find_map(|_| send_to(path.as_os_str(), &[NotifyState::Watchdog]).err());
        assert_eq!(full.expect("the queue has a bound").kind(), io::ErrorKind::WouldBlock);
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(send_to(path.as_os_str(), &[NotifyState::Ready]).is_err(), "nobody listens there");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_manager_with_a_name_without_a_file_is_told() {
        let name = format!("@headwater-manager-{}", std::process::id());
        let manager = UnixDatagram::bind_addr(&address_of(OsStr::new(&name)).unwrap()).unwrap();
        send_to(OsStr::new(&name), &[NotifyState::Ready, NotifyState::Status("ready")]).unwrap();
        let mut text = [0; 64];
        let length = manager.recv(&mut text).unwrap();
        assert_eq!(&text[..length], b"READY=1\nSTATUS=ready\n");
    }

    #[test]
    fn the_state_is_one_line() {
        check(&Fixed(Liveness::Live, None), "ready");
        check(&Fixed(Liveness::Live, Some(String::new())), "not ready");
        check(&Fixed(Liveness::Live, Some("no broker\nno cloud\n".into())), "not ready: no broker; no cloud");
        check(&Fixed(Liveness::Failed("disk".into()), None), "failed: disk");
    }
}
