//! Settings files of the tiers, read by the code of the tiers' own programs.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use headwater_cloud_service::CloudSettings;
use headwater_edge_aggregator::{
    AggregatorSettings, GroupSettings, Role, RoleName, edge_subscriptions, leader_subscriptions,
};
use headwater_end_device::DeviceSettings;
use headwater_inference::bundle::Networks;
use headwater_link::{LinkConfig, QoS};
use headwater_protocol::{DeviceId, GroupId, PolicyId, SiteId, Topic, Topics};
use headwater_settings::{BrokerSettings, Finding, SecuritySettings, Sources, Stop, TlsSettings, load};
use headwater_transport::BrokerAccess;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TierKind {
    Device,
    Aggregator,
    Cloud,
}

impl TierKind {
    pub(super) const ALL: [Self; 3] = [Self::Device, Self::Aggregator, Self::Cloud];

    /// Name of the tier in the report; `headwater-` and this name are the name of the program.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Aggregator => "aggregator",
            Self::Cloud => "cloud",
        }
    }

    pub(super) fn program(self) -> String {
        format!("headwater-{}", self.name())
    }

    /// Usual port of the admin listener, as in the example files.
    pub(super) const fn admin_port(self) -> u16 {
        match self {
            Self::Cloud => 9600,
            Self::Aggregator => 9601,
            Self::Device => 9602,
        }
    }

    /// Usual place of the settings file.
    pub(super) fn place(self) -> String {
        format!("/etc/headwater/{}.toml", self.name())
    }
}

pub(super) struct Tier {
    pub(super) kind: TierKind,
    pub(super) file: PathBuf,
    pub(super) settings: TierSettings,
    /// Settings about certificates, keys and passwords.
    pub(super) security: SecuritySettings,
    /// Address of the admin port; `None` if the settings name none.
    pub(super) admin: Option<SocketAddr>,
    /// The broker; `None` for the cloud.
    pub(super) broker: Option<BrokerSettings>,
    /// The groups in which the tier takes part: one for a device, any number for an aggregator, none for the cloud.
    pub(super) members: Vec<Member>,
}

pub(super) enum TierSettings {
    Device(Box<DeviceSettings>),
    Aggregator(Box<AggregatorSettings>),
    Cloud(Box<CloudSettings>),
}

/// One group in which a tier takes part.
pub(super) struct Member {
    pub(super) site: SiteId,
    pub(super) group: GroupId,
    pub(super) role: MemberRole,
    pub(super) has_details: bool,
    /// Filters to which the program of this member subscribes.
    pub(super) subscriptions: Vec<String>,
    /// Files with the certificate that the member shows the broker.
    pub(super) tls: TlsSettings,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MemberRole {
    Device(DeviceId),
    Leader,
    Edge,
}

impl Tier {
    /// Reads a settings file: one tier, or a device for each table `[[devices]]`. Environment variables, which the program of the tier would
    /// read too, are not read.
    ///
    /// # Errors
    /// Every mistake in the file.
    pub(super) fn read(kind: TierKind, file: &Path) -> Result<Vec<Self>, Vec<String>> {
        let sources = Sources::of_file(file);
        let mistakes = Stop::into_mistakes;
        let all: Vec<_> = match kind {
            TierKind::Device => {
                let loaded = DeviceSettings::load_each(sources).map_err(mistakes)?.into_iter();
                loaded.map(|loaded| TierSettings::Device(Box::new(loaded.settings))).collect()
            }
            TierKind::Aggregator => {
                let loaded = load::<AggregatorSettings>(sources).map_err(mistakes)?;
                vec![TierSettings::Aggregator(Box::new(loaded.settings))]
            }
            TierKind::Cloud => {
                let loaded = load::<CloudSettings>(sources).map_err(mistakes)?;
                vec![TierSettings::Cloud(Box::new(loaded.settings))]
            }
        };
        Ok(all.into_iter().map(|settings| Self::new(kind, file, settings)).collect())
    }

    fn new(kind: TierKind, file: &Path, settings: TierSettings) -> Self {
        let (security, admin, broker) = match &settings {
            TierSettings::Device(of) => (&of.security, of.admin.listen, Some(&of.broker)),
            TierSettings::Aggregator(of) => {
                (&of.shared.security, of.shared.admin.listen, Some(&of.shared.broker))
            }
            TierSettings::Cloud(of) => (&of.service.security, of.service.admin.listen, None),
        };
        let (security, broker) = (security.clone(), broker.cloned());
        Self { kind, file: file.into(), members: settings.members(), settings, security, admin, broker }
    }

    /// Checks the files of the tier, as its program does with `--check-config`. Returns the findings, and for each member, or for the
    /// cloud, its networks and policy.
    pub(super) fn check(&self) -> (Vec<Finding>, Vec<CheckedMember>) {
        match &self.settings {
            TierSettings::Device(settings) => {
                let (findings, member) = settings.checks();
                (findings, vec![member])
            }
            TierSettings::Aggregator(loaded) => loaded.checks(),
            TierSettings::Cloud(settings) => {
                let (findings, networks) = settings.checks();
                (findings, vec![networks.map(|networks| (networks, None))])
            }
        }
    }

    /// Address of the broker, and the certificate or password that a member shows there.
    ///
    /// # Errors
    /// Every setting and file that cannot be used.
    pub(super) fn access(&self, member: &Member) -> Result<BrokerAccess, Vec<String>> {
        let Some(broker) = &self.broker else { return Err(vec!["the cloud has no broker".into()]) };
        SecuritySettings { tls: member.tls.clone(), ..self.security.clone() }.broker_access(broker)
    }

    /// Name of a check; with the group's name if the tier is in several groups.
    pub(super) fn check_name(&self, check: &str, member: &Member) -> String {
        if self.members.len() > 1 { format!("{check} of {}", member.group) } else { check.to_owned() }
    }
}

impl TierSettings {
    fn members(&self) -> Vec<Member> {
        match self {
            Self::Device(settings) => vec![Member {
                subscriptions: device_subscriptions(settings),
                site: settings.site.clone(),
                group: settings.group.clone(),
                role: MemberRole::Device(settings.id.clone()),
                has_details: false,
                tls: settings.security.tls.clone(),
            }],
            Self::Aggregator(loaded) => {
                let of_process = &loaded.shared.security.tls;
                let member = |group: &GroupSettings| Member {
                    site: group.site.clone(),
                    group: group.group.clone(),
                    role: match group.role {
                        RoleName::Leader => MemberRole::Leader,
                        RoleName::Edge => MemberRole::Edge,
                    },
                    has_details: group.details,
                    subscriptions: group_subscriptions(group),
                    tls: group.tls(of_process),
                };
                loaded.groups.all.iter().map(member).collect()
            }
            Self::Cloud(_) => Vec::new(),
        }
    }
}

/// Topic filters to which a device's program subscribes.
fn device_subscriptions(settings: &DeviceSettings) -> Vec<String> {
    let topics = Topics::new(&settings.site, &settings.group);
    let own = headwater_end_device::subscriptions(&topics, &settings.id, settings.capture());
    own.into_iter().map(|subscription| subscription.filter).collect()
}

/// Topic filters to which a group's leader or edge subscribes.
fn group_subscriptions(group: &GroupSettings) -> Vec<String> {
    let topics = Topics::new(&group.site, &group.group);
    match group.role() {
        Ok(Role::Leader { .. }) => leader_subscriptions(&topics),
        Ok(Role::Edge { id, .. }) => edge_subscriptions(&topics, &id),
        // Settings that do not fit the role are refused when the file is read.
        Err(_) => Vec::new(),
    }
}

impl Member {
    /// Settings of a connection that subscribes to this member's topics and to the leader's claim, and publishes nothing.
    pub(super) fn link(&self, access: BrokerAccess, client_id: String, limit_ms: u64) -> LinkConfig {
        let mut config = LinkConfig::new(access, client_id);
        config.connect_timeout_ms = limit_ms;
        // The claim has a time of the leader's clock. `QoS` 0 suffices: access rules do not depend on the `QoS`, and nothing need be acknowledged.
        let claim = Topics::new(&self.site, &self.group).name(&Topic::Leader);
        let claim = Some(claim).filter(|claim| !self.subscriptions.contains(claim));
        let filters = self.subscriptions.iter().cloned().chain(claim);
        filters.fold(config, |config, filter| config.subscribe(filter, QoS::AtMostOnce))
    }
}

/// Networks of a member, and the policy in effect; `None` if the settings or bundles cannot be used.
pub(super) type CheckedMember = Option<(Networks, Option<PolicyId>)>;

/// Networks of each member, or of the cloud; `None` if the bundles cannot be used.
pub(super) type TierNetworks = Vec<Option<Networks>>;
