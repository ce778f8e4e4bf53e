//! JPEG and PNG files in a stream, one after the other, separated by their own structure (ffmpeg's `image2pipe` writes nothing
//! between them).

use std::io::{self, BufReader, ErrorKind, Read, Write};

/// Start of a JPEG: the marker "start of image", and the first byte of the next marker.
const JPEG: &[u8] = &[0xff, 0xd8, 0xff];
/// Start of a PNG.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";
/// Error for bytes that violate the structure of the format.
const BROKEN: ErrorKind = ErrorKind::InvalidData;

/// Splitter of a stream into images. Memory: one image of at most `max_bytes`.
pub(crate) struct ImageStream<R> {
    input: BufReader<R>,
    max_bytes: u64,
    /// Start of an image that was read already: the stray bytes before it were returned first.
    started: Option<&'static [u8]>,
}

/// A part of the stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum StreamPart {
    /// A whole file.
    Image(Vec<u8>),
    /// A whole file beyond the bound; its bytes were skipped.
    Oversize { bytes: u64 },
    /// Bytes that belong to no image, or to an image whose structure is broken.
    Stray { bytes: u64 },
    /// An image that the end of the stream cut.
    Cut { bytes: u64 },
}

impl<R: Read> ImageStream<R> {
    pub(crate) fn new(input: R, max_bytes: u64) -> Self {
        Self { input: BufReader::with_capacity(64 << 10, input), max_bytes, started: None }
    }

    /// The next part; `None` at the end of the stream.
    ///
    /// # Errors
    /// The error of the reader.
    pub(crate) fn next_part(&mut self) -> io::Result<Option<StreamPart>> {
        let magic = match self.started.take() {
            Some(magic) => magic,
            None => match self.find_start()? {
                (0, None) => return Ok(None),
                (0, Some(magic)) => magic,
                (bytes, magic) => {
                    self.started = magic;
                    return Ok(Some(StreamPart::Stray { bytes }));
                }
            },
        };
        let mut image =
            Image { bytes: magic.to_vec(), length: magic.len() as u64, max_bytes: self.max_bytes };
        let read = if magic == JPEG { self.jpeg(&mut image) } else { self.png(&mut image) };
        let bytes = image.length;
        Ok(Some(match read {
            Ok(()) if image.is_oversize() => StreamPart::Oversize { bytes },
            Ok(()) => StreamPart::Image(image.bytes),
            Err(error) => match error.kind() {
                BROKEN => StreamPart::Stray { bytes },
                ErrorKind::UnexpectedEof => StreamPart::Cut { bytes },
                _ => return Err(error),
            },
        }))
    }

    /// Reads up to the start of an image. Returns the number of bytes before it, and the start that was found.
    fn find_start(&mut self) -> io::Result<(u64, Option<&'static [u8]>)> {
        // The last eight bytes read, zero at first: no start of an image has a zero.
        let mut tail = [0; PNG.len()];
        let mut read = 0u64;
        while let Some(byte) = self.byte()? {
            read += 1;
            tail.rotate_left(1);
            tail[PNG.len() - 1] = byte;
            if let Some(magic) = [JPEG, PNG].into_iter().find(|magic| tail.ends_with(magic)) {
                return Ok((read - magic.len() as u64, Some(magic)));
            }
        }
        Ok((read, None))
    }

    /// Reads the segments of a JPEG up to its end of image (ITU-T T.81, annex B).
    fn jpeg(&mut self, image: &mut Image) -> io::Result<()> {
        const START_OF_SCAN: u8 = 0xda;
        let mut marker = self.marker(image)?;
        loop {
            match marker {
                0xd9 => return Ok(()),
                0x00 | 0xd8 => return Err(BROKEN.into()),
                0x01 | 0xd0..=0xd7 => {}
                _ => {
                    let length = u16::from_be_bytes([self.copy_byte(image)?, self.copy_byte(image)?]);
                    self.copy(length.checked_sub(2).ok_or(BROKEN)?.into(), image)?;
                }
            }
            marker = self.next_marker(marker == START_OF_SCAN, image)?;
        }
    }

    /// The marker after a segment. In the data of a scan, `ff 00` and restart markers are data.
    fn next_marker(&mut self, is_scan: bool, image: &mut Image) -> io::Result<u8> {
        loop {
            match self.copy_byte(image)? {
                0xff => {
                    let marker = self.marker(image)?;
                    if !(is_scan && matches!(marker, 0x00 | 0xd0..=0xd7)) {
                        return Ok(marker);
                    }
                }
                _ if is_scan => {}
                _ => return Err(BROKEN.into()),
            }
        }
    }

    /// The second byte of a marker, after any number of fill bytes.
    fn marker(&mut self, image: &mut Image) -> io::Result<u8> {
        loop {
            let byte = self.copy_byte(image)?;
            if byte != 0xff {
                return Ok(byte);
            }
        }
    }

    /// Reads the chunks of a PNG up to its `IEND` (PNG specification, section 5.3).
    fn png(&mut self, image: &mut Image) -> io::Result<()> {
        const CHECK_SUM_BYTES: u64 = 4;
        loop {
            let mut head = [0; 8];
            for byte in &mut head {
                *byte = self.copy_byte(image)?;
            }
            let [a, b, c, d, kind @ ..] = head;
            let length = u32::from_be_bytes([a, b, c, d]);
            if length > i32::MAX as u32 || !kind.iter().all(u8::is_ascii_alphabetic) {
                return Err(BROKEN.into());
            }
            self.copy(u64::from(length) + CHECK_SUM_BYTES, image)?;
            if &kind == b"IEND" {
                return Ok(());
            }
        }
    }

    fn copy(&mut self, count: u64, image: &mut Image) -> io::Result<()> {
        let copied = io::copy(&mut self.input.by_ref().take(count), image)?;
        if copied < count { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }

    fn copy_byte(&mut self, image: &mut Image) -> io::Result<u8> {
        let byte = self.byte()?.ok_or(ErrorKind::UnexpectedEof)?;
        image.write_all(&[byte])?;
        Ok(byte)
    }

    fn byte(&mut self) -> io::Result<Option<u8>> {
        let mut byte = [0];
        match self.input.read_exact(&mut byte) {
            Ok(()) => Ok(Some(byte[0])),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// An image being read. Beyond `max_bytes` its bytes are dropped, and only its length is counted.
struct Image {
    bytes: Vec<u8>,
    length: u64,
    max_bytes: u64,
}

impl Image {
    fn is_oversize(&self) -> bool {
        self.length > self.max_bytes
    }
}

impl Write for Image {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.length += bytes.len() as u64;
        if self.is_oversize() {
            self.bytes = Vec::new();
        } else {
            self.bytes.extend_from_slice(bytes);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use headwater_samples::{Shape, View, image_codec};

    use super::*;

    /// A slow pipe, which gives one byte at a time.
    struct Slow<'a>(&'a [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let count = self.0.len().min(into.len()).min(1);
            into[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    fn parts(bytes: &[u8], max_bytes: u64) -> Vec<StreamPart> {
        let all =
            |images: &mut dyn FnMut() -> Option<StreamPart>| std::iter::from_fn(images).collect::<Vec<_>>();
        let mut slow = ImageStream::new(Slow(bytes), max_bytes);
        let mut fast = ImageStream::new(bytes, max_bytes);
        let slowly = all(&mut || slow.next_part().unwrap());
        assert_eq!(slowly, all(&mut || fast.next_part().unwrap()));
        slowly
    }

    fn png() -> Vec<u8> {
        image_codec::png(&View::new(Shape::rgb(4, 4), (0..48).collect())).unwrap()
    }

    /// A JPEG with everything that misleads a scanner: a thumbnail in a segment, stuffed bytes, a restart marker, fill bytes, two scans.
    fn jpeg() -> Vec<u8> {
        let mut file = vec![0xff, 0xd8, 0xff, 0xe1, 0, 8, 0xff, 0xd8, 0xff, 0xd9, 1, 2];
        for _ in 0..2 {
            file.extend([0xff, 0xff, 0xda, 0, 3, 7, 1, 0xff, 0x00, 2, 0xff, 0xd0, 3]);
        }
        file.extend([0xff, 0xd9]);
        file
    }

    #[test]
    fn images_one_after_the_other_are_separated() {
        let stream = [jpeg(), png(), png(), jpeg()].concat();
        let expected = [jpeg(), png(), png(), jpeg()].map(StreamPart::Image);
        assert_eq!(parts(&stream, 1 << 20), expected);
        assert_eq!(parts(&[], 1 << 20), []);
    }

    #[test]
    fn a_stream_cut_anywhere_gives_one_cut_image() {
        let file = jpeg();
        for length in JPEG.len()..file.len() {
            assert_eq!(parts(&file[..length], 1 << 20), [StreamPart::Cut { bytes: length as u64 }]);
        }
        assert_eq!(parts(&file[..2], 1 << 20), [StreamPart::Stray { bytes: 2 }]);
    }

    #[test]
    fn an_image_beyond_the_bound_is_skipped() {
        let bytes = png().len() as u64;
        let stream = [png(), jpeg()].concat();
        assert_eq!(parts(&stream, bytes - 1), [StreamPart::Oversize { bytes }, StreamPart::Image(jpeg())]);
    }

    #[test]
    fn bytes_between_images_are_stray() {
        let stream =
            [b"HTTP/1.1".to_vec(), jpeg(), b"\xff\xd8 --boundary".to_vec(), png(), b"x".to_vec()].concat();
        let expected = [
            StreamPart::Stray { bytes: 8 },
            StreamPart::Image(jpeg()),
            StreamPart::Stray { bytes: 13 },
            StreamPart::Image(png()),
            StreamPart::Stray { bytes: 1 },
        ];
        assert_eq!(parts(&stream, 1 << 20), expected);
    }

    #[test]
    fn a_broken_image_does_not_spoil_the_next_one() {
        let mut broken = jpeg();
        broken[4] = 0;
        broken[5] = 1;
        let found = parts(&[broken, png()].concat(), 1 << 20);
        assert_eq!(found.last(), Some(&StreamPart::Image(png())), "{found:?}");
    }
}
