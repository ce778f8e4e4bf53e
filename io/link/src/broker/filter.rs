//! Topic filters: their form, and the topics that they match.

/// Most levels of a filter, as in Mosquitto.
const MAX_LEVELS: usize = 200;

/// Returns true if a filter has the form that MQTT asks for, and at most `MAX_LEVELS` levels.
pub(super) fn is_valid(filter: &str) -> bool {
    rumqttc::valid_filter(filter) && filter.split('/').count() <= MAX_LEVELS
}

/// Returns true if a filter matches a topic. A wildcard in the first level does not match a topic that begins with `$`.
pub(super) fn matches(filter: &str, topic: &str) -> bool {
    if topic.starts_with('$') && filter.starts_with(['+', '#']) {
        return false;
    }
    let (mut filter, mut topic) = (filter.split('/'), topic.split('/'));
    loop {
        match (filter.next(), topic.next()) {
            (Some("#"), _) | (None, None) => return true,
            (Some(level), Some(found)) if level == "+" || level == found => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(filter: &str, matching: &[&str], others: &[&str]) {
        assert!(is_valid(filter), "{filter}");
        for topic in matching {
            assert!(matches(filter, topic), "{filter} and {topic}");
        }
        for topic in others {
            assert!(!matches(filter, topic), "{filter} and {topic}");
        }
    }

    #[test]
    fn filters_match_the_topics_of_the_standard() {
        check("a/b", &["a/b"], &["a", "a/b/", "a/b/c", "/a/b", "A/b"]);
        check("a/+", &["a/b", "a/"], &["a", "a/b/c"]);
        check("+/+", &["a/b", "/b", "/"], &["a", "$a/b"]);
        check("+", &["a"], &["/a", "a/", "$a"]);
        check("a/#", &["a", "a/", "a/b/c"], &["ab", "b/a"]);
        check("#", &["a", "/", "a/b"], &["$SYS", "$SYS/a"]);
        check("$SYS/#", &["$SYS", "$SYS/a/b"], &["SYS/a", "$SY"]);
        check("$SYS/+", &["$SYS/a"], &["$SYS", "$SYS/a/b"]);
        check("+/b/#", &["a/b", "a/b/c"], &["$a/b", "a/c"]);
    }

    #[test]
    fn a_filter_of_another_form_or_of_too_many_levels_is_invalid() {
        for filter in ["", "a#", "a/#/b", "a+", "+a/b", "##"] {
            assert!(!is_valid(filter), "{filter}");
        }
        assert!(is_valid(&"a/".repeat(MAX_LEVELS - 1)));
        assert!(!is_valid(&"a/".repeat(MAX_LEVELS)));
    }
}
