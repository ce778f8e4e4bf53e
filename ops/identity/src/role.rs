//! Roles of members, one row each, with the topics that they publish and read.

use serde::{Deserialize, Serialize};

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
    /// A person or program that triggers samples, changes policies and sees frames.
    Operator,
    /// A program that reads results.
    Consumer,
    /// A person or program that checks what was decided, and who changed policies.
    Auditor,
    /// A program that shows several groups; its rights are [`PageRights`](crate::PageRights).
    Page,
}

/// Groups of the members of a role.
#[derive(PartialEq, Eq)]
enum Scope {
    /// Servers of the whole site. They accept connections, so their certificates name hosts.
    Server,
    /// One group each.
    OneGroup,
    /// The groups of their rights.
    Rights,
}

/// A role as it is said and as the broker enforces it.
struct Row {
    role: Role,
    name: &'static str,
    help: &'static str,
    scope: Scope,
    /// Whether a member without a name takes that of the role.
    names_members: bool,
    /// Topics under those of the group. `{name}` is the member's name.
    publishes: &'static [&'static str],
    reads: &'static [&'static str],
}

/// A role without topics.
const fn server(role: Role, name: &'static str, help: &'static str) -> Row {
    Row { role, name, help, scope: Scope::Server, names_members: true, publishes: &[], reads: &[] }
}

/// Every role.
static ROLES: [Row; 9] = [
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
        // The leader clears the births of devices that the setting `devices` does not name: a revoked device cannot.
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
        role: Role::Auditor,
        name: "auditor",
        help: "Reads results and the answers to changes of policies",
        scope: Scope::OneGroup,
        names_members: false,
        publishes: &[],
        reads: &["result", "revision", "policy/+/answer"],
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
    /// Every role.
    pub fn all() -> impl Iterator<Item = Self> {
        ROLES.iter().map(|row| row.role)
    }

    fn row(self) -> &'static Row {
        ROLES.iter().find(|row| row.role == self).expect("each role has its row")
    }

    /// The role of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::all().find(|role| role.name() == name)
    }

    /// Name in commands and lists.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Its members in a few words.
    pub fn help(self) -> &'static str {
        self.row().help
    }

    /// Whether each of its members belongs to one group.
    pub fn has_group(self) -> bool {
        self.row().scope == Scope::OneGroup
    }

    /// Whether its members accept connections, so that their certificates name hosts.
    pub fn is_server(self) -> bool {
        self.row().scope == Scope::Server
    }

    /// Whether a member without a name takes that of the role.
    pub fn names_members(self) -> bool {
        self.row().names_members
    }

    /// Topics that its members publish, and those that they read.
    pub(crate) fn topics(self) -> (&'static [&'static str], &'static [&'static str]) {
        (self.row().publishes, self.row().reads)
    }
}
