//! `site.toml`, and the settings of each service that follow from it.
//!
//! ```text
//! bundle, site, group, capture, every_ms ──┬──> device of each camera, in the order of slots, with [device]
//! [cameras] NAME = SOURCE                ──┼──> leader, with [aggregator]
//!                                          └──> cloud, with [cloud]
//! ```
//!
//! Every value keeps its line, so that a service's own check of its settings names the line of `site.toml`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use headwater_cloud_service::CloudSettings;
use headwater_edge_aggregator::AggregatorSettings;
use headwater_end_device::{Capture, CaptureWord, DeviceSettings};
use headwater_group::start::separate_edges;
use headwater_inference::bundle::Bundle;
use headwater_inference::manifest::NetworkManifest;
use headwater_link::Endpoint;
use headwater_protocol::{GroupId, SiteId};
use headwater_settings::{
    Loaded, Misfit, Program, Sources, Stop, Value, default, defaults, load, optional, read_document,
    required, settings,
};
use headwater_toml_file::{Document, Located, Mistake};
use toml::Value as Toml;

use super::camera::Camera;

/// Default of `every_ms`.
const EVERY_MS: u64 = 1000;

/// Line number of values that are not in the file.
const NO_LINE: usize = 1;

settings! {
    /// A site in one process.
    #[derive(Clone, Debug)]
    pub(super) struct SiteSettings {
        /// Bundle that every tier runs.
        pub(super) bundle: PathBuf = required("runs/mine/bundle.hwb"),
        /// Name of the site. Left out: the name of the file's folder.
        pub(super) site: Option<SiteId> = optional("shop"),
        /// Name of the group.
        pub(super) group: GroupId = default("cameras"),
        /// "clock" (every `every_ms`), "trigger", or "source" (each frame of the only camera). Left out: "source" where the only camera is a
        /// folder or a file of frames, otherwise "clock".
        pub(super) capture: Option<CaptureWord> = optional("clock").word(),
        /// Milliseconds between two samples of the clock.
        pub(super) every_ms: Option<u64> = optional("500").within(1..=86_400_000),
        /// The broker: its address, or "embedded". Left out: Mosquitto where it is installed, else the embedded one.
        pub(super) broker: Option<BrokerChoice> = optional("mqtt://127.0.0.1:1883").by(broker_choice),
        /// Folder of the journal and of the cameras' states. Left out: `.headwater` in the file's folder.
        pub(super) state_dir: Option<PathBuf> = optional(".headwater"),
    }
}

#[derive(Clone, Debug)]
pub(super) enum BrokerChoice {
    Embedded,
    At(Endpoint),
}

fn broker_choice(text: &str) -> Result<BrokerChoice, String> {
    match text {
        "embedded" => Ok(BrokerChoice::Embedded),
        address => Endpoint::broker(address).map(BrokerChoice::At).map_err(|error| error.to_string()),
    }
}

impl Program for SiteSettings {
    const NAME: &'static str = "headwater up";
    const PREFIX: &'static str = "HEADWATER_UP_";

    fn check(&self, _values: &[Value]) -> Vec<Misfit> {
        let is_clock = matches!(self.capture, None | Some(CaptureWord::Clock));
        let misfit = || Misfit::new("every_ms", "only with capture = \"clock\"").with("capture");
        (self.every_ms.is_some() && !is_clock).then(misfit).into_iter().collect()
    }
}

/// Settings of one service, and the values that they were read from.
pub(super) struct Tier<S> {
    pub(super) settings: S,
    pub(super) document: Document,
}

impl Tier<DeviceSettings> {
    /// Returns true when two devices see regions of one camera: the settings of their sources have the same lines of the file.
    pub(super) fn shares_camera(&self, other: &Self) -> bool {
        self.camera().eq(other.camera())
    }

    fn camera(&self) -> impl Iterator<Item = (&String, &Located)> {
        let values = self.document.values.iter();
        values.filter(|(key, _)| key.starts_with("source.") && key.as_str() != "source.roi")
    }
}

/// A site whose settings have no mistake.
pub(super) struct Site {
    pub(super) broker: Option<BrokerChoice>,
    pub(super) state_dir: PathBuf,
    /// The devices of the cameras, in the order of slots.
    pub(super) devices: Vec<Tier<DeviceSettings>>,
    pub(super) aggregator: Tier<AggregatorSettings>,
    /// `None` where `[aggregator.cloud]` names a cloud that runs elsewhere.
    pub(super) cloud: Option<Tier<CloudSettings>>,
    pub(super) bundle: Bundle,
}

/// Keys of the services' settings whose values follow from the site file's own keys.
const OWN_KEYS: [&str; 9] =
    ["site", "group", "bundle", "id", "slot", "capture", "period_ms", "broker.address", "devices"];

impl Site {
    /// Reads a site file; `is_split` for a site whose programs run apart.
    ///
    /// # Errors
    /// Every mistake, with its line.
    pub(super) fn read(path: &Path, is_split: bool) -> Result<Self, Vec<String>> {
        let file = path.display().to_string();
        let (mut mistakes, mut found) = (Vec::new(), Vec::new());
        let [cameras, device, aggregator, cloud, own] = tables(read_document(path)?, &mut mistakes);
        let cameras = Camera::all(cameras, &mut mistakes);
        let loaded = taken(load::<SiteSettings>(Sources::of_document(own.clone(), &file)), &mut found);
        let bundle = own.values.get("bundle").and_then(|found| found.value.as_str());
        let bundle = bundle.and_then(|path| {
            let opened = crate::shipped::open_bundle(Some(Path::new(path)));
            let line = line_of(&own, "bundle");
            opened.map_err(|error| mistakes.push(Mistake::at(line, "bundle", format!("{error:#}")))).ok()
        });
        if let Some(slots) = bundle.as_ref().map(|bundle| usize::from(bundle.manifest().slots))
            && slots != cameras.len()
        {
            let text = format!(
                "expected {slots}, one for each device slot of the bundle, in the order of slots, found {}: write [cameras] and below it \
                 NAME = \"SOURCE\" for each",
                cameras.len()
            );
            let line = cameras.last().map_or(NO_LINE, |camera| camera.line);
            mistakes.push(Mistake::at(line, "cameras", text));
        }
        // Settings that cannot be read are replaced by the examples, so that further mistakes are found.
        let settings = loaded.unwrap_or_else(defaults);
        let folder = std::path::absolute(path).unwrap_or_default();
        let folder = folder.parent().unwrap_or(Path::new("."));
        let state_dir = settings.state_dir.clone().unwrap_or_else(|| folder.join(".headwater"));
        let state_dir = std::path::absolute(&state_dir).unwrap_or(state_dir);
        let has_details = !is_split && !matches!(settings.broker, Some(BrokerChoice::At(_)));
        let shared = Shared { settings: &settings, own: &own, folder, state_dir: &state_dir, has_details };
        refuse_shared(&device, &cameras, &mut mistakes);
        let capture = shared.capture(&cameras);
        let mut devices = Vec::new();
        // A camera without a source has a mistake already.
        let with_source = |camera: &(usize, &Camera)| !camera.1.source.is_empty();
        for (slot, camera) in cameras.iter().enumerate().filter(with_source) {
            let document = shared.device(device.clone(), camera, slot, capture);
            let loaded = DeviceSettings::load(Sources::of_document(document.clone(), &file));
            devices.extend(taken(loaded, &mut found).map(|settings| Tier { settings, document }));
        }
        let has_other_cloud = aggregator.values.contains_key("cloud.url");
        if let Some(line) = cloud.values.values().map(|found| found.line).min().filter(|_| has_other_cloud) {
            let text = "a table of the site's own cloud, which does not run beside that of [aggregator.cloud] url; leave out one of them";
            mistakes.push(Mistake::at(line, "cloud", text));
        }
        let listen = cloud.values.get("http.listen").and_then(|found| found.value.as_str());
        let network = bundle.as_ref().map(Bundle::manifest);
        let aggregator = shared.aggregator(aggregator, &cameras, network, listen);
        let aggregator = tier::<AggregatorSettings>(aggregator, &file, &mut found);
        let cloud = tier::<CloudSettings>(shared.cloud(cloud), &file, &mut found);
        let in_file =
            |mistake: &Mistake| format!("{} ({file}:{})", mistake.reason(), mistake.line.unwrap_or(NO_LINE));
        // Cameras share the settings of `[device]`, and so their mistakes.
        let mut named = BTreeSet::new();
        let found = mistakes.iter().map(in_file).chain(found);
        let found: Vec<_> = found.filter(|mistake| named.insert(mistake.clone())).collect();
        let read = bundle.zip(aggregator).zip(cloud).filter(|_| found.is_empty());
        let ((bundle, aggregator), cloud) = read.ok_or(found)?;
        let cloud = (!has_other_cloud).then_some(cloud);
        Ok(Self { broker: settings.broker.clone(), state_dir, devices, aggregator, cloud, bundle })
    }

    /// Kind of capture, which is the same for every camera.
    pub(super) fn capture(&self) -> Capture {
        self.devices.first().map_or(Capture::Trigger, |device| device.settings.capture())
    }
}

/// The settings of a service; `None` if they have mistakes, which are added to `mistakes`.
fn taken<S>(loaded: Result<Loaded<S>, Stop>, mistakes: &mut Vec<String>) -> Option<S> {
    loaded.map(|loaded| loaded.settings).map_err(|stop| mistakes.extend(stop.into_mistakes())).ok()
}

fn tier<S: Program>(document: Document, file: &str, mistakes: &mut Vec<String>) -> Option<Tier<S>> {
    let loaded = load::<S>(Sources::of_document(document.clone(), file));
    taken(loaded, mistakes).map(|settings| Tier { settings, document })
}

/// The tables `[cameras]`, `[device]`, `[aggregator]` and `[cloud]`, with keys relative to the table, and the rest of a site file.
fn tables(document: Document, mistakes: &mut Vec<Mistake>) -> [Document; 5] {
    const TABLES: [&str; 4] = ["cameras.", "device.", "aggregator.", "cloud."];
    let mut parts: [Document; 5] = Default::default();
    parts[4].tables = document.tables;
    for (key, found) in document.values {
        // A shell would put the home folder there; here a folder named `~` would be made.
        if found.value.as_str().is_some_and(|text| text == "~" || text.starts_with("~/")) {
            let text = "`~` is not the home folder in this file; write the whole path";
            mistakes.push(Mistake::at(found.line, key.as_str(), text));
        }
        let table = TABLES.iter().position(|table| key.starts_with(table));
        let Some((at, own)) = table.and_then(|at| Some((at, key.strip_prefix(TABLES[at])?))) else {
            parts[4].values.insert(key, found);
            continue;
        };
        if at > 0 && OWN_KEYS.contains(&own) {
            let text = "the site file sets it by keys of its own; leave it out";
            mistakes.push(Mistake::at(found.line, key, text));
        } else {
            parts[at].values.insert(own.to_owned(), found);
        }
    }
    parts
}

/// Refuses settings of `[device]` that no two cameras can have.
fn refuse_shared(device: &Document, cameras: &[Camera], mistakes: &mut Vec<Mistake>) {
    let is_own = |key: &str| key == "state_dir" || key.starts_with("admin.");
    for (key, found) in device.values.iter().filter(|(key, _)| cameras.len() > 1 && is_own(key)) {
        let text = "expected with one camera alone, since each needs its own; leave it out";
        mistakes.push(Mistake::at(found.line, format!("device.{key}"), text));
    }
}

/// Line of a key of the site file itself.
fn line_of(own: &Document, key: &str) -> usize {
    own.values.get(key).map_or(NO_LINE, |found| found.line)
}

/// Values of the site file for several services.
struct Shared<'a> {
    settings: &'a SiteSettings,
    /// Keys of the site file itself.
    own: &'a Document,
    /// Folder of the site file.
    folder: &'a Path,
    state_dir: &'a Path,
    /// True when results have details, such as the names of their frames. False at a broker that the site does not start, to save bytes.
    has_details: bool,
}

impl Shared<'_> {
    fn capture(&self, cameras: &[Camera]) -> Capture {
        let period_ms = self.settings.every_ms.unwrap_or(EVERY_MS);
        match (self.settings.capture, self.settings.every_ms, cameras) {
            (Some(CaptureWord::Trigger), ..) => Capture::Trigger,
            (Some(CaptureWord::Source), ..) => Capture::Source,
            (None, None, [only]) if only.gives_samples() => Capture::Source,
            (Some(CaptureWord::Clock) | None, ..) => Capture::Clock { period_ms },
        }
    }

    /// A key of the site file as a key of a service.
    fn set(&self, document: &mut Document, key: &str, value: impl Into<Toml>) {
        let line = line_of(self.own, key.split('.').next().unwrap_or(key));
        document.values.insert(key.into(), Located { value: value.into(), line });
    }

    fn set_group(&self, document: &mut Document) {
        let SiteSettings { bundle, site, group, broker, .. } = self.settings;
        self.set(document, "bundle", absolute(bundle));
        self.set(document, "site", site.as_ref().map_or_else(|| site_name(self.folder), ToString::to_string));
        self.set(document, "group", group.as_str());
        if let Some(BrokerChoice::At(address)) = broker {
            self.set(document, "broker.address", address.to_string());
        }
    }

    fn device(&self, mut document: Document, camera: &Camera, slot: usize, capture: Capture) -> Document {
        document.values.extend(camera.source.clone());
        self.set_group(&mut document);
        let (word, period_ms) = match capture {
            Capture::Trigger => ("trigger", None),
            Capture::Source => ("source", None),
            Capture::Clock { period_ms } => ("clock", Some(period_ms)),
        };
        self.set(&mut document, "capture", word);
        let line = line_of(self.own, "every_ms");
        let period_ms = period_ms.map(|period_ms| Located { value: (period_ms as i64).into(), line });
        document.values.extend(period_ms.map(|period_ms| ("period_ms".to_owned(), period_ms)));
        let of_camera = |value: Toml| Located { value, line: camera.line };
        document.values.insert("id".into(), of_camera(camera.name.as_str().into()));
        document.values.insert("slot".into(), of_camera((slot as i64).into()));
        let state = self.state_dir.join("devices").join(&camera.name);
        set_default(&mut document, "state_dir", absolute(&state));
        if camera.is_folder() {
            set_default(&mut document, "source.folder.end", "end");
        }
        if self.has_details && !document.values.contains_key("batch_ms") {
            set_default(&mut document, "name_frames", true);
        }
        document
    }

    fn aggregator(
        &self,
        mut document: Document,
        cameras: &[Camera],
        network: Option<&NetworkManifest>,
        cloud: Option<&str>,
    ) -> Document {
        self.set_group(&mut document);
        let names: Vec<Toml> = cameras.iter().map(|camera| camera.name.as_str().into()).collect();
        set_default(&mut document, "devices", names);
        let journal = self.state_dir.join(format!("{}.journal", self.settings.group));
        set_default(&mut document, "journal.path", absolute(&journal));
        if self.has_details {
            set_default(&mut document, "details", true);
        }
        set_default(&mut document, "cloud.url", format!("http://{}", cloud.unwrap_or("127.0.0.1:8600")));
        let edges: Vec<Toml> =
            network.into_iter().flat_map(separate_edges).map(|edge| (edge.index() as i64).into()).collect();
        if !edges.is_empty() {
            set_default(&mut document, "local_edges", edges);
        }
        document
    }

    fn cloud(&self, mut document: Document) -> Document {
        self.set(&mut document, "bundle", absolute(&self.settings.bundle));
        // No balancer asks whether the site's own cloud is ready.
        set_default(&mut document, "stop_delay_ms", 0_i64);
        document
    }
}

/// Sets a key that the site file does not set.
fn set_default(document: &mut Document, key: &str, value: impl Into<Toml>) {
    let value = Located { value: value.into(), line: NO_LINE };
    document.values.entry(key.into()).or_insert(value);
}

/// The absolute path, so that a service finds the file from any working directory.
fn absolute(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}

/// Name of a folder as the name of a site.
fn site_name(folder: &Path) -> String {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let name: String =
        name.chars().take(64).map(|letter| if is_letter(letter) { letter } else { '-' }).collect();
    if name.is_empty() { "site".into() } else { name }
}
