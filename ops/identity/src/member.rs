//! Members of a site: who holds a certificate.

use std::collections::BTreeSet;
use std::fmt;

use headwater_protocol::{GroupId, SiteId};
use headwater_transport::tls::renew_command;
use serde::{Deserialize, Serialize};

use crate::error::EnrollError;
use crate::role::Role;

/// Longest common name of a certificate (X.520).
const MAX_NAME_BYTES: usize = 64;

/// Rights of a page: results, status and birth of the devices in its groups, and what is stated here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageRights {
    /// The groups.
    pub groups: BTreeSet<GroupId>,
    /// Whether it sees frames.
    pub frames: bool,
    /// Whether it triggers samples and changes policies.
    pub act: bool,
}

impl PageRights {
    /// Topics that a right adds to those of every page, under those of a group: published and read ones.
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
    /// Its rights.
    pub role: Role,
    /// Its group; `None` for a role without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<GroupId>,
    /// Its name: the id of a device or edge; the role for a leader, the broker or the cloud.
    pub name: String,
    /// Its groups and rights, if it is a page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page: Option<PageRights>,
}

impl Member {
    /// A page of several groups.
    ///
    /// # Errors
    /// [`EnrollError::Name`].
    pub fn page(name: impl Into<String>, rights: PageRights) -> Result<Self, EnrollError> {
        Ok(Self { page: Some(rights), ..Self::new(Role::Page, None, name)? })
    }

    /// A member whose name and group fit its role.
    ///
    /// # Errors
    /// [`EnrollError::Name`].
    pub fn new(role: Role, group: Option<GroupId>, name: impl Into<String>) -> Result<Self, EnrollError> {
        let name = name.into();
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        let refused = |reason: String| Err(EnrollError::Name(format!("{} {name:?}: {reason}", role.name())));
        if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.bytes().all(is_name) {
            return refused(format!("expected 1 to {MAX_NAME_BYTES} of a-z A-Z 0-9 . _ -"));
        }
        // Each is the name of a folder.
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

    /// Groups in which it has rights.
    pub(crate) fn groups(&self) -> impl Iterator<Item = &GroupId> {
        self.group.iter().chain(self.page.iter().flat_map(|page| &page.groups))
    }

    /// Command that gives the member a new certificate.
    pub fn renew_command(&self) -> String {
        renew_command(self.group.as_ref().map(GroupId::as_str), &self.name)
    }

    /// User name at Mosquitto: the subject of the certificate, last part first.
    pub(crate) fn user(&self, site: &SiteId) -> String {
        let unit = self.group.as_ref().map(|group| format!(",OU={group}")).unwrap_or_default();
        format!("CN={}{unit},O={site}", self.name)
    }

    /// Whether two members cannot be told apart by their certificates.
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
