//! Comparison of the networks of tiers that work together.

use headwater_inference::bundle::Networks;
use headwater_protocol::NetworkId;
use headwater_settings::Finding;

use super::tier::{Tier, TierNetworks, TierSettings};

/// Advice if tiers have different networks.
pub(super) const SAME_BUNDLE: &str =
    "give all tiers the same bundle, or both bundles while the network is replaced (docs/rollover.md)";

/// Compares the networks of all tiers. Each finding comes with the index of the tier that it is about.
pub(super) fn compare(tiers: &[(&Tier, &TierNetworks)]) -> Vec<(usize, Finding)> {
    let mut findings = Vec::new();
    let has_aggregator = tiers.iter().any(|(tier, _)| matches!(tier.settings, TierSettings::Aggregator(_)));
    for (index, (tier, networks)) in tiers.iter().enumerate() {
        for (position, own) in networks.iter().enumerate() {
            let Some(own) = own else { continue };
            for (other, theirs) in tiers {
                let member = tier.members.get(position);
                let compared = match (&tier.settings, &other.settings) {
                    // The leader of the device's group must have the device's network.
                    (TierSettings::Device(_), TierSettings::Aggregator(_)) => {
                        let same = other.members.iter().zip(*theirs).filter(|(group, _)| {
                            member.is_some_and(|own| own.site == group.site && own.group == group.group)
                        });
                        same.filter_map(|(_, networks)| networks.as_ref()).next()
                    }
                    (TierSettings::Device(_), TierSettings::Cloud(_)) if !has_aggregator => {
                        theirs.iter().flatten().next()
                    }
                    // The cloud must have every network of a group, if the aggregator's settings name a cloud.
                    (TierSettings::Aggregator(loaded), TierSettings::Cloud(_)) => {
                        theirs.iter().flatten().next().filter(|_| loaded.shared.cloud.url.is_some())
                    }
                    _ => None,
                };
                let Some(theirs) = compared else { continue };
                let (own, theirs) = (ids(own), ids(theirs));
                if own.iter().any(|id| !theirs.contains(id)) {
                    let group = member.map(|member| format!("group {}: ", member.group)).unwrap_or_default();
                    let found = format!(
                        "{group}this {} has network {}, the {} of {} has {}",
                        tier.kind.name(),
                        names(&own),
                        other.kind.name(),
                        other.file.display(),
                        names(&theirs),
                    );
                    findings.push((index, Finding::fail("network", found, SAME_BUNDLE)));
                }
            }
        }
    }
    findings
}

/// Ids of the current network and of the next network, if there is one.
pub(super) fn ids(networks: &Networks) -> Vec<NetworkId> {
    networks.bundles().iter().map(|(_, bundle)| bundle.network_id()).collect()
}

/// Short ids of the networks, joined to a text.
pub(super) fn names(networks: &[NetworkId]) -> String {
    networks.iter().map(|network| network.short()).collect::<Vec<_>>().join(" and ")
}
