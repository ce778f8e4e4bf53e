//! Starting and stopping the service, in a process of its own or inside another.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use headwater_inference::bundle::Networks;
use headwater_inference::engine::Engine;
use thiserror::Error;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::info;

use crate::app::CloudState;
use crate::config::CloudConfig;
use crate::counters::CloudReport;
use crate::engine;
use crate::health::Healths;
use crate::server;

/// The cloud service; [`CloudService::start`] begins one.
#[derive(Debug)]
pub struct CloudService;

/// A running service. Dropping the handle stops it as [`CloudHandle::shutdown`] does, but nobody waits.
#[derive(Debug)]
pub struct CloudHandle {
    addr: SocketAddr,
    grace: Duration,
    counters: Arc<crate::counters::Counters>,
    healths: Healths,
    stop: watch::Sender<bool>,
    server: JoinHandle<()>,
}

impl CloudService {
    /// Listens, loads the cloud section of each network into the engine of the settings, and serves. Needs a tokio runtime.
    ///
    /// # Errors
    /// [`CloudError`]: settings, address or section.
    pub async fn start(
        config: CloudConfig,
        networks: impl Into<Networks>,
    ) -> Result<CloudHandle, CloudError> {
        let engine = engine::choose(&config).map_err(CloudError::Model)?;
        Self::start_with(config, networks, engine).await
    }

    /// As [`CloudService::start`], with an engine of the caller's choice.
    ///
    /// # Errors
    /// [`CloudError`]: settings, address or section.
    pub async fn start_with(
        config: CloudConfig,
        networks: impl Into<Networks>,
        engine: Arc<dyn Engine>,
    ) -> Result<CloudHandle, CloudError> {
        config.check().map_err(CloudError::Config)?;
        let listener = server::bind(config.listen).await.map_err(CloudError::Listen)?;
        let addr = listener.local_addr().map_err(CloudError::Listen)?;
        let state = CloudState::start(&config, networks, engine).await?;
        let counters = Arc::clone(&state.shared().counters);
        let healths = state.shared().healths.clone();
        let networks = state.shared().networks.map(|network| network.id.short());
        info!(%addr, model = config.model_name, network = networks.current, next_network = networks.next, "serving");
        let grace = Duration::from_millis(u64::from(config.grace_ms));
        let stop = watch::Sender::new(false);
        let serve = server::serve(listener, state, config.most_connections, grace, stop.subscribe());
        Ok(CloudHandle { addr, grace, counters, healths, stop, server: tokio::spawn(serve) })
    }
}

impl CloudHandle {
    /// The address it listens on.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// What it did so far.
    pub fn report(&self) -> CloudReport {
        self.counters.report()
    }

    /// Stops accepting, lets requests in flight end, cuts what is left after the grace time, and waits (as long again) for
    /// the model threads.
    pub async fn shutdown(mut self) -> CloudReport {
        self.stop.send_replace(true);
        // A join error is a panic in the server, already on stderr; the service is down either way.
        let _ = (&mut self.server).await;
        let _ = tokio::time::timeout(self.grace, self.healths.ended()).await;
        self.counters.report()
    }

    /// Drops the listener and every connection at once, as SIGKILL would; returns when they are closed.
    pub async fn kill(mut self) {
        self.server.abort();
        let _ = (&mut self.server).await;
    }

    /// Ends when a model thread has failed: its network is answered no more, and only a new service helps.
    async fn failed(&self) -> String {
        self.healths.failed().await
    }
}

/// Serves until `shutdown` ends.
///
/// # Errors
/// [`CloudError`] when it cannot start, or when the model fails while it serves.
pub async fn run(
    config: CloudConfig,
    networks: impl Into<Networks>,
    shutdown: impl Future<Output = ()>,
) -> Result<CloudReport, CloudError> {
    let handle = CloudService::start(config, networks).await?;
    let failed = tokio::select! {
        () = shutdown => None,
        reason = handle.failed() => Some(reason),
    };
    let report = handle.shutdown().await;
    match failed {
        None => Ok(report),
        Some(reason) => Err(CloudError::Model(reason)),
    }
}

/// Why the service does not start, or stopped by itself.
#[derive(Debug, Error)]
pub enum CloudError {
    /// Settings out of range: all of them, each with key, expected and found.
    #[error("configuration: {}", .0.join("; "))]
    Config(Vec<String>),
    /// The address cannot be listened on.
    #[error("{0}")]
    Listen(std::io::Error),
    /// A cloud section does not load, or its thread ended.
    #[error("model: {0}")]
    Model(String),
}
