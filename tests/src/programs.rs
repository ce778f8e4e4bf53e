//! The real programs of one group, each to be started, killed and started again.

use std::path::{Path, PathBuf};
use std::process::Command;

use headwater_link::BrokerAddress;
use headwater_protocol::Slot;

use crate::process::{Process, free_port, program};
use crate::shipped;
use crate::tiers::names;

/// What they are started with: over one broker, about the shipped frames.
pub struct Programs {
    bundle: PathBuf,
    broker: BrokerAddress,
    cloud_port: u16,
    journal: PathBuf,
}

impl Programs {
    /// Of a bundle's network; `folder` takes the leader's journal.
    ///
    /// # Panics
    /// When the system has no free port for the cloud.
    pub fn new(bundle: PathBuf, broker: BrokerAddress, folder: &Path) -> Self {
        Self { bundle, broker, cloud_port: free_port(), journal: folder.join("journal.jsonl") }
    }

    /// File of the leader's journal.
    pub fn journal(&self) -> &Path {
        &self.journal
    }

    /// Starts the cloud service.
    ///
    /// # Panics
    /// When it does not start, as with all of these.
    pub fn cloud(&self) -> Process {
        let listen = format!("127.0.0.1:{}", self.cloud_port);
        let mut command = Command::new(program("headwater-cloud"));
        Process::start(command.args(["--http-listen", &listen, "--bundle"]).arg(&self.bundle))
    }

    /// Starts the leader, with its journal.
    ///
    /// # Panics
    /// When it does not start.
    pub fn leader(&self) -> Process {
        let mut command = self.of_group("headwater-aggregator");
        command.args(["--cloud-url", &format!("http://127.0.0.1:{}", self.cloud_port)]);
        Process::start(command.arg("--journal").arg(&self.journal))
    }

    /// Starts an edge of a network with several.
    ///
    /// # Panics
    /// When it does not start.
    pub fn edge(&self, edge: usize) -> Process {
        let mut command = self.of_group("headwater-aggregator");
        Process::start(command.args(["--role", "edge", "--edge", &edge.to_string()]))
    }

    /// Starts the device of a slot.
    ///
    /// # Panics
    /// When it does not start.
    pub fn device(&self, slot: Slot) -> Process {
        let mut command = self.of_group("headwater-device");
        command.args(["--slot", &slot.to_string(), "--id", &format!("cam-{slot}")]);
        Process::start(command.arg("--frames").arg(shipped::frames_path()))
    }

    fn of_group(&self, name: &str) -> Command {
        let (site, group) = names();
        let mut command = Command::new(program(name));
        command.args(["--site", site.as_str(), "--group", group.as_str()]);
        command.args(["--broker", &self.broker.to_string(), "--bundle"]).arg(&self.bundle);
        command
    }
}
