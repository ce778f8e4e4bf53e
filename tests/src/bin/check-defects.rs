//! `check-defects`: takes each fix of a defect out of a copy of the code, and shows that tests fail without it. `scripts/check-defects` runs it.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use headwater_tests::defects::{Cargo, Edit, Finding, LAST_DEFECT, Table, baseline, find};

/// Shows for each defect of the first users that its tests fail without the fix.
#[derive(Debug, Parser)]
#[command(name = "check-defects", max_term_width = 100)]
struct Args {
    /// Numbers of defects; all of them without a number.
    #[arg(value_name = "DEFECT", value_parser = clap::value_parser!(u8).range(1..=i64::from(LAST_DEFECT)))]
    defects: Vec<u8>,
    /// Copy of the tracked files, in which fixes are taken out and put back.
    #[arg(long, value_name = "FOLDER")]
    tree: PathBuf,
    /// One JSON object an edit, in place of the table.
    #[arg(long)]
    json: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    // An interrupted check ends the tests that run.
    let ended = tokio::select! {
        ended = check(&args) => ended,
        _ = tokio::signal::ctrl_c() => Err("interrupted".into()),
    };
    match ended {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(reason) => {
            eprintln!("check-defects: {reason}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether every edit showed its defect.
async fn check(args: &Args) -> Result<bool, String> {
    let tree = &args.tree;
    if tree.join(".git").exists() {
        let tree = tree.display();
        return Err(format!(
            "--tree {tree}: expected a copy, found a checkout: scripts/check-defects makes a copy"
        ));
    }
    let table = Table::read(tree)?;
    let mistakes = table.mistakes(tree);
    if !mistakes.is_empty() {
        return Err(mistakes.join("\n"));
    }
    let cargo = Cargo::new(tree.clone(), tree.with_file_name("logs"))?;
    let is_asked = |edit: &Edit| args.defects.is_empty() || args.defects.contains(&edit.defect);
    let numbered = table.edits.iter().zip(1..).filter(|(edit, _)| is_asked(edit));
    let (edits, numbers): (Vec<_>, Vec<usize>) = numbered.unzip();
    let passed = baseline(&edits, &cargo).await?;
    eprintln!("check-defects: {} edits; with all fixes {passed} tests pass", edits.len());
    if !args.json {
        println!("{}", Finding::HEAD);
    }
    let mut shown = 0;
    for (edit, number) in edits.iter().zip(numbers) {
        let finding = find(edit, number, &cargo, tree).await?;
        if args.json {
            println!("{}", serde_json::to_string(&finding).map_err(|error| error.to_string())?);
        } else {
            println!("{}", finding.line());
        }
        finding.errors.iter().for_each(|error| eprintln!("check-defects: {}: {error}", edit.name()));
        shown += usize::from(finding.shows_defect());
    }
    eprintln!("check-defects: {shown} of {} edits show their defect", edits.len());
    Ok(shown == edits.len())
}
