//! Runs named tests of a package with cargo, each run with a limit of time.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::TestRun;

/// Package with the features of all third-party crates: with it every package finds the crates that another one has compiled.
const FEATURES: &str = "headwater-build-features";

/// Longest time of one compilation, with all third-party crates.
const BUILD_LIMIT: Duration = Duration::from_secs(3600);

/// Longest time of the tests of one run; a test without a result by then hangs.
const TEST_LIMIT: Duration = Duration::from_secs(120);

/// Longest wait for processes to end after SIGKILL.
const END_LIMIT: Duration = Duration::from_secs(60);

/// Bytes of a log that an error repeats.
const SHOWN_BYTES: usize = 4000;

/// Result of one test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The test passed.
    Passed,
    /// The test failed.
    Failed,
    /// The test had no result within the limit of time.
    Hung,
}

/// Cargo in a copy of the tracked files.
#[derive(Clone, Debug)]
pub struct Cargo {
    tree: PathBuf,
    logs: PathBuf,
}

impl Cargo {
    /// Cargo in the folder `tree`. Its output goes to the folder `logs`, which is made.
    ///
    /// # Errors
    /// A sentence with the folder that cannot be made.
    pub fn new(tree: PathBuf, logs: PathBuf) -> Result<Self, String> {
        fs::create_dir_all(&logs).map_err(|error| format!("{}: {error}", logs.display()))?;
        Ok(Self { tree, logs })
    }

    /// Builds the target, runs the named tests and no others, and returns their results by name. `log` begins the names of the logs.
    ///
    /// # Errors
    /// A sentence that begins with the target: it does not compile, it has no such test, or its process ended before a test did.
    pub async fn run(&self, run: &TestRun, log: &str) -> Result<BTreeMap<String, Outcome>, String> {
        let TestRun { package, target, tests } = run;
        let log = format!("{log}-{package}-{target}");
        let of_run = |reason: String| format!("{package}, {target}: {reason}");
        let build_log = format!("{log}-build");
        let list = self.cargo(run, &["--list", "--format", "terse"], (&build_log, BUILD_LIMIT)).await;
        let list = list.and_then(Output::listed).map_err(of_run)?;
        let paths = tests.iter().map(|test| Ok::<_, String>((test.clone(), path_of(test, &list)?)));
        let paths: BTreeMap<_, _> = paths.collect::<Result<_, _>>().map_err(of_run)?;
        // Several threads: a result is printed in one piece, when a test has ended.
        let arguments =
            ["--exact", "--test-threads", "4"].into_iter().chain(paths.values().map(String::as_str));
        let arguments: Vec<_> = arguments.collect();
        let output = self.cargo(run, &arguments, (&log, TEST_LIMIT)).await.map_err(of_run)?;
        let outcome = |(test, path): (String, String)| Ok::<_, String>((test, output.outcome(&path)?));
        paths.into_iter().map(outcome).collect::<Result<_, _>>().map_err(of_run)
    }

    /// Runs `cargo test` on a target. The output goes to a log of this name.
    async fn cargo(
        &self,
        run: &TestRun,
        arguments: &[&str],
        (log, limit): (&str, Duration),
    ) -> Result<Output, String> {
        let log = self.logs.join(log).with_extension("txt");
        let of_log = |error: std::io::Error| format!("{}: {error}", log.display());
        let file = File::create(&log).map_err(of_log)?;
        let errors = file.try_clone().map_err(of_log)?;
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.current_dir(&self.tree).args(["test", "--locked", "--package", &run.package]);
        command.args(["--package", FEATURES]);
        match run.target.as_str() {
            "lib" => command.arg("--lib"),
            name => command.args(["--test", name]),
        };
        command.arg("--").args(arguments).stdin(Stdio::null()).stdout(file).stderr(errors);
        let status = wait(command, limit).await?;
        let text = fs::read(&log).map_err(of_log)?;
        Ok(Output { status, text: String::from_utf8_lossy(&text).into_owned(), log })
    }
}

/// Waits for a command in a process group of its own; `None` where the limit of time ended it.
async fn wait(mut command: Command, limit: Duration) -> Result<Option<ExitStatus>, String> {
    let mut child =
        command.process_group(0).spawn().map_err(|error| format!("cargo does not start: {error}"))?;
    let group = ProcessGroup(child.id());
    let mut ended = spawn_blocking(move || child.wait());
    let in_time = timeout(limit, &mut ended).await;
    drop(group);
    match in_time {
        Ok(Ok(status)) => status.map(Some).map_err(|error| error.to_string()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => match timeout(END_LIMIT, ended).await {
            Ok(_) => Ok(None),
            Err(_) => Err(format!("cargo does not end {} s after SIGKILL", END_LIMIT.as_secs())),
        },
    }
}

/// A process group, which ends when dropped: cargo, the tests, and the programs of the tests.
struct ProcessGroup(u32);

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        // A group that has ended already needs no signal.
        _ = Command::new("kill")
            .args(["-KILL", "--", &format!("-{}", self.0)])
            .stderr(Stdio::null())
            .status();
    }
}

/// Output of one `cargo test`.
#[derive(Debug)]
struct Output {
    /// `None` where the limit of time ended it.
    status: Option<ExitStatus>,
    text: String,
    log: PathBuf,
}

impl Output {
    /// Paths of the tests in a target.
    fn listed(self) -> Result<Vec<String>, String> {
        if !self.status.is_some_and(|status| status.success()) {
            return Err(format!("does not compile: {}", shown(&self.log, &self.text)));
        }
        Ok(self.text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
    }

    /// Result of the test with this path.
    fn outcome(&self, path: &str) -> Result<Outcome, String> {
        let line = format!("test {path} ... ");
        // A program of a test may have written into the same line before.
        let results = self.text.lines().filter_map(|found| Some(found.split_once(&line)?.1));
        let results: Vec<_> = results.map(str::trim).collect();
        if results.contains(&"FAILED") {
            return Ok(Outcome::Failed);
        }
        if results.contains(&"ok") {
            return Ok(Outcome::Passed);
        }
        match self.status {
            None => Ok(Outcome::Hung),
            Some(status) => {
                let shown = shown(&self.log, &self.text);
                Err(format!("the tests ended ({status}) without a result of {path}: {shown}"))
            }
        }
    }
}

/// Path of the test with this name among the paths of a target.
fn path_of(test: &str, list: &[String]) -> Result<String, String> {
    let has_name = |path: &&String| path.rsplit("::").next() == Some(test);
    let mut found = list.iter().filter(has_name);
    match (found.next(), found.next()) {
        (Some(path), None) => Ok(path.clone()),
        (None, _) => Err(format!("expected a test {test}, found none among {}", list.len())),
        (Some(first), Some(second)) => Err(format!("expected one test {test}, found {first} and {second}")),
    }
}

/// The log's name and its end.
fn shown(log: &Path, text: &str) -> String {
    let start = text.ceil_char_boundary(text.len().saturating_sub(SHOWN_BYTES));
    format!("{}\n{}", log.display(), &text[start..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(status: Option<i32>, text: &str) -> Output {
        use std::os::unix::process::ExitStatusExt;
        let status = status.map(|code| ExitStatus::from_raw(code << 8));
        Output { status, text: text.into(), log: "log.txt".into() }
    }

    const LIST: &str =
        "    Finished\nleader::tests::it_holds: test\nleader::it_holds_too: test\nbench: bench\n";

    #[test]
    fn tests_are_found_by_their_names_without_modules() {
        let list = output(Some(0), LIST).listed().unwrap();
        assert_eq!(list, ["leader::tests::it_holds", "leader::it_holds_too"]);
        assert_eq!(path_of("it_holds", &list).unwrap(), "leader::tests::it_holds");
        assert!(path_of("holds", &list).unwrap_err().contains("found none among 2"));
        let twice = [&list[..], &["it_holds".to_owned()]].concat();
        assert!(path_of("it_holds", &twice).unwrap_err().contains("and it_holds"));
    }

    #[test]
    fn code_that_does_not_compile_is_an_error_and_no_failed_test() {
        let error = output(Some(101), "error[E0425]: cannot find value").listed().unwrap_err();
        assert!(error.contains("does not compile") && error.contains("E0425"), "{error}");
    }

    #[test]
    fn each_test_has_the_result_that_its_line_says() {
        let text =
            "test a::it_holds ... ok\nnoise test a::it_fails ... FAILED\ntest a::it_fails_too ... ok\n";
        let ended = output(Some(101), text);
        assert_eq!(ended.outcome("a::it_holds"), Ok(Outcome::Passed));
        assert_eq!(ended.outcome("a::it_fails"), Ok(Outcome::Failed));
        assert!(ended.outcome("a::it_is_gone").unwrap_err().contains("without a result of a::it_is_gone"));
        assert_eq!(output(None, text).outcome("a::it_hangs"), Ok(Outcome::Hung));
    }

    #[tokio::test]
    async fn a_command_beyond_its_limit_is_ended_with_its_children() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 600 & wait"]).stdout(writer);
        assert_eq!(wait(command, Duration::from_millis(500)).await, Ok(None));
        // The pipe ends with the last process that holds it.
        let mut rest = Vec::new();
        std::io::Read::read_to_end(&mut reader, &mut rest).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "exit 3"]);
        let status = wait(command, Duration::from_secs(60)).await.unwrap();
        assert_eq!(status.and_then(|status| status.code()), Some(3));
    }
}
