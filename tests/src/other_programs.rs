//! The broker Mosquitto, the library libfaketime, addresses on loopback, and a server that never answers.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use headwater_group::start::Program;
use headwater_link::Endpoint;
use headwater_transport::held_port;

use crate::group::WAIT_LIMIT;

/// Starts Mosquitto on a free port, with the shipped configuration. Mosquitto stores its data in `folder`.
///
/// # Panics
/// When Mosquitto is not installed (`scripts/install/test-tools`) or does not start.
pub fn mosquitto(folder: &Path) -> (Program, Endpoint) {
    let address = free_address();
    (mosquitto_at(folder, &address), address)
}

/// Starts Mosquitto at an address, with the shipped configuration. Mosquitto stores its data in `folder`.
///
/// # Panics
/// As [`mosquitto`].
pub fn mosquitto_at(folder: &Path, address: &Endpoint) -> Program {
    let port = address.port();
    let shipped = std::fs::read_to_string(crate::shipped::root().join("deploy/mosquitto.conf"))
        .expect("the shipped configuration");
    let config = shipped.replace("listener 1883 127.0.0.1", &format!("listener {port} 127.0.0.1"))
        + &format!("\npersistence_location {}/\n", folder.display());
    // Without `user root`, a Mosquitto that root starts changes to a user who may not write into the test's folder.
    let config = config + "user root\n";
    let path = folder.join("mosquitto.conf");
    std::fs::write(&path, config).expect("the folder can be written");
    mosquitto_with(&path, address)
}

/// Starts Mosquitto with a configuration file, which must name `address`, and waits until Mosquitto listens there.
///
/// # Panics
/// As [`mosquitto`].
pub fn mosquitto_with(config: &Path, address: &Endpoint) -> Program {
    let program = Program::start(Command::new(find_mosquitto()).arg("-c").arg(config).stderr(Stdio::null()));
    until_listens(address.port());
    program.expect("mosquitto starts")
}

/// Waits until Mosquitto listens at a port of loopback.
///
/// # Panics
/// When nobody listens there in time.
pub fn until_listens(port: u16) {
    let until = Instant::now() + WAIT_LIMIT;
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < until, "mosquitto does not listen on {port}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Starts Mosquitto at an address with further lines of configuration. The configuration file is written into `folder`.
///
/// # Panics
/// As [`mosquitto`].
pub fn mosquitto_of(lines: &str, folder: &Path, address: &Endpoint) -> Program {
    let config = folder.join("mosquitto.conf");
    let text = format!("listener {} 127.0.0.1\nuser root\n{lines}\n", address.port());
    std::fs::write(&config, text).expect("the folder can be written");
    mosquitto_with(&config, address)
}

/// Path of the program `mosquitto`.
///
/// # Panics
/// When Mosquitto is not installed (`scripts/install/test-tools`).
pub fn find_mosquitto() -> &'static str {
    ["/usr/sbin/mosquitto", "/usr/bin/mosquitto", "/usr/local/sbin/mosquitto"]
        .into_iter()
        .find(|path| Path::new(path).exists())
        .expect("mosquitto is installed by scripts/install/test-tools")
}

/// Path of libfaketime, a library that sets the wall clock of a program; `None` if it is not installed (`scripts/install/test-tools`).
pub fn find_faketime() -> Option<&'static str> {
    [
        "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
        "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1",
    ]
    .into_iter()
    .find(|path| Path::new(path).exists())
}

/// An address on loopback with a port where nobody listens. The port is held until this process ends, so that no other program gets it.
///
/// # Panics
/// When there is no free port.
pub fn free_address() -> Endpoint {
    loopback(held_port().expect("a free port"))
}

/// The MQTT address of a port on loopback.
///
/// # Panics
/// For port 0.
pub fn loopback(port: u16) -> Endpoint {
    Endpoint::mqtt("127.0.0.1", port).expect("a port above 0")
}

/// Starts a TCP server that accepts connections, reads, and never answers. Returns the URL of the server.
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
