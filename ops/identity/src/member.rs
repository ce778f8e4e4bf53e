//! Members of a site: the holders of certificates.

use std::collections::BTreeSet;
use std::fmt;

use headwater_protocol::{GroupId, SiteId};
use headwater_transport::tls::renew_command;
use serde::{Deserialize, Serialize};

use crate::error::EnrollError;
use crate::role::Role;

/// Longest common name of a certificate in bytes (X.520).
const MAX_NAME_BYTES: usize = 64;

/// Rights of a page. Every page reads results, and the status and birth of devices, of its groups; `frames` and `act` add rights.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageRights {
    /// Groups that the page shows.
    pub groups: BTreeSet<GroupId>,
    /// True when the page sees frames.
    pub frames: bool,
    /// True when the page triggers samples and changes policies.
    pub act: bool,
}

impl PageRights {
    /// Topics that these rights add to the topics of every page: topics that the page publishes, then topics that it reads, without the prefix
    /// of a group.
    pub(crate) fn topics(&self) -> (&'static [&'static str], &'static [&'static str]) {
        match (self.frames, self.act) {
            (false, false) => (&[], &[]),
            (true, false) => (&[], &["frame", "dev/+/frame"]),
            (false, true) => (&["trigger", "policy/{name}"], &["policy/{name}/answer"]),
            (true, true) => {
                (&["trigger", "policy/{name}"], &["policy/{name}/answer", "frame", "dev/+/frame"])
            }
        }
    }
}

impl fmt::Display for PageRights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups: Vec<_> = self.groups.iter().map(GroupId::as_str).collect();
        f.write_str(&groups.join(", "))?;
        let rights = [(self.frames, "frames"), (self.act, "act")];
        rights.iter().filter(|(has, _)| *has).try_for_each(|(_, right)| write!(f, "; {right}"))
    }
}

/// Holder of a certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Role of the member, which decides the rights of the member.
    pub role: Role,
    /// Group of the member; `None` for the broker, the cloud and pages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<GroupId>,
    /// Name of the member: the id of a device or edge. For other roles but `consumer`, the name of the role unless another name is given.
    pub name: String,
    /// Groups and rights of a page; `None` for every other role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page: Option<PageRights>,
}

impl Member {
    /// A page, which may have several groups.
    ///
    /// # Errors
    /// [`EnrollError::Refused`]: the name is no valid one.
    pub fn page(name: impl Into<String>, rights: PageRights) -> Result<Self, EnrollError> {
        Ok(Self { page: Some(rights), ..Self::new(Role::Page, None, name)? })
    }

    /// A member whose name and group fit the role.
    ///
    /// # Errors
    /// [`EnrollError::Refused`]: the name is no valid one, a group is missing, or the role takes none.
    pub fn new(role: Role, group: Option<GroupId>, name: impl Into<String>) -> Result<Self, EnrollError> {
        let name = name.into();
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        let refused =
            |reason: String| Err(EnrollError::Refused(format!("{} {name:?}: {reason}", role.name())));
        if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.bytes().all(is_name) {
            return refused(format!("expected 1 to {MAX_NAME_BYTES} of a-z A-Z 0-9 . _ -"));
        }
        // Group and name become names of folders, so neither may stand for a folder itself.
        if [Some(name.as_str()), group.as_ref().map(GroupId::as_str)]
            .iter()
            .flatten()
            .any(|name| matches!(*name, "." | ".."))
        {
            return refused("expected a name, found a folder".into());
        }
        match (&group, role.has_group()) {
            (None, true) => refused("expected a group".into()),
            (Some(group), false) => refused(format!("serves all groups, found the group {group}")),
            (Some(_), true) | (None, false) => Ok(Self { role, group, name, page: None }),
        }
    }

    /// Groups in which the member has rights: its group, or the groups of a page.
    pub(crate) fn groups(&self) -> impl Iterator<Item = &GroupId> {
        self.group.iter().chain(self.page.iter().flat_map(|page| &page.groups))
    }

    /// The `headwater enroll renew` command that gives the member a new certificate.
    pub fn renew_command(&self) -> String {
        renew_command(self.group.as_ref().map(GroupId::as_str), &self.name)
    }

    /// User name by which Mosquitto knows the member: the subject of the certificate, last part first.
    pub(crate) fn user(&self, site: &SiteId) -> String {
        let unit = self.group.as_ref().map(|group| format!(",OU={group}")).unwrap_or_default();
        format!("CN={}{unit},O={site}", self.name)
    }

    /// Returns true when both members have the same subject in their certificates.
    pub(crate) fn has_subject_of(&self, other: &Self) -> bool {
        self.group == other.group && self.name == other.name
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.group {
            Some(group) => write!(f, "{group}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_fits_its_role() {
        let group = || Some("gate".parse().unwrap());
        assert_eq!(Member::new(Role::Device, group(), "cam-0").unwrap().to_string(), "gate/cam-0");
        for (role, group, name, reason) in [
            (Role::Device, None, "cam-0", "expected a group"),
            (Role::Cloud, group(), "cloud", "serves all groups"),
            (Role::Device, group(), "", "expected 1 to 64"),
            (Role::Device, group(), "..", "found a folder"),
            (Role::Device, Some("..".parse().unwrap()), "cam-0", "found a folder"),
            (Role::Cloud, None, ".", "found a folder"),
            (Role::Device, group(), "a,O=other", "expected 1 to 64"),
            (Role::Device, group(), &"x".repeat(65), "expected 1 to 64"),
        ] {
            let error = Member::new(role, group, name).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
