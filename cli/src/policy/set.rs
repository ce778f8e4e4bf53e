//! `headwater policy set`: changes a policy file.

use std::fs::{self, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use headwater_inference::bundle::Bundle;
use headwater_inference::policy::{Policy, PolicyChanges};
use headwater_protocol::PolicyId;
use toml_edit::{Document, Item};

use super::SetArgs;
use super::edit::Edit;
use crate::{BadUsage, shipped};

/// Largest file that is changed, in bytes; services take no larger one.
const MAX_FILE_BYTES: u64 = 64 << 10;

/// Mode of a new file: a policy is no secret, and services run as another user.
const NEW_FILE_MODE: u32 = 0o644;

/// Changes the file after a check, and prints what changed.
pub(super) fn run(args: &SetArgs) -> anyhow::Result<()> {
    let of_values = args.values.iter().map(|argument| Edit::parse(argument));
    let edits = of_values.chain(args.unset.iter().map(|key| Edit::unset(key)));
    let edits: Vec<Edit> = edits.collect::<Result<_, _>>()?;
    if edits.is_empty() {
        return Err(BadUsage("expected at least one KEY=VALUE or --unset KEY, found none".into()).into());
    }
    let bundle = args.bundle.as_deref().map(|file| shipped::open_bundle(Some(file))).transpose()?;
    let calibrated = bundle.as_ref().map(Bundle::calibrated_policy);
    // The file behind a link is changed, and the link stays.
    let file = fs::canonicalize(&args.file).unwrap_or_else(|_| args.file.clone());
    let old = read(&file)?;
    let change = Change::new(&file, old.as_deref().unwrap_or_default(), &edits, calibrated)?;
    if old.is_none() || old.is_some_and(|old| old != change.text) {
        write(&file, &change.text).with_context(|| format!("writing {}", file.display()))?;
    }
    crate::print(&change.report(&args.file))
}

/// The text of the file; `None` where there is no file.
fn read(file: &Path) -> anyhow::Result<Option<String>> {
    let text = fs::metadata(file).and_then(|found| {
        if found.len() > MAX_FILE_BYTES {
            return Err(std::io::Error::other(format!(
                "expected a policy of at most {MAX_FILE_BYTES} bytes, found {}",
                found.len()
            )));
        }
        fs::read_to_string(file)
    });
    match text {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("reading {}", file.display())),
    }
}

/// The changed file.
struct Change {
    text: String,
    /// Key, earlier and later value as the file states them; `None` for the calibrated one.
    values: Vec<(String, Option<String>, Option<String>)>,
    /// Values of the calibrated policy, where a bundle is known.
    calibrated: Vec<(String, String)>,
    /// Policy in effect with the changed file, where a bundle is known.
    policy: Option<(Policy, PolicyId)>,
}

impl Change {
    fn new(
        file: &Path,
        old: &str,
        edits: &[Edit],
        calibrated: Option<(Policy, PolicyId)>,
    ) -> Result<Self, BadUsage> {
        let of_file = |mistake: &dyn std::fmt::Display| BadUsage(format!("{}: {mistake}", file.display()));
        let mut text = old.to_owned();
        for edit in edits {
            text = edit.apply_to(&text).map_err(|mistake| of_file(&mistake))?;
        }
        let with_text =
            |mistake| of_file(&format!("with these changes: {mistake}; the file stays as it was"));
        let changes = PolicyChanges::parse(&text).map_err(|mistake| with_text(mistake.to_string()))?;
        let policy = calibrated.as_ref().map(|calibrated| changes.apply_to(calibrated)).transpose();
        let policy = policy.map_err(|mistake| with_text(mistake.to_string()))?;
        let mut keys: Vec<_> = edits.iter().map(|edit| edit.key.clone()).collect();
        keys.dedup();
        let values = keys.into_iter().map(|key| {
            let (before, after) = (stated(old, &key), stated(&text, &key));
            (key, before, after)
        });
        let calibrated = calibrated.map(|(policy, _)| policy.values()).unwrap_or_default();
        Ok(Self { values: values.collect(), text, calibrated, policy })
    }

    /// What changed, and how to make it live.
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
        let is_of_device =
            |(key, _, _): &&(String, Option<String>, Option<String>)| key.starts_with("device.");
        let of_device = self.values.iter().filter(is_of_device).count();
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

/// The value of a key as a file states it; `None` if it does not.
fn stated(text: &str, key: &str) -> Option<String> {
    let document = Document::parse(text.to_owned()).ok()?;
    let item = key.split('.').try_fold(document.as_item(), |item, part| item.get(part))?;
    item.as_value().map(|value| value.clone().decorated("", "").to_string()).or_else(|| {
        // Something else in the place of a value was a mistake.
        (!matches!(item, Item::None)).then(|| "a mistake".into())
    })
}

/// Writes a file beside its place and moves it there, with mode and owner of the old one.
fn write(file: &Path, text: &str) -> anyhow::Result<()> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.map_or_else(|| PathBuf::from("."), Path::to_owned);
    let mut beside = tempfile::Builder::new().prefix(".policy-").tempfile_in(folder)?;
    beside.write_all(text.as_bytes())?;
    let mode = match fs::metadata(file) {
        Ok(old) => {
            let new = beside.as_file().metadata()?;
            if (old.uid(), old.gid()) != (new.uid(), new.gid())
                && let Err(error) = chown(beside.path(), Some(old.uid()), Some(old.gid()))
            {
                bail!(
                    "the file belongs to user {} and group {}, and cannot keep them: {error}",
                    old.uid(),
                    old.gid()
                );
            }
            old.mode() & 0o777
        }
        Err(_) => NEW_FILE_MODE,
    };
    beside.as_file().set_permissions(Permissions::from_mode(mode))?;
    beside.as_file().sync_all()?;
    beside.persist(file)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(file: &Path, values: &[&str]) -> anyhow::Result<()> {
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        run(&SetArgs { file: file.to_owned(), values, unset: Vec::new(), bundle: None })
    }

    #[test]
    fn a_file_is_made_and_changed_and_keeps_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("policy.toml");
        set(&file, &["window_ms=40", "local.threshold=0.4"]).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "window_ms = 40\n\n[local]\nthreshold = 0.4\n");
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, NEW_FILE_MODE);
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
        assert!(set(&file, &[]).unwrap_err().is::<BadUsage>());
        fs::write(&file, "deadline_ms = \n").unwrap();
        assert!(set(&file, &["window_ms=20"]).unwrap_err().to_string().contains("policy.toml: "));
        assert!(!set(folder.path(), &["window_ms=20"]).unwrap_err().is::<BadUsage>(), "a folder");
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
        let calibrated = shipped::open_bundle(None).unwrap().calibrated_policy();
        let file = Path::new("p.toml");
        let report = |old: &str, argument: &str, calibrated| {
            let edits = [Edit::parse(argument).unwrap()];
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
}
