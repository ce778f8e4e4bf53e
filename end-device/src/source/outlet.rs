//! The way from a source's own thread to the agent.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use headwater_samples::View;
use tokio::sync::{mpsc, watch};

use super::faults::Faults;
use crate::error::DeviceError;

/// Frames that may wait for the agent when each of them is a sample; then the source waits.
const WAITING: usize = 2;

/// A source that gives frames by itself, on a thread of its own.
pub(crate) trait Producer: Send {
    /// Gives frames until there are no more or the outlet is closed.
    ///
    /// # Errors
    /// What ended the source before its end.
    fn run(self: Box<Self>, outlet: &Outlet) -> Result<(), String>;
}

/// A view and when its frame came.
#[derive(Debug)]
pub(crate) struct Shot {
    pub(crate) view: View,
    pub(crate) came: Instant,
}

/// Where a producer puts its frames.
pub(crate) struct Outlet {
    to: To,
    pub(crate) faults: Faults,
}

enum To {
    /// Only the newest frame counts.
    Newest(watch::Sender<Option<Arc<Shot>>>),
    /// Each frame counts; the producer waits for the agent.
    Each(mpsc::Sender<Shot>),
}

/// Where the agent finds them.
pub(crate) enum Inlet {
    Newest(watch::Receiver<Option<Arc<Shot>>>),
    Each(mpsc::Receiver<Shot>),
}

/// How a source ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct SourceEnd(Arc<AtomicBool>);

impl SourceEnd {
    /// True when it came to its end, false when it broke off.
    pub(crate) fn is_clean(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl Outlet {
    /// Gives a frame; false when nobody takes frames any more.
    pub(crate) fn give(&self, view: View) -> bool {
        self.faults.count_frame();
        let shot = Shot { view, came: Instant::now() };
        match &self.to {
            To::Newest(to) => to.send(Some(Arc::new(shot))).is_ok(),
            To::Each(to) => to.blocking_send(shot).is_ok(),
        }
    }

    /// False when nobody takes frames any more.
    pub(crate) fn is_open(&self) -> bool {
        match &self.to {
            To::Newest(to) => !to.is_closed(),
            To::Each(to) => !to.is_closed(),
        }
    }
}

/// Starts the producer on its thread.
///
/// # Errors
/// [`DeviceError::Thread`].
pub(crate) fn start(
    producer: Box<dyn Producer>,
    is_each: bool,
    faults: Faults,
) -> Result<(Inlet, SourceEnd), DeviceError> {
    let (to, inlet) = if is_each {
        let (sender, receiver) = mpsc::channel(WAITING);
        (To::Each(sender), Inlet::Each(receiver))
    } else {
        let (sender, receiver) = watch::channel(None);
        (To::Newest(sender), Inlet::Newest(receiver))
    };
    let end = SourceEnd::default();
    let at_end = end.clone();
    let outlet = Outlet { to, faults };
    let run = move || match producer.run(&outlet) {
        // Said before the outlet is dropped, which is what the agent hears.
        Ok(()) => at_end.0.store(true, Ordering::Release),
        Err(reason) => tracing::error!(reason, "the source of frames broke off"),
    };
    thread::Builder::new().name("source".into()).spawn(run).map_err(DeviceError::Thread)?;
    Ok((inlet, end))
}
