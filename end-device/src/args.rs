//! The command line of `headwater-device`.

use std::path::PathBuf;

use clap::Parser;

/// Plays one camera of a group: captures a frame when triggered, runs its section of the network, sends class scores, and
/// keeps the features until the aggregator asks for them.
///
/// Every setting can stand in a TOML file (--config; see headwater-device.toml for all of them with comments), in the
/// environment, or here; a flag wins over the environment, the environment over the file.
///
/// Example: headwater-device --site hall --group gate --id cam-0 --slot 0 --bundle fashion-6cam.hwb --frames frames.tar.gz
#[derive(Debug, Parser)]
#[command(name = "headwater-device", version, verbatim_doc_comment, max_term_width = 110)]
pub(crate) struct Args {
    /// File of settings (TOML).
    #[arg(long, env = "HEADWATER_DEVICE_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Site it stands at; one level of its topics.
    #[arg(long, env = "HEADWATER_DEVICE_SITE")]
    site: Option<String>,
    /// Group whose samples it sees; one level of its topics.
    #[arg(long, env = "HEADWATER_DEVICE_GROUP")]
    group: Option<String>,
    /// Its name, one of a kind in the group.
    #[arg(long, env = "HEADWATER_DEVICE_ID")]
    id: Option<String>,
    /// Slot of the network it fills, from 0.
    #[arg(long, env = "HEADWATER_DEVICE_SLOT")]
    slot: Option<String>,
    /// Broker, mqtt://host:port. (default `mqtt://127.0.0.1:1883`)
    #[arg(long, env = "HEADWATER_DEVICE_BROKER", value_name = "ADDRESS")]
    broker: Option<String>,
    /// Bundle file; one with no more than this slot's section is enough.
    #[arg(long, env = "HEADWATER_DEVICE_BUNDLE", value_name = "FILE")]
    bundle: Option<String>,
    /// Frames to play: a .tar.gz archive or a folder of the same layout.
    #[arg(long, env = "HEADWATER_DEVICE_FRAMES", value_name = "PATH")]
    frames: Option<String>,
    /// What runs its section: "packed" (bits; tract where the bundle has no packed form), "tract" (ONNX) or "ort" (ONNX Runtime; tract
    /// where there is none). (default packed)
    #[arg(long, env = "HEADWATER_DEVICE_ENGINE", value_name = "WORD")]
    engine: Option<String>,
    /// Library of ONNX Runtime (libonnxruntime.so, 1.24 or later), for --engine ort. (default: the usual places)
    #[arg(long, env = "ORT_DYLIB_PATH", value_name = "FILE")]
    onnxruntime: Option<String>,
    /// What makes it capture: "trigger" (the group's topic) or "clock" (--period-ms). (default trigger)
    #[arg(long, env = "HEADWATER_DEVICE_CAPTURE", value_name = "WORD")]
    capture: Option<String>,
    /// Milliseconds between captures by the clock; the same at every device of the group.
    #[arg(long, env = "HEADWATER_DEVICE_PERIOD_MS", value_name = "MS")]
    period_ms: Option<String>,
    /// A frame that cannot be read: "skip" (silent for its sample) or "fatal" (do not start). (default skip)
    #[arg(long, env = "HEADWATER_DEVICE_ON_BROKEN_FRAME", value_name = "WORD")]
    on_broken_frame: Option<String>,
    /// 0: a lost message stays lost. 1: the broker acknowledges each, which costs bytes. (default 0)
    #[arg(long, env = "HEADWATER_DEVICE_UPWARD_QOS", value_name = "0|1")]
    upward_qos: Option<String>,
    /// Samples whose features are kept; fewer saves memory, for older ones the answer is `gone`. (default 256)
    #[arg(long, env = "HEADWATER_DEVICE_KEEP_SAMPLES", value_name = "N")]
    keep_samples: Option<String>,
    /// Milliseconds that features are kept; must outlast the aggregator's waits. (default 5000)
    #[arg(long, env = "HEADWATER_DEVICE_KEEP_MS", value_name = "MS")]
    keep_ms: Option<String>,
    /// Views that may wait for the section; with one more the oldest is given up. (default 128)
    #[arg(long, env = "HEADWATER_DEVICE_QUEUE_SAMPLES", value_name = "N")]
    queue_samples: Option<String>,
    /// Folder that keeps the boot number over restarts; without it the clock gives one.
    #[arg(long, env = "HEADWATER_DEVICE_STATE_DIR", value_name = "DIR")]
    state_dir: Option<String>,
    /// Seconds between pings on an idle connection; longer finds a dead broker later. (default 10)
    #[arg(long, env = "HEADWATER_DEVICE_KEEP_ALIVE_S", value_name = "S")]
    keep_alive_s: Option<String>,
    /// Milliseconds a shutdown may take. (default 2000)
    #[arg(long, env = "HEADWATER_DEVICE_GRACE_MS", value_name = "MS")]
    grace_ms: Option<String>,
    /// Prints what the device did, as one JSON object on stdout, when it ends.
    #[arg(long)]
    pub(crate) json: bool,
}

impl Args {
    /// What was given, as settings.
    pub(crate) fn overrides(&self) -> Vec<(&'static str, String)> {
        let given = [
            ("site", &self.site),
            ("group", &self.group),
            ("id", &self.id),
            ("slot", &self.slot),
            ("broker", &self.broker),
            ("bundle", &self.bundle),
            ("frames", &self.frames),
            ("engine", &self.engine),
            ("onnxruntime", &self.onnxruntime),
            ("capture", &self.capture),
            ("period_ms", &self.period_ms),
            ("on_broken_frame", &self.on_broken_frame),
            ("upward_qos", &self.upward_qos),
            ("keep_samples", &self.keep_samples),
            ("keep_ms", &self.keep_ms),
            ("queue_samples", &self.queue_samples),
            ("state_dir", &self.state_dir),
            ("keep_alive_s", &self.keep_alive_s),
            ("grace_ms", &self.grace_ms),
        ];
        given.into_iter().filter_map(|(key, value)| Some((key, value.clone()?))).collect()
    }
}
