//! Video as y4m (`ffmpeg -f yuv4mpegpipe`): a line that tells size, rate and colours, then frames as planes of bytes.
//!
//! ```text
//! YUV4MPEG2 W640 H480 F30:1 Ip C420jpeg XCOLORRANGE=LIMITED\n
//! FRAME\n  640 x 480 of luma, 320 x 240 of blue difference, 320 x 240 of red difference
//! FRAME\n  ...
//! ```
//!
//! Colours are converted by BT.601, as those of a JPEG.

use std::io::{BufRead, Read};
use std::time::Duration;

use headwater_samples::roi::RawFormat;

use super::preprocess::RawFrames;
use super::raw_frame::{NextFrame, StreamFault, check_size, read_block};

/// First bytes of every y4m.
pub(super) const START: &[u8] = b"YUV4MPEG2 ";

/// Longest line that is read, in bytes.
pub(super) const MAX_LINE_BYTES: u64 = 1024;

/// Longest time between two frames that is accepted.
const MAX_PERIOD: Duration = Duration::from_secs(3600);

#[derive(Debug, PartialEq)]
pub(super) struct Y4m {
    size: [u32; 2],
    /// Columns and rows of pixels that share one chroma sample; `None` for frames of luma alone.
    chroma: Option<[usize; 2]>,
    colours: Colours,
    /// Time from frame to frame; `None` if the first line does not tell a rate.
    period: Option<Duration>,
}

impl Y4m {
    /// Reads the first line.
    pub(super) fn open(input: &mut impl BufRead) -> Result<Self, StreamFault> {
        let line = line(input)?.unwrap_or_default();
        let (mut size, mut colours, mut range, mut period) = ([0_u32; 2], "420", None, None);
        for word in line.split_ascii_whitespace().skip(1) {
            match word.split_at_checked(1).unwrap_or_default() {
                ("W", width) => size[0] = width.parse().unwrap_or(0),
                ("H", height) => size[1] = height.parse().unwrap_or(0),
                ("C", found) => colours = found,
                ("F", rate) => period = period_of(rate),
                ("X", "COLORRANGE=FULL") => range = Some(Colours::FULL),
                ("X", "COLORRANGE=LIMITED") => range = Some(Colours::LIMITED),
                _ => {}
            }
        }
        check_size(size)?;
        // ffmpeg writes grey frames in the full range, but only later versions say so in the line.
        let (chroma, usual) = match colours {
            "420" | "420jpeg" | "420mpeg2" | "420paldv" => (Some([2, 2]), Colours::LIMITED),
            "422" => (Some([2, 1]), Colours::LIMITED),
            "444" => (Some([1, 1]), Colours::LIMITED),
            "mono" => (None, Colours::FULL),
            found => {
                let found: String = found.chars().take(20).collect();
                return Err(StreamFault::Unusable(format!(
                    "y4m: expected colours 420, 422, 444 or mono of 8 bits, found {found:?}: add -pix_fmt yuv420p to ffmpeg"
                )));
            }
        };
        Ok(Self { size, chroma, colours: range.unwrap_or(usual), period })
    }

    pub(super) fn next(&self, input: &mut impl BufRead) -> NextFrame {
        let Some(line) = line(input)? else { return Ok(None) };
        if line.split_ascii_whitespace().next() != Some("FRAME") {
            let found: String = line.chars().take(20).collect();
            return Err(StreamFault::Unusable(format!("y4m: expected FRAME, found {found:?}")));
        }
        let [width, height] = self.size.map(|side| side as usize);
        let chroma_bytes =
            self.chroma.map_or(0, |[across, down]| width.div_ceil(across) * height.div_ceil(down));
        let expected = width * height + 2 * chroma_bytes;
        let planes = read_block(input, expected)?;
        let planes = planes.ok_or_else(|| StreamFault::Cut("the last frame has no bytes".into()))?;
        let raw = |format| RawFrames { format, size: self.size, kind: "y4m" };
        let Some(step) = self.chroma else {
            let grey = planes.iter().map(|luma| self.colours.rgb(*luma, [GREY; 2])[0]);
            return Ok(Some((grey.collect(), raw(RawFormat::Gray))));
        };
        let (luma, chroma) = planes.split_at(width * height);
        let (blue, red) = chroma.split_at(chroma_bytes);
        let mut pixels = Vec::with_capacity(3 * width * height);
        for (row, luma) in luma.chunks_exact(width).enumerate() {
            let start = row / step[1] * width.div_ceil(step[0]);
            for (column, luma) in luma.iter().enumerate() {
                let at = start + column / step[0];
                pixels.extend(self.colours.rgb(*luma, [blue[at], red[at]]));
            }
        }
        Ok(Some((pixels, raw(RawFormat::Rgb24))))
    }
}

/// Time from frame to frame of a video with these first bytes; `None` if the bytes do not tell a rate.
pub(super) fn period_told(mut start: &[u8]) -> Option<Duration> {
    if !start.starts_with(START) {
        return None;
    }
    Y4m::open(&mut start).ok()?.period
}

/// A line without its end; `None` at the end of the stream.
fn line(input: &mut impl BufRead) -> Result<Option<String>, StreamFault> {
    let mut line = Vec::new();
    input.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line)?;
    match line.pop() {
        None => Ok(None),
        Some(b'\n') => Ok(Some(String::from_utf8_lossy(&line).into_owned())),
        Some(_) if (line.len() as u64) < MAX_LINE_BYTES - 1 => {
            Err(StreamFault::Cut("the stream ends within a line".into()))
        }
        Some(_) => {
            Err(StreamFault::Unusable(format!("y4m: expected lines of {MAX_LINE_BYTES} bytes at most")))
        }
    }
}

/// Time from frame to frame at a rate such as `30000:1001`.
fn period_of(rate: &str) -> Option<Duration> {
    let (frames, seconds) = rate.split_once(':')?;
    let period_s = seconds.parse::<u32>().ok().map(f64::from)? / frames.parse::<u32>().ok().map(f64::from)?;
    let period = Duration::try_from_secs_f64(period_s).ok()?;
    (Duration::ZERO < period && period <= MAX_PERIOD).then_some(period)
}

/// Chroma sample of a grey pixel.
const GREY: u8 = 128;

/// Factors of BT.601, in 65,536ths, and the level of black.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Colours {
    /// Luma of black.
    black: i32,
    luma: i32,
    red_of_red: i32,
    green_of_blue: i32,
    green_of_red: i32,
    blue_of_blue: i32,
}

impl Colours {
    /// Luma and colours from 0 to 255, as in a JPEG.
    const FULL: Self = Self {
        black: 0,
        luma: 65_536,
        red_of_red: 91_881,
        green_of_blue: 22_554,
        green_of_red: 46_802,
        blue_of_blue: 116_130,
    };

    /// Luma from 16 to 235, colours from 16 to 240: the factors of the full range times 255/219 and 255/224.
    const LIMITED: Self = Self {
        black: 16,
        luma: 76_309,
        red_of_red: 104_597,
        green_of_blue: 25_675,
        green_of_red: 53_279,
        blue_of_blue: 132_201,
    };

    fn rgb(self, luma: u8, chroma: [u8; 2]) -> [u8; 3] {
        let luma = (i32::from(luma) - self.black) * self.luma + (1 << 15);
        let [blue, red] = chroma.map(|sample| i32::from(sample) - i32::from(GREY));
        [
            luma + red * self.red_of_red,
            luma - blue * self.green_of_blue - red * self.green_of_red,
            luma + blue * self.blue_of_blue,
        ]
        .map(|level| (level >> 16).clamp(0, 255) as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pixels, and width and height.
    type Frame = (Vec<u8>, [u32; 2]);

    /// Every frame of a y4m.
    fn frames(text: &[u8]) -> Result<Vec<Frame>, StreamFault> {
        let mut input = text;
        let video = Y4m::open(&mut input)?;
        let mut frames = Vec::new();
        while let Some((pixels, raw)) = video.next(&mut input)? {
            frames.push((pixels, raw.size));
        }
        Ok(frames)
    }

    fn video(head: &str, planes: &[&[u8]]) -> Vec<u8> {
        let frames = planes.iter().flat_map(|planes| [b"FRAME\n", *planes].concat());
        format!("YUV4MPEG2 {head}\n").into_bytes().into_iter().chain(frames).collect()
    }

    #[test]
    fn colours_of_both_ranges_become_those_of_bt_601() {
        // Red as ffmpeg writes it: luma 81 and chroma 90 and 240 in the limited range.
        let red = [81, 81, 81, 81, 90, 240];
        let limited = frames(&video("W2 H2 F30:1 C420jpeg", &[&red])).unwrap();
        assert_eq!(limited, [([254, 0, 0].repeat(4), [2, 2])]);
        let full = [76, 76, 76, 76, 85, 255];
        let found = frames(&video("W2 H2 C420 XCOLORRANGE=FULL", &[&full])).unwrap();
        assert_eq!(found, [([254, 0, 0].repeat(4), [2, 2])]);
        let black_and_white = frames(&video("W2 H1 C444", &[&[16, 235, 128, 128, 128, 128]])).unwrap();
        assert_eq!(black_and_white[0].0, [0, 0, 0, 255, 255, 255]);
    }

    #[test]
    fn colours_belong_to_their_pixels_at_odd_sides_too() {
        // Three pixels across have two chroma samples, and two rows of pixels share one row of chroma samples.
        let planes = [[16; 9].as_slice(), &[128, 240, 128, 128], &[128, 128, 128, 128]].concat();
        let (pixels, _) = frames(&video("W3 H3 C420", &[&planes])).unwrap().remove(0);
        let blue: Vec<_> = pixels.chunks(3).map(|pixel| pixel[2] > 100).collect();
        assert_eq!(blue, [false, false, true, false, false, true, false, false, false]);
        let planes = [[16; 6].as_slice(), &[240, 128, 128, 128], &[128; 4]].concat();
        let (pixels, _) = frames(&video("W3 H2 C422", &[&planes])).unwrap().remove(0);
        let blue: Vec<_> = pixels.chunks(3).map(|pixel| pixel[2] > 100).collect();
        assert_eq!(blue, [true, true, false, false, false, false]);
    }

    #[test]
    fn grey_frames_keep_their_levels_and_every_frame_is_read() {
        let found = frames(&video("W2 H1 Cmono", &[&[0, 255], &[7, 8]])).unwrap();
        assert_eq!(found, [(vec![0, 255], [2, 1]), (vec![7, 8], [2, 1])]);
        assert_eq!(frames(&video("W2 H1 Cmono XCOLORRANGE=LIMITED", &[&[16, 235]])).unwrap()[0].0, [0, 255]);
    }

    #[test]
    fn a_video_that_is_cut_damaged_or_too_large_is_named() {
        let unusable = |text: &[u8]| match frames(text) {
            Err(StreamFault::Unusable(reason)) => reason,
            other => panic!("{other:?}"),
        };
        assert!(unusable(b"YUV4MPEG2 W65536 H65536\nFRAME\n").contains("67108864 pixels, found 65536x65536"));
        assert!(unusable(b"YUV4MPEG2 H2\n").contains("found 0x2"));
        let colours = unusable(b"YUV4MPEG2 W2 H2 C420p10\n");
        assert!(colours.contains("\"420p10\"") && colours.contains("-pix_fmt yuv420p"), "{colours}");
        assert!(
            unusable(&video("W1 H1 Cmono", &[&[1, b'x', b'\n']])).contains("expected FRAME, found \"x\"")
        );
        assert!(unusable(&[b"YUV4MPEG2 ".as_slice(), &[b'x'; 2000]].concat()).contains("1024 bytes"));
        for cut in [
            "YUV4MPEG2 W2 H2",
            "YUV4MPEG2 W2 H2\nFRAM",
            "YUV4MPEG2 W2 H2\nFRAME\n",
            "YUV4MPEG2 W2 H2\nFRAME\nab",
        ] {
            assert!(matches!(frames(cut.as_bytes()), Err(StreamFault::Cut(_))), "{cut:?}");
        }
    }

    #[test]
    fn the_rate_is_that_of_the_line() {
        let of = |rate: &str| period_of(rate).map(|period| period.as_micros());
        assert_eq!(
            [of("25:1"), of("30000:1001"), of("0:0"), of("0:1"), of("1:0"), of("x:1")],
            [Some(40_000), Some(33_366), None, None, None, None]
        );
    }
}
