//! Images of a data set: found first, then decoded to one shape on several threads, into memory or into a file of views.
//!
//! ```text
//! visit ──> names, hashes, contents while they are few ──> key ──> file of views of an earlier command, if it is whole
//!                                                           └────> contents, or a second visit ──> threads ──> memory, or a new file
//! ```

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use headwater_protocol::hex;
use rustix::fs::statvfs;
use sha2::{Digest, Sha256};

use super::ImageFile;
use crate::data_set::{Framings, OpenOptions, Preparation, PreparationEvent};
use crate::error::Mismatch;
use crate::in_memory::StoredViews;
use crate::roi::{self, Framing, RoiError};
use crate::view_file::{ViewFile, ViewFileContent, ViewFileWriter};
use crate::{DataError, Shape, View};

/// Most bytes of files that are kept from the visit to the decoding. If the files have more bytes, all of them are read a second time.
const KEPT_BYTES: usize = 256 << 20;
/// Bytes of views, and of files, that are decoded before the next files are read.
const CHUNK_BYTES: usize = 64 << 20;
/// Most files that are decoded before the next files are read.
const CHUNK_FILES: usize = 256;
/// Bytes of all files of views in a folder above which the oldest files are removed, unless [`CACHE_FILES`] allows more.
const CACHE_BYTES: u64 = 50_000_000_000;
/// Number of files of the size of the new file for which a folder always has room.
const CACHE_FILES: u64 = 4;
/// Bytes that stay free on the disk of a file of views.
const SPARE_BYTES: u64 = 64 << 20;
/// Ending of the name of a file of views.
const ENDING: &str = "hwviews";
/// Name of the file of views that is being made in a folder.
const UNFINISHED: &str = "unfinished";

/// A view, and the shape of the image that it came from; `None` for a view that was no image.
pub(crate) type Decoded = (View, Option<Shape>);

/// The view that a file is to become.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    /// Shape of the view; `None` for the shape of the image or of its region.
    pub(crate) shape: Option<Shape>,
    /// Shape that the options request.
    pub(crate) requested: Option<Shape>,
    pub(crate) framing: Framing,
}

/// Function that decodes a file with this name and content below a folder or archive.
pub(crate) type Decode = fn(&Path, &str, &[u8], Target) -> Result<Decoded, DataError>;

/// Function that receives the name and the content of every file of an image.
pub(crate) type EachImage<'a> = &'a mut dyn FnMut(&str, Vec<u8>) -> Result<(), DataError>;

/// Finds images, and decodes them to one shape: the requested shape, or the shape of the first image.
pub(crate) struct ImageReader<'a> {
    /// Folder or archive, for errors.
    root: &'a Path,
    shape: Option<Shape>,
    requested: Option<Shape>,
    framings: Framings<'a>,
    preparation: Preparation<'a>,
    decode: Decode,
    /// Name and SHA-256 of the file of each image, and the slots that see it.
    found: Vec<(String, [u8; 32], Range<usize>)>,
    /// Number of views of the found images.
    views: usize,
    /// Contents of the files; `None` once they exceed [`KEPT_BYTES`].
    kept: Option<Vec<Vec<u8>>>,
    kept_bytes: usize,
}

/// Source of the contents of the images if they were not kept: a second visit.
#[derive(Clone, Copy)]
struct Source<'a> {
    again: &'a dyn Fn(EachImage<'_>) -> Result<(), DataError>,
    /// Shape of the views.
    shape: Shape,
}

/// Decoded images.
pub(crate) struct PreparedImages {
    /// Shape of every view.
    pub(crate) shape: Shape,
    /// The views, in the order in which the images were found; the views of one image in the order of slots.
    pub(crate) views: StoredViews,
    /// Remarks about images that were changed.
    pub(crate) notes: Vec<String>,
}

/// Decodes the file of an image below `root` as a device decodes a frame. Grey is repeated for RGB, RGB becomes grey by its luma, and another size is resized.
pub(crate) fn decode_image(
    root: &Path,
    name: &str,
    bytes: &[u8],
    Target { shape, framing, .. }: Target,
) -> Result<Decoded, DataError> {
    match roi::decode_to(bytes, shape, framing) {
        Ok((view, image)) => Ok((view, Some(image))),
        Err(RoiError::Codec(error)) => Err(DataError::image(at(root, name))(error)),
        Err(error) => {
            let mismatch = Mismatch::new("an image that holds the region of its slot", error.to_string());
            Err(mismatch.options(at(root, name)))
        }
    }
}

/// Text that names a file of a folder or archive in errors.
fn at(root: &Path, name: &str) -> String {
    format!("{}: `{name}`", root.display())
}

impl<'a> ImageReader<'a> {
    /// A reader for images of the requested shape.
    pub(crate) fn new(root: &'a Path, options: OpenOptions<'a>, decode: Decode) -> Self {
        let OpenOptions { shape, framings, preparation, .. } = options;
        let (requested, found, kept) = (shape, Vec::new(), Some(Vec::new()));
        Self { root, shape, requested, framings, preparation, decode, found, views: 0, kept, kept_bytes: 0 }
    }

    /// Adds an image that `slots` see, to be decoded later. If no shape was requested, the first image is decoded at once, for its shape.
    /// Returns the file with the number of its view for the first slot; the views for further slots follow.
    pub(crate) fn add(
        &mut self,
        name: &str,
        bytes: Vec<u8>,
        slots: Range<usize>,
    ) -> Result<ImageFile, DataError> {
        if self.shape.is_none() {
            let target = Target { shape: None, requested: None, framing: self.framings.of(slots.start) };
            self.shape = Some((self.decode)(self.root, name, &bytes, target)?.0.shape);
        }
        let hash = Sha256::digest(&bytes).into();
        self.kept_bytes += bytes.len();
        match &mut self.kept {
            Some(kept) if self.kept_bytes <= KEPT_BYTES => kept.push(bytes),
            kept => *kept = None,
        }
        let view = self.views;
        self.views += slots.len();
        self.found.push((name.to_owned(), hash, slots));
        Ok(ImageFile { path: name.to_owned(), hash, view })
    }

    /// Decodes the images, unless a file has their views. `again` visits the same images in the same order.
    pub(crate) fn prepare(
        mut self,
        again: &dyn Fn(EachImage<'_>) -> Result<(), DataError>,
    ) -> Result<PreparedImages, DataError> {
        let Some(shape) = self.shape else {
            return Err(Mismatch::new("images", "none").invalid(self.root.display()));
        };
        let (content, source) = (self.content(shape), Source { again, shape });
        let bytes = content.views as u64 * content.view_bytes as u64;
        if let Some(folder) = self.preparation.folder.filter(|_| bytes > self.preparation.memory_bytes) {
            let file = self.file(folder, content, source)?;
            let notes = file.notes.clone();
            return Ok(PreparedImages { shape, views: StoredViews::File(Arc::new(file)), notes });
        }
        let mut pixels = Vec::with_capacity(bytes as usize);
        let notes = self.decode_all(source, &mut |view| {
            pixels.extend_from_slice(view);
            Ok(())
        })?;
        Ok(PreparedImages { shape, views: StoredViews::Memory(pixels), notes })
    }

    /// Content of the file of the views. Its key follows from the files, in their order, and from shape, regions and fit: parts, folds and classes do
    /// not change it.
    fn content(&self, shape: Shape) -> ViewFileContent {
        let mut hash = Sha256::new();
        for side in [shape.channels, shape.height, shape.width, self.found.len()] {
            hash.update((side as u64).to_le_bytes());
        }
        for (name, of_file, slots) in &self.found {
            hash.update((name.len() as u64).to_le_bytes());
            hash.update(name);
            hash.update(of_file);
            let framings = slots.clone().map(|slot| self.framings.of(slot));
            for framing in framings.filter(|framing| *framing != Framing::default()) {
                hash.update(framing.to_string());
            }
        }
        ViewFileContent { key: hash.finalize().into(), view_bytes: shape.bytes(), views: self.views }
    }

    /// Opens the file of the views in a folder, or makes the file if it is missing or damaged. One command at a time makes files in a folder.
    fn file(
        &mut self,
        folder: &Path,
        content: ViewFileContent,
        source: Source<'_>,
    ) -> Result<ViewFile, DataError> {
        let preparation = self.preparation;
        let say = |line: String| preparation.tell(PreparationEvent::Line(&line));
        let path = folder.join(format!("{}.{ENDING}", hex(&content.key[..16])));
        let (shown, failed) = (path.display(), DataError::write(path.display()));
        if let Ok(Some(file)) = ViewFile::open(&path, &content) {
            return Ok(file);
        }
        let (views, needed) = (content.views, content.file_bytes());
        let refused = |error: io::Error| {
            let found = format!(
                "{error}; name another folder by --cache, or keep the views in memory by --view-memory-mib {}",
                needed.div_ceil(1 << 20)
            );
            let expected = format!("a folder for {} of views", size(needed));
            Mismatch::new(expected, found).options(folder.display())
        };
        fs::create_dir_all(folder).map_err(refused)?;
        let lock = File::create(folder.join("lock")).map_err(refused)?;
        if lock.try_lock().is_err() {
            say(format!("waiting for another command that makes views in {}", folder.display()));
            lock.lock().map_err(&failed)?;
        }
        match ViewFile::open(&path, &content) {
            Ok(Some(file)) => return Ok(file),
            Ok(None) => {}
            Err(reason) => {
                say(format!(
                    "{shown}: expected the views of this data, found a damaged file ({reason}): it is made again"
                ));
                fs::remove_file(&path).map_err(&failed)?;
            }
        }
        // `begin` removes the content that a killed command left, before the free space is measured.
        let unfinished = folder.join(UNFINISHED);
        let mut writer = ViewFileWriter::begin(&unfinished, content).map_err(&failed)?;
        let free = statvfs(folder).map_or(u64::MAX, |of| of.f_bavail.saturating_mul(of.f_frsize));
        let made = check_room(folder, needed, free).and_then(|()| {
            let notes = self.decode_all(source, &mut |view| writer.push(view).map_err(&failed))?;
            writer.finish(&unfinished, &path, notes).map_err(&failed)
        });
        match &made {
            Ok(_) => {
                let all = bound(folder, &path, CACHE_BYTES.max(CACHE_FILES.saturating_mul(needed)));
                say(format!(
                    "{shown}: {views} views in {} that the next command on this data reads; the folder has {} of such files; remove the file when you no longer need it",
                    size(needed),
                    size(all)
                ));
            }
            // The error is returned; the next command empties a file that cannot be removed.
            Err(_) => drop(fs::remove_file(&unfinished)),
        }
        made
    }

    /// Decodes all images; `put` receives each view in order. Returns remarks about the images.
    fn decode_all(
        &mut self,
        source: Source<'_>,
        put: &mut dyn FnMut(&[u8]) -> Result<(), DataError>,
    ) -> Result<Vec<String>, DataError> {
        let kept = self.kept.take();
        let (is_again, Source { again, shape }) = (kept.is_none(), source);
        let (root, preparation, found) = (self.root, self.preparation, &self.found);
        let (decode, requested, framings, views) = (self.decode, self.requested, self.framings, self.views);
        let changed = |name: &str| {
            let found = "another one: it changed while the data was read; give the command again";
            Mismatch::new("the file that was there before", found).invalid(at(root, name))
        };
        let decoded = |(number, bytes): &(usize, Vec<u8>)| -> Result<Vec<Decoded>, DataError> {
            let (name, hash, slots) = &found[*number];
            if is_again && Sha256::digest(bytes)[..] != hash[..] {
                return Err(changed(name));
            }
            let target = |slot| Target { shape: Some(shape), requested, framing: framings.of(slot) };
            slots.clone().map(|slot| decode(root, name, bytes, target(slot))).collect()
        };
        let bytes_of_image = shape.bytes() * views.div_ceil(found.len().max(1));
        let most_files = (CHUNK_BYTES / bytes_of_image.max(1)).clamp(1, CHUNK_FILES);
        let (mut chunk, mut chunk_bytes, mut number) = (Vec::new(), 0_usize, 0_usize);
        let mut images = Vec::with_capacity(found.len());
        let mut finish = |chunk: &mut Vec<(usize, Vec<u8>)>| -> Result<(), DataError> {
            for result in on_threads(preparation.threads, chunk, &decoded) {
                let views = result?;
                images.push(views.first().and_then(|(_, image)| *image));
                views.iter().try_for_each(|(view, _)| put(&view.pixels))?;
            }
            chunk.clear();
            preparation.tell(PreparationEvent::Progress { done: images.len(), of: found.len() });
            Ok(())
        };
        let mut each = |name: &str, bytes: Vec<u8>| -> Result<(), DataError> {
            if found.get(number).is_none_or(|(found, ..)| found != name) {
                return Err(changed(name));
            }
            chunk_bytes += bytes.len();
            chunk.push((number, bytes));
            number += 1;
            if chunk.len() < most_files && chunk_bytes < CHUNK_BYTES {
                return Ok(());
            }
            chunk_bytes = 0;
            finish(&mut chunk)
        };
        match kept {
            Some(kept) => found.iter().zip(kept).try_for_each(|((name, ..), bytes)| each(name, bytes))?,
            None => again(&mut each)?,
        }
        finish(&mut chunk)?;
        match found.get(images.len()) {
            Some((missing, ..)) => Err(changed(missing)),
            None => Ok(self.notes(shape, &images)),
        }
    }

    /// Remarks about the changed images; `images` are the shapes of all images.
    fn notes(&self, shape: Shape, images: &[Option<Shape>]) -> Vec<String> {
        let of_images =
            || self.found.iter().zip(images).filter_map(|((name, ..), image)| Some((name, (*image)?)));
        let recoloured = if shape.channels == 1 { "made grey" } else { "grey and made RGB" };
        let changes: [(&str, IsChanged); 3] = [
            ("resized", |image, shape| (image.height, image.width) != (shape.height, shape.width)),
            (recoloured, |image, shape| (image.channels > 2) != (shape.channels > 2)),
            ("stripped of their transparency", |image, _| image.channels % 2 == 0),
        ];
        let note = |(change, is_changed): (&str, IsChanged)| {
            let mut changed = of_images().filter(|(_, image)| is_changed(*image, shape));
            let (first, image) = changed.next()?;
            let (count, all) = (1 + changed.count(), of_images().count());
            Some(format!("{count} of {all} images are {change} for {shape}, such as `{first}` of {image}"))
        };
        changes.into_iter().filter_map(note).collect()
    }
}

/// Function that returns true if an image of the first shape is changed for views of the second shape.
type IsChanged = fn(Shape, Shape) -> bool;

/// Removes the oldest files of views of a folder, but not `kept`, while all together have more than `most` bytes. Returns the bytes that stay. A command
/// that reads a removed file goes on, since the file is open.
fn bound(folder: &Path, kept: &Path, most: u64) -> u64 {
    let of_views = |path: &Path| {
        let is_key = |stem: &str| stem.len() == 32 && stem.bytes().all(|letter| letter.is_ascii_hexdigit());
        let stem = path.file_stem().and_then(OsStr::to_str);
        path.extension().is_some_and(|ending| ending == ENDING)
            && stem.is_some_and(is_key)
            && ViewFile::is_one(path)
    };
    let paths = fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let of_file = |path: PathBuf| {
        let metadata = path.metadata().ok()?;
        Some((metadata.modified().ok()?, metadata.len(), path))
    };
    let mut files: Vec<_> = paths.filter(|path| of_views(path)).filter_map(of_file).collect();
    files.sort();
    let mut all: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
    for (_, bytes, path) in files.iter().filter(|(.., path)| path != kept) {
        if all > most && fs::remove_file(path).is_ok() {
            all -= bytes;
        }
    }
    all
}

/// Results of `work` for all items, in their order.
fn on_threads<T: Sync, R: Send>(threads: usize, items: &[T], work: &(impl Fn(&T) -> R + Sync)) -> Vec<R> {
    let share = items.len().div_ceil(threads.max(1)).max(1);
    thread::scope(|scope| {
        let start = |share| scope.spawn(move || <[T]>::iter(share).map(work).collect::<Vec<R>>());
        let threads: Vec<_> = items.chunks(share).map(start).collect();
        let results = threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        results.collect()
    })
}

/// Refuses a file of views that does not fit on the disk.
fn check_room(folder: &Path, needed: u64, free: u64) -> Result<(), DataError> {
    if needed.saturating_add(SPARE_BYTES) <= free {
        return Ok(());
    }
    let expected = format!("{} of room for the views of this data", size(needed.saturating_add(SPARE_BYTES)));
    let found = format!("{} free; make room, or name a folder on another disk (--cache)", size(free));
    Err(Mismatch::new(expected, found).options(folder.display()))
}

/// Bytes for people.
fn size(bytes: u64) -> String {
    if bytes < 1_000_000_000 {
        format!("{} MB", bytes.div_ceil(1_000_000))
    } else {
        format!("{:.1} GB", bytes as f64 / 1e9)
    }
}

#[cfg(test)]
mod tests;
