//! Decodes image files to one shape, and counts the images that this changes.

use super::ImageFile;
use crate::Shape;
use crate::image_codec::{CodecError, Frame};

/// Decodes images to one shape: the requested shape, or the shape of the first image.
#[derive(Clone, Debug, Default)]
pub(crate) struct ImageReader {
    shape: Option<Shape>,
    read: usize,
    resized: Changes,
    recoloured: Changes,
    transparent: Changes,
}

/// Number of changed images, with path and own shape of the first one.
#[derive(Clone, Debug, Default)]
struct Changes {
    count: usize,
    first: Option<(String, Shape)>,
}

impl Changes {
    fn add(&mut self, path: &str, own: Shape) {
        self.count += 1;
        self.first.get_or_insert_with(|| (path.to_owned(), own));
    }
}

impl ImageReader {
    /// A reader for images of the requested shape.
    pub(crate) fn new(shape: Option<Shape>) -> Self {
        Self { shape, ..Self::default() }
    }

    /// Shape of the pixels. `None` before the first image when no shape was requested.
    pub(crate) const fn shape(&self) -> Option<Shape> {
        self.shape
    }

    /// Decodes an image. Grey is repeated for RGB, RGB becomes grey by its luma, and another size is resized.
    pub(crate) fn decode(&mut self, path: &str, bytes: &[u8]) -> Result<ImageFile, CodecError> {
        let (view, own) = Frame::open(bytes)?.view(None, self.shape)?;
        let shape = *self.shape.get_or_insert(view.shape);
        self.read += 1;
        if (own.channels > 2) != (shape.channels > 2) {
            self.recoloured.add(path, own);
        }
        if own.channels % 2 == 0 {
            self.transparent.add(path, own);
        }
        if (own.height, own.width) != (shape.height, shape.width) {
            self.resized.add(path, own);
        }
        Ok(ImageFile::new(path, bytes, view.pixels))
    }

    /// Remarks about the changed images.
    pub(crate) fn notes(&self) -> Vec<String> {
        let Some(shape) = self.shape else { return Vec::new() };
        let recoloured = if shape.channels == 1 { "made grey" } else { "grey and made RGB" };
        let note = |change: &str, changes: &Changes| {
            let (path, own) = changes.first.as_ref()?;
            Some(format!(
                "{} of {} images are {change} for {shape}, such as `{path}` of {own}",
                changes.count, self.read
            ))
        };
        let transparent = note("stripped of their transparency", &self.transparent);
        let notes = [note("resized", &self.resized), note(recoloured, &self.recoloured), transparent];
        notes.into_iter().flatten().collect()
    }
}
