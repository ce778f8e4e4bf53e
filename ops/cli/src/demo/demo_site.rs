//! The site of the demo: a broker and every service of one group.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use headwater_group::start::{
    DeviceTotals, InProcessGroup, InProcessSettings, ProgramGroup, ProgramPaths, ProgramSettings, Service,
    SiteSettings, find_program,
};
use headwater_inference::policy::Policy;
use headwater_link::broker::EmbeddedBroker;
use headwater_link::{Endpoint, QoS};
use headwater_protocol::{GroupId, SiteId};
use tempfile::TempDir;

use super::inputs::Inputs;
use crate::args::DemoArgs;
use crate::option_values::MAX_UNSETTLED;
use crate::security_args::SecurityArgs;

/// Longest wait for all services to find each other.
pub(super) const READY_LIMIT: Duration = Duration::from_secs(60);

pub(super) enum DemoSite {
    /// All services in this process.
    InProcess(Box<InProcessGroup>),
    /// Each service as a program.
    Programs {
        group: Box<ProgramGroup>,
        /// Files of the run; removed when dropped.
        folder: TempDir,
    },
}

/// Address of the broker that the arguments name. If they name none, an embedded broker is started and returned; it ends when dropped.
pub(super) fn broker(args: &DemoArgs) -> anyhow::Result<(Endpoint, Option<EmbeddedBroker>)> {
    if let Some(address) = &args.broker {
        return Ok((address.clone(), None));
    }
    let started = EmbeddedBroker::start_at(args.port.unwrap_or(0));
    let broker = started.context("starting the embedded broker")?;
    Ok((broker.address(), Some(broker)))
}

/// Site, group and `QoS` of the demo, with queues long enough that `--rate max` sheds no view.
pub(super) fn site_settings(args: &DemoArgs, broker: Endpoint) -> anyhow::Result<SiteSettings> {
    let mut settings = SiteSettings::new(SiteId::new("demo")?, GroupId::new("cameras")?, broker);
    settings.qos = if args.qos == 0 { QoS::AtMostOnce } else { QoS::AtLeastOnce };
    settings.batch_ms = args.batch_ms;
    settings.queue_samples = settings.queue_samples.max(2 * MAX_UNSETTLED);
    Ok(settings)
}

/// Certificate files of the operator in an enrolled site, with which the demo connects to the broker; none without `--site-dir`.
pub(super) fn operator(args: &DemoArgs, group: &GroupId) -> SecurityArgs {
    let own = args.site_dir.as_ref().map(|folder| folder.join(group.as_str()).join("operator"));
    let file = |name: &str| own.as_ref().map(|own| own.join(name));
    SecurityArgs {
        tls_authority_file: file("authority.pem"),
        tls_certificate_file: file("certificate.pem"),
        tls_key_file: file("key.pem"),
        tls_revoked_file: file("revoked.crl"),
        insecure: args.insecure,
        ..SecurityArgs::default()
    }
}

impl DemoSite {
    /// Starts every service. Services in this process have found each other when the function returns; programs may need longer.
    pub(super) async fn start(
        args: &DemoArgs,
        mut site: SiteSettings,
        inputs: &Inputs,
        policy: Policy,
    ) -> anyhow::Result<Self> {
        if !args.processes {
            let (bundle, frames) = (Arc::clone(&inputs.bundle), Arc::clone(&inputs.frames));
            let mut settings = InProcessSettings::new(site, bundle, frames);
            settings.policy = Some(policy);
            let group = InProcessGroup::start(settings).await?;
            group.wait_until_ready(READY_LIMIT).await?;
            return Ok(Self::InProcess(Box::new(group)));
        }
        let folder = tempfile::tempdir().context("making a folder for the files of the run")?;
        site.journal = Some(folder.path().join("journal.jsonl"));
        let policy_file = folder.path().join("policy.toml");
        std::fs::write(&policy_file, toml::to_string(&policy)?).context("writing the policy")?;
        let settings = ProgramSettings {
            site,
            paths: program_paths(args)?,
            bundle: inputs.bundle_origin.file(&folder.path().join("bundle.hwb"))?,
            frames: inputs.frames_origin.file(&folder.path().join("frames.tar.gz"))?,
            policy: Some(policy_file),
            site_dir: args.site_dir.clone(),
            // The programs write to the demo's stderr, so they log only errors unless `RUST_LOG` is set.
            log: std::env::var_os("RUST_LOG").is_none().then(|| "error".into()),
        };
        let mut group = Box::new(ProgramGroup::new(settings)?);
        group.start_all(inputs.bundle.manifest()).await?;
        Ok(Self::Programs { group, folder })
    }

    /// A program that ended without being killed, with its exit status; `None` if there is none. Services in this process do not end by
    /// themselves.
    pub(super) fn ended(&mut self) -> Option<String> {
        match self {
            Self::InProcess(_) => None,
            Self::Programs { group, .. } => group.ended(),
        }
    }

    /// Ends a service as SIGKILL would.
    pub(super) async fn kill(&mut self, service: Service) {
        match self {
            Self::InProcess(group) => group.kill(service).await,
            Self::Programs { group, .. } => group.kill(service),
        }
    }

    /// Ends every service in order and sums up the devices' counts.
    pub(super) async fn shutdown(self) -> anyhow::Result<DeviceTotals> {
        Ok(match self {
            Self::InProcess(group) => group.shutdown().await?,
            // The folder is removed after the programs have ended.
            Self::Programs { group, folder: _folder } => group.shutdown().await?,
        })
    }
}

/// Path of each program: its own argument, else beside this program or one folder above.
fn program_paths(args: &DemoArgs) -> anyhow::Result<ProgramPaths> {
    let path = |own: &Option<PathBuf>, name| own.clone().map_or_else(|| find_program(name), Ok);
    Ok(ProgramPaths {
        device: path(&args.device_program, "headwater-device")?,
        aggregator: path(&args.aggregator_program, "headwater-aggregator")?,
        cloud: path(&args.cloud_program, "headwater-cloud")?,
    })
}
