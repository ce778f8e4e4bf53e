//! PPM and PGM images one after the other (`ffmpeg -f image2pipe -c:v ppm`), each with its size: `P6\n640 480\n255\n` and the pixels.

use std::io::{BufRead, Read};

use headwater_samples::roi::RawFormat;

use super::preprocess::RawFrames;
use super::raw_frame::{NextFrame, StreamFault, check_size, read_block};

/// Largest number of bytes up to the end of one word of an image's header, comments included.
const MAX_WORD_BYTES: u64 = 1024;

/// The next image.
pub(super) fn next(input: &mut impl BufRead) -> NextFrame {
    let Some(kind) = word(input)? else { return Ok(None) };
    let (format, kind) = match &*kind {
        "P6" => (RawFormat::Rgb24, "PPM"),
        "P5" => (RawFormat::Gray, "PGM"),
        found => {
            let found: String = found.chars().take(20).collect();
            return Err(StreamFault::Unusable(format!(
                "expected P5 or P6 of the next image, found {found:?}"
            )));
        }
    };
    let size = [number(input)?, number(input)?];
    check_size(size)?;
    let most = number(input)?;
    if most != 255 {
        let reason = format!("{kind}: expected levels up to 255, found {most}: add -pix_fmt rgb24 to ffmpeg");
        return Err(StreamFault::Unusable(reason));
    }
    let pixels = read_block(input, format.bytes(size[0], size[1]))?;
    let pixels = pixels.ok_or_else(|| StreamFault::Cut("the last frame has no bytes".into()))?;
    Ok(Some((pixels, RawFrames { format, size, kind })))
}

fn number(input: &mut impl BufRead) -> Result<u32, StreamFault> {
    let word = word(input)?.ok_or_else(|| StreamFault::Cut("the stream ends within a head".into()))?;
    word.parse().map_err(|_| {
        let found: String = word.chars().take(20).collect();
        StreamFault::Unusable(format!("expected a number in the head of an image, found {found:?}"))
    })
}

/// Reads the next word, without comments, and the one white space after it; `None` at the end of the stream.
fn word(input: &mut impl BufRead) -> Result<Option<String>, StreamFault> {
    let (mut word, mut is_comment, mut found) = (String::new(), false, 0);
    for byte in input.by_ref().take(MAX_WORD_BYTES).bytes() {
        found += 1;
        match byte? {
            b'\n' if is_comment => is_comment = false,
            _ if is_comment => {}
            b'#' if word.is_empty() => is_comment = true,
            byte if !byte.is_ascii_whitespace() => word.push(byte.into()),
            _ if word.is_empty() => {}
            _ => break,
        }
    }
    if word.is_empty() && found == MAX_WORD_BYTES {
        let reason = format!("expected an image within {MAX_WORD_BYTES} bytes of white space and comments");
        return Err(StreamFault::Unusable(reason));
    }
    Ok((!word.is_empty()).then_some(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pixels, kind, and width and height.
    type Image = (Vec<u8>, &'static str, [u32; 2]);

    fn images(mut input: &[u8]) -> Result<Vec<Image>, StreamFault> {
        let mut images = Vec::new();
        while let Some((pixels, raw)) = next(&mut input)? {
            images.push((pixels, raw.kind, raw.size));
        }
        Ok(images)
    }

    #[test]
    fn images_of_different_sizes_follow_each_other() {
        // The second image begins with a pixel that is a white space.
        let stream = b"P6\n2 1\n255\nabcdefP5 # a comment\n1\t2 255\n\n#P6\n1 1\n255\nxyz";
        let expected = [
            (b"abcdef".to_vec(), "PPM", [2, 1]),
            (b"\n#".to_vec(), "PGM", [1, 2]),
            (b"xyz".to_vec(), "PPM", [1, 1]),
        ];
        assert_eq!(images(stream).unwrap(), expected);
        assert_eq!(images(b"").unwrap(), []);
    }

    #[test]
    fn images_that_are_cut_or_no_images_are_named() {
        for cut in ["P6", "P6\n2 1\n", "P6\n2 1\n255\n", "P6\n2 1\n255\nabc"] {
            assert!(matches!(images(cut.as_bytes()), Err(StreamFault::Cut(_))), "{cut:?}");
        }
        for (stream, part) in [
            ("P6\n2 1\n65535\nabcdefabcdef", "found 65535: add -pix_fmt rgb24"),
            ("P5\n1 1\n255\naxx\n", "found \"xx\""),
            ("P6\ntwo 1\n255\n", "found \"two\""),
            ("P6\n9000 9000\n255\n", "found 9000x9000"),
            ("P6\n0 1\n255\n", "found 0x1"),
            (format!("P5\n1 1\n255\na{}", " ".repeat(1024)).as_str(), "within 1024 bytes"),
            (format!("#{}\nP5", "x".repeat(1024)).as_str(), "within 1024 bytes"),
        ] {
            match images(stream.as_bytes()) {
                Err(StreamFault::Unusable(reason)) => assert!(reason.contains(part), "{reason}"),
                other => panic!("{stream:?}: {other:?}"),
            }
        }
    }
}
