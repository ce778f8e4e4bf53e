//! The check of a running process from outside: for containers, whose images have no other program that could ask.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use headwater_transport::reachable_address;

use crate::admin::PROGRAM_HEADER;

/// Longest time of the whole check. A container's health check gives up after 3 s.
const LIMIT: Duration = Duration::from_secs(2);

/// Bytes of an answer after which nothing more is read.
const MAX_ANSWER_BYTES: usize = 4096;

/// Asks the admin port of a running program whether the program is live. Takes at most two seconds.
///
/// # Errors
/// A sentence: nobody answers, another program answers, or the program says that it is not live, with the reason.
pub fn check_live(listen: SocketAddr, program: &str) -> Result<(), String> {
    let address = reachable_address(listen);
    let answer = ask(address, LIMIT)
        .map_err(|error| format!("no answer of the admin port {address}: {}", reason(&error)))?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let version = head.split(' ').next().unwrap_or_default();
    let status = head.split(' ').nth(1).filter(|_| version.starts_with("HTTP/1."));
    let Some(status) = status else {
        let found: String = head.chars().take(40).collect();
        return Err(format!("{address}: expected an answer of HTTP, found {found:?}"));
    };
    let found = header(head, PROGRAM_HEADER);
    if found != Some(program) {
        let found = found.unwrap_or("another server");
        return Err(format!(
            "{address}: expected the admin port of {program}, found that of {found}; compare `admin.listen` of the programs"
        ));
    }
    match status {
        "200" => Ok(()),
        status => Err(format!("{address}/live: {status}: {}", body.trim())),
    }
}

/// Value of a header; `None` if the answer lacks the header.
fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let fields = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    let mut values = fields.filter(|(found, _)| found.eq_ignore_ascii_case(name));
    values.next().map(|(_, value)| value.trim())
}

/// The reason for people: the system's name for a passed time limit would not say that nobody answered.
fn reason(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => format!("no answer within {} s", LIMIT.as_secs_f32()),
        _ => error.to_string(),
    }
}

/// Asks, and reads the answer until its end. The limit holds for the whole exchange, also if the server sends byte after byte.
fn ask(address: SocketAddr, limit: Duration) -> io::Result<String> {
    let end = Instant::now() + limit;
    let left = || match end.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(io::Error::from(ErrorKind::TimedOut)),
        left => Ok(left),
    };
    let mut stream = TcpStream::connect_timeout(&address, left()?)?;
    stream.set_write_timeout(Some(left()?))?;
    stream.write_all(
        format!("GET /live HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").as_bytes(),
    )?;
    let (mut answer, mut buffer) = (Vec::new(), [0; 1024]);
    while answer.len() < MAX_ANSWER_BYTES {
        stream.set_read_timeout(Some(left()?))?;
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(bytes) => answer.extend_from_slice(&buffer[..bytes]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};
    use std::thread;

    use super::*;

    /// Answers one connection with these pieces, each after a pause, then closes the connection.
    fn server(pieces: &'static [&'static str], pause: Duration) -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("an address");
        thread::spawn(move || {
            let Ok((mut stream, _)) = listener.accept() else { return };
            // A close with an unread request would be a reset, which the client would see instead of the answer's end.
            let read = stream.read(&mut [0; 1024]);
            if read.is_err() {
                return;
            }
            for piece in pieces {
                thread::sleep(pause);
                if stream.write_all(piece.as_bytes()).is_err() {
                    return;
                }
            }
        });
        address
    }

    #[test]
    fn a_server_that_sends_single_bytes_meets_the_limit_of_the_whole() {
        let address = server(&["x"; 1000], Duration::from_millis(20));
        let limit = Duration::from_millis(200);
        let error = ask(address, limit).expect_err("no end");
        assert_eq!(reason(&error), "no answer within 2 s");
    }

    #[test]
    fn a_silent_server_is_named_in_words() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let error = ask(listener.local_addr().expect("an address"), Duration::from_millis(100));
        assert_eq!(reason(&error.expect_err("silence")), "no answer within 2 s");
    }

    #[test]
    fn another_program_that_answers_is_no_live_one() {
        let answers = [
            (&["HTTP/1.1 200 OK\r\n\r\nlive\n"], "found that of another server"),
            (
                &["HTTP/1.1 200 OK\r\nHeadwater-Program: headwater-aggregator\r\n\r\nlive\n"],
                "expected the admin port of headwater-device, found that of headwater-aggregator",
            ),
            (&["SSH-2.0-x y\r\n"], "expected an answer of HTTP, found \"SSH-2.0-x y"),
        ];
        for (pieces, expected) in answers {
            let error = check_live(server(pieces, Duration::ZERO), "headwater-device").expect_err(expected);
            assert!(error.contains(expected), "{error}");
        }
        let own =
            server(&["HTTP/1.1 200 OK\r\nheadwater-program: headwater-device\r\n\r\nlive\n"], Duration::ZERO);
        assert_eq!(check_live(own, "headwater-device"), Ok(()));
    }
}
