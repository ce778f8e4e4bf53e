//! What a network costs: parameters, multiply-accumulates, bytes on each link.

use headwater_protocol::HEADER_BYTES;
use serde::Serialize;

use crate::bundle::Bundle;
use crate::manifest::{EdgeTier, NetworkManifest, Tier};

/// Costs of a network, for `inspect` and reports.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Costs {
    /// Each section, in the manifest's order.
    pub sections: Vec<SectionCost>,
    /// Bytes on the links.
    pub links: LinkBytes,
}

/// Costs of one section.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SectionCost {
    /// Its name.
    pub name: String,
    /// The tier that runs it.
    pub tier: Tier,
    /// Trainable parameters.
    pub parameters: u64,
    /// Multiply-accumulates for one sample.
    pub macs: u64,
    /// Bytes in the bundle; `None` when this bundle does not hold it.
    pub stored_bytes: Option<usize>,
}

/// Bytes on the links, per sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LinkBytes {
    /// One view as pixels: what a device would send without a section of its own.
    pub raw_view_bytes: usize,
    /// Body of a summary, `4|C|`; 0 where devices have no section.
    pub scores_bytes: usize,
    /// Body of the map that a device sends, `f * o / 8` for signs.
    pub features_bytes: usize,
    /// Our header, on every message.
    pub header_bytes: usize,
    /// Scores and map of one edge; 0 where there is none.
    pub edge_bytes: usize,
    /// Tensors of one sample on the way to the cloud: the maps of all slots, or of all edges, and a byte each of presence.
    pub cloud_tensor_bytes: usize,
}

impl Costs {
    /// Costs of the network in a bundle.
    pub fn of(bundle: &Bundle) -> Self {
        let manifest = bundle.manifest();
        let sections = manifest.sections.iter().map(|section| SectionCost {
            name: section.name.clone(),
            tier: section.tier,
            parameters: section.parameters,
            macs: section.macs,
            stored_bytes: bundle.stored_section_bytes(&section.name),
        });
        Self { sections: sections.collect(), links: LinkBytes::of(manifest) }
    }

    /// Parameters of all sections of a tier.
    pub fn parameters(&self, tier: Tier) -> u64 {
        self.sections.iter().filter(|section| section.tier == tier).map(|section| section.parameters).sum()
    }
}

impl LinkBytes {
    /// Bytes on the links of a network.
    pub fn of(manifest: &NetworkManifest) -> Self {
        let has_scores = manifest.configuration.has_device_section();
        let of_edge = |edge: &EdgeTier| manifest.score_bytes() + edge.features.packed_bytes();
        Self {
            raw_view_bytes: manifest.preprocessing.view_bytes(),
            scores_bytes: if has_scores { manifest.score_bytes() } else { 0 },
            features_bytes: manifest.features.packed_bytes(),
            header_bytes: HEADER_BYTES,
            edge_bytes: manifest.edge.as_ref().map_or(0, of_edge),
            cloud_tensor_bytes: manifest.cloud_sources() * (manifest.cloud_map().packed_bytes() + 1),
        }
    }

    /// Body bytes that a device with a view sends per sample when a share of `local_share` of the samples leaves before
    /// features are asked for: `4|C| + (1 - l) f o / 8` (DDNN, section III-E).
    pub fn device_body(&self, local_share: f64) -> f64 {
        self.scores_bytes as f64 + (1.0 - local_share) * self.features_bytes as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TinyNetwork;

    #[test]
    fn bytes_follow_the_formula() {
        let network = TinyNetwork { classes: 10, view: [3, 32, 32], filters: 8, ..TinyNetwork::default() };
        let links = LinkBytes::of(&network.manifest());
        assert_eq!((links.raw_view_bytes, links.scores_bytes, links.features_bytes), (3072, 40, 256));
        assert_eq!(links.device_body(1.0), 40.0);
        assert_eq!(links.device_body(0.0), 296.0);
        assert_eq!(links.device_body(0.75), 104.0);
        assert_eq!(links.cloud_tensor_bytes, 3 * 256 + 3);
    }

    #[test]
    fn a_part_of_a_bundle_says_what_it_does_not_hold() {
        let whole = Bundle::from_bytes(&TinyNetwork::default().bundle()).unwrap();
        let part = Bundle::from_bytes(&whole.only(&["device-0"]).unwrap()).unwrap();
        let stored =
            |bundle| Costs::of(bundle).sections.iter().map(|s| s.stored_bytes.is_some()).collect::<Vec<_>>();
        assert_eq!(stored(&whole), [true; 4]);
        assert_eq!(stored(&part), [true, false, false, false]);
        assert_eq!(Costs::of(&whole).parameters(Tier::Device), 3000);
    }
}
