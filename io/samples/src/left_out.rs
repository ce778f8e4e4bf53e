//! Entries of a folder or archive that are left out: counted by kind, with one example of each.

use std::collections::BTreeMap;
use std::path::Path;

use crate::DataError;
use crate::data_set::Omissions;

/// Most kinds that are counted apart; further kinds are counted together.
const MAX_KINDS: usize = 16;

/// Longest example, in characters.
const MAX_NAME_CHARS: usize = 200;

/// Counts of the entries that are left out.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeftOut {
    /// Count and first name of each kind.
    kinds: BTreeMap<String, (usize, String)>,
}

impl LeftOut {
    /// Counts an entry.
    pub(crate) fn add(&mut self, kind: &str, name: &str) {
        let is_told_apart = self.kinds.len() < MAX_KINDS || self.kinds.contains_key(kind);
        let kind = if is_told_apart { kind } else { "of other kinds" };
        let example = || name.chars().take(MAX_NAME_CHARS).collect();
        self.kinds.entry(kind.to_owned()).or_insert_with(|| (0, example())).0 += 1;
    }

    /// A remark about all kinds; `None` if nothing is left out, and an error if something is and may not be.
    pub(crate) fn note(self, root: &Path, omissions: Omissions) -> Result<Option<String>, DataError> {
        if self.kinds.is_empty() {
            return Ok(None);
        }
        let kinds =
            self.kinds.iter().map(|(kind, (count, first))| format!("{count} {kind} (such as `{first}`)"));
        let kinds = kinds.collect::<Vec<_>>().join(", ");
        let count: usize = self.kinds.values().map(|(count, _)| count).sum();
        omissions.note(root.display(), format!("{count} entries are left out: {kinds}")).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_count_and_an_example_and_kinds_are_bounded() {
        let mut left_out = LeftOut::default();
        left_out.add("hidden", ".git");
        left_out.add("hidden", ".cache");
        left_out.add("long", &"x".repeat(100_000));
        for at in 0..40 {
            left_out.add(&format!(".{:02}", at / 2), &format!("x{at}"));
        }
        let note = left_out.clone().note(Path::new("data"), Omissions::Noted).unwrap().unwrap();
        assert!(note.starts_with("43 entries are left out: 2 .00 (such as `x0`), 2 .01"), "{note}");
        assert!(note.contains("12 of other kinds (such as `x28`)"), "{note}");
        assert!(note.contains("2 hidden (such as `.git`)") && note.len() < 1000, "{note}");
        let error = left_out.note(Path::new("data"), Omissions::Refused).unwrap_err().to_string();
        assert!(
            error.starts_with("data: expected nothing to be left out (--strict), found 43 entries"),
            "{error}"
        );
        assert_eq!(LeftOut::default().note(Path::new("data"), Omissions::Refused).unwrap(), None);
    }
}
