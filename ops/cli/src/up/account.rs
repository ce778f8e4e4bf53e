//! The account of a run, and the file that the next run reads.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::path::{Path, PathBuf};

use anyhow::Context;
use headwater_edge_aggregator::{GroupEnd, GroupReport};
use headwater_end_device::{Capture, Ended};
use headwater_protocol::{DeviceId, Dropped, Undecided};
use headwater_telemetry::print_error;
use serde::Serialize;

use super::cameras::EndedCamera;
use crate::named;

#[derive(Debug, Default, Serialize)]
pub(super) struct Account {
    /// Samples that each camera captured.
    captured: BTreeMap<DeviceId, u64>,
    /// Frames that gave no view, by camera and kind of fault; cameras without faults are left out.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    frame_faults: BTreeMap<DeviceId, BTreeMap<&'static str, u64>>,
    /// Entries of each camera's folder that were passed over, by reason; cameras without any are left out.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    passed_over: BTreeMap<DeviceId, BTreeMap<&'static str, u64>>,
    /// Number of results, including results without a class.
    pub(super) decided: u64,
    /// Results without a class, by reason.
    undecided: BTreeMap<Undecided, u64>,
    /// Samples without a result, by reason.
    dropped: BTreeMap<Dropped, u64>,
    /// Samples that the leader left open, and answers that devices could not send.
    unsettled: u64,
    /// Cameras whose source broke off or whose section failed.
    pub(super) broke_off: Vec<DeviceId>,
}

impl Account {
    pub(super) fn add(&mut self, EndedCamera { ended, report, unsent }: EndedCamera) {
        if matches!(ended, Ended::SourceBroke | Ended::Model) {
            self.broke_off.push(report.device.clone());
        }
        self.unsettled += unsent;
        let not_none = |counts: BTreeMap<&'static str, u64>| -> BTreeMap<_, _> {
            counts.into_iter().filter(|(_, count)| *count > 0).collect()
        };
        let counts = [
            (&mut self.frame_faults, not_none(report.counts.frame_faults)),
            (&mut self.passed_over, not_none(report.counts.passed_over)),
        ];
        for (all, of_camera) in counts.into_iter().filter(|(_, of_camera)| !of_camera.is_empty()) {
            all.insert(report.device.clone(), of_camera);
        }
        self.captured.insert(report.device, report.counts.captured);
    }

    pub(super) fn add_group(&mut self, GroupEnd { outcome, .. }: GroupEnd) {
        match outcome {
            Ok(GroupReport::Leader(leader)) => {
                (self.decided, self.undecided, self.dropped) =
                    (leader.decided, leader.undecided, leader.dropped);
                self.unsettled += leader.open + leader.awaited;
            }
            Ok(GroupReport::Edge(_)) => {}
            Err(failure) => print_error(&format!("the leader failed: {failure}")),
        }
    }
}

impl Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let listed = |text: String| if text.is_empty() { text } else { format!(" ({text})") };
        let undecided =
            self.undecided.iter().map(|(reason, count)| (format!("undecided {}", reason.name()), count));
        let dropped = self.dropped.iter().map(|(reason, count)| (reason.name(), count));
        write!(
            f,
            "captured {}{}; decided {}{}; dropped {}{}; unsettled {}",
            self.captured.values().sum::<u64>(),
            listed(named(&self.captured)),
            self.decided,
            listed(named(undecided)),
            self.dropped.values().sum::<u64>(),
            listed(named(dropped)),
            self.unsettled
        )?;
        for (what, counts) in
            [("frames without a view", &self.frame_faults), ("passed over", &self.passed_over)]
        {
            let of_cameras: Vec<_> =
                counts.iter().map(|(camera, kinds)| format!("{camera}: {}", named(kinds))).collect();
            if !of_cameras.is_empty() {
                write!(f, "; {what}: {}", of_cameras.join("; "))?;
            }
        }
        Ok(())
    }
}

/// Numbering of the run before this one, and its unsettled samples: two lines in a file of the state folder.
pub(super) struct LastRun {
    file: PathBuf,
    numbering: String,
    before: String,
}

/// The second line of a run that ended with every sample settled.
const ALL_SETTLED: &str = "unsettled 0";

impl LastRun {
    /// Reads the file of the run before; a missing file counts as empty.
    pub(super) fn read(state_dir: &Path, capture: Capture) -> Self {
        let numbering = match capture {
            Capture::Clock { period_ms } => format!("a clock of {period_ms} ms"),
            Capture::Source => "a source".to_owned(),
            Capture::Trigger => "triggers".to_owned(),
        };
        let file = state_dir.join("last-run");
        let before = std::fs::read_to_string(&file).unwrap_or_default();
        Self { file, numbering, before }
    }

    /// Returns true when this run forgets the ids of the run before: this run numbers samples in another way, every earlier sample is settled,
    /// and the broker is the site's own, where nobody knows earlier ids. The spools of the devices are removed then. `folders` are the state
    /// folders of the devices.
    ///
    /// # Errors
    /// Answers under earlier ids that cannot be removed from the devices' spools.
    pub(super) fn is_forgotten<'a>(
        &self,
        is_own_broker: bool,
        folders: impl Iterator<Item = &'a Path>,
    ) -> anyhow::Result<bool> {
        let Some((before, unsettled)) = self.before.trim_end().split_once('\n') else { return Ok(false) };
        let is_forgotten = before != self.numbering && is_own_broker && unsettled == ALL_SETTLED;
        if is_forgotten {
            // Cameras that the site file no longer names still have a folder.
            let earlier =
                std::fs::read_dir(self.file.with_file_name("devices")).into_iter().flatten().flatten();
            for folder in folders.map(Path::to_owned).chain(earlier.map(|folder| folder.path())) {
                let spool = folder.join("spool");
                if spool.exists() {
                    std::fs::remove_dir_all(&spool)
                        .with_context(|| format!("removing {}", spool.display()))?;
                }
            }
            let numbering = &self.numbering;
            print_error(&format!(
                "samples are numbered by {numbering} from now on, before by {before}: ids begin anew"
            ));
        }
        Ok(is_forgotten)
    }

    /// Returns true when the run before did not end in order.
    pub(super) fn was_cut_off(&self) -> bool {
        self.before.ends_with("unsettled unknown\n")
    }

    /// Writes the file that the next run reads. `account` is `None` while the run is under way, and after a failure.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub(super) fn write(&self, account: Option<&Account>) -> anyhow::Result<()> {
        let unsettled = account.map_or_else(|| "unknown".to_owned(), |account| account.unsettled.to_string());
        let text = format!("{}\nunsettled {unsettled}\n", self.numbering);
        std::fs::write(&self.file, text).with_context(|| format!("writing {}", self.file.display()))
    }
}

#[cfg(test)]
mod tests {
    use headwater_end_device::{DeviceCounts, DeviceReport};
    use headwater_protocol::{Boot, Slot};

    use super::*;

    #[test]
    fn ids_begin_anew_only_where_nothing_is_at_stake() {
        let folder = tempfile::tempdir().unwrap();
        let run = |period_ms| LastRun::read(folder.path(), Capture::Clock { period_ms });
        let own = folder.path().join("elsewhere");
        let forgets = |period_ms, is_own| run(period_ms).is_forgotten(is_own, [&*own].into_iter()).unwrap();
        assert!(!forgets(500, true), "there was no run before");
        run(500).write(Some(&Account::default())).unwrap();
        let spool = folder.path().join("devices/front/spool");
        let spools = [spool, own.join("spool")];
        spools.iter().for_each(|spool| std::fs::create_dir_all(spool).unwrap());
        assert!(!forgets(500, true) && !forgets(1000, false) && spools.iter().all(|spool| spool.exists()));
        assert!(forgets(1000, true) && !spools.iter().any(|spool| spool.exists()), "answers of earlier ids");
        for account in [None, Some(&Account { unsettled: 1, ..Account::default() })] {
            run(500).write(account).unwrap();
            assert!(!forgets(1000, true));
            assert_eq!(run(500).was_cut_off(), account.is_none());
        }
    }

    #[test]
    fn answers_that_a_camera_could_not_send_are_unsettled() {
        let mut account = Account::default();
        let report = DeviceReport {
            device: "front".parse().unwrap(),
            slot: Slot::new(0).unwrap(),
            boot: Boot(1),
            counts: DeviceCounts { captured: 4, ..DeviceCounts::default() },
        };
        account.add(EndedCamera { ended: Ended::Stopped, report, unsent: 2 });
        assert!(account.to_string().ends_with("unsettled 2"), "{account}");
    }

    #[test]
    fn the_account_names_cameras_and_reasons() {
        let mut account = Account { decided: 3, ..Account::default() };
        account.captured.insert("front".parse().unwrap(), 4);
        account.undecided.insert(Undecided::NoView, 1);
        account.dropped.insert(Dropped::Shed, 1);
        let expected =
            "captured 4 (front 4); decided 3 (undecided no_view 1); dropped 1 (shed 1); unsettled 0";
        assert_eq!(account.to_string(), expected);
        let counts = DeviceCounts {
            frame_faults: [("cut", 2), ("oversize", 1)].into(),
            passed_over: [("hidden", 0), ("other_name", 3)].into(),
            ..DeviceCounts::default()
        };
        let report = DeviceReport {
            device: "yard".parse().unwrap(),
            slot: Slot::new(1).unwrap(),
            boot: Boot(1),
            counts,
        };
        account.add(EndedCamera { ended: Ended::Source, report, unsent: 0 });
        let expected = "; frames without a view: yard: cut 2, oversize 1; passed over: yard: other_name 3";
        assert!(account.to_string().ends_with(expected), "{account}");
        assert_eq!(serde_json::to_value(&account).unwrap()["captured"]["front"], 4);
    }
}
