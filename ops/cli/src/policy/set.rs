//! `headwater policy set`: changes a policy file.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use headwater_inference::bundle::Bundle;
use headwater_inference::policy::{Policies, Policy, PolicyChanges, PolicyEdit, PolicyValue};
use headwater_protocol::PolicyId;
use headwater_toml_file::edit as edit_toml;
use headwater_transport::{PUBLIC_MODE, lock_folder_of, rewrite_file};

use super::show::is_used;
use super::{SetArgs, read_text};
use crate::{BadUsage, shipped};

/// Changes the file after a check, and prints the changes.
pub(super) fn run(args: &SetArgs) -> anyhow::Result<()> {
    let edits = edits(&args.values)?;
    let bundle = args.bundle.as_deref().map(|file| shipped::open_bundle(Some(file))).transpose()?;
    let without_effect = bundle.as_ref().map(|bundle| without_effect(bundle, &edits)).transpose()?;
    let calibrated = bundle.as_ref().map(Bundle::policies);
    let file = target(&args.file)?;
    // The lock is held until the function returns. Every user may read the file: services run as other users, and a policy is no secret.
    let _lock = lock_folder_of(&file).map_err(|reason| anyhow!("{}: {reason}", file.display()))?;
    let old = file.exists().then(|| read_text(&file)).transpose()?;
    let change = Change::new(&file, old.as_deref().unwrap_or_default(), &edits, calibrated)?;
    if old.is_none() || old.is_some_and(|old| old != change.text) {
        rewrite_file(&file, &change.text, PUBLIC_MODE)
            .with_context(|| format!("writing {}", file.display()))?;
    }
    crate::print(&(without_effect.unwrap_or_default() + &change.report(&args.file)))
}

/// The changes that the arguments ask for.
pub(super) fn edits(values: &[String]) -> Result<Vec<PolicyEdit>, BadUsage> {
    values.iter().map(|argument| PolicyEdit::parse(argument).map_err(BadUsage)).collect()
}

/// A line for the threshold of the last exit of the bundle's network, if it is changed: it has no effect.
///
/// # Errors
/// A value of an exit that the network does not have.
fn without_effect(bundle: &Bundle, edits: &[PolicyEdit]) -> Result<String, BadUsage> {
    let exits = bundle.manifest().exits();
    let mut lines = String::new();
    for edit in edits.iter().filter(|edit| edit.value().is_some() && !is_used(exits, edit.key())) {
        let key = edit.key();
        let own: Vec<_> = exits.iter().map(|exit| exit.name()).collect();
        let exit = key.rsplit_once('.').map_or(key, |(exit, _)| exit);
        if !own.contains(&exit) {
            return Err(BadUsage(format!(
                "{key}: expected an exit of this network ({}), found {exit}; the file stays as it was",
                own.join(", ")
            )));
        }
        lines += &format!("{key} has no effect: every sample that reaches the {exit} leaves there\n");
    }
    Ok(lines)
}

/// The file to change: a new file, a regular file, or the regular file behind a link.
fn target(file: &Path) -> anyhow::Result<PathBuf> {
    match fs::symlink_metadata(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(file.to_owned()),
        Err(error) => bail!("{}: {error}", file.display()),
        Ok(_) => {}
    }
    // The link stays; the file behind it is changed.
    let real = fs::canonicalize(file).with_context(|| {
        format!("{}: expected a file or a link to one, found a link to nothing", file.display())
    })?;
    let kind = fs::metadata(&real).with_context(|| real.display().to_string())?.file_type();
    if !kind.is_file() {
        let found = crate::special_file(kind);
        bail!("{}: expected a regular file, found {found}; nothing was changed", file.display());
    }
    Ok(real)
}

/// The file after the changes, and the differences from the file before.
struct Change {
    text: String,
    /// Key, earlier value and later value in the file; a value is `None` if the file does not have the key: the calibrated value holds.
    values: Vec<(String, Option<String>, Option<String>)>,
    /// Values of the bundle's calibrated policy; empty if no bundle is given.
    calibrated: Vec<(String, PolicyValue)>,
    /// Policy in effect with the changed file; `None` if no bundle is given.
    policy: Option<(Policy, PolicyId)>,
}

impl Change {
    fn new(
        file: &Path,
        old: &str,
        edits: &[PolicyEdit],
        calibrated: Option<&Policies>,
    ) -> Result<Self, BadUsage> {
        let of_file = |mistake: &dyn std::fmt::Display| BadUsage(format!("{}: {mistake}", file.display()));
        let mut text = old.to_owned();
        for edit in edits {
            text = edit_toml(&text, edit.key(), edit.value()).map_err(|mistake| of_file(&mistake))?;
        }
        let with_text =
            |mistake| of_file(&format!("with these changes: {mistake}; the file stays as it was"));
        let changes = PolicyChanges::parse(&text).map_err(|mistake| with_text(mistake.to_string()))?;
        let policy = calibrated.map(|calibrated| changes.apply_to(calibrated)).transpose();
        let policy = policy.map_err(|mistake| with_text(mistake.to_string()))?;
        let mut seen = BTreeSet::new();
        let keys = edits.iter().map(PolicyEdit::key).filter(|key| seen.insert(*key));
        let values = keys.map(|key| (key.to_owned(), stated(old, key), stated(&text, key)));
        let base = calibrated.and_then(|bundle| changes.base(bundle).ok());
        let calibrated = base.map(Policy::values).unwrap_or_default();
        Ok(Self { values: values.collect(), text, calibrated, policy })
    }

    /// Text with the changes, and with the way to make running services use the changed file.
    fn report(&self, file: &Path) -> String {
        let mut text = String::new();
        for (key, before, after) in &self.values {
            let calibrated = self.calibrated.iter().find(|(known, _)| known == key);
            let calibrated =
                calibrated.map_or("calibrated".into(), |(_, value)| format!("{value} (calibrated)"));
            let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| calibrated.clone());
            text += &match before == after {
                true => format!("{key} {}, unchanged\n", shown(after)),
                false => format!("{key} {} -> {}\n", shown(before), shown(after)),
            };
        }
        text += &match &self.policy {
            Some((_, id)) => format!("{}: with this bundle the policy is {id}\n", file.display()),
            None => format!(
                "{}: checked alone; with --bundle FILE also against a network's policy\n",
                file.display()
            ),
        };
        let of_device = self.values.iter().filter(|(key, ..)| key.starts_with("device.")).count();
        let programs = match (of_device, self.values.len()) {
            (0, _) => "headwater-aggregator",
            (device, all) if device == all => "headwater-device",
            (_, _) => "headwater-aggregator and headwater-device",
        };
        text + &format!(
            "To make it live, send SIGHUP to {programs} (kill -HUP PID, or systemctl reload); the log says what changed.\n"
        )
    }
}

/// The value of a key in the text of a policy file; `None` if the file does not have the key.
fn stated(text: &str, key: &str) -> Option<String> {
    let file: toml::Table = text.parse().ok()?;
    let mut names = key.split('.');
    let first = file.get(names.next()?)?;
    names.try_fold(first, |value, name| value.get(name)).map(ToString::to_string)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;

    fn set(file: &Path, values: &[&str]) -> anyhow::Result<()> {
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        run(&SetArgs { file: file.to_owned(), values, bundle: None })
    }

    #[test]
    fn a_file_is_made_and_changed_and_keeps_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("policy.toml");
        set(&file, &["window_ms=40", "local.threshold=0.4"]).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "window_ms = 40\n\n[local]\nthreshold = 0.4\n");
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, PUBLIC_MODE);
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        let link = folder.path().join("link.toml");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        set(&link, &["window_ms="]).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "\n[local]\nthreshold = 0.4\n");
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o640);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing is left beside them");
    }

    #[test]
    fn changes_that_do_not_fit_leave_the_file_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("policy.toml");
        fs::write(&file, "deadline_ms = 100\n").unwrap();
        let error = set(&file, &["window_ms=200"]).unwrap_err();
        assert!(error.is::<BadUsage>(), "{error}");
        let text = error.to_string();
        assert!(
            text.contains("deadline_ms (100) is below window_ms (200)") && text.contains("stays"),
            "{text}"
        );
        assert_eq!(fs::read_to_string(&file).unwrap(), "deadline_ms = 100\n");
        fs::write(&file, "deadline_ms = \n").unwrap();
        assert!(set(&file, &["window_ms=20"]).unwrap_err().to_string().contains("policy.toml: "));
        assert!(!set(folder.path(), &["window_ms=20"]).unwrap_err().is::<BadUsage>(), "a folder");
    }

    #[test]
    fn what_is_no_regular_file_is_refused_and_stays() {
        use std::os::unix::fs::FileTypeExt;
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let error = set(&socket, &["window_ms=20"]).unwrap_err().to_string();
        assert!(error.contains("socket: expected a regular file, found a device"), "{error}");
        assert!(fs::metadata(&socket).unwrap().file_type().is_socket());
        let dangling = folder.path().join("dangling.toml");
        std::os::unix::fs::symlink(folder.path().join("none"), &dangling).unwrap();
        let error = set(&dangling, &["window_ms=20"]).unwrap_err().to_string();
        assert!(error.contains("found a link to nothing"), "{error}");
        assert!(fs::symlink_metadata(&dangling).unwrap().is_symlink());
    }

    #[test]
    fn changes_at_the_same_time_lose_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("policy.toml");
        let values = [
            "window_ms=40",
            "late_ms=30",
            "local.threshold=0.4",
            "local.rule=margin",
            "edge.threshold=0.3",
            "edge.rule=margin",
        ];
        std::thread::scope(|scope| {
            for value in values {
                let file = &file;
                scope.spawn(move || set(file, &[value]).unwrap());
            }
        });
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!(PolicyChanges::parse(&text).unwrap().keys().count(), values.len(), "{text}");
    }

    #[test]
    fn an_exit_that_the_network_does_not_have_is_refused_and_a_key_without_effect_is_named() {
        let bundle = shipped::open_bundle(None).unwrap();
        let of = |argument: &str| without_effect(&bundle, &[PolicyEdit::parse(argument).unwrap()]);
        let refused = of("edge.threshold=0.3").unwrap_err().to_string();
        assert!(refused.contains("edge.threshold: expected an exit of this network (local, "), "{refused}");
        assert!(of("cloud.threshold=0.3").unwrap().contains("cloud.threshold has no effect"));
        assert_eq!(of("local.threshold=0.3").unwrap(), "");
        assert_eq!(of("edge.threshold=").unwrap(), "", "a key may be taken out");
    }

    #[test]
    fn a_key_that_is_given_twice_is_reported_once_with_its_last_value() {
        let edits =
            ["window_ms=40", "late_ms=30", "window_ms=50"].map(|edit| PolicyEdit::parse(edit).unwrap());
        let change = Change::new(Path::new("p.toml"), "", &edits, None).unwrap();
        let found: Vec<_> =
            change.values.iter().map(|(key, _, after)| (key.as_str(), after.as_deref())).collect();
        assert_eq!(found, [("window_ms", Some("50")), ("late_ms", Some("30"))]);
    }

    #[test]
    fn a_change_can_mend_a_mistake() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("policy.toml");
        fs::write(&file, "window_ms = 0\n").unwrap();
        assert!(set(&file, &["late_ms=20"]).is_err());
        set(&file, &["window_ms=20"]).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "window_ms = 20\n");
    }

    #[test]
    fn the_report_says_what_changed_and_who_must_read_it() {
        let calibrated = shipped::open_bundle(None).unwrap();
        let calibrated = calibrated.policies();
        let file = Path::new("p.toml");
        let report = |old: &str, argument: &str, calibrated| {
            let edits = [PolicyEdit::parse(argument).unwrap()];
            Change::new(file, old, &edits, calibrated).unwrap().report(file)
        };
        let known = report("", "window_ms=40", Some(calibrated));
        assert!(
            known.starts_with("window_ms 50 (calibrated) -> 40\np.toml: with this bundle the policy is "),
            "{known}"
        );
        assert!(known.contains("SIGHUP to headwater-aggregator (kill"), "{known}");
        let alone = report("device.threshold = 0.1", "device.threshold=", None);
        assert!(alone.starts_with("device.threshold 0.1 -> calibrated\np.toml: checked alone"), "{alone}");
        assert!(alone.contains("SIGHUP to headwater-device (kill"), "{alone}");
        assert!(report("window_ms = 40", "window_ms=40", None).starts_with("window_ms 40, unchanged\n"));
    }

    fn edited(text: &str, argument: &str) -> String {
        let edit = PolicyEdit::parse(argument).unwrap();
        edit_toml(text, edit.key(), edit.value()).unwrap()
    }

    #[track_caller]
    fn check(text: &str, argument: &str, expected: &str) {
        assert_eq!(edited(text, argument), expected);
    }

    #[test]
    fn a_further_exit_has_a_section_of_its_own() {
        check("", "cloud.1.threshold=0.25", "[cloud.1]\nthreshold = 0.25\n");
        let below = "[cloud]\nthreshold = 1.0\n\n[cloud.1]\nthreshold = 0.5\n";
        check(below, "cloud.1.threshold=0.25", &below.replace("0.5", "0.25"));
        for text in [
            "[cloud.1]\nthreshold = 0.5\n",
            "cloud.1.threshold = 0.5\n",
            "[cloud]\n1 = { threshold = 0.5 }\n",
        ] {
            let back = edited(text, "cloud.1.threshold=");
            assert_eq!(PolicyChanges::parse(&back).unwrap().keys().count(), 0, "{back}");
        }
    }

    #[test]
    fn a_value_is_replaced_and_comments_stay() {
        check(
            "# mine\nwindow_ms = 40 # short\n\n[local]\n# sure enough\nthreshold = 0.5 # found by hand\n",
            "local.threshold=0.4",
            "# mine\nwindow_ms = 40 # short\n\n[local]\n# sure enough\nthreshold = 0.4 # found by hand\n",
        );
        check("local.threshold = 0.5\n", "local.threshold=[0.6, 0.5]", "local.threshold = [0.6, 0.5]\n");
        check("local = { threshold = 0.5 }\n", "local.threshold=1", "local = { threshold = 1 }\n");
    }

    #[test]
    fn a_new_key_comes_into_its_section_and_behind_the_comments_of_an_empty_file() {
        check("", "window_ms=40", "window_ms = 40\n");
        check("", "edge.rule=margin", "[edge]\nrule = \"margin\"\n");
        check(
            "[local]\nthreshold = 0.5\n",
            "local.rule=margin",
            "[local]\nthreshold = 0.5\nrule = \"margin\"\n",
        );
        check("[local]\nthreshold = 0.5\n", "window_ms=9", "window_ms = 9\n[local]\nthreshold = 0.5\n");
        check("# a\n\n# b\n", "window_ms=9", "# a\n\n# b\n\nwindow_ms = 9\n");
        check("# a\n", "edge.rule=margin", "# a\n\n[edge]\nrule = \"margin\"\n");
    }

    #[test]
    fn a_key_is_taken_out_with_its_lines_and_comments_above_stay() {
        let text =
            "# of the file\nwindow_ms = 40 # short\n[local]\nthreshold = [\n  0.5,\n]\nrule = \"margin\"\n";
        check(text, "window_ms=", "# of the file\n[local]\nthreshold = [\n  0.5,\n]\nrule = \"margin\"\n");
        check(
            text,
            "local.threshold=",
            "# of the file\nwindow_ms = 40 # short\n[local]\nrule = \"margin\"\n",
        );
        check(text, "edge.rule=", text);
        check(
            "local = { threshold = 0.5, rule = \"margin\" }\n",
            "local.threshold=",
            "local = { rule = \"margin\" }\n",
        );
        check("window_ms = 40", "window_ms=", "");
    }

    #[test]
    fn the_example_file_takes_every_key() {
        let example = include_str!("../../../../docs/policy.toml");
        const WEIGHTS: &str =
            "{ bias = -4.5, disagreement = 2.0, entropy = 3.0, margin = 0.0, present = -0.1 }";
        for (key, value) in Policy::default().values() {
            let value = match (key.as_str(), value.is_none()) {
                ("claim_above", _) => "0.5".to_owned(),
                (_, true) => WEIGHTS.to_owned(),
                (_, false) => value.to_string(),
            };
            let changed = edited(example, &format!("{key}={value}"));
            assert!(changed.starts_with(example), "{changed}");
            assert_eq!(PolicyChanges::parse(&changed).unwrap().keys().collect::<Vec<_>>(), [&key]);
            let back = edited(&changed, &format!("{key}="));
            assert_eq!(PolicyChanges::parse(&back).unwrap().keys().count(), 0, "{back}");
        }
    }

    #[test]
    fn weights_are_one_key_as_an_inline_table_or_a_section() {
        const WEIGHTS: &str = "{ bias = 1, disagreement = 2, entropy = 3, margin = 4, present = 5 }";
        let section = format!(
            "[local]\nthreshold = 0.5\n\n[local.weights]\n{}\n\n[edge]\nthreshold = 0.4\n",
            WEIGHTS.trim_matches(['{', '}']).replace(", ", "\n").trim()
        );
        let changed = edited(&section, &format!("local.weights={WEIGHTS}"));
        let keys =
            |text: &str| PolicyChanges::parse(text).unwrap().keys().map(str::to_owned).collect::<Vec<_>>();
        assert!(changed.contains(&format!("weights = {WEIGHTS}")), "{changed}");
        assert_eq!(keys(&changed), ["edge.threshold", "local.threshold", "local.weights"]);
        let dotted = WEIGHTS.trim_matches(['{', '}']).trim().replace(", ", "\nlocal.weights.");
        let dotted = format!("local.weights.{dotted}\nlocal.threshold = 0.5\nedge.threshold = 0.4\n");
        for text in [&section, &changed, &dotted] {
            let without = edited(text, "local.weights=");
            assert_eq!(keys(&without), ["edge.threshold", "local.threshold"], "{without}");
        }
    }

    #[test]
    fn a_value_in_the_place_of_a_section_is_a_mistake() {
        let edit = PolicyEdit::parse("local.rule=margin").unwrap();
        assert!(edit_toml("local = 3", edit.key(), edit.value()).is_err());
    }
}
