//! `headwater up --check`: everything that can be checked without running the site, and one frame of each camera.

use std::time::Duration;

use headwater_end_device::{DeviceSettings, SourceWord};
use headwater_settings::{Finding, Level};

use super::broker::find_mosquitto;
use super::site_file::{BrokerChoice, Site, Tier};
use crate::doctor::{Diagnosis, Section};
use crate::progress::waiting;

/// Longest wait for a frame of a camera.
const FRAME_LIMIT: Duration = Duration::from_secs(10);

/// Prints the findings. Returns true when no finding is a fail.
pub(super) async fn check(site: &Site, is_json: bool) -> anyhow::Result<bool> {
    let section = |tier, name: &str, findings| Section { tier, file: Some(name.into()), findings };
    let mut sections = vec![section("site", "broker", vec![broker(site)])];
    let cloud = site.cloud.iter().map(|cloud| section("cloud", "[cloud]", cloud.settings.checks().0));
    sections.extend(cloud);
    let mut leader = site.aggregator.settings.clone();
    // `headwater up` makes a missing state folder; the checks of the cameras' folders in it find out whether that is possible.
    if !site.state_dir.exists() {
        for group in &mut leader.groups.all {
            let journal = group.journal.path.take();
            group.journal.path = journal.filter(|path| !path.starts_with(&site.state_dir));
        }
    }
    sections.push(section("aggregator", "[aggregator]", leader.checks().0));
    for of_camera in site.devices.chunk_by(Tier::shares_camera) {
        for (region, device) in of_camera.iter().enumerate() {
            let mut findings = device.settings.checks().0;
            // Regions of one camera share its frames.
            if region == 0 && findings.iter().all(|finding| finding.level != Level::Fail) {
                findings.push(camera(&device.settings).await);
            }
            sections.push(section("device", device.settings.id.as_str(), findings));
        }
    }
    let diagnosis = Diagnosis(sections);
    crate::print(&if is_json { diagnosis.json() } else { diagnosis.text() })?;
    Ok(diagnosis.count(Level::Fail) == 0)
}

fn broker(site: &Site) -> Finding {
    let found = match (&site.broker, find_mosquitto()) {
        (Some(BrokerChoice::At(address)), _) => {
            format!("{address}, which is not asked; `headwater doctor` asks it")
        }
        (Some(BrokerChoice::Embedded), _) => {
            "the embedded one, as the file says; for this machine alone".into()
        }
        (None, Some(program)) => format!("Mosquitto ({program}), which is started for the site"),
        (None, None) => "the embedded one, since Mosquitto is not installed; for this machine alone".into(),
    };
    Finding::ok("broker", found)
}

/// Opens the camera of a device and waits for a frame.
async fn camera(settings: &DeviceSettings) -> Finding {
    const CHECK: &str = "camera";
    if settings.source.kind == SourceWord::Watch {
        return Finding::ok(CHECK, "a watched folder, whose next image is not waited for");
    }
    waiting(&format!("a frame of {}", settings.id), FRAME_LIMIT);
    let source = settings.open().map(|(_, _, source)| source).map_err(|error| error.to_string());
    let found = match source {
        Ok(source) => source.first_frame(FRAME_LIMIT).await,
        Err(error) => Err(error),
    };
    match found {
        Ok(Some(frame)) => Finding::ok(CHECK, format!("a frame came: {frame}")),
        Ok(None) => Finding::ok(CHECK, "an archive, which was read"),
        Err(reason) => {
            let advice = match settings.source.kind {
                SourceWord::Http => {
                    "open the address in a browser on this machine; docs/sources.md has the settings of snapshot URLs"
                }
                _ => "look whether the camera is plugged in and used by no other program (docs/up.md)",
            };
            Finding::fail(CHECK, reason, advice)
        }
    }
}
