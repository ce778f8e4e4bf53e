//! Checks of a whole configuration, which `--check-config` and the start of the aggregator share.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use headwater_transport::folder_of;

use crate::error::AggregatorError;
use crate::group::leader::local_edges;
use crate::open_files;
use crate::settings::config::{AggregatorConfig, OpenedGroup, infer_endpoint};
use crate::settings::group::{GroupSettings, Role};

impl AggregatorConfig {
    /// Every setting that cannot work, with key, expected and found. The check opens no connection and changes no file. If a member, an
    /// edge's name or a client id occurs twice, other mistakes of groups are not looked for.
    pub fn check(&self) -> Vec<String> {
        let is_one = self.groups.len() == 1;
        self.check_at(|index| if is_one { String::new() } else { format!("group[{index}].") })
    }

    /// Like [`Self::check`], with `place(index)` in front of each key of a group.
    pub(crate) fn check_at(&self, place: impl Fn(usize) -> String) -> Vec<String> {
        let mut mistakes: Vec<_> = self.shared.check().iter().map(ToString::to_string).collect();
        let names = self.repeated_names(&place);
        if !names.is_empty() {
            mistakes.extend(names);
            return mistakes;
        }
        mistakes.extend(open_files::check(self.groups.len(), self.shared.cloud.max_requests).err());
        let (mut journals, mut policies) = (BTreeSet::new(), BTreeSet::new());
        for (index, group) in self.groups.iter().enumerate() {
            let mut of_group = group.network_mistakes();
            of_group.extend(self.model_mistake(group));
            of_group.extend(group.journal_mistake(&mut journals));
            of_group.extend(group.policy_mistake(&mut policies));
            mistakes.extend(of_group.into_iter().map(|mistake| format!("{}{mistake}", place(index))));
        }
        mistakes
    }

    /// The mistake of a model name that cannot be part of an address at the cloud service.
    fn model_mistake(&self, group: &OpenedGroup) -> Option<String> {
        let (url, model) = (self.shared.cloud.url.as_ref()?, group.settings.model.as_ref()?);
        infer_endpoint(url, model).err().map(|mistake| format!("model: {mistake}"))
    }

    /// Mistakes of two members: the same role in the same group, the same name of two edges in one group, or the same client id.
    fn repeated_names(&self, place: impl Fn(usize) -> String) -> Vec<String> {
        let (mut members, mut edge_ids, mut client_ids) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let mut mistakes = Vec::new();
        for (index, config) in self.groups.iter().enumerate() {
            let (GroupSettings { site, group, client_id, .. }, role) = (&config.settings, &config.role);
            let mut refuse = |key: &str, expected: &str, found: &dyn Display| {
                mistakes.push(format!("{}{key}: expected {expected}, found {found} again", place(index)));
            };
            let edge = match role {
                Role::Leader { .. } => None,
                Role::Edge { edge, id } => Some((edge, id)),
            };
            if !members.insert((site, group, edge.map(|(edge, _)| edge))) {
                refuse("group", "each role of a group once", group);
            }
            if let Some((_, id)) = edge.filter(|(_, id)| !edge_ids.insert((site, group, *id))) {
                refuse("edge_id", "another name for each edge", id);
            }
            if let Some(id) = client_id.as_ref().filter(|id| !client_ids.insert(*id)) {
                refuse("client_id", "another id for each group", id);
            }
        }
        mistakes
    }
}

impl OpenedGroup {
    /// Mistakes of `devices`, `edge` and `local_edges`: values that do not fit the group's networks.
    fn network_mistakes(&self) -> Vec<String> {
        let mut mistakes = Vec::new();
        for (_, bundle) in self.networks.bundles().iter() {
            let (slots, ids) = (usize::from(bundle.manifest().slots), self.settings.devices.len());
            if ids != 0 && ids != slots {
                mistakes.push(format!("devices: expected an id for each of {slots} slots, found {ids}"));
            }
            let edges = bundle.manifest().edge.as_ref().map_or(0, |edge| edge.groups.len());
            match &self.role {
                Role::Edge { edge, .. } if edge.index() < edges => {}
                Role::Edge { edge, .. } => mistakes.push(format!(
                    "edge: expected one of the {edges} edges of network {}, counted from 0, found {edge}",
                    bundle.network_id().short()
                )),
                Role::Leader { .. } => match local_edges(&self.role, edges) {
                    Err(AggregatorError::Config(of_role)) => mistakes.extend(of_role),
                    Err(other) => mistakes.push(other.to_string()),
                    Ok(_) => {}
                },
            }
        }
        mistakes
    }

    /// The mistake of `policy`: an earlier group has the same file, which a command to either group would change for both. `policies` has the
    /// files of earlier groups.
    fn policy_mistake(&self, policies: &mut BTreeSet<PathBuf>) -> Option<String> {
        let path = self.settings.policy.as_ref().filter(|_| matches!(self.role, Role::Leader { .. }))?;
        let is_first = policies.insert(path.canonicalize().unwrap_or_else(|_| path.clone()));
        let found = path.display();
        (!is_first).then(|| format!("policy: expected another file for each group, found {found} again"))
    }

    /// The mistake of `journal.path`: its folder is missing, it is no regular file, or an earlier group has the same file. `None` without a
    /// mistake or without a journal. `journals` has the journals of earlier groups.
    fn journal_mistake(&self, journals: &mut BTreeSet<JournalFile>) -> Option<String> {
        let path = self.settings.journal.path.as_ref();
        let path = path.filter(|_| matches!(self.role, Role::Leader { .. }))?;
        let bundles = [Some(&self.settings.bundle), self.settings.next_bundle.as_ref()];
        let whole = path.canonicalize().ok();
        if whole.is_some() && bundles.into_iter().flatten().any(|bundle| bundle.canonicalize().ok() == whole)
        {
            let path = path.display();
            return Some(format!("journal.path: expected a file of its own, found the bundle {path}"));
        }
        let is_first = JournalFile::of(path).map(|file| journals.insert(file));
        match is_first {
            Ok(true) => None,
            Ok(false) => {
                let path = path.display();
                Some(format!("journal.path: expected another file for each group, found {path} again"))
            }
            Err(mistake) => Some(format!("journal.path: {mistake}")),
        }
    }
}

/// Identity of a journal's file: the same for every path to that file.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum JournalFile {
    /// Device and inode of a file that exists.
    Existing(u64, u64),
    /// Folder and name of a file that the start creates.
    New(PathBuf),
}

impl JournalFile {
    fn of(path: &Path) -> Result<Self, String> {
        if let Ok(metadata) = path.metadata() {
            let found = path.display();
            let file = Self::Existing(metadata.dev(), metadata.ino());
            return if metadata.is_file() {
                Ok(file)
            } else {
                Err(format!("expected a file, found {found}"))
            };
        }
        let Some(name) = path.file_name() else {
            return Err(format!("expected the name of a file, found {}", path.display()));
        };
        let folder = folder_of(path);
        match folder.canonicalize() {
            Ok(folder) if folder.is_dir() => Ok(Self::New(folder.join(name))),
            Ok(_) => Err(format!("expected a folder at {}, found a file", folder.display())),
            Err(reason) => Err(format!("expected the folder {} to exist: {reason}", folder.display())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use headwater_inference::bundle::Bundle;
    use headwater_inference::manifest::Configuration;
    use headwater_inference::testing::TinyNetwork;
    use headwater_protocol::{EdgeId, EdgeIndex, GroupId, SiteId};
    use tempfile::TempDir;

    use super::*;
    use crate::settings::config::SharedConfig;

    /// A leader of the group `name`, with a network of this configuration.
    fn group(name: &str, configuration: Configuration) -> OpenedGroup {
        let bundle = Bundle::from_bytes(&TinyNetwork::of(configuration).bundle()).unwrap();
        let (site, group) = (SiteId::new("plant").unwrap(), GroupId::new(name).unwrap());
        OpenedGroup::new(site, group, Arc::new(bundle))
    }

    fn config(groups: Vec<OpenedGroup>) -> AggregatorConfig {
        AggregatorConfig { shared: SharedConfig::new("mqtt://127.0.0.1".parse().unwrap()), groups }
    }

    #[track_caller]
    fn check(groups: Vec<OpenedGroup>, expected: &[&str]) {
        assert_eq!(config(groups).check(), expected);
    }

    #[test]
    fn edges_that_the_network_does_not_have_are_named() {
        let leader = |edges: &[usize]| Role::Leader { local_edges: Some(edges.to_vec()) };
        let edge = |index| Role::edge(EdgeIndex::new(index).unwrap());
        for (configuration, role, expected) in [
            (Configuration::C, leader(&[0]), Some("local_edges: expected edges below 0, found 0")),
            (Configuration::F, leader(&[0, 1]), None),
            (Configuration::F, leader(&[2]), Some("local_edges: expected edges below 2, found 2")),
            (Configuration::F, edge(1), None),
            (Configuration::F, edge(2), Some("edge: expected one of the 2 edges of network ")),
        ] {
            let found = config(vec![OpenedGroup { role, ..group("gate", configuration) }]).check();
            let fits = |expected: &str| found.len() == 1 && found[0].starts_with(expected);
            assert!(expected.map_or(found.is_empty(), fits), "{expected:?} {found:?}");
        }
    }

    #[test]
    fn a_journal_of_two_groups_is_named_whatever_its_path() {
        let folder = TempDir::new().unwrap();
        let journal =
            |name: &str, path: &str| group(name, Configuration::C).with_journal(folder.path().join(path));
        let again = |path: &str| {
            let path = folder.path().join(path);
            format!(
                "group[1].journal.path: expected another file for each group, found {} again",
                path.display()
            )
        };
        check(vec![journal("north", "a"), journal("south", "b")], &[]);
        check(vec![journal("north", "a"), journal("south", "./a")], &[&again("./a")]);
        std::fs::write(folder.path().join("a"), "").unwrap();
        std::os::unix::fs::symlink(folder.path().join("a"), folder.path().join("link")).unwrap();
        check(vec![journal("north", "a"), journal("south", "link")], &[&again("link")]);
    }

    #[test]
    fn a_policy_file_of_two_groups_and_a_bundle_as_a_journal_are_named() {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("policy.toml");
        std::fs::write(&file, "").unwrap();
        let with_policy = |name: &str| {
            let mut group = group(name, Configuration::C);
            group.settings.policy = Some(file.clone());
            group
        };
        let again =
            format!("group[1].policy: expected another file for each group, found {} again", file.display());
        check(vec![with_policy("north"), with_policy("south")], &[&again]);
        let mut journal = group("gate", Configuration::C).with_journal(&file);
        journal.settings.bundle = file.clone();
        let found = format!("journal.path: expected a file of its own, found the bundle {}", file.display());
        assert_eq!(config(vec![journal]).check(), [found]);
    }

    #[test]
    fn a_journal_without_its_folder_is_named() {
        let folder = TempDir::new().unwrap();
        let missing = folder.path().join("none/journal");
        let found = config(vec![group("gate", Configuration::C).with_journal(&missing)]).check();
        let expected =
            format!("journal.path: expected the folder {} to exist", folder.path().join("none").display());
        assert!(found.len() == 1 && found[0].starts_with(&expected), "{found:?}");
        let found = config(vec![group("gate", Configuration::C).with_journal(folder.path())]).check();
        assert!(found[0].starts_with("journal.path: expected a file, found "), "{found:?}");
    }

    #[test]
    fn one_group_twice_and_one_client_id_twice_are_refused() {
        let mut groups = ["north", "south", "north"].map(|name| group(name, Configuration::C));
        groups[..2].iter_mut().for_each(|group| group.settings.client_id = Some("leader".into()));
        let expected = [
            "group[1].client_id: expected another id for each group, found leader again",
            "group[2].group: expected each role of a group once, found north again",
        ];
        check(groups.into(), &expected);
    }

    #[test]
    fn two_edges_of_one_group_with_one_name_are_named() {
        let edge = |group_name, edge, id: &str| {
            let role = Role::Edge { edge: EdgeIndex::new(edge).unwrap(), id: EdgeId::new(id).unwrap() };
            OpenedGroup { role, ..group(group_name, Configuration::F) }
        };
        // The first edge gets the name `edge-0` from its position.
        let first = Role::edge(EdgeIndex::new(0).unwrap());
        let first = OpenedGroup { role: first, ..group("north", Configuration::F) };
        let others =
            [("north", 1, "yard"), ("north", 2, "yard"), ("north", 3, "edge-0"), ("south", 0, "yard")];
        let others = others.map(|(group, index, id)| edge(group, index, id));
        let expected = [
            "group[2].edge_id: expected another name for each edge, found yard again",
            "group[3].edge_id: expected another name for each edge, found edge-0 again",
        ];
        check([first].into_iter().chain(others).collect(), &expected);
    }
}
