//! Decodes image files to one shape, and counts the images that this changes.

use super::ImageFile;
use crate::Shape;
use crate::image_codec::{CodecError, Frame};

/// Decodes images to one shape: the requested shape, or the shape of the first image.
#[derive(Clone, Debug, Default)]
pub(crate) struct ImageReader {
    shape: Option<Shape>,
    read: usize,
    /// Images that are resized, recoloured and made opaque: their number, and the first one with its own shape.
    changed: [(usize, String); 3],
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
        let is_changed = [
            (own.height, own.width) != (shape.height, shape.width),
            (own.channels > 2) != (shape.channels > 2),
            own.channels % 2 == 0,
        ];
        for ((count, first), _) in
            self.changed.iter_mut().zip(is_changed).filter(|(_, is_changed)| *is_changed)
        {
            *count += 1;
            if *count == 1 {
                *first = format!("`{path}` of {own}");
            }
        }
        Ok(ImageFile::new(path, bytes, view.pixels))
    }

    /// Remarks about the changed images.
    pub(crate) fn notes(&self) -> Vec<String> {
        let Some(shape) = self.shape else { return Vec::new() };
        let recoloured = if shape.channels == 1 { "made grey" } else { "grey and made RGB" };
        let changes =
            ["resized", recoloured, "stripped of their transparency"].into_iter().zip(&self.changed);
        let note = |(change, (count, first)): (&str, &(usize, String))| {
            format!("{count} of {} images are {change} for {shape}, such as {first}", self.read)
        };
        changes.filter(|(_, (count, _))| *count > 0).map(note).collect()
    }
}
