//! Checks of the hosts, address and port that the user gives `headwater enroll` for a server.

use std::net::IpAddr;

use rustls::pki_types::DnsName;

use crate::error::EnrollError;
use crate::mosquitto::BrokerOptions;

/// Checks the names and addresses by which clients call a server.
///
/// # Errors
/// [`EnrollError::Setting`] names the first host that no client can connect to.
pub(crate) fn check_hosts(hosts: &[String]) -> Result<(), EnrollError> {
    hosts.iter().try_for_each(|host| match host.parse::<IpAddr>() {
        Ok(ip) if ip.is_unspecified() => Err(EnrollError::Setting {
            setting: "--host",
            expected: "a name or an address that clients call",
            found: host.clone(),
            advice: "no client can call this address; name the machine",
        }),
        Ok(_) => Ok(()),
        Err(_) => check_name("--host", host),
    })
}

impl BrokerOptions {
    /// Checks the broker's port and address.
    ///
    /// # Errors
    /// [`EnrollError::Setting`]: port 0, or an address that is neither a host name nor an IP address.
    pub(crate) fn check(&self) -> Result<(), EnrollError> {
        if self.port == 0 {
            return Err(EnrollError::Setting {
                setting: "--port",
                expected: "1 to 65535",
                found: "0".into(),
                advice: "clients must know the port; leave --port out for 8883",
            });
        }
        if self.address.is_empty() || self.address.parse::<IpAddr>().is_ok() {
            return Ok(());
        }
        check_name("--listen", &self.address)
    }
}

fn check_name(setting: &'static str, name: &str) -> Result<(), EnrollError> {
    let advice = if name.contains("://") {
        "leave the scheme and the port away"
    } else if name.starts_with('[') {
        "write an IPv6 address without brackets"
    } else if name.contains(':') {
        "leave the port away: the broker's is --port"
    } else if is_number(name.rsplit('.').next().unwrap_or_default()) {
        "an IPv4 address has four numbers up to 255"
    } else {
        "names have letters, digits, `-`, `_` and dots"
    };
    if DnsName::try_from(name).is_ok() {
        return Ok(());
    }
    let expected = "a host name or an IP address";
    Err(EnrollError::Setting { setting, expected, found: name.to_owned(), advice })
}

/// Returns true for a text of digits alone. The last part of a host name has other letters, so a text that ends in a number is a wrong IPv4
/// address.
fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_that_clients_can_call_are_taken() {
        for host in ["localhost", "broker.hall.example", "cam_0-gate", "10.0.0.5", "fd00::5", "x"] {
            check_hosts(&[host.to_owned()]).expect(host);
        }
    }

    #[test]
    fn senseless_hosts_are_refused_with_what_to_do() {
        for (host, advice) in [
            ("https://broker", "leave the scheme"),
            ("broker:8883", "leave the port away"),
            ("[fd00::5]", "without brackets"),
            ("10.0.0", "four numbers"),
            ("10.0.0.256", "four numbers"),
            ("0.0.0.0", "no client can call"),
            ("", "names have letters"),
            ("two words", "names have letters"),
            ("a..b", "names have letters"),
            ("-a", "names have letters"),
        ] {
            let error = check_hosts(&[host.to_owned()]).expect_err(host).to_string();
            assert!(error.starts_with("--host: expected a ") && error.contains(advice), "{error}");
            assert!(error.contains(&format!("found {host:?}")), "{error}");
        }
    }

    #[test]
    fn port_and_address_of_the_broker_are_checked() {
        let check = |port: u16, address: &str| {
            BrokerOptions { port, address: address.into(), folder: None }
                .check()
                .map_err(|error| error.to_string())
        };
        for address in ["", "0.0.0.0", "::", "127.0.0.1", "localhost"] {
            assert_eq!(check(8883, address), Ok(()));
        }
        assert!(check(0, "").unwrap_err().starts_with("--port: expected 1 to 65535, found \"0\""));
        assert!(check(8883, "10.0.0.5:8883").unwrap_err().contains("--listen: expected a host name"));
    }
}
