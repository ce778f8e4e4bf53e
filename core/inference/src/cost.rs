//! Bytes that one sample of a network costs on each link.

use headwater_protocol::{HEADER_BYTES, ScoreEncoding};
use serde::Serialize;

use crate::manifest::{Configuration, EdgeTier, NetworkManifest};

/// Bytes on the links, per sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LinkBytes {
    /// Bytes of one view as pixels, which a device without a section sends.
    pub raw_view_bytes: usize,
    /// Bytes of a summary's body, `4|C|` for floats; 0 if devices have no section.
    pub scores_bytes: usize,
    /// Bytes of the map that a device sends, `f * o / 8` for signs; a coded map has at most this many.
    pub features_bytes: usize,
    /// Bytes of the header of a binary message.
    pub header_bytes: usize,
    /// Bytes of the scores and the map of one edge; 0 without edges.
    pub edge_bytes: usize,
    /// Bytes of the tensors that the cloud gets for one sample: the maps of all slots or edges, and one byte of presence for each.
    pub cloud_tensor_bytes: usize,
}

/// Body bytes that a device with a view sends for one sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceBody {
    /// Bytes sent for every sample.
    pub always: usize,
    /// Bytes sent in addition for a sample that does not leave at the first exit, if the map is not coded.
    pub unsure: usize,
    /// Bytes of the map within `unsure`; 0 if devices send views.
    pub map: usize,
}

impl LinkBytes {
    /// Bytes on the links of a network.
    pub fn of(manifest: &NetworkManifest) -> Self {
        let has_scores = manifest.configuration.has_device_section();
        let of_edge =
            |edge: &EdgeTier| ScoreEncoding::F32.bytes(manifest.classes()) + edge.features.packed_bytes();
        Self {
            raw_view_bytes: manifest.preprocessing.view_bytes(),
            scores_bytes: if has_scores { manifest.score_bytes() } else { 0 },
            features_bytes: manifest.features.packed_bytes(),
            header_bytes: HEADER_BYTES,
            edge_bytes: manifest.edge.as_ref().map_or(0, of_edge),
            cloud_tensor_bytes: manifest.cloud_sources() * (manifest.cloud_map().packed_bytes() + 1),
        }
    }
}

impl DeviceBody {
    /// Body bytes of a network's devices, which depend on the configuration.
    pub fn of(manifest: &NetworkManifest) -> Self {
        let LinkBytes { scores_bytes: scores, features_bytes: features, .. } = LinkBytes::of(manifest);
        match manifest.configuration {
            Configuration::A => Self { always: features, unsure: 0, map: 0 },
            Configuration::B | Configuration::D => {
                Self { always: 0, unsure: scores + features, map: features }
            }
            Configuration::C | Configuration::E | Configuration::F => {
                Self { always: scores, unsure: features, map: features }
            }
        }
    }

    /// Mean bytes per view over `views` views of a device; `unsure` of them belong to samples that go beyond the first exit. 0 without
    /// views.
    ///
    /// In configuration (c) this is `4|C| + (1 - l) f o / 8` (DDNN, section III-E).
    pub fn mean(&self, views: usize, unsure: usize) -> f64 {
        (self.always * views + self.unsure * unsure) as f64 / views.max(1) as f64
    }

    /// As [`DeviceBody::mean`] for coded maps; `coded_bytes` is the sum of the bytes of the unsure views' coded maps.
    pub fn mean_of_coded(&self, views: usize, unsure: usize, coded_bytes: f64) -> f64 {
        let others = self.always * views + (self.unsure - self.map) * unsure;
        (others as f64 + coded_bytes) / views.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::{FeatureEncoding, FeatureMap};
    use crate::testing::TinyNetwork;

    #[test]
    fn bytes_follow_the_formula() {
        let network = TinyNetwork { classes: 10, view: [3, 32, 32], filters: 8, ..TinyNetwork::default() };
        let links = LinkBytes::of(&network.manifest());
        assert_eq!((links.raw_view_bytes, links.scores_bytes, links.features_bytes), (3072, 40, 256));
        assert_eq!(links.cloud_tensor_bytes, 3 * 256 + 3);
        let device = DeviceBody::of(&network.manifest());
        assert_eq!(device.mean(4, 0), 40.0);
        assert_eq!(device.mean(4, 4), 296.0);
        assert_eq!(device.mean(4, 1), 104.0);
        assert_eq!(device.mean(0, 0), 0.0);
    }

    #[test]
    fn bytes_follow_the_table_of_configurations() {
        use FeatureEncoding::{Bits, F32, Pixels};
        let body = |configuration, encoding| {
            let network = TinyNetwork { classes: 10, view: [8, 16, 16], ..TinyNetwork::of(configuration) };
            let map = FeatureMap { channels: 8, height: 16, width: 16, encoding };
            DeviceBody::of(&NetworkManifest { features: map, ..network.manifest() })
        };
        assert_eq!(body(Configuration::A, Pixels), DeviceBody { always: 2048, unsure: 0, map: 0 });
        assert_eq!(body(Configuration::B, F32), DeviceBody { always: 0, unsure: 40 + 8192, map: 8192 });
        assert_eq!(body(Configuration::F, Bits), DeviceBody { always: 40, unsure: 256, map: 256 });
        assert_eq!(body(Configuration::F, Bits).mean_of_coded(10, 2, 60.0), 46.0);
        assert_eq!(body(Configuration::B, Bits).mean_of_coded(10, 2, 60.0), 14.0);
    }
}
