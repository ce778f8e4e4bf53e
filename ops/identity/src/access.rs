//! Mosquitto's access rules: one block for each user, named by the subject of its certificate.

use std::fmt::Write;

use headwater_protocol::{GroupId, SiteId};

use crate::member::{Member, Role};

/// Direction of a rule, as Mosquitto names it.
#[derive(Clone, Copy)]
enum Access {
    Read,
    Write,
}

impl Access {
    const fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// The rules of a file, for the members that are not revoked.
pub(crate) fn rules<'a>(site: &SiteId, members: impl IntoIterator<Item = &'a Member>) -> String {
    let mut text =
        "# Written by `headwater enroll`; changes are lost. Who is not named here may do nothing.\n"
            .to_owned();
    for member in members {
        let Some(group) = &member.group else { continue };
        // Writing to a string cannot fail.
        let _ = write!(text, "\n# {} {member}\nuser {}\n", member.role.name(), member.user(site));
        for (access, topic) in rules_of(member) {
            let _ = writeln!(text, "topic {} {}", access.word(), full(site, group, &topic));
        }
    }
    text
}

fn full(site: &SiteId, group: &GroupId, topic: &str) -> String {
    format!("headwater/v1/{site}/{group}/{topic}")
}

/// Topics under those of its group that a member publishes and reads.
fn rules_of(member: &Member) -> Vec<(Access, String)> {
    use Access::{Read, Write};
    let name = &member.name;
    let all = |access, topics: &[&str]| {
        topics.iter().map(|topic| (access, (*topic).to_owned())).collect::<Vec<_>>()
    };
    let own = |access, kind: &str, leaves: &[&str]| {
        leaves.iter().map(|leaf| (access, format!("{kind}/{name}/{leaf}"))).collect::<Vec<_>>()
    };
    match member.role {
        Role::Broker | Role::Cloud => Vec::new(),
        Role::Device => [
            own(Write, "dev", &["status", "birth", "summary", "features", "decision", "frame"]),
            own(Read, "dev", &["status", "birth", "cmd"]),
            all(Read, &["trigger", "request", "settled", "leader"]),
        ]
        .concat(),
        Role::Leader => [
            // The leader clears the births of devices that the setting `devices` does not name: a revoked device cannot.
            all(Write, &["request", "settled", "result", "revision", "leader", "dev/+/cmd", "dev/+/birth"]),
            all(Read, &["leader", "settled", "trigger"]),
            all(Read, &["dev/+/status", "dev/+/birth", "dev/+/summary", "dev/+/features", "dev/+/decision"]),
            all(Read, &["edge/+/status", "edge/+/features"]),
        ]
        .concat(),
        Role::Edge => [
            own(Write, "edge", &["status", "features"]),
            own(Read, "edge", &["status"]),
            all(Read, &["request", "trigger", "leader"]),
            all(Read, &["dev/+/status", "dev/+/birth", "dev/+/summary", "dev/+/features", "dev/+/decision"]),
        ]
        .concat(),
        Role::Operator => [all(Write, &["trigger", "dev/+/cmd"]), all(Read, &["#"])].concat(),
        Role::Consumer => all(Read, &["result", "revision", "settled", "leader"]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(role: Role, name: &str) -> Member {
        Member::new(role, Some("gate".parse().unwrap()), name).unwrap()
    }

    #[test]
    fn a_device_publishes_as_itself_alone() {
        let text = rules(&"hall".parse().unwrap(), [&member(Role::Device, "cam-0")]);
        assert!(text.contains("\nuser CN=cam-0,OU=gate,O=hall\n"), "{text}");
        let writes: Vec<_> = text.lines().filter(|line| line.starts_with("topic write")).collect();
        assert_eq!(writes.len(), 6);
        assert!(
            writes.iter().all(|line| line.starts_with("topic write headwater/v1/hall/gate/dev/cam-0/")),
            "{text}"
        );
    }

    #[test]
    fn a_birth_is_written_by_its_device_and_by_the_leader_that_clears_it() {
        let writers = Role::ALL.into_iter().filter(|role| role.has_group()).filter(|role| {
            let rules = rules_of(&member(*role, "cam-0"));
            rules.iter().any(|(access, rule)| {
                matches!(access, Access::Write) && (rule == "dev/+/birth" || rule == "dev/cam-0/birth")
            })
        });
        assert_eq!(writers.collect::<Vec<_>>(), [Role::Device, Role::Leader]);
    }

    #[test]
    fn only_the_leader_publishes_decisions_and_only_the_operator_reads_frames() {
        for topic in ["request", "settled", "result", "revision", "leader"] {
            let writers = Role::ALL.into_iter().filter(|role| role.has_group()).filter(|role| {
                let rules = rules_of(&member(*role, "x"));
                rules.iter().any(|(access, rule)| matches!(access, Access::Write) && rule == topic)
            });
            assert_eq!(writers.collect::<Vec<_>>(), [Role::Leader], "{topic}");
        }
        let readers = Role::ALL.into_iter().filter(|role| role.has_group()).filter(|role| {
            let rules = rules_of(&member(*role, "x"));
            rules.iter().any(|(access, rule)| {
                matches!(access, Access::Read) && (rule == "#" || rule.ends_with("/frame"))
            })
        });
        assert_eq!(readers.collect::<Vec<_>>(), [Role::Operator]);
    }
}
