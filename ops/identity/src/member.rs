//! Members of a site: who holds a certificate.

use std::fmt;

use headwater_protocol::{GroupId, SiteId};
use serde::{Deserialize, Serialize};

use crate::error::EnrollError;

/// Rights of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The MQTT broker of the site.
    Broker,
    /// The cloud service.
    Cloud,
    /// A device of a group: publishes as itself alone.
    Device,
    /// The leader of a group.
    Leader,
    /// An edge of a group with several edges.
    Edge,
    /// A person or program that triggers samples, sends commands and sees frames.
    Operator,
    /// A program that reads results.
    Consumer,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 7] =
        [Self::Broker, Self::Cloud, Self::Device, Self::Leader, Self::Edge, Self::Operator, Self::Consumer];

    /// Name in commands and lists.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Broker => "broker",
            Self::Cloud => "cloud",
            Self::Device => "device",
            Self::Leader => "leader",
            Self::Edge => "edge",
            Self::Operator => "operator",
            Self::Consumer => "consumer",
        }
    }

    /// Whether its members belong to one group; the others serve all groups of the site.
    pub const fn has_group(self) -> bool {
        !matches!(self, Self::Broker | Self::Cloud)
    }

    /// Whether its members accept connections, so that their certificates name hosts.
    pub const fn is_server(self) -> bool {
        matches!(self, Self::Broker | Self::Cloud)
    }
}

/// Longest common name of a certificate (X.520).
const MAX_NAME_BYTES: usize = 64;

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
}

impl Member {
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
            (Some(_), true) | (None, false) => Ok(Self { role, group, name }),
        }
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

/// Command that gives the member of a group, or of the site, a new certificate.
pub fn renew_command(group: Option<&str>, name: &str) -> String {
    let group = group.map(|group| format!(" --group {group}")).unwrap_or_default();
    format!("headwater enroll renew{group} {name}")
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
