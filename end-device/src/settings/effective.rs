//! The settings as they are in effect, with where each came from.

use headwater_link::QoS;
use headwater_protocol::{Origin, effective_line};
use headwater_samples::roi::RawFormat;
use toml::Value;

use super::{KEYS, Settings};
use crate::config::{Capture, EngineChoice, OnBrokenFrame};
use crate::source::{Existing, FolderEnd, HttpAuth, SourceKind, StdinFormat};

impl Settings {
    /// One line a setting, as a file could hold them: key, value, and where the value came from. Secrets are not shown.
    pub fn effective(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for key in KEYS {
            let Some(value) = self.value(key) else { continue };
            let origin = self.origins.get(key).copied().unwrap_or(Origin::Default);
            lines.push(effective_line(key, value.map(|value| value.to_string()).as_deref(), origin));
        }
        if let SourceKind::Http { auth: HttpAuth::Given(_), .. } = self.source.kind {
            lines.push(effective_line("http_auth", Some("\"(hidden)\""), Origin::Environment));
        }
        lines
    }

    /// The value of a key; `Some(None)` where nothing is set, `None` where the key belongs to another source or way of capture.
    fn value(&self, key: &str) -> Option<Option<Value>> {
        let config = &self.config;
        let text = |text: &str| Some(Some(Value::from(text)));
        let number = |number: u64| Some(Some(Value::Integer(number.cast_signed())));
        let path = |path: &std::path::Path| Some(Some(Value::from(path.display().to_string())));
        match key {
            "site" => text(&config.site.to_string()),
            "group" => text(&config.group.to_string()),
            "id" => text(&config.id.to_string()),
            "slot" => number(u64::from(u8::from(config.slot))),
            "broker" => text(&config.broker.to_string()),
            "bundle" => path(&self.bundle),
            "policy" => Some(self.policy.as_ref().map(|path| path.display().to_string().into())),
            "engine" => text(match config.engine {
                EngineChoice::Packed => "packed",
                EngineChoice::Tract => "tract",
                EngineChoice::Ort => "ort",
            }),
            "onnxruntime" => Some(config.onnxruntime.as_ref().map(|path| path.display().to_string().into())),
            "capture" => text(match config.capture {
                Capture::Trigger => "trigger",
                Capture::Clock { .. } => "clock",
                Capture::Source => "source",
            }),
            "period_ms" => match config.capture {
                Capture::Clock { period_ms } => number(period_ms),
                _ => None,
            },
            "on_broken_frame" => text(match config.on_broken_frame {
                OnBrokenFrame::Skip => "skip",
                OnBrokenFrame::Fatal => "fatal",
            }),
            "state_dir" => Some(config.state_dir.as_ref().map(|path| path.display().to_string().into())),
            "upward_qos" => number(u64::from(config.upward_qos != QoS::AtMostOnce)),
            "keep_samples" => number(config.keep_samples as u64),
            "keep_ms" => number(config.keep_ms),
            "spool_bytes" => number(config.spool_bytes),
            "queue_samples" => number(config.queue_samples as u64),
            "keep_alive_s" => number(config.keep_alive_s.into()),
            "grace_ms" => number(config.grace_ms),
            "source" => text(self.source.kind.word()),
            "roi" => Some(self.source.roi.map(|roi| roi.to_string().into())),
            "max_age_ms" if self.source.kind.has_own_timing() => number(self.source.max_age_ms),
            _ => self.value_of_source(key),
        }
    }

    fn value_of_source(&self, key: &str) -> Option<Option<Value>> {
        let text = |text: &str| Some(Some(Value::from(text)));
        let number = |number: u64| Some(Some(Value::Integer(number.cast_signed())));
        match (&self.source.kind, key) {
            (
                SourceKind::Archive { path }
                | SourceKind::Folder { path, .. }
                | SourceKind::Watch { path, .. },
                "frames",
            ) => text(&path.display().to_string()),
            (SourceKind::Folder { period_ms, .. }, "folder_period_ms") => number(*period_ms),
            (SourceKind::Folder { end, .. }, "folder_end") => text(match end {
                FolderEnd::Loop => "loop",
                FolderEnd::End => "end",
            }),
            (SourceKind::Watch { existing, .. }, "watch_existing") => text(match existing {
                Existing::Skip => "skip",
                Existing::Take => "take",
            }),
            (SourceKind::Watch { poll_ms, .. }, "watch_poll_ms") => number(*poll_ms),
            // Cameras like to have passwords in the query.
            (SourceKind::Http { url, .. }, "http_url") => {
                let (shown, query) = url.split_once('?').map_or((url.as_str(), ""), |(url, _)| (url, "?..."));
                text(&format!("{shown}{query}"))
            }
            (SourceKind::Http { timeout_ms, .. }, "http_timeout_ms") => number(*timeout_ms),
            (SourceKind::Http { auth, .. }, "http_auth_file") => Some(match auth {
                HttpAuth::File(path) => Some(path.display().to_string().into()),
                _ => None,
            }),
            (SourceKind::Stdin(frames), "stdin_format") => text(match frames.format {
                StdinFormat::Raw(RawFormat::Rgb24) => "rgb24",
                StdinFormat::Raw(RawFormat::Gray) => "gray",
                StdinFormat::Mjpeg => "mjpeg",
            }),
            (SourceKind::Stdin(frames), "stdin_size") => {
                Some(frames.size.map(|[width, height]| format!("{width}x{height}").into()))
            }
            _ => None,
        }
    }
}
