use image::{ExtendedColorType, ImageEncoder};

use super::*;
use crate::roi::{self, Framing, RoiError};

fn decode(bytes: &[u8], shape: Shape) -> Result<View, RoiError> {
    roi::decode(bytes, shape, Framing::default())
}

fn ramp(shape: Shape) -> View {
    View::new(shape, (0..shape.bytes()).map(|at| (at * 7 % 251) as u8).collect())
}

#[test]
fn lossless_files_decode_to_the_same_view() {
    for shape in [Shape::rgb(5, 9), Shape { channels: 1, height: 3, width: 4 }, Shape::rgb(1, 1)] {
        let view = ramp(shape);
        assert_eq!(decode(&png(&view).unwrap(), shape).unwrap(), view);
        assert_eq!(decode(&webp_lossless(&view).unwrap(), shape).unwrap(), view);
    }
}

#[test]
fn stronger_compression_gives_a_shorter_file() {
    let view = ramp(Shape::rgb(32, 32));
    assert!(jpeg_len(&view, 20).unwrap() < jpeg_len(&view, 95).unwrap());
    assert!(webp_len(&view, 20).unwrap() < webp_len(&view, 95).unwrap());
}

#[test]
fn a_quality_out_of_range_is_refused() {
    let view = ramp(Shape::rgb(2, 2));
    assert!(jpeg_len(&view, 0).is_err() && jpeg_len(&view, 101).is_err() && webp_len(&view, 101).is_err());
}

#[test]
fn a_frame_beyond_the_limit_is_refused() {
    // Only the head of the file tells a size; there are no pixels.
    let mut file = png(&ramp(Shape::rgb(1, 1))).unwrap();
    file[16..24].copy_from_slice(&[0, 0, 32, 0, 0, 0, 32, 1]);
    let error = decode(&file, Shape::rgb(2, 2)).unwrap_err().to_string();
    for word in ["8192x8193", "64 megapixels", "scale it down"] {
        assert!(error.contains(word), "{error}");
    }
    // Sixteen bits a channel: 8 bytes a pixel.
    file[16..26].copy_from_slice(&[0, 0, 23, 112, 0, 0, 23, 112, 16, 6]);
    let error = decode(&file, Shape::rgb(2, 2)).unwrap_err().to_string();
    assert!(error.contains("within 250 MB, found a PNG that needs 288 MB"), "{error}");
}

/// Exif data with an orientation, in both orders of bytes.
fn exif(orientation: u8, is_big: bool) -> Vec<u8> {
    if is_big {
        [b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0", &[orientation, 0, 0, 0, 0, 0, 0][..]].concat()
    } else {
        [b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0", &[orientation, 0, 0, 0, 0, 0, 0, 0][..]].concat()
    }
}

/// As [`exif`], with the orientation as a LONG, as some writers have it.
fn exif_of_long(orientation: u8, is_big: bool) -> Vec<u8> {
    if is_big {
        [b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x04\0\0\0\x01\0\0\0", &[orientation, 0, 0, 0, 0][..]].concat()
    } else {
        [b"II*\0\x08\0\0\0\x01\0\x12\x01\x04\0\x01\0\0\0", &[orientation, 0, 0, 0, 0, 0, 0, 0][..]].concat()
    }
}

fn png_chunk(kind: &[u8; 4], body: &[u8]) -> Vec<u8> {
    let named = [&kind[..], body].concat();
    let mut sum = flate2::Crc::new();
    sum.update(&named);
    [&(body.len() as u32).to_be_bytes()[..], &named, &sum.sum().to_be_bytes()].concat()
}

fn png_with(exif: &[u8], file: &[u8]) -> Vec<u8> {
    // The chunk goes after the header, which ends at byte 33.
    [&file[..33], &png_chunk(b"eXIf", exif), &file[33..]].concat()
}

fn jpeg_with(exif: &[u8], file: &[u8]) -> Vec<u8> {
    let length = (exif.len() as u16 + 8).to_be_bytes();
    [&file[..2], &[0xff, 0xe1], &length, b"Exif\0\0", exif, &file[2..]].concat()
}

/// A WebP with these chunks.
fn riff(chunks: &[u8]) -> Vec<u8> {
    [b"RIFF", &(chunks.len() as u32 + 4).to_le_bytes()[..], b"WEBP", chunks].concat()
}

fn webp_with(exif: &[u8], file: &[u8], size: [u32; 2]) -> Vec<u8> {
    let chunk = |kind: &[u8; 4], body: &[u8]| {
        [kind, &(body.len() as u32).to_le_bytes()[..], body, &[0][..body.len() % 2]].concat()
    };
    let sides = size.map(|side| (side - 1).to_le_bytes());
    let head = [&[8, 0, 0, 0], &sides[0][..3], &sides[1][..3]].concat();
    riff(&[&chunk(b"VP8X", &head)[..], &file[12..], &chunk(b"EXIF", exif)].concat())
}

/// Value of a pixel of an upright view, at the position of the stored frame.
fn upright(view: &View, orientation: u8, [x, y]: [usize; 2], [width, height]: [usize; 2]) -> u8 {
    // The orientation gives the place of the first row and the first column of the stored frame (Exif 2.32, 4.6.5).
    let (x, y, wide) = match orientation {
        2 => (width - 1 - x, y, width),
        3 => (width - 1 - x, height - 1 - y, width),
        4 => (x, height - 1 - y, width),
        5 => (y, x, height),
        6 => (height - 1 - y, x, height),
        7 => (height - 1 - y, width - 1 - x, height),
        8 => (y, width - 1 - x, height),
        _ => (x, y, width),
    };
    view.pixels[y * wide + x]
}

#[test]
fn a_frame_is_turned_upright_in_every_format() {
    let grey = Shape { channels: 1, height: 3, width: 5 };
    let stored = View::new(grey, (0..15).map(|at| at * 16).collect());
    let (png, webp) = (png(&stored).unwrap(), webp_lossless(&stored).unwrap());
    let mut jpeg = Vec::new();
    image_of(&stored).unwrap().write_with_encoder(JpegEncoder::new_with_quality(&mut jpeg, 100)).unwrap();
    for orientation in 0..=9 {
        let is_turned = (5..=8).contains(&orientation);
        let shape = if is_turned { Shape { height: 5, width: 3, ..grey } } else { grey };
        for is_big in [false, true] {
            let exif = exif(orientation, is_big);
            let with_head = [b"Exif\0\0", &exif[..]].concat();
            for (file, tolerance) in [
                (png_with(&exif, &png), 0),
                (webp_with(&exif, &webp, [5, 3]), 0),
                (webp_with(&with_head, &webp, [5, 3]), 0),
                (jpeg_with(&exif, &jpeg), 8),
                (png_with(&exif_of_long(orientation, is_big), &png), 0),
            ] {
                let view = decode(&file, shape).unwrap();
                for at in 0..15 {
                    let found = upright(&view, orientation, [at % 5, at / 5], [5, 3]);
                    assert!(
                        found.abs_diff(stored.pixels[at]) <= tolerance,
                        "{orientation}: {found} at {at} of {stored:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_region_is_one_of_the_upright_frame() {
    let grey = Shape { channels: 1, height: 3, width: 5 };
    let png = png(&View::new(grey, (0..15).collect())).unwrap();
    for orientation in 1..=8 {
        let file = png_with(&exif(orientation, false), &png);
        let frame = Frame::open(&file).unwrap();
        let [width, height] = frame.size();
        let (whole, _) = frame.view(None, None).unwrap();
        let region = [1, 0, width - 1, height - 1];
        let shape = Shape { channels: 1, height: region[3] as usize, width: region[2] as usize };
        let (view, own) = frame.view(Some(region), Some(shape)).unwrap();
        assert_eq!(own, whole.shape);
        let rows = whole.pixels.chunks(width as usize).take(shape.height);
        assert_eq!(view.pixels, rows.flat_map(|row| &row[1..]).copied().collect::<Vec<_>>(), "{orientation}");
    }
}

#[test]
fn a_file_that_ends_early_is_cut_in_every_format() {
    let view = ramp(Shape::rgb(16, 16));
    for file in [png(&view).unwrap(), webp_lossless(&view).unwrap()] {
        for length in 0..file.len() {
            let error = decode(&file[..length], view.shape).unwrap_err();
            assert!(
                matches!(error, RoiError::Codec(CodecError::Cut { bytes }) if bytes == length),
                "{length}: {error}"
            );
        }
    }
}

#[test]
fn a_frame_above_the_size_of_a_view_is_decoded_and_needs_a_shape() {
    let wide = image::GrayImage::from_fn(2560, 8, |x, _| image::Luma([if x < 1280 { 0 } else { 200 }]));
    let mut file = Vec::new();
    PngEncoder::new(&mut file).write_image(&wide, 2560, 8, ExtendedColorType::L8).unwrap();
    let halves = Shape { channels: 1, height: 1, width: 2 };
    let pixels = decode(&file, halves).unwrap().pixels;
    assert!(pixels[0] < 60 && pixels[1] > 140, "{pixels:?}");
    let error = Frame::open(&file).unwrap().view(None, None).unwrap_err().to_string();
    assert!(error.contains("sides of 1 to 2048") && error.contains("another shape"), "{error}");
}

#[test]
fn images_of_every_colour_and_depth_are_taken() {
    use image::{ImageBuffer, Luma, LumaA, Rgb, Rgba};
    use std::io::Write;

    let (shape, deep) = (Shape::rgb(2, 2), 77 * 257);
    for image in [
        DynamicImage::ImageLuma16(ImageBuffer::from_pixel(2, 2, Luma([deep]))),
        DynamicImage::ImageLumaA8(ImageBuffer::from_pixel(2, 2, LumaA([77, 9]))),
        DynamicImage::ImageLumaA16(ImageBuffer::from_pixel(2, 2, LumaA([deep, 9]))),
        DynamicImage::ImageRgb16(ImageBuffer::from_pixel(2, 2, Rgb([deep; 3]))),
        DynamicImage::ImageRgba8(ImageBuffer::from_pixel(2, 2, Rgba([77, 77, 77, 0]))),
        DynamicImage::ImageRgba16(ImageBuffer::from_pixel(2, 2, Rgba([deep; 4]))),
    ] {
        let mut file = Vec::new();
        image.write_with_encoder(PngEncoder::new(&mut file)).unwrap();
        assert_eq!(decode(&file, shape).unwrap().pixels, [77; 12], "{:?}", image.color());
    }
    let mut rows = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    rows.write_all(&[0, 0, 1]).unwrap();
    let palette = [
        &b"\x89PNG\r\n\x1a\n"[..],
        &png_chunk(b"IHDR", &[0, 0, 0, 2, 0, 0, 0, 1, 8, 3, 0, 0, 0]),
        &png_chunk(b"PLTE", &[10, 20, 30, 40, 50, 60]),
        &png_chunk(b"IDAT", &rows.finish().unwrap()),
        &png_chunk(b"IEND", b""),
    ]
    .concat();
    assert_eq!(decode(&palette, Shape::rgb(1, 2)).unwrap().pixels, [10, 40, 20, 50, 30, 60]);
}

#[test]
fn a_jpeg_of_four_inks_is_taken() {
    let grey = View::new(Shape { channels: 1, height: 8, width: 8 }, vec![128; 64]);
    let mut jpeg = Vec::new();
    image_of(&grey).unwrap().write_with_encoder(JpegEncoder::new_with_quality(&mut jpeg, 90)).unwrap();
    let at = |kind: u8| jpeg.windows(2).position(|marker| marker == [0xff, kind]).unwrap();
    let (frame, scan) = (at(0xc0), at(0xda));
    let inks = [
        &jpeg[..frame],
        &[0xff, 0xc0, 0, 20, 8, 0, 8, 0, 8, 4, 1, 0x11, 0, 2, 0x11, 0, 3, 0x11, 0, 4, 0x11, 0],
        &jpeg[frame + 13..scan],
        // Four blocks, each with the mean of the block before: half of each ink.
        &[0xff, 0xda, 0, 14, 4, 1, 0, 2, 0, 3, 0, 4, 0, 0, 63, 0, 0x28, 0xa2, 0x8a, 0xff, 0xd9],
    ]
    .concat();
    let pixels = decode(&inks, Shape::rgb(8, 8)).unwrap().pixels;
    assert!(pixels.iter().all(|pixel| (60..=68).contains(pixel)), "{pixels:?}");
}

/// Two pictures of 4 by 4 pixels, the first one red.
fn animation() -> Vec<u8> {
    let mut config = webp::WebPConfig::new().unwrap();
    config.lossless = 1;
    let pictures = [[200, 0, 0], [0, 0, 200]].map(|colour: [u8; 3]| colour.repeat(16));
    let mut encoder = webp::AnimEncoder::new(4, 4, &config);
    for (picture, time_ms) in pictures.iter().zip([0, 100]) {
        encoder.add_frame(webp::AnimFrame::from_rgb(picture, 4, 4, time_ms));
    }
    encoder.encode().to_vec()
}

#[test]
fn an_animation_gives_its_first_picture() {
    let pixels = decode(&animation(), Shape::rgb(4, 4)).unwrap().pixels;
    assert_eq!(pixels, [[200; 16], [0; 16], [0; 16]].concat());
}

#[test]
fn a_picture_that_does_not_fit_its_canvas_is_refused_before_it_is_decoded() {
    let file = animation();
    let frame = file.windows(4).position(|kind| kind == b"ANMF").unwrap() + 8;
    // Left, top, width and height of the frame, and the width of its picture.
    for at in [0, 3, 6, 9, 25] {
        let mut wrong = file.clone();
        wrong[frame + at] ^= 1;
        let error = Frame::open(&wrong).err().unwrap().to_string();
        assert!(error.contains("a picture that does not fit its canvas"), "{at}: {error}");
    }
    // A lossy picture may say that it has 16,383 pixels a side, and a picture with alpha lies in a second chunk.
    let large = b"VP8 \x0a\0\0\0\0\0\0\x9d\x01\x2a\xff\x3f\xff\x3f";
    for chunks in [large.to_vec(), [&b"ALPH\x02\0\0\0\0\0"[..], large].concat()] {
        let frame = [&file[frame..frame + 16], &chunks].concat();
        let head = b"VP8X\x0a\0\0\0\x02\0\0\0\x03\0\0\x03\0\0ANMF";
        let wrong = riff(&[&head[..], &(frame.len() as u32).to_le_bytes(), &frame].concat());
        assert!(Frame::open(&wrong).is_err_and(|error| error.to_string().contains("its canvas")));
    }
}

#[test]
fn a_lossy_picture_with_alpha_needs_the_memory_of_both() {
    // 5,000 pixels a side.
    let head = b"VP8X\x0a\0\0\0\x10\0\0\0\x87\x13\0\x87\x13\0ALPH\x02\0\0\0\0\0";
    let picture = b"VP8 \x0a\0\0\0\0\0\0\x9d\x01\x2a\x88\x13\x88\x13";
    let error = Frame::open(&riff(&[&head[..], picture].concat())).err().unwrap().to_string();
    assert!(error.contains("found a WebP that needs 275 MB"), "{error}");
}

#[test]
fn a_png_with_a_wrong_byte_is_refused_or_the_same() {
    let view = ramp(Shape::rgb(9, 7));
    let file = png(&view).unwrap();
    let mut refused = 0;
    for at in 8..file.len() {
        let mut turned = file.clone();
        turned[at] ^= 1 << (at % 8);
        match decode(&turned, view.shape) {
            Ok(found) => assert_eq!(found, view, "byte {at}"),
            Err(_) => refused += 1,
        }
    }
    assert!(refused > file.len() / 2, "{refused} of {}", file.len());
}

#[test]
fn bits_that_are_turned_never_panic() {
    let view = ramp(Shape::rgb(9, 7));
    let webp = webp_with(&exif(6, false), &webp_lossless(&view).unwrap(), [7, 9]);
    for file in [png_with(&exif(5, true), &png(&view).unwrap()), webp] {
        for at in 0..file.len() {
            let mut turned = file.clone();
            turned[at] ^= 1 << (at % 8);
            let _ = decode(&turned, view.shape);
        }
    }
}

#[test]
fn a_large_frame_is_resized_by_the_means_of_its_pixels() {
    let half = |x: u32| if x < 1024 { [0, 50, 100] } else { [200, 150, 100] };
    let large = image::RgbImage::from_fn(2048, 6656, |x, _| image::Rgb(half(x)));
    let large = DynamicImage::from(large);
    let turned = |shape| fitted(Cow::Borrowed(&large), [0, 0, 2048, 6656], shape, Orientation::Rotate90);
    let view = turned(Shape::rgb(128, 64));
    assert_eq!(view.pixels[..64 * 64], [0; 64 * 64]);
    assert_eq!(view.pixels[64 * 64..128 * 64], [200; 64 * 64]);
    assert_eq!(turned(Shape::rgb(1, 1)).pixels, [100; 3]);
}

/// A JPEG of `side` by `side` grey pixels: each MCU has the mean of the MCU before it (two bits) and the code of the block's end (four bits).
fn large_jpeg(side: u16) -> Vec<u8> {
    let small = View::new(Shape { channels: 1, height: 8, width: 8 }, vec![128; 64]);
    let mut jpeg = Vec::new();
    image_of(&small).unwrap().write_with_encoder(JpegEncoder::new_with_quality(&mut jpeg, 90)).unwrap();
    let frame = jpeg.windows(2).position(|marker| marker == [0xff, 0xc0]).unwrap();
    jpeg[frame + 5..frame + 9].copy_from_slice(&[side.to_be_bytes(), side.to_be_bytes()].concat());
    let scan = jpeg.windows(2).position(|marker| marker == [0xff, 0xda]).unwrap();
    let data = scan + 2 + usize::from(u16::from_be_bytes([jpeg[scan + 2], jpeg[scan + 3]]));
    let blocks = usize::from(side).div_ceil(8).pow(2);
    // 00 1010 four times is three bytes.
    let data_of_blocks = [0x28, 0xa2, 0x8a].repeat(blocks.div_ceil(4));
    [&jpeg[..data], &data_of_blocks, &[0xff, 0xd9]].concat()
}

#[test]
fn a_large_jpeg_is_decoded_at_a_reduced_scale_and_one_beyond_the_limit_is_oversize() {
    let shape = Shape { channels: 1, height: 4, width: 4 };
    assert_eq!(decode(&large_jpeg(8192), shape).unwrap().pixels, [128; 16]);
    let error = decode(&large_jpeg(8200), shape).unwrap_err();
    assert!(matches!(error, RoiError::Codec(CodecError::Oversize { width: 8200, .. })), "{error}");
}

#[test]
fn garbage_and_shapes_without_pixels_are_refused() {
    assert!(matches!(
        decode(b"not an image", Shape::rgb(2, 2)),
        Err(RoiError::Codec(CodecError::Decode { bytes: 12, .. }))
    ));
    for (file, found) in [
        (&b"GIF89a, which is another format"[..], "a GIF"),
        (b"\n<!DOCTYPE html>", "a page"),
        (b"version https://git-lfs.github.com/spec/v1\n", "`git lfs pull`"),
        (&[0; 40], "none of them, but [00, "),
    ] {
        let error = decode(file, Shape::rgb(2, 2)).unwrap_err().to_string();
        assert!(error.contains(found), "{error}");
    }
    assert!(matches!(decode(&[], Shape::rgb(0, 2)), Err(RoiError::Codec(CodecError::Shape(_)))));
    assert!(matches!(
        decode(&[], Shape { channels: 2, height: 1, width: 1 }),
        Err(RoiError::Codec(CodecError::Shape(_)))
    ));
}
