//! CIFAR-10, the binary version: five train files and one test file of 10,000 records, a label and three planes of 32x32 each.
//!
//! Files may be plain, gzip or bzip2, told apart by their first bytes. The validation part is the last 5,000 train records.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;

use crate::stored::{Stored, StoredPart};
use crate::{Shape, data_dir};

const SHAPE: Shape = Shape::rgb(32, 32);
const RECORDS: usize = 10_000;
const RECORD_BYTES: usize = 1 + SHAPE.bytes();
const TRAIN_FILES: usize = 5;
const VALIDATION_COUNT: usize = 5_000;
const CLASSES: usize = 10;
/// Largest `batches.meta.txt` that is read.
const NAMES_BYTES_MAX: u64 = 4096;

/// Why CIFAR-10 could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum CifarError {
    /// A file is not there.
    #[error(
        "found neither `{name}` nor the same with .gz or .bz2 in {}; the folder must hold data_batch_1.bin to data_batch_5.bin, \
         test_batch.bin and batches.meta.txt of the binary version",
        dir.display()
    )]
    Missing {
        /// Folder looked into.
        dir: PathBuf,
        /// Name looked for.
        name: String,
    },
    /// The file system refused, or the file does not inflate.
    #[error("{}: cannot be read: {source}; copy or download it again", path.display())]
    Io {
        /// File.
        path: PathBuf,
        /// What the system or the decoder said.
        source: io::Error,
    },
    /// Another length than that of 10,000 records.
    #[error("{}: expected {expected} bytes (inflated), found {found}", path.display())]
    Length {
        /// File.
        path: PathBuf,
        /// Bytes of 10,000 records.
        expected: usize,
        /// Bytes found; with `more` at least so many.
        found: String,
    },
    /// A label that names no class.
    #[error("{}: record {record}: expected a label from 0 to 9, found {label}; is it the right file?", path.display())]
    Label {
        /// File.
        path: PathBuf,
        /// Position in the file.
        record: usize,
        /// Label found.
        label: u8,
    },
    /// Not ten class names.
    #[error("{}: expected {CLASSES} class names, one a line, found {found}", path.display())]
    Names {
        /// File.
        path: PathBuf,
        /// Lines found.
        found: usize,
    },
}

/// Loads the data set from a folder (184 MB in memory).
///
/// # Errors
/// [`CifarError`] naming the file and what is wrong with it.
pub fn open(dir: &Path) -> Result<Stored, CifarError> {
    let labels = names(dir)?;
    let (mut train, mut validation, mut test) =
        (StoredPart::default(), StoredPart::default(), StoredPart::default());
    let validation_from = TRAIN_FILES * RECORDS - VALIDATION_COUNT;
    for file in 0..TRAIN_FILES {
        let records = read(dir, &format!("data_batch_{}.bin", file + 1))?;
        let from = validation_from.saturating_sub(file * RECORDS).min(RECORDS);
        let (before, behind) = records.split_at(from * RECORD_BYTES);
        push(before, &mut train);
        push(behind, &mut validation);
    }
    push(&read(dir, "test_batch.bin")?, &mut test);
    Ok(Stored::new(labels, 1, SHAPE, [train, validation, test]))
}

fn push(records: &[u8], part: &mut StoredPart) {
    for record in records.chunks_exact(RECORD_BYTES) {
        part.push(u16::from(record[0]), SHAPE, [Some(&record[1..])]);
    }
}

fn names(dir: &Path) -> Result<Vec<String>, CifarError> {
    let path = dir.join("batches.meta.txt");
    let io = |source| CifarError::Io { path: path.clone(), source };
    let mut text = String::new();
    File::open(&path).and_then(|file| file.take(NAMES_BYTES_MAX).read_to_string(&mut text)).map_err(io)?;
    let names: Vec<String> =
        text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect();
    if names.len() != CLASSES {
        return Err(CifarError::Names { path, found: names.len() });
    }
    Ok(names)
}

#[cfg(feature = "bzip2")]
#[expect(clippy::unnecessary_wraps, reason = "as it is without the feature")]
fn bzip2(file: BufReader<File>) -> io::Result<Box<dyn Read>> {
    Ok(Box::new(bzip2::bufread::MultiBzDecoder::new(file)))
}

#[cfg(not(feature = "bzip2"))]
fn bzip2(_: BufReader<File>) -> io::Result<Box<dyn Read>> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "this program was built without bzip2; unpack the file"))
}

/// The records of a file, their labels checked.
fn read(dir: &Path, name: &str) -> Result<Vec<u8>, CifarError> {
    let Some(path) = data_dir::file(dir, name, &["", ".gz", ".bz2"]) else {
        return Err(CifarError::Missing { dir: dir.into(), name: name.into() });
    };
    let io = |source| CifarError::Io { path: path.clone(), source };
    let mut file = BufReader::new(File::open(&path).map_err(io)?);
    let start = file.fill_buf().map_err(io)?;
    let source: Box<dyn Read> = if start.starts_with(&[0x1f, 0x8b]) {
        Box::new(MultiGzDecoder::new(file))
    } else if start.starts_with(b"BZh") {
        bzip2(file).map_err(io)?
    } else {
        Box::new(file)
    };
    let expected = RECORDS * RECORD_BYTES;
    let mut records = Vec::with_capacity(expected);
    source.take(expected as u64 + 1).read_to_end(&mut records).map_err(io)?;
    if records.len() != expected {
        let more = if records.len() > expected { "more" } else { "" };
        let found = if more.is_empty() { records.len().to_string() } else { more.into() };
        return Err(CifarError::Length { path, expected, found });
    }
    match records.iter().step_by(RECORD_BYTES).position(|&label| usize::from(label) >= CLASSES) {
        Some(record) => {
            let label = records[record * RECORD_BYTES];
            Err(CifarError::Label { path, record, label })
        }
        None => Ok(records),
    }
}

#[cfg(all(test, feature = "bzip2"))]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::{DataSet, Part};

    /// Six files whose records are filled with their number modulo 251, in three wrappings.
    fn written() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("batches.meta.txt"), "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n\n").unwrap();
        for file in 0..=TRAIN_FILES {
            let record = |at: usize| {
                let mut record = vec![((file * RECORDS + at) % 251) as u8; RECORD_BYTES];
                record[0] = (at % CLASSES) as u8;
                record
            };
            let records: Vec<u8> = (0..RECORDS).flat_map(record).collect();
            let name = if file < TRAIN_FILES {
                format!("data_batch_{}.bin", file + 1)
            } else {
                "test_batch.bin".into()
            };
            let (end, bytes) = match file % 3 {
                0 => ("", records),
                1 => {
                    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                    gz.write_all(&records).unwrap();
                    (".gz", gz.finish().unwrap())
                }
                _ => {
                    let mut bz = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
                    bz.write_all(&records).unwrap();
                    (".bz2", bz.finish().unwrap())
                }
            };
            std::fs::write(dir.path().join(name + end), bytes).unwrap();
        }
        dir
    }

    #[test]
    fn every_wrapping_is_read_and_mistakes_are_named() {
        let dir = written();
        let data = open(dir.path()).unwrap();
        assert_eq!(
            [Part::Train, Part::Validation, Part::Test].map(|part| data.len(part)),
            [45_000, 5_000, 10_000]
        );
        let mut view = vec![0; SHAPE.bytes()];
        for (part, index, number) in
            [(Part::Train, 44_999, 44_999), (Part::Validation, 0, 45_000), (Part::Test, 3, 50_003)]
        {
            assert!(data.view_into(part, index, 0, &mut view));
            assert!(view.iter().all(|&pixel| usize::from(pixel) == number % 251));
            assert_eq!(usize::from(data.label(part, index)), number % CLASSES);
        }

        let path = dir.path().join("data_batch_1.bin");
        let mut records = std::fs::read(&path).unwrap();
        records[7 * RECORD_BYTES] = 10;
        std::fs::write(&path, &records).unwrap();
        let error = open(dir.path()).unwrap_err().to_string();
        assert!(error.contains("record 7: expected a label from 0 to 9, found 10"), "{error}");
        std::fs::write(&path, &records[1..]).unwrap();
        let error = open(dir.path()).unwrap_err().to_string();
        assert!(error.contains("expected 30730000 bytes (inflated), found 30729999"), "{error}");
        std::fs::remove_file(&path).unwrap();
        let error = open(dir.path()).unwrap_err().to_string();
        assert!(error.contains("neither `data_batch_1.bin` nor the same with .gz or .bz2"), "{error}");
    }
}
