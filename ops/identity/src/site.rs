//! The folder of a site: the authority, the record of issued certificates, and the files made from that record.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use headwater_protocol::{GroupId, SiteId};
use headwater_transport::{PUBLIC_MODE, SECRET_MODE};
use serde::{Deserialize, Serialize};
use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime};

use crate::access;
use crate::error::EnrollError;
use crate::files;
use crate::host::check_hosts;
use crate::issue::{Authority, Credentials, Validity};
use crate::member::Member;
use crate::mosquitto::{self, BrokerOptions};
use crate::role::Role;

/// Version of the format of `site.json`.
const FORMAT: u32 = 1;

// Names of the files in the site's folder.
const LOCK: &str = "site.lock";
const SITE: &str = "site.json";
const AUTHORITY: &str = "authority.crt";
pub(crate) const AUTHORITY_KEY: &str = "authority.key";
const REVOKED: &str = "revoked.crl";
// Names of the files in a member's folder.
pub(crate) const CERTIFICATE: &str = "certificate.pem";
pub(crate) const KEY: &str = "key.pem";
pub(crate) const MEMBER_AUTHORITY: &str = "authority.pem";

/// Words of the error for a member whose certificates were revoked.
const IS_REVOKED: &str = "is revoked; enroll it under another name";

/// A certificate that the authority issued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Issued {
    /// Member that holds the certificate.
    #[serde(flatten)]
    pub member: Member,
    /// Serial number of the certificate.
    pub serial: u64,
    /// Hosts that the certificate names; empty unless the member is a server.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub hosts: BTreeSet<String>,
    /// Time at which the certificate expires, RFC 3339.
    pub expires: String,
    /// Time at which the certificate was revoked, RFC 3339; `None` if it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<String>,
}

impl Issued {
    /// Returns true when the certificate has expired; false if its time cannot be read.
    pub fn has_expired(&self) -> bool {
        OffsetDateTime::parse(&self.expires, &Rfc3339).is_ok_and(|end| end <= OffsetDateTime::now_utc())
    }
}

/// The folder of a site.
#[derive(Debug)]
pub struct Site {
    folder: PathBuf,
    record: Record,
    /// Locked until this value is dropped, so that no other program changes the site meanwhile.
    _lock: File,
}

/// Content of `site.json`.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    format: u32,
    site: SiteId,
    broker_port: u16,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    broker_address: String,
    /// Folder of the broker's files on the broker's machine; `None` if the broker runs on this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    broker_folder: Option<PathBuf>,
    /// Serial number that was given last, to a certificate or a list.
    serial: u64,
    issued: Vec<Issued>,
}

impl Site {
    /// Makes the folder with an authority and the broker's certificate, which names `hosts`.
    ///
    /// # Errors
    /// [`EnrollError`]: the folder has a site or other files already, or cannot be written, or `hosts` or `options` cannot work.
    pub fn create(
        folder: &Path,
        site: SiteId,
        hosts: &[String],
        options: &BrokerOptions,
        days: u32,
    ) -> Result<Self, EnrollError> {
        check_no_site(folder)?;
        // Everything that can be refused is checked before anything is written.
        options.check()?;
        check_hosts(hosts)?;
        let was_there = folder.exists();
        files::make_empty_folder(folder)?;
        let made = Self::create_in(folder, site, hosts, options, days);
        if made.is_err() && !was_there {
            // Another run may have made a site there meanwhile; `remove_dir` removes an empty folder only.
            let _ = fs::remove_dir(folder);
        }
        made
    }

    /// Makes a site in a folder that was empty. The checks are repeated under the lock, since another run may have been first.
    fn create_in(
        folder: &Path,
        site: SiteId,
        hosts: &[String],
        options: &BrokerOptions,
        days: u32,
    ) -> Result<Self, EnrollError> {
        let folder = folder.canonicalize().map_err(|error| EnrollError::system(folder, &error))?;
        let lock = files::lock(&folder.join(LOCK))?;
        check_no_site(&folder)?;
        files::check_empty(&folder, Some(LOCK))?;
        let BrokerOptions { port, address, folder: broker_folder } = options.clone();
        let record = Record {
            format: FORMAT,
            site,
            broker_port: port,
            broker_address: address,
            broker_folder,
            serial: serial_after(0),
            issued: Vec::new(),
        };
        let mut made = Self { folder, record, _lock: lock };
        if let Err(error) = made.begin(hosts, days) {
            // The folder was empty when this run locked it, so this run wrote everything in it.
            files::remove_all(&made.folder, LOCK);
            return Err(error);
        }
        Ok(made)
    }

    /// Makes a new authority, writes its key and certificate, and enrolls the broker.
    fn begin(&mut self, hosts: &[String], days: u32) -> Result<(), EnrollError> {
        let credentials = Authority::generate(&self.record.site, self.record.serial)?;
        files::write(&self.folder.join(AUTHORITY_KEY), &credentials.key, SECRET_MODE)?;
        files::write(&self.folder.join(AUTHORITY), &credentials.certificate, PUBLIC_MODE)?;
        let broker = Member::new(Role::Broker, None, Role::Broker.name())?;
        self.enroll(broker, hosts, days).map(drop)
    }

    /// Reads and locks the folder of a site.
    ///
    /// # Errors
    /// [`EnrollError`]: no site is there, another program keeps it locked, or its record cannot be read.
    pub fn open(folder: &Path) -> Result<Self, EnrollError> {
        let path = folder.join(SITE);
        if !path.try_exists().map_err(|error| EnrollError::system(&path, &error))? {
            return Err(EnrollError::file(&path, "no site is here; make one with `headwater enroll init`"));
        }
        let lock = files::lock(&folder.join(LOCK))?;
        let record = read_record(&path)?;
        let folder = folder.canonicalize().map_err(|error| EnrollError::file(folder, error))?;
        Ok(Self { folder, record, _lock: lock })
    }

    /// Name of the site.
    pub fn name(&self) -> &SiteId {
        &self.record.site
    }

    /// Every certificate that was issued, oldest first.
    pub fn issued(&self) -> &[Issued] {
        &self.record.issued
    }

    /// The member with this name in `group`; without a group, among the members of the whole site.
    ///
    /// # Errors
    /// [`EnrollError::Refused`] with the names of all members.
    pub fn member(&self, group: Option<&GroupId>, name: &str) -> Result<Member, EnrollError> {
        let mut members = self.record.issued.iter().map(|issued| &issued.member);
        let found = members.find(|member| member.group.as_ref() == group && member.name == name);
        found.cloned().ok_or_else(|| {
            let name = group.map_or_else(|| name.to_owned(), |group| format!("{group}/{name}"));
            self.unknown(name)
        })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The newest certificate of each member that is not revoked, oldest first.
    pub fn in_force(&self) -> impl Iterator<Item = &Issued> {
        let issued = &self.record.issued;
        let newest = issued.iter().enumerate().filter(|(index, own)| {
            own.revoked.is_none()
                && !issued[index + 1..].iter().any(|later| later.member.has_subject_of(&own.member))
        });
        newest.map(|(_, own)| own)
    }

    /// Members that are not revoked, each once, in the order of their newest certificates.
    pub(crate) fn holders(&self) -> impl Iterator<Item = &Member> {
        self.in_force().map(|own| &own.member)
    }

    /// Folders of all members, revoked ones included; a member that was renewed appears several times.
    pub(crate) fn folders(&self) -> impl Iterator<Item = PathBuf> {
        self.record.issued.iter().map(|issued| self.folder_of(&issued.member))
    }

    /// The folder with a member's files.
    pub fn folder_of(&self, member: &Member) -> PathBuf {
        match &member.group {
            Some(group) => self.folder.join(group.as_str()).join(&member.name),
            None => self.folder.join(&member.name),
        }
    }

    /// Gives a new member its certificate and key, valid for `days`, and returns the member's folder.
    ///
    /// # Errors
    /// [`EnrollError`]: the name is taken or revoked, hosts or groups do not fit the role, or a file cannot be written.
    pub fn enroll(&mut self, member: Member, hosts: &[String], days: u32) -> Result<PathBuf, EnrollError> {
        if let Some(holder) = self.record.issued.iter().find(|issued| issued.member.has_subject_of(&member)) {
            let reason = match holder.revoked {
                Some(_) => IS_REVOKED.to_owned(),
                None => {
                    format!("is the {} already; renew it, or choose another name", holder.member.role.name())
                }
            };
            return Err(EnrollError::refused(&member, reason));
        }
        let taken = self.record.issued.iter().map(|issued| &issued.member).find(|other| {
            match (&member.group, &other.group) {
                // A group and a member of the whole site with the same name would have the same folder.
                (Some(group), None) => group.as_str() == other.name,
                (None, Some(group)) => group.as_str() == member.name,
                (Some(_), Some(_)) | (None, None) => false,
            }
        });
        if let Some(other) = taken {
            let other = other.role.name();
            let reason = format!("a group and the {other} would have one folder; choose another name");
            return Err(EnrollError::refused(&member, reason));
        }
        self.check_groups(&member)?;
        check_hosts(hosts)?;
        let hosts: BTreeSet<String> = hosts.iter().cloned().collect();
        match (member.role.is_server(), hosts.is_empty()) {
            (false, false) => return Err(no_server(&member, &hosts)),
            (true, true) => {
                return Err(EnrollError::Refused(format!(
                    "{} {member}: expected host names or addresses by which clients call it, found none; name them with --host",
                    member.role.name()
                )));
            }
            (true, false) | (false, true) => {}
        }
        self.issue(member, hosts, days)
    }

    /// Refuses a page if the site does not have all of its groups; the error names every unknown group.
    fn check_groups(&self, member: &Member) -> Result<(), EnrollError> {
        let known: BTreeSet<_> =
            self.record.issued.iter().filter_map(|issued| issued.member.group.as_ref()).collect();
        let names = |groups: &mut dyn Iterator<Item = &GroupId>| {
            groups.map(GroupId::as_str).collect::<Vec<_>>().join(", ")
        };
        let unknown =
            names(&mut member.page.iter().flat_map(|page| &page.groups).filter(|own| !known.contains(own)));
        if unknown.is_empty() {
            return Ok(());
        }
        let known = names(&mut known.into_iter());
        Err(EnrollError::Refused(format!(
            "{} {member}: expected groups of this site ({known}), found {unknown}; correct the name, or enroll the group's members first",
            member.role.name()
        )))
    }

    /// Gives a member a new certificate and key. Earlier certificates of the member stay valid until they expire. A server gets `hosts`, or
    /// keeps its earlier hosts if `hosts` is empty. A server that was revoked gets a new certificate too; any other revoked member is refused.
    ///
    /// # Errors
    /// [`EnrollError`]: no such member, a revoked member, hosts for a member that is no server, or a file that cannot be written.
    pub fn renew(&mut self, member: &Member, hosts: &[String], days: u32) -> Result<PathBuf, EnrollError> {
        let Issued { member, hosts: before, revoked, .. } = self.newest(member)?.clone();
        // Access rules name users by the subject of their certificate, so a revoked name must not come back. Servers have no rules.
        if revoked.is_some() && !member.role.is_server() {
            return Err(EnrollError::refused(&member, IS_REVOKED));
        }
        if !hosts.is_empty() && !member.role.is_server() {
            return Err(no_server(&member, hosts));
        }
        check_hosts(hosts)?;
        let hosts = if hosts.is_empty() { before } else { hosts.iter().cloned().collect() };
        self.issue(member, hosts, days)
    }

    /// Revokes every certificate of a member. The name of the member is not given again, except for a server. After an interrupted run, a
    /// second call writes the same files again.
    ///
    /// # Errors
    /// [`EnrollError`]: no such member, the authority cannot sign, or a file cannot be written.
    pub fn revoke(&mut self, member: &Member) -> Result<(), EnrollError> {
        self.newest(member)?;
        // This fails before anything changes if the authority cannot sign the list.
        self.authority()?;
        let now = text(OffsetDateTime::now_utc());
        for issued in self.record.issued.iter_mut().filter(|issued| issued.member.has_subject_of(member)) {
            issued.revoked.get_or_insert_with(|| now.clone());
        }
        self.write()
    }

    fn newest(&self, member: &Member) -> Result<&Issued, EnrollError> {
        let newest = self.record.issued.iter().rev().find(|issued| issued.member.has_subject_of(member));
        newest.ok_or_else(|| self.unknown(member.to_string()))
    }

    fn unknown(&self, name: String) -> EnrollError {
        let known: BTreeSet<String> =
            self.record.issued.iter().map(|issued| issued.member.to_string()).collect();
        let known = known.into_iter().collect::<Vec<_>>().join(", ");
        EnrollError::refused(name, format!("no such member; members are {known}"))
    }

    fn issue(&mut self, member: Member, hosts: BTreeSet<String>, days: u32) -> Result<PathBuf, EnrollError> {
        let authority = self.authority()?;
        let validity = self.next_validity(days);
        let credentials = authority.issue(&self.record.site, &member, &hosts, validity)?;
        let folder = self.folder_of(&member);
        // `made` is the topmost folder that does not exist yet: the member's folder, or the folder of its group.
        let made = folder.ancestors().take_while(|folder| !folder.exists()).last().map(Path::to_owned);
        let (serial, expires) = (validity.serial, text(validity.expires));
        // The record is written before the certificate, so that every certificate that was given out can be revoked.
        self.record.issued.push(Issued { member, serial, hosts, expires, revoked: None });
        let written = files::make_folder(&folder)
            .and_then(|()| self.write())
            .and_then(|()| self.write_member(&folder, &credentials));
        if let (Err(_), Some(made)) = (&written, made) {
            self.take_back(&made);
        }
        written.map(|()| folder)
    }

    /// Writes a member's files, the key last: a program that reloads when the key changes then finds all files new.
    fn write_member(&self, folder: &Path, credentials: &Credentials) -> Result<(), EnrollError> {
        files::write(
            &folder.join(MEMBER_AUTHORITY),
            &files::read(&self.folder.join(AUTHORITY))?,
            PUBLIC_MODE,
        )?;
        files::write(&folder.join(CERTIFICATE), &credentials.certificate, PUBLIC_MODE)?;
        files::write(&folder.join(KEY), &credentials.key, SECRET_MODE)
    }

    /// Undoes the latest certificate, which nobody has yet: removes the new folder `made`, then the entry in the record.
    fn take_back(&mut self, made: &Path) {
        // While the certificate's files are there, the record must name the certificate.
        if made.exists() && fs::remove_dir_all(made).is_err() {
            return;
        }
        self.record.issued.pop();
        // If this write fails too, the record may name a member without files; `headwater enroll renew` writes them.
        let _ = self.write();
    }

    /// Writes the record and the files made from it: the list of revoked certificates, and the broker's configuration and rules.
    fn write(&mut self) -> Result<(), EnrollError> {
        let validity = self.next_validity(LIST_DAYS);
        let revoked = self.record.issued.iter().filter_map(|issued| {
            // A certificate stays revoked even if its date cannot be read.
            let at = OffsetDateTime::parse(issued.revoked.as_ref()?, &Rfc3339);
            Some((issued.serial, at.unwrap_or(OffsetDateTime::UNIX_EPOCH)))
        });
        let list = self.authority()?.revocation_list(revoked, validity)?;
        let record = serde_json::to_string_pretty(&self.record)
            .map_err(|error| EnrollError::file(self.folder.join(SITE), error))?;
        files::write(&self.folder.join(SITE), &record, PUBLIC_MODE)?;
        files::write(&self.folder.join(REVOKED), &list, PUBLIC_MODE)?;
        let Record { site, broker_port, broker_address, broker_folder, .. } = &self.record;
        let own = self.folder.join(Role::Broker.name());
        files::make_folder(&own)?;
        files::write(&own.join("access.rules"), &access::rules(site, self.holders()), PUBLIC_MODE)?;
        let options = BrokerOptions { port: *broker_port, address: broker_address.clone(), folder: None };
        let folder = broker_folder.as_ref().unwrap_or(&own);
        files::write(&own.join("mosquitto.conf"), &mosquitto::configuration(folder, &options), PUBLIC_MODE)?;
        files::write(&own.join(REVOKED), &list, PUBLIC_MODE)?;
        // If a member's folder was moved to another machine, the list must be copied there by hand.
        let mut folders =
            self.holders().map(|member| self.folder_of(member)).filter(|folder| folder.exists());
        folders.try_for_each(|folder| files::write(&folder.join(REVOKED), &list, PUBLIC_MODE))
    }

    /// The authority; an error if the key does not belong to the certificate, which members trust.
    pub(crate) fn authority(&self) -> Result<Authority, EnrollError> {
        let (certificate, key) = (self.folder.join(AUTHORITY), self.folder.join(AUTHORITY_KEY));
        let authority = Authority::from_key(&self.record.site, &files::read(&key)?)?;
        let has_key = authority.is_certified_by(&files::read(&certificate)?);
        let has_key = has_key.map_err(|reason| EnrollError::file(&certificate, reason))?;
        if has_key {
            return Ok(authority);
        }
        let reason = format!(
            "expected the certificate of the key in {}, found that of another key; bring back the pair that `headwater enroll init` wrote",
            key.display()
        );
        Err(EnrollError::file(certificate, reason))
    }

    fn next_validity(&mut self, days: u32) -> Validity {
        self.record.serial = serial_after(self.record.serial);
        let expires = OffsetDateTime::now_utc() + Duration::days(days.into());
        Validity { serial: self.record.serial, expires }
    }
}

/// The error for a member that was given hosts but is no server.
fn no_server<'a>(member: &Member, hosts: impl IntoIterator<Item = &'a String>) -> EnrollError {
    let found = hosts.into_iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    let role = member.role.name();
    EnrollError::Refused(format!(
        "{role} {member}: expected no host: it is no server, found {found}; leave --host away"
    ))
}

/// Refuses a folder that has a site already.
fn check_no_site(folder: &Path) -> Result<(), EnrollError> {
    if !folder.join(SITE).exists() {
        return Ok(());
    }
    let site = read_record(&folder.join(SITE))?.site;
    let reason = format!("has the site {site} already; choose another folder, or add members to this one");
    Err(EnrollError::file(folder, reason))
}

fn read_record(path: &Path) -> Result<Record, EnrollError> {
    let record: Record =
        serde_json::from_str(&files::read(path)?).map_err(|error| EnrollError::file(path, error))?;
    if record.format == FORMAT {
        Ok(record)
    } else {
        let reason = format!("expected format {FORMAT}, found {}", record.format);
        Err(EnrollError::file(path, reason))
    }
}

/// Validity of a list of revoked certificates in days. It is long because nobody fetches lists: every change writes a new one.
const LIST_DAYS: u32 = 20 * 365;

/// An unused serial number: microseconds since 1970, or `last + 1` if that is higher.
fn serial_after(last: u64) -> u64 {
    let now = OffsetDateTime::now_utc().unix_timestamp_nanos() / 1000;
    u64::try_from(now).unwrap_or_default().max(last + 1)
}

fn text(at: OffsetDateTime) -> String {
    at.format(&Rfc3339).unwrap_or_default()
}

#[cfg(test)]
mod tests;
