//! `headwater policy set`: changes a policy file.

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions, TryLockError};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use headwater_inference::bundle::Bundle;
use headwater_inference::policy::{Policy, PolicyChanges, PolicyValue};
use headwater_protocol::PolicyId;
use headwater_transport::{lock_within, read_bounded};
use toml_edit::{Document, Item};

use super::SetArgs;
use super::edit::Edit;
use super::show::is_used;
use crate::{BadUsage, shipped};

/// Largest file that is changed, in bytes; services take no larger one.
const MAX_FILE_BYTES: u64 = 64 << 10;

/// Longest wait for another run that changes a policy in the same folder.
const LOCK_LIMIT: Duration = Duration::from_secs(5);

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
    let without_effect = bundle.as_ref().map(|bundle| without_effect(bundle, &edits)).transpose()?;
    let calibrated = bundle.as_ref().map(Bundle::calibrated_policy);
    let file = target(&args.file)?;
    // The lock is held until the function returns.
    let _lock = lock(folder_of(&file), LOCK_LIMIT)?;
    let old = read(&file)?;
    let change = Change::new(&file, old.as_deref().unwrap_or_default(), &edits, calibrated)?;
    if old.is_none() || old.is_some_and(|old| old != change.text) {
        write(&file, &change.text).with_context(|| format!("writing {}", file.display()))?;
    }
    crate::print(&(without_effect.unwrap_or_default() + &change.report(&args.file)))
}

/// Lines about keys that have no effect in the network of a bundle.
///
/// # Errors
/// A value for an exit that the network does not have.
fn without_effect(bundle: &Bundle, edits: &[Edit]) -> Result<String, BadUsage> {
    let exits = bundle.manifest().exits();
    let mut lines = String::new();
    for edit in edits.iter().filter(|edit| edit.is_set() && !is_used(exits, &edit.key)) {
        let key = &edit.key;
        let own: Vec<_> = exits.iter().map(|exit| exit.name()).collect();
        let exit = key.rsplit_once('.').map_or(key.as_str(), |(exit, _)| exit);
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

/// The file that is changed: a new one, a regular file, or the regular file behind a link.
fn target(file: &Path) -> anyhow::Result<PathBuf> {
    match fs::symlink_metadata(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(file.to_owned()),
        Err(error) => bail!("{}: {error}", file.display()),
        Ok(_) => {}
    }
    // The file behind a link is changed, and the link stays.
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

/// Folder of a file.
fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Locks a folder against other runs of this command; the lock is held until the file is dropped.
fn lock(folder: &Path, limit: Duration) -> anyhow::Result<File> {
    let of = || format!("locking the folder {}", folder.display());
    let file = File::open(folder).with_context(of)?;
    match lock_within(&file, limit) {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => bail!(
            "{}: another program changes a policy in this folder for more than {} s; try again when it has ended",
            folder.display(),
            limit.as_secs_f32()
        ),
        Err(TryLockError::Error(error)) => Err(error).with_context(of),
    }
}

/// The text of the file; `None` where there is no file.
fn read(file: &Path) -> anyhow::Result<Option<String>> {
    if fs::metadata(file).is_err_and(|error| error.kind() == ErrorKind::NotFound) {
        return Ok(None);
    }
    let text = read_bounded(file, MAX_FILE_BYTES)
        .and_then(|text| String::from_utf8(text).map_err(|error| format!("expected text: {error}")));
    match text {
        Ok(text) => Ok(Some(text)),
        Err(reason) => bail!("reading the policy {}: {reason}", file.display()),
    }
}

/// The changed file.
struct Change {
    text: String,
    /// Key, earlier and later value as the file states them; `None` for the calibrated one.
    values: Vec<(String, Option<String>, Option<String>)>,
    /// Values of the calibrated policy, where a bundle is known.
    calibrated: Vec<(String, PolicyValue)>,
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
        let mut seen = BTreeSet::new();
        let keys = edits.iter().map(|edit| &edit.key).filter(|key| seen.insert(*key));
        let values = keys.map(|key| (key.clone(), stated(old, key), stated(&text, key)));
        let calibrated = calibrated.map(|(policy, _)| policy.values()).unwrap_or_default();
        Ok(Self { values: values.collect(), text, calibrated, policy })
    }

    /// The change, and the way to make it live.
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
    // Weights may be a section of their own.
    let value = if item.is_table() { item.clone().into_value().ok() } else { item.as_value().cloned() };
    value.map(|value| value.decorated("", "").to_string()).or_else(|| {
        // Something else in the place of a value was a mistake.
        (!matches!(item, Item::None)).then(|| "a mistake".into())
    })
}

/// Writes a file beside its place and moves it there, with mode and owner of the old one.
fn write(file: &Path, text: &str) -> anyhow::Result<()> {
    let mut beside = tempfile::Builder::new().prefix(".policy-").tempfile_in(folder_of(file))?;
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
    fn a_lock_of_another_program_is_waited_for_with_a_limit() {
        let folder = tempfile::tempdir().unwrap();
        let held = lock(folder.path(), LOCK_LIMIT).unwrap();
        let error = lock(folder.path(), Duration::from_millis(50)).unwrap_err().to_string();
        assert!(error.contains("another program changes a policy"), "{error}");
        drop(held);
        assert!(lock(folder.path(), Duration::ZERO).is_ok());
    }

    #[test]
    fn an_exit_that_the_network_does_not_have_is_refused_and_a_key_without_effect_is_named() {
        let bundle = shipped::open_bundle(None).unwrap();
        let of = |argument: &str| without_effect(&bundle, &[Edit::parse(argument).unwrap()]);
        let refused = of("edge.threshold=0.3").unwrap_err().to_string();
        assert!(refused.contains("edge.threshold: expected an exit of this network (local, "), "{refused}");
        assert!(of("cloud.threshold=0.3").unwrap().contains("cloud.threshold has no effect"));
        assert_eq!(of("local.threshold=0.3").unwrap(), "");
        assert_eq!(of("edge.threshold=").unwrap(), "", "a key may be taken out");
    }

    #[test]
    fn a_key_that_is_given_twice_is_reported_once_with_its_last_value() {
        let edits = ["window_ms=40", "late_ms=30", "window_ms=50"].map(|edit| Edit::parse(edit).unwrap());
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
