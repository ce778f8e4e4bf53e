//! A check of metrics by Prometheus's own tool.

use std::io::{ErrorKind, Write};
use std::process::{Command, Stdio};

/// Runs `promtool check metrics` on the text of a registry, and panics with each line that the tool objects to.
///
/// Without the tool (Debian package `prometheus`) the check is skipped, with a line on stderr.
///
/// # Panics
/// When the tool objects to the text.
#[track_caller]
pub fn check_metrics(text: &str) {
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut promtool = match promtool.spawn() {
        Ok(promtool) => promtool,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            eprintln!("skipped: promtool is not installed (scripts/install/test-tools)");
            return;
        }
        Err(error) => panic!("promtool: {error}"),
    };
    let mut input = promtool.stdin.take().expect("piped");
    input.write_all(text.as_bytes()).expect("promtool reads");
    drop(input);
    let output = promtool.wait_with_output().expect("promtool ends");
    let found = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && found.is_empty(), "promtool: {found}\n{text}");
}
