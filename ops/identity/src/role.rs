//! Roles of members, one row each, with the topics that they publish and read.

use serde::{Deserialize, Serialize};

/// Role of a member, which decides the topics that the member may publish and read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The MQTT broker of the site.
    Broker,
    /// The cloud service.
    Cloud,
    /// A device of a group; publishes under its own name only.
    Device,
    /// The leader of a group.
    Leader,
    /// An edge of a group with several edges.
    Edge,
    /// A person or program that triggers samples, changes policies and sees frames.
    Operator,
    /// A program that reads results.
    Consumer,
    /// A program that shows several groups; its rights are [`PageRights`](crate::PageRights).
    Page,
}

/// Groups in which members of a role have rights.
#[derive(PartialEq, Eq)]
enum Scope {
    /// No group: servers of the whole site. Servers accept connections, so their certificates name hosts.
    Server,
    /// One group for each member.
    OneGroup,
    /// The groups that the member's rights name.
    Rights,
}

/// One role with its name, its help text, and the topics that the broker allows.
struct Row {
    role: Role,
    name: &'static str,
    help: &'static str,
    scope: Scope,
    /// True when a member that is added without a name gets the role's name.
    names_members: bool,
    /// Topics without the prefix of the group. `{name}` stands for the member's name.
    publishes: &'static [&'static str],
    reads: &'static [&'static str],
}

/// A role of a server, which publishes and reads no topics.
const fn server(role: Role, name: &'static str, help: &'static str) -> Row {
    Row { role, name, help, scope: Scope::Server, names_members: true, publishes: &[], reads: &[] }
}

static ROLES: &[Row] = &[
    server(Role::Broker, "broker", "The MQTT broker of the site"),
    server(Role::Cloud, "cloud", "The cloud service, for all groups"),
    Row {
        role: Role::Device,
        name: "device",
        help: "Publishes as itself alone",
        scope: Scope::OneGroup,
        names_members: false,
        publishes: &[
            "dev/{name}/status",
            "dev/{name}/birth",
            "dev/{name}/summary",
            "dev/{name}/features",
            "dev/{name}/decision",
            "dev/{name}/frame",
            "dev/{name}/kept",
        ],
        reads: &[
            "dev/{name}/status",
            "dev/{name}/birth",
            "dev/{name}/cmd",
            "trigger",
            "request",
            "settled",
            "leader",
            "frame",
            "kept",
        ],
    },
    Row {
        role: Role::Leader,
        name: "leader",
        help: "Publishes requests, decisions and the account of its group",
        scope: Scope::OneGroup,
        names_members: true,
        // The leader clears the birth of a device that the setting `devices` does not name: a revoked device cannot clear its own.
        publishes: &[
            "request",
            "settled",
            "result",
            "revision",
            "leader",
            "policy/+/answer",
            "frame",
            "kept",
            "dev/+/cmd",
            "dev/+/birth",
        ],
        reads: &[
            "leader",
            "settled",
            "trigger",
            "policy/+",
            "dev/+/status",
            "dev/+/birth",
            "dev/+/summary",
            "dev/+/features",
            "dev/+/decision",
            "dev/+/kept",
            "edge/+/status",
            "edge/+/features",
        ],
    },
    Row {
        role: Role::Edge,
        name: "edge",
        help: "Runs an edge section of a group",
        scope: Scope::OneGroup,
        names_members: false,
        publishes: &["edge/{name}/status", "edge/{name}/features"],
        reads: &[
            "edge/{name}/status",
            "request",
            "trigger",
            "leader",
            "dev/+/status",
            "dev/+/birth",
            "dev/+/summary",
            "dev/+/features",
            "dev/+/decision",
        ],
    },
    Row {
        role: Role::Operator,
        name: "operator",
        help: "Triggers samples, changes policies, sees frames",
        scope: Scope::OneGroup,
        names_members: true,
        publishes: &["trigger", "policy/{name}"],
        reads: &["#"],
    },
    Row {
        role: Role::Consumer,
        name: "consumer",
        help: "Reads results",
        scope: Scope::OneGroup,
        names_members: false,
        publishes: &[],
        reads: &["result", "revision", "settled", "leader"],
    },
    Row {
        role: Role::Page,
        name: "page",
        help: "Shows several groups",
        scope: Scope::Rights,
        names_members: true,
        publishes: &[],
        reads: &["result", "revision", "settled", "leader", "dev/+/status", "dev/+/birth"],
    },
];

impl Role {
    /// Every role, in the order of the table.
    pub fn all() -> impl Iterator<Item = Self> {
        ROLES.iter().map(|row| row.role)
    }

    fn row(self) -> &'static Row {
        ROLES.iter().find(|row| row.role == self).expect("each role has its row")
    }

    /// The role with this name; `None` if there is none.
    pub fn named(name: &str) -> Option<Self> {
        Self::all().find(|role| role.name() == name)
    }

    /// Name of the role in commands and lists.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// The role's members in a few words, for the help text.
    pub fn help(self) -> &'static str {
        self.row().help
    }

    /// Returns true when each member of the role belongs to one group.
    pub fn has_group(self) -> bool {
        self.row().scope == Scope::OneGroup
    }

    /// Returns true when members of the role accept connections, so that their certificates name hosts.
    pub fn is_server(self) -> bool {
        self.row().scope == Scope::Server
    }

    /// Returns true when a member that is added without a name gets the role's name.
    pub fn names_members(self) -> bool {
        self.row().names_members
    }

    /// Topics that members of the role publish, and topics that they read.
    pub(crate) fn topics(self) -> (&'static [&'static str], &'static [&'static str]) {
        (self.row().publishes, self.row().reads)
    }
}
