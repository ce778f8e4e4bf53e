//! `headwater up --split`: settings files for the separate programs of a site.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::Context;
use headwater_end_device::DeviceSettings;
use headwater_toml_file::Document;

use super::site_file::{BrokerChoice, Site, Tier};
use crate::BadUsage;

/// Writes a settings file for each program into a folder, and prints the commands that run them.
///
/// # Errors
/// [`BadUsage`] for a file that is there already; the system's error for one that cannot be written.
pub(super) fn write(site: &Site, file: &Path, folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    let cloud = site.cloud.iter().map(|cloud| ("cloud", "cloud".to_owned(), &cloud.document));
    let aggregator = [("aggregator", "aggregator".to_owned(), &site.aggregator.document)];
    let devices: Vec<_> = site.devices.chunk_by(Tier::shares_camera).map(of_camera).collect();
    let devices = devices.iter().map(|(name, document)| ("device", name.clone(), document));
    let mut commands = String::new();
    for (program, name, document) in cloud.chain(aggregator).chain(devices) {
        let path = folder.join(format!("{name}.toml"));
        let heading = format!(
            "# Made by `headwater up {} --split`. `headwater-{program} --help` explains every key, and those that are left out.\n",
            file.display()
        );
        // Settings may hold the passwords of cameras.
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let mut made = made.map_err(|error| {
            BadUsage(format!("--split: {}: {error}; name a new folder, or remove the file", path.display()))
        })?;
        let text = heading + &settings_text(document);
        made.write_all(text.as_bytes()).with_context(|| format!("writing {}", path.display()))?;
        commands += &format!("  headwater-{program} --config {}\n", path.display());
    }
    let broker = match &site.broker {
        Some(BrokerChoice::At(address)) => format!("  # with the broker {address}\n"),
        Some(BrokerChoice::Embedded) | None => "  mosquitto -c deploy/mosquitto.conf\n".to_owned(),
    };
    let state = site.state_dir.display();
    crate::print(&format!(
        "The programs of this site, each in a terminal of its own or as a service (docs/site.md):\n  mkdir -p {state}\n{broker}{commands}\
         On other machines: the broker's name in `broker.address`, the cloud's in `cloud.url`, and certificates (headwater enroll).\n\
         `headwater doctor --aggregator {} --device ...` looks for mistakes.\n",
        folder.join("aggregator.toml").display()
    ))
}

/// Name and settings of the program of one camera; where the camera has regions, with a table for the device of each.
fn of_camera(devices: &[Tier<DeviceSettings>]) -> (String, Document) {
    const OWN: [&str; 4] = ["id", "slot", "state_dir", "source.roi"];
    let mut document = devices[0].document.clone();
    if devices.len() > 1 {
        let table = |device: &Tier<DeviceSettings>| {
            let mut own = device.document.clone();
            own.values.retain(|key, _| OWN.contains(&key.as_str()));
            own
        };
        document.values.retain(|key, _| !OWN.contains(&key.as_str()));
        document.tables.insert("devices".into(), devices.iter().map(table).collect());
    }
    (format!("device-{}", devices[0].settings.id), document)
}

/// Settings as a file: keys without a section first, arrays of tables last.
fn settings_text(document: &Document) -> String {
    let mut sections: BTreeMap<&str, String> = BTreeMap::new();
    for (key, found) in &document.values {
        let (section, name) = key.rsplit_once('.').unwrap_or(("", key.as_str()));
        *sections.entry(section).or_default() += &format!("{name} = {}\n", found.value);
    }
    let text = |(section, keys): (&str, String)| match section {
        "" => keys,
        section => format!("\n[{section}]\n{keys}"),
    };
    let sections: String = sections.into_iter().map(text).collect();
    let tables = document.tables.iter().flat_map(|(array, tables)| {
        tables.iter().map(move |table| {
            let keys = table.values.iter().map(|(key, found)| format!("{key} = {}\n", found.value));
            format!("\n[[{array}]]\n{}", keys.collect::<String>())
        })
    });
    sections + &tables.collect::<String>()
}
