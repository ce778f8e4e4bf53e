//! A connection to a broker that a test can cut, and limits of a broker.

use std::io;

use headwater_transport::Endpoint;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::limits::BrokerLimits;

/// Limits of a broker that meets every need.
pub const GOOD_LIMITS: BrokerLimits = BrokerLimits {
    max_packet_bytes: None,
    receive_max: 20,
    topic_alias_max: 10,
    keeps_retained: true,
    max_qos: 2,
    takes_wildcards: true,
};

/// A TCP proxy on loopback. A cut closes both ends of every connection, as a network failure does.
#[derive(Debug)]
pub struct TcpProxy {
    address: Endpoint,
    state: watch::Sender<State>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    cuts: u64,
    is_open: bool,
}

impl TcpProxy {
    /// Starts a proxy that lets connections through to the broker until the proxy is dropped.
    ///
    /// # Errors
    /// The system's error when there is no free port.
    pub async fn to(broker: Endpoint) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let address = Endpoint::mqtt("127.0.0.1", port).map_err(io::Error::other)?;
        let (state, states) = watch::channel(State { cuts: 0, is_open: true });
        tokio::spawn(accept(listener, broker, states));
        Ok(Self { address, state })
    }

    /// Address that clients use in place of the broker's address.
    pub fn address(&self) -> Endpoint {
        self.address.clone()
    }

    /// Ends every connection; new connections work.
    pub fn cut(&self) {
        self.state.send_modify(|state| state.cuts += 1);
    }

    /// Ends every connection, and closes each new connection at once until [`TcpProxy::open`].
    pub fn close(&self) {
        self.state.send_modify(|state| *state = State { cuts: state.cuts + 1, is_open: false });
    }

    /// Lets connections through again.
    pub fn open(&self) {
        self.state.send_modify(|state| state.is_open = true);
    }
}

async fn accept(listener: TcpListener, broker: Endpoint, mut states: watch::Receiver<State>) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            // The proxy was dropped.
            _ = states.wait_for(|_| false) => return,
        };
        let Ok((client, _)) = accepted else { continue };
        let now = *states.borrow();
        if now.is_open {
            tokio::spawn(relay(client, broker.clone(), now.cuts, states.clone()));
        }
    }
}

async fn relay(mut client: TcpStream, broker: Endpoint, cuts: u64, mut states: watch::Receiver<State>) {
    let Ok(mut server) = TcpStream::connect((broker.host(), broker.port())).await else { return };
    // Without `nodelay` the proxy would add delays.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    tokio::select! {
        _ = copy_bidirectional(&mut client, &mut server) => {}
        _ = states.wait_for(|state| state.cuts != cuts) => {}
    }
}
