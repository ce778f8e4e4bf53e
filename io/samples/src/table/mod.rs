//! Samples by a table: `labels.csv` names class and files of each sample, in a directory or a `.tar.gz`.
//!
//! ```text
//! part,class,sample,group,cam0,cam1
//! train,car,0001,scene-7,a/0001.png,b/0001.u8      slot 1 sees the sample as a raw tensor
//! train,bus,0002,scene-7,a/0002.png,               slot 1 does not see the sample
//! ```
//! - Columns are in any order. A table needs `class`, and `file` (one slot) or `cam0`, `cam1`, ... (several slots).
//! - Instead of `group`, a column `frame` numbers the frames of one recording: samples of a frame form a group.
//! - `classes.txt` beside the table, if there is one, gives the order of the classes.
//! - Without the column `part`, the parts are drawn (see [`split`](crate::split)). Samples of one `group`, or with equal files, stay together.
//! - Lines end with `\n`, `\r\n` or, as on an old Mac, `\r`. Names are compared in their composed form (Unicode NFC).
//! - If the first named file does not exist, and exactly one archive lies beside the table, the files are read from the archive.
//! - A file is an image (PNG, JPEG, WebP) or a raw tensor of exactly the requested shape, CHW.
//! - A raw tensor `.u8` has one byte per value. `.f32` has little-endian floats from 0 to 1, which become `round(255 x)`.
//! - Labels number the classes of the train part in alphabetical order. Samples keep the order of the table.

mod csv;
mod rows;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::io::ErrorKind::{NotADirectory, NotFound};
use std::path::{Path, PathBuf};

use crate::data_set::{DataSetInfo, OpenOptions, PartsOrigin};
use crate::error::Mismatch;
use crate::file_names::one_form;
use crate::files::{self, MAX_FILE_BYTES};
use crate::in_memory::InMemory;
use crate::labelled_files::{
    CLASSES_FILE, Decoded, ImageFile, ImageReader, LabelledFiles, LabelledSample, PreparedImages, Target,
    decode_image, frame_group, parse_classes,
};
use crate::numpy::{to_pixels, values};
use crate::{DataError, Shape, View};

use csv::{LineError, newlines};
use rows::Row;

/// Declaration of the user's own data in a table.
pub(crate) const INFO: DataSetInfo = DataSetInfo {
    name: "table",
    content: "images or raw tensors of your own, labelled in a CSV file",
    files: "labels.csv and the files that it names, in a directory or .tar.gz",
    marks: &[TABLE],
    licence: "yours",
    parts: PartsOrigin::Files,
    folds: 0,
    has_view_seed: false,
    open: |dir, options| Ok(Box::new(open(dir, options)?)),
};

/// File with the rows.
pub(crate) const TABLE: &str = "labels.csv";

/// Reads a table and its files.
///
/// # Errors
/// [`DataError`] naming the file or the line and its fault.
fn open(path: &Path, options: OpenOptions<'_>) -> Result<InMemory, DataError> {
    let mut table = Table { root: path, images: ImageReader::new(path, options, decode) };
    let (rows, classes) = table.rows()?;
    let cameras = rows.first().map_or(0, |row| row.files.len());
    // A file of the only camera gives each slot its region.
    let slots_of_file = if cameras == 1 { options.framings.regions.len().max(1) } else { 1 };
    let place = place_of_files(path, &rows)?;
    let mut images = table.images(&place, &rows, slots_of_file)?;
    if images.is_empty() {
        return Err(Mismatch::new("files in labels.csv", "none").invalid(path.display()));
    }
    let files = rows.iter().flat_map(|row| row.files.iter().flatten());
    let names: BTreeSet<&str> = files.map(String::as_str).collect();
    let PreparedImages { shape, views, notes } = table.images.prepare(&|each| visit(&place, &names, each))?;
    let is_recording = rows.iter().all(|row| row.frame.is_some());
    let of_slots =
        |image: Option<ImageFile>| (0..slots_of_file).map(move |index| Some(image.as_ref()?.of_slot(index)));
    let mut sample = |row: Row| LabelledSample {
        views: row.files.iter().map(|file| images.remove(file.as_ref()?)).flat_map(of_slots).collect(),
        part: row.part,
        class: row.class,
        name: row.name,
        group: row.frame.map(frame_group).or(row.group),
    };
    let samples = rows.into_iter().map(&mut sample).collect();
    let files = LabelledFiles { root: path.into(), samples, views, classes, is_recording, notes };
    files.into_data_set(cameras * slots_of_file, shape, options)
}

struct Table<'a> {
    root: &'a Path,
    images: ImageReader<'a>,
}

impl Table<'_> {
    /// Text that names a file of the folder or archive in errors.
    fn at(&self, file: &str) -> String {
        format!("{}: `{file}`", self.root.display())
    }

    /// Rows of the table, and the order of the classes if a file gives one.
    fn rows(&self) -> Result<(Vec<Row>, Option<Vec<String>>), DataError> {
        let (mut table, mut classes) = (None, None);
        visit(self.root, &BTreeSet::from([TABLE, CLASSES_FILE]), |name, bytes| {
            if name == TABLE {
                table = Some(bytes);
            } else {
                let found = parse_classes(&bytes);
                classes = Some(found.map_err(|mismatch| mismatch.invalid(self.at(CLASSES_FILE)))?);
            }
            Ok(())
        })?;
        let table =
            table.ok_or_else(|| Mismatch::new("a file labels.csv", "none").invalid(self.root.display()))?;
        let invalid = |error: LineError| {
            error.mismatch.invalid(format!("{}: {TABLE}:{}", self.root.display(), error.line))
        };
        let text = String::from_utf8(table).map_err(|error| {
            let (valid, _) = error.as_bytes().split_at(error.utf8_error().valid_up_to());
            let line = 1 + newlines(&String::from_utf8_lossy(valid));
            let found = match error.as_bytes() {
                [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => "UTF-16",
                _ => "other bytes",
            };
            invalid(LineError::new(line, "UTF-8 (in a spreadsheet: save as CSV UTF-8)", found))
        })?;
        Ok((rows::parse(&text).map_err(invalid)?, classes))
    }

    /// Images of all rows by path. `slots_of_file` slots see each image, beginning with the slot of the image's column.
    fn images(
        &mut self,
        place: &Path,
        rows: &[Row],
        slots_of_file: usize,
    ) -> Result<HashMap<String, ImageFile>, DataError> {
        let named = || rows.iter().flat_map(|row| row.files.iter().flatten().map(|file| (file, row.line)));
        let files = rows.iter().flat_map(|row| row.files.clone().into_iter().zip(0_usize..));
        let slot_of: HashMap<String, usize> = files.filter_map(|(file, slot)| Some((file?, slot))).collect();
        let mut images = HashMap::new();
        visit(place, &named().map(|(file, _)| file.as_str()).collect(), |file, bytes| {
            let first = slot_of.get(file).copied().unwrap_or_default();
            images.insert(file.to_owned(), self.images.add(file, bytes, first..first + slots_of_file)?);
            Ok(())
        })?;
        match named().find(|(file, _)| !images.contains_key(*file)) {
            None => Ok(images),
            Some((file, line)) => {
                let expected = format!("this file, which labels.csv names in line {line}");
                Err(Mismatch::new(expected, "none").invalid(self.at(file)))
            }
        }
    }
}

/// Folder or archive of the files that a table names.
fn place_of_files(root: &Path, rows: &[Row]) -> Result<PathBuf, DataError> {
    let first = rows.iter().flat_map(|row| row.files.iter().flatten()).next();
    let is_there = |file: &String| files::path_below(root, file, &mut HashMap::new()).exists();
    let beside = if !root.is_dir() || first.is_none_or(is_there) { None } else { files::only_archive(root)? };
    Ok(beside.unwrap_or_else(|| root.to_owned()))
}

/// Decodes a file below `root`: an image, or a raw tensor of the requested shape.
fn decode(root: &Path, file: &str, bytes: &[u8], target: Target) -> Result<Decoded, DataError> {
    let extension = file.rsplit_once('.').map_or("", |(_, extension)| extension);
    let value_bytes = match extension.to_ascii_lowercase().as_str() {
        "u8" => 1,
        "f32" => 4,
        _ => return decode_image(root, file, bytes, target),
    };
    let view = match target.framing.roi {
        None => tensor(bytes, value_bytes, target.requested),
        Some(roi) => {
            Err(Mismatch::new(format!("an image, since a slot sees its region {roi}"), "a raw tensor"))
        }
    };
    let view = view.map_err(|mismatch| mismatch.invalid(format!("{}: `{file}`", root.display())))?;
    Ok((view, None))
}

/// A raw tensor with values of one byte, or floats of four bytes.
fn tensor(bytes: &[u8], value_bytes: usize, requested: Option<Shape>) -> Result<View, Mismatch> {
    let Some(shape) = requested else {
        return Err(Mismatch::new("a requested shape, since a raw tensor has none of its own", "none"));
    };
    let expected = shape.bytes() * value_bytes;
    if bytes.len() != expected {
        let expected = format!("{expected} bytes for {shape}, {value_bytes} per value");
        return Err(Mismatch::new(expected, bytes.len().to_string()));
    }
    let pixels = match value_bytes {
        1 => bytes.to_vec(),
        _ => to_pixels(values(bytes, |value| f64::from(f32::from_le_bytes(value))))?,
    };
    Ok(View::new(shape, pixels))
}

/// Visits the files of these names that exist in a directory or a `.tar.gz`. Names are compared in their composed form. An archive with two
/// files of one name is refused.
fn visit(
    root: &Path,
    names: &BTreeSet<&str>,
    mut visitor: impl FnMut(&str, Vec<u8>) -> Result<(), DataError>,
) -> Result<(), DataError> {
    if root.is_dir() {
        let mut folders = HashMap::new();
        for name in names {
            let path = files::path_below(root, name, &mut folders);
            match files::read(&path, MAX_FILE_BYTES) {
                Err(DataError::Read { source, .. }) if matches!(source.kind(), NotFound | NotADirectory) => {}
                bytes => visitor(name, bytes?)?,
            }
        }
        return Ok(());
    }
    let mut visited = BTreeSet::new();
    files::visit_archive(root, &mut |member| {
        let name = one_form(member.name.strip_prefix("./").unwrap_or(member.name)).into_owned();
        let Some(name) = names.get(name.as_str()).filter(|_| !member.kind.is_dir()) else { return Ok(()) };
        let at = || format!("{}: `{name}`", root.display());
        if !visited.insert(*name) {
            return Err(Mismatch::new("one file of this name", "two").invalid(at()));
        }
        if !member.kind.is_file() {
            let found = "a link, pipe or device; archive the file itself (tar -h)";
            return Err(Mismatch::new("a plain file", found).invalid(at()));
        }
        if member.size > MAX_FILE_BYTES {
            return Err(DataError::too_large(at(), MAX_FILE_BYTES, "bytes in a file"));
        }
        visitor(name, member.read()?)
    })
}
