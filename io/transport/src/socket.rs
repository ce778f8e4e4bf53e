//! A TCP stream that counts its bytes, and acknowledges the bytes of a broker at once.
//!
//! Brokers with Nagle's algorithm (Mosquitto by default) send a second small packet only after the first is acknowledged.
//! Linux delays that acknowledgement by 40 ms. `TCP_QUICKACK` sends the acknowledgement at once. Linux resets the option by
//! itself, so the option is set again after every read.
//!
//! ```text
//! broker ── packet 1 ──> here          packet 2 waits in the broker ...
//! broker <─── ACK ────── here          ... up to 40 ms without TCP_QUICKACK
//! broker ── packet 2 ──> here
//! ```

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// A TCP stream whose bytes are counted.
#[derive(Debug)]
pub(crate) struct Socket {
    stream: TcpStream,
    wire: Arc<WireCounters>,
    /// True when every read is acknowledged at once; otherwise Linux may wait for 40 ms.
    acknowledges_at_once: bool,
}

/// Bytes on the sockets of a connector since its start, including the headers of every protocol above TCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireBytes<N = u64> {
    /// Bytes written.
    pub sent: N,
    /// Bytes read.
    pub received: N,
}

/// Counters of one connector, over all its connections.
pub(crate) type WireCounters = WireBytes<AtomicU64>;

impl Socket {
    pub(crate) fn new(
        stream: TcpStream,
        wire: Arc<WireCounters>,
        acknowledges_at_once: bool,
    ) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let socket = Self { stream, wire, acknowledges_at_once };
        socket.acknowledge();
        Ok(socket)
    }

    fn acknowledge(&self) {
        #[cfg(target_os = "linux")]
        if self.acknowledges_at_once {
            // A socket that refuses the option still works, only slower.
            let _ = socket2::SockRef::from(&self.stream).set_tcp_quickack(true);
        }
    }

    fn count_sent(&self, result: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(bytes)) = result {
            self.wire.sent.fetch_add(*bytes as u64, Relaxed);
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let result = Pin::new(&mut self.stream).poll_read(cx, buf);
        let read = buf.filled().len() - before;
        if read > 0 {
            self.wire.received.fetch_add(read as u64, Relaxed);
            self.acknowledge();
        }
        result
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.count_sent(&result);
        result
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.count_sent(&result);
        result
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_small_packet_is_sent_at_once() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let stream = TcpStream::connect(address).await.expect("a listener");
        let socket = Socket::new(stream, Arc::default(), false).expect("open");
        assert!(socket.stream.nodelay().expect("open"), "TCP_NODELAY");
    }
}
