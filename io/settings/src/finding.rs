//! Findings of a check of settings and of what they name, as `--check-config` and `headwater doctor` print them.

use std::path::Path;
use std::process::ExitCode;

use headwater_transport::{readers, redacted};
use serde::Serialize;

use crate::load::{Loaded, Program};
use crate::stop::{Stop, print_result};

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Nothing to do.
    Ok,
    /// The part works, and somebody should look at it.
    Warn,
    /// The part does not work.
    Fail,
}

impl Level {
    /// Name in the report.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// One finding: level, what was looked at, what was found, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Severity of the finding.
    pub level: Level,
    /// Checked part, such as `broker`.
    pub check: String,
    /// Observation. Passwords of addresses are hidden.
    pub found: String,
    /// Advice; `None` if there is nothing to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl Finding {
    /// A part that needs nothing.
    pub fn ok(check: impl Into<String>, found: impl AsRef<str>) -> Self {
        let found = redacted(found.as_ref().trim_end());
        Self { level: Level::Ok, check: check.into(), found, advice: None }
    }

    /// A part that works, and that somebody should look at.
    pub fn warn(check: impl Into<String>, found: impl AsRef<str>, advice: impl AsRef<str>) -> Self {
        Self { level: Level::Warn, advice: Some(redacted(advice.as_ref())), ..Self::ok(check, found) }
    }

    /// A part that does not work.
    pub fn fail(check: impl Into<String>, found: impl AsRef<str>, advice: impl AsRef<str>) -> Self {
        Self { level: Level::Fail, ..Self::warn(check, found, advice) }
    }

    /// A line for people. Further lines of a reason, such as the reason of a TOML file, stand behind `indent`.
    pub fn line(&self, indent: &str) -> String {
        let advice = self.advice.as_ref().map(|advice| format!("; {advice}")).unwrap_or_default();
        let line = format!("{}: {}{advice}", self.check, self.found);
        format!("{indent}{:<5} {}\n", self.level.name(), line.replace('\n', &format!("\n{indent}        ")))
    }
}

/// Cuts a sentence of the form `found; what to do` in two. `otherwise` is the advice for a sentence without one.
pub fn split_advice<'a>(text: &'a str, otherwise: &'a str) -> (&'a str, &'a str) {
    text.split_once("; ").unwrap_or((text, otherwise))
}

/// Adds the mistakes with which the program would refuse to start. Mistakes and failed findings begin with the key of a setting: a
/// failed finding with the key of a mistake takes the words of the mistake. If nothing fails, adds a finding
/// that the program takes every setting.
pub fn add_mistakes(program: &str, findings: &mut Vec<Finding>, mistakes: Vec<String>) {
    let key = |text: &str| text.split(':').next().unwrap_or_default().to_owned();
    let mut failed: Vec<_> = findings.iter_mut().filter(|finding| finding.level == Level::Fail).collect();
    let mut others = Vec::new();
    for mistake in mistakes {
        match failed.iter().position(|finding| key(&finding.found) == key(&mistake)) {
            Some(index) => failed.swap_remove(index).found = redacted(&mistake),
            None => others.push(mistake),
        }
    }
    findings.extend(others.iter().map(|mistake| {
        // The key without the place of a group.
        let key = key(mistake);
        let key = key.split_once("].").map_or(key.as_str(), |(_, key)| key);
        let check = if key == "policy" { "policy" } else { "configuration" };
        Finding::fail(check, mistake, advice(key, program))
    }));
    if findings.iter().all(|finding| finding.level != Level::Fail) {
        findings.push(Finding::ok("configuration", format!("{program} takes every setting")));
    }
}

fn advice(key: &str, program: &str) -> String {
    match key {
        "policy" => "correct the policy file (docs/policy.toml explains every key, `headwater policy show` prints the policy in effect)".into(),
        "broker.password_file" | "cloud.key_file" => {
            "write the secret into the first line of the file, for the program's user alone (mode 0600)".into()
        }
        "http.keys_file" => {
            "write a key of 16 characters or more into the file (openssl rand -hex 16), and the same key into the file of `cloud.key_file` \
             of each aggregator"
                .into()
        }
        _ => format!("correct the setting; `{program} --help` explains every one"),
    }
}

/// Prints the findings of a program as comments above the settings in effect: exit code 0, or 1 if the text cannot be written. If findings
/// fail, prints only these, as a start prints its mistakes: exit code 2.
pub fn print_checked<S: Program>(loaded: &Loaded<S>, findings: &[Finding]) -> ExitCode {
    let fails = findings.iter().filter(|finding| finding.level == Level::Fail);
    let fails: Vec<_> = fails.map(|finding| finding.found.clone()).collect();
    if !fails.is_empty() {
        return Stop::Mistakes(fails).print(S::NAME);
    }
    let lines: String = findings.iter().map(|finding| finding.line("# ")).collect();
    print_result(S::NAME, &format!("{lines}\n{}", loaded.to_toml()))
}

/// A finding about a setting whose path leads to a pipe, a device or a socket, which a read could wait for without end. `None` for a regular
/// file, for a folder if `may_be_folder`, and for a path that is not set or does not exist.
pub fn no_file(key: &str, path: Option<&Path>, may_be_folder: bool) -> Option<Finding> {
    let path = path?;
    let found = std::fs::metadata(path).ok()?;
    if found.is_file() || may_be_folder && found.is_dir() {
        return None;
    }
    let expected = if may_be_folder { "a regular file or a folder" } else { "a regular file" };
    let found = format!(
        "{key}: {}: expected {expected}, found something else (a pipe, a device or a socket)",
        path.display()
    );
    let check = key.rsplit('.').next().unwrap_or(key).trim_start_matches("next_");
    Some(Finding::fail(check, found, format!("name {expected}")))
}

/// A warning if others than the owner may read a file with a secret; otherwise `None`.
pub fn readable_secret(file: Option<&Path>) -> Option<Finding> {
    let sentence = readers(file?)?;
    let (found, advice) = split_advice(&sentence, "chmod 600");
    Some(Finding::warn("secret", found, advice))
}

/// Findings about the bundles of a tier, or of the group whose keys begin with `place`: what was opened, or every mistake.
pub fn bundles(place: &str, opened: Result<String, &Vec<String>>) -> Vec<Finding> {
    match opened {
        Ok(described) => {
            let place = place.trim_end_matches('.');
            let check = if place.is_empty() { "bundle".into() } else { format!("bundle of {place}") };
            vec![Finding::ok(check, described)]
        }
        Err(mistakes) => {
            let finding = |mistake: &String| {
                Finding::fail("bundle", format!("{place}{mistake}"), bundle_advice(mistake))
            };
            mistakes.iter().map(finding).collect()
        }
    }
}

fn bundle_advice(mistake: &str) -> &'static str {
    if mistake.contains("signature") || mistake.contains("trusted_keys") {
        "sign the bundle with a trusted key (`headwater sign --key`), or add its key to `trusted_keys`"
    } else if mistake.contains("os error") {
        "copy the bundle there, readable for the program's user, or correct the setting"
    } else {
        "copy the bundle again from where it was exported; `headwater inspect FILE` shows a whole one"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_takes_the_words_of_the_mistake_with_its_key() {
        let of_bundle = "group[1].bundle: opening a.hwb: No such file".to_owned();
        let mut findings = bundles("group[1].", Err(&vec!["bundle: opening a.hwb: none".to_owned()]));
        let policy = "group[1].policy: p.toml: unknown field".to_owned();
        add_mistakes("headwater-x", &mut findings, vec![of_bundle, policy.clone()]);
        let found: Vec<_> = findings.iter().map(|of| (of.check.as_str(), of.found.as_str())).collect();
        assert_eq!(
            found,
            [("bundle", "group[1].bundle: opening a.hwb: No such file"), ("policy", policy.as_str())]
        );
        let mut none = Vec::new();
        add_mistakes("headwater-x", &mut none, Vec::new());
        assert_eq!(none, [Finding::ok("configuration", "headwater-x takes every setting")]);
    }
}
