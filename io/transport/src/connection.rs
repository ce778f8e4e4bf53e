//! An open connection to an endpoint, with or without TLS.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::socket::Socket;
use crate::tls::{Certificate, HandshakeRefused};

/// An open connection to an endpoint. Bytes are counted on the socket, so TLS's own bytes count too.
#[derive(Debug)]
pub struct Connection(pub(crate) Stream);

/// The two kinds of streams.
#[derive(Debug)]
pub(crate) enum Stream {
    /// Bytes as they are.
    Plain(Socket),
    /// Bytes in records of TLS.
    Tls(Box<tokio_rustls::client::TlsStream<Socket>>),
}

impl Connection {
    /// Certificate of the peer; `None` without TLS, or if the certificate cannot be parsed.
    pub fn peer_certificate(&self) -> Option<Certificate> {
        match &self.0 {
            Stream::Plain(_) => None,
            Stream::Tls(stream) => Certificate::parse(stream.get_ref().1.peer_certificates()?.first()?).ok(),
        }
    }

    fn stream(self: Pin<&mut Self>) -> Pin<&mut dyn Duplex> {
        match &mut self.get_mut().0 {
            Stream::Plain(socket) => Pin::new(socket),
            Stream::Tls(stream) => Pin::new(stream.as_mut()),
        }
    }
}

/// A stream of bytes in both directions.
trait Duplex: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Duplex for T {}

impl AsyncRead for Connection {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        // In TLS 1.3 the peer's refusal of this end's certificate comes after the handshake, with the first read.
        self.stream().poll_read(cx, buf).map_err(HandshakeRefused::of_alert)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.stream().poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream().poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.0 {
            Stream::Plain(socket) => socket.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(cx)
    }
}
