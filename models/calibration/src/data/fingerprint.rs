//! Fingerprints of data, which show whether two commands, or two ranks, have the same samples.

use headwater_protocol::hex;
use headwater_samples::Part;
use sha2::{Digest, Sha256};

use super::Parts;

/// Largest number of samples of a part whose pixels enter the fingerprint.
const COMPARED_SAMPLES: usize = 64;

/// Fingerprint of the first `limit` samples of a part: the number of samples, their classes and groups, and the views of at most 64
/// samples at equal steps.
pub fn fingerprint(parts: &Parts, part: Part, limit: Option<usize>) -> String {
    let count = parts.count(part, limit);
    let labels: Vec<u16> = (0..count).map(|index| parts.data.label(part, index)).collect();
    let spread = (0..COMPARED_SAMPLES.min(count)).map(|at| (at * count / COMPARED_SAMPLES.min(count)) as u32);
    let samples = parts.shard(part, spread.collect(), 1);
    let mut hash = Sha256::new();
    hash.update(labels.iter().flat_map(|label| label.to_le_bytes()).collect::<Vec<u8>>());
    hash.update(parts.groups(part, limit).iter().flat_map(|group| group.to_le_bytes()).collect::<Vec<u8>>());
    hash.update(samples.seen.iter().flat_map(|seen| seen.bits().to_le_bytes()).collect::<Vec<u8>>());
    (0..samples.len()).for_each(|sample| hash.update(samples.views(sample)));
    let hash = hex(&hash.finalize()[..8]);
    format!("{count} samples with fingerprint {hash}")
}

/// Fingerprints of all parts, each with the name of the part; `limit_train` limits the train part alone.
pub fn fingerprint_of_all(parts: &Parts, limit_train: Option<usize>) -> String {
    let limit = |part| limit_train.filter(|_| part == Part::Train);
    let of = |part: Part| format!("{} {}", part.name(), fingerprint(parts, part, limit(part)));
    Part::ALL.map(of).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_pixel_label_or_number_is_another_fingerprint() {
        let parts = Parts::drawn(40, 20, 10);
        let found = fingerprint(&parts, Part::Train, None);
        assert_eq!(found, fingerprint(&Parts::drawn(40, 20, 10), Part::Train, None));
        assert_ne!(found, fingerprint(&parts, Part::Train, Some(39)));
        assert_ne!(found, fingerprint(&parts.first_slot(), Part::Train, None));
    }
}
