//! Devices that are killed, silent, flapping, or have another network or a wrong clock: status, metrics and log of the aggregator name each
//! of these devices.

use std::path::Path;
use std::time::{Duration, Instant};

use headwater_tests::site::states::{self, Event};
use headwater_tests::site::{LIMIT, Part, Site};
use serde_json::{Value, json};

/// A site without a cloud, whose group has devices in these slots.
fn site_of(folder: &Path, slots: impl IntoIterator<Item = usize>) -> Site {
    let mut site = Site::without_identity(folder, 1);
    let devices = slots.into_iter().map(|slot| Part::Device { group: 0, slot });
    [Part::Broker, Part::Aggregator].into_iter().chain(devices).for_each(|part| site.start(part));
    site
}

#[track_caller]
fn check(event: Event, site: &mut Site) {
    states::run(event, site).unwrap_or_else(|reason| panic!("{reason}"));
}

/// The group on the aggregator's status page; null without an answer.
fn group(site: &Site) -> Value {
    let status: Value = serde_json::from_str(&site.admin("/status")).unwrap_or_default();
    status["groups"][0].clone()
}

#[test]
fn each_device_that_is_not_well_is_named_and_well_again_afterwards() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut site = site_of(folder.path(), 1..=5);
    let begin = Instant::now();
    let is_whole = |page: &Value| {
        let devices = page["devices"].as_array().map_or(0, Vec::len);
        devices == 5 && page["empty_slots"] == json!([0])
    };
    let mut page = group(&site);
    while !is_whole(&page) {
        assert!(begin.elapsed() < LIMIT, "{page:#}");
        std::thread::sleep(Duration::from_millis(20));
        page = group(&site);
    }
    assert_eq!((&page["state"], &page["broker"]["connected"]), (&json!("leading"), &json!(true)), "{page:#}");
    let version = page["devices"][0]["version"].as_str();
    assert!(version.is_some_and(|version| version.starts_with("headwater-device/")), "{page:#}");
    for event in states::ROWS {
        check(event, &mut site);
    }
}

#[test]
fn a_group_whose_only_device_is_silent_is_told_by_its_period() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    check(Event::Stopped, &mut site_of(folder.path(), [2]));
}
