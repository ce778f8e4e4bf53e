//! The known word nearest to one that is not known, for messages such as `no such setting; did you mean …?`.

/// The candidate with the fewest letters to change, add, leave out or swap; `None` when none is near: more than a third of the
/// word would have to change.
///
/// ```
/// assert_eq!(headwater_protocol::nearest("kep_ms", ["keep_ms", "grace_ms"]), Some("keep_ms"));
/// assert_eq!(headwater_protocol::nearest("colour", ["keep_ms", "grace_ms"]), None);
/// ```
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Longer words are no typing mistakes, and the cost grows with their length.
    const LONGEST: usize = 64;
    let word: Vec<char> = word.chars().take(LONGEST + 1).collect();
    if word.len() > LONGEST {
        return None;
    }
    candidates
        .into_iter()
        .map(|candidate| (distance(&word, &candidate.chars().collect::<Vec<_>>()), candidate))
        .filter(|(distance, candidate)| *distance <= word.len().max(candidate.len()).div_ceil(3))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// What to say of a setting that is not known.
pub fn no_such_setting<'a>(key: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    match nearest(key, known) {
        Some(known) => format!("{key}: no such setting; did you mean `{known}`?"),
        None => format!("{key}: no such setting"),
    }
}

/// Edits from one word to the other; two neighbours swapped count once (optimal string alignment).
fn distance(from: &[char], to: &[char]) -> usize {
    let mut before = vec![0; to.len() + 1];
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for (row, letter) in from.iter().enumerate() {
        let mut this = vec![row + 1];
        for (column, other) in to.iter().enumerate() {
            let replaced = last[column] + usize::from(letter != other);
            let mut best = replaced.min(last[column + 1] + 1).min(this[column] + 1);
            if row > 0 && column > 0 && *letter == to[column - 1] && from[row - 1] == *other {
                best = best.min(before[column - 1] + 1);
            }
            this.push(best);
        }
        before = std::mem::replace(&mut last, this);
    }
    last[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(from: &str, to: &str, expected: usize) {
        let [from, to]: [Vec<char>; 2] = [from, to].map(|word| word.chars().collect());
        assert_eq!(distance(&from, &to), expected);
        assert_eq!(distance(&to, &from), expected);
    }

    #[test]
    fn edits_are_counted() {
        check("", "abc", 3);
        check("keep_ms", "keep_ms", 0);
        check("kitten", "sitting", 3);
        check("sltos", "slots", 1);
    }

    #[test]
    fn the_nearest_is_named_and_a_far_one_is_not() {
        let known = ["keep_ms", "keep_samples", "grace_ms"];
        assert_eq!(nearest("keepms", known), Some("keep_ms"));
        assert_eq!(nearest("keep_sample", known), Some("keep_samples"));
        assert_eq!(nearest("zzz", known), None);
        assert_eq!(nearest(&"k".repeat(100_000), known), None);
        assert_eq!(nearest("keep_ms", []), None);
    }

    #[test]
    fn what_is_said_names_the_key() {
        assert_eq!(
            no_such_setting("grace_mss", ["grace_ms"]),
            "grace_mss: no such setting; did you mean `grace_ms`?"
        );
        assert_eq!(no_such_setting("x", ["grace_ms"]), "x: no such setting");
    }
}
