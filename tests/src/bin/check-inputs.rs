//! `check-inputs`: files, cameras, brokers and requests as users have them, given to the real programs. `scripts/check/inputs` runs it.

use std::io::Write;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use clap::Parser;
use headwater_tests::inputs::{self, Case, KINDS, Outcome, Shared};
use serde_json::json;

/// Cases that run at the same time.
const THREADS: usize = 2;

/// Most bytes of the programs' outputs that are printed for a wrong case, from the beginning.
const SHOWN_BYTES: usize = 2000;

/// Gives each input to its program, and prints whether the program answers as it must.
#[derive(Debug, Parser)]
#[command(name = "check-inputs", max_term_width = 100)]
struct Args {
    /// Only cases whose name contains this.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Print kind and name of each case, and run none.
    #[arg(long)]
    list: bool,
    /// Print one JSON object with what was seen of each case.
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let is_asked = |case: &Case| args.only.as_ref().is_none_or(|text| case.name.contains(text.as_str()));
    let cases: Vec<Case> = inputs::cases().into_iter().filter(is_asked).collect();
    if cases.is_empty() {
        eprintln!("check-inputs: --only: expected a part of a name that --list prints, found none");
        return ExitCode::from(2);
    }
    if args.list {
        cases.iter().for_each(|case| println!("{:>2}  {}", case.kind, case.name));
        return ExitCode::SUCCESS;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let shared = Shared::new(folder.path());
    let next = AtomicUsize::new(0);
    let (sender, outcomes) = mpsc::channel();
    let run = |sender: mpsc::Sender<Outcome>| {
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            // The receiver is there until the last outcome, so no outcome is lost.
            let _ = sender.send(case.outcome(&shared, folder.path()));
        }
    };
    let mut found: Vec<Outcome> = Vec::new();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            let sender = sender.clone();
            scope.spawn(|| run(sender));
        }
        drop(sender);
        for outcome in outcomes {
            if !args.json {
                print_case(&outcome);
            }
            found.push(outcome);
        }
    });
    found.sort_by_key(|outcome| outcome.kind);
    let wrong = found.iter().filter(|outcome| !outcome.wrong.is_empty()).count();
    if args.json {
        println!("{}", json!({ "kinds": KINDS, "cases": found, "wrong": wrong }));
    } else {
        print_kinds(&found);
    }
    if wrong == 0 {
        return ExitCode::SUCCESS;
    }
    eprintln!(
        "check-inputs: {wrong} of {} cases are wrong; the files of the cases are in {}",
        found.len(),
        folder.keep().display()
    );
    ExitCode::FAILURE
}

/// Prints a line on a case, and for a wrong case the outputs of its programs.
fn print_case(outcome: &Outcome) {
    let Outcome { kind, name, wrong, seen, seconds } = outcome;
    let mut text =
        format!("{}  {kind:>2}  {name}  {seconds:.1} s\n", if wrong.is_empty() { "right" } else { "WRONG" });
    if !wrong.is_empty() {
        let end = seen.floor_char_boundary(SHOWN_BYTES);
        text += &format!("expected {wrong:?} (after !: not to be there), found\n{}\n", &seen[..end]);
    }
    // If standard output is closed, the exit code still shows the result.
    let _ = std::io::stdout().write_all(text.as_bytes());
}

fn print_kinds(found: &[Outcome]) {
    println!("\n| kind | input | cases | right |\n| --- | --- | --- | --- |");
    for (kind, input) in (1..).zip(KINDS) {
        let of_kind = || found.iter().filter(move |outcome| outcome.kind == kind);
        let right = of_kind().filter(|outcome| outcome.wrong.is_empty()).count();
        if of_kind().count() > 0 {
            println!("| {kind} | {input} | {} | {right} |", of_kind().count());
        }
    }
}
