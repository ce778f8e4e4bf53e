//! Arguments of `headwater`.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use headwater_link::Endpoint;

use crate::demo::plan::{Kill, Rate};

/// Early-exit inference from the sensor to the cloud.
#[derive(Debug, Parser)]
#[command(name = "headwater", version, about, max_term_width = 100)]
pub struct Args {
    /// Log filter for stderr: error, warn, info, debug, or filters such as `info,headwater_link=debug`.
    #[arg(long, global = true, default_value = "error", env = "HEADWATER_LOG")]
    pub log: String,
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
}

/// Subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Cameras, an aggregator and a cloud classify real images: all in this process, or each as a program.
    Demo(Box<DemoArgs>),
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
    /// Samples per second, or `max`: as fast as they are decided, with at most 96 unsettled. Higher shows queueing.
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
    /// Play the test part of a data set instead: a name that headwater-train knows, with --data-dir.
    #[arg(long, value_name = "NAME", requires = "data_dir", conflicts_with = "frames")]
    pub data: Option<String>,
    /// Folder or archive of --data.
    #[arg(long, value_name = "DIR", requires = "data")]
    pub data_dir: Option<PathBuf>,
    /// Run headwater-device, headwater-aggregator and headwater-cloud as processes.
    #[arg(long)]
    pub processes: bool,
    /// With --processes: folder of the three programs; the folder of this program by default.
    #[arg(long, value_name = "DIR", requires = "processes")]
    pub programs: Option<PathBuf>,
    /// With --processes: another program in place of headwater-device, such as an earlier version.
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
    /// `QoS` of the devices' messages and of requests for features: 1 is acknowledged, which costs bytes and time.
    #[arg(long, value_name = "0|1", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=1))]
    pub qos: u8,
    /// Port of the embedded broker on loopback; a free one by default.
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
    /// Thresholds and waits in TOML, instead of the bundle's policy; see docs/policy.toml.
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// Milliseconds a sample may collect summaries, instead of the policy's.
    #[arg(long, value_name = "MS")]
    pub window_ms: Option<u32>,
    /// Threshold of the exit `local` in [0, 1], instead of the policy's: 0 sends nearly all on, 1 none.
    #[arg(long, value_name = "T")]
    pub threshold: Option<f32>,
}

/// Arguments of `headwater inspect`.
#[derive(Debug, clap::Args)]
pub struct InspectArgs {
    /// The bundle; the shipped one by default.
    pub bundle: Option<PathBuf>,
    /// Print one JSON object.
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
}
