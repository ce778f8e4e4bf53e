//! A port for a program that starts later.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use parking_lot::Mutex;
use socket2::{Domain, Socket, Type};

/// Sockets of [`held_port`]; open for as long as this process runs.
static HELD: Mutex<Vec<Socket>> = Mutex::new(Vec::new());

/// A port on loopback where nobody listens, held for one listener of this process or of a program that it starts.
///
/// ```text
/// this process: bound, never listens ── the system gives the port to nobody else
/// a program that is told the port ───── binds it too (SO_REUSEADDR) and listens, as often as it likes
/// ```
///
/// Until a program listens, a connection is refused. The port is held until this process ends.
///
/// # Errors
/// The system's error when it has no free port.
pub fn held_port() -> io::Result<u16> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
    let port = socket.local_addr()?.as_socket().map_or(0, |address| address.port());
    HELD.lock().push(socket);
    Ok(port)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_held_port_refuses_connections_and_takes_one_listener_after_the_other() {
        let port = held_port().unwrap();
        for _ in 0..2 {
            let refused = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
            TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
            let second = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap_err();
            assert_eq!(second.kind(), io::ErrorKind::AddrInUse);
            drop(listener);
        }
    }

    #[test]
    fn the_system_gives_a_held_port_to_nobody_else() {
        let port = held_port().unwrap();
        let others: Vec<_> = (0..500).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).collect();
        assert!(others.iter().all(|other| other.local_addr().unwrap().port() != port));
    }
}
