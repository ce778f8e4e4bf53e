//! Reasons why a client gets no TLS connection, in plain words.

use std::io;

use rustls::CertificateError as Certificate;
use rustls::Error;

/// Says why the handshake with a client failed.
pub(super) fn failure(error: &io::Error) -> String {
    let reason = error.get_ref().and_then(|reason| reason.downcast_ref::<Error>());
    match reason {
        Some(Error::NoCertificatesPresented) => "it shows no certificate".into(),
        Some(Error::InvalidCertificate(refused)) => of_certificate(refused),
        Some(Error::AlertReceived(alert)) => {
            format!("it refuses the certificate of this service ({alert:?})")
        }
        Some(Error::InvalidMessage(_)) => "it does not speak TLS".into(),
        Some(Error::PeerIncompatible(_)) => format!("it speaks another TLS than this service: {error}"),
        Some(_) => error.to_string(),
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            "it closed the connection during the handshake".into()
        }
        None => error.to_string(),
    }
}

fn of_certificate(refused: &Certificate) -> String {
    match refused {
        // An authority with the expected name and another key shows in the signature alone.
        Certificate::UnknownIssuer | Certificate::BadSignature => {
            "its certificate is of an unknown authority".into()
        }
        Certificate::Expired | Certificate::ExpiredContext { .. } => "its certificate has expired".into(),
        Certificate::NotValidYet | Certificate::NotValidYetContext { .. } => {
            "its certificate is not valid yet".into()
        }
        Certificate::Revoked => "its certificate is revoked".into(),
        other => format!("its certificate is not accepted: {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use rustls::AlertDescription;

    use super::*;

    #[track_caller]
    fn check(error: Error, expected: &str) {
        let text = failure(&io::Error::new(io::ErrorKind::InvalidData, error));
        assert!(text.contains(expected), "{expected} in {text}");
    }

    #[test]
    fn each_refusal_of_a_client_is_said_in_plain_words() {
        let certificate = Error::InvalidCertificate;
        check(Error::NoCertificatesPresented, "shows no certificate");
        check(certificate(Certificate::UnknownIssuer), "an unknown authority");
        check(certificate(Certificate::BadSignature), "an unknown authority");
        check(certificate(Certificate::Expired), "has expired");
        check(certificate(Certificate::NotValidYet), "not valid yet");
        check(certificate(Certificate::Revoked), "is revoked");
        check(certificate(Certificate::BadEncoding), "not accepted: BadEncoding");
        check(Error::AlertReceived(AlertDescription::UnknownCA), "refuses the certificate of this service");
        let ended = failure(&io::Error::new(io::ErrorKind::UnexpectedEof, "tls handshake eof"));
        assert_eq!(ended, "it closed the connection during the handshake");
    }
}
