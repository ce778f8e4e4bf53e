//! Checks of a program's certificates: files, authority, revocation list, expiry, and the rights of the file of the key.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, SystemTime};

use headwater_transport::tls::{
    Certificate, ClientIdentity, End, IdentityFiles, Objection, TlsError, certified_hosts,
};
use time::OffsetDateTime;

use crate::finding::{Finding, readable_secret};
use crate::security::{SecuritySettings, TlsSettings};

/// A certificate that expires within this time is named in a finding.
const SOON: Duration = Duration::from_secs(30 * 86_400);

impl SecuritySettings {
    /// Checks each identity of a program once. An identity is given by the prefix of a group's keys (empty outside groups), its settings,
    /// and the end of the connections that shows the certificate.
    pub fn check_identities<'a>(
        &self,
        identities: impl IntoIterator<Item = (&'a str, TlsSettings, End)>,
    ) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut seen = BTreeSet::new();
        for (place, tls, end) in identities {
            // Settings that do not fit each other are named as mistakes of the settings.
            let Ok(Some(files)) = tls.files() else { continue };
            let own = files.own.as_ref().map(|own| own.certificate.clone());
            if seen.insert((own, files.authority.clone())) {
                findings.extend(identity(&IdentitySettings { place, tls: &tls }, &files, end));
                findings.extend(readable_secret(tls.key_file.as_deref()));
            }
        }
        if findings.is_empty() && self.insecure {
            let advice = "make certificates (`headwater enroll`, docs/security.md), and take `insecure` away";
            findings.push(Finding::warn(
                "certificate",
                "none, and links without TLS are allowed (insecure)",
                advice,
            ));
        } else if findings.is_empty() {
            findings.push(Finding::ok("certificate", "none; no link without TLS leaves this machine"));
        }
        findings
    }
}

/// Settings of an identity, and the prefix of a group's keys.
struct IdentitySettings<'a> {
    place: &'a str,
    tls: &'a TlsSettings,
}

impl IdentitySettings<'_> {
    /// Name of the setting for a file. In a group, the settings of certificate and private key stand outside the section `tls`, such as `group[1].key_file`.
    fn setting_of(&self, file: &Path) -> String {
        let setting = self.tls.setting_of(file);
        match (self.place, setting.strip_prefix("tls.")) {
            ("", _) | (_, None | Some("authority_file" | "revoked_file")) => setting.to_owned(),
            (place, Some(key)) => format!("{place}{key}"),
        }
    }

    fn fault(&self, error: &TlsError) -> Finding {
        let advice = "take authority.pem, certificate.pem, key.pem and revoked.crl from one folder of `headwater enroll`";
        Finding::fail("certificate", format!("{}: {error}", self.setting_of(error.path())), advice)
    }
}

/// Checks one identity.
fn identity(settings: &IdentitySettings<'_>, files: &IdentityFiles, end: End) -> Vec<Finding> {
    let mut findings = Vec::new();
    match Certificate::read(&files.authority) {
        Ok(authority) => findings.extend(expiry("certificate of the authority", authority.expires, "the site needs a new authority: `headwater enroll init` in a new folder, then new certificates for everybody")),
        Err(error) => return vec![settings.fault(&error)],
    }
    // A client may come without a certificate of its own.
    let Some(own) = &files.own else {
        findings.push(Finding::ok("certificate", "none of its own; the authority is trusted"));
        return findings;
    };
    let certificate = match Certificate::read(&own.certificate) {
        Ok(certificate) => certificate,
        Err(error) => return vec![settings.fault(&error)],
    };
    if let Err(error) = ClientIdentity::new(files.clone()) {
        return vec![settings.fault(&error)];
    }
    let (key, file) = (settings.setting_of(&own.certificate), own.certificate.display());
    let holder = certificate.holder().unwrap_or_else(|| "no holder".into());
    match files.objection(end) {
        Err(error) => findings.push(settings.fault(&error)),
        Ok(Some(objection)) => {
            let found = format!("{key}: {file} ({holder}): {objection}{}", ended(&objection, &certificate));
            findings.push(Finding::fail("certificate", found, remedy(&objection, &certificate)));
        }
        Ok(None) => {
            let renew = renewal(&certificate);
            let soon = expiry("certificate", certificate.expires, &renew);
            if soon.is_none() {
                let hosts = match end {
                    End::Client => String::new(),
                    End::Server => {
                        format!(", for {}", certified_hosts(&own.certificate).unwrap_or_default().join(", "))
                    }
                };
                let found = format!("{holder}{hosts}, valid until {}", day(certificate.expires));
                findings.push(Finding::ok("certificate", found));
            }
            findings.extend(soon);
        }
    }
    findings
}

/// The day on which an expired certificate expired, in brackets; empty for another objection.
fn ended(objection: &Objection, certificate: &Certificate) -> String {
    if *objection == Objection::Expired { format!(" ({})", day(certificate.expires)) } else { String::new() }
}

/// Advice about an objection.
fn remedy(objection: &Objection, certificate: &Certificate) -> String {
    match objection {
        Objection::Expired => renewal(certificate),
        Objection::NotYetValid => "set the clock of this machine".into(),
        Objection::Revoked => {
            "give this member another name: `headwater enroll add`; names that were revoked stay closed"
                .into()
        }
        Objection::OtherAuthority => {
            "take certificate.pem, key.pem and authority.pem from one folder of `headwater enroll`".into()
        }
        Objection::NoHost => "name its hosts: `headwater enroll renew cloud --host NAME`".into(),
        Objection::Other(_) => "make another one: `headwater enroll renew`".into(),
    }
}

/// The command that gives a holder a new certificate.
fn renewal(certificate: &Certificate) -> String {
    format!("renew it: `{}`, then copy the new files here", certificate.renew_command())
}

/// A finding if a certificate has expired or expires within 30 days; otherwise none.
pub fn expiry(check: &str, expires: SystemTime, advice: &str) -> Option<Finding> {
    let day = day(expires);
    match expires.duration_since(SystemTime::now()) {
        Err(_) => Some(Finding::fail(check, format!("it has expired ({day})"), advice)),
        Ok(left) if left < SOON => {
            let days = left.as_secs() / 86_400;
            let s = if days == 1 { "" } else { "s" };
            Some(Finding::warn(check, format!("it expires in {days} day{s} ({day})"), advice))
        }
        Ok(_) => None,
    }
}

/// Day of a time, in UTC.
fn day(time: SystemTime) -> String {
    OffsetDateTime::from(time).date().to_string()
}
