//! Names of a group's services, and errors of starting and stopping them.

use std::error::Error;
use std::fmt::{self, Display};
use std::time::Duration;

use headwater_protocol::{EdgeIndex, Slot};
use thiserror::Error;

/// One service of a group. The order is the order in which a group stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Service {
    /// The device of a slot.
    Device(Slot),
    /// An edge of a network with several edges; the only edge of a network runs in the leader.
    Edge(EdgeIndex),
    /// The leader.
    Leader,
    /// The cloud service.
    Cloud,
}

impl Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(slot) => write!(f, "device {slot}"),
            Self::Edge(edge) => write!(f, "edge {edge}"),
            Self::Leader => write!(f, "the leader"),
            Self::Cloud => write!(f, "the cloud"),
        }
    }
}

/// A group that cannot be started or stopped.
#[derive(Debug, Error)]
pub enum StartError {
    /// A service does not start, or had stopped by itself.
    #[error("{action} {service}: {source}")]
    Service {
        /// `starting` or `stopping`.
        action: &'static str,
        /// The service.
        service: Service,
        /// The reason.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The services did not find each other in time.
    #[error("waited {limit:?} for all services to find each other: {found}")]
    NotReady {
        /// Time waited.
        limit: Duration,
        /// State at the end of the wait.
        found: String,
    },
    /// A program is not where it is expected.
    #[error("{name} is not there ({tried}): build all programs with `cargo build --release --workspace`")]
    NoProgram {
        /// File name of the program.
        name: String,
        /// Paths that were tried.
        tried: String,
    },
    /// The operating system refuses an operation.
    #[error("{operation}: {source}")]
    Io {
        /// The operation.
        operation: String,
        /// The reason.
        source: std::io::Error,
    },
}

impl StartError {
    pub(super) fn service<E: Into<Box<dyn Error + Send + Sync>>>(
        action: &'static str,
        service: Service,
    ) -> impl FnOnce(E) -> Self {
        move |source| Self::Service { action, service, source: source.into() }
    }

    pub(super) fn io(operation: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { operation: operation.into(), source }
    }
}
