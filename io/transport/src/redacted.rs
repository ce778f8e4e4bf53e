//! Text for people, without the passwords that stand in addresses.

/// Text in place of a user and a password, and of a query.
const HIDDEN: &str = "***";

/// The text with `***` in place of the user and the password of each address, and of each address's query.
///
/// ```text
/// mqtt://user:secret@host:1883     ->  mqtt://***@host:1883
/// http://cam/snap.jpg?pwd=secret   ->  http://cam/snap.jpg?***
/// user:secret@host                 ->  ***@host
/// ```
///
/// A password may hold any character but the end of a line. So everything from `://` to the last `@` of a line is hidden.
pub fn redacted(text: &str) -> String {
    text.split_inclusive('\n').map(redacted_line).collect()
}

fn redacted_line(line: &str) -> String {
    let line = match line.split_once("://") {
        Some((before, after)) => match after.rsplit_once('@') {
            Some((_, host)) => format!("{before}://{HIDDEN}@{host}"),
            None => line.to_owned(),
        },
        None => without_credentials(line),
    };
    without_queries(&line)
}

/// A line with `***` in place of each `user:password` before an `@`, in addresses without a scheme.
fn without_credentials(line: &str) -> String {
    let is_end = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`' | '=');
    let words = line.split_inclusive(is_end);
    let shown = words.map(|word| match word.rsplit_once('@') {
        Some((credentials, host)) if credentials.contains(':') && !is_moment(credentials, host) => {
            format!("{HIDDEN}@{host}")
        }
        Some(_) | None => word.to_owned(),
    });
    shown.collect()
}

/// Returns true if the text before and after an `@` is a value of the demo's `--kill`, such as `device:2@4s`, and so no password.
fn is_moment(part: &str, time: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let part = part.trim_start_matches(['(', ',']);
    let index = ["device:", "edge:"].iter().find_map(|service| part.strip_prefix(service));
    let seconds = time.trim_end_matches(|c: char| !c.is_alphanumeric()).strip_suffix('s');
    index.is_some_and(is_number) && seconds.is_some_and(|seconds| is_number(seconds.trim_end_matches('m')))
}

/// A line with `***` in place of each query of an address with a scheme.
fn without_queries(line: &str) -> String {
    let is_end = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`');
    let words = line.split_inclusive(is_end);
    let shown = words.map(|word| match word.split_once('?') {
        Some((address, query)) if address.contains("://") && !query.trim_end_matches(is_end).is_empty() => {
            let end = &query[query.trim_end_matches(is_end).len()..];
            format!("{address}?{HIDDEN}{end}")
        }
        Some(_) | None => word.to_owned(),
    });
    shown.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(redacted(text), expected);
    }

    #[test]
    fn a_password_in_an_address_is_hidden() {
        check("broker mqtt://user:s3cret@host:1883 is away", "broker mqtt://***@host:1883 is away");
        check("'mqtts://token@host'", "'mqtts://***@host'");
        check("'user:s3cret@host:1883' is no address", "'***@host:1883' is no address");
        check("--broker=user:s3cret@host", "--broker=***@host");
        check("mqtt://user:a b\"c@d/e@host", "mqtt://***@host");
        check("http://cam/snap.jpg?pwd=s3cret'", "http://cam/snap.jpg?***'");
        check("first\nmqtt://u:p@a\nmqtt://u:p@b\n", "first\nmqtt://***@a\nmqtt://***@b\n");
    }

    #[test]
    fn other_text_stays_as_it_is() {
        for text in [
            "",
            "mqtt://host:1883",
            "expected scheme://host:port, found \"x\"",
            "did you mean `keep_ms`?",
            "http://cloud:8600/v2: is it there?",
            "mail to somebody@example.org",
            "a: b\nc@d\n",
            "--kill device:2@4s, `device:3@500ms`, `edge:0@3s`",
        ] {
            check(text, text);
        }
    }
}
