//! Tells the owner of a link which of its messages the broker refuses.

use std::sync::Arc;

use rumqttc::PublishNotice;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::acknowledgement::Delivery;
use crate::counts::count;
use crate::incoming::{Incoming, PublishRefusal};
use crate::shared::Shared;

/// Waits for the broker's answers to messages at `QoS` 1, and reports each refusal as an event of the link.
///
/// Each answer has a small task of its own, which ends with the answer. So there are at most as many tasks as messages that may wait
/// to be written and to be acknowledged.
#[derive(Clone, Debug)]
pub(crate) struct RefusalReporter {
    /// Weak, so that the channel ends with the driver.
    incoming: mpsc::WeakSender<Incoming>,
    shared: Arc<Shared>,
    runtime: Handle,
}

impl RefusalReporter {
    /// A reporter for the owner behind this channel. Needs a tokio runtime.
    pub(crate) fn new(incoming: &mpsc::Sender<Incoming>, shared: &Arc<Shared>) -> Self {
        Self { incoming: incoming.downgrade(), shared: Arc::clone(shared), runtime: Handle::current() }
    }

    /// Waits in the background for the answer to a message.
    pub(crate) fn watch(&self, topic: String, notice: PublishNotice) {
        let Self { incoming, shared, .. } = self.clone();
        self.runtime.spawn(async move {
            let Delivery::Refused { reason, needs_rights } = Delivery::of(notice, &shared.seen).await else {
                return;
            };
            let reason =
                if needs_rights { PublishRefusal::NotAuthorized } else { PublishRefusal::Other(reason) };
            count(&shared.counters.refused_by_broker);
            if let Some(incoming) = incoming.upgrade() {
                // If the channel is full or closed, the refusal is only counted: tasks that wait for a slow owner could pile up.
                let _ = incoming.try_send(Incoming::Refused { topic, reason });
            }
        });
    }
}
