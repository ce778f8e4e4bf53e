//! Section `[source]`: the source of frames. A key that belongs to one kind of source is a mistake with another kind.

use std::convert::Infallible;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use headwater_samples::image_codec::MAX_PIXELS;
use headwater_samples::roi::{Fit, Roi};
use headwater_settings::{
    Loaded, Misfit, Mistake, Origin, Value, default, optional, secret, section, settings, word,
};
use headwater_transport::{Endpoint, EndpointError, Secret};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{DeviceSettings, MAX_MS};
use crate::config::Capture;

settings! {
    /// Section `[source]`.
    #[derive(Clone, Debug)]
    pub struct SourceSettings {
        /// Kind of source (docs/sources.md has a recipe for each): "archive" (an archive or a folder of its layout; the sample id picks the
        /// frame), "folder" (its images and those below it in the order of their names, at a rate), "watch" (a folder; each new image in it
        /// or below it that is complete is a frame), "http" (a snapshot URL, requested at each capture), "stdin" (a pipe, such as ffmpeg's),
        /// "command" (a command whose output is frames, such as ffmpeg) or "file" (a video file that is played, such as y4m).
        pub kind: SourceWord = default("archive").by(source_word),
        /// Frames: for "archive" a .tar.gz or a folder of the same layout, for "folder" and "watch" a folder of images, for "file" a video.
        pub path: Option<PathBuf> = optional("frames.tar.gz"),
        /// Part of each frame that becomes the view, before it is resized: x, y, width and height in pixels ("40,0,320,240") or percent
        /// ("10%,0%,50%,100%"). Left out: the slot's region in training, mostly the whole frame; of an archive, whose frames are cut, the whole frame.
        pub roi: Option<Roi> = optional("40,0,320,240"),
        /// Fit of the frame or its part to the size of the view: "stretch", "crop" (its middle, with the view's ratio of sides) or "letterbox" (all
        /// of it, black around it). Left out: as in training, mostly "stretch".
        pub fit: Option<Fit> = optional("letterbox").word(),
        /// Milliseconds for which the newest frame answers (of every kind but archive and http); then the slot is missing. Longer bridges
        /// gaps, and answers with older frames. Left out: two periods (of the clock or the folder), or 1000.
        pub max_age_ms: Option<u64> = optional("1000").within(1..=MAX_MS),
        /// Frames in a row after which a camera (watch, http, stdin, command) is frozen, dark or covered: all are equal, byte for byte, or all
        /// their views lack contrast. The device then says so and gives no answers until a frame differs. Take more than lie between two key frames
        /// of a video stream, which may be equal in a still scene. 0: never; else at least 2.
        pub frozen_frames: u64 = default("100").within(0..=1_000_000),
        /// Standard deviation of a view, pixels 0 to 255, below which it lacks contrast.
        pub frozen_deviation: u64 = default("2").within(0..=255),
        /// A folder that is played; a video file is played once.
        pub folder: FolderSettings = section(),
        /// A watched folder.
        pub watch: WatchSettings = section(),
        /// A snapshot URL.
        pub http: HttpSettings = section(),
        /// A command.
        pub command: CommandSettings = section(),
        /// Frames on a pipe, of a command or in a video file.
        pub stdin: StdinSettings = section(),
    }
}

settings! {
    /// Section `[source.folder]`.
    #[derive(Clone, Debug)]
    pub struct FolderSettings {
        /// Milliseconds from image to image; a video that tells its rate (y4m) is played at that rate.
        pub period_ms: u64 = default("200").within(1..=MAX_MS),
        /// Action after the last image: "loop", or "end", which ends the device.
        pub end: FolderEnd = default("loop").word(),
    }
}

/// Action of a folder after its last image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FolderEnd {
    /// Lists the folder again and starts with its first image.
    Loop,
    /// Ends the device cleanly.
    End,
}

settings! {
    /// Section `[source.watch]`.
    #[derive(Clone, Debug)]
    pub struct WatchSettings {
        /// Treatment of images that are in the folder at the start: "skip" or "take".
        pub existing: Existing = default("skip").word(),
        /// Milliseconds between two scans; shorter finds images sooner and costs more. A file is a frame once it is unchanged from one scan to
        /// the next, or at once if it was renamed into the folder. Every scan reads the whole folder, so move away images that are done.
        pub poll_ms: u64 = default("200").within(10..=MAX_MS),
    }
}

/// Treatment of the images that are in a watched folder at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Existing {
    /// Skips these images.
    Skip,
    /// Takes these images as frames.
    Take,
}

settings! {
    /// Section `[source.http]`.
    #[derive(Clone, Debug)]
    pub struct HttpSettings {
        /// Snapshot URL, `http://host[:port]/path`, without user and password.
        pub url: Option<Endpoint> = optional("http://camera.local/snapshot.jpg").by(snapshot_url),
        /// Milliseconds until a request is abandoned; less than the period. Left out: three quarters of it, or 1000.
        pub timeout_ms: Option<u64> = optional("1000").within(1..=MAX_MS),
        /// File whose first line is user:password of the snapshot URL; or give them in the environment, `HEADWATER_DEVICE_SOURCE_HTTP_AUTH`.
        pub auth_file: Option<PathBuf> = optional("/etc/headwater/camera"),
        /// user:password of the snapshot URL.
        pub auth: Option<Secret> = secret().by(|text: &str| Ok::<_, Infallible>(Secret::of_text(text))),
    }
}

settings! {
    /// Section `[source.command]`.
    #[derive(Clone)]
    pub struct CommandSettings {
        /// The command, as a shell takes it. Its standard output is the frames (`[source.stdin]` names their format); the last line of its
        /// standard error is named where it ends. It is ended with the device, by a kill after two seconds.
        pub run: Option<String> = optional("ffmpeg -v error -nostdin -f v4l2 -i /dev/video0 -f image2pipe -c:v mjpeg -"),
        /// Action when the command ends: "restart" (after half a second at first, later up to half a minute), or "end", which ends the device.
        pub end: CommandEnd = default("restart").word(),
    }
}

/// Action of the device when its command ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandEnd {
    /// Starts the command again: a camera that was unplugged comes back.
    Restart,
    /// Ends the device, cleanly if the command succeeded.
    End,
}

settings! {
    /// Section `[source.stdin]`.
    #[derive(Clone, Copy, Debug)]
    pub struct StdinSettings {
        /// Format of the input: "auto" (y4m, PPM and PGM, which carry their size, or JPEG, PNG or WebP files one after the other, told by the
        /// first bytes; with `size` raw pixels as "rgb24"), "rgb24" or "gray" (raw pixels, with `size`), or "mjpeg" (JPEG, PNG or WebP files
        /// with anything between them). The device stops at the end of the input.
        pub format: StdinFormat = default("auto").word(),
        /// Width and height of raw frames, as 320x240.
        pub size: Option<[u32; 2]> = optional("320x240").by(frame_size),
    }
}

/// Format of frames on standard input, of a command or in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StdinFormat {
    /// The first bytes tell the format; with a size, raw pixels of three bytes.
    Auto,
    /// Raw pixels of three bytes; all frames have the same size.
    Rgb24,
    /// Raw pixels of one byte; all frames have the same size.
    Gray,
    /// JPEG, PNG or WebP files one after the other.
    Mjpeg,
}

/// Word of the setting `source.kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceWord {
    /// An archive, or a folder of the same layout.
    Archive,
    /// A folder of images, played at a fixed rate.
    Folder,
    /// A watched folder: each new image is a frame.
    Watch,
    /// A snapshot URL, requested at each capture.
    Http,
    /// A pipe on standard input.
    Stdin,
    /// A command whose standard output is frames.
    Command,
    /// A video file, played.
    File,
}

/// Reads the kind of a source. A stream or a camera is no kind: the mistake says to put ffmpeg before standard input.
fn source_word(text: &str) -> Result<SourceWord, Mistake> {
    word(text).map_err(|Mistake(mistake)| match text {
        "rtsp" | "camera" | "video" => Mistake(format!(
            "{mistake}; for a stream or a camera use \"command\" with ffmpeg, or \"stdin\" behind it (docs/sources.md)"
        )),
        _ => Mistake(mistake),
    })
}

/// Advice for a stream whose frames have no known size.
pub(crate) const CARRY_SIZE: &str =
    "let ffmpeg write frames that carry it: `-f yuv4mpegpipe -`, or `-f image2pipe -c:v ppm -`";

/// Keys that belong to some kinds of source alone, with those kinds.
const KEYS_OF_KINDS: [(&str, &[SourceWord]); 9] = {
    use SourceWord::{Archive, Command, File, Folder, Http, Stdin, Watch};
    [
        ("source.path", &[Archive, Folder, Watch, File]),
        ("source.max_age_ms", &[Folder, Watch, Stdin, Command, File]),
        ("source.frozen_", &[Watch, Http, Stdin, Command]),
        ("source.folder.period_ms", &[Folder, File]),
        ("source.folder.", &[Folder]),
        ("source.watch.", &[Watch]),
        ("source.http.", &[Http]),
        ("source.command.", &[Command]),
        ("source.stdin.", &[Stdin, Command, File]),
    ]
};

impl SourceSettings {
    /// Mistakes for given keys of another kind of source. A key of lower precedence than `source.kind` is no mistake: a file's key must not
    /// stand in the way of a flag.
    pub(super) fn keys_of_other_kinds(&self, values: &[Value]) -> Vec<Misfit> {
        let rank_of_kind = values.iter().find(|value| value.declared.key == "source.kind");
        let rank_of_kind = rank_of_kind.map_or(DEFAULT_RANK, |value| rank(&value.origin));
        let given = values
            .iter()
            .filter(|value| value.origin != Origin::Default && rank(&value.origin) <= rank_of_kind);
        let misfit = |value: &Value| {
            let key = &value.declared.key;
            let kinds = kinds_of(key).filter(|kinds| !kinds.contains(&self.kind))?;
            let kinds: Vec<_> = kinds.iter().map(|kind| json!(kind).to_string()).collect();
            let reason = format!("only with source.kind = {}", kinds.join(" or "));
            Some(Misfit::new(key, reason).with("source.kind"))
        };
        given.filter_map(misfit).collect()
    }

    /// Checks settings that must fit each other.
    pub(super) fn check(&self, capture: Capture, mistakes: &mut Vec<Misfit>) {
        let kind = json!(self.kind);
        let (key, is_missing) = match self.kind {
            SourceWord::Archive | SourceWord::Folder | SourceWord::Watch | SourceWord::File => {
                ("source.path", self.path.is_none())
            }
            SourceWord::Command => ("source.command.run", self.command.run.is_none()),
            SourceWord::Http => ("source.http.url", self.http.url.is_none()),
            SourceWord::Stdin => ("", false),
        };
        if is_missing {
            let reason = format!("missing, and source.kind is {kind}");
            mistakes.push(Misfit::new(key, reason).with("source.kind"));
        }
        if self.kind == SourceWord::Http {
            self.http.check(capture, mistakes);
        }
        let is_stream = matches!(self.kind, SourceWord::Stdin | SourceWord::Command | SourceWord::File);
        mistakes.extend(is_stream.then(|| self.stdin.misfit()).flatten());
        if self.frozen_frames == 1 {
            let reason = "expected 0 for no check, or at least 2, found 1: one frame has none before it to be equal to";
            mistakes.push(Misfit::new("source.frozen_frames", reason));
        }
        let has_own_timing = !matches!(self.kind, SourceWord::Archive | SourceWord::Http);
        if capture == Capture::Source && !has_own_timing {
            let reason =
                format!("\"source\" goes with every source.kind but \"archive\" and \"http\", found {kind}");
            mistakes.push(Misfit::new("capture", reason).with("source.kind"));
        }
    }

    /// Longest age of a frame that still answers a sample: `max_age_ms`, or two periods (the longer one of the clock and of the played folder
    /// or file), or one second without a period.
    pub(crate) fn max_age(&self, capture: Capture, period: Duration) -> Duration {
        let is_played = matches!(self.kind, SourceWord::Folder | SourceWord::File);
        let period = capture.period_ms().map(Duration::from_millis).max(is_played.then_some(period));
        let default = period.map_or(Duration::from_secs(1), |period| 2 * period);
        self.max_age_ms.map_or(default, Duration::from_millis)
    }
}

impl fmt::Debug for CommandSettings {
    /// Names the program alone, since the arguments may hold passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommandSettings")
            .field("run", &self.run.as_deref().map(program_of))
            .field("end", &self.end)
            .finish()
    }
}

impl StdinSettings {
    /// The mistake of raw frames without a size, or of a size for frames that carry their own.
    pub(crate) fn misfit(self) -> Option<Misfit> {
        let reason = match (self.format, self.size) {
            (StdinFormat::Mjpeg, Some(_)) => {
                "only with source.stdin.format = \"rgb24\" or \"gray\"".to_owned()
            }
            (StdinFormat::Rgb24 | StdinFormat::Gray, None) => {
                let format = json!(self.format);
                format!(
                    "missing, and source.stdin.format is {format}: raw pixels do not tell their size; {CARRY_SIZE}"
                )
            }
            (StdinFormat::Auto, _)
            | (StdinFormat::Rgb24 | StdinFormat::Gray, Some(_))
            | (StdinFormat::Mjpeg, None) => return None,
        };
        Some(Misfit::new("source.stdin.size", reason).with("source.stdin.format"))
    }
}

impl HttpSettings {
    fn check(&self, capture: Capture, mistakes: &mut Vec<Misfit>) {
        if let (Some(period_ms), Some(timeout_ms)) = (capture.period_ms(), self.timeout_ms)
            && timeout_ms >= period_ms
        {
            let reason = format!("expected less than period_ms, {period_ms}, found {timeout_ms}");
            mistakes.push(Misfit::new("source.http.timeout_ms", reason).with("period_ms"));
        }
        if self.auth_file.is_some() && self.auth.is_some() {
            let reason = "found beside HEADWATER_DEVICE_SOURCE_HTTP_AUTH; give one of them";
            mistakes.push(Misfit::new("source.http.auth_file", reason));
        }
    }

    /// Longest time of a request: `timeout_ms`, or three quarters of the clock's period, or one second without the clock.
    #[cfg(feature = "http")]
    pub(crate) fn timeout(&self, capture: Capture) -> Duration {
        let default_ms = capture.period_ms().map_or(1000, |period_ms| (period_ms * 3 / 4).max(1));
        Duration::from_millis(self.timeout_ms.unwrap_or(default_ms))
    }
}

/// Leaves keys of other kinds of sources out of what is printed, and hides the query of a snapshot URL, which often holds a password, and
/// all of a command but its program.
pub(super) fn hide(loaded: &mut Loaded<DeviceSettings>) {
    let source = &loaded.settings.source;
    loaded
        .values
        .retain(|value| kinds_of(&value.declared.key).is_none_or(|kinds| kinds.contains(&source.kind)));
    let shown = [
        ("source.http.url", source.http.url.as_ref().map(ToString::to_string)),
        ("source.command.run", source.command.run.as_deref().map(program_of)),
    ];
    for (key, text) in shown {
        let value = loaded.values.iter_mut().find(|value| value.declared.key == key);
        if let Some((value, text)) = value.zip(text) {
            value.toml = Some(text.into());
        }
    }
}

/// The program of a command, for messages. The rest of the command may hold a password: an address, a header, a variable before the
/// program.
fn program_of(command: &str) -> String {
    let program = command.split_whitespace().next().unwrap_or_default();
    let is_name = program.chars().all(|c| c.is_ascii_alphanumeric() || "/._+-".contains(c));
    format!("{} ...", if is_name { program } else { "" }).trim_start().to_owned()
}

/// Kinds of sources that have a key; `None` for a key that every kind has.
fn kinds_of(key: &str) -> Option<&'static [SourceWord]> {
    KEYS_OF_KINDS.iter().find(|(prefix, _)| key.starts_with(prefix)).map(|(_, kinds)| *kinds)
}

/// Rank of a default; every other origin has precedence over it.
const DEFAULT_RANK: u8 = 3;

/// Rank of an origin; the lowest number has precedence.
fn rank(origin: &Origin) -> u8 {
    match origin {
        Origin::Flag(_) => 0,
        Origin::Environment(_) => 1,
        Origin::File(_) => 2,
        Origin::Default => DEFAULT_RANK,
    }
}

fn frame_size(text: &str) -> Result<[u32; 2], String> {
    let size = text.split_once('x');
    let size = size.and_then(|(width, height)| Some([width.parse().ok()?, height.parse().ok()?]));
    let pixels = |[width, height]: [u32; 2]| u64::from(width) * u64::from(height);
    size.filter(|size| (1..=MAX_PIXELS).contains(&pixels(*size)))
        .ok_or_else(|| format!("expected WxH of 1 to {MAX_PIXELS} pixels in all, found {text:?}"))
}

#[cfg(not(feature = "http"))]
pub(crate) const WITHOUT_HTTP: &str =
    "this build of the agent has no snapshot URLs (it was made without the feature `http`)";

/// Reads a snapshot URL. The error never repeats the path or the query, which may hold a password.
fn snapshot_url(text: &str) -> Result<Endpoint, String> {
    #[cfg(not(feature = "http"))]
    if !text.is_empty() {
        return Err(WITHOUT_HTTP.into());
    }
    let url = Endpoint::http(text).map_err(|error| match error {
        EndpointError::Credentials => "expected a URL without user and password, found one with them: leave them \
                                       out, and put user:password into a file that source.http.auth_file names"
            .to_owned(),
        EndpointError::Scheme { found, .. } => {
            let advice = match found.to_ascii_lowercase().as_str() {
                "none" => ": write http:// before it",
                "file" => ": for files use source.kind = \"folder\" or \"watch\"",
                "rtsp" | "rtsps" | "rtmp" | "rtp" | "udp" => {
                    ": for a stream use source.kind = \"stdin\" behind ffmpeg (docs/sources.md)"
                }
                _ => "",
            };
            format!("expected the scheme http, found {found:?}{advice}")
        }
        error => error.to_string(),
    })?;
    match url.scheme().uses_tls() {
        false => Ok(url),
        true => {
            Err("expected the scheme http, found https: there is no TLS to cameras; most have the same path \
                     under http"
                .to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_of_a_command_is_printed_and_no_argument() {
        for (run, shown) in [
            ("ffmpeg -headers 'Authorization: Basic s3cret' -i http://cam/", "ffmpeg ..."),
            ("/usr/bin/camera-tool --key s3cret", "/usr/bin/camera-tool ..."),
            ("KEY='s3cret s3cret' camera", "..."),
        ] {
            assert_eq!(program_of(run), shown);
            let command = CommandSettings { run: Some(run.to_owned()), end: CommandEnd::End };
            assert!(!format!("{command:?}").contains("s3cret"), "{command:?}");
        }
    }
}
