//! Real programs: ours, and brokers from Debian. Each ends with its guard.

use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use headwater_link::BrokerAddress;

/// A child that is killed when the guard goes.
pub struct Process(Child);

impl Process {
    /// Starts a program; what it prints on stderr goes on to ours.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start(command: &mut Command) -> Self {
        let shown = format!("{command:?}");
        Self(command.stdin(Stdio::null()).spawn().unwrap_or_else(|error| panic!("starting {shown}: {error}")))
    }

    /// Starts a program and waits for a line on its stderr that has `word` in it.
    ///
    /// # Panics
    /// When it ends or is silent for 20 s before that.
    pub fn start_until(command: &mut Command, word: &'static str) -> Self {
        let mut process = Self::start(command.stderr(Stdio::piped()));
        let stderr = process.0.stderr.take().expect("was piped");
        let (sender, receiver) = std::sync::mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if line.contains(word) {
                    let _ = sender.send(());
                }
                eprintln!("{line}");
            }
        });
        receiver.recv_timeout(Duration::from_secs(20)).unwrap_or_else(|_| panic!("{command:?}: no {word:?}"));
        process
    }

    /// SIGKILL, and waits for the end.
    ///
    /// # Panics
    /// When the process cannot be killed.
    pub fn kill(mut self) {
        self.0.kill().expect("the child can be killed");
        self.0.wait().expect("the child can be waited for");
    }

    /// SIGSTOP: it is there and does nothing, until [`Process::resume`].
    ///
    /// # Panics
    /// When it cannot be signalled.
    pub fn pause(&self) {
        self.signal("STOP");
    }

    /// SIGCONT.
    ///
    /// # Panics
    /// When it cannot be signalled.
    pub fn resume(&self) {
        self.signal("CONT");
    }

    // The shell's own `kill`: there is one wherever there is a shell, and no library is needed.
    fn signal(&self, name: &str) {
        let command = format!("kill -{name} {}", self.id());
        let status = Command::new("sh").args(["-c", &command]).status().expect("there is a shell");
        assert!(status.success(), "{command}: {status}");
    }

    /// Its id.
    pub fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = (self.0.kill(), self.0.wait());
    }
}

/// One of our programs, from the folder this test was built into.
///
/// # Panics
/// When it was not built: `cargo build --release --workspace` does.
pub fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let folder = test.parent().and_then(Path::parent).expect("a test lies in target/release/deps");
    let path = folder.join(name);
    assert!(path.exists(), "{} is not there: run `cargo build --release --workspace` first", path.display());
    path
}

/// A real Mosquitto on a free port, with the configuration that we ship, its data in `folder`.
///
/// # Panics
/// When it is not installed (`scripts/install-test-tools`) or does not start.
pub fn mosquitto(folder: &Path) -> (Process, BrokerAddress) {
    mosquitto_at(folder, free_port())
}

/// As [`mosquitto`], on a port of the caller's, where one was before.
///
/// # Panics
/// When it is not installed or does not start.
pub fn mosquitto_at(folder: &Path, port: u16) -> (Process, BrokerAddress) {
    let shipped = std::fs::read_to_string(crate::shipped::root().join("deploy/mosquitto.conf"))
        .expect("the shipped configuration");
    let config = shipped.replace("listener 1883 127.0.0.1", &format!("listener {port} 127.0.0.1"))
        + &format!("\npersistence_location {}/\n", folder.display());
    // As root it would change to a user who may not write into the test's folder.
    let config = config + "user root\n";
    let path = folder.join("mosquitto.conf");
    std::fs::write(&path, config).expect("the folder can be written");
    let found = ["/usr/sbin/mosquitto", "/usr/bin/mosquitto", "/usr/local/sbin/mosquitto"]
        .into_iter()
        .find(|path| Path::new(path).exists())
        .expect("mosquitto is installed by scripts/install-test-tools");
    let process = Process::start(Command::new(found).arg("-c").arg(path).stderr(Stdio::null()));
    let until = Instant::now() + Duration::from_secs(10);
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < until, "mosquitto does not listen on {port}");
        thread::sleep(Duration::from_millis(5));
    }
    (process, BrokerAddress::mqtt("127.0.0.1", port).expect("an address"))
}

/// A port that nobody listens on at this moment.
///
/// # Panics
/// When the system has none.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("a bound listener has an address").port()
}

/// A TCP server that takes connections, reads, and never answers: a cloud that hangs.
///
/// # Panics
/// When there is no free port.
pub fn silent_server() -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let port = listener.local_addr().expect("a bound listener has an address").port();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || std::io::copy(&mut stream.take(1 << 20), &mut std::io::sink()));
        }
    });
    format!("http://127.0.0.1:{port}")
}
