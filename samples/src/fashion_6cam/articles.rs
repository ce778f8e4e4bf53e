//! The articles themselves: 28x28 grey images with their class, from the four Fashion-MNIST files or drawn by
//! rule.

use std::path::{Path, PathBuf};

use super::random::Stream;
use super::{ARTICLE_SIDE, FashionError, LABELS};
use crate::idx;

pub(super) const ARTICLE_BYTES: usize = ARTICLE_SIDE * ARTICLE_SIDE;

/// Images and classes of one pair of files.
pub(super) struct Articles {
    images: Vec<u8>,
    labels: Vec<u8>,
}

impl Articles {
    /// Reads `{name}-images-idx3-ubyte[.gz]` and `{name}-labels-idx1-ubyte[.gz]` from `dir`.
    pub(super) fn read(dir: &Path, name: &str, count: usize) -> Result<Self, FashionError> {
        let path = find(dir, &format!("{name}-images-idx3-ubyte"))?;
        let images = idx::read(&path)?.expect_dims(&path, &[count, ARTICLE_SIDE, ARTICLE_SIDE])?.data;
        let path = find(dir, &format!("{name}-labels-idx1-ubyte"))?;
        let labels = idx::read(&path)?.expect_dims(&path, &[count])?.data;
        match labels.iter().position(|&label| usize::from(label) >= LABELS.len()) {
            Some(index) => Err(FashionError::UnknownLabel { path, index, label: labels[index] }),
            None => Ok(Self { images, labels }),
        }
    }

    /// Simple figures, a different one for each class, so that what needs articles can be tried without the
    /// data.
    pub(super) fn drawn(key: u64, count: usize) -> Self {
        let mut articles = Self { images: Vec::with_capacity(count * ARTICLE_BYTES), labels: Vec::new() };
        for index in 0..count {
            let label = (index % LABELS.len()) as u8;
            draw_figure(&mut articles.images, label, &mut Stream::keyed(&[key, index as u64]));
            articles.labels.push(label);
        }
        articles
    }

    pub(super) fn label(&self, index: usize) -> u16 {
        u16::from(self.labels[index])
    }

    pub(super) fn image(&self, index: usize) -> &[u8; ARTICLE_BYTES] {
        let image = &self.images[index * ARTICLE_BYTES..][..ARTICLE_BYTES];
        image.try_into().expect("the slice was cut to this length")
    }

    pub(super) fn len(&self) -> usize {
        self.labels.len()
    }
}

fn find(dir: &Path, name: &str) -> Result<PathBuf, FashionError> {
    let candidates = [dir.join(format!("{name}.gz")), dir.join(name)];
    let found = candidates.iter().find(|path| path.is_file()).cloned();
    found.ok_or_else(|| FashionError::Missing { dir: dir.into(), name: name.into() })
}

/// Two bars and a block whose places follow from the class; brightness and a small offset from the stream.
fn draw_figure(images: &mut Vec<u8>, label: u8, draw: &mut Stream) {
    let start = images.len();
    images.resize(start + ARTICLE_BYTES, 0);
    let image = &mut images[start..];
    let (dx, dy) = (draw.below(3) as usize, draw.below(3) as usize);
    let level = 160 + draw.below(96) as u8;
    let mut fill = |left: usize, top: usize, width: usize, height: usize, level: u8| {
        for y in top + dy..top + dy + height {
            image[y * ARTICLE_SIDE + left + dx..][..width].fill(level);
        }
    };
    let label = usize::from(label);
    fill(3 + 2 * label, 3, 3, 20, level);
    fill(3, 21 - 2 * label, 20, 3, level / 2);
    fill(4 + 9 * (label % 2), 4 + 9 * (label / 2 % 2), 8, 8, level / 4 * 3);
}
