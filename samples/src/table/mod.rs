//! Samples by a table: `labels.csv` names for each its class and its files, in a directory or a `.tar.gz`.
//!
//! ```text
//! part,class,sample,group,cam0,cam1
//! train,car,0001,scene-7,a/0001.png,b/0001.u8      slot 1 sees it as a raw tensor
//! train,bus,0002,scene-7,a/0002.png,               slot 1 does not see it
//! ```
//! Columns come in any order. `class` must be there, and `file` (one slot) or `cam0`, `cam1`, ... (several; empty: not in view). Without
//! `part` the parts are drawn (see [`split`](crate::split)); samples of one `group` stay in one part, and so do equal files.
//!
//! Files are images (PNG, JPEG, WebP, brought to the shape asked for or to that of the first one) or raw tensors of exactly the shape asked
//! for, CHW: `.u8`, a byte a value, and `.f32`, little-endian floats from 0 to 1 that become `round(255 x)`. Classes are those of the
//! train part in the order of their names; samples keep the order of the table.

mod csv;
mod error;
mod rows;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::path::Path;

use crate::data_set::{Rules, Wanted};
use crate::files::{self, Found};
use crate::gathered::{Gathered, Picture, Pictures, Sample};
use crate::numpy::{ArrayError, each, pixel};
use crate::stored::Stored;

pub use error::TableError;

use rows::Row;

const TABLE: &str = "labels.csv";

/// Reads a table and its files.
///
/// # Errors
/// [`TableError`] naming the file or the line and what is wrong with it.
pub fn open(path: &Path, wanted: Wanted, rules: Rules) -> Result<Stored, TableError> {
    let mut table = Table { root: path, wanted, pictures: Pictures::new(wanted.shape) };
    let rows = table.rows()?;
    let mut views = table.views(&rows)?;
    let shape =
        table.pictures.shape().or(wanted.shape).ok_or_else(|| TableError::NoViews { root: path.into() })?;
    let slots = rows.first().map_or(0, |row| row.files.len());
    let mut sample = |row: Row| Sample {
        views: row.files.iter().map(|file| views.remove(file.as_ref()?)).collect(),
        part: row.part,
        class: row.class,
        name: row.name,
        group: row.group,
    };
    let samples = rows.into_iter().map(&mut sample).collect();
    let gathered = Gathered { root: path.into(), samples, classes: None, notes: table.pictures.notes() };
    Ok(gathered.finish(slots, shape, rules)?)
}

struct Table<'a> {
    root: &'a Path,
    wanted: Wanted,
    pictures: Pictures,
}

impl Table<'_> {
    fn rows(&self) -> Result<Vec<Row>, TableError> {
        let mut table = None;
        if self.root.is_dir() {
            let path = self.root.join(TABLE);
            if path.is_file() {
                table = Some(files::one(&path)?);
            }
        } else {
            files::each(self.root, &mut |found| {
                if let Found::File(name, bytes) = found
                    && inside(name) == TABLE
                    && table.replace(bytes.to_vec()).is_some()
                {
                    return Err(TableError::Twice { root: self.root.into(), file: TABLE.into() });
                }
                Ok(())
            })?;
        }
        let table = table.ok_or_else(|| TableError::Missing { root: self.root.into() })?;
        let line = |mistake: rows::Mistake| TableError::Line {
            root: self.root.into(),
            line: mistake.line,
            expected: mistake.expected,
            found: mistake.found,
        };
        let text = String::from_utf8(table).map_err(|error| {
            let before = error.utf8_error().valid_up_to();
            let lines = error.as_bytes()[..before].iter().filter(|&&byte| byte == b'\n').count();
            line(rows::Mistake { line: lines + 1, expected: "UTF-8".into(), found: "other bytes".into() })
        })?;
        rows::parse(&text).map_err(line)
    }

    /// The pictures of all rows by their files.
    fn views(&mut self, rows: &[Row]) -> Result<HashMap<String, Picture>, TableError> {
        let of_row =
            |row: &Row| row.files.iter().flatten().map(|file| (file.clone(), row.line)).collect::<Vec<_>>();
        let named: Vec<(String, usize)> = rows.iter().flat_map(of_row).collect();
        let mut views = HashMap::with_capacity(named.len());
        if self.root.is_dir() {
            for (file, line) in named {
                let path = self.root.join(&file);
                if !path.is_file() {
                    return Err(TableError::NoFile { root: self.root.into(), file, line });
                }
                let picture = self.picture(&file, &files::one(&path)?)?;
                views.insert(file, picture);
            }
            return Ok(views);
        }
        let lines: HashMap<String, usize> = named.iter().cloned().collect();
        files::each(self.root, &mut |found| {
            if let Found::File(name, bytes) = found
                && lines.contains_key(inside(name))
            {
                let picture = self.picture(inside(name), bytes)?;
                if let Some(before) = views.insert(inside(name).to_owned(), picture) {
                    return Err(TableError::Twice { root: self.root.into(), file: before.file });
                }
            }
            Ok::<(), TableError>(())
        })?;
        match named.into_iter().find(|(file, _)| !views.contains_key(file)) {
            Some((file, line)) => Err(TableError::NoFile { root: self.root.into(), file, line }),
            None => Ok(views),
        }
    }

    fn picture(&mut self, file: &str, bytes: &[u8]) -> Result<Picture, TableError> {
        let ending = file.rsplit_once('.').map_or("", |(_, ending)| ending);
        let value_bytes = match ending.to_ascii_lowercase().as_str() {
            "u8" => 1,
            "f32" => 4,
            _ => {
                return self.pictures.decode(file, bytes).map_err(|source| TableError::Image {
                    root: self.root.into(),
                    file: file.into(),
                    source,
                });
            }
        };
        self.tensor(bytes, value_bytes)
            .map(|pixels| Picture::new(file, bytes, pixels))
            .map_err(|reason| TableError::Tensor { root: self.root.into(), file: file.into(), reason })
    }

    fn tensor(&self, bytes: &[u8], value_bytes: usize) -> Result<Vec<u8>, ArrayError> {
        let Some(shape) = self.wanted.shape else {
            return Err(ArrayError::new(
                "a shape to be asked for, since a raw tensor has none of its own",
                "none",
            ));
        };
        let expected = shape.bytes() * value_bytes;
        if bytes.len() != expected {
            let expected = format!("{expected} bytes for {shape}, {value_bytes} a value");
            return Err(ArrayError::new(expected, bytes.len().to_string()));
        }
        if value_bytes == 1 {
            return Ok(bytes.to_vec());
        }
        let values = each(bytes, |value| f64::from(f32::from_le_bytes(value)));
        values.into_iter().enumerate().map(|(at, value)| pixel(value, at)).collect()
    }
}

/// A member's path as tables write it.
fn inside(name: &str) -> &str {
    name.strip_prefix("./").unwrap_or(name)
}
