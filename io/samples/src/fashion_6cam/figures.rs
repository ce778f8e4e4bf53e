//! Simple figures in place of the articles, for tests without the files.

use super::random_stream::RandomStream;
use crate::mnist::{FASHION_LABELS, IMAGE_BYTES, IMAGE_SIDE, Images};

/// Draws `count` figures; each class has a figure of its own.
pub(super) fn drawn(key: u64, count: usize) -> Images {
    let classes: Vec<u16> = (0..count).map(|index| (index % FASHION_LABELS.len()) as u16).collect();
    let pixels = classes
        .iter()
        .zip(0..)
        .flat_map(|(&class, index)| figure(usize::from(class), &mut RandomStream::keyed(&[key, index])))
        .collect();
    Images { classes, pixels }
}

/// Draws two bars and a block. The class fixes their positions; brightness and a small offset are random.
fn figure(class: usize, random: &mut RandomStream) -> [u8; IMAGE_BYTES] {
    let mut image = [0; IMAGE_BYTES];
    let (dx, dy) = (random.below(3) as usize, random.below(3) as usize);
    let level = 160 + random.below(96) as u8;
    let mut fill = |left: usize, top: usize, width: usize, height: usize, level: u8| {
        for y in top + dy..top + dy + height {
            image[y * IMAGE_SIDE + left + dx..][..width].fill(level);
        }
    };
    fill(3 + 2 * class, 3, 3, 20, level);
    fill(3, 21 - 2 * class, 20, 3, level / 2);
    fill(4 + 9 * (class % 2), 4 + 9 * (class / 2 % 2), 8, 8, level / 4 * 3);
    image
}
