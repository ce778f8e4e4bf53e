//! Content of a certificate: subject, role, serial number and expiry.

use std::path::Path;
use std::time::{Duration, SystemTime};

use x509_cert::TbsCertificate;
use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::crl::CertificateList;
use x509_cert::der::asn1::{PrintableStringRef, Utf8StringRef};
use x509_cert::der::oid::ObjectIdentifier;
use x509_cert::der::{Decode, Encode};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

use super::error::TlsError;
use super::pem::certificates;

/// Object identifiers of the subject's parts (X.520).
const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");
const ORGANISATION: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.10");
const ORGANISATIONAL_UNIT: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.11");

/// Beginning of the alternative name that tells the holder's role.
pub const ROLE_PREFIX: &str = "urn:headwater:";

/// Content of a certificate. In the subject, `O` is the site, `OU` the group and `CN` the name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// Site of the holder.
    pub site: Option<String>,
    /// Group of the holder; `None` for a holder that serves all groups.
    pub group: Option<String>,
    /// Name of the holder.
    pub name: Option<String>,
    /// Role of the holder, from the alternative name `urn:headwater:{role}`; `None` for certificates of other authorities than
    /// `headwater enroll`.
    pub role: Option<String>,
    /// Serial number, hexadecimal.
    pub serial: String,
    /// End of the certificate's validity.
    pub expires: SystemTime,
}

/// State of the certificate that this end uses, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CertificateState {
    /// End of the certificate's validity, seconds since 1970.
    pub expires_unix_s: u64,
    /// True when newer files are there and cannot be used, so that the earlier certificate stays in use.
    pub has_failed_reload: bool,
}

/// Command that gives the member of a group, or of the site, a new certificate.
pub fn renew_command(group: Option<&str>, name: &str) -> String {
    let group = group.map(|group| format!(" --group {group}")).unwrap_or_default();
    format!("headwater enroll renew{group} {name}")
}

impl Certificate {
    /// Command that gives the holder a new certificate.
    pub fn renew_command(&self) -> String {
        renew_command(self.group.as_deref(), self.name.as_deref().unwrap_or("NAME"))
    }

    /// Reads the first certificate of a PEM file.
    ///
    /// # Errors
    /// [`TlsError`]: the file holds no certificate, or one that cannot be read.
    pub fn read(file: &Path) -> Result<Self, TlsError> {
        let certificates = certificates(file)?;
        let first = certificates.first().ok_or_else(|| TlsError::file(file, &"no certificate"))?;
        Self::parse(first).map_err(|reason| TlsError::file(file, &reason))
    }

    /// Parses a certificate in DER.
    ///
    /// # Errors
    /// A sentence that names the fault.
    pub fn parse(der: &[u8]) -> Result<Self, String> {
        let certificate =
            x509_cert::Certificate::from_der(der).map_err(|error| format!("certificate: {error}"))?;
        let content = certificate.tbs_certificate;
        let parts: Vec<&AttributeTypeAndValue> =
            content.subject.0.iter().flat_map(|part| part.0.iter()).collect();
        let part = |id| parts.iter().find(|part| part.oid == id).and_then(|part| text(part));
        let expires: Duration = content.validity.not_after.to_unix_duration();
        let serial = hex(content.serial_number.as_bytes());
        let role = role(&content);
        Ok(Self {
            site: part(ORGANISATION),
            group: part(ORGANISATIONAL_UNIT),
            name: part(COMMON_NAME),
            role,
            serial,
            expires: SystemTime::UNIX_EPOCH + expires,
        })
    }

    /// Checks that a certificate of `headwater enroll` belongs to this holder: the role, and the first parts of the subject (site, group,
    /// name) as far as given. A certificate of another authority names no role, and passes.
    ///
    /// # Errors
    /// A sentence with the expected and the found holder.
    pub fn check_holder(&self, role: &str, subject: &[&str]) -> Result<(), String> {
        let Some(found) = &self.role else { return Ok(()) };
        let parts = [&self.site, &self.group, &self.name].map(|part| part.clone().unwrap_or_default());
        let is_same = parts.iter().zip(subject).all(|(found, expected)| found == expected);
        if found == role && is_same {
            return Ok(());
        }
        let expected = if subject.is_empty() { String::new() } else { format!(" {}", subject.join("/")) };
        Err(format!(
            "expected the certificate of the {role}{expected}, found that of the {found} {}",
            parts.join("/")
        ))
    }

    /// The holder, for people: role, group and name, as far as the certificate names them; `None` if it names neither group nor name.
    pub fn holder(&self) -> Option<String> {
        let name = [&self.group, &self.name].into_iter().flatten().map(String::as_str).collect::<Vec<_>>();
        let name = (!name.is_empty()).then(|| name.join("/"))?;
        Some(match &self.role {
            Some(role) => format!("{role} {name}"),
            None => name,
        })
    }

    /// Seconds from 1970 to the end of the certificate's validity.
    pub fn expires_unix_s(&self) -> u64 {
        self.expires.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
    }
}

/// The role that a certificate names.
fn role(content: &TbsCertificate) -> Option<String> {
    let (_, names) = content.get::<SubjectAltName>().ok()??;
    names.0.iter().find_map(|name| match name {
        GeneralName::UniformResourceIdentifier(uri) => {
            uri.as_str().strip_prefix(ROLE_PREFIX).map(str::to_owned)
        }
        _ => None,
    })
}

/// Subject of a certificate in DER; `None` if the certificate cannot be read.
pub(super) fn subject(certificate: &[u8]) -> Option<Vec<u8>> {
    x509_cert::Certificate::from_der(certificate).ok()?.tbs_certificate.subject.to_der().ok()
}

/// Issuer of a revocation list in DER, and the serial numbers in the list.
///
/// # Errors
/// The reason why the list cannot be read.
pub(super) fn revocations(list: &[u8]) -> Result<(Vec<u8>, Vec<String>), String> {
    let of = |error: x509_cert::der::Error| format!("revocation list: {error}");
    let list = CertificateList::from_der(list).map_err(of)?.tbs_cert_list;
    let revoked = list.revoked_certificates.unwrap_or_default();
    let serials = revoked.iter().map(|entry| hex(entry.serial_number.as_bytes())).collect();
    Ok((list.issuer.to_der().map_err(of)?, serials))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The text of a part; `None` for a string that is neither a `UTF8String` nor a `PrintableString`.
fn text(part: &AttributeTypeAndValue) -> Option<String> {
    let utf8 = part.value.decode_as::<Utf8StringRef<'_>>().map(|text| text.as_str().to_owned());
    let printable = || part.value.decode_as::<PrintableStringRef<'_>>().map(|text| text.as_str().to_owned());
    utf8.or_else(|_| printable()).ok()
}
