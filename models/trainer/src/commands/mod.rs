//! The commands of `headwater-train`.

#[cfg(feature = "mpi")]
mod agreement;
mod convert;
mod dataset;
mod eval;
mod export;
mod init;
mod kept_apart;
mod measured;
#[cfg(feature = "mpi")]
mod mpi;
mod new;
mod output;
mod output_files;
mod parity;
mod part_report;
mod progress;
mod ranks;
mod saved;
mod single_camera;
#[cfg(feature = "experiments")]
mod table;
mod target;
mod train;
mod tune;
mod views;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, Subcommand};
use headwater_inference::bundle::Bundle;
use serde::Serialize;

use output::{print, print_error};

const EXAMPLES: &str = "\
Examples:
  Your own photos, in folders by class: write spec and recipe for them, each line with its reason, or train at once:
    headwater-train new --data photos
    headwater-train train --data photos
  Train the shipped network (about a quarter of an hour on two cores) and look at it:
    headwater-train train --network models/networks/ddnn-c.toml --data fashion-6cam --data-dir \"$HEADWATER_DATA/fashion-mnist\"
    headwater-train eval runs/ddnn-c/bundle.hwb --data fashion-6cam --data-dir \"$HEADWATER_DATA/fashion-mnist\" --part test --json
  A killed run resumes, and ends with the same weights, when the same command is given again.
  Compare packed sections and ONNX with the trained network, sample by sample:
    headwater-train parity runs/ddnn-c --data fashion-6cam --data-dir \"$HEADWATER_DATA/fashion-mnist\"
  Choose thresholds that send at most 16 bytes per device and sample and lose at most half a point, and list what else can be had:
    headwater-train tune runs/ddnn-c/bundle.hwb --data fashion-6cam --data-dir \"$HEADWATER_DATA/fashion-mnist\" --loss 0.5 --bytes 16 --frontier frontier.json
  Begin with what a network has learnt on other photos, and keep its first block:
    headwater-train train --network mine.toml --data photos --init runs/before --freeze device.0 --epochs 20
  Measure how hard the data set is for one camera alone:
    headwater-train single-camera --data fashion-6cam --data-dir \"$HEADWATER_DATA/fashion-mnist\"
  Train what is missing of an experiment, and write docs/results/street-ddnn.md:
    headwater-train table experiments/street-ddnn.toml --data-root \"$HEADWATER_DATA\"
  Write a data set as folders of images:
    headwater-train convert --data \"$HEADWATER_DATA/eth80\" --out eth80-images

Exit codes: 0 done, 1 failed, 2 bad usage, spec, recipe or data folder.";

/// Trains the sections and exits of a distributed network together, and writes one bundle.
#[derive(Parser)]
#[command(name = "headwater-train", version, arg_required_else_help = true, after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Look at a data set, and write a spec and a recipe that fit it, each line with its reason.
    New(new::New),
    /// Train a network: one loss over every exit, thresholds from the validation part, a bundle at the end.
    Train(train::Train),
    /// Measure a bundle on a part of the data, as run by the tiers.
    Eval(eval::Eval),
    /// Choose thresholds by loss of accuracy, promised where the data allows it, by bytes and by compute, alone or together.
    Tune(tune::Tune),
    /// Write the bundle of a run from its newest checkpoint.
    Export(export::Export),
    /// Compare the engines with the trained network on a whole part of the data.
    Parity(parity::Compare),
    /// Measure how hard the data set is: a plain float network on each camera alone.
    SingleCamera(single_camera::SingleCamera),
    /// Train the rows of an experiment, and write the page with their table.
    #[cfg(feature = "experiments")]
    Table(table::Table),
    /// Write a data set as folders of images, PART/CLASS/SAMPLE, that `--data folders` reads.
    Convert(convert::Convert),
}

/// Reads the arguments and runs the command. Exit code: 0 done, 1 failed, 2 bad usage, spec, recipe or data folder.
pub(crate) fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match arguments.command {
        Command::New(command) => command.run(),
        Command::Train(command) => command.run(),
        Command::Eval(command) => command.run(),
        Command::Tune(command) => command.run(),
        Command::Export(command) => command.run(),
        Command::Parity(command) => command.run(),
        Command::SingleCamera(command) => command.run(),
        #[cfg(feature = "experiments")]
        Command::Table(command) => command.run(),
        Command::Convert(command) => command.run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            print_error(&format!("headwater-train: {}", message_of(&failure.error)));
            ExitCode::from(failure.code)
        }
    }
}

/// Prints a result as JSON on stdout.
fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    print(&format!("{}\n", serde_json::to_string_pretty(value).context("writing JSON")?))
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Opens a bundle; errors name the file.
fn open_bundle(file: &Path) -> Result<Bundle, Failure> {
    Bundle::open(file).with_context(|| file.display().to_string()).map_err(Failure::usage)
}

/// The error with its causes; a cause whose text is already part of the message is left out.
fn message_of(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |message, cause| {
        match (message.is_empty(), message.contains(&cause)) {
            (true, _) => cause,
            (false, true) => message,
            // A cause that contains the message so far, such as the name of a file, replaces that message.
            (false, false) if cause.contains(&message) => cause,
            (false, false) => format!("{message}: {cause}"),
        }
    })
}

/// An error with its exit code.
pub(crate) struct Failure {
    error: anyhow::Error,
    code: u8,
}

impl Failure {
    /// The error with the rank and the machine on which it happened.
    #[cfg(feature = "mpi")]
    fn on_rank(self, rank: usize) -> Self {
        Self { error: self.error.context(format!("rank {rank} on {}", agreement::host())), ..self }
    }

    /// An error in the usage: exit code 2.
    pub(crate) fn usage(error: impl Into<anyhow::Error>) -> Self {
        Self { error: error.into(), code: 2 }
    }
}

/// Fails with exit code 2, for a mistake in the usage.
fn usage<T>(text: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::usage(anyhow::anyhow!(text.into())))
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self { error: error.into(), code: 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_said_once_and_with_its_file() {
        let missing = open_bundle(Path::new("none.hwb")).map(|_| ()).unwrap_err();
        let said = message_of(&missing.error);
        assert_eq!((said.matches("none.hwb").count(), said.matches("os error").count()), (1, 1), "{said}");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cut.hwb");
        std::fs::write(&file, b"not a bundle").unwrap();
        let said = message_of(&open_bundle(&file).map(|_| ()).unwrap_err().error);
        assert!(said.starts_with(&file.display().to_string()), "{said}");
    }
}
