//! Mosquitto's access rules: one block for each user, named by the subject of its certificate.

use std::fmt::Write;

use headwater_protocol::SiteId;

use crate::member::{Member, PageRights};

/// Mosquitto's access file for these members, which must not be revoked. A member that has rights in no group gets no rule.
pub(crate) fn rules<'a>(site: &SiteId, members: impl IntoIterator<Item = &'a Member>) -> String {
    let mut text =
        "# Written by `headwater enroll`; changes are lost. Who is not named here may do nothing.\n"
            .to_owned();
    for member in members {
        if member.groups().next().is_none() {
            continue;
        }
        // Writing to a string cannot fail.
        let _ = write!(text, "\n# {} {member}\nuser {}\n", member.role.name(), member.user(site));
        for group in member.groups() {
            for (access, topic) in rules_of(member) {
                let _ = writeln!(text, "topic {access} headwater/v1/{site}/{group}/{topic}");
            }
        }
    }
    text
}

/// Topics that a member publishes (`write`) and reads (`read`), without the prefix of the group.
fn rules_of(member: &Member) -> impl Iterator<Item = (&'static str, String)> {
    let (publishes, reads) = member.role.topics();
    let (more, more_reads) = member.page.as_ref().map(PageRights::topics).unwrap_or_default();
    let of = |access: &'static str, topics: [&'static [&'static str]; 2]| {
        let topics = topics.into_iter().flatten();
        topics.map(move |topic| (access, topic.replace("{name}", &member.name)))
    };
    of("write", [publishes, more]).chain(of("read", [reads, more_reads]))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use headwater_protocol::GroupId;

    use super::*;
    use crate::role::Role;

    fn member(role: Role, name: &str) -> Member {
        Member::new(role, Some("gate".parse().unwrap()), name).unwrap()
    }

    #[test]
    fn a_device_publishes_as_itself_alone() {
        let text = rules(&"hall".parse().unwrap(), [&member(Role::Device, "cam-0")]);
        assert!(text.contains("\nuser CN=cam-0,OU=gate,O=hall\n"), "{text}");
        let writes: Vec<_> = text.lines().filter(|line| line.starts_with("topic write")).collect();
        assert_eq!(writes.len(), 7);
        assert!(
            writes.iter().all(|line| line.starts_with("topic write headwater/v1/hall/gate/dev/cam-0/")),
            "{text}"
        );
    }

    #[test]
    fn a_birth_is_written_by_its_device_and_by_the_leader_that_clears_it() {
        let writers = Role::all().filter(|role| role.has_group()).filter(|role| {
            rules_of(&member(*role, "cam-0")).any(|(access, rule)| {
                access == "write" && (rule == "dev/+/birth" || rule == "dev/cam-0/birth")
            })
        });
        assert_eq!(writers.collect::<Vec<_>>(), [Role::Device, Role::Leader]);
    }

    #[test]
    fn only_the_leader_publishes_decisions_and_commands_and_only_the_operator_reads_frames() {
        for topic in [
            "request",
            "settled",
            "result",
            "revision",
            "leader",
            "policy/+/answer",
            "frame",
            "kept",
            "dev/+/cmd",
        ] {
            let writers = Role::all().filter(|role| role.has_group()).filter(|role| {
                rules_of(&member(*role, "x")).any(|(access, rule)| access == "write" && rule == topic)
            });
            assert_eq!(writers.collect::<Vec<_>>(), [Role::Leader], "{topic}");
        }
        let readers = Role::all().filter(|role| role.has_group()).filter(|role| {
            rules_of(&member(*role, "x"))
                .any(|(access, rule)| access == "read" && (rule == "#" || rule.ends_with("/frame")))
        });
        assert_eq!(readers.collect::<Vec<_>>(), [Role::Operator]);
    }

    #[test]
    fn a_page_has_each_right_in_its_groups_alone() {
        let groups: BTreeSet<GroupId> = ["gate", "yard"].map(|name| name.parse().unwrap()).into();
        for (frames, act) in [(false, false), (true, false), (false, true), (true, true)] {
            let page = Member::page("wall", PageRights { groups: groups.clone(), frames, act }).unwrap();
            let text = rules(&"hall".parse().unwrap(), [&page]);
            assert!(text.contains("\nuser CN=wall,O=hall\n"), "{text}");
            for group in ["gate", "yard"] {
                let has = |rule: &str, topic: &str| {
                    text.contains(&format!("topic {rule} headwater/v1/hall/{group}/{topic}\n"))
                };
                for topic in ["result", "revision", "settled", "leader", "dev/+/status", "dev/+/birth"] {
                    assert!(has("read", topic), "{topic} in {text}");
                }
                for topic in ["frame", "dev/+/frame"] {
                    assert_eq!(has("read", topic), frames, "{topic} in {text}");
                }
                for (rule, topic) in
                    [("write", "trigger"), ("write", "policy/wall"), ("read", "policy/wall/answer")]
                {
                    assert_eq!(has(rule, topic), act, "{topic} in {text}");
                }
            }
            let rights = 6 + 2 * usize::from(frames) + 3 * usize::from(act);
            assert_eq!(text.matches("\ntopic ").count(), 2 * rights, "{text}");
        }
    }
}
