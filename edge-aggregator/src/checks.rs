//! Checks of the settings, and of the files that the settings name.

use headwater_inference::bundle::{Bundle, Networks, OpenedBundles};
use headwater_inference::engine::TractEngine;
use headwater_inference::leader::Exits;
use headwater_inference::sections::EdgeSection;
use headwater_protocol::PolicyId;
use headwater_settings::{Finding, Program, Written, add_mistakes, bundles, no_file, readable_secret};
use headwater_transport::folder_of;
use headwater_transport::tls::End;

use crate::group::leader::local_edges;
use crate::settings::aggregator::AggregatorSettings;
use crate::settings::group::{GroupSettings, Role};

/// Networks of a group, and the id of its policy in effect. The outer `None`: the group's networks cannot be opened, or a file of any group
/// is missing. The inner `None`: `open_checked` found mistakes in any group.
type CheckedGroup = Option<(Networks, Option<PolicyId>)>;

impl AggregatorSettings {
    /// Checks the files that the settings name, the engine's sections, and what `open_checked` refuses; no journal is opened. Returns the
    /// findings, and for each group its networks and policy id.
    pub fn checks(&self) -> (Vec<Finding>, Vec<CheckedGroup>) {
        let groups = || self.groups.all.iter().enumerate().map(|(at, group)| (self.groups.place(at), group));
        let mut findings: Vec<_> = groups().flat_map(|(place, group)| group.not_files(&place)).collect();
        let can_open = findings.is_empty();
        let security = &self.shared.security;
        let places: Vec<_> = groups().collect();
        let identities =
            places.iter().map(|(place, of)| (place.as_str(), of.tls(&security.tls), End::Client));
        findings.extend(security.check_identities(identities));
        let secrets = [&self.shared.broker.password_file, &self.shared.cloud.key_file];
        findings.extend(secrets.into_iter().filter_map(|file| readable_secret(file.as_deref())));
        findings.extend(groups().filter_map(|(place, group)| Some(group.journal_folder(&place)?.check())));
        if !can_open {
            return (findings, vec![None; places.len()]);
        }
        let (mut opened, mut edges, mut opened_bundles) = (Vec::new(), 0, OpenedBundles::default());
        for (place, group) in &places {
            let networks = group.open_networks(security, &mut opened_bundles);
            findings.extend(bundles(place, networks.as_ref().map(Networks::summary)));
            for (_, bundle) in networks.iter().flat_map(|networks| networks.bundles().iter()) {
                match group.load_sections(bundle) {
                    Ok(loaded) => edges += loaded,
                    Err(reason) => {
                        findings.push(Finding::fail("engine", format!("{place}{reason}"), OTHER_EDGES));
                    }
                }
            }
            opened.push(networks.ok().map(|networks| (networks, None)));
        }
        if edges > 0 {
            findings.push(Finding::ok("engine", format!("tract (built in) loads {edges} edge sections")));
        }
        match self.open_checked() {
            Ok(config) => {
                for (opened, group) in opened.iter_mut().flatten().zip(&config.groups) {
                    opened.1 = Some(group.current_policy().1);
                }
                add_mistakes(Self::NAME, &mut findings, Vec::new());
            }
            Err(mistakes) => add_mistakes(Self::NAME, &mut findings, mistakes),
        }
        (findings, opened)
    }
}

/// Advice about sections that do not load.
const OTHER_EDGES: &str =
    "take a bundle with the sections of this group's edges, or correct `edge` or `local_edges`";

impl GroupSettings {
    fn not_files(&self, place: &str) -> Vec<Finding> {
        let bundle = Some(&self.bundle);
        let files = [
            ("bundle", bundle),
            ("next_bundle", self.next_bundle.as_ref()),
            ("policy", self.policy.as_ref()),
        ];
        let found = |(key, path): (&str, Option<&std::path::PathBuf>)| {
            no_file(&format!("{place}{key}"), path.map(AsRef::as_ref), false)
        };
        files.into_iter().filter_map(found).collect()
    }

    /// The folder of the journal, which must be writable: compaction writes a second file beside the journal. `None` without a journal.
    fn journal_folder(&self, place: &str) -> Option<Written> {
        let file = self.journal.path.clone()?;
        let folder = folder_of(&file).to_owned();
        let (key, wanted) = (format!("{place}journal.path"), self.journal.max_bytes);
        Some(Written { key, folder, file: Some(file), wanted })
    }

    /// Loads the exits and edge sections of one network that this member runs; returns the number of edge sections.
    fn load_sections(&self, bundle: &Bundle) -> Result<usize, String> {
        let engine = TractEngine::new();
        let count = bundle.manifest().edge.as_ref().map_or(0, |tier| tier.groups.len());
        // Edges that the network lacks and settings that do not fit the role are left out here: `open_checked` reports them.
        let edges = match self.role() {
            Err(_) => Vec::new(),
            Ok(Role::Edge { edge, .. }) => Vec::from_iter((edge.index() < count).then_some(edge)),
            Ok(role @ Role::Leader { .. }) => {
                Exits::load(bundle, &engine).map_err(|error| format!("exits: {error}"))?;
                local_edges(&role, count).unwrap_or_default()
            }
        };
        for edge in &edges {
            EdgeSection::load(bundle, edge.index(), &engine)
                .map_err(|error| format!("section of edge {edge}: {error}"))?;
        }
        Ok(edges.len())
    }
}
