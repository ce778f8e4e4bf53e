//! A connection to a broker that a test can cut.

use std::io;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::address::BrokerAddress;

/// A TCP relay on loopback. Cut, both ends see their connections close, as when a network goes away and says so.
#[derive(Debug)]
pub struct Cable {
    end: BrokerAddress,
    state: watch::Sender<State>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    cuts: u64,
    is_plugged: bool,
}

impl Cable {
    /// A cable to the broker, plugged in. Lives until dropped.
    ///
    /// # Errors
    /// When there is no free port.
    pub async fn to(broker: BrokerAddress) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let end = BrokerAddress::new("127.0.0.1", port).map_err(io::Error::other)?;
        let (state, states) = watch::channel(State { cuts: 0, is_plugged: true });
        tokio::spawn(relay(listener, broker, states));
        Ok(Self { end, state })
    }

    /// The near end: what a client connects to instead of the broker.
    pub fn end(&self) -> BrokerAddress {
        self.end.clone()
    }

    /// Ends every connection through the cable; the next one works again.
    pub fn cut(&self) {
        self.state.send_modify(|state| state.cuts += 1);
    }

    /// Ends every connection, and refuses new ones until [`Cable::plug`].
    pub fn unplug(&self) {
        self.state.send_modify(|state| *state = State { cuts: state.cuts + 1, is_plugged: false });
    }

    /// Lets connections through again.
    pub fn plug(&self) {
        self.state.send_modify(|state| state.is_plugged = true);
    }
}

async fn relay(listener: TcpListener, broker: BrokerAddress, mut states: watch::Receiver<State>) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            // The cable was dropped.
            _ = states.wait_for(|_| false) => return,
        };
        let Ok((near, _)) = accepted else { continue };
        let now = *states.borrow();
        if now.is_plugged {
            tokio::spawn(carry(near, broker.clone(), now.cuts, states.clone()));
        }
    }
}

async fn carry(mut near: TcpStream, broker: BrokerAddress, cuts: u64, mut states: watch::Receiver<State>) {
    let Ok(mut far) = TcpStream::connect((broker.host(), broker.port())).await else { return };
    // Without it the relay would add stalls of its own.
    let _ = (near.set_nodelay(true), far.set_nodelay(true));
    tokio::select! {
        _ = copy_bidirectional(&mut near, &mut far) => {}
        _ = states.wait_for(|state| state.cuts != cuts) => {}
    }
}
