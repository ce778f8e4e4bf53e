//! The table of edits, `tests/defects.toml`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// Number of the last defect in `docs/results/site.md`; the first one is 1.
pub const LAST_DEFECT: u8 = 13;

/// File of the table, from the root of the repository.
const FILE: &str = "tests/defects.toml";

/// All edits.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// Edits in the order of the file.
    #[serde(rename = "edit")]
    pub edits: Vec<Edit>,
}

/// One fix that is taken out.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edit {
    /// Number of the defect, 1 to [`LAST_DEFECT`].
    pub defect: u8,
    /// Title of the defect in `docs/results/site.md`.
    pub words: String,
    /// The fix that is taken out.
    pub without: String,
    /// Changes of files.
    #[serde(rename = "change")]
    pub changes: Vec<Change>,
    /// Tests that fail without the fix.
    #[serde(rename = "run")]
    pub runs: Vec<TestRun>,
}

/// One text and what takes its place.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// The file, from the root of the repository.
    pub file: PathBuf,
    /// Text that stands exactly once in the file.
    pub old: String,
    /// The text of the defect.
    pub new: String,
}

/// Tests of one target of a package.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TestRun {
    /// The package.
    pub package: String,
    /// `lib`, or the name of an integration test.
    pub target: String,
    /// Names of the tests, without modules.
    pub tests: Vec<String>,
}

impl Table {
    /// Reads the table below the root of the repository, or of a copy.
    ///
    /// # Errors
    /// A sentence with the file and the system's or the parser's reason.
    pub fn read(root: &Path) -> Result<Self, String> {
        let path = root.join(FILE);
        toml::from_str(&read(&path)?).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Mismatches between the table and the code: texts that do not stand exactly once, tests that do not exist, defects without
    /// an edit.
    pub fn mistakes(&self, root: &Path) -> Vec<String> {
        let missing = (1..=LAST_DEFECT).filter(|defect| self.edits.iter().all(|edit| edit.defect != *defect));
        let missing = missing.map(|defect| format!("{FILE}: defect {defect}: expected an edit, found none"));
        let of_edits = self.edits.iter().flat_map(|edit| edit.mistakes(root));
        missing.chain(of_edits).collect()
    }
}

impl Edit {
    /// Number, line and fix, as the table and errors show the edit.
    pub fn name(&self) -> String {
        format!("defect {} ({}), without: {}", self.defect, self.words, self.without)
    }

    /// Everything in which the edit does not fit the code.
    fn mistakes(&self, root: &Path) -> Vec<String> {
        let mut mistakes = Vec::new();
        if !(1..=LAST_DEFECT).contains(&self.defect) {
            mistakes.push(format!("defect: expected 1 to {LAST_DEFECT}, found {}", self.defect));
        }
        if self.runs.iter().all(|run| run.tests.is_empty()) {
            mistakes.push("expected tests, found none".into());
        }
        mistakes.extend(self.changed(root).err());
        mistakes.extend(self.runs.iter().flat_map(|run| run.missing_tests(root)));
        mistakes.into_iter().map(|mistake| format!("{FILE}: {}: {mistake}", self.name())).collect()
    }

    /// Makes the changes below `root`; [`Edited::restore`] takes them back.
    ///
    /// # Errors
    /// A sentence with the entry to renew, where a text does not stand exactly once in its file, or a file cannot be written.
    pub fn apply(&self, root: &Path) -> Result<Edited, String> {
        let of_entry = |mistake: String| format!("{FILE}: {}: {mistake}", self.name());
        let mut edited = Edited::default();
        for (file, (before, after)) in self.changed(root).map_err(of_entry)? {
            let path = root.join(file);
            // Kept first, so that a write that fails is taken back too.
            edited.originals.push((path.clone(), before));
            fs::write(&path, after).map_err(|error| of_entry(format!("{}: {error}", path.display())))?;
        }
        Ok(edited)
    }

    /// Text of each changed file, before and after.
    fn changed(&self, root: &Path) -> Result<BTreeMap<&Path, (String, String)>, String> {
        let mut files = BTreeMap::new();
        for Change { file, old, new } in &self.changes {
            let (before, after) = match files.remove(file.as_path()) {
                Some(texts) => texts,
                None => {
                    let text = read(&root.join(file))?;
                    (text.clone(), text)
                }
            };
            let (found, file_name) = (before.matches(old.as_str()).count(), file.display());
            if old.is_empty() || old == new || found != 1 {
                return Err(format!(
                    "{file_name}: expected the text {old:?} once, found it {found} times: renew `old` and `new` of this entry"
                ));
            }
            let changed = after.replacen(old.as_str(), new, 1);
            if changed == after {
                return Err(format!(
                    "{file_name}: an earlier change of this entry has taken the text {old:?}"
                ));
            }
            files.insert(file.as_path(), (before, changed));
        }
        Ok(files)
    }
}

impl TestRun {
    /// Sources of the target: a file or a folder. The package `headwater-x` lies in the folder `x`.
    fn sources(&self, root: &Path) -> PathBuf {
        let package = root.join(self.package.strip_prefix("headwater-").unwrap_or(&self.package));
        if self.target == "lib" {
            return package.join("src");
        }
        let folder = package.join("tests").join(&self.target);
        if folder.is_dir() { folder } else { folder.with_extension("rs") }
    }

    /// Tests that the sources do not have, or have several times.
    fn missing_tests(&self, root: &Path) -> Vec<String> {
        let sources = self.sources(root);
        let Ok(text) = text_below(&sources) else {
            return vec![format!(
                "{}: expected the tests of {}, found no such file",
                sources.display(),
                self.target
            )];
        };
        let found = |test: &String| text.matches(&format!("fn {test}(")).count();
        let wrong = self.tests.iter().map(|test| (test, found(test))).filter(|(_, found)| *found != 1);
        let mistake =
            |(test, found)| format!("{}: expected one test {test}, found {found}", sources.display());
        wrong.map(mistake).collect()
    }
}

/// Files with a defect; dropping the value takes the edit back.
#[derive(Debug, Default)]
#[must_use]
pub struct Edited {
    /// Each file and its text before the edit.
    originals: Vec<(PathBuf, String)>,
}

impl Edited {
    /// Takes the edit back. The files get a new time, so that they are compiled again.
    ///
    /// # Errors
    /// A sentence with the first file that cannot be written.
    pub fn restore(mut self) -> Result<(), String> {
        self.write_originals()
    }

    fn write_originals(&mut self) -> Result<(), String> {
        for (path, text) in self.originals.drain(..) {
            fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Ok(())
    }
}

impl Drop for Edited {
    fn drop(&mut self) {
        // The next start makes a new copy, whatever is left in this one.
        _ = self.write_originals();
    }
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Text of a file, or of every file below a folder.
fn text_below(path: &Path) -> std::io::Result<String> {
    if !path.is_dir() {
        return fs::read_to_string(path);
    }
    let mut text = String::new();
    for entry in fs::read_dir(path)? {
        text.push_str(&text_below(&entry?.path())?);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with one file, and an edit that changes it.
    fn scene(text: &str, changes: &[(&str, &str)]) -> (tempfile::TempDir, Edit) {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("crate")).unwrap();
        fs::create_dir(folder.path().join("crate/src")).unwrap();
        fs::write(folder.path().join("crate/src/lib.rs"), text).unwrap();
        let changes = changes.iter().map(|(old, new)| Change {
            file: "crate/src/lib.rs".into(),
            old: (*old).into(),
            new: (*new).into(),
        });
        let run = TestRun {
            package: "headwater-crate".into(),
            target: "lib".into(),
            tests: vec!["it_holds".into()],
        };
        let edit = Edit {
            defect: 1,
            words: "a line".into(),
            without: "a fix".into(),
            changes: changes.collect(),
            runs: vec![run],
        };
        (folder, edit)
    }

    const TEXT: &str = "limit = 7;\nfn it_holds() {}\n";

    #[test]
    fn an_edit_is_made_and_taken_back() {
        let (folder, edit) = scene(TEXT, &[("limit = 7", "limit = 0"), ("it_holds() {", "it_holds() {{")]);
        let file = folder.path().join("crate/src/lib.rs");
        let edited = edit.apply(folder.path()).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "limit = 0;\nfn it_holds() {{}\n");
        edited.restore().unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), TEXT);
        drop(edit.apply(folder.path()).unwrap());
        assert_eq!(fs::read_to_string(&file).unwrap(), TEXT, "dropped");
    }

    #[test]
    fn a_text_that_does_not_stand_exactly_once_names_the_entry_to_renew() {
        for (old, found) in [("limit = 8", 0), ("i", 3)] {
            let (folder, edit) = scene(TEXT, &[(old, "")]);
            let error = edit.apply(folder.path()).unwrap_err();
            for part in
                ["defect 1 (a line), without: a fix", "crate/src/lib.rs", "renew", &format!("{found} times")]
            {
                assert!(error.contains(part), "{part} in {error}");
            }
            assert_eq!(edit.mistakes(folder.path()), [error]);
        }
    }

    #[test]
    fn a_test_that_is_not_there_is_a_mistake() {
        let (folder, mut edit) = scene(TEXT, &[("7", "8")]);
        assert_eq!(edit.mistakes(folder.path()), [""; 0]);
        edit.runs[0].tests.push("it_is_gone".into());
        let mistakes = edit.mistakes(folder.path());
        assert!(mistakes.len() == 1 && mistakes[0].contains("it_is_gone, found 0"), "{mistakes:?}");
        edit.runs[0].target = "none".into();
        assert!(edit.mistakes(folder.path())[0].contains("crate/tests/none.rs"));
    }
}
