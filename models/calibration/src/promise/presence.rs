//! Missing devices: random masks for each sample.

use headwater_protocol::SlotSet;

use crate::random::Random;

/// Slots that see each sample and are not missing. In each sample each device is missing with probability `missing`, independently.
/// `stream` seeds the masks: a number of the network, of the part, and of the mask among a sample's masks. The validation part and
/// the calibration part need different masks: choices on one part must not depend on the masks of the other.
pub fn draw_masks(seen: &[SlotSet], missing: f64, stream: [u64; 3]) -> Vec<SlotSet> {
    const STREAM: u64 = 0x6d61_736b;
    let mask = |(sample, seen): (usize, &SlotSet)| {
        let [network, part, draw] = stream;
        let mut random = Random::new(STREAM ^ network, &[part, draw, sample as u64]);
        seen.iter().filter(|_| f64::from(random.unit()) >= missing).collect::<SlotSet>()
    };
    seen.iter().enumerate().map(mask).collect()
}

#[cfg(test)]
mod tests {
    use headwater_protocol::Slot;

    use super::*;

    #[test]
    fn each_device_is_missing_as_often_as_stated_and_draws_differ() {
        let seen = vec![Slot::first(6).collect::<SlotSet>(); 10_000];
        let masks = draw_masks(&seen, 0.1, [7, 1, 0]);
        let present: usize = masks.iter().map(|mask| mask.iter().count()).sum();
        // Five standard deviations of the share of 60,000 devices are 0.0061.
        assert!((present as f64 / 60_000.0 - 0.9).abs() < 0.0061, "{present}");
        for other in [[8, 1, 0], [7, 3, 0], [7, 1, 1]] {
            assert_ne!(masks, draw_masks(&seen, 0.1, other));
        }
        assert_eq!(draw_masks(&seen, 0.0, [7, 1, 0]), seen);
    }
}
