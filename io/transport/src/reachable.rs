//! The address at which a listener of this machine is reached.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The address of this machine at which a listener on `listen` answers: loopback for a listener on every interface.
pub fn reachable_address(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_on_every_interface_is_asked_on_loopback() {
        for (listen, asked) in [
            ("0.0.0.0:9601", "127.0.0.1:9601"),
            ("[::]:9601", "[::1]:9601"),
            ("10.0.0.5:9601", "10.0.0.5:9601"),
            ("127.0.0.2:0", "127.0.0.2:0"),
        ] {
            assert_eq!(reachable_address(listen.parse().unwrap()), asked.parse().unwrap());
        }
    }
}
