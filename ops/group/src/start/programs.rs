//! All services of a group, each as a child process.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use headwater_inference::manifest::NetworkManifest;
use headwater_link::QoS;
use headwater_transport::tls::{ClientIdentity, IdentityFiles, KeyPair};
use headwater_transport::{Connector, Endpoint, Scheme, held_port};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep, timeout};

use super::device_totals::DeviceTotals;
use super::program::Program;
use super::service::{Service, SiteSettings, StartError, device_id, services_of};

/// Longest wait for the cloud to load its section, and for a program to end after SIGTERM.
const LIMIT: Duration = Duration::from_secs(60);
/// Time between two questions to the cloud for its readiness.
const READY_POLL: Duration = Duration::from_millis(20);

/// Paths of the programs of each tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramPaths {
    /// `headwater-device`.
    pub device: PathBuf,
    /// `headwater-aggregator`.
    pub aggregator: PathBuf,
    /// `headwater-cloud`.
    pub cloud: PathBuf,
}

/// Settings of a [`ProgramGroup`].
#[derive(Clone, Debug)]
pub struct ProgramSettings {
    /// Settings that all services share.
    pub site: SiteSettings,
    /// Paths of the programs.
    pub paths: ProgramPaths,
    /// Bundle file that every tier loads.
    pub bundle: PathBuf,
    /// Archive of the frames that every device plays.
    pub frames: PathBuf,
    /// Policy file of leader, edges and batching devices; `None` for the policy of the bundle.
    pub policy: Option<PathBuf>,
    /// Folder of the site that `headwater enroll` made: each program shows the certificate of its member to broker and cloud. `None` for no
    /// TLS.
    pub site_dir: Option<PathBuf>,
    /// Log filter of the programs; `None` if they inherit the environment.
    pub log: Option<String>,
}

/// The running programs, by service.
pub struct ProgramGroup {
    settings: ProgramSettings,
    cloud_port: u16,
    running: BTreeMap<Service, Program>,
}

impl ProgramGroup {
    /// A group whose programs are not started yet.
    ///
    /// # Errors
    /// [`StartError::Failed`] when there is no free port for the cloud.
    pub fn new(settings: ProgramSettings) -> Result<Self, StartError> {
        let cloud_port = held_port().map_err(StartError::of("finding a free port".into()))?;
        Ok(Self { settings, cloud_port, running: BTreeMap::new() })
    }

    /// Starts one program for each service of the network. The cloud is ready before the leader starts.
    ///
    /// # Errors
    /// [`StartError`] names the program that does not start, or the cloud that is not ready in time.
    pub async fn start_all(&mut self, network: &NetworkManifest) -> Result<(), StartError> {
        for service in services_of(network) {
            self.start(service)?;
            if service == Service::Cloud {
                self.wait_until_cloud_is_ready().await?;
            }
        }
        Ok(())
    }

    /// Starts the program of one service. A program that still runs for the service is killed.
    ///
    /// # Errors
    /// [`StartError::Failed`] when the operating system does not start it.
    pub fn start(&mut self, service: Service) -> Result<(), StartError> {
        let program = Program::start(&mut self.command(service))?;
        self.running.insert(service, program);
        Ok(())
    }

    /// Sends SIGKILL to the program of a service and waits for its end.
    pub fn kill(&mut self, service: Service) {
        self.running.remove(&service);
    }

    /// The running program of a service; `None` if none was started.
    pub fn program(&self, service: Service) -> Option<&Program> {
        self.running.get(&service)
    }

    /// Text with a service whose program has ended without [`ProgramGroup::kill`], and the exit status; `None` if there is none.
    pub fn ended(&mut self) -> Option<String> {
        self.running.iter_mut().find_map(|(service, program)| {
            program.exit_status().map(|status| format!("{service} ended by itself: {status}"))
        })
    }

    /// Ends every program with SIGTERM, devices first, and sums up the devices' counts.
    ///
    /// # Errors
    /// [`StartError`] for a program that does not end in time, or a device whose report cannot be read.
    pub async fn shutdown(self) -> Result<DeviceTotals, StartError> {
        let mut totals = DeviceTotals::default();
        for (service, program) in self.running {
            let output = program.terminate(LIMIT).await?;
            if let Service::Device(_) = service {
                let report = serde_json::from_str(&output);
                totals.add(&report.map_err(StartError::of(format!("reading the report of {service}")))?);
            }
        }
        Ok(totals)
    }

    fn command(&self, service: Service) -> Command {
        let ProgramSettings { site, paths, bundle, frames, policy, log, .. } = &self.settings;
        let cloud = format!("127.0.0.1:{}", self.cloud_port);
        let qos = if site.qos == QoS::AtMostOnce { "0" } else { "1" };
        let mut command = Command::new(match service {
            Service::Device(_) => &paths.device,
            Service::Edge(_) | Service::Leader => &paths.aggregator,
            Service::Cloud => &paths.cloud,
        });
        command.arg("--bundle").arg(bundle);
        if service != Service::Cloud {
            command.args(["--site", site.site.as_str(), "--group", site.group.as_str()]);
            command.args(["--broker-address", &site.broker.to_string()]);
        }
        match service {
            // No load balancer sends requests to the group's own cloud, so the cloud need not keep answering while it stops.
            Service::Cloud => _ = command.args(["--http-listen", &cloud, "--stop-delay-ms", "0"]),
            Service::Leader => {
                command.args(["--cloud-url", &self.cloud_url().to_string()]);
                if let Some(journal) = &site.journal {
                    command.arg("--journal-path").arg(journal);
                }
                command.args(site.details.then_some("--details"));
            }
            Service::Edge(edge) => _ = command.args(["--role", "edge", "--edge", &edge.to_string()]),
            Service::Device(slot) => {
                command.args(["--slot", &slot.to_string(), "--id", device_id(slot).as_str(), "--json"]);
                command.args(["--upward-qos", qos, "--queue-samples", &site.queue_samples.to_string()]);
                command.arg("--source-path").arg(frames).stdout(Stdio::piped());
                command.args(["--batch-ms", &site.batch_ms.to_string()]);
                command.args(site.details.then_some("--name-frames"));
            }
        }
        if let Service::Leader | Service::Edge(_) = service {
            command.args(["--request-qos", qos]);
        }
        let reads_policy = match service {
            Service::Leader | Service::Edge(_) => true,
            // A device reads the leader's policy only for the waits, which bound how long an answer may wait for further answers.
            Service::Device(_) => site.batch_ms > 0,
            Service::Cloud => false,
        };
        if let Some(policy) = policy.as_ref().filter(|_| reads_policy) {
            command.arg("--policy").arg(policy);
        }
        if let Some(own) = self.member_folder(service) {
            for (flag, file) in [
                ("--tls-authority-file", "authority.pem"),
                ("--tls-certificate-file", "certificate.pem"),
                ("--tls-key-file", "key.pem"),
                ("--tls-revoked-file", "revoked.crl"),
            ] {
                command.arg(flag).arg(own.join(file));
            }
        }
        if let Some(filter) = log {
            command.env("RUST_LOG", filter);
        }
        command
    }

    /// Folder with the certificate of a service; `None` for a group without TLS.
    fn member_folder(&self, service: Service) -> Option<PathBuf> {
        let ProgramSettings { site, site_dir, .. } = &self.settings;
        let group = site_dir.as_ref()?.join(site.group.as_str());
        Some(match service {
            Service::Cloud => site_dir.as_ref()?.join("cloud"),
            Service::Leader => group.join("leader"),
            Service::Edge(edge) => group.join(format!("edge-{edge}")),
            Service::Device(slot) => group.join(device_id(slot).as_str()),
        })
    }

    /// Address of the cloud service. With TLS the host is `localhost`, the name in the cloud's certificate.
    fn cloud_url(&self) -> Endpoint {
        let (scheme, host) = match &self.settings.site_dir {
            Some(_) => (Scheme::Https, "localhost"),
            None => (Scheme::Http, "127.0.0.1"),
        };
        Endpoint::new(scheme, host, self.cloud_port).expect("a host and a port make an address")
    }

    async fn wait_until_cloud_is_ready(&mut self) -> Result<(), StartError> {
        let until = Instant::now() + LIMIT;
        let identity = self.member_folder(Service::Leader).map(|own| {
            ClientIdentity::new(IdentityFiles {
                authority: own.join("authority.pem"),
                own: Some(KeyPair { certificate: own.join("certificate.pem"), key: own.join("key.pem") }),
                revoked: None,
            })
        });
        let identity = identity.transpose().map_err(StartError::of("starting the leader".into()))?;
        let (connector, cloud) = (Connector::default().with_identity(identity), self.cloud_url());
        while !is_ready(&connector, &cloud).await.unwrap_or(false) {
            let ended = self.ended();
            if ended.is_some() || Instant::now() >= until {
                let found = ended.unwrap_or_else(|| "the cloud is not ready".into());
                return Err(StartError::NotReady { limit: LIMIT, found });
            }
            sleep(READY_POLL).await;
        }
        Ok(())
    }
}

/// Returns true when the cloud service answers that it is ready; an error without an answer.
async fn is_ready(connector: &Connector, cloud: &Endpoint) -> std::io::Result<bool> {
    let limit = Duration::from_secs(1);
    let mut stream = connector.connect(cloud, limit).await?;
    stream
        .write_all(b"GET /v2/health/ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .await?;
    let mut head = [0; 12];
    timeout(limit, stream.read_exact(&mut head)).await??;
    Ok(head.ends_with(b" 200"))
}
