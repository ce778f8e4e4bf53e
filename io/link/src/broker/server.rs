//! The sockets of the broker: one task for each connection, all on one thread.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};
use std::{io, net};

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, oneshot::Receiver};
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{sleep, timeout};

use super::connections::{Connections, OUTPUT_BYTES};
use super::sessions::ConnectionId;

/// Bytes that one read may take from a socket.
const READ_BYTES: usize = 64 * 1024;
/// Time between two checks of keep-alives, last wills and expiries.
const TICK: Duration = Duration::from_millis(100);
/// Longest wait for a client to read the broker's last packet and close. Closing a socket with unread bytes could discard the packet.
const LINGER: Duration = Duration::from_secs(1);
/// Longest wait for the last packets when the broker stops, in milliseconds.
const STOP_LIMIT_MS: u32 = 200;

struct Server {
    connections: RefCell<Connections>,
    /// Wakes the task of a connection that has something to write.
    tasks: RefCell<HashMap<ConnectionId, Rc<Notify>>>,
    start: Instant,
}

/// Serves until `stop` resolves.
pub(super) fn serve(listener: net::TcpListener, stop: Receiver<()>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (connections, tasks) = (RefCell::default(), RefCell::default());
    let server = Rc::new(Server { connections, tasks, start: Instant::now() });
    LocalSet::new().block_on(&runtime, async {
        let listener = TcpListener::from_std(listener)?;
        tokio::select! {
            () = accept(&server, &listener) => {}
            () = tick(&server) => {}
            _ = stop => {}
        }
        server.with(Connections::shut_down);
        for _ in 0..STOP_LIMIT_MS {
            if !server.tasks.borrow().is_empty() {
                sleep(Duration::from_millis(1)).await;
            }
        }
        Ok(())
    })
}

async fn accept(server: &Rc<Server>, listener: &TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(spawn_local(connection(Rc::clone(server), stream))),
            // The process may have no free file descriptor; the broker tries again later.
            Err(_) => sleep(TICK).await,
        }
    }
}

async fn tick(server: &Server) {
    loop {
        sleep(TICK).await;
        server.with(Connections::tick);
    }
}

async fn connection(server: Rc<Server>, mut stream: TcpStream) {
    // Without `nodelay` a small packet may wait 40 ms for the acknowledgement of the packet before it.
    let _ = stream.set_nodelay(true);
    let Some(id) = server.with(Connections::open) else { return };
    let last_bytes = exchange(&server, id, &mut stream).await;
    server.tasks.borrow_mut().remove(&id);
    if let Ok(last_bytes) = last_bytes {
        let _ = timeout(LINGER, part(&mut stream, last_bytes)).await;
    }
    server.with(|connections, now_ms| connections.close(id, now_ms));
}

/// Passes bytes between a socket and the protocol. Returns the last bytes for the client if the protocol ends the connection.
async fn exchange(server: &Server, id: ConnectionId, stream: &mut TcpStream) -> io::Result<BytesMut> {
    let wake = Rc::new(Notify::new());
    server.tasks.borrow_mut().insert(id, Rc::clone(&wake));
    let (mut reader, mut writer) = stream.split();
    let (mut input, mut output) = (BytesMut::new(), BytesMut::new());
    loop {
        let goes_on = server.with(|connections, now_ms| {
            connections.receive(id, &mut input, now_ms);
            connections.write(id, &mut output, now_ms)
        });
        if !goes_on {
            return Ok(output);
        }
        input.reserve(READ_BYTES);
        tokio::select! {
            read = reader.read_buf(&mut input), if output.len() < OUTPUT_BYTES => {
                // The client closed the connection.
                if read? == 0 { return Err(io::ErrorKind::UnexpectedEof.into()) }
            }
            written = writer.write_buf(&mut output), if !output.is_empty() => { written?; }
            () = wake.notified() => {}
        }
    }
}

/// Writes the last bytes, then waits until the client has closed the connection too.
async fn part(stream: &mut TcpStream, mut last_bytes: BytesMut) -> io::Result<()> {
    stream.write_all_buf(&mut last_bytes).await?;
    stream.shutdown().await?;
    let mut unread = [0; 4096];
    while stream.read(&mut unread).await? > 0 {}
    Ok(())
}

impl Server {
    /// Calls the protocol, then wakes the tasks that have something to write.
    fn with<T>(&self, call: impl FnOnce(&mut Connections, u64) -> T) -> T {
        let mut connections = self.connections.borrow_mut();
        let now_ms = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        let result = call(&mut connections, now_ms);
        let tasks = self.tasks.borrow();
        for task in std::mem::take(&mut connections.sessions.woken).iter().filter_map(|id| tasks.get(id)) {
            task.notify_one();
        }
        result
    }
}
