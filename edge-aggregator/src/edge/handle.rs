//! An edge as a process of its own: one service a network, two while the group changes from one network to the next.

use headwater_inference::bundle::Networks;
use headwater_protocol::EdgeId;

use super::service::Part;
use crate::config::AggregatorConfig;
use crate::report::EdgeReport;
use crate::service::AggregatorError;

/// One edge of a group; [`Edge::start`] begins one.
#[derive(Debug)]
pub struct Edge;

/// A running edge. Dropping the handle stops it as [`EdgeHandle::shutdown`] does, but nobody waits.
#[derive(Debug)]
pub struct EdgeHandle {
    /// In the order of the networks.
    parts: Vec<Part>,
}

impl Edge {
    /// Starts connecting to the broker for as long as it takes, and runs the section of an edge under each of the networks. Needs a tokio
    /// runtime.
    ///
    /// # Errors
    /// [`AggregatorError`]: settings, a network without that edge, a section that does not load, or the link.
    pub async fn start(
        config: AggregatorConfig,
        (edge, id): (usize, Option<EdgeId>),
        networks: impl Into<Networks>,
    ) -> Result<EdgeHandle, AggregatorError> {
        config.check().map_err(AggregatorError::Config)?;
        let networks = networks.into();
        let mut parts = Vec::new();
        for (generation, bundle) in networks.each() {
            parts.push(Part::start(&config, (edge, id.as_ref()), &networks, (generation, bundle)).await?);
        }
        Ok(EdgeHandle { parts })
    }
}

impl EdgeHandle {
    /// What it did so far, under all networks.
    pub fn report(&self) -> EdgeReport {
        self.parts.iter().fold(EdgeReport::default(), |report, part| report.and(part.report()))
    }

    /// Whether messages flow at this moment.
    pub fn is_connected(&self) -> bool {
        self.parts.iter().all(Part::is_connected)
    }

    /// Says goodbye and ends, within the grace time.
    pub async fn shutdown(mut self) -> EdgeReport {
        for part in &mut self.parts {
            part.shutdown().await;
        }
        self.report()
    }

    /// Waits until it ends by itself, which it does only when its link ends.
    pub async fn ended(&mut self) {
        // They share the process: whichever link ends first ends both.
        match &mut self.parts[..] {
            [current, next] => tokio::select! { () = current.ended() => {} () = next.ended() => {} },
            parts => {
                for part in parts {
                    part.ended().await;
                }
            }
        }
    }

    /// Drops everything at once, as SIGKILL would; returns when it is gone.
    pub async fn kill(mut self) {
        for part in &mut self.parts {
            part.kill().await;
        }
    }
}
