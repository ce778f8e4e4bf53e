//! Tests with peers that send or read slowly. Every address of 127.0.0.0/8 is a peer of its own.

use std::convert::Infallible;
use std::net::Ipv4Addr;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::*;

/// Longer than any step of a test takes on a busy machine.
const LONG: Duration = Duration::from_secs(60);
/// A time limit so short that a test can wait until it is exceeded.
const SHORT: Duration = Duration::from_millis(200);
/// Time between two checks of a count.
const PAUSE: Duration = Duration::from_millis(5);
/// More bytes than the buffers of two sockets hold.
const BIG_BYTES: usize = 64 << 20;

/// A server that answers `/` at once, `/big` with many bytes, `/body` after the body, and `/wait` once `release` is set.
struct Server {
    address: SocketAddr,
    closed: Arc<ClosedConnections>,
    release: watch::Sender<bool>,
    /// Requests that wait in `/wait`.
    waiting: watch::Receiver<usize>,
    task: JoinHandle<()>,
    stop: watch::Sender<bool>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn limits(max_connections: usize, max_connections_per_address: usize) -> ServerLimits {
    ServerLimits {
        max_connections,
        max_connections_per_address,
        head_timeout: LONG,
        answer_timeout: LONG,
        idle_timeout: LONG,
        grace: LONG,
    }
}

impl Server {
    async fn start(limits: ServerLimits) -> Self {
        let listener = listen(([127, 0, 0, 1], 0).into()).await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let (release, released) = watch::channel(false);
        let (entered, waiting) = watch::channel(0);
        let (stop, mut stopped) = watch::channel(false);
        let entered = Arc::new(entered);
        let service = move || {
            let (released, entered) = (released.clone(), Arc::clone(&entered));
            service_fn(move |request| answer(request, released.clone(), Arc::clone(&entered)))
        };
        let closed = Arc::new(ClosedConnections::default());
        let stop_asked = async move { _ = stopped.wait_for(|stop| *stop).await };
        let task = tokio::spawn(serve(listener, service, limits, Arc::clone(&closed), stop_asked));
        Self { address, closed, release, waiting, task, stop }
    }

    /// A connection from 127.0.0.`peer`.
    async fn connect(&self, peer: u8) -> TcpStream {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind((Ipv4Addr::new(127, 0, 0, peer), 0).into()).expect("an address of this machine");
        // Unread answers soon fill a small buffer, so the server notices them.
        socket.set_recv_buffer_size(4096).expect("a size");
        socket.connect(self.address).await.expect("a listener")
    }

    /// A connection that sends these bytes.
    async fn sends(&self, peer: u8, bytes: &[u8]) -> TcpStream {
        let mut stream = self.connect(peer).await;
        // The server may have closed the connection already.
        _ = stream.write_all(bytes).await;
        stream
    }

    async fn slow_head(&self, peer: u8) -> TcpStream {
        self.sends(peer, b"GET / HTTP/1.1\r\nHost").await
    }

    /// Waits until this many connections were closed for a reason.
    async fn closes(&self, reason: CloseReason, count: u64) {
        let reached = async {
            while self.closed.count(reason) < count {
                sleep(PAUSE).await;
            }
        };
        let in_time = timeout(LONG, reached).await;
        assert!(in_time.is_ok(), "{count} for {}: {:?}", reason.name(), self.closed.by_name());
    }

    /// Waits until this many requests are worked on.
    async fn works_on(&mut self, requests: usize) {
        self.waiting.wait_for(|waiting| *waiting >= requests).await.expect("the server runs");
    }
}

async fn answer(
    request: Request<Incoming>,
    mut released: watch::Receiver<bool>,
    entered: Arc<watch::Sender<usize>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let connection = request.extensions().get::<RequestConnection>().expect("every request has one").clone();
    let body = match request.uri().path() {
        "/big" => Bytes::from(vec![b'x'; BIG_BYTES]),
        "/body" => {
            entered.send_modify(|waiting| *waiting += 1);
            let body = connection.while_reading(request.into_body().collect()).await;
            body.map(http_body_util::Collected::to_bytes).unwrap_or_default()
        }
        "/wait" => {
            entered.send_modify(|waiting| *waiting += 1);
            _ = released.wait_for(|released| *released).await;
            Bytes::from_static(b"waited")
        }
        _ => Bytes::from(connection.peer().ip().to_string()),
    };
    Ok(Response::new(Full::new(body)))
}

/// Asks for `/`. Returns whether the server answers with the peer's address.
async fn is_answered(stream: &mut TcpStream) -> bool {
    let peer = stream.local_addr().expect("connected").ip().to_string();
    let asked = async {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await?;
        let mut answer = Vec::new();
        while !answer.ends_with(peer.as_bytes()) {
            if stream.read_buf(&mut answer).await? == 0 {
                return Ok(false);
            }
        }
        Ok::<_, io::Error>(answer.starts_with(b"HTTP/1.1 200"))
    };
    timeout(LONG, asked).await.expect("an answer or an end").unwrap_or(false)
}

/// Waits until the server has closed a connection.
async fn is_closed(stream: &mut TcpStream) {
    let mut rest = Vec::new();
    // The end of the stream and a reset both mean a closed connection.
    _ = timeout(LONG, stream.read_to_end(&mut rest)).await.expect("closed");
}

#[tokio::test]
async fn slow_heads_of_one_address_leave_room_for_others() {
    let server = Server::start(limits(8, 4)).await;
    let mut slow = Vec::new();
    for _ in 0..20 {
        slow.push(server.slow_head(1).await);
    }
    server.closes(CloseReason::AddressLimit, 16).await;
    assert!(is_answered(&mut server.connect(2).await).await);
    assert_eq!(server.closed.count(CloseReason::ConnectionLimit), 0);
}

#[tokio::test]
async fn a_full_address_gets_a_new_connection_once_another_has_waited_a_second() {
    let server = Server::start(limits(8, 2)).await;
    let (mut first, _second) = (server.slow_head(1).await, server.slow_head(1).await);
    assert!(!is_answered(&mut server.connect(1).await).await, "a burst is refused");
    let served = async {
        while !is_answered(&mut server.connect(1).await).await {
            sleep(PAUSE).await;
        }
    };
    timeout(LONG, served).await.expect("answered before the limit of heads");
    is_closed(&mut first).await;
}

#[tokio::test]
async fn with_all_connections_taken_the_longest_wait_for_a_head_is_closed_first() {
    let server = Server::start(limits(3, 3)).await;
    let mut idle = server.connect(1).await;
    assert!(is_answered(&mut idle).await);
    let mut slow = [server.slow_head(1).await, server.slow_head(2).await];
    assert!(is_answered(&mut server.connect(3).await).await);
    is_closed(&mut slow[0]).await;
    assert_eq!(server.closed.count(CloseReason::ConnectionLimit), 1);
    assert!(is_answered(&mut idle).await, "a connection that owes a request goes before an idle one");
}

#[tokio::test]
async fn with_all_connections_taken_an_idle_one_makes_room() {
    let server = Server::start(limits(1, 1)).await;
    let mut idle = server.connect(1).await;
    assert!(is_answered(&mut idle).await);
    assert!(is_answered(&mut server.connect(2).await).await);
    is_closed(&mut idle).await;
}

#[tokio::test]
async fn a_running_request_is_never_closed_for_a_new_connection() {
    let mut server = Server::start(limits(2, 2)).await;
    let wait = b"GET /wait HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let mut running = [server.sends(1, wait).await, server.sends(2, wait).await];
    server.works_on(2).await;
    assert!(!is_answered(&mut server.connect(3).await).await, "refused at once");
    assert_eq!(server.closed.count(CloseReason::ConnectionLimit), 1);
    server.release.send_replace(true);
    for stream in &mut running {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an answer");
        assert!(answer.ends_with("waited"), "{answer}");
    }
}

#[tokio::test]
async fn a_slow_body_makes_room_for_a_new_connection() {
    let mut server = Server::start(limits(1, 1)).await;
    let mut slow = server.sends(1, b"POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nbegin").await;
    server.works_on(1).await;
    assert!(is_answered(&mut server.connect(2).await).await);
    is_closed(&mut slow).await;
}

#[tokio::test]
async fn a_head_that_takes_too_long_closes_its_connection() {
    let server = Server::start(ServerLimits { head_timeout: SHORT, ..limits(8, 8) }).await;
    let (mut silent, mut slow) = (server.connect(1).await, server.slow_head(1).await);
    is_closed(&mut silent).await;
    is_closed(&mut slow).await;
    server.closes(CloseReason::HeadTimeout, 2).await;
}

#[tokio::test]
async fn an_idle_connection_outlives_the_limit_of_heads_and_a_slow_second_head_does_not() {
    let server = Server::start(ServerLimits { head_timeout: SHORT, ..limits(8, 8) }).await;
    let (mut idle, mut slow) = (server.connect(1).await, server.connect(1).await);
    assert!(is_answered(&mut idle).await && is_answered(&mut slow).await);
    slow.write_all(b"GET /").await.expect("open");
    is_closed(&mut slow).await;
    server.closes(CloseReason::HeadTimeout, 1).await;
    // By now the limit for heads has passed for the idle connection too.
    assert!(is_answered(&mut idle).await);
}

#[tokio::test]
async fn an_idle_connection_ends_after_its_own_limit() {
    let server = Server::start(ServerLimits { idle_timeout: SHORT, ..limits(8, 8) }).await;
    let mut idle = server.connect(1).await;
    assert!(is_answered(&mut idle).await);
    is_closed(&mut idle).await;
    server.closes(CloseReason::IdleTimeout, 1).await;
}

#[tokio::test]
async fn an_answer_that_nobody_reads_closes_its_connection() {
    let server = Server::start(ServerLimits { answer_timeout: SHORT, ..limits(8, 8) }).await;
    let unread = server.sends(1, b"GET /big HTTP/1.1\r\nHost: a\r\n\r\n").await;
    server.closes(CloseReason::AnswerTimeout, 1).await;
    drop(unread);
}

#[tokio::test]
async fn with_all_connections_taken_an_unread_answer_makes_room() {
    let server = Server::start(limits(2, 2)).await;
    let ask = b"GET /big HTTP/1.1\r\nHost: a\r\n\r\n";
    let unread = [server.sends(1, ask).await, server.sends(1, ask).await];
    let served = async {
        // The server works on both requests for a moment.
        while !is_answered(&mut server.connect(2).await).await {
            sleep(PAUSE).await;
        }
    };
    timeout(LONG, served).await.expect("answered before the limit of answers");
    drop(unread);
}

#[tokio::test]
async fn a_stop_closes_waiting_connections_and_answers_running_requests() {
    let mut server = Server::start(limits(8, 8)).await;
    let (mut slow, mut idle) = (server.slow_head(1).await, server.connect(1).await);
    assert!(is_answered(&mut idle).await);
    let mut running = server.sends(2, b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n").await;
    server.works_on(1).await;
    server.stop.send_replace(true);
    is_closed(&mut slow).await;
    is_closed(&mut idle).await;
    server.release.send_replace(true);
    let mut answer = String::new();
    running.read_to_string(&mut answer).await.expect("an answer, and the end");
    assert!(answer.ends_with("waited"), "{answer}");
    timeout(LONG, &mut server.task).await.expect("the server ends").expect("without a panic");
}
