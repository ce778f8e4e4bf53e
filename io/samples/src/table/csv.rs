//! Records of a CSV file as RFC 4180 defines them, read by the crate `csv`.
//!
//! The crate `csv` accepts misplaced quotes, so they are refused before the crate reads the text.

use csv::StringRecord;

use crate::error::Mismatch;

/// Record of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// First line of the record in the file, from 1.
    pub(super) line: usize,
    pub(super) fields: StringRecord,
}

/// Fault in a line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LineError {
    /// Line in the file, from 1.
    pub(super) line: usize,
    pub(super) mismatch: Mismatch,
}

impl LineError {
    pub(super) fn new(line: usize, expected: impl Into<String>, found: impl Into<String>) -> Self {
        Self { line, mismatch: Mismatch::new(expected, found) }
    }
}

/// Records of a file without its blank lines.
pub(super) fn parse(text: &str) -> Result<Vec<Record>, LineError> {
    let text = text.trim_start_matches('\u{feff}');
    check_quotes(text)?;
    let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(text.as_bytes());
    let (mut records, mut line, mut counted) = (Vec::new(), 1, 0);
    for fields in reader.records() {
        let fields = fields.map_err(|error| LineError::new(line, "a record", error.to_string()))?;
        let start = fields.position().map_or(counted, |position| position.byte() as usize);
        // The position that the crate reports is before the blank lines that the crate skips.
        let start = text.len() - text[start..].trim_start_matches(['\r', '\n']).len();
        line += newlines(&text[counted..start]);
        counted = start;
        if fields.len() > 1 || !fields[0].is_empty() {
            records.push(Record { line, fields });
        }
    }
    Ok(records)
}

/// Refuses unclosed quotes and quotes inside a field. Pieces between quotes are bare and quoted in turn.
///
/// ```text
/// text      a , " b , c " , d
/// pieces    bare   quoted   bare
/// ```
fn check_quotes(text: &str) -> Result<(), LineError> {
    let error = |line, found: &str| {
        Err(LineError::new(line, "fields as in RFC 4180 (\"\" for a quote in quotes)", found))
    };
    let last = text.matches('"').count();
    let (mut line, mut field_line) = (1, 1);
    for (at, piece) in text.split('"').enumerate() {
        let is_quoted = at % 2 == 1;
        if is_quoted && at == last {
            return error(field_line, "a quote that is not closed");
        }
        let is_bare = !is_quoted && !piece.is_empty();
        if is_bare && at > 0 && !piece.starts_with([',', '\n', '\r']) {
            return error(line, "text after a closing quote");
        }
        line += newlines(piece);
        if is_bare && at < last && !piece.ends_with([',', '\n', '\r']) {
            return error(line, "a quote within a field that does not begin with one");
        }
        // An empty bare piece is a doubled quote, which continues the field.
        if is_bare {
            field_line = line;
        }
    }
    Ok(())
}

/// Number of line ends: `\n`, `\r\n`, and `\r` alone, as on an old Mac.
pub(super) fn newlines(text: &str) -> usize {
    text.matches(['\n', '\r']).count() - text.matches("\r\n").count()
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[(usize, &[&str])]) {
        let found = parse(text).unwrap();
        let found: Vec<(usize, Vec<&str>)> =
            found.iter().map(|record| (record.line, record.fields.iter().collect())).collect();
        let expected: Vec<(usize, Vec<&str>)> =
            expected.iter().map(|(line, fields)| (*line, fields.to_vec())).collect();
        assert_eq!(found, expected, "{text:?}");
    }

    #[test]
    fn commas_separate_fields_and_any_line_break_ends_a_record() {
        check("a,b\r\n1,\n\n,2", &[(1, &["a", "b"]), (2, &["1", ""]), (4, &["", "2"])]);
        check("a\r\n\r\n\r\nb\r\n\"\"\r\nc", &[(1, &["a"]), (4, &["b"]), (6, &["c"])]);
        check("\u{feff}a\n", &[(1, &["a"])]);
        check(
            "a,b\r1,2\r\r\"x\ry\",\r\"3\",4\r",
            &[(1, &["a", "b"]), (2, &["1", "2"]), (4, &["x\ry", ""]), (6, &["3", "4"])],
        );
        check("", &[]);
    }

    #[test]
    fn a_quoted_field_may_contain_commas_quotes_and_line_breaks() {
        check(
            "\"a,b\",\"say \"\"x\"\"\",\"two\r\nlines\"\nnext",
            &[(1, &["a,b", "say \"x\"", "two\r\nlines"]), (3, &["next"])],
        );
        check("\"\",\"\"", &[(1, &["", ""])]);
    }

    #[test]
    fn misplaced_quotes_are_refused_with_their_line() {
        for (text, line, found) in [
            ("a\n\"b\nc", 2, "not closed"),
            ("a\n\"b\"c", 2, "after a closing"),
            ("\"b\" ,c", 1, "after a closing"),
            ("a\nb\"c\"", 2, "within a field"),
            ("a\nb\"\"", 2, "within a field"),
            ("\"a\n\"\"\"\"", 1, "not closed"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.line == line && error.mismatch.found.contains(found), "{text:?}: {error:?}");
        }
    }

    proptest! {
        #[test]
        fn written_fields_are_read_back(table in vec(vec("[a\",\r\n ]{0,6}", 2..4), 0..6)) {
            let quote = |field: &String| format!("\"{}\"", field.replace('"', "\"\""));
            let text: String = table
                .iter()
                .map(|record| record.iter().map(quote).collect::<Vec<_>>().join(",") + "\r\n")
                .collect();
            let found: Vec<Vec<String>> = parse(&text)
                .unwrap()
                .into_iter()
                .map(|record| record.fields.iter().map(str::to_owned).collect())
                .collect();
            prop_assert_eq!(found, table);
        }

        #[test]
        fn any_text_gives_records_or_an_error(text in "[a\",\r\n]{0,40}") {
            let _ = parse(&text);
        }
    }
}
