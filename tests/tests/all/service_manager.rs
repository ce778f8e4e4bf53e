//! Messages of the three services to a service manager (`sd_notify`): ready, watchdog and stopping. The health check of a container, and the
//! addresses of an admin port.

use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use headwater_group::start::Program;
use headwater_link::Endpoint;
use headwater_tests::group::WAIT_LIMIT;
use headwater_tests::other_programs::{free_address, mosquitto};
use headwater_tests::programs::{command, device, service};
use headwater_tests::shipped;
use headwater_transport::held_port;

/// Time without a watchdog message after which a service manager would end a program.
const WATCHDOG: Duration = Duration::from_secs(1);

/// The socket of a service manager for the messages of one program.
struct Manager {
    socket: UnixDatagram,
}

impl Manager {
    fn listen(path: &Path) -> Self {
        let socket = UnixDatagram::bind(path).expect("the folder can be written");
        Self { socket }
    }

    /// The next message; `None` if none comes within the limit.
    fn next(&self, limit: Duration) -> Option<String> {
        self.socket.set_read_timeout(Some(limit)).expect("a limit above zero");
        let mut buffer = [0; 4096];
        match self.socket.recv(&mut buffer) {
            Ok(bytes) => Some(String::from_utf8_lossy(&buffer[..bytes]).into_owned()),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => None,
            Err(error) => panic!("the socket of the manager: {error}"),
        }
    }

    /// Waits for a message that has this line, and returns the message.
    #[track_caller]
    fn until(&self, line: &str) -> String {
        let begin = Instant::now();
        let mut seen = Vec::new();
        while begin.elapsed() < WAIT_LIMIT {
            let Some(message) = self.next(WAIT_LIMIT) else { break };
            if message.lines().any(|found| found == line) {
                return message;
            }
            seen.push(message);
        }
        panic!("expected {line}, found {seen:?}");
    }

    /// Discards the messages that have already arrived.
    fn drain(&self) {
        while self.next(Duration::from_millis(1)).is_some() {}
    }
}

struct Watched {
    name: &'static str,
    broker: Endpoint,
    admin: String,
}

impl Watched {
    fn command(&self) -> Command {
        let mut command = of_name(self.name, &self.broker);
        command.args(["--admin-listen", &self.admin]).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// Runs the program with `--check-live`. Returns true for exit code 0, and standard error.
    fn check_live(&self) -> (bool, String) {
        let output = self.command().arg("--check-live").stderr(Stdio::piped()).output().expect("it starts");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    fn start(&self, socket: &Path) -> Program {
        let mut command = self.command();
        command.env("NOTIFY_SOCKET", socket).env("WATCHDOG_USEC", WATCHDOG.as_micros().to_string());
        Program::start(&mut command).expect("the program starts")
    }
}

const PROGRAMS: [&str; 3] = ["headwater-cloud", "headwater-aggregator", "headwater-device"];

fn of_name(name: &str, broker: &Endpoint) -> Command {
    let bundle = shipped::bundle_path();
    match name {
        "headwater-cloud" => {
            let mut cloud = command(name);
            cloud.args(["--http-listen", "127.0.0.1:0", "--stop-delay-ms", "0", "--bundle"]).arg(bundle);
            cloud
        }
        "headwater-device" => device(0, broker, &bundle),
        _ => service(name, broker, &bundle),
    }
}

#[test]
fn each_program_says_that_it_is_ready_lives_and_stops_and_a_frozen_one_is_found() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (_mosquitto, broker) = mosquitto(folder.path());
    for name in PROGRAMS {
        let admin = format!("127.0.0.1:{}", held_port().expect("a free port"));
        let watched = Watched { name, broker: broker.clone(), admin };
        let (is_live, reason) = watched.check_live();
        assert!(!is_live && reason.contains(&watched.admin), "nobody runs: {reason}");
        let socket = folder.path().join(watched.name);
        let manager = Manager::listen(&socket);
        let program = watched.start(&socket);
        let ready = manager.until("READY=1");
        assert!(ready.lines().any(|line| line.starts_with("STATUS=")), "{ready}");
        for _ in 0..3 {
            manager.until("WATCHDOG=1");
        }
        assert_eq!(watched.check_live(), (true, String::new()), "{}", watched.name);
        program.signal("STOP").expect("a shell starts");
        manager.drain();
        let message = manager.next(2 * WATCHDOG);
        assert_eq!(message, None, "a frozen program sends no watchdog message: {}", watched.name);
        let (is_live, reason) = watched.check_live();
        assert!(!is_live && reason.contains(&watched.admin), "{}: {reason}", watched.name);
        program.signal("CONT").expect("a shell starts");
        manager.until("WATCHDOG=1");
        program.signal("TERM").expect("a shell starts");
        manager.until("STOPPING=1");
    }
}

#[test]
fn an_admin_port_beyond_this_machine_needs_a_setting_of_its_own() {
    for name in PROGRAMS {
        let check = |more: &[&str]| {
            let mut command = of_name(name, &free_address());
            command.args(["--check-config", "--admin-listen", "192.0.2.1:9600"]).args(more);
            let output = command.output().expect("it starts");
            (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
        };
        let (code, error) = check(&[]);
        assert_eq!(code, Some(2), "{name}: {error}");
        assert!(error.contains("admin.listen: expected") && error.contains("admin.remote"), "{error}");
        let (code, error) = check(&["--admin-remote"]);
        assert_eq!(code, Some(0), "{name}: {error}");
    }
}
