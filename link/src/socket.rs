//! A TCP stream that counts its bytes and never lets the peer's Nagle algorithm wait for our acknowledgement.
//!
//! Brokers that leave Nagle on (rumqttd does, mosquitto by default) hold a second small packet back until the first is
//! acknowledged; Linux delays that acknowledgement by 40 ms. `TCP_QUICKACK` sends it at once, but the kernel takes the option
//! back by itself, so it is set again after every read. Our own writes go out at once by `TCP_NODELAY`.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::address::BrokerAddress;
use crate::wire::WireCounters;

/// The stream.
#[derive(Debug)]
pub(crate) struct CountedSocket {
    stream: TcpStream,
    wire: Arc<WireCounters>,
}

impl CountedSocket {
    /// Connects to the first address of the host that answers.
    pub(crate) async fn connect(broker: BrokerAddress, wire: Arc<WireCounters>) -> io::Result<Self> {
        let stream = TcpStream::connect((broker.host(), broker.port())).await?;
        stream.set_nodelay(true)?;
        acknowledge_at_once(&stream);
        Ok(Self { stream, wire })
    }
}

impl AsyncRead for CountedSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let result = Pin::new(&mut self.stream).poll_read(cx, buf);
        let read = buf.filled().len() - before;
        if read > 0 {
            self.wire.add_received(read);
            acknowledge_at_once(&self.stream);
        }
        result
    }
}

impl AsyncWrite for CountedSocket {
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

impl CountedSocket {
    fn count_sent(&self, result: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(bytes)) = result {
            self.wire.add_sent(*bytes);
        }
    }
}

/// Sends what acknowledgement is due, and the next ones without delay.
#[cfg(target_os = "linux")]
fn acknowledge_at_once(stream: &TcpStream) {
    // A socket that refuses the option still works, only slower.
    let _ = socket2::SockRef::from(stream).set_tcp_quickack(true);
}

/// Other systems have no such option.
#[cfg(not(target_os = "linux"))]
fn acknowledge_at_once(_stream: &TcpStream) {}
