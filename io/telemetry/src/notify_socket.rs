//! The socket of the service manager. Sending never waits: a message that the manager must have and does not take is sent again later.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use sd_notify::NotifyState;
use tracing::{debug, warn};

/// The manager's socket.
#[derive(Debug)]
pub(crate) struct NotifySocket {
    /// A path, or `@` and the name of an abstract socket, which has no file.
    name: OsString,
    /// Messages that the manager has not taken and must have in this order; at most two.
    waiting: Mutex<Vec<String>>,
    /// True once the log says that the manager was not told.
    is_logged: AtomicBool,
}

impl NotifySocket {
    pub(crate) fn new(name: OsString) -> Self {
        Self { name, waiting: Mutex::new(Vec::new()), is_logged: AtomicBool::new(false) }
    }

    /// Sends a message once. Returns true if the manager took it.
    pub(crate) fn send(&self, states: &[NotifyState<'_>]) -> bool {
        self.send_text(&text_of(states))
    }

    /// Sends a message that the manager must have. Messages that still wait are outdated, and are dropped.
    pub(crate) fn tell(&self, states: &[NotifyState<'_>]) {
        *self.waiting.lock() = vec![text_of(states)];
        self.send_waiting();
    }

    /// Sends a message that the manager must have after the message of [`NotifySocket::tell`].
    pub(crate) fn tell_next(&self, states: &[NotifyState<'_>]) {
        let mut waiting = self.waiting.lock();
        waiting.truncate(1);
        waiting.push(text_of(states));
        drop(waiting);
        self.send_waiting();
    }

    /// Sends the waiting messages, until the manager takes no more.
    pub(crate) fn send_waiting(&self) {
        let mut waiting = self.waiting.lock();
        let taken = waiting.iter().take_while(|text| self.send_text(text)).count();
        waiting.drain(..taken);
    }

    fn send_text(&self, text: &str) -> bool {
        // The service works without a manager.
        let Err(error) = send_to(&self.name, text) else { return true };
        if self.is_logged.swap(true, Ordering::Relaxed) {
            debug!(%error, "the service manager was not told");
        } else {
            let socket = self.name.to_string_lossy();
            warn!(%socket, %error, "the service manager was not told (NOTIFY_SOCKET); this line comes once");
        }
        false
    }
}

fn text_of(states: &[NotifyState<'_>]) -> String {
    states.iter().map(|state| format!("{state}\n")).collect()
}

/// Sends one message. A manager that does not read does not get the message: waiting for it would stop the service.
fn send_to(socket: &OsStr, text: &str) -> io::Result<()> {
    let sender = UnixDatagram::unbound()?;
    sender.set_nonblocking(true)?;
    sender.connect_addr(&address_of(socket)?)?;
    sender.send(text.as_bytes()).map(drop)
}

/// Address of a socket: a path, or `@` and the name of an abstract socket, which has no file.
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
pub(crate) mod tests {
    use std::path::PathBuf;
    use std::time::{Duration, Instant};

    use super::*;

    /// A service manager in a test, which reads only when the test asks.
    pub(crate) struct Manager {
        folder: PathBuf,
        socket: UnixDatagram,
    }

    impl Manager {
        /// A manager whose queue is full, and the program's end of its socket.
        pub(crate) fn with_full_queue(test: &str) -> (Self, NotifySocket) {
            let folder = std::env::temp_dir().join(format!("headwater-{test}-{}", std::process::id()));
            std::fs::create_dir_all(&folder).unwrap();
            let socket = UnixDatagram::bind(folder.join("notify")).unwrap();
            let own = NotifySocket::new(folder.join("notify").into());
            let sent = (0..100_000).take_while(|_| own.send(&[NotifyState::Watchdog])).count();
            assert!(sent < 100_000, "the queue has a bound");
            (Self { folder, socket }, own)
        }

        /// Waits for a message with this line.
        #[track_caller]
        pub(crate) fn until(&self, line: &str) {
            let (limit, begin) = (Duration::from_secs(60), Instant::now());
            self.socket.set_read_timeout(Some(limit)).unwrap();
            while begin.elapsed() < limit {
                if self.read().expect("a message").lines().any(|found| found == line) {
                    return;
                }
            }
            panic!("no {line} within {limit:?}");
        }

        /// Takes the messages that are there.
        fn drain(&self) -> Vec<String> {
            self.socket.set_nonblocking(true).unwrap();
            std::iter::from_fn(|| self.read().ok()).collect()
        }

        fn read(&self) -> io::Result<String> {
            let mut text = [0; 256];
            self.socket.recv(&mut text).map(|length| String::from_utf8_lossy(&text[..length]).into_owned())
        }
    }

    impl Drop for Manager {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }

    #[test]
    fn a_manager_that_does_not_read_stops_nothing() {
        let (manager, own) = Manager::with_full_queue("manager");
        let full = send_to(&own.name, "READY=1\n").unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        drop(manager);
        assert!(send_to(&own.name, "READY=1\n").is_err(), "nobody listens there");
    }

    #[test]
    fn what_the_manager_must_have_waits_for_room_and_keeps_its_order() {
        let (manager, own) = Manager::with_full_queue("waiting");
        own.tell(&[NotifyState::Ready]);
        own.tell(&[NotifyState::Reloading]);
        own.tell_next(&[NotifyState::Ready]);
        own.send_waiting();
        let taken = manager.drain();
        assert!(taken.iter().all(|text| text == "WATCHDOG=1\n"), "{taken:?}");
        own.send_waiting();
        assert_eq!(manager.drain(), ["RELOADING=1\n", "READY=1\n"], "the first message was replaced");
        own.send_waiting();
        assert!(manager.drain().is_empty());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_manager_with_a_name_without_a_file_is_told() {
        let name = format!("@headwater-manager-{}", std::process::id());
        let manager = UnixDatagram::bind_addr(&address_of(OsStr::new(&name)).unwrap()).unwrap();
        assert!(NotifySocket::new(name.into()).send(&[NotifyState::Ready, NotifyState::Status("ready")]));
        let mut text = [0; 64];
        let length = manager.recv(&mut text).unwrap();
        assert_eq!(&text[..length], b"READY=1\nSTATUS=ready\n");
    }
}
