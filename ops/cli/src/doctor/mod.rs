//! `headwater doctor`: checks every tier of this machine, starting from the settings files, and says what is wrong and what to do.
//!
//! ```text
//! settings files ──> Tier ──┬── files of this machine ────────────────> findings
//!                           └── broker, cloud, admin port ──> Facts ──> findings
//! ```
//!
//! The doctor publishes nothing, changes no file, and has a limit for every wait.

mod broker;
mod cloud;
mod facts;
mod http;
mod machine;
mod networks;
mod page;
mod report;
mod running;
mod running_group;
mod site;
mod tier;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::task::{JoinError, spawn_blocking};
use tokio::time::timeout;

use crate::BadUsage;
use facts::{Facts, gather};
use headwater_settings::{Finding, Level};
pub use report::{Diagnosis, Section};
use tier::{Tier, TierKind, TierNetworks, TierSettings};

/// Arguments of `headwater doctor`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  headwater doctor                                    the tiers with a file in /etc/headwater
  headwater doctor --device cam-0.toml --device cam-1.toml --aggregator aggregator.toml
  headwater doctor --json | jq '.tiers[].findings[] | select(.level == \"fail\")'
Each line: ok, warn or fail, what was looked at, what was found, what to do. The doctor reads settings from the files alone, not from the
environment of a service. It publishes nothing and ends nobody's connection.
Exit codes: 0 no fail, 1 a fail, 2 bad usage.")]
pub struct DoctorArgs {
    /// Settings file of a device on this machine. May be given several times. Without any file: the files in /etc/headwater that exist.
    #[arg(long, value_name = "FILE")]
    pub device: Vec<PathBuf>,
    /// Settings file of the aggregator on this machine.
    #[arg(long, value_name = "FILE")]
    pub aggregator: Option<PathBuf>,
    /// Settings file of the cloud service on this machine.
    #[arg(long, value_name = "FILE")]
    pub cloud: Option<PathBuf>,
    /// Folder of a site that `headwater enroll` made: looks for files that an interrupted command left, and for certificates that end soon.
    #[arg(long, value_name = "DIR")]
    pub site_dir: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// Longest wait in seconds for each answer of a broker, a cloud or a program.
    #[arg(long, value_name = "S", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=60))]
    pub timeout_s: u64,
    /// A file without the name of its tier, for an error that says which option names it.
    #[arg(value_name = "FILE", hide = true)]
    pub unnamed: Option<PathBuf>,
}

/// Longest time to check the files of one tier and to load its sections.
const READ_LIMIT: Duration = Duration::from_secs(60);

/// Looks for mistakes and prints the findings. Returns true when no finding is a fail.
///
/// # Errors
/// [`BadUsage`] without a settings file, and a standard output that cannot be written.
pub fn run(args: &DoctorArgs) -> Result<bool> {
    let files = files(args, |place| Path::new(place).exists())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.context("starting the runtime")?;
    let diagnosis =
        runtime.block_on(diagnose(files, args.site_dir.clone(), Duration::from_secs(args.timeout_s)));
    // The shutdown does not wait for threads that still read a file.
    runtime.shutdown_background();
    crate::print(&if args.json { diagnosis.json() } else { diagnosis.text() })?;
    Ok(diagnosis.count(Level::Fail) == 0)
}

/// Settings files that the arguments name. If they name none: the usual files, as far as they exist.
fn files(args: &DoctorArgs, exists: impl Fn(&str) -> bool) -> Result<Vec<(TierKind, PathBuf)>, BadUsage> {
    if let Some(file) = &args.unnamed {
        let file = file.display();
        return Err(BadUsage(format!(
            "doctor: {file}: expected the tier of a settings file, found a file alone: --device {file}, --aggregator {file} or --cloud {file}"
        )));
    }
    let devices = args.device.iter().map(|file| (TierKind::Device, file));
    let aggregator = args.aggregator.iter().map(|file| (TierKind::Aggregator, file));
    let cloud = args.cloud.iter().map(|file| (TierKind::Cloud, file));
    let given = devices.chain(aggregator).chain(cloud);
    let given: Vec<_> = given.map(|(kind, file)| (kind, file.clone())).collect();
    if !given.is_empty() || args.site_dir.is_some() {
        return Ok(given);
    }
    let places = TierKind::ALL.map(|kind| (kind, kind.place()));
    let found = places.iter().filter(|(_, place)| exists(place));
    let found: Vec<_> = found.map(|(kind, place)| (*kind, place.into())).collect();
    if found.is_empty() {
        let places = places.map(|(_, place)| place).join(", ");
        return Err(BadUsage(format!(
            "doctor: no settings file at {places}; name those of this machine: --device FILE, --aggregator FILE, --cloud FILE"
        )));
    }
    Ok(found)
}

struct Examined {
    tier: Arc<Tier>,
    networks: TierNetworks,
    facts: Facts,
}

/// Checks every tier, then compares the tiers with each other.
async fn diagnose(files: Vec<(TierKind, PathBuf)>, site_dir: Option<PathBuf>, limit: Duration) -> Diagnosis {
    let site = site_dir.clone().map(|folder| tokio::spawn(site::check(folder, limit)));
    let examining: Vec<_> = files
        .iter()
        .map(|(kind, file)| {
            let start = |tier| tokio::spawn(examine(Arc::new(tier), limit));
            Tier::read(*kind, file).map(|tiers| tiers.into_iter().map(start).collect::<Vec<_>>())
        })
        .collect();
    let (mut examined, mut findings) = (Vec::new(), Vec::new());
    for ((kind, _), tasks) in files.iter().zip(examining) {
        let of_file = match tasks {
            Err(mistakes) => {
                let advice = format!("correct the file; `{} --help` explains every setting", kind.program());
                mistakes.iter().map(|mistake| Finding::fail("configuration", mistake, &advice)).collect()
            }
            Ok(tasks) => {
                let (mut of_file, is_one_of_several) = (Vec::new(), tasks.len() > 1);
                for task in tasks {
                    match task.await {
                        Ok((own, mut found)) => {
                            if let TierSettings::Device(device) = &own.tier.settings
                                && is_one_of_several
                            {
                                for finding in &mut found {
                                    finding.check += &format!(" of {}", device.id);
                                }
                            }
                            examined.push((findings.len(), own));
                            of_file.extend(found);
                        }
                        Err(error) => of_file.push(broken(&error)),
                    }
                }
                of_file
            }
        };
        findings.push(of_file);
    }
    let tiers: Vec<_> = examined.iter().map(|(_, of)| (of.tier.as_ref(), &of.networks)).collect();
    for (tier, finding) in networks::compare(&tiers) {
        let of_file = &mut findings[examined[tier].0];
        // Devices of one file have one bundle.
        if !of_file.contains(&finding) {
            of_file.push(finding);
        }
    }
    let machine =
        machine::check(&examined.iter().map(|(_, of)| (of.tier.as_ref(), &of.facts)).collect::<Vec<_>>());
    let mut all = vec![Section { tier: "machine", file: None, findings: machine }];
    let of_files = files.into_iter().zip(findings);
    all.extend(of_files.map(|((kind, file), findings)| Section {
        tier: kind.name(),
        file: Some(file),
        findings,
    }));
    if let Some(site) = site {
        let findings = site.await.unwrap_or_else(|error| vec![broken(&error)]);
        all.push(Section { tier: "site", file: site_dir, findings });
    }
    Diagnosis(all)
}

/// The finding for a task of the doctor that panicked.
fn broken(error: &JoinError) -> Finding {
    Finding::fail("doctor", error.to_string(), "please report this fault of the doctor")
}

/// Checks one tier: asks broker, cloud and admin port, and reads the tier's files at the same time.
async fn examine(tier: Arc<Tier>, limit: Duration) -> (Examined, Vec<Finding>) {
    let asking = tokio::spawn(gather(Arc::clone(&tier), limit));
    let reading = Arc::clone(&tier);
    let read = timeout(READ_LIMIT, spawn_blocking(move || reading.check())).await.unwrap_or_else(|_| {
        let found = format!("the files of these settings were not read within {} s", READ_LIMIT.as_secs());
        let advice = "a file on a disk or network folder that does not answer, or without an end: look at each path of the settings";
        Ok((vec![Finding::fail("configuration", found, advice)], Vec::new()))
    });
    let (mut findings, members) = read.unwrap_or_else(|error| (vec![broken(&error)], Vec::new()));
    name_working_directory(&mut findings);
    let (networks, policies): (TierNetworks, Vec<_>) = members.into_iter().map(Option::unzip).unzip();
    let policies: Vec<_> = policies.into_iter().map(Option::flatten).collect();
    match asking.await {
        Ok(facts) => {
            findings.extend(broker::check(&tier, &networks, &facts));
            findings.extend(cloud::check(&tier, &networks, &facts));
            findings.extend(running::check(&tier, &networks, &facts, &policies));
            (Examined { tier, networks, facts }, findings)
        }
        // Without answers these checks would report that no broker and no cloud is set.
        Err(error) => {
            findings.push(broken(&error));
            (Examined { tier, networks, facts: Facts::default() }, findings)
        }
    }
}

/// Adds the working directory to the advice of each finding about a missing file with a relative path.
fn name_working_directory(findings: &mut [Finding]) {
    let Ok(folder) = std::env::current_dir() else { return };
    for Finding { found, advice, .. } in findings {
        // Such a finding reads `key: path: reason of the system`.
        let path = found.split(": ").nth(1).map(|path| path.trim_start_matches("opening "));
        if !found.contains("os error 2)") || path.is_none_or(|path| Path::new(path).is_absolute()) {
            continue;
        }
        let relative = format!(
            "the path is relative to the working directory, here {}: run the doctor where the program starts, or write the whole path",
            folder.display()
        );
        *advice = Some(advice.take().map_or(relative.clone(), |advice| format!("{relative}; or {advice}")));
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Args, Command};

    fn parse(arguments: &[&str]) -> DoctorArgs {
        match Args::try_parse_from([&["headwater", "doctor"], arguments].concat()).unwrap().command {
            Command::Doctor(args) => args,
            other => panic!("expected the doctor, found {other:?}"),
        }
    }

    #[test]
    fn without_a_file_the_conventional_ones_are_taken() {
        let none = parse(&[]);
        let found = files(&none, |place| place.ends_with("aggregator.toml")).unwrap();
        assert_eq!(found, [(TierKind::Aggregator, "/etc/headwater/aggregator.toml".into())]);
        let refused = files(&none, |_| false).unwrap_err().0;
        assert!(
            refused.contains("--device FILE") && refused.contains("/etc/headwater/device.toml"),
            "{refused}"
        );
        let given = files(&parse(&["--device", "a", "--device", "b", "--cloud", "c"]), |_| true).unwrap();
        assert_eq!(given.len(), 3);
        let unnamed = files(&parse(&["cam-0.toml"]), |_| true).unwrap_err().0;
        assert!(unnamed.contains("--device cam-0.toml, --aggregator cam-0.toml"), "{unnamed}");
        assert_eq!(files(&parse(&["--site-dir", "site"]), |_| true).unwrap(), []);
    }

    #[tokio::test]
    async fn a_file_that_is_no_settings_file_is_a_finding_for_each_mistake() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cloud.toml");
        std::fs::write(&file, "bundl = \"a.hwb\"\ngrace_ms = 0\n").unwrap();
        let missing = folder.path().join("none.toml");
        let files = vec![(TierKind::Cloud, file), (TierKind::Device, missing)];
        let diagnosis = diagnose(files, None, Duration::from_secs(5)).await;
        let found: Vec<_> = diagnosis.0[1].findings.iter().map(|finding| finding.found.as_str()).collect();
        for word in ["did you mean `bundle`?", "grace_ms: expected 1 to 600000", "bundle: missing"] {
            assert!(found.iter().any(|found| found.contains(word)), "{word} in {found:?}");
        }
        assert!(diagnosis.0[2].findings[0].found.contains("No such file"), "{:?}", diagnosis.0[2]);
        assert_eq!(diagnosis.0[2].findings.len(), 1, "a file that is not there misses no settings");
    }

    #[tokio::test]
    async fn a_bundle_that_is_no_file_is_named_and_a_relative_path_says_to_which_folder() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let write = |name: &str, bundle: &str| {
            let file = folder.path().join(name);
            std::fs::write(&file, format!("bundle = \"{bundle}\"\n")).unwrap();
            (TierKind::Cloud, file)
        };
        let files = vec![write("a.toml", socket.to_str().unwrap()), write("b.toml", "nowhere/none.hwb")];
        let diagnosis = diagnose(files, None, Duration::from_secs(5)).await;
        let fails = |index: usize| {
            let findings = diagnosis.0[index].findings.iter().filter(|finding| finding.level == Level::Fail);
            findings.map(|finding| format!("{}; {:?}", finding.found, finding.advice)).collect::<Vec<_>>()
        };
        assert!(
            fails(1)[0].contains("socket: expected a regular file, found something else"),
            "{:?}",
            fails(1)
        );
        assert!(
            fails(2).iter().any(|fail| fail.contains("relative to the working directory, here /")),
            "{:?}",
            fails(2)
        );
    }
}
