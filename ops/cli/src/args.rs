//! Arguments of `headwater`.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use headwater_link::Endpoint;
use headwater_protocol::{GroupId, SiteId};

use crate::option_values::{Kill, Rate};
use crate::security_args::SecurityArgs;

/// Early-exit inference from the sensor to the cloud.
#[derive(Debug, Parser)]
#[command(name = "headwater", version, about, max_term_width = 100)]
pub struct Args {
    /// Log filter for stderr: error, warn, info, debug, or filters such as `info,headwater_link=debug`; by default error, for `up` warn.
    #[arg(long, global = true, env = "HEADWATER_LOG")]
    pub log: Option<String>,
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
}

/// Subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Cameras, an aggregator and a cloud classify real images: all in this process, or each as a program.
    Demo(Box<DemoArgs>),
    /// A site in this process, from one file: cameras, leader, cloud, and a broker where there is none.
    Up(UpArgs),
    /// Classify photos: a table of labels, confidences and exits, from all tiers in this process.
    Classify(crate::classify::ClassifyArgs),
    /// Certificates for a site: its authority, members, revocation, and the broker's files.
    Enroll(crate::enroll::EnrollArgs),
    /// Sign a bundle, or make a key that signs.
    Sign(crate::sign::SignArgs),
    /// Trigger samples of a running group, and print their results.
    Trigger(Box<TriggerArgs>),
    /// Thresholds and waits: show those in effect, change a policy file.
    Policy(crate::policy::PolicyArgs),
    /// Look for mistakes: settings, broker, certificates, clock, disk, bundles, policy, cloud, engines, running programs.
    Doctor(crate::doctor::DoctorArgs),
    /// Show a bundle: sections, shapes, exits, bytes per link, costs, provenance.
    Inspect(InspectArgs),
}

/// Arguments of `headwater demo`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  headwater demo                                      300 samples, 30 a second
  headwater demo --rate max --samples 5000            as fast as decisions come back
  headwater demo --kill cloud@2s --kill device:2@4s   go on without the cloud and one camera
  headwater demo --json | jq .exits                   the report, for scripts
  headwater demo --processes --broker mqtt://127.0.0.1:1883
                                                      the programs, over another broker
  headwater demo --bundle runs/b-lenet/bundle.hwb --data mnist --data-dir \"$HEADWATER_DATA/mnist\"
                                                      another network, on the test part of its data")]
pub struct DemoArgs {
    /// Samples to decide; the frames are played again with new ids when there are fewer.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub samples: u64,
    /// Samples per second, or `max`: as fast as samples are decided, with at most 96 unsettled. Higher rates show queueing.
    #[arg(long, default_value = "30", value_name = "N|max")]
    pub rate: Rate,
    /// Kill a service at a time after the first sample: `cloud@2s`, `device:2@4s`, `edge:0@3s`. May be given several times.
    #[arg(long, value_name = "SERVICE@TIME")]
    pub kill: Vec<Kill>,
    /// Print the report as one JSON object on stdout instead of a table.
    #[arg(long)]
    pub json: bool,
    /// Bundle to run instead of the shipped one.
    #[arg(long, value_name = "FILE")]
    pub bundle: Option<PathBuf>,
    /// Frames instead of the shipped ones: a `.tar.gz` or folder of `labels.json` and `{sample}/cam{slot}.png`.
    #[arg(long, value_name = "PATH")]
    pub frames: Option<PathBuf>,
    /// Play the test part of a data set instead: any name that headwater-train knows, except `drawn`; with --data-dir.
    #[arg(long, value_name = "NAME", requires = "data_dir", conflicts_with = "frames")]
    pub data: Option<String>,
    /// Folder or archive of --data.
    #[arg(long, value_name = "DIR", requires = "data")]
    pub data_dir: Option<PathBuf>,
    /// Run headwater-device, headwater-aggregator and headwater-cloud as processes.
    #[arg(long)]
    pub processes: bool,
    /// With --processes: another program in place of headwater-device in the folder of this program, such as a script that runs it elsewhere.
    #[arg(long, value_name = "FILE", requires = "processes")]
    pub device_program: Option<PathBuf>,
    /// With --processes: another program in place of headwater-aggregator.
    #[arg(long, value_name = "FILE", requires = "processes")]
    pub aggregator_program: Option<PathBuf>,
    /// With --processes: another program in place of headwater-cloud.
    #[arg(long, value_name = "FILE", requires = "processes")]
    pub cloud_program: Option<PathBuf>,
    /// Use this broker, mqtt://host:port, instead of the embedded one. No other group may use its topics.
    #[arg(long, value_name = "ADDRESS", conflicts_with = "port")]
    pub broker: Option<Endpoint>,
    /// With --processes and a broker mqtts://localhost:port: the folder of a site named demo that `headwater enroll` made. Its group cameras
    /// has the members cam-0 to cam-5, leader and operator; its cloud is called localhost.
    #[arg(long, value_name = "DIR", requires_all = ["processes", "broker"])]
    pub site_dir: Option<PathBuf>,
    /// Allow a broker without TLS beyond this machine.
    #[arg(long, requires = "broker")]
    pub insecure: bool,
    /// `QoS` of the devices' messages and of requests for features: 1 is acknowledged, which costs bytes and time.
    #[arg(long, value_name = "0|1", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=1))]
    pub qos: u8,
    /// Port of the embedded broker on loopback; a free one by default.
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
    /// Changes to the thresholds and waits of the bundle's policy, in TOML; see docs/policy.toml.
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// Milliseconds a sample may collect summaries, instead of the policy's.
    #[arg(long, value_name = "MS")]
    pub window_ms: Option<u32>,
    /// Milliseconds for which a device's answers wait for further answers, to go in one message; at most half of --window-ms and a quarter of
    /// the policy's `deadline_ms`. 0 sends each answer at once.
    #[arg(long, value_name = "MS", default_value_t = 0)]
    pub batch_ms: u64,
}

/// Arguments of `headwater up`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
site.toml, whole:
  bundle = \"runs/mine/bundle.hwb\"
  every_ms = 500
  [cameras]                # in the order of the network's slots
  front = \"ffmpeg -v error -nostdin -f v4l2 -i /dev/video0 -f image2pipe -c:v mjpeg -\"
A camera is a command, a folder of photos, a video (.y4m), a snapshot URL, or the device's own settings of a source:
  back = { kind = \"watch\", path = \"/srv/ftp/back\", roi = \"10%,0%,50%,100%\" }
[device], [aggregator] and [cloud] take every setting of these programs by its own name. docs/up.md has the rest.
Examples:
  headwater up site.toml                   until Ctrl-C, or until every folder and video has ended
  headwater up site.toml --check           what is wrong, and what each camera gives
  headwater up site.toml --json | jq -r .label
  headwater up site.toml --split site      files for headwater-device, headwater-aggregator and headwater-cloud
Results go to stdout, the states of the cameras to stderr. Exit codes: 0 done; 1 a service failed, a camera gives nothing any more, or a check
fails; 2 mistakes in the file, all of them.")]
pub struct UpArgs {
    /// The site file (TOML). Its paths begin in the folder in which the command runs.
    #[arg(value_name = "FILE", default_value = "site.toml")]
    pub file: PathBuf,
    /// Check everything that can be checked without running, open each camera for one frame, and end.
    #[arg(long, conflicts_with = "split")]
    pub check: bool,
    /// Write the settings files of the separate programs into a folder, and end.
    #[arg(long, value_name = "DIR")]
    pub split: Option<PathBuf>,
    /// Forget the ids of earlier runs; answers that cameras still hold under these ids are dropped. Needed where a changed `capture` or
    /// `every_ms` is refused.
    #[arg(long, conflicts_with_all = ["check", "split"])]
    pub new_numbering: bool,
    /// Print results and account, or the findings of --check, as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `headwater trigger`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  headwater trigger --site hall --group gate --watch              one sample, and its result
  headwater trigger --site hall --group gate --count 100 --rate 10 --watch --json
                                                                  a hundred, each result as a JSON object on a line
  seq 2000 5 2100 | headwater trigger --site hall --group gate --list - --rate 20
                                                                  these ids, twenty a second
Ids continue from the newest one in the leader's account. One more than 1,000 above that one is answered when a second one near it follows.
The group's devices must capture by triggers.
Exit codes: 0 done; 1 no broker, no group, or with --watch a sample without a decision, dropped ones included; 2 bad usage.")]
pub struct TriggerArgs {
    /// MQTT broker of the group, mqtt://host:port, or mqtts://host:port with TLS.
    #[arg(long, value_name = "ADDRESS", default_value = "mqtt://127.0.0.1:1883", value_parser = Endpoint::broker)]
    pub broker: Endpoint,
    /// Site of the group.
    #[arg(long, value_name = "NAME")]
    pub site: SiteId,
    /// The group.
    #[arg(long, value_name = "NAME")]
    pub group: GroupId,
    /// Trigger this sample alone, instead of the next ones.
    #[arg(long, value_name = "N", conflicts_with_all = ["count", "rate"])]
    pub id: Option<u64>,
    /// Trigger the samples of a list instead, or of standard input for `-`. A line for each: `ID`, or `ID,MS` with its time in
    /// milliseconds after the start; `#` begins a comment. Ids grow. Without times --rate holds.
    #[arg(long, value_name = "FILE|-", conflicts_with_all = ["count", "id"])]
    pub list: Option<PathBuf>,
    /// Samples to trigger.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub count: u64,
    /// Samples per second, above 0 and up to 10000; 1 by default. More than the group decides is shed.
    #[arg(long, value_name = "N", value_parser = per_second)]
    pub rate: Option<f64>,
    /// Print each result, and wait for all of them.
    #[arg(long)]
    pub watch: bool,
    /// With --watch: seconds without news of a sample after which the command gives up.
    #[arg(long, value_name = "S", default_value_t = 10, requires = "watch", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub timeout_s: u64,
    /// Print results and account as JSON, one object on a line.
    #[arg(long)]
    pub json: bool,
    /// Identity and trust.
    #[command(flatten)]
    pub security: SecurityArgs,
}

/// Reads a number of samples per second; `max` is refused.
fn per_second(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(Rate::PerSecond(rate)) => Ok(rate),
        Ok(Rate::Max) | Err(_) => {
            Err(format!("expected samples per second, above 0 and up to 10000, found {text:?}"))
        }
    }
}

/// Arguments of `headwater inspect`.
#[derive(Debug, clap::Args)]
pub struct InspectArgs {
    /// The bundle; the shipped bundle by default.
    pub bundle: Option<PathBuf>,
    /// Print one JSON object with everything in the bundle, the training report included.
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_arguments_are_well_formed() {
        Args::command().debug_assert();
    }

    #[test]
    fn zero_samples_and_unknown_services_are_refused() {
        for bad in
            [&["--samples", "0"][..], &["--kill", "leader@1s"], &["--rate", "fast"], &["--port", "99999"]]
        {
            let arguments = ["headwater", "demo"].iter().chain(bad);
            assert!(Args::try_parse_from(arguments).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_trigger_needs_a_group_and_a_rate_that_can_be_kept() {
        let group = ["headwater", "trigger", "--site", "hall", "--group", "gate"];
        assert!(Args::try_parse_from(group).is_ok());
        for bad in [
            &["--rate", "0"][..],
            &["--rate", "max"],
            &["--count", "0"],
            &["--id", "3", "--count", "2"],
            &["--list", "-", "--count", "2"],
            &["--list", "-", "--id", "2"],
            &["--timeout-s", "5"],
            &["--broker", "http://broker"],
        ] {
            assert!(Args::try_parse_from(group.iter().chain(bad)).is_err(), "{bad:?}");
        }
        assert!(Args::try_parse_from(&group[..4]).is_err(), "no group");
    }
}
