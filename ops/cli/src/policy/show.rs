//! `headwater policy show`: every value in effect with its origin.

use std::fmt::{self, Display};
use std::path::Path;

use headwater_inference::bundle::Bundle;
use headwater_inference::policy::{PolicyChanges, PolicyValue, Promise};
use headwater_protocol::{Exit, PolicyId};
use serde::Serialize;

use super::{ShowArgs, read_text};
use crate::{BadUsage, shipped};

/// Prints the policy of a bundle with the changes of a file.
pub(super) fn run(args: &ShowArgs) -> anyhow::Result<()> {
    let bundle = shipped::open_bundle(args.bundle.as_deref())?;
    let changes = match &args.policy {
        Some(file) => {
            let changes = PolicyChanges::parse(&read_text(file)?);
            changes.map_err(|mistake| BadUsage(mistake.in_file(file).to_string()))?
        }
        None => PolicyChanges::default(),
    };
    let shown = ShownPolicy::of(&bundle, &changes, args.policy.as_deref())?;
    let text = if args.json { serde_json::to_string_pretty(&shown)? + "\n" } else { shown.to_string() };
    crate::print(&text)
}

/// A policy with the origin of each of its values.
#[derive(Serialize)]
struct ShownPolicy {
    network: String,
    /// Id of the policy in effect, which decisions carry.
    policy: PolicyId,
    /// Id of the policy in the bundle.
    calibrated_policy: PolicyId,
    file: Option<String>,
    /// Promises about the exits; empty if their loss was only measured, or if the file changes an exit.
    promises: Vec<Promise>,
    /// The promises as a line of text.
    #[serde(skip)]
    promise_line: String,
    values: Vec<ShownValue>,
}

#[derive(Serialize)]
struct ShownValue {
    key: String,
    value: PolicyValue,
    calibrated: PolicyValue,
    /// Line of the policy file that sets the value; `None` for a value of the bundle.
    line: Option<usize>,
    is_used: bool,
}

impl ShownPolicy {
    fn of(bundle: &Bundle, changes: &PolicyChanges, file: Option<&Path>) -> anyhow::Result<Self> {
        let applied = changes.apply_to(bundle.policies());
        let (policy, id) = applied.map_err(|mistake| {
            BadUsage(file.map_or(mistake.clone(), |file| mistake.in_file(file)).to_string())
        })?;
        let exits = bundle.manifest().exits();
        let calibrated = changes.base(bundle.policies()).unwrap_or(bundle.policy());
        let calibrated_values = calibrated.values();
        let values = policy.values().into_iter().map(|(key, value)| {
            let (line, is_used) = (changes.line(&key), is_used(exits, &key));
            let found = calibrated_values.iter().find(|(own, _)| *own == key);
            let calibrated = found.map_or_else(PolicyValue::none, |(_, value)| value.clone());
            ShownValue { key, value, calibrated, line, is_used }
        });
        Ok(Self {
            network: bundle.network_id().to_string(),
            policy: id,
            calibrated_policy: calibrated.id(),
            file: file.map(|file| file.display().to_string()),
            promise_line: match (policy.promises.first(), calibrated.promises.first()) {
                (None, Some(ended)) => {
                    format!("not promised any more, since the file changes exits or answers: {ended}")
                }
                (_, _) => policy.promise_line(),
            },
            promises: policy.promises,
            values: values.collect(),
        })
    }
}

/// Returns true when a network with these exits uses the value of a key.
pub(super) fn is_used(exits: &[Exit], key: &str) -> bool {
    let Some((name, of_exit)) = key.rsplit_once('.') else { return true };
    let exit = exits.iter().find(|exit| exit.name() == name);
    // The last exit needs no threshold: every sample that reaches the last exit leaves at it.
    exit.is_some_and(|exit| of_exit != "threshold" || Some(exit) != exits.last())
}

impl Display for ShownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { network, policy, calibrated_policy, file, promise_line, values, .. } = self;
        writeln!(f, "network  {network}")?;
        match file {
            Some(file) if policy != calibrated_policy => {
                writeln!(f, "policy   {policy} ({calibrated_policy} of the bundle, changed by {file})")?;
            }
            Some(file) => writeln!(f, "policy   {policy} (as in the bundle: {file} changes nothing)")?,
            None => writeln!(f, "policy   {policy} (as in the bundle)")?,
        }
        writeln!(f, "\n{:<20} {:<22} from", "key", "value")?;
        for ShownValue { key, value, calibrated, line, is_used } in values {
            let unused = if *is_used { "" } else { "; this network does not use it" };
            match (line, file) {
                (Some(line), Some(file)) => {
                    let value = value.to_string();
                    writeln!(f, "{key:<20} {value:<22} {file}:{line} (calibrated {calibrated}){unused}")?;
                }
                (_, _) if *is_used && !value.is_none() => {
                    let value = value.to_string();
                    writeln!(f, "{key:<20} {value:<22} bundle")?;
                }
                (_, _) => {}
            }
        }
        writeln!(f, "\n{promise_line}")?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> ShownPolicy {
        let bundle = shipped::open_bundle(None).unwrap();
        ShownPolicy::of(&bundle, &PolicyChanges::parse(text).unwrap(), Some(Path::new("p.toml"))).unwrap()
    }

    #[test]
    fn every_value_says_where_it_comes_from() {
        let text = shown("# mine\nwindow_ms = 40\n[edge]\nthreshold = 0.25\n").to_string();
        let lines: Vec<_> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        for line in [
            "window_ms 40 p.toml:2 (calibrated 50)",
            "features_ms 50 bundle",
            "edge.threshold 0.25 p.toml:4 (calibrated 0.5); this network does not use it",
        ] {
            assert!(lines.iter().any(|found| found == line), "{line} in\n{text}");
        }
        assert!(!text.contains("edge.rule") && !text.contains("cloud.threshold"), "{text}");
    }

    #[test]
    fn weights_are_shown_where_there_are_some() {
        assert!(!shown("").to_string().contains("weights"));
        let weights = "{ bias = -4.5, disagreement = 2.0, entropy = 3.0, margin = 0.0, present = -0.1 }";
        let shown = shown(&format!("[local]\nrule = \"learned\"\nweights = {weights}\n"));
        let text = shown.to_string();
        assert!(text.contains(&format!("{weights} p.toml:3 (calibrated none)")), "{text}");
        let json = serde_json::to_value(&shown).unwrap();
        let found = json["values"].as_array().unwrap().iter().find(|value| value["key"] == "local.weights");
        assert_eq!(found.unwrap()["value"]["disagreement"], 2.0);
    }

    #[test]
    fn the_ids_tell_whether_the_file_changes_anything() {
        let (same, other) = (shown("window_ms = 50"), shown("window_ms = 51"));
        assert_eq!(same.policy, same.calibrated_policy);
        assert!(same.to_string().contains("p.toml changes nothing"), "{same}");
        assert_ne!(other.policy, other.calibrated_policy);
        let json = serde_json::to_value(&other).unwrap();
        assert_eq!(json["values"][0]["value"], 51);
        assert_eq!((&json["values"][0]["line"], &json["values"][1]["line"]), (&1.into(), &().into()));
    }
}
