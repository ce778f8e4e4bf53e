//! What a network costs: parameters, multiply-accumulates, bytes on each link.

use headwater_protocol::HEADER_BYTES;
use serde::Serialize;

use crate::bundle::Bundle;
use crate::manifest::{NetworkManifest, Tier};

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

/// Bytes on the links of configuration (c), per sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LinkBytes {
    /// One view as pixels: what a device would send without a section of its own.
    pub raw_view_bytes: usize,
    /// Body of a summary, `4|C|`.
    pub scores_bytes: usize,
    /// Body of a features message, `f * o / 8`.
    pub features_bytes: usize,
    /// Our header, on every message.
    pub header_bytes: usize,
    /// Tensors of one sample on the way to the cloud: all slots' feature maps, and a byte a slot of presence.
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
        let slots = usize::from(manifest.slots);
        Self {
            raw_view_bytes: manifest.preprocessing.view_bytes(),
            scores_bytes: manifest.score_bytes(),
            features_bytes: manifest.features.packed_bytes(),
            header_bytes: HEADER_BYTES,
            cloud_tensor_bytes: slots * manifest.features.packed_bytes() + slots,
        }
    }

    /// Body bytes that a device with a view sends per sample when a share of `local_share` of the samples leaves at the exit
    /// `local`: `4|C| + (1 - l) f o / 8` (DDNN, section III-E).
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
