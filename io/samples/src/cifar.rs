//! CIFAR-10, the binary version: five train files and one test file of 10,000 records each.
//!
//! ```text
//! record, 3,073 bytes
//! +-------+-------------+---------------+--------------+
//! | label | red, 32x32  | green, 32x32  | blue, 32x32  |
//! +-------+-------------+---------------+--------------+
//! ```
//! The validation part is the last 5,000 train records, the calibration part the 5,000 before these.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use crate::data_set::{DataSetInfo, PartsOrigin};
use crate::error::Mismatch;
use crate::in_memory::{InMemory, InMemoryPart, StoredViews};
use crate::{DataError, Shape, files};

/// Declaration of CIFAR-10.
pub(crate) const INFO: DataSetInfo = DataSetInfo {
    name: "cifar-10",
    content: "photographs of animals and vehicles, one slot, 3x32x32",
    files: FILES,
    marks: &["data_batch_1.bin"],
    licence: "none stated by the authors; cite Krizhevsky 2009",
    parts: PartsOrigin::Fixed,
    folds: 0,
    has_view_seed: false,
    open: |dir, _| Ok(Box::new(open(dir)?)),
};

const FILES: &str = "data_batch_1.bin to data_batch_5.bin, test_batch.bin and batches.meta.txt of the binary version, \
                     each plain, .gz or .bz2";
const SHAPE: Shape = Shape::rgb(32, 32);
const RECORDS: usize = 10_000;
const RECORD_BYTES: usize = 1 + SHAPE.bytes();
const TRAIN_FILES: usize = 5;
/// Records at the end of the train files that form the validation part; as many before them form the calibration part.
const VALIDATION_COUNT: usize = 5_000;
const CLASSES: usize = 10;
/// Longest `batches.meta.txt` that is read, in bytes.
const MAX_NAMES_BYTES: u64 = 4096;

/// Opens the data set in a folder (184 MB in memory).
///
/// # Errors
/// [`DataError`] naming the file and its fault.
fn open(dir: &Path) -> Result<InMemory, DataError> {
    let labels = names(dir)?;
    let [mut train, mut test] = [(); 2].map(|()| InMemoryPart::default());
    let mut pixels = Vec::with_capacity((TRAIN_FILES + 1) * RECORDS * SHAPE.bytes());
    for file in 1..=TRAIN_FILES {
        read(dir, &format!("data_batch_{file}.bin"), &mut train, &mut pixels)?;
    }
    read(dir, "test_batch.bin", &mut test, &mut pixels)?;
    let validation = train.split_off(TRAIN_FILES * RECORDS - VALIDATION_COUNT);
    let calibration = train.split_off(TRAIN_FILES * RECORDS - 2 * VALIDATION_COUNT);
    let views = StoredViews::Memory(pixels);
    Ok(InMemory::new(labels, 1, SHAPE, [train, validation, test], views).with_calibration(calibration))
}

fn names(dir: &Path) -> Result<Vec<String>, DataError> {
    let path = dir.join("batches.meta.txt");
    let text = files::read(&path, MAX_NAMES_BYTES)?;
    let text = String::from_utf8_lossy(&text);
    let names: Vec<String> =
        text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect();
    if names.len() != CLASSES {
        let mismatch = Mismatch::new(format!("{CLASSES} class names, one per line"), names.len().to_string());
        return Err(mismatch.wrong_file(path.display()));
    }
    Ok(names)
}

/// Adds the records of a file to `part`, and the pixels of the records to `all`.
fn read(dir: &Path, name: &str, part: &mut InMemoryPart, all: &mut Vec<u8>) -> Result<(), DataError> {
    let path = files::find(dir, &["", ".gz", ".bz2"].map(|ending| format!("{name}{ending}")), FILES)?;
    let expected = RECORDS * RECORD_BYTES;
    let mut records = Vec::with_capacity(expected);
    File::open(&path)
        .and_then(|file| files::inflate(BufReader::new(file)))
        .and_then(|source| source.take(expected as u64 + 1).read_to_end(&mut records))
        .map_err(DataError::decode(path.display(), "a file of CIFAR-10"))?;
    if records.len() != expected {
        let mismatch = |found| Mismatch::new(format!("{expected} bytes (inflated)"), found);
        return Err(match records.len() > expected {
            true => mismatch("more".into()).wrong_file(path.display()),
            false => mismatch(records.len().to_string()).damaged(path.display()),
        });
    }
    for (index, record) in records.chunks_exact(RECORD_BYTES).enumerate() {
        let (label, pixels) = (record[0], &record[1..]);
        if usize::from(label) >= CLASSES {
            let at = format!("{}: record {index}", path.display());
            return Err(Mismatch::new("a label from 0 to 9", label.to_string()).wrong_file(at));
        }
        part.push(u16::from(label), [Some(all.len() / SHAPE.bytes())]);
        all.extend_from_slice(pixels);
    }
    Ok(())
}

#[cfg(all(test, feature = "bzip2"))]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::{DataSet, Part};

    /// Six files in three compressions. Each record is filled with its number modulo 251.
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
                1 => (".gz", crate::testing::gzip(&records)),
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
    fn every_compression_is_read_and_faults_are_named() {
        let dir = written();
        let data = open(dir.path()).unwrap();
        assert_eq!(
            [Part::Train, Part::Validation, Part::Test].map(|part| data.len(part)),
            [40_000, 5_000, 10_000]
        );
        let mut view = vec![0; SHAPE.bytes()];
        for (part, index, number) in [
            (Part::Train, 39_999, 39_999),
            (Part::Calibration, 0, 40_000),
            (Part::Validation, 0, 45_000),
            (Part::Test, 3, 50_003),
        ] {
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
        let cut = "expected 30730000 bytes (inflated), found 30729999; it is cut off or damaged";
        assert!(error.contains(cut), "{error}");
        std::fs::remove_file(&path).unwrap();
        let error = open(dir.path()).unwrap_err().to_string();
        assert!(
            error.contains(
                "expected `data_batch_1.bin` or `data_batch_1.bin.gz` or `data_batch_1.bin.bz2`, found none"
            ),
            "{error}"
        );
    }
}
