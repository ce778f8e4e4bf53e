//! Devices with faults, one after the other, and the time until the aggregator's status, metrics and log name each fault.

use std::path::Path;
use std::time::{Duration, Instant};

use headwater_inference::testing::TinyNetwork;
use serde_json::Value;

use super::{DEVICE_NAMES, GROUPS, LIMIT, PERIOD_MS, Part, Site};

const POLL: Duration = Duration::from_millis(10);

/// Wait before an event, after which the leader no longer counts earlier answers that were late or missing.
const CALM: Duration = Duration::from_secs(2);

/// Head of the table.
pub const HEAD: &str = "\
| what happens | state | limit | status | metric | log |
| --- | --- | --- | --- | --- | --- |";

/// An event that happens to a device: a row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// SIGKILL.
    Killed,
    /// SIGSTOP: the device stops, and its connection to the broker stays open.
    Stopped,
    /// SIGKILL and a new start, three times.
    Flapping,
    /// A start with the bundle of another network.
    OtherNetwork,
    /// A start with a wall clock that is a minute ahead.
    ClockAhead,
}

/// Every row, in order.
pub const ROWS: [Event; 5] =
    [Event::Killed, Event::Stopped, Event::Flapping, Event::OtherNetwork, Event::ClockAhead];

impl Event {
    /// Slot of the device in the first group to which the event happens. Each event has its own device, since a device whose connection ends
    /// three times within a minute is flapping.
    fn slot(self) -> usize {
        self as usize + 1
    }

    fn device(self) -> &'static str {
        DEVICE_NAMES[self.slot()]
    }

    fn expected(self) -> Expected {
        let (name, state, reason, limit_ms) = match self {
            Self::Killed => ("SIGKILL", "down", "connection", 1000),
            // Three samples, each with a period and a window of 50 ms, then a check of the aggregator every 250 ms, and 250 ms to spare.
            Self::Stopped => ("SIGSTOP", "silent", "no answer", 3 * (PERIOD_MS + 50) + 250 + 250),
            Self::Flapping => ("SIGKILL three times, the third one", "flapping", "three times", 1000),
            Self::OtherNetwork => {
                ("started with the bundle of another network", "wrong_network", "bundle", 5000)
            }
            Self::ClockAhead => ("started with a clock a minute ahead", "clock_off", "clock", 5000),
        };
        Expected { name, state, reason, limit: Duration::from_millis(limit_ms) }
    }
}

/// Words by which the aggregator must name an event, and the longest time until it does so.
struct Expected {
    /// Name of the event in the table.
    name: &'static str,
    state: &'static str,
    /// Words of the reason that the status page gives.
    reason: &'static str,
    /// Longest time from the event until the state is named. For an event that is a start, the time begins with the start of the program.
    limit: Duration,
}

/// Times from an event until each place named the state.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    event: Event,
    status: Duration,
    metric: Duration,
    log: Duration,
}

impl Named {
    /// The row of the table.
    pub fn line(&self) -> String {
        let Self { event, status, metric, log } = self;
        let Expected { name, state, limit, .. } = event.expected();
        let [limit, status, metric, log] =
            [limit, *status, *metric, *log].map(|time| format!("{:.2} s", time.as_secs_f64()));
        format!("| {name} | `{state}` | {limit} | {status} | {metric} | {log} |")
    }

    /// True when each place named the state within the event's limit.
    pub fn is_in_time(&self) -> bool {
        [self.status, self.metric, self.log].into_iter().all(|time| time <= self.event.expected().limit)
    }
}

/// Lets one event happen on a running site, waits until status, metrics and log name it, and lets the device run again as before. After
/// [`Event::Killed`] and [`Event::Stopped`] the function also waits until the device is up.
///
/// # Errors
/// The places that did not name the state within [`LIMIT`]; that libfaketime is not installed; that a bundle cannot be written.
pub fn run(event: Event, site: &mut Site) -> Result<Named, String> {
    let part = Part::Device { group: 0, slot: event.slot() };
    until(event, site, "up")?;
    std::thread::sleep(CALM);
    let logged = log_length(site);
    let begin = begin(event, site, part)?;
    let named = wait(event, site, (begin, logged))?;
    if event == Event::Stopped {
        site.signal(part, "CONT");
    } else {
        site.bundles.remove(&part);
        site.environment.remove(&part);
        site.start(part);
    }
    if matches!(event, Event::Killed | Event::Stopped) {
        until(event, site, "up")?;
    }
    Ok(named)
}

fn begin(event: Event, site: &mut Site, part: Part) -> Result<Instant, String> {
    let begin = Instant::now();
    match event {
        Event::Killed => site.kill(part),
        Event::Stopped => site.signal(part, "STOP"),
        Event::Flapping => {
            for _ in 0..2 {
                site.kill(part);
                until(event, site, "down")?;
                site.start(part);
                until(event, site, "up")?;
            }
            let begin = Instant::now();
            site.kill(part);
            return Ok(begin);
        }
        Event::OtherNetwork => {
            site.kill(part);
            let bundle = site.folder.join("other.hwb");
            let other = TinyNetwork { slots: 6, view: [3, 32, 32], ..TinyNetwork::default() };
            std::fs::write(&bundle, other.bundle()).map_err(|error| error.to_string())?;
            site.bundles.insert(part, bundle);
            return Ok(started(site, part));
        }
        Event::ClockAhead => {
            site.fake_clock(part, "FAKETIME", "+60s")?;
            site.kill(part);
            return Ok(started(site, part));
        }
    }
    Ok(begin)
}

fn started(site: &mut Site, part: Part) -> Instant {
    let begin = Instant::now();
    site.start(part);
    begin
}

/// Waits until the status, the metrics and the log name the device with the event's state.
fn wait(event: Event, site: &Site, (begin, logged): (Instant, usize)) -> Result<Named, String> {
    let (device, Expected { name, state, reason, .. }) = (event.device(), event.expected());
    let series = format!(
        "headwater_aggregator_device_state{{device=\"{device}\",group=\"{}\",site=\"{}\",state=\"{state}\"}}",
        GROUPS[0],
        super::SITE
    );
    let words: &[String] = &match event {
        // The log names the reason of a refused birth, and no state.
        Event::OtherNetwork => [format!("device={device}"), "wrong_network".to_owned()],
        _ => [format!("device={device}"), format!("state=\"{state}\"")],
    };
    let (mut status, mut metric, mut log) = (None, None, None);
    while begin.elapsed() < LIMIT {
        let at = || Some(begin.elapsed());
        let is_named = |entry: Value| {
            entry["state"] == state && entry["reason"].as_str().is_some_and(|why| why.contains(reason))
        };
        if status.is_none() && status_entry(event, site).is_some_and(is_named) {
            status = at();
        }
        if metric.is_none() && site.metrics().contains_key(&series) {
            metric = at();
        }
        if log.is_none()
            && new_lines(site, logged).lines().any(|line| words.iter().all(|word| line.contains(word)))
        {
            log = at();
        }
        if let (Some(status), Some(metric), Some(log)) = (status, metric, log) {
            return Ok(Named { event, status, metric, log });
        }
        std::thread::sleep(POLL);
    }
    Err(format!("{name}: {device} is not named {state}: status {status:?}, metric {metric:?}, log {log:?}"))
}

/// Entry of the device on the aggregator's status page; `None` if there is no page or no entry.
fn status_entry(event: Event, site: &Site) -> Option<Value> {
    let status: Value = serde_json::from_str(&site.admin("/status")).ok()?;
    let groups = status["groups"].as_array()?;
    let group = groups.iter().find(|group| group["group"] == GROUPS[0])?;
    let devices = group["devices"].as_array()?;
    devices.iter().find(|device| device["name"] == event.device()).cloned()
}

fn until(event: Event, site: &Site, state: &str) -> Result<(), String> {
    let begin = Instant::now();
    loop {
        let found = status_entry(event, site).unwrap_or_default();
        if found["state"] == state {
            return Ok(());
        }
        if begin.elapsed() > LIMIT {
            return Err(format!("expected {} to be {state}, found {found} after {LIMIT:?}", event.device()));
        }
        std::thread::sleep(POLL);
    }
}

fn log_length(site: &Site) -> usize {
    read_log(&site.log(Part::Aggregator)).len()
}

fn new_lines(site: &Site, from: usize) -> String {
    read_log(&site.log(Part::Aggregator)).split_off(from)
}

fn read_log(path: &Path) -> String {
    // Only our own program writes the log, so the log is UTF-8.
    std::fs::read_to_string(path).unwrap_or_default()
}
