//! `check-site`: a site with identity as real processes, and what faults and rogue clients do to it. `scripts/check/site` runs it.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Parser, Subcommand};
use headwater_group::GroupClient;
use headwater_tests::site::account::{Outcome, Reference, SampleRange, outcomes, receive, reference};
use headwater_tests::site::faults::{self, Extent, Fault, HEAD, Row};
use headwater_tests::site::load::{self, Load, Phases};
use headwater_tests::site::relay::{self, Relay};
use headwater_tests::site::rogue::{self, Attack, Column, RogueRow};
use headwater_tests::site::simulated::Answers;
use headwater_tests::site::{GROUPS, PERIOD_MS, Part, Site, liars, soak, states};
use headwater_transport::held_port;

/// A site as processes over mutual TLS with Mosquitto: two groups of six devices, one aggregator, one cloud service.
#[derive(Debug, Parser)]
#[command(name = "check-site", max_term_width = 100)]
struct Args {
    /// The check to run. Without one, a site must decide with a silent camera, a killed camera and a rogue client.
    #[command(subcommand)]
    command: Option<Check>,
}

#[derive(Debug, Subcommand)]
enum Check {
    /// The fault table: each row kills, pauses or cuts off parts, and every sample must have one end.
    Faults {
        /// Samples of each row, over both groups.
        #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(100..=1_000_000))]
        samples: u64,
        /// SIGKILLs of a row.
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
        kills: u32,
        /// Seconds of a pause, a clock step and a full disk.
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
        pause_s: u64,
        /// Seed of the choice of devices.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Only rows whose name contains this.
        #[arg(long, value_name = "TEXT")]
        only: Option<String>,
    },
    /// The table of states: how soon the status, a metric and the log name a device that is not well.
    States {
        /// Times that each event is provoked.
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
        rounds: u32,
    },
    /// The soak: a kill every 20 s or so and another fault between two kills, for hours, on a site of five groups; every sample must have one
    /// end.
    Soak {
        /// Minutes until no further fault begins.
        #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=10_000))]
        minutes: u64,
        /// Seed of the faults and of the choice of devices.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// The load: simulated devices, six a group, ten samples a second each, on one aggregator over Mosquitto with TLS.
    Load {
        /// Groups; several numbers with commas between are as many runs.
        #[arg(long, value_delimiter = ',', default_value = "50", value_parser = clap::value_parser!(u16).range(1..=1000))]
        groups: Vec<u16>,
        /// Minutes in which samples count. Memory is judged after three tenths of them.
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1000))]
        minutes: u64,
        /// All groups capture at the same moment, not evenly over the period; implies --figures.
        #[arg(long)]
        in_phase: bool,
        /// Print times, memory and shares as figures; only the account of the samples can fail.
        #[arg(long)]
        figures: bool,
        /// Print one JSON object for each run in place of the table.
        #[arg(long)]
        json: bool,
    },
    /// Resident memory of one aggregator with many groups of one bundle, without devices.
    Groups {
        /// Groups. 1,000 need 5,000 open files.
        #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u16).range(1..=10_000))]
        groups: u16,
    },
    /// The rogue table: what clients of each role, a lying cloud, a lying broker and a middle box can do, without identity and with it.
    Rogue {
        /// Seconds of each attack.
        #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=600))]
        seconds: u64,
        /// Only attacks whose name contains this.
        #[arg(long, value_name = "TEXT")]
        only: Option<String>,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    // The folder is kept if something is not as expected, also after a panic.
    let folder = tempfile::tempdir().expect("a temporary folder").keep();
    let is_sound = match args.command {
        None => check_site(&folder).await,
        Some(Check::Faults { samples, kills, pause_s, seed, only }) => {
            let extent = Extent { samples, kills, pause: Duration::from_secs(pause_s), seed };
            check_faults(&folder, extent, only.as_deref()).await
        }
        Some(Check::States { rounds }) => check_states(&folder, rounds).await,
        Some(Check::Soak { minutes, seed }) => {
            check_soak(&folder, (Duration::from_secs(60 * minutes), seed)).await
        }
        Some(Check::Load { groups, minutes, in_phase, figures, json }) => {
            let phases = if in_phase { Phases::Equal } else { Phases::Spread };
            let load = |groups: &u16| {
                let time = Duration::from_secs(60 * minutes);
                Load { groups: usize::from(*groups), time, phases }
            };
            let loads: Vec<_> = groups.iter().map(load).collect();
            check_load(&folder, &loads, (!figures && !in_phase, json)).await
        }
        Some(Check::Groups { groups }) => {
            let found = load::resident_mb_of_groups(&folder, groups.into()).await;
            println!(
                "{groups} groups of one bundle in one aggregator: {found:.1} MB resident, less than {} MB asked",
                load::MAX_GROUPS_MB
            );
            found < load::MAX_GROUPS_MB
        }
        Some(Check::Rogue { seconds, only }) => {
            check_rogue(&folder, Duration::from_secs(seconds), only.as_deref()).await
        }
    };
    if is_sound {
        // Files that cannot be removed from the temporary folder do no harm.
        let _ = std::fs::remove_dir_all(&folder);
        return ExitCode::SUCCESS;
    }
    eprintln!("check-site: not as expected; logs and journals are in {}", folder.display());
    ExitCode::FAILURE
}

/// Starts every part, and waits until each frame of the archive has a complete decision.
async fn start(site: &mut Site) -> (Vec<GroupClient>, Reference) {
    site.start_all();
    let mut clients = site.clients().await;
    let reference = reference(site, &mut clients).await;
    (clients, reference)
}

/// As [`start`], with clocks that can be stepped and a disk of the journals that can be filled, if this machine allows them.
async fn start_for_faults(site: &mut Site) -> (Vec<GroupClient>, Reference) {
    for lack in faults::prepare(site) {
        eprintln!("check-site: {lack}");
    }
    start(site).await
}

/// Prints the ends of the samples of each group. Returns true when each captured sample has one end, a decision or a drop, and no complete
/// answer is wrong.
fn tell(what: &str, outcomes: &[Outcome]) -> bool {
    for (group, outcome) in GROUPS.iter().zip(outcomes) {
        let Outcome { decided, complete, dropped, contradicted, wrong, .. } = outcome;
        let dropped: u64 = dropped.values().sum();
        let (open, wrong) = (outcome.lost(), wrong.len());
        println!(
            "{what}: {group}: {decided} decided ({complete} with every view), {dropped} dropped, {open} without an end, \
             {contradicted} with two answers, {wrong} wrong"
        );
    }
    outcomes.iter().all(Outcome::is_sound)
}

/// Number of samples of each group in each step of the check.
const SAMPLES: u64 = 300;

async fn check_site(folder: &Path) -> bool {
    let mut site = Site::enroll(folder);
    println!(
        "enrolled: broker, cloud, and in each of two groups six devices, a leader, an operator and a consumer",
    );
    let (mut clients, reference) = start(&mut site).await;
    println!("started: Mosquitto with TLS and access rules, cloud, aggregator, twelve devices");
    let mut is_sound = true;
    let mut decide = async |site: &Site, clients: &mut Vec<GroupClient>, what: &str| {
        let range = SampleRange::begin(site, SAMPLES);
        receive(clients, Duration::from_millis(SAMPLES * PERIOD_MS)).await;
        let found = outcomes(site, clients, range, &reference).await;
        is_sound &=
            tell(what, &found) && found.iter().all(|outcome| outcome.decided + outcome.missed >= SAMPLES);
        found
    };
    decide(&site, &mut clients, "all cameras").await;
    let (silent, killed) = (Part::Device { group: 0, slot: 1 }, Part::Device { group: 1, slot: 2 });
    site.signal(silent, "STOP");
    decide(&site, &mut clients, "gate/cam-1 is silent").await;
    site.kill(killed);
    decide(&site, &mut clients, "gate/cam-1 is silent, belt/cam-2 is dead").await;
    site.signal(silent, "CONT");
    site.start(killed);
    receive(&mut clients, Duration::from_secs(3)).await;
    let strangers = tempfile::tempdir().expect("a temporary folder");
    let stranger = Site::enroll(strangers.path());
    for column in [Column::Stranger, Column::OtherDevice] {
        for attack in [Attack::Summary, Attack::Result, Attack::Birth, Attack::Leader, Attack::Trigger] {
            let time = Duration::from_secs(1);
            let cell =
                rogue::run((attack, column), (&site, &stranger), &mut clients, (&reference, time)).await;
            let row = cell.row(attack, column);
            println!("rogue client, {column:?}: {}", row.line());
            is_sound &= row.is_sound;
        }
    }
    is_sound
}

async fn check_faults(folder: &Path, extent: Extent, only: Option<&str>) -> bool {
    let mut site = Site::enroll(folder);
    let (mut clients, reference) = start_for_faults(&mut site).await;
    println!("{HEAD}");
    let mut is_sound = true;
    for fault in faults::ROWS {
        if only.is_none_or(|text| fault.name().contains(text)) {
            let row = faults::run(fault, &mut site, &mut clients, (&reference, extent)).await;
            println!("{}", row.line());
            is_sound &= row.is_sound();
            if fault == Fault::None && !row.is_sound() {
                break;
            }
        }
    }
    site.unmount_journals();
    is_sound
}

async fn check_soak(folder: &Path, (time, seed): (Duration, u64)) -> bool {
    let mut site = Site::enroll_groups(folder, soak::SOAK_GROUPS);
    site.journal_bytes = soak::JOURNAL_BYTES;
    site.write_aggregator();
    let (mut clients, reference) = start_for_faults(&mut site).await;
    let each = |round: usize, row: &Row| {
        let word = if row.is_sound() { "sound" } else { "NOT AS EXPECTED" };
        eprintln!("{round}: {word}: {}", row.line());
    };
    let rows = soak::run(&mut site, &mut clients, &reference, (time, seed), each).await;
    site.unmount_journals();
    println!("{HEAD}");
    rows.iter().for_each(|row| println!("{}", row.line()));
    // A fault that was not run has proved nothing.
    rows.iter().all(|row| row.is_sound() && row.skipped.is_none())
}

/// Runs the loads one after the other. With `figures_count` every requirement must be met, otherwise only those on the account of the samples.
async fn check_load(folder: &Path, loads: &[Load], (figures_count, json): (bool, bool)) -> bool {
    let answers = Arc::new(Answers::compute());
    let mut is_sound = true;
    if !json {
        println!("{}", load::HEAD);
    }
    for (index, load) in loads.iter().enumerate() {
        let own = folder.join(format!("load-{index}"));
        std::fs::create_dir_all(&own).expect("the folder can be written");
        let report = load::run(&own, *load, &answers).await;
        match json {
            true => {
                println!("{}", serde_json::to_string(&report).expect("names and numbers have a JSON form"));
            }
            false => println!("{}", report.line()),
        }
        for missed in report.misses(figures_count) {
            eprintln!("check-site: {} groups: {missed}", load.groups);
            is_sound = false;
        }
    }
    is_sound
}

async fn check_states(folder: &Path, rounds: u32) -> bool {
    let mut site = Site::enroll(folder);
    site.start_all();
    let _clients = site.clients().await;
    println!("{}", states::HEAD);
    let mut is_sound = true;
    for round in 0..rounds {
        for event in states::ROWS {
            match states::run(event, &mut site) {
                Ok(named) => {
                    println!("{}", named.line());
                    is_sound &= named.is_in_time();
                }
                Err(reason) => {
                    eprintln!("check-site: round {round}: {reason}");
                    return false;
                }
            }
        }
        // The wait is longer than a minute, since a device whose connection ends three times within a minute is flapping.
        if round + 1 < rounds {
            tokio::time::sleep(Duration::from_secs(61)).await;
        }
    }
    is_sound
}

async fn check_rogue(folder: &Path, time: Duration, only: Option<&str>) -> bool {
    let strangers = tempfile::tempdir().expect("a temporary folder");
    let stranger = Site::enroll(strangers.path());
    let is_asked = |name: &str| only.is_none_or(|text| name.contains(text));
    let mut is_sound = true;
    let mut tell = |row: &RogueRow| {
        println!("{}", row.line());
        is_sound &= row.is_sound;
    };
    println!("{}", rogue::HEAD);
    for columns in [&[Column::NoIdentity][..], &rogue::WITH_IDENTITY] {
        let own = folder.join(format!("{:?}", columns[0]));
        std::fs::create_dir_all(&own).expect("the folder can be written");
        let has_identity = columns[0] != Column::NoIdentity;
        let mut site =
            if has_identity { Site::enroll(&own) } else { Site::without_identity(&own, GROUPS.len()) };
        // The relay listens at the port that the members know; Mosquitto gets another port.
        site.mosquitto_port = held_port().expect("a free port");
        let relay = Relay::start(site.broker_port, site.mosquitto_port);
        let (mut clients, reference) = start(&mut site).await;
        let mischief = if has_identity { &relay::OF_MIDDLE_BOX[..] } else { &relay::OF_BROKER };
        for &mischief in mischief.iter().filter(|(_, name)| is_asked(name)) {
            rogue::settle(&mut clients).await;
            tell(&relay::run(mischief, &relay, &site, &mut clients, (&reference, time)).await);
        }
        if has_identity && is_asked("takes the place of the broker") {
            tell(&relay::take_over(&mut site, &stranger, &mut clients, (&reference, time)).await);
        }
        // A lying cloud has no certificate of the site's authority, so the lies are tried only on the site without identity.
        for lie in liars::CLOUD_LIES.into_iter().filter(|(_, name)| !has_identity && is_asked(name)) {
            rogue::settle(&mut clients).await;
            tell(&liars::run(lie, &mut site, &mut clients, (&reference, time)).await);
        }
        for &column in columns {
            for attack in column.attacks().into_iter().filter(|attack| is_asked(attack.name())) {
                rogue::settle(&mut clients).await;
                let scene = (&site, &stranger);
                let cell = rogue::run((attack, column), scene, &mut clients, (&reference, time)).await;
                tell(&cell.row(attack, column));
            }
        }
    }
    is_sound
}
