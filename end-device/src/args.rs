//! The command line of `headwater-device`.

use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser};
use headwater_end_device::Given;
use headwater_protocol::Origin;

/// One camera of a group: takes a frame when triggered, runs its section of the network, sends class scores, and
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
    /// A TOML file with the threshold of the exit `device`, in place of the bundle's policy; for a device that is alone (b, d).
    #[arg(long, env = "HEADWATER_DEVICE_POLICY", value_name = "FILE")]
    policy: Option<String>,
    /// Where frames come from: "archive", "folder" (images played at a rate), "watch" (a folder that images are put into), "http" (a
    /// snapshot URL) or "stdin" (a pipe, such as ffmpeg's). (default archive)
    #[arg(long, env = "HEADWATER_DEVICE_SOURCE", value_name = "WORD")]
    source: Option<String>,
    /// Frames: for "archive" a .tar.gz or a folder of the same layout, for "folder" and "watch" a folder of images.
    #[arg(long, env = "HEADWATER_DEVICE_FRAMES", value_name = "PATH")]
    frames: Option<String>,
    /// Part of each frame that becomes the view, in pixels ("40,0,320,240") or percent ("10%,0%,50%,100%"). (default: all of it)
    #[arg(long, env = "HEADWATER_DEVICE_ROI", value_name = "X,Y,W,H")]
    roi: Option<String>,
    /// A frame of a folder or pipe answers for so many milliseconds; then the device is silent. Longer bridges gaps, and answers with
    /// older frames. (default: two periods, or 1000)
    #[arg(long, env = "HEADWATER_DEVICE_MAX_AGE_MS", value_name = "MS")]
    max_age_ms: Option<String>,
    /// Milliseconds from image to image of a folder. (default 200)
    #[arg(long, env = "HEADWATER_DEVICE_FOLDER_PERIOD_MS", value_name = "MS")]
    folder_period_ms: Option<String>,
    /// After the last image of a folder: "loop" or "end" (the device ends). (default loop)
    #[arg(long, env = "HEADWATER_DEVICE_FOLDER_END", value_name = "WORD")]
    folder_end: Option<String>,
    /// Images that are in a watched folder at the start: "skip" or "take". (default skip)
    #[arg(long, env = "HEADWATER_DEVICE_WATCH_EXISTING", value_name = "WORD")]
    watch_existing: Option<String>,
    /// Milliseconds between looks at a watched folder; shorter finds images sooner and costs more. (default 200)
    #[arg(long, env = "HEADWATER_DEVICE_WATCH_POLL_MS", value_name = "MS")]
    watch_poll_ms: Option<String>,
    /// Snapshot URL, `http://host[:port]/path`, without user and password.
    #[arg(long, env = "HEADWATER_DEVICE_HTTP_URL", value_name = "URL", hide_env_values = true)]
    http_url: Option<String>,
    /// Milliseconds until a snapshot is given up; less than the period. (default: three quarters of it, or 1000)
    #[arg(long, env = "HEADWATER_DEVICE_HTTP_TIMEOUT_MS", value_name = "MS")]
    http_timeout_ms: Option<String>,
    /// File whose first line is user:password of the snapshot URL; or give them in the environment, `HEADWATER_DEVICE_HTTP_AUTH`.
    #[arg(long, env = "HEADWATER_DEVICE_HTTP_AUTH_FILE", value_name = "FILE")]
    http_auth_file: Option<String>,
    /// Frames on standard input: "rgb24" or "gray" (raw pixels), or "mjpeg" (JPEG or PNG files one after the other). (default rgb24)
    #[arg(long, env = "HEADWATER_DEVICE_STDIN_FORMAT", value_name = "WORD")]
    stdin_format: Option<String>,
    /// Size of raw frames. (default: that of the view)
    #[arg(long, env = "HEADWATER_DEVICE_STDIN_SIZE", value_name = "WxH")]
    stdin_size: Option<String>,
    /// What runs its section: "packed" (bits; tract where the bundle has no packed form), "tract" (ONNX) or "ort" (ONNX Runtime; tract
    /// where there is none). (default packed)
    #[arg(long, env = "HEADWATER_DEVICE_ENGINE", value_name = "WORD")]
    engine: Option<String>,
    /// Library of ONNX Runtime (libonnxruntime.so, 1.24 or later), for --engine ort. (default: the usual places)
    #[arg(long, env = "ORT_DYLIB_PATH", value_name = "FILE")]
    onnxruntime: Option<String>,
    /// What makes it capture: "trigger" (the group's topic), "clock" (--period-ms) or "source" (each frame is a sample; for a group of
    /// one device). (default trigger)
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
    /// Unsettled samples kept in memory; those before them are spooled. Fewer saves memory. (default 1024)
    #[arg(long, env = "HEADWATER_DEVICE_KEEP_SAMPLES", value_name = "N")]
    keep_samples: Option<String>,
    /// Milliseconds that an unsettled sample is kept in memory; then it is spooled and sent again, late. Must outlast the aggregator's
    /// waits. (default 5000)
    #[arg(long, env = "HEADWATER_DEVICE_KEEP_MS", value_name = "MS")]
    keep_ms: Option<String>,
    /// Bytes of the spool: what is unsettled and could not be sent, or is too much for memory. Over it the oldest is given up. In
    /// --state-dir, else in memory and at most 1 MiB; 0: no spool. (default 67108864)
    #[arg(long, env = "HEADWATER_DEVICE_SPOOL_BYTES", value_name = "N")]
    spool_bytes: Option<String>,
    /// Views that may wait for the section; with one more the oldest is given up. (default 128)
    #[arg(long, env = "HEADWATER_DEVICE_QUEUE_SAMPLES", value_name = "N")]
    queue_samples: Option<String>,
    /// Folder that keeps over restarts: the boot number and, with --capture source, the last sample id (without it the clock gives both),
    /// and the spool.
    #[arg(long, env = "HEADWATER_DEVICE_STATE_DIR", value_name = "DIR")]
    state_dir: Option<String>,
    /// Seconds between pings on an idle connection; longer finds a dead broker later. (default 10)
    #[arg(long, env = "HEADWATER_DEVICE_KEEP_ALIVE_S", value_name = "S")]
    keep_alive_s: Option<String>,
    /// Milliseconds a shutdown may take. (default 2000)
    #[arg(long, env = "HEADWATER_DEVICE_GRACE_MS", value_name = "MS")]
    grace_ms: Option<String>,
    /// Prints every setting that is in effect and where it came from (flag, environment, file, default), and ends: 0, or 2 with every
    /// mistake.
    #[arg(long)]
    pub(crate) check_config: bool,
    /// Prints what the device did, as one JSON object on stdout, when it ends.
    #[arg(long)]
    pub(crate) json: bool,
}

/// User and password of a snapshot URL; a flag would show them to every process of the machine.
const HTTP_AUTH: &str = "HEADWATER_DEVICE_HTTP_AUTH";

impl Args {
    /// Reads the command line and the environment, and what they set. Ends the process where the command line is wrong.
    pub(crate) fn read() -> (Self, Vec<Given>) {
        let matches = Self::command().get_matches();
        let args = Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
        let given = args.given(&matches);
        (args, given)
    }

    fn given(&self, matches: &ArgMatches) -> Vec<Given> {
        let all = [
            ("site", &self.site),
            ("group", &self.group),
            ("id", &self.id),
            ("slot", &self.slot),
            ("broker", &self.broker),
            ("bundle", &self.bundle),
            ("policy", &self.policy),
            ("source", &self.source),
            ("frames", &self.frames),
            ("roi", &self.roi),
            ("max_age_ms", &self.max_age_ms),
            ("folder_period_ms", &self.folder_period_ms),
            ("folder_end", &self.folder_end),
            ("watch_existing", &self.watch_existing),
            ("watch_poll_ms", &self.watch_poll_ms),
            ("http_url", &self.http_url),
            ("http_timeout_ms", &self.http_timeout_ms),
            ("http_auth_file", &self.http_auth_file),
            ("stdin_format", &self.stdin_format),
            ("stdin_size", &self.stdin_size),
            ("engine", &self.engine),
            ("onnxruntime", &self.onnxruntime),
            ("capture", &self.capture),
            ("period_ms", &self.period_ms),
            ("on_broken_frame", &self.on_broken_frame),
            ("upward_qos", &self.upward_qos),
            ("keep_samples", &self.keep_samples),
            ("keep_ms", &self.keep_ms),
            ("spool_bytes", &self.spool_bytes),
            ("queue_samples", &self.queue_samples),
            ("state_dir", &self.state_dir),
            ("keep_alive_s", &self.keep_alive_s),
            ("grace_ms", &self.grace_ms),
        ];
        let origin = |key| match matches.value_source(key) {
            Some(ValueSource::EnvVariable) => Origin::Environment,
            _ => Origin::Flag,
        };
        let mut given: Vec<Given> = all
            .into_iter()
            .filter_map(|(key, value)| Some(Given { key, value: value.clone()?, origin: origin(key) }))
            .collect();
        if let Ok(value) = std::env::var(HTTP_AUTH) {
            given.push(Given { key: "http_auth", value, origin: Origin::Environment });
        }
        given
    }
}
