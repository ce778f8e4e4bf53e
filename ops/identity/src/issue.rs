//! Certificates and lists of revoked certificates, made by `rcgen`.

use std::collections::BTreeSet;

use headwater_protocol::SiteId;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, RevocationReason,
    RevokedCertParams, SanType, SerialNumber,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use time::{Duration, OffsetDateTime};

use crate::error::EnrollError;
use crate::member::Member;

/// Years for which the authority is valid.
const AUTHORITY_YEARS: i64 = 20;

/// Prefix of the subject alternative name (URI) with the holder's role. The crate `transport` reads roles by the same prefix.
const ROLE_PREFIX: &str = "urn:headwater:";

/// The authority: its name and the key that signs certificates.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, in PEM.
pub(crate) struct Credentials {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    /// Certificate and key of a new authority.
    pub(crate) fn generate(site: &SiteId, serial: u64) -> Result<Credentials, EnrollError> {
        let of = |reason: rcgen::Error| EnrollError::refused("authority", reason);
        let key = KeyPair::generate().map_err(of)?;
        let mut params = authority_params(site);
        params.serial_number = Some(SerialNumber::from(serial));
        let certificate = params.self_signed(&key).map_err(of)?.pem();
        Ok(Credentials { certificate, key: key.serialize_pem() })
    }

    /// The authority of a key in PEM that [`Authority::generate`] made earlier.
    pub(crate) fn from_key(site: &SiteId, key: &str) -> Result<Self, EnrollError> {
        let key = KeyPair::from_pem(key).map_err(|reason| EnrollError::refused("authority.key", reason))?;
        Ok(Self { issuer: Issuer::new(authority_params(site), key) })
    }

    /// Returns true when one of the certificates in a PEM file is for this authority's key.
    ///
    /// # Errors
    /// A file without a certificate, or one that cannot be read.
    pub(crate) fn is_certified_by(&self, certificates: &str) -> Result<bool, String> {
        // A certificate contains the bytes of its public key unchanged, so a search for the bytes suffices.
        let key = self.issuer.key().public_key_raw();
        let found: Result<Vec<CertificateDer<'_>>, _> =
            CertificateDer::pem_slice_iter(certificates.as_bytes()).collect();
        match found {
            Ok(found) if found.is_empty() => Err("expected a certificate in PEM, found none".into()),
            Ok(found) => Ok(found.iter().any(|own| own.windows(key.len()).any(|bytes| bytes == key))),
            Err(error) => Err(format!("expected a certificate in PEM: {error}")),
        }
    }

    /// A certificate for a member, with a new key.
    pub(crate) fn issue(
        &self,
        site: &SiteId,
        member: &Member,
        hosts: &BTreeSet<String>,
        validity: Validity,
    ) -> Result<Credentials, EnrollError> {
        let of = |reason: rcgen::Error| EnrollError::refused(member, reason);
        let mut params = CertificateParams::new(hosts.iter().cloned().collect::<Vec<_>>()).map_err(of)?;
        params.distinguished_name = subject(site, member);
        let role = format!("{ROLE_PREFIX}{}", member.role.name());
        params.subject_alt_names.push(SanType::URI(role.try_into().map_err(of)?));
        (params.not_before, params.not_after) = (OffsetDateTime::UNIX_EPOCH, validity.expires);
        params.serial_number = Some(SerialNumber::from(validity.serial));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        if member.role.is_server() {
            params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        }
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().map_err(of)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(of)?.pem();
        Ok(Credentials { certificate, key: key.serialize_pem() })
    }

    /// The list of revoked certificates, each with its serial number and the time of its revocation, in PEM.
    pub(crate) fn revocation_list(
        &self,
        revoked: impl IntoIterator<Item = (u64, OffsetDateTime)>,
        validity: Validity,
    ) -> Result<String, EnrollError> {
        let of = |reason: rcgen::Error| EnrollError::refused("revoked.crl", reason);
        let revoked = revoked.into_iter().map(|(serial, at)| RevokedCertParams {
            serial_number: SerialNumber::from(serial),
            revocation_time: at,
            reason_code: Some(RevocationReason::Unspecified),
            invalidity_date: None,
        });
        let params = CertificateRevocationListParams {
            this_update: OffsetDateTime::UNIX_EPOCH,
            next_update: validity.expires,
            crl_number: SerialNumber::from(validity.serial),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).and_then(|list| list.pem()).map_err(of)
    }
}

/// Serial number and end of validity of a certificate or list. Certificates and lists are valid from 1970 on, so that a board whose clock is
/// not set can connect.
#[derive(Clone, Copy)]
pub(crate) struct Validity {
    pub(crate) serial: u64,
    pub(crate) expires: OffsetDateTime,
}

fn authority_params(site: &SiteId) -> CertificateParams {
    let mut params = CertificateParams::default();
    let mut name = DistinguishedName::new();
    name.push(DnType::OrganizationName, site.as_str());
    name.push(DnType::CommonName, "headwater authority");
    params.distinguished_name = name;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.not_before = OffsetDateTime::UNIX_EPOCH;
    params.not_after = OffsetDateTime::now_utc() + Duration::days(365 * AUTHORITY_YEARS);
    params
}

fn subject(site: &SiteId, member: &Member) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::OrganizationName, site.as_str());
    if let Some(group) = &member.group {
        name.push(DnType::OrganizationalUnitName, group.as_str());
    }
    name.push(DnType::CommonName, member.name.as_str());
    name
}

#[cfg(test)]
mod tests {
    #[test]
    fn transport_reads_the_role_where_it_is_written() {
        assert_eq!(super::ROLE_PREFIX, headwater_transport::tls::ROLE_PREFIX);
    }
}
