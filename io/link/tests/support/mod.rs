//! A real broker and real links for the tests.

use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use headwater_link::broker::EmbeddedBroker;
use headwater_link::{Incoming, Link, LinkConfig, QoS};
use headwater_transport::Endpoint;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Longest wait in a test; only a failing test waits this long.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(20);

/// The broker of this test binary: the tests share it and differ in topics.
pub(crate) fn broker() -> Endpoint {
    static BROKER: OnceLock<EmbeddedBroker> = OnceLock::new();
    BROKER.get_or_init(|| EmbeddedBroker::start().expect("a broker on a free port")).address()
}

/// A connected link, and its events.
pub(crate) async fn connected(config: LinkConfig) -> (Link, mpsc::Receiver<Incoming>) {
    let (link, mut incoming) = Link::start(config).expect("valid settings");
    until_connected(&mut incoming).await;
    (link, incoming)
}

/// Waits for `Connected`, and drops other events.
pub(crate) async fn until_connected(incoming: &mut mpsc::Receiver<Incoming>) {
    while next(incoming).await != Incoming::Connected {}
}

/// Waits for the next message, and drops other events.
pub(crate) async fn next_message(incoming: &mut mpsc::Receiver<Incoming>) -> (String, Bytes, bool) {
    loop {
        if let Incoming::Message { topic, payload, retain } = next(incoming).await {
            return (topic, payload, retain);
        }
    }
}

pub(crate) async fn next(incoming: &mut mpsc::Receiver<Incoming>) -> Incoming {
    timeout(MAX_WAIT, incoming.recv()).await.expect("nothing arrived in time").expect("the link ended")
}

/// A link with one subscription.
pub(crate) async fn reader(name: &str, filter: &str) -> (Link, mpsc::Receiver<Incoming>) {
    connected(LinkConfig::new(broker(), name).subscribe(filter, QoS::AtLeastOnce)).await
}
