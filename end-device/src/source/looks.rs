//! Which files of a watched folder are new and complete, from one look to the next. No files are read here.

use std::collections::HashMap;
use std::collections::hash_map::{DefaultHasher, Entry};
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Size and time of the last write: a file that is written again is a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Print {
    pub(crate) bytes: u64,
    pub(crate) written: SystemTime,
}

/// A file as a look found it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) path: PathBuf,
    pub(crate) print: Print,
}

/// What earlier looks found. Memory: a few bytes for each file that is in the folder now.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    /// By the hash of the name: names may be long and many.
    known: HashMap<u64, Known>,
    last: Option<SystemTime>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    print: Print,
    is_taken: bool,
    look: bool,
}

impl Looks {
    /// Takes these files for seen.
    pub(crate) fn passing_over(seen: &[Seen], now: SystemTime) -> Self {
        let known = seen
            .iter()
            .map(|seen| (key(&seen.path), Known { print: seen.print, is_taken: true, look: false }))
            .collect();
        Self { known, last: Some(now) }
    }

    /// The files to take, in the order given: those whose size and time stood still since the last look, and those that came
    /// since then but were last written before: they were renamed into the folder.
    pub(crate) fn look(&mut self, seen: &[Seen], now: SystemTime) -> Vec<PathBuf> {
        let mut taken = Vec::new();
        // The mark alternates from look to look; who does not have this look's is not in the folder any more.
        let mark = self.known.values().next().is_none_or(|known| !known.look);
        for Seen { path, print } in seen {
            let is_complete = match self.known.entry(key(path)) {
                Entry::Vacant(place) => {
                    let was_renamed_in = self.last.is_some_and(|last| print.written < last);
                    place.insert(Known { print: *print, is_taken: was_renamed_in, look: mark });
                    was_renamed_in
                }
                Entry::Occupied(mut known) => {
                    let known = known.get_mut();
                    known.look = mark;
                    let stands_still = known.print == *print;
                    let is_complete = stands_still && !known.is_taken;
                    known.is_taken = stands_still;
                    known.print = *print;
                    is_complete
                }
            };
            if is_complete {
                taken.push(path.clone());
            }
        }
        self.known.retain(|_, known| known.look == mark);
        self.last = Some(now);
        taken
    }
}

fn key(path: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    path.file_name().hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(ms: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(ms)
    }

    fn seen(name: &str, bytes: u64, written_ms: u64) -> Seen {
        Seen { path: name.into(), print: Print { bytes, written: at(written_ms) } }
    }

    #[track_caller]
    fn check(looks: &mut Looks, now_ms: u64, folder: &[Seen], expected: &[&str]) {
        let taken = looks.look(folder, at(now_ms));
        assert_eq!(taken, expected.iter().map(PathBuf::from).collect::<Vec<_>>(), "at {now_ms} ms");
    }

    #[test]
    fn a_file_is_taken_once_when_it_stands_still() {
        let mut looks = Looks::passing_over(&[], at(0));
        check(&mut looks, 100, &[seen("a", 10, 90)], &[]);
        check(&mut looks, 200, &[seen("a", 20, 190)], &[]);
        check(&mut looks, 300, &[seen("a", 20, 190)], &["a"]);
        check(&mut looks, 400, &[seen("a", 20, 190)], &[]);
    }

    #[test]
    fn a_file_renamed_in_is_taken_at_once() {
        let mut looks = Looks::passing_over(&[], at(100));
        check(&mut looks, 200, &[seen("a", 10, 90), seen("b", 10, 150)], &["a"]);
        check(&mut looks, 300, &[seen("a", 10, 90), seen("b", 10, 150)], &["b"]);
    }

    #[test]
    fn files_there_at_the_start_are_passed_over_or_taken() {
        let there = [seen("a", 10, 50), seen("b", 10, 60)];
        check(&mut Looks::passing_over(&there, at(100)), 200, &there, &[]);
        let mut taking = Looks::default();
        check(&mut taking, 100, &there, &[]);
        check(&mut taking, 200, &there, &["a", "b"]);
    }

    #[test]
    fn a_file_written_again_is_a_new_one() {
        let mut looks = Looks::passing_over(&[seen("a", 10, 50)], at(100));
        check(&mut looks, 200, &[seen("a", 10, 150)], &[]);
        check(&mut looks, 300, &[seen("a", 10, 150)], &["a"]);
    }

    #[test]
    fn what_left_the_folder_is_forgotten() {
        let mut looks = Looks::passing_over(&[], at(0));
        for round in 0..100 {
            let names: Vec<_> = (0..10).map(|file| seen(&format!("{round}-{file}"), 1, round)).collect();
            looks.look(&names, at(round));
            assert_eq!(looks.known.len(), 10);
        }
        looks.look(&[], at(1000));
        assert!(looks.known.is_empty());
    }
}
