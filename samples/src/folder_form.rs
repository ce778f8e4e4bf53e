//! Any data set as a folder of images, the form that [`tree`](crate::tree) reads: to look at it, to change it, to take it elsewhere.
//!
//! `PART/CLASS/SAMPLE.png` for data of one slot, `PART/CLASS/SAMPLE/camN.png` for others, and `classes.txt`, so that labels keep their
//! numbers. A sample is called by its position in its part. What no slot sees has no file and is left out, and counted.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::image_codec::{self, CodecError};
use crate::tree::{CLASSES_FILE, folder_name};
use crate::{DataSet, Part, Shape, View};

/// Why a data set could not be written as folders.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// There is something already.
    #[error("{}: expected an empty folder or none, found {found}; choose another", path.display())]
    Taken {
        /// Where the data set should go.
        path: PathBuf,
        /// What is there.
        found: String,
    },
    /// What an earlier call left when it was stopped.
    #[error("{}: left by a conversion that did not end; remove it and start again", path.display())]
    Unfinished {
        /// The folder.
        path: PathBuf,
    },
    /// The file system refused.
    #[error("{}: cannot be written: {source}", path.display())]
    Io {
        /// File or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A view that no image can hold.
    #[error("{}: {source}", path.display())]
    Encode {
        /// File.
        path: PathBuf,
        /// What is wrong with it.
        source: CodecError,
    },
}

/// What was written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Written {
    /// Samples of train, validation and test.
    pub samples: [usize; 3],
    /// Images.
    pub images: usize,
    /// Bytes of the images.
    pub bytes: u64,
    /// Samples that no slot sees; they have no file.
    pub not_in_view: usize,
    /// Images that are in another part too, byte for byte; `tree` refuses such unless leaks are allowed.
    pub shared: usize,
}

/// Writes at most the first `limit` samples of each part to `out`, which is complete once it is there. `told` hears of every sample: how
/// many are done, and of how many.
///
/// # Errors
/// [`FolderError`]; what was written until then is left in `OUT.partial`.
pub fn write(
    data: &dyn DataSet,
    out: &Path,
    limit: Option<usize>,
    mut told: impl FnMut(usize, usize),
) -> Result<Written, FolderError> {
    let partial = partial(out)?;
    let io = |path: &Path, source| FolderError::Io { path: path.into(), source };
    let labels = data.labels();
    fs::create_dir_all(&partial).map_err(|source| io(&partial, source))?;
    let names = partial.join(CLASSES_FILE);
    let mut text = labels.join("\n");
    text.push('\n');
    fs::write(&names, text).map_err(|source| io(&names, source))?;

    let of_part = |part| data.len(part).min(limit.unwrap_or(usize::MAX));
    let total: usize = Part::ALL.into_iter().map(of_part).sum();
    let mut writer =
        Writer { data, shape: data.shape(), written: Written::default(), pictures: HashMap::new() };
    let mut done = 0;
    for part in Part::ALL {
        for index in 0..of_part(part) {
            let class = folder_name(&labels[usize::from(data.label(part, index))]);
            writer.sample(&partial.join(part.name()).join(class), part, index)?;
            done += 1;
            told(done, total);
        }
    }
    fs::rename(&partial, out).map_err(|source| io(out, source))?;
    Ok(writer.written)
}

/// Where a folder grows until it is complete.
fn partial(out: &Path) -> Result<PathBuf, FolderError> {
    let taken = |found: &str| FolderError::Taken { path: out.into(), found: found.into() };
    let Some(name) = out.file_name() else { return Err(taken("no name for a folder")) };
    if out.is_dir() {
        let mut entries = fs::read_dir(out).map_err(|source| FolderError::Io { path: out.into(), source })?;
        if entries.next().is_some() {
            return Err(taken("one with files in it"));
        }
    } else if out.exists() {
        return Err(taken("a file"));
    }
    let mut name = name.to_owned();
    name.push(".partial");
    let partial = out.with_file_name(name);
    if partial.exists() { Err(FolderError::Unfinished { path: partial }) } else { Ok(partial) }
}

struct Writer<'a> {
    data: &'a dyn DataSet,
    shape: Shape,
    written: Written,
    /// The part of each picture, by the hash of its file.
    pictures: HashMap<[u8; 32], Part>,
}

impl Writer<'_> {
    fn sample(&mut self, class: &Path, part: Part, index: usize) -> Result<(), FolderError> {
        let slots = self.data.slots();
        let sample = class.join(format!("{index:06}"));
        let mut view = vec![0; self.shape.bytes()];
        let mut seen = false;
        for slot in 0..slots {
            if !self.data.view_into(part, index, slot, &mut view) {
                continue;
            }
            let path =
                if slots == 1 { sample.with_extension("png") } else { sample.join(format!("cam{slot}.png")) };
            if !seen {
                let folder = path.parent().unwrap_or(class);
                fs::create_dir_all(folder)
                    .map_err(|source| FolderError::Io { path: folder.into(), source })?;
            }
            seen = true;
            self.image(&path, part, &View::new(self.shape, view.clone()))?;
        }
        if seen {
            self.written.samples[part as usize] += 1;
        } else {
            self.written.not_in_view += 1;
        }
        Ok(())
    }

    fn image(&mut self, path: &Path, part: Part, view: &View) -> Result<(), FolderError> {
        let bytes =
            image_codec::png(view).map_err(|source| FolderError::Encode { path: path.into(), source })?;
        fs::write(path, &bytes).map_err(|source| FolderError::Io { path: path.into(), source })?;
        self.written.images += 1;
        self.written.bytes += bytes.len() as u64;
        let first = *self.pictures.entry(Sha256::digest(&bytes).into()).or_insert(part);
        self.written.shared += usize::from(first != part);
        Ok(())
    }
}
