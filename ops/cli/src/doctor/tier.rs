//! Settings files of the tiers, read by the code of their programs.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use headwater_cloud_service::CloudSettings;
use headwater_edge_aggregator::{
    AggregatorSettings, GroupSettings, Role, RoleName, edge_subscriptions, leader_subscriptions,
};
use headwater_end_device::DeviceSettings;
use headwater_inference::bundle::Networks;
use headwater_link::{LinkConfig, QoS};
use headwater_protocol::{DeviceId, GroupId, SiteId, Topic, Topics, VerifyingKey};
use headwater_settings::{BrokerSettings, SecuritySettings, Sources, Stop, TlsSettings, load};
use headwater_transport::BrokerAccess;
use headwater_transport::tls::End;

/// Kind of a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TierKind {
    Device,
    Aggregator,
    Cloud,
}

impl TierKind {
    /// Every kind, with the place of its settings by convention.
    pub(super) const PLACES: [(Self, &'static str); 3] = [
        (Self::Device, "/etc/headwater/device.toml"),
        (Self::Aggregator, "/etc/headwater/aggregator.toml"),
        (Self::Cloud, "/etc/headwater/cloud.toml"),
    ];

    /// Name in the report.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Aggregator => "aggregator",
            Self::Cloud => "cloud",
        }
    }

    /// Name of the program.
    pub(super) const fn program(self) -> &'static str {
        match self {
            Self::Device => "headwater-device",
            Self::Aggregator => "headwater-aggregator",
            Self::Cloud => "headwater-cloud",
        }
    }

    /// Address of the admin port by convention.
    pub(super) const fn admin_address(self) -> &'static str {
        match self {
            Self::Device => "127.0.0.1:9602",
            Self::Aggregator => "127.0.0.1:9601",
            Self::Cloud => "127.0.0.1:9600",
        }
    }
}

/// A tier with its settings.
pub(super) struct Tier {
    pub(super) kind: TierKind,
    pub(super) file: PathBuf,
    pub(super) settings: TierSettings,
    /// Parts that the tier has in groups: one for a device, one for each group of an aggregator, none for the cloud.
    pub(super) members: Vec<Member>,
}

/// Settings of a tier.
pub(super) enum TierSettings {
    Device(Box<DeviceSettings>),
    Aggregator(Box<AggregatorSettings>),
    Cloud(Box<CloudSettings>),
}

/// Part that a tier has in a group.
pub(super) struct Member {
    /// In front of the keys of its settings: `group[1].`, or nothing.
    pub(super) place: String,
    pub(super) site: SiteId,
    pub(super) group: GroupId,
    pub(super) role: MemberRole,
    /// Filters to which the program of this member subscribes.
    pub(super) subscriptions: Vec<String>,
    /// Files of the identity at the broker.
    pub(super) tls: TlsSettings,
}

/// Role of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MemberRole {
    Device(DeviceId),
    Leader,
    Edge,
}

/// Bundles of a member or of the cloud, by their settings.
pub(super) struct BundleFiles<'a> {
    pub(super) place: &'a str,
    /// Site of the member; `None` for the cloud, which serves several.
    pub(super) site: Option<&'a SiteId>,
    pub(super) bundle: &'a Path,
    pub(super) next: Option<&'a Path>,
}

impl Tier {
    /// Reads a settings file. The environment is not read.
    ///
    /// # Errors
    /// Every mistake.
    pub(super) fn read(kind: TierKind, file: &Path) -> Result<Self, Vec<String>> {
        let sources = Sources::of_file(file);
        let mistakes = |stop: Stop| match stop {
            Stop::Mistakes(mistakes) => mistakes,
            Stop::Help(text) => vec![text],
        };
        let settings = match kind {
            TierKind::Device => {
                let loaded = DeviceSettings::load(sources).map_err(mistakes)?;
                TierSettings::Device(Box::new(loaded.settings))
            }
            TierKind::Aggregator => {
                let loaded = load::<AggregatorSettings>(sources).map_err(mistakes)?;
                TierSettings::Aggregator(Box::new(loaded.settings))
            }
            TierKind::Cloud => {
                let loaded = load::<CloudSettings>(sources).map_err(mistakes)?;
                TierSettings::Cloud(Box::new(loaded.settings))
            }
        };
        Ok(Self { kind, file: file.into(), members: settings.members(), settings })
    }

    /// Identity and trust.
    pub(super) fn security(&self) -> &SecuritySettings {
        match &self.settings {
            TierSettings::Device(settings) => &settings.security,
            TierSettings::Aggregator(loaded) => &loaded.shared.security,
            TierSettings::Cloud(settings) => &settings.service.security,
        }
    }

    /// Keys of which one must have signed a bundle.
    pub(super) fn trusted_keys(&self) -> Option<&[VerifyingKey]> {
        self.security().trusted_keys()
    }

    /// Address of the admin port.
    pub(super) fn admin(&self) -> Option<SocketAddr> {
        match &self.settings {
            TierSettings::Device(settings) => settings.admin.listen,
            TierSettings::Aggregator(loaded) => loaded.shared.admin.listen,
            TierSettings::Cloud(settings) => settings.service.admin.listen,
        }
    }

    /// The broker; `None` for the cloud, which has none.
    pub(super) fn broker(&self) -> Option<&BrokerSettings> {
        match &self.settings {
            TierSettings::Device(settings) => Some(&settings.broker),
            TierSettings::Aggregator(loaded) => Some(&loaded.shared.broker),
            TierSettings::Cloud(_) => None,
        }
    }

    /// Every identity of the tier with the place of its keys, and the end of the connections at which it is shown.
    pub(super) fn identities(&self) -> Vec<(&str, &TlsSettings, End)> {
        match &self.settings {
            TierSettings::Cloud(settings) => vec![("", &settings.service.security.tls, End::Server)],
            TierSettings::Device(_) | TierSettings::Aggregator(_) => {
                self.members.iter().map(|member| (member.place.as_str(), &member.tls, End::Client)).collect()
            }
        }
    }

    /// Every bundle of the tier: one for each member, or that of the cloud.
    pub(super) fn bundles(&self) -> Vec<BundleFiles<'_>> {
        match &self.settings {
            TierSettings::Device(settings) => {
                vec![BundleFiles {
                    place: "",
                    site: Some(&settings.site),
                    bundle: &settings.bundle,
                    next: None,
                }]
            }
            TierSettings::Aggregator(loaded) => {
                let groups = self.members.iter().zip(&loaded.groups.all);
                let files = groups.map(|(Member { place, .. }, group)| BundleFiles {
                    place,
                    site: Some(&group.site),
                    bundle: &group.bundle,
                    next: group.next_bundle.as_deref(),
                });
                files.collect()
            }
            TierSettings::Cloud(settings) => {
                let next = settings.next_bundle.as_deref();
                vec![BundleFiles { place: "", site: None, bundle: &settings.bundle, next }]
            }
        }
    }

    /// Access of a member to the broker.
    ///
    /// # Errors
    /// Every setting and file that cannot be used.
    pub(super) fn access(&self, member: &Member) -> Result<BrokerAccess, Vec<String>> {
        let Some(broker) = self.broker() else { return Err(vec!["the cloud has no broker".into()]) };
        SecuritySettings { tls: member.tls.clone(), ..self.security().clone() }.broker_access(broker)
    }

    /// Name of a check, with the group where the tier has several.
    pub(super) fn check_name(&self, check: &str, member: &Member) -> String {
        if self.members.len() > 1 { format!("{check} of {}", member.group) } else { check.to_owned() }
    }
}

impl TierSettings {
    fn members(&self) -> Vec<Member> {
        match self {
            Self::Device(settings) => vec![Member {
                place: String::new(),
                subscriptions: device_subscriptions(settings),
                site: settings.site.clone(),
                group: settings.group.clone(),
                role: MemberRole::Device(settings.id.clone()),
                tls: settings.security.tls.clone(),
            }],
            Self::Aggregator(loaded) => {
                let of_process = &loaded.shared.security.tls;
                let member = |(index, group): (usize, &GroupSettings)| Member {
                    place: loaded.groups.place(index),
                    site: group.site.clone(),
                    group: group.group.clone(),
                    role: match group.role {
                        RoleName::Leader => MemberRole::Leader,
                        RoleName::Edge => MemberRole::Edge,
                    },
                    subscriptions: group_subscriptions(group),
                    tls: group.tls(of_process),
                };
                loaded.groups.all.iter().enumerate().map(member).collect()
            }
            Self::Cloud(_) => Vec::new(),
        }
    }
}

/// Filters of a device's program.
fn device_subscriptions(settings: &DeviceSettings) -> Vec<String> {
    let topics = Topics::new(&settings.site, &settings.group);
    let own = headwater_end_device::subscriptions(&topics, &settings.id, settings.capture());
    own.into_iter().map(|subscription| subscription.filter).collect()
}

/// Filters of a group's leader or edge.
fn group_subscriptions(group: &GroupSettings) -> Vec<String> {
    let topics = Topics::new(&group.site, &group.group);
    match group.role() {
        Ok(Role::Leader { .. }) => leader_subscriptions(&topics),
        Ok(Role::Edge { id, .. }) => edge_subscriptions(&topics, &id),
        // Settings that do not fit the role are refused with the file.
        Err(_) => Vec::new(),
    }
}

impl Member {
    /// Settings of a connection that reads what this member reads, and publishes nothing.
    pub(super) fn link(&self, access: BrokerAccess, client_id: String, limit_ms: u64) -> LinkConfig {
        let mut config = LinkConfig::new(access, client_id);
        config.connect_timeout_ms = limit_ms;
        // The claim tells the leader's clock. Access rules do not depend on the QoS, and QoS 0 asks for no acknowledgement.
        let claim = Topics::new(&self.site, &self.group).name(&Topic::Leader);
        let claim = Some(claim).filter(|claim| !self.subscriptions.contains(claim));
        let filters = self.subscriptions.iter().cloned().chain(claim);
        filters.fold(config, |config, filter| config.subscribe(filter, QoS::AtMostOnce))
    }
}

/// Networks of the bundles of a tier, in the order of [`Tier::bundles`]; `None` for bundles that cannot be used.
pub(super) type TierNetworks = Vec<Option<Networks>>;
