//! The known name that is nearest to a misspelt name.

/// Refusal of a key that is not known, with the nearest known key.
pub fn no_such_key<'a>(key: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    match nearest(key, known) {
        Some(known) => format!("no such key; did you mean `{known}`?"),
        None => "no such key".into(),
    }
}

/// The known key nearest to a misspelt key; `None` if no key is near. A key is near when at most a third of the letters change (rounded
/// up), in the whole key or behind the section's name.
pub fn nearest<'a>(key: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Longer words are no typing mistakes, and the cost grows with their length.
    const MAX_LETTERS: usize = 64;
    let distance = |found: &str, known: &str| {
        let distance = strsim::osa_distance(found, known);
        (distance <= found.len().max(known.len()).div_ceil(3)).then_some(distance)
    };
    let known = known.into_iter().filter(|_| key.len() <= MAX_LETTERS);
    let near = known.filter_map(|known| {
        let behind_section = || distance(last_part(key), last_part(known));
        let near = distance(key, known).or_else(behind_section)?;
        // Keys of several sections may have the same name: the key that is nearest as a whole is meant.
        Some(((near, strsim::osa_distance(key, known)), known))
    });
    near.min_by_key(|(distances, _)| *distances).map(|(_, known)| known)
}

/// Name of a key without its section.
pub fn last_part(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(key: &str, known: &[&str], expected: &str) {
        assert_eq!(no_such_key(key, known.iter().copied()), format!("no such key{expected}"));
    }

    #[test]
    fn the_nearest_known_key_is_named_and_a_far_one_is_not() {
        let known = ["keep_ms", "keep_samples", "grace_ms", "broker.address"];
        check("keepms", &known, "; did you mean `keep_ms`?");
        check("keep_sample", &known, "; did you mean `keep_samples`?");
        check("keep_mss", &known, "; did you mean `keep_ms`?");
        check("adress", &known, "; did you mean `broker.address`?");
        check("boker.address", &known, "; did you mean `broker.address`?");
        check("colour", &known, "");
        check("zzz", &known, "");
        check("x", &[], "");
        check(&"k".repeat(100_000), &known, "");
    }
}
