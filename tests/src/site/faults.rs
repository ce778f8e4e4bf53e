//! The fault table: the ends of the samples of a site while parts are killed, stopped, cut off, or have a wrong clock.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use headwater_group::GroupClient;
use headwater_protocol::{SampleId, Slot, SlotPresence};

use super::account::{Outcome, Reference, SampleRange, outcomes, receive, sample_now};
use super::{DEVICE_NAMES, DEVICES, PERIOD_MS, Part, Site};

/// Size of each row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Number of samples of a row, over all groups.
    pub samples: u64,
    /// Number of SIGKILLs in a row whose fault is a kill.
    pub kills: u32,
    /// Time for which a part is stopped, a clock is wrong, or a disk is full.
    pub pause: Duration,
    /// Seed of the random choice of the devices that are killed or stopped.
    pub seed: u64,
}

/// The fault of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No fault: the row with which the other rows are compared.
    None,
    /// SIGKILL and a restart, again and again.
    Kill(Target),
    /// SIGSTOP for a while: the connections of the part stay open, and the part does not answer.
    Stop(Target),
    /// The wall clock of a part steps by this number of seconds, and later back.
    Clock(Target, i64),
    /// The disk of the journals is full for a while.
    FullDisk,
    /// The certificates of broker, cloud, leaders and devices are replaced. The broker reads its own again at SIGHUP, and is later killed and
    /// started.
    Renew,
    /// The certificate of a device is revoked, and the broker reads the list of revoked certificates again.
    Revoke,
}

/// The part of the site that a fault hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The broker.
    Broker,
    /// The broker, whose file of retained messages is removed while the broker is down, so that it starts without retained messages.
    ForgetfulBroker,
    /// The cloud service.
    Cloud,
    /// The aggregator.
    Aggregator,
    /// One device, drawn anew each time.
    Device,
}

/// Faults of the rows, in the order of the table.
pub const ROWS: [Fault; 16] = [
    Fault::None,
    Fault::Kill(Target::Device),
    Fault::Kill(Target::Aggregator),
    Fault::Kill(Target::Cloud),
    Fault::Kill(Target::Broker),
    Fault::Stop(Target::Device),
    Fault::Stop(Target::Aggregator),
    Fault::Stop(Target::Cloud),
    Fault::Stop(Target::Broker),
    Fault::Clock(Target::Device, 3600),
    Fault::Clock(Target::Device, -3600),
    Fault::Clock(Target::Aggregator, 3600),
    Fault::Clock(Target::Aggregator, -3600),
    Fault::FullDisk,
    Fault::Renew,
    Fault::Revoke,
];

/// A row of the table with its results.
#[derive(Clone, Debug)]
pub struct Row {
    /// The fault.
    pub fault: Fault,
    /// Number of samples of the row, over all groups.
    pub samples: u64,
    /// Outcome of each group, in the order of [`Site::groups`]; empty for a skipped row. A sum of rows has the outcomes of every row.
    pub outcomes: Vec<Outcome>,
    /// The part whose resident memory grew most, with the growth in KiB; `None` if no part ran during the whole row.
    pub growth: Option<(Part, i64)>,
    /// True when the device whose clock stepped answers with its group again, and in rows that step no device's clock.
    pub has_returned: bool,
    /// Reason why the row could not be run; `None` if the row was run.
    pub skipped: Option<String>,
}

impl Fault {
    /// Name in the table.
    pub fn name(self) -> String {
        match self {
            Self::None => "no fault".into(),
            Self::Kill(target) => format!("SIGKILL {}", target.name()),
            Self::Stop(target) => format!("SIGSTOP {}", target.name()),
            Self::Clock(target, seconds) => format!("clock of {} {seconds:+} s, and back", target.name()),
            Self::FullDisk => "disk of the journals full, then freed".into(),
            Self::Renew => "every certificate replaced".into(),
            Self::Revoke => "a device's certificate revoked".into(),
        }
    }
}

impl Target {
    fn name(self) -> &'static str {
        match self {
            Self::Broker => "broker",
            Self::ForgetfulBroker => "broker, which forgets",
            Self::Cloud => "cloud",
            Self::Aggregator => "aggregator",
            Self::Device => "device",
        }
    }

    /// The next part to hit, on a site with this number of groups. `random` is the state of the random numbers.
    fn part(self, groups: usize, random: &mut u64) -> Part {
        match self {
            Self::Broker | Self::ForgetfulBroker => Part::Broker,
            Self::Cloud => Part::Cloud,
            Self::Aggregator => Part::Aggregator,
            Self::Device => {
                let bits = next_random(random) as usize;
                Part::Device { group: bits % groups, slot: bits / groups % DEVICES }
            }
        }
    }
}

/// The next random number after the state `random`: `SplitMix64` (Steele, Lea, Flood 2014).
pub(super) fn next_random(random: &mut u64) -> u64 {
    *random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut bits = *random;
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

impl Row {
    /// True when each captured sample has one end, no complete answer is wrong, the clients have received each decision (not required after a
    /// kill of the broker), and a device whose clock stepped answers with its group again. True for a skipped row.
    pub fn is_sound(&self) -> bool {
        let may_miss =
            matches!(self.fault, Fault::Kill(Target::Broker | Target::ForgetfulBroker) | Fault::Renew);
        let is_sound = |outcome: &Outcome| outcome.is_sound() && (may_miss || outcome.unseen == 0);
        self.has_returned && self.outcomes.iter().all(is_sound)
    }

    /// Adds the results of another row of the same fault.
    pub fn add(&mut self, other: Self) {
        self.samples += other.samples;
        self.outcomes.extend(other.outcomes);
        self.growth = [self.growth, other.growth].into_iter().flatten().max_by_key(|(_, kib)| *kib);
        self.has_returned &= other.has_returned;
        self.skipped = self.skipped.take().and(other.skipped);
    }

    /// Line of a Markdown table.
    pub fn line(&self) -> String {
        let stays_out = if self.has_returned { "" } else { " (**the device stayed outside its group**)" };
        let name = format!("{}{stays_out}", self.fault.name());
        if let Some(reason) = &self.skipped {
            return format!("| {name} | not run: {reason} | | | | | | | | |");
        }
        let sum = |of: fn(&Outcome) -> u64| self.outcomes.iter().map(of).sum::<u64>();
        let mut dropped = BTreeMap::new();
        for (reason, count) in self.outcomes.iter().flat_map(|outcome| &outcome.dropped) {
            *dropped.entry(reason.name()).or_insert(0) += count;
        }
        let mut drops = String::new();
        for (reason, count) in dropped {
            let _ = write!(drops, "{}{count} {reason}", if drops.is_empty() { "" } else { ", " });
        }
        let compacted = sum(|outcome| outcome.compacted);
        if compacted > 0 {
            let _ = write!(drops, "; {compacted} ended and no longer in the journal");
        }
        let growth = self.growth.map(|(part, kib)| format!("{kib:+} KiB ({part})")).unwrap_or_default();
        format!(
            "| {name} | {} | {} | {} | {} | {} | {} | {} | {} | {growth} |",
            self.samples,
            sum(|outcome| outcome.decided),
            sum(|outcome| outcome.complete),
            if drops.is_empty() { "0" } else { &drops },
            sum(|outcome| outcome.open.len() as u64 - outcome.lost()),
            sum(Outcome::lost),
            sum(|outcome| outcome.contradicted + outcome.wrong.len() as u64),
            sum(|outcome| outcome.unseen),
        )
    }
}

/// Head of the Markdown table.
pub const HEAD: &str = "\
| fault | samples | decided | of these complete | dropped, by reason | captured by no camera | without an end | two answers or a wrong one | not seen by the client | memory |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |";

/// Prepares a site that does not run yet: one device and the aggregator get clocks that can be stepped, and the journals get a small disk of
/// their own. Returns a text on each thing that this machine lacks; the list is empty if it lacks nothing. Rows that need nothing of the
/// list can still be run.
///
/// # Panics
/// When the folder cannot be written.
pub fn prepare(site: &mut Site) -> Vec<String> {
    let mut lacks = Vec::new();
    for part in [CLOCKED_DEVICE, Part::Aggregator] {
        let file = clock_file(site, part);
        match site.fake_clock(part, "FAKETIME_TIMESTAMP_FILE", &file.display().to_string()) {
            Ok(()) => std::fs::write(&file, "+0s").expect("the folder can be written"),
            Err(reason) => {
                lacks.push(reason);
                break;
            }
        }
    }
    if !site.mount_journals() {
        lacks.push("a small disk for the journals needs the rights of root (mount)".to_owned());
    }
    lacks
}

/// The device whose clock steps.
const CLOCKED_DEVICE: Part = Part::Device { group: 0, slot: 2 };

/// Group and slot of the device whose certificate is revoked. The device stays cut off, so [`Fault::Revoke`] is the last row.
const REVOKED: (usize, usize) = (1, 4);

fn clock_file(site: &Site, part: Part) -> PathBuf {
    site.folder.join(format!("{}.clock", part.to_string().replace([' ', '/'], "-")))
}

/// Runs one row on a running site.
///
/// # Panics
/// When a part does not start again, or a message of a leader cannot be read.
pub async fn run(
    fault: Fault,
    site: &mut Site,
    clients: &mut [GroupClient],
    (reference, extent): (&Reference, Extent),
) -> Row {
    let groups = site.groups.len() as u64;
    let each = extent.samples / groups;
    let (range, before) = (SampleRange::begin(site, each), site.resident_kib());
    let last = *range.samples.end();
    let skipped = inflict(fault, site, clients, extent).await.err();
    if skipped.is_some() {
        return Row { fault, samples: 0, outcomes: Vec::new(), growth: None, has_returned: true, skipped };
    }
    let left = last.saturating_sub(sample_now());
    receive(clients, Duration::from_millis(left * PERIOD_MS)).await;
    let outcomes = outcomes(site, clients, range, reference).await;
    let growth = largest_growth(&before, &site.resident_kib());
    let has_stepped = matches!(fault, Fault::Clock(Target::Device, _));
    let has_returned = !has_stepped || has_returned(clients).await;
    Row { fault, samples: each * groups, outcomes, growth, has_returned, skipped: None }
}

/// Number of times that [`has_returned`] looks at a device for 3 s: on a busy machine the device may be missing for some time.
const RETURN_LOOKS: usize = 5;

/// True when the device whose clock stepped answers with its group again: it is missing in at most 1 of 10 decisions within 3 s.
async fn has_returned(clients: &mut [GroupClient]) -> bool {
    let Part::Device { group, slot } = CLOCKED_DEVICE else { return false };
    let slot = Slot::new(slot as u8).expect("below 64");
    for _ in 0..RETURN_LOOKS {
        let first = sample_now();
        receive(clients, Duration::from_secs(3)).await;
        let account = clients[group].account();
        let decisions = (first..sample_now()).filter_map(|sample| account.decision(SampleId(sample)));
        let (mut all, mut with_it) = (0, 0);
        for decision in decisions {
            all += 1;
            with_it += u64::from(decision.presence.get(slot) != SlotPresence::Missing);
        }
        if all > 0 && with_it * 10 >= all * 9 {
            return true;
        }
    }
    false
}

/// Lets the fault of a row happen.
///
/// # Errors
/// The program or the right that this machine lacks for the fault.
async fn inflict(
    fault: Fault,
    site: &mut Site,
    clients: &mut [GroupClient],
    extent: Extent,
) -> Result<(), String> {
    let groups = site.groups.len();
    let time = Duration::from_millis(extent.samples / groups as u64 * PERIOD_MS);
    match fault {
        Fault::None => receive(clients, time).await,
        Fault::Kill(target) => kill_again_and_again(target, site, clients, (extent, time)).await,
        Fault::Stop(target) => {
            receive(clients, time / 4).await;
            let mut random = extent.seed;
            let part = target.part(groups, &mut random);
            site.signal(part, "STOP");
            receive(clients, extent.pause).await;
            site.signal(part, "CONT");
        }
        Fault::Clock(target, seconds) => {
            return step_clock((target, seconds), site, clients, (time / 4, extent.pause)).await;
        }
        Fault::FullDisk => return fill_disk(site, clients, (time / 4, extent.pause)).await,
        Fault::Renew => replace_certificates(site, clients, time / 4).await,
        Fault::Revoke => {
            receive(clients, time / 4).await;
            let (group, slot) = REVOKED;
            site.headwater(&["enroll", "revoke", "--group", &site.groups[group], DEVICE_NAMES[slot]]);
            site.signal(Part::Broker, "HUP");
        }
    }
    Ok(())
}

/// Kills parts with SIGKILL and starts each again after 200 ms, `extent.kills` times, evenly over the time.
async fn kill_again_and_again(
    target: Target,
    site: &mut Site,
    clients: &mut [GroupClient],
    (extent, time): (Extent, Duration),
) {
    let mut random = extent.seed;
    for _ in 0..extent.kills {
        receive(clients, time / (extent.kills + 1)).await;
        let part = target.part(site.groups.len(), &mut random);
        site.kill(part);
        if target == Target::ForgetfulBroker {
            site.forget_retained();
        }
        // A supervisor may take this long to start the part again.
        receive(clients, Duration::from_millis(200)).await;
        site.start(part);
    }
}

/// Sets the wall clock of a part ahead by `seconds`, and right again after the pause.
async fn step_clock(
    (target, seconds): (Target, i64),
    site: &Site,
    clients: &mut [GroupClient],
    (wait, pause): (Duration, Duration),
) -> Result<(), String> {
    let part = if target == Target::Device { CLOCKED_DEVICE } else { Part::Aggregator };
    let file = clock_file(site, part);
    if !file.exists() {
        return Err("libfaketime is not installed".to_owned());
    }
    receive(clients, wait).await;
    std::fs::write(&file, format!("{seconds:+}s")).expect("the folder can be written");
    receive(clients, pause).await;
    std::fs::write(&file, "+0s").expect("the folder can be written");
    Ok(())
}

/// Gives broker, cloud, leaders and devices new certificates, and restarts the broker, so that every client connects again.
async fn replace_certificates(site: &mut Site, clients: &mut [GroupClient], wait: Duration) {
    receive(clients, wait).await;
    site.headwater(&["enroll", "renew", "broker", "cloud"]);
    for group in &site.groups {
        site.headwater(&[&["enroll", "renew", "--group", group, "leader"], &DEVICE_NAMES[..]].concat());
    }
    site.signal(Part::Broker, "HUP");
    // Only new connections show the new certificates.
    receive(clients, wait).await;
    site.kill(Part::Broker);
    site.start(Part::Broker);
}

/// Process id and resident memory in KiB of each part.
type Memory = BTreeMap<Part, (u32, u64)>;

/// The part whose memory grew most, with the growth in KiB. Parts that were started again in between do not count; `None` without other
/// parts.
fn largest_growth(before: &Memory, after: &Memory) -> Option<(Part, i64)> {
    let growth = before.iter().filter_map(|(part, (process, before))| {
        let (_, now) = after.get(part).filter(|(now, _)| now == process)?;
        Some((*part, now.cast_signed() - before.cast_signed()))
    });
    growth.max_by_key(|(_, kib)| *kib)
}

/// Fills the disk of the journals, and frees the disk after the pause.
async fn fill_disk(
    site: &Site,
    clients: &mut [GroupClient],
    (wait, pause): (Duration, Duration),
) -> Result<(), String> {
    if !site.has_own_disk() {
        return Err("a small disk for the journals needs the rights of root (mount)".into());
    }
    receive(clients, wait).await;
    let fill = site.journals.join("fill");
    let mut file = File::create(&fill).map_err(|error| error.to_string())?;
    let block = [0; 4096];
    // The file takes all room again and again, since a compaction of a journal frees room.
    let until = std::time::Instant::now() + pause;
    while std::time::Instant::now() < until {
        while file.write_all(&block).is_ok() {}
        receive(clients, Duration::from_millis(100)).await;
    }
    drop(file);
    std::fs::remove_file(&fill).map_err(|error| error.to_string())
}

impl Site {
    /// Removes the file with the retained messages of a broker that does not run.
    fn forget_retained(&self) {
        let folder = if self.has_identity { self.members().join("broker") } else { self.folder.clone() };
        // A broker that has not yet saved its state has no such file, and forgets its messages anyway.
        let _ = std::fs::remove_file(folder.join("mosquitto.db"));
    }

    /// Puts the journals on a small disk of their own that can be filled. Returns false if the disk cannot be mounted.
    fn mount_journals(&self) -> bool {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=64m", "tmpfs"]).arg(&self.journals);
        mount.status().is_ok_and(|status| status.success())
    }

    /// True when the journals have a disk of their own.
    fn has_own_disk(&self) -> bool {
        let device = |path: &Path| {
            std::fs::metadata(path).map(|metadata| std::os::unix::fs::MetadataExt::dev(&metadata)).ok()
        };
        device(&self.journals) != device(&self.folder)
    }

    /// Unmounts the disk of the journals, and leaves copies of the journals in the site's folder.
    pub fn unmount_journals(&self) {
        if self.has_own_disk() {
            for group in &self.groups {
                let copy = self.folder.join(format!("{group}.jsonl"));
                // The copies only help a person who looks into a failure, so an error is ignored.
                let _ = std::fs::copy(self.journal(group), copy);
            }
            // An error is ignored: a disk that stays mounted only prevents the removal of its folder.
            let _ = Command::new("umount").arg("--lazy").arg(&self.journals).status();
        }
    }
}
