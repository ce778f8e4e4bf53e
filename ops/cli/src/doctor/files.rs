//! Files that the settings name: those that are no files, and paths that are relative to another folder than the doctor's.

use std::path::{Path, PathBuf};

use super::finding::{Finding, Level};
use super::tier::{Tier, TierSettings};

/// A file that a setting names.
pub(super) struct NamedFile<'a> {
    /// Key of the setting, with the place of a group.
    pub(super) key: String,
    pub(super) path: &'a Path,
    /// Whether a folder may stand there.
    may_be_folder: bool,
}

impl Tier {
    /// Bundles, policies and frames: the files that are opened without a look at their kind.
    pub(super) fn named_files(&self) -> Vec<NamedFile<'_>> {
        let mut files = Vec::new();
        for of in self.bundles() {
            for (key, path) in [("bundle", Some(of.bundle)), ("next_bundle", of.next)] {
                let key = format!("{}{key}", of.place);
                files.extend(path.map(|path| NamedFile { key, path, may_be_folder: false }));
            }
        }
        let policies: Vec<_> = match &self.settings {
            TierSettings::Device(settings) => {
                let frames = settings.source.path.as_deref();
                let frame_file = |path| NamedFile { key: "source.path".into(), path, may_be_folder: true };
                files.extend(frames.map(frame_file));
                vec![("", &settings.policy)]
            }
            TierSettings::Aggregator(loaded) => {
                let places = self.members.iter().map(|member| member.place.as_str());
                places.zip(loaded.groups.all.iter().map(|group| &group.policy)).collect()
            }
            TierSettings::Cloud(_) => Vec::new(),
        };
        for (place, policy) in policies {
            let key = format!("{place}policy");
            files.extend(policy.as_deref().map(|path| NamedFile { key, path, may_be_folder: false }));
        }
        files
    }
}

/// Findings about what is no file, such as a pipe: reading it could last for ever.
pub(super) fn check(tier: &Tier) -> Vec<Finding> {
    let files = tier.named_files().into_iter();
    let others = files.filter(|file| {
        std::fs::metadata(file.path)
            .is_ok_and(|found| !(found.is_file() || file.may_be_folder && found.is_dir()))
    });
    others
        .map(|NamedFile { key, path, may_be_folder }| {
            let check = if key.ends_with("policy") {
                "policy"
            } else if may_be_folder {
                "configuration"
            } else {
                "bundle"
            };
            let expected = if may_be_folder { "a regular file or a folder" } else { "a regular file" };
            let found = format!(
                "{key}: {}: expected {expected}, found something else (a pipe, a device or a socket)",
                path.display()
            );
            Finding::fail(check, found, format!("write the path of {expected} into {}", tier.file.display()))
        })
        .collect()
}

/// Adds to findings about missing files to which folder a relative path is relative.
pub(super) fn name_working_directory(tier: &Tier, findings: &mut [Finding]) {
    let Ok(folder) = std::env::current_dir() else { return };
    let mut paths: Vec<PathBuf> = tier.named_files().into_iter().map(|file| file.path.to_owned()).collect();
    paths.extend(
        tier.identities()
            .into_iter()
            .flat_map(|(_, tls, _)| {
                [&tls.authority_file, &tls.certificate_file, &tls.key_file, &tls.revoked_file]
                    .map(Clone::clone)
            })
            .flatten(),
    );
    paths.extend(tier.broker().and_then(|broker| broker.password_file.clone()));
    paths.retain(|path| path.is_relative());
    let missing = findings.iter_mut().filter(|finding| {
        let names = |path: &PathBuf| finding.found.contains(&path.display().to_string());
        finding.level == Level::Fail && finding.found.contains("os error 2)") && paths.iter().any(names)
    });
    for Finding { advice, .. } in missing {
        let relative = format!(
            "the path is relative to the working directory, here {}: run the doctor where the program starts, or write the whole path",
            folder.display()
        );
        *advice = Some(advice.take().map_or(relative.clone(), |advice| format!("{relative}; or {advice}")));
    }
}
