//! Remains of interrupted commands in the folder of a site.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::denied;
use crate::site::{AUTHORITY_KEY, CERTIFICATE, KEY, MEMBER_AUTHORITY, Site};

/// A file or folder of a site that is missing, left over or wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// The file or folder.
    pub path: PathBuf,
    /// Fault of the file or folder, in words.
    pub reason: String,
    /// Command or action that mends the fault.
    pub advice: String,
}

impl Site {
    /// Finds folders without a member, members' folders in which a file is missing, files `*.new` that were not moved to their place, and
    /// an authority whose key and certificate do not belong together. A member's folder that is absent counts as moved to its machine.
    pub fn unfinished(&self) -> Vec<Unfinished> {
        let mut found = Vec::new();
        if let Err(error) = self.authority() {
            found.push(Unfinished {
                path: self.folder().join(AUTHORITY_KEY),
                reason: error.to_string(),
                advice: "put the key and the certificate of one authority there, from a copy of the folder"
                    .into(),
            });
        }
        let members: Vec<_> = self.holders().map(|member| (self.folder_of(member), member.clone())).collect();
        for (folder, member) in members.iter().filter(|(folder, _)| folder.is_dir()) {
            for name in [MEMBER_AUTHORITY, CERTIFICATE, KEY] {
                let is_there = match folder.join(name).try_exists() {
                    Ok(is_there) => is_there,
                    // A missing file cannot be told from a hidden one in a folder that this user may not enter.
                    Err(error) => {
                        found.push(hidden(folder, &error));
                        break;
                    }
                };
                if !is_there {
                    found.push(Unfinished {
                        path: folder.join(name),
                        reason: "the file is missing".into(),
                        advice: member.renew_command(),
                    });
                }
            }
        }
        let is_member = |folder: &Path| self.folders().any(|own| own == folder);
        let holds_members = |folder: &Path| self.folders().any(|own| own.starts_with(folder));
        for folder in folders_in(self.folder()) {
            let suspects = match (is_member(&folder), holds_members(&folder)) {
                (true, _) => Vec::new(),
                (false, true) => folders_in(&folder),
                (false, false) => vec![folder],
            };
            for folder in suspects.into_iter().filter(|folder| !is_member(folder)) {
                found.push(Unfinished {
                    reason:
                        "no member has this folder: a command was interrupted before it wrote the member down"
                            .into(),
                    advice: format!("run `headwater enroll add` again, or: rm -r {}", folder.display()),
                    path: folder,
                });
            }
        }
        let places =
            self.folders().chain([self.folder().to_owned()]).collect::<std::collections::BTreeSet<_>>();
        for path in places.iter().flat_map(|folder| entries(folder)).filter(|path| path.is_file()) {
            if path.extension().is_some_and(|extension| extension == "new") {
                found.push(Unfinished {
                    reason: "a file that was not moved to its place: a command was interrupted".into(),
                    advice: format!("run the command again, and: rm {}", path.display()),
                    path,
                });
            }
        }
        found
    }
}

/// The finding for a folder that this user may not enter.
fn hidden(folder: &Path, error: &io::Error) -> Unfinished {
    let denied = denied(folder).unwrap_or_else(|| "run the command as the owner of the folder".into());
    let (whose, advice) = denied.split_once("; ").unwrap_or(("", &denied));
    Unfinished {
        path: folder.to_owned(),
        reason: format!("its files cannot be looked at: {error}; {whose}"),
        advice: advice.to_owned(),
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<_> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    entries.sort();
    entries
}

fn folders_in(folder: &Path) -> Vec<PathBuf> {
    entries(folder).into_iter().filter(|path| path.is_dir()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BrokerOptions, Member, Role};

    #[test]
    fn a_folder_that_cannot_be_looked_into_is_no_missing_file() {
        let folder = tempfile::tempdir().unwrap();
        let found = hidden(folder.path(), &io::ErrorKind::PermissionDenied.into());
        assert!(
            found.reason.contains("cannot be looked at") && found.reason.contains("belongs to user"),
            "{found:?}"
        );
        assert!(!found.advice.contains("renew"), "{found:?}");
    }

    #[test]
    fn what_an_interrupted_command_left_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let hosts = ["localhost".to_owned()];
        let options = BrokerOptions::default();
        let own = folder.path().join("site");
        let mut site = Site::create(&own, "hall".parse().unwrap(), &hosts, &options, 30).unwrap();
        let device = |name| Member::new(Role::Device, Some("gate".parse().unwrap()), name).unwrap();
        let whole = site.enroll(device("cam-0"), &[], 30).unwrap();
        let moved = site.enroll(device("cam-1"), &[], 30).unwrap();
        fs::remove_dir_all(moved).unwrap();
        assert_eq!(site.unfinished(), []);
        fs::remove_file(whole.join("key.pem")).unwrap();
        fs::create_dir_all(whole.with_file_name("cam-2")).unwrap();
        fs::create_dir_all(own.join("belt/cam-0")).unwrap();
        fs::write(own.join("site.json.new"), "").unwrap();
        let found = site.unfinished();
        let own = own.canonicalize().unwrap();
        let paths: Vec<_> =
            found.iter().map(|found| found.path.strip_prefix(&own).unwrap().display().to_string()).collect();
        assert_eq!(paths, ["gate/cam-0/key.pem", "belt", "gate/cam-2", "site.json.new"]);
        assert!(found[0].advice.contains("renew --group gate cam-0"), "{found:?}");
    }
}
