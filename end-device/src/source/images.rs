//! JPEG and PNG files one after the other, told apart by their own structure (ffmpeg's `image2pipe` writes nothing in between).

use std::io::{self, BufRead, BufReader, ErrorKind, Read};

/// Begins a JPEG: start of image, and the first byte of the next marker.
const JPEG: &[u8] = &[0xff, 0xd8, 0xff];
/// Begins a PNG.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

/// Cuts a stream into images. Memory: one image of at most `most_bytes`.
pub(crate) struct Images<R> {
    input: BufReader<R>,
    most_bytes: u64,
    /// An image that has begun already, since bytes before it were told of first.
    begun: Option<&'static [u8]>,
}

/// What came next in the stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// A whole file.
    Image(Vec<u8>),
    /// A whole file beyond the bound; it was passed over.
    Oversize { bytes: u64 },
    /// Bytes that belong to no image.
    Stray { bytes: u64 },
    /// The stream ended in the middle of an image.
    Cut { bytes: u64 },
}

/// How reading one image ended.
enum Closed {
    Whole,
    /// Against the format's structure.
    Broken,
    /// By the end of the stream.
    Ended,
}

impl<R: Read> Images<R> {
    pub(crate) fn new(input: R, most_bytes: u64) -> Self {
        Self { input: BufReader::with_capacity(64 << 10, input), most_bytes, begun: None }
    }

    /// The next piece; `None` at the end.
    ///
    /// # Errors
    /// What the reader said.
    pub(crate) fn next_piece(&mut self) -> io::Result<Option<Piece>> {
        let magic = match self.begun.take() {
            Some(magic) => magic,
            None => match self.seek()? {
                (0, None) => return Ok(None),
                (0, Some(magic)) => magic,
                (bytes, magic) => {
                    self.begun = magic;
                    return Ok(Some(Piece::Stray { bytes }));
                }
            },
        };
        let mut image = Image { bytes: magic.to_vec(), length: magic.len() as u64, most: self.most_bytes };
        let closed = if magic == JPEG { self.jpeg(&mut image)? } else { self.png(&mut image)? };
        let length = image.length;
        Ok(Some(match closed {
            Closed::Whole if image.is_oversize() => Piece::Oversize { bytes: length },
            Closed::Whole => Piece::Image(image.bytes),
            Closed::Broken => Piece::Stray { bytes: length },
            Closed::Ended => Piece::Cut { bytes: length },
        }))
    }

    /// Reads up to the beginning of an image: how many bytes were none of it, and which began.
    fn seek(&mut self) -> io::Result<(u64, Option<&'static [u8]>)> {
        let mut tail = Vec::with_capacity(PNG.len() + 1);
        let mut read = 0u64;
        while let Some(byte) = self.byte()? {
            read += 1;
            if tail.len() == PNG.len() {
                tail.remove(0);
            }
            tail.push(byte);
            if let Some(magic) = [JPEG, PNG].into_iter().find(|magic| tail.ends_with(magic)) {
                return Ok((read - magic.len() as u64, Some(magic)));
            }
        }
        Ok((read, None))
    }

    /// Segments of a JPEG up to its end of image (ITU-T T.81, annex B).
    fn jpeg(&mut self, image: &mut Image) -> io::Result<Closed> {
        let Some(mut marker) = self.copy(image)? else { return Ok(Closed::Ended) };
        loop {
            match marker {
                0xff => {
                    // A fill byte: the marker is the next one.
                    let Some(next) = self.copy(image)? else { return Ok(Closed::Ended) };
                    marker = next;
                    continue;
                }
                0xd9 => return Ok(Closed::Whole),
                0x00 | 0xd8 => return Ok(Closed::Broken),
                0x01 | 0xd0..=0xd7 => {}
                _ => {
                    let (Some(high), Some(low)) = (self.copy(image)?, self.copy(image)?) else {
                        return Ok(Closed::Ended);
                    };
                    let length = u64::from(u16::from_be_bytes([high, low]));
                    if length < 2 {
                        return Ok(Closed::Broken);
                    }
                    if !self.copy_many(length - 2, image)? {
                        return Ok(Closed::Ended);
                    }
                }
            }
            let is_scan = marker == 0xda;
            let Some(next) = self.next_marker(is_scan, image)? else { return Ok(Closed::Ended) };
            match next {
                Some(next) => marker = next,
                None => return Ok(Closed::Broken),
            }
        }
    }

    /// The marker after a segment; after the head of a scan its data come first, in which `ff 00` and restart markers are data.
    /// The outer `None`: the stream ended; the inner one: there is no marker where one must be.
    fn next_marker(&mut self, is_scan: bool, image: &mut Image) -> io::Result<Option<Option<u8>>> {
        loop {
            let Some(byte) = self.copy(image)? else { return Ok(None) };
            if byte != 0xff {
                if is_scan {
                    continue;
                }
                return Ok(Some(None));
            }
            let mut marker = 0xff;
            while marker == 0xff {
                let Some(byte) = self.copy(image)? else { return Ok(None) };
                marker = byte;
            }
            if !(is_scan && matches!(marker, 0x00 | 0xd0..=0xd7)) {
                return Ok(Some(Some(marker)));
            }
        }
    }

    /// Chunks of a PNG up to its `IEND` (PNG specification, section 5.3).
    fn png(&mut self, image: &mut Image) -> io::Result<Closed> {
        loop {
            let mut head = [0; 8];
            for place in &mut head {
                let Some(byte) = self.copy(image)? else { return Ok(Closed::Ended) };
                *place = byte;
            }
            let [a, b, c, d, kind @ ..] = head;
            let length = u32::from_be_bytes([a, b, c, d]);
            if length > i32::MAX as u32 || !kind.iter().all(u8::is_ascii_alphabetic) {
                return Ok(Closed::Broken);
            }
            const CHECK_SUM: u64 = 4;
            if !self.copy_many(u64::from(length) + CHECK_SUM, image)? {
                return Ok(Closed::Ended);
            }
            if &kind == b"IEND" {
                return Ok(Closed::Whole);
            }
        }
    }

    fn copy_many(&mut self, mut count: u64, image: &mut Image) -> io::Result<bool> {
        while count > 0 {
            let buffer = self.buffer()?;
            let part = buffer.len().min(usize::try_from(count).unwrap_or(usize::MAX));
            if part == 0 {
                return Ok(false);
            }
            image.put(&buffer[..part]);
            self.input.consume(part);
            count -= part as u64;
        }
        Ok(true)
    }

    fn copy(&mut self, image: &mut Image) -> io::Result<Option<u8>> {
        let byte = self.byte()?;
        if let Some(byte) = byte {
            image.put(&[byte]);
        }
        Ok(byte)
    }

    fn byte(&mut self) -> io::Result<Option<u8>> {
        let byte = self.buffer()?.first().copied();
        self.input.consume(usize::from(byte.is_some()));
        Ok(byte)
    }

    /// What is buffered; empty at the end.
    fn buffer(&mut self) -> io::Result<&[u8]> {
        loop {
            match self.input.fill_buf() {
                Ok(_) => return Ok(self.input.buffer()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// An image as far as it was read; beyond the bound only its length.
struct Image {
    bytes: Vec<u8>,
    length: u64,
    most: u64,
}

impl Image {
    fn put(&mut self, bytes: &[u8]) {
        self.length += bytes.len() as u64;
        if self.is_oversize() {
            self.bytes = Vec::new();
        } else {
            self.bytes.extend_from_slice(bytes);
        }
    }

    fn is_oversize(&self) -> bool {
        self.length > self.most
    }
}

#[cfg(test)]
mod tests {
    use headwater_samples::{Shape, View, image_codec};

    use super::*;

    /// One byte at a time, as a slow pipe.
    struct Slow<'a>(&'a [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let count = self.0.len().min(into.len()).min(1);
            into[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    fn pieces(bytes: &[u8], most_bytes: u64) -> Vec<Piece> {
        let all = |images: &mut dyn FnMut() -> Option<Piece>| std::iter::from_fn(images).collect::<Vec<_>>();
        let mut slow = Images::new(Slow(bytes), most_bytes);
        let mut fast = Images::new(bytes, most_bytes);
        let slowly = all(&mut || slow.next_piece().unwrap());
        assert_eq!(slowly, all(&mut || fast.next_piece().unwrap()));
        slowly
    }

    fn png() -> Vec<u8> {
        image_codec::png(&View::new(Shape::rgb(4, 4), (0..48).collect())).unwrap()
    }

    /// A JPEG with what a scanner trips over: a thumbnail in a segment, stuffed bytes, a restart marker, fill bytes, two scans.
    fn jpeg() -> Vec<u8> {
        let mut file = vec![0xff, 0xd8, 0xff, 0xe1, 0, 8, 0xff, 0xd8, 0xff, 0xd9, 1, 2];
        for _ in 0..2 {
            file.extend([0xff, 0xff, 0xda, 0, 3, 7, 1, 0xff, 0x00, 2, 0xff, 0xd0, 3]);
        }
        file.extend([0xff, 0xd9]);
        file
    }

    #[test]
    fn images_one_after_the_other_come_out_one_by_one() {
        let stream = [jpeg(), png(), png(), jpeg()].concat();
        let expected = [jpeg(), png(), png(), jpeg()].map(Piece::Image);
        assert_eq!(pieces(&stream, 1 << 20), expected);
        assert_eq!(pieces(&[], 1 << 20), []);
    }

    #[test]
    fn a_stream_cut_anywhere_says_so_once() {
        let file = jpeg();
        for length in JPEG.len()..file.len() {
            assert_eq!(pieces(&file[..length], 1 << 20), [Piece::Cut { bytes: length as u64 }]);
        }
        assert_eq!(pieces(&file[..2], 1 << 20), [Piece::Stray { bytes: 2 }]);
    }

    #[test]
    fn an_image_beyond_the_bound_is_passed_over() {
        let bytes = png().len() as u64;
        let stream = [png(), jpeg()].concat();
        assert_eq!(pieces(&stream, bytes - 1), [Piece::Oversize { bytes }, Piece::Image(jpeg())]);
    }

    #[test]
    fn bytes_between_images_are_passed_over() {
        let stream =
            [b"HTTP/1.1".to_vec(), jpeg(), b"\xff\xd8 --boundary".to_vec(), png(), b"x".to_vec()].concat();
        let expected = [
            Piece::Stray { bytes: 8 },
            Piece::Image(jpeg()),
            Piece::Stray { bytes: 13 },
            Piece::Image(png()),
            Piece::Stray { bytes: 1 },
        ];
        assert_eq!(pieces(&stream, 1 << 20), expected);
    }

    #[test]
    fn a_broken_image_does_not_take_the_next_one_with_it() {
        let mut broken = jpeg();
        broken[4] = 0;
        broken[5] = 1;
        let found = pieces(&[broken, png()].concat(), 1 << 20);
        assert_eq!(found.last(), Some(&Piece::Image(png())), "{found:?}");
    }
}
