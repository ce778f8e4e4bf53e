//! The check of a running process from outside: for containers, whose images have no other program that could ask.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// Longest time for each step of the request.
const LIMIT: Duration = Duration::from_secs(3);

/// Bytes of an answer that are read.
const MAX_ANSWER_BYTES: u64 = 4096;

/// Asks the admin port of a running process whether the process is live. Waits at most a few seconds.
///
/// # Errors
/// A sentence: nobody answers, or the process says that it is not live, and why.
pub fn check_live(listen: SocketAddr) -> Result<(), String> {
    let address = SocketAddr::new(reachable(listen.ip()), listen.port());
    let answer = ask(address).map_err(|error| format!("no answer of the admin port {address}: {error}"))?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    match head.split(' ').nth(1) {
        Some("200") => Ok(()),
        Some(status) => Err(format!("{address}/live: {status}: {}", body.trim())),
        None => Err(format!(
            "{address}: expected an answer of HTTP, found {:?}",
            head.chars().take(40).collect::<String>()
        )),
    }
}

fn ask(address: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, LIMIT)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    stream.write_all(
        format!("GET /live HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").as_bytes(),
    )?;
    let mut answer = Vec::new();
    stream.take(MAX_ANSWER_BYTES).read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// The address of this machine at which a listener on `ip` answers.
fn reachable(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(v4) if v4.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(v6) if v6.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_on_every_address_is_asked_on_loopback() {
        for (listen, asked) in [("0.0.0.0", "127.0.0.1"), ("::", "::1"), ("127.0.0.2", "127.0.0.2")] {
            assert_eq!(reachable(listen.parse().unwrap()), asked.parse::<IpAddr>().unwrap());
        }
    }
}
