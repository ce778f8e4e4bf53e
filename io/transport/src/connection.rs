//! An open connection to an endpoint, with or without TLS.

use std::fmt::Debug;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::tls::{Certificate, HandshakeRefused};

/// An open connection to an endpoint. Bytes are counted on the socket, so TLS's own bytes count too.
#[derive(Debug)]
pub struct Connection {
    pub(crate) stream: Box<dyn Duplex>,
    pub(crate) certificate: Option<Certificate>,
}

/// A stream of bytes in both directions, with or without TLS.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Debug + Send + Sync + Unpin {}

impl<T: AsyncRead + AsyncWrite + Debug + Send + Sync + Unpin> Duplex for T {}

impl Connection {
    /// Certificate of the peer; `None` without TLS, or if the certificate cannot be parsed.
    pub fn peer_certificate(&self) -> Option<Certificate> {
        self.certificate.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // In TLS 1.3 the peer's refusal of this end's certificate comes after the handshake, with the first read.
        Pin::new(&mut self.stream).poll_read(cx, buf).map_err(HandshakeRefused::of_alert)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
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
