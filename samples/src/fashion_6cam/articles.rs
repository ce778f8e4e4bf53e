//! Simple figures in place of the articles, so that what needs them can be tried without the data.

use super::LABELS;
use super::random::Stream;
use crate::mnist::{IMAGE_BYTES, IMAGE_SIDE, Images};

/// A different figure for each class.
pub(super) fn drawn(key: u64, count: usize) -> Images {
    let mut articles = Images::default();
    for index in 0..count {
        let label = (index % LABELS.len()) as u8;
        articles.push(&figure(label, &mut Stream::keyed(&[key, index as u64])), label);
    }
    articles
}

/// Two bars and a block whose places follow from the class; brightness and a small offset from the stream.
fn figure(label: u8, draw: &mut Stream) -> [u8; IMAGE_BYTES] {
    let mut image = [0; IMAGE_BYTES];
    let (dx, dy) = (draw.below(3) as usize, draw.below(3) as usize);
    let level = 160 + draw.below(96) as u8;
    let mut fill = |left: usize, top: usize, width: usize, height: usize, level: u8| {
        for y in top + dy..top + dy + height {
            image[y * IMAGE_SIDE + left + dx..][..width].fill(level);
        }
    };
    let label = usize::from(label);
    fill(3 + 2 * label, 3, 3, 20, level);
    fill(3, 21 - 2 * label, 20, 3, level / 2);
    fill(4 + 9 * (label % 2), 4 + 9 * (label / 2 % 2), 8, 8, level / 4 * 3);
    image
}
