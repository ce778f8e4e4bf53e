//! The broker of a site: the one that the file names, Mosquitto as a child process, or the embedded one.

use std::fs;
use std::net::TcpStream;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use headwater_group::start::Program;
use headwater_link::Endpoint;
use headwater_link::broker::EmbeddedBroker;
use headwater_telemetry::print_error;
use headwater_transport::held_port;
use tokio::time::sleep;

use super::site_file::BrokerChoice;

/// Names under which the program Mosquitto is looked for.
const MOSQUITTO: [&str; 3] = ["mosquitto", "/usr/sbin/mosquitto", "/usr/local/sbin/mosquitto"];

/// Shipped configuration of a site's broker. The child process gets it with another port and without persistence.
const SHIPPED: &str = include_str!("../../../../deploy/mosquitto.conf");

/// Longest wait for Mosquitto to listen, and to end.
const LIMIT: Duration = Duration::from_secs(10);

/// Time between two attempts to connect to Mosquitto.
const POLL: Duration = Duration::from_millis(10);

pub(super) struct Broker {
    pub(super) address: Endpoint,
    mosquitto: Option<Program>,
    embedded: Option<EmbeddedBroker>,
}

/// The program Mosquitto; `None` if it is not installed.
pub(super) fn find_mosquitto() -> Option<&'static str> {
    MOSQUITTO.into_iter().find(|program| {
        let mut help = Command::new(program);
        help.arg("-h").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
    })
}

impl Broker {
    /// Starts the broker, unless the file names a running one, and prints which broker is used and why.
    ///
    /// # Errors
    /// When no broker starts.
    pub(super) async fn start(choice: Option<&BrokerChoice>, state_dir: &Path) -> anyhow::Result<Self> {
        let why = match choice {
            Some(BrokerChoice::At(address)) => {
                print_error(&format!("broker: {address}, which the site file names"));
                return Ok(Self { address: address.clone(), mosquitto: None, embedded: None });
            }
            Some(BrokerChoice::Embedded) => "as the site file says".to_owned(),
            None => match find_mosquitto() {
                None => "since Mosquitto is not installed".to_owned(),
                Some(program) => match mosquitto(program, state_dir).await {
                    Ok((child, address)) => {
                        print_error(&format!(
                            "broker: Mosquitto ({program}) at {address}, for this site alone"
                        ));
                        return Ok(Self { address, mosquitto: Some(child), embedded: None });
                    }
                    Err(error) => format!("since Mosquitto ({program}) does not start: {error:#}"),
                },
            },
        };
        let broker = EmbeddedBroker::start().context("starting the embedded broker")?;
        let address = broker.address();
        print_error(&format!("broker: the embedded one at {address}, for this machine alone, {why}"));
        Ok(Self { address, mosquitto: None, embedded: Some(broker) })
    }

    /// Returns true when the broker lives only as long as the site, so that no client of it knows the ids of earlier runs.
    pub(super) fn is_own(&self) -> bool {
        self.mosquitto.is_some() || self.embedded.is_some()
    }

    /// Text with the exit status of Mosquitto if it has ended by itself; otherwise `None`.
    pub(super) fn ended(&mut self) -> Option<String> {
        let status = self.mosquitto.as_mut()?.exit_status()?;
        Some(format!("Mosquitto ended ({status})"))
    }

    /// Ends the broker, if it is the site's own.
    pub(super) async fn stop(self) -> anyhow::Result<()> {
        // A process that has ended gets no signal: the system may have given its id to another process.
        if let Some(mut program) = self.mosquitto
            && program.exit_status().is_none()
        {
            program.terminate(LIMIT).await?;
        }
        if let Some(broker) = self.embedded {
            broker.stop();
        }
        Ok(())
    }
}

/// Starts Mosquitto on loopback, at a port that this process holds so that nobody else gets it.
async fn mosquitto(program: &str, state_dir: &Path) -> anyhow::Result<(Program, Endpoint)> {
    let port = held_port().context("finding a free port")?;
    let (file, pid) = (state_dir.join("mosquitto.conf"), state_dir.join("mosquitto.pid"));
    end_left_over(&pid, &file);
    let write = |file: &Path, text: String| {
        fs::write(file, text).with_context(|| format!("writing {}", file.display()))
    };
    write(&file, config(port))?;
    let mut command = Command::new(program);
    command.arg("-c").arg(&file).stdout(Stdio::null()).stderr(Stdio::null());
    // Ctrl-C must not end the broker before the last results.
    command.process_group(0);
    let mut child = Program::start(&mut command)?;
    write(&pid, child.id().to_string())?;
    let until = Instant::now() + LIMIT;
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        if let Some(status) = child.exit_status() {
            bail!("it ended ({status}); `{program} -v -c {}` says why", file.display());
        }
        if Instant::now() >= until {
            bail!("it does not listen within {} s", LIMIT.as_secs());
        }
        sleep(POLL).await;
    }
    Ok((child, Endpoint::mqtt("127.0.0.1", port)?))
}

/// The shipped configuration, for a port and without persistence.
fn config(port: u16) -> String {
    let own_port = SHIPPED.replace("listener 1883 127.0.0.1", &format!("listener {port} 127.0.0.1"));
    // Started as root, Mosquitto would change to a user who may not exist.
    own_port.replace("persistence true", "persistence false") + "user root\n"
}

/// Ends the Mosquitto of a run that was killed: the process whose id is in the file `pid`, if its command line names `config`. Returns true
/// when such a process was found.
fn end_left_over(pid: &Path, config: &Path) -> bool {
    let Some(pid) = fs::read_to_string(pid).ok().and_then(|text| text.trim().parse::<u32>().ok()) else {
        return false;
    };
    let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let is_ours = arguments.split(|byte| *byte == 0).any(|part| part == config.as_os_str().as_bytes());
    if is_ours {
        print_error("ending Mosquitto, which an earlier run left behind");
        // An error is ignored: the process may have ended meanwhile.
        let _ = Command::new("sh").args(["-c", &format!("kill -TERM {pid}")]).stderr(Stdio::null()).status();
    }
    is_ours
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn the_shipped_configuration_is_taken_with_another_port_and_without_files() {
        let config = config(4711);
        let has = |line: &str| config.lines().any(|found| found == line);
        assert!(has("listener 4711 127.0.0.1") && has("persistence false") && has("user root"), "{config}");
        assert!(!has("listener 1883 127.0.0.1") && !has("persistence true"), "{config}");
    }

    #[test]
    fn a_broker_that_a_killed_run_left_is_ended_and_no_other_process() {
        let folder = tempfile::tempdir().unwrap();
        let (config, pid) = (folder.path().join("mosquitto.conf"), folder.path().join("mosquitto.pid"));
        assert!(!end_left_over(&pid, &config), "there was no run before");
        fs::write(&config, "").unwrap();
        // A program that runs until it is ended, with a file among its arguments.
        let mut left = Command::new("tail").arg("-f").arg(&config).stdout(Stdio::null()).spawn().unwrap();
        fs::write(&pid, left.id().to_string()).unwrap();
        // The command line is empty for a moment after the start.
        while fs::read(format!("/proc/{}/cmdline", left.id())).unwrap().is_empty() {
            std::thread::yield_now();
        }
        assert!(!end_left_over(&pid, &folder.path().join("other.conf")));
        assert!(end_left_over(&pid, &config));
        assert_eq!(left.wait().unwrap().signal(), Some(15));
    }
}
