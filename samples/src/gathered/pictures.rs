//! Images of files as pixels of one shape, and a count of those that had to be changed for it.

use sha2::{Digest, Sha256};

use crate::Shape;
use crate::image_codec::{self, CodecError};

/// An image that was read.
#[derive(Clone, Debug)]
pub(crate) struct Picture {
    /// Path in the folder or archive.
    pub(crate) file: String,
    /// Of the bytes of the file.
    pub(crate) hash: [u8; 32],
    /// CHW.
    pub(crate) pixels: Vec<u8>,
}

/// Decodes images to one shape: the one wanted, or that of the first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pictures {
    shape: Option<Shape>,
    read: usize,
    resized: Changed,
    recoloured: Changed,
}

/// How many were changed, and the first of them.
#[derive(Clone, Debug, Default)]
struct Changed {
    count: usize,
    first: Option<(String, Shape)>,
}

impl Changed {
    fn count(&mut self, file: &str, own: Shape) {
        self.count += 1;
        self.first.get_or_insert_with(|| (file.to_owned(), own));
    }
}

impl Picture {
    /// A picture of pixels that are in order already.
    pub(crate) fn new(file: &str, bytes: &[u8], pixels: Vec<u8>) -> Self {
        Self { file: file.into(), hash: Sha256::digest(bytes).into(), pixels }
    }
}

impl Pictures {
    /// Pictures of the shape that is wanted.
    pub(crate) fn new(shape: Option<Shape>) -> Self {
        Self { shape, ..Self::default() }
    }

    /// Their shape; `None` before the first when none was wanted.
    pub(crate) const fn shape(&self) -> Option<Shape> {
        self.shape
    }

    /// Decodes an image. Grey becomes RGB by repeating it, RGB becomes grey by its luma; other sizes are resized.
    pub(crate) fn decode(&mut self, file: &str, bytes: &[u8]) -> Result<Picture, CodecError> {
        let (view, own) = match self.shape {
            Some(shape) => image_codec::decode_from(bytes, shape)?,
            None => {
                let view = image_codec::decode_whole(bytes)?;
                let own = view.shape();
                (view, own)
            }
        };
        let shape = *self.shape.get_or_insert(own);
        self.read += 1;
        if own.channels != shape.channels {
            self.recoloured.count(file, own);
        }
        if (own.height, own.width) != (shape.height, shape.width) {
            self.resized.count(file, own);
        }
        Ok(Picture::new(file, bytes, view.pixels))
    }

    /// What was changed.
    pub(crate) fn notes(&self) -> Vec<String> {
        let Some(shape) = self.shape else { return Vec::new() };
        let colour = if shape.channels == 1 { "made grey" } else { "grey and made RGB" };
        let note = |what: &str, changed: &Changed| {
            let (file, own) = changed.first.as_ref()?;
            Some(format!(
                "{} of {} images are {what} for {shape}, such as `{file}` of {own}",
                changed.count, self.read
            ))
        };
        [note("resized", &self.resized), note(colour, &self.recoloured)].into_iter().flatten().collect()
    }
}
