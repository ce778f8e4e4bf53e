//! Starting and stopping the service, in a separate process or inside another.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use headwater_inference::bundle::Networks;
use headwater_inference::engine::Engine;
use headwater_telemetry::{AdminServer, Health, Program, ServiceManager};
use headwater_transport::{HttpListener, ServerLimits, listen, serve};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tracing::info;

use crate::app::app;
use crate::engine;
use crate::error::CloudError;
use crate::health::Healths;
use crate::metrics::{CloudMetrics, CloudReport};
use crate::settings::{CloudConfig, CloudSettings};
use crate::state::CloudState;
use crate::status::ServiceStatus;

/// A running service. Dropping the value stops the service as [`CloudService::shutdown`] does, without waiting.
pub struct CloudService {
    addr: SocketAddr,
    grpc_addr: Option<SocketAddr>,
    grace: Duration,
    metrics: Arc<CloudMetrics>,
    healths: Healths,
    status: Arc<dyn Health>,
    stop: watch::Sender<bool>,
    server: JoinHandle<()>,
    admin: Option<AdminServer>,
}

impl fmt::Debug for CloudService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CloudService").field("addr", &self.addr).finish_non_exhaustive()
    }
}

/// Name and version in the status.
const PROGRAM: Program = Program { name: "headwater-cloud", version: env!("CARGO_PKG_VERSION") };

/// Longest idle time of a kept-alive connection; longer than the aggregator's, which closes first.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

impl CloudService {
    /// Listens, loads the cloud section of each network into the engine of the settings, and serves. Needs a tokio runtime.
    ///
    /// # Errors
    /// [`CloudError`]: settings, address, engine or section.
    pub async fn start(config: CloudConfig, networks: impl Into<Networks>) -> Result<Self, CloudError> {
        let engine = engine::choose(&config).map_err(CloudError::Model)?;
        Self::start_with(config, networks, engine).await
    }

    /// Starts a service with an engine of the caller's choice.
    ///
    /// # Errors
    /// [`CloudError`]: settings, address or section.
    pub async fn start_with(
        config: CloudConfig,
        networks: impl Into<Networks>,
        engine: Arc<dyn Engine>,
    ) -> Result<Self, CloudError> {
        let mistakes = config.check();
        if !mistakes.is_empty() {
            return Err(CloudError::Config(mistakes.into_iter().map(String::from).collect()));
        }
        config.security.warn_of_server("http.listen", config.http.listen);
        let listener = listen(config.http.listen).await.map_err(CloudError::Listen)?;
        let addr = listener.local_addr().map_err(CloudError::Listen)?;
        let grpc = match config.grpc.listen {
            Some(address) => {
                config.security.warn_of_server("grpc.listen", address);
                Some(listen(address).await.map_err(CloudError::Listen)?)
            }
            None => None,
        };
        let grpc_addr = grpc.as_ref().map(TcpListener::local_addr).transpose().map_err(CloudError::Listen)?;
        let state = CloudState::start(&config, networks, engine).await?;
        let (metrics, healths) = (Arc::clone(&state.shared.metrics), state.shared.healths.clone());
        let status: Arc<dyn Health> = Arc::new(ServiceStatus::of(&state.shared));
        let admin =
            AdminServer::start(config.admin.listen, PROGRAM, metrics.registry.clone(), Arc::clone(&status));
        let admin = admin.await.map_err(CloudError::Listen)?;
        let networks = state.shared.networks.as_ref().map(|_, network| network.id.short());
        let (network, next_network) = (networks.current, networks.next);
        let tls = state.shared.admission.identity().is_some();
        info!(%addr, grpc = grpc_addr.map(display), tls, model = config.model.name, network, next_network, "serving");
        let stop = watch::Sender::new(false);
        let limits = limits(&config);
        let bound = |tcp| HttpListener { tcp, identity: state.shared.admission.identity().cloned() };
        let until_stopped = || stopped(state.clone(), ms(config.stop_delay_ms), stop.subscribe());
        let http = serve_http(bound(listener), state.clone(), limits, until_stopped());
        let grpc = grpc.map(|listener| serve_grpc(bound(listener), state.clone(), limits, until_stopped()));
        let server = tokio::spawn(async move {
            match grpc {
                Some(grpc) => {
                    tokio::join!(http, grpc);
                }
                None => http.await,
            }
        });
        let grace = ms(config.grace_ms);
        Ok(Self { addr, grpc_addr, grace, metrics, healths, status, stop, server, admin })
    }

    /// Address of the service.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Address of the service for gRPC; `None` where the settings name none.
    pub fn grpc_addr(&self) -> Option<SocketAddr> {
        self.grpc_addr
    }

    /// Address of the admin port; `None` where the settings name none.
    pub fn admin_addr(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(AdminServer::address)
    }

    /// Counts of the service since it started.
    pub fn report(&self) -> CloudReport {
        self.metrics.report()
    }

    /// Reports for `stop_delay_ms` that the service is not ready, and still answers. Then stops accepting, lets requests in flight finish,
    /// and cuts connections that are left after the grace time. At last waits for the model threads, at most for the grace time once more.
    pub async fn shutdown(mut self) -> CloudReport {
        self.stop.send_replace(true);
        // A join error is a panic in the server, already on stderr; the service is down either way.
        let _ = (&mut self.server).await;
        let _ = tokio::time::timeout(self.grace, self.healths.ended()).await;
        self.metrics.report()
    }

    /// Drops the listener and every connection at once, as SIGKILL would; returns when they are closed.
    pub async fn kill(mut self) {
        self.server.abort();
        let _ = (&mut self.server).await;
    }
}

/// Name of the service in its `release_file`.
const RELEASE_NAME: &str = "cloud";

impl CloudSettings {
    /// Opens the bundles.
    ///
    /// # Errors
    /// Every bundle that cannot be used, and a file of releases that cannot be read.
    pub fn open_networks(&self) -> Result<Networks, Vec<String>> {
        // The service answers several sites, so a bundle may be signed for any of them.
        let trust = self.service.security.trust(RELEASE_NAME, None).map_err(|mistake| vec![mistake])?;
        Networks::open(&self.bundle, self.next_bundle.as_deref(), trust.as_ref())
    }

    /// Writes the release number of the current bundle, if it is signed, into the `release_file`, so that older releases are refused.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn keep_release(&self, networks: &Networks) -> Result<(), String> {
        let release = networks.current().release().map(|signed| signed.number);
        self.service.security.keep_release(RELEASE_NAME, release)
    }
}

/// Serves until `stopped` ends. Dropping the future cuts every connection at once.
async fn serve_http(
    listener: HttpListener,
    state: CloudState,
    limits: ServerLimits,
    stopped: impl Future<Output = ()>,
) {
    let metrics = Arc::clone(&state.shared.metrics);
    let (router, closed) = (app(state), Arc::clone(&metrics.closed));
    let service = move || {
        metrics.counts().connections += 1;
        TowerToHyperService::new(router.clone())
    };
    serve(listener, service, limits, closed, stopped).await;
}

/// Serves gRPC until `stopped` ends. Dropping the future cuts every connection at once.
#[cfg(feature = "grpc")]
async fn serve_grpc(
    listener: HttpListener,
    state: CloudState,
    server: ServerLimits,
    stopped: impl Future<Output = ()>,
) {
    let limits = headwater_transport::GrpcLimits { server, message_bytes: state.shared.body_limit(false) };
    let closed = Arc::clone(&state.shared.metrics.closed);
    let service = move || {
        state.shared.metrics.counts().connections += 1;
        let state = state.clone();
        move |call| crate::grpc::answer(state.clone(), call)
    };
    headwater_transport::serve_grpc(listener, service, limits, closed, stopped).await;
}

/// Does nothing: in a build without gRPC, the check of the settings refuses `grpc.listen`.
#[cfg(not(feature = "grpc"))]
async fn serve_grpc(_: HttpListener, _: CloudState, _: ServerLimits, _: impl Future<Output = ()>) {}

/// Ends when the service stops, after the time in which the service says that it is not ready.
async fn stopped(state: CloudState, delay: Duration, mut stop: watch::Receiver<bool>) {
    // A dropped sender stops the service too.
    _ = stop.wait_for(|&stop| stop).await;
    state.shared.stopping.send_replace(true);
    sleep(delay).await;
}

fn limits(config: &CloudConfig) -> ServerLimits {
    let http = &config.http;
    ServerLimits {
        max_connections: http.max_connections,
        max_connections_per_address: http.max_connections_per_address,
        head_timeout: ms(http.head_timeout_ms),
        answer_timeout: ms(http.answer_timeout_ms),
        idle_timeout: IDLE_TIMEOUT,
        grace: ms(config.grace_ms),
    }
}

fn ms(ms: u32) -> Duration {
    Duration::from_millis(ms.into())
}

/// Serves until `shutdown` ends or a model fails.
///
/// # Errors
/// [`CloudError`] when the service does not start, or when a model fails later.
pub async fn run(
    config: CloudConfig,
    networks: impl Into<Networks>,
    manager: ServiceManager,
    shutdown: impl Future<Output = ()>,
) -> Result<CloudReport, CloudError> {
    let handle = CloudService::start(config, networks).await?;
    let watchdog_task = manager.ready(Arc::clone(&handle.status));
    let failed = tokio::select! {
        () = shutdown => None,
        reason = handle.healths.failed() => Some(reason),
    };
    manager.stopping();
    let report = handle.shutdown().await;
    drop(watchdog_task);
    match failed {
        None => Ok(report),
        Some(reason) => Err(CloudError::Model(reason)),
    }
}
