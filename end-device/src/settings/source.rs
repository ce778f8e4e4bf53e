//! The settings of the source of frames; each belongs to one kind of source.

use std::time::Duration;

use headwater_samples::image_codec::MAX_SIDE_PX;
use headwater_samples::roi::{RawFormat, Roi};

use super::reader::{Reader, path};
use crate::config::Capture;
use crate::source::{
    Existing, FolderEnd, HttpAuth, Secret, SourceConfig, SourceKind, StdinFormat, StdinFrames, check_url,
};

/// Which source each of these settings is for.
const FOR_SOURCES: [(&str, &[&str]); 12] = [
    ("frames", &["archive", "folder", "watch"]),
    ("max_age_ms", &["folder", "watch", "stdin"]),
    ("folder_period_ms", &["folder"]),
    ("folder_end", &["folder"]),
    ("watch_existing", &["watch"]),
    ("watch_poll_ms", &["watch"]),
    ("http_url", &["http"]),
    ("http_timeout_ms", &["http"]),
    ("http_auth_file", &["http"]),
    ("http_auth", &["http"]),
    ("stdin_format", &["stdin"]),
    ("stdin_size", &["stdin"]),
];

/// Longest wait or period, a day.
const MOST_MS: u64 = 86_400_000;

impl Reader {
    /// Takes the keys of the source; `None` when one is missing or wrong.
    pub(super) fn source(&mut self, capture: Capture) -> Option<SourceConfig> {
        let word = self.source_word();
        self.only_for(word);
        let roi = self.optional("roi", |text| text.parse::<Roi>());
        let max_age_ms = self.number("max_age_ms", 1..=MOST_MS);
        let kind = match word? {
            "folder" => self.folder(),
            "watch" => self.watch(),
            "http" => self.http(capture),
            "stdin" => self.stdin(),
            _ => self.required("frames", path).map(|path| SourceKind::Archive { path }),
        };
        let kind = kind?;
        if capture == Capture::Source && !kind.has_own_timing() {
            let found = kind.word();
            self.wrong(
                "capture",
                format!("\"source\" goes with source = \"folder\", \"watch\" or \"stdin\", found {found:?}"),
            );
        }
        let max_age_ms = max_age_ms.unwrap_or_else(|| max_age_of(&kind, capture).as_millis() as u64);
        Some(SourceConfig { kind, roi, max_age_ms })
    }

    fn source_word(&mut self) -> Option<&'static str> {
        if !self.table.contains_key("source") {
            return Some("archive");
        }
        const WORDS: [&str; 5] = ["archive", "folder", "watch", "http", "stdin"];
        self.optional("source", |word| {
            WORDS.into_iter().find(|known| *known == word).ok_or_else(|| {
                format!("expected \"archive\", \"folder\", \"watch\", \"http\" or \"stdin\", found {word:?}")
            })
        })
    }

    /// A key of another source is a mistake; but what a file says for its own source must not stand in the way of a flag that
    /// chooses another one.
    fn only_for(&mut self, word: Option<&str>) {
        let chosen_by = self.origin("source");
        for (key, sources) in FOR_SOURCES {
            if !self.table.contains_key(key) || word.is_some_and(|word| sources.contains(&word)) {
                continue;
            }
            self.table.remove(key);
            let was_overruled = self.origin(key) > chosen_by;
            if word.is_some() && !was_overruled {
                self.wrong(key, format!("only with source = \"{}\"", sources.join("\" or \"")));
            }
            self.origins.remove(key);
        }
    }

    fn folder(&mut self) -> Option<SourceKind> {
        let path = self.required("frames", path);
        let period_ms = self.number_or("folder_period_ms", 1, 200);
        let end = self.optional("folder_end", |word| match word.as_str() {
            "loop" => Ok(FolderEnd::Loop),
            "end" => Ok(FolderEnd::End),
            other => Err(format!("expected \"loop\" or \"end\", found {other:?}")),
        });
        Some(SourceKind::Folder { path: path?, period_ms, end: end.unwrap_or(FolderEnd::Loop) })
    }

    fn watch(&mut self) -> Option<SourceKind> {
        let path = self.required("frames", path);
        let poll_ms = self.number_or("watch_poll_ms", 10, 200);
        let existing = self.optional("watch_existing", |word| match word.as_str() {
            "skip" => Ok(Existing::Skip),
            "take" => Ok(Existing::Take),
            other => Err(format!("expected \"skip\" or \"take\", found {other:?}")),
        });
        Some(SourceKind::Watch { path: path?, existing: existing.unwrap_or(Existing::Skip), poll_ms })
    }

    fn http(&mut self, capture: Capture) -> Option<SourceKind> {
        let url = self.required("http_url", |url| check_url(&url).map(|()| url));
        let is_given = self.table.contains_key("http_timeout_ms");
        let default_ms = match capture {
            Capture::Clock { period_ms } => (period_ms * 3 / 4).max(1),
            _ => 1000,
        };
        let timeout_ms = self.number_or("http_timeout_ms", 1, default_ms);
        if let Capture::Clock { period_ms } = capture
            && is_given
            && timeout_ms >= period_ms
        {
            self.wrong(
                "http_timeout_ms",
                format!("expected less than period_ms, {period_ms}, found {timeout_ms}"),
            );
        }
        let file = self.optional("http_auth_file", path);
        let given = self.secret("http_auth");
        let auth = match (file, given) {
            (Some(_), Some(_)) => {
                self.wrong("http_auth_file", "found beside HEADWATER_DEVICE_HTTP_AUTH; give one of them");
                HttpAuth::None
            }
            (Some(file), None) => HttpAuth::File(file),
            (None, Some(given)) => HttpAuth::Given(given),
            (None, None) => HttpAuth::None,
        };
        Some(SourceKind::Http { url: url?, timeout_ms, auth })
    }

    /// A secret is taken from the environment alone, and no mistake repeats it.
    fn secret(&mut self, key: &str) -> Option<Secret> {
        let value = self.table.remove(key)?;
        if self.origin(key) != headwater_protocol::Origin::Environment {
            self.wrong(key, "only from the environment; a file of its own is named by http_auth_file");
            return None;
        }
        Some(Secret(value.as_str().map_or_else(|| value.to_string(), str::to_owned)))
    }

    fn stdin(&mut self) -> Option<SourceKind> {
        let format = self.optional("stdin_format", |word| match word.as_str() {
            "rgb24" => Ok(StdinFormat::Raw(RawFormat::Rgb24)),
            "gray" => Ok(StdinFormat::Raw(RawFormat::Gray)),
            "mjpeg" => Ok(StdinFormat::Mjpeg),
            other => Err(format!("expected \"rgb24\", \"gray\" or \"mjpeg\", found {other:?}")),
        });
        let format = format.unwrap_or(StdinFormat::Raw(RawFormat::Rgb24));
        let size = self.optional("stdin_size", |text| size(&text));
        if size.is_some() && format == StdinFormat::Mjpeg {
            self.wrong("stdin_size", "only with stdin_format = \"rgb24\" or \"gray\"");
        }
        Some(SourceKind::Stdin(StdinFrames { format, size }))
    }

    /// A number of ms within `least` and a day; the default where it is not given, or wrong and named.
    fn number_or(&mut self, key: &str, least: u64, default: u64) -> u64 {
        self.number(key, least..=MOST_MS).unwrap_or(default)
    }
}

/// Two periods, of the clock and of the folder; a second where neither has one.
fn max_age_of(kind: &SourceKind, capture: Capture) -> Duration {
    let clock_ms = if let Capture::Clock { period_ms } = capture { period_ms } else { 0 };
    let folder_ms = if let SourceKind::Folder { period_ms, .. } = kind { *period_ms } else { 0 };
    match clock_ms.max(folder_ms) {
        0 => Duration::from_secs(1),
        period_ms => Duration::from_millis(2 * period_ms),
    }
}

fn size(text: &str) -> Result<[u32; 2], String> {
    let side = |side: &str| side.parse().ok().filter(|side| (1..=MAX_SIDE_PX).contains(side));
    text.split_once('x')
        .and_then(|(width, height)| Some([side(width)?, side(height)?]))
        .ok_or_else(|| format!("expected WxH, each 1 to {MAX_SIDE_PX} pixels, found {text:?}"))
}
