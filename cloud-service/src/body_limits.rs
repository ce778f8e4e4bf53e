//! Limits of a request's body.

use headwater_protocol::v2::FeatureShape;

/// Largest request body in bytes, with binary tensors and in JSON, computed from a network's shapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BodyLimits {
    binary: usize,
    json: usize,
}

/// Largest JSON part of a binary request: names, shapes, parameters, the caller's id.
const HEAD_BYTES: usize = 8 * 1024;

impl BodyLimits {
    /// Limits for a shape. In JSON a byte takes up to five characters (`255, `), a boolean seven (`false, `).
    pub(crate) fn of(shape: &FeatureShape) -> Self {
        let maps = shape.max_samples * shape.slots;
        Self {
            binary: HEAD_BYTES + maps * (shape.packed_bytes() + 1),
            json: HEAD_BYTES + maps * (5 * shape.packed_bytes() + 7 + 8),
        }
    }

    /// The larger limit of each form.
    pub(crate) fn max(self, other: Self) -> Self {
        Self { binary: self.binary.max(other.binary), json: self.json.max(other.json) }
    }

    /// Limit of a request with binary tensors, or of one in JSON alone.
    pub(crate) fn bytes(self, is_binary: bool) -> usize {
        if is_binary { self.binary } else { self.json }
    }
}
