//! Settings of `headwater-aggregator`: one group by settings of its own, or several as `[[group]]`.

use headwater_inference::bundle::{Networks, OpenedBundles};
use headwater_inference::policy::{Policy, PolicyChanges, PolicyFileError};
use headwater_protocol::{GroupId, PolicyId};
use headwater_settings::{
    CommandLine, Misfit, Program, SecuritySettings, Tables, Value, flat, optional, settings, tables,
};
use headwater_transport::tls::Certificate;

use crate::settings::config::{AggregatorConfig, OpenedGroup, SharedConfig};
use crate::settings::group::{GroupSettings, Role};

settings! {
    /// Leads the decisions of groups of devices, or runs an edge section for a leader (--role edge).
    ///
    /// One group is given by flags, the environment or the top of the file; several groups by one `[[group]]` table each.
    #[derive(Clone, Debug)]
    pub struct AggregatorSettings {
        /// Options of the command line.
        pub command_line: CommandLine = flat(),
        /// For this start: groups whose ids have changed, by name, with commas between. A new period or ids that begin again are such changes.
        /// Ids in their journals are forgotten, the counts stay.
        pub new_numbering: Vec<GroupId> = optional("gate,yard").flag_only(),
        /// The groups.
        pub groups: Tables<GroupSettings> = tables("group"),
        /// Settings of all groups.
        pub shared: SharedConfig = flat(),
    }
}

impl AggregatorSettings {
    /// Opens the bundles, policies, certificates and keys that the settings name, and checks the settings with them. No journal is opened.
    ///
    /// # Errors
    /// Every file that cannot be opened, with the name of its setting; if all can be opened, every setting that cannot work.
    pub fn open_checked(&self) -> Result<AggregatorConfig, Vec<String>> {
        let config = self.open()?;
        let mistakes = config.check_at(|index| self.groups.place(index));
        if mistakes.is_empty() { Ok(config) } else { Err(mistakes) }
    }

    /// Writes the release numbers of the groups' current bundles, if these are signed, into the `release_file`, so that older releases are
    /// refused.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn keep_releases(&self, config: &AggregatorConfig) -> Result<(), String> {
        config.groups.iter().try_for_each(|group| {
            let release = group.networks.current().release().map(|signed| signed.number);
            self.shared.security.keep_release(&group.settings.full_name(), release)
        })
    }

    /// Opens the bundles, policies, certificates and keys that the settings name. No journal is opened.
    ///
    /// # Errors
    /// Every file that cannot be opened, with the name of its setting.
    pub fn open(&self) -> Result<AggregatorConfig, Vec<String>> {
        let (mut groups, mut mistakes, mut bundles) = (Vec::new(), Vec::new(), OpenedBundles::default());
        for (index, group) in self.groups.all.iter().enumerate() {
            let place = self.groups.place(index);
            match group.open(&self.shared.security, &mut bundles) {
                Ok(group) => groups.push(group),
                Err(of_group) => {
                    mistakes.extend(of_group.into_iter().map(|mistake| format!("{place}{mistake}")));
                }
            }
        }
        for name in &self.new_numbering {
            let mut found = groups.iter_mut().filter(|group| group.settings.group == *name).peekable();
            if found.peek().is_none() && mistakes.is_empty() {
                mistakes.push(format!("--new-numbering: expected a group of this process, found {name}"));
            }
            found.for_each(|group| group.new_numbering = true);
        }
        mistakes.extend(self.shared.file_mistakes());
        let config = AggregatorConfig { shared: self.shared.clone(), groups };
        if mistakes.is_empty() { Ok(config) } else { Err(mistakes) }
    }
}

impl Program for AggregatorSettings {
    const NAME: &'static str = "headwater-aggregator";
    const PREFIX: &'static str = "HEADWATER_";
    const OTHER_VARIABLES: &'static [&'static str] = &[
        "HEADWATER_DEVICE_",
        "HEADWATER_CLOUD_",
        "HEADWATER_DATA",
        "HEADWATER_LOG",
        "HEADWATER_SITE_DIR",
        "HEADWATER_TEST_",
        "HEADWATER_WRITE_EXAMPLES",
    ];

    fn check(&self, _values: &[Value]) -> Vec<Misfit> {
        let groups = self.groups.all.iter().enumerate();
        let of_groups = groups.flat_map(|(index, group)| {
            group.check().into_iter().map(move |misfit| misfit.at(&self.groups.place(index)))
        });
        self.shared.check().into_iter().chain(of_groups).collect()
    }
}

impl GroupSettings {
    /// Opens the bundles of the group.
    pub(crate) fn open_networks(
        &self,
        security: &SecuritySettings,
        bundles: &mut OpenedBundles,
    ) -> Result<Networks, Vec<String>> {
        let trust = security.trust(&self.full_name(), Some(&self.site)).map_err(|mistake| vec![mistake])?;
        Networks::open_among(bundles, (&self.bundle, self.next_bundle.as_deref()), trust.as_ref())
    }

    /// Opens the files of the group.
    fn open(
        &self,
        security: &SecuritySettings,
        bundles: &mut OpenedBundles,
    ) -> Result<OpenedGroup, Vec<String>> {
        let mut mistakes = Vec::new();
        let networks = self.open_networks(security, bundles);
        let networks = networks.map_err(|of_bundles| mistakes.extend(of_bundles)).ok();
        let identity = self.identity(&security.tls).map_err(|mistake| mistakes.push(mistake)).ok().flatten();
        let policy = self.policy(networks.as_ref());
        let policy = policy.map_err(|mistake| mistakes.push(format!("policy: {mistake}"))).ok().flatten();
        let role =
            self.role().map_err(|of_role| mistakes.extend(of_role.iter().map(ToString::to_string))).ok();
        if let Some(role) = &role {
            mistakes.extend(self.certificate_mistake(security, role));
        }
        let Some((networks, role)) = networks.zip(role).filter(|_| mistakes.is_empty()) else {
            return Err(mistakes);
        };
        let (site, group) = (self.site.clone(), self.group.clone());
        Ok(OpenedGroup {
            settings: self.clone(),
            role,
            policy,
            identity,
            ..OpenedGroup::new(site, group, networks)
        })
    }

    /// The current network's policy with the changes of the policy file; `None` without such a file. Without networks the file is read for
    /// its mistakes alone.
    fn policy(&self, networks: Option<&Networks>) -> Result<Option<(Policy, PolicyId)>, PolicyFileError> {
        let Some(file) = &self.policy else { return Ok(None) };
        match networks {
            Some(networks) => PolicyChanges::policy_of(file, networks.current().policies()).map(Some),
            None => PolicyChanges::read(file).map(|_| None),
        }
    }

    /// The mistake if the certificate, made by `headwater enroll`, was issued to a member other than this group's leader or edge.
    fn certificate_mistake(&self, security: &SecuritySettings, role: &Role) -> Option<String> {
        let file = self.certificate_file.as_ref().or(security.tls.certificate_file.as_ref())?;
        // A file that cannot be read is reported elsewhere: by `identity`, or with the files of the process.
        let own = Certificate::read(file).ok()?;
        let (site, group) = (self.site.as_str(), self.group.as_str());
        let fits = match role {
            Role::Leader { .. } => own.check_holder("leader", &[site, group]),
            Role::Edge { id, .. } => own.check_holder("edge", &[site, group, id.as_str()]),
        };
        fits.err().map(|mistake| format!("certificate_file: {mistake}"))
    }
}
