//! A file with the logits of a part.
//!
//! ```text
//! +----------+--------------+--------+------------------------------+---------+
//! | HWLOGT01 | header bytes | header | devices, then exits          | SHA-256 |
//! | 8 bytes  | u64 LE       | JSON   | f32 LE, [samples, classes]   | 32      |
//! +----------+--------------+--------+------------------------------+---------+
//! ```

use std::fs;
use std::io;
use std::path::Path;

use headwater_protocol::Exit;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::evaluation::PartLogits;
use crate::training::write_whole;

const MAGIC: &[u8; 8] = b"HWLOGT01";

#[derive(Serialize, Deserialize)]
struct Header {
    /// Identity of the run.
    run: String,
    samples: usize,
    classes: usize,
    /// Device slots with logits.
    devices: usize,
    /// Exits, in their order.
    exits: Vec<Exit>,
}

/// Writes the logits of a run; after a kill the file is either the old or the new one.
///
/// # Errors
/// Writing failed.
pub(super) fn write(file: &Path, run: &str, logits: &PartLogits) -> io::Result<()> {
    let header = Header {
        run: run.to_owned(),
        samples: logits.samples(),
        classes: logits.classes,
        devices: logits.devices.len(),
        exits: logits.exits.iter().map(|(exit, _)| exit).collect(),
    };
    let header = serde_json::to_vec(&header)?;
    let mut bytes = MAGIC.to_vec();
    bytes.extend((header.len() as u64).to_le_bytes());
    bytes.extend(header);
    let numbers = logits.devices.iter().chain(logits.exits.iter().map(|(_, logits)| logits)).flatten();
    numbers.for_each(|number| bytes.extend(number.to_le_bytes()));
    let hash = Sha256::digest(&bytes);
    bytes.extend(hash);
    write_whole(file, &bytes)
}

/// Reads the logits of a run.
///
/// # Errors
/// Reading failed, or the file is damaged or of another run (`InvalidData`).
pub(super) fn read(file: &Path, run: &str) -> io::Result<PartLogits> {
    let bytes = fs::read(file)
        .map_err(|error| io::Error::new(error.kind(), format!("reading {}: {error}", file.display())))?;
    decode(&bytes, run).map_err(|reason| {
        let text = format!("{}: {reason}; remove the file and train again", file.display());
        io::Error::new(io::ErrorKind::InvalidData, text)
    })
}

fn decode(bytes: &[u8], run: &str) -> Result<PartLogits, String> {
    let (body, hash) = bytes.split_last_chunk::<32>().ok_or("shorter than its hash")?;
    if Sha256::digest(body)[..] != hash[..] {
        return Err("its SHA-256 does not fit".into());
    }
    let rest = body.strip_prefix(MAGIC).ok_or("no logits of this version")?;
    let (len, rest) = rest.split_first_chunk::<8>().ok_or("no header")?;
    let split = usize::try_from(u64::from_le_bytes(*len)).ok().and_then(|len| rest.split_at_checked(len));
    let (header, numbers) = split.ok_or("its header is cut off")?;
    let header: Header = serde_json::from_slice(header).map_err(|error| error.to_string())?;
    if header.run != run {
        return Err(format!("expected logits of run {run}, found those of run {}", header.run));
    }
    let (numbers, _) = numbers.as_chunks::<4>();
    let arrays = header.devices.checked_add(header.exits.len());
    let row = header.samples.checked_mul(header.classes);
    let expected = arrays.zip(row).and_then(|(arrays, row)| arrays.checked_mul(row));
    if expected != Some(numbers.len()) {
        return Err("its numbers are cut off".into());
    }
    let mut numbers = numbers.iter().map(|bytes| f32::from_le_bytes(*bytes));
    let len = header.samples * header.classes;
    let mut next = || -> Vec<f32> { numbers.by_ref().take(len).collect() };
    let devices = (0..header.devices).map(|_| next()).collect();
    let exits = header.exits.iter().map(|exit| (*exit, next())).collect();
    Ok(PartLogits { classes: header.classes, devices, exits })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logits_survive_a_file_and_a_damaged_file_or_another_run_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.hwlg");
        let exits = [(Exit::Local, vec![0.5, f32::MIN, 1.0, 2.0]), (Exit::Cloud, vec![3.0; 4])];
        let logits =
            PartLogits { classes: 2, devices: vec![vec![7.0; 4]], exits: exits.into_iter().collect() };
        write(&file, "run", &logits).unwrap();
        assert_eq!(read(&file, "run").unwrap(), logits);
        assert_eq!(logits.samples(), 2);
        let refusal = |run: &str| read(&file, run).unwrap_err().to_string();
        assert!(refusal("other").contains("expected logits of run other, found those of run run"));
        let whole = fs::read(&file).unwrap();
        for len in [0, 20, 40, whole.len() - 1] {
            fs::write(&file, &whole[..len]).unwrap();
            assert!(refusal("run").contains("remove the file and train again"), "{len} bytes");
        }
    }
}
