//! CSV as RFC 4180 has it: fields between commas, in quotes where they hold a comma, a quote (doubled) or a line break.

/// A line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Line in the file that it begins at, from 1.
    pub(super) line: usize,
    pub(super) fields: Vec<String>,
}

/// What is wrong, and in which line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mistake {
    pub(super) line: usize,
    pub(super) found: &'static str,
}

/// The records of a file, blank lines left out.
pub(super) fn parse(text: &str) -> Result<Vec<Record>, Mistake> {
    let mut letters = text.trim_start_matches('\u{feff}').chars().peekable();
    let mut records = Vec::new();
    let mut line = 1;
    while letters.peek().is_some() {
        let begin = line;
        let mut fields = Vec::new();
        loop {
            let (field, end) = field(&mut letters, &mut line)?;
            fields.push(field);
            if end == End::Record {
                break;
            }
        }
        if fields != [""] {
            records.push(Record { line: begin, fields });
        }
    }
    Ok(records)
}

/// What a field ends with.
#[derive(PartialEq, Eq)]
enum End {
    Field,
    Record,
}

type Letters<'a> = std::iter::Peekable<std::str::Chars<'a>>;

fn field(letters: &mut Letters<'_>, line: &mut usize) -> Result<(String, End), Mistake> {
    let mut field = String::new();
    let quoted = letters.next_if_eq(&'"').is_some();
    let begin = *line;
    if quoted {
        loop {
            match letters.next() {
                None => return Err(Mistake { line: begin, found: "a quote that is not closed" }),
                Some('"') if letters.next_if_eq(&'"').is_none() => break,
                Some(letter) => {
                    *line += usize::from(letter == '\n');
                    field.push(letter);
                }
            }
        }
    }
    loop {
        match letters.next() {
            None => return Ok((field, End::Record)),
            Some(',') => return Ok((field, End::Field)),
            Some('\r') if letters.peek() == Some(&'\n') => {}
            Some('\n') => {
                *line += 1;
                return Ok((field, End::Record));
            }
            Some(_) if quoted => {
                return Err(Mistake { line: *line, found: "something behind a closing quote" });
            }
            Some('"') => {
                return Err(Mistake {
                    line: *line,
                    found: "a quote within a field that does not begin with one",
                });
            }
            Some(letter) => field.push(letter),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[(usize, &[&str])]) {
        let found = parse(text).unwrap();
        let found: Vec<(usize, Vec<&str>)> = found
            .iter()
            .map(|record| (record.line, record.fields.iter().map(String::as_str).collect()))
            .collect();
        let expected: Vec<(usize, Vec<&str>)> =
            expected.iter().map(|(line, fields)| (*line, fields.to_vec())).collect();
        assert_eq!(found, expected, "{text:?}");
    }

    #[test]
    fn fields_lie_between_commas_and_lines_end_either_way() {
        check("a,b\r\n1,\n\n,2", &[(1, &["a", "b"]), (2, &["1", ""]), (4, &["", "2"])]);
        check("\u{feff}a\n", &[(1, &["a"])]);
        check("", &[]);
    }

    #[test]
    fn quotes_hold_commas_quotes_and_line_breaks() {
        check(
            "\"a,b\",\"say \"\"x\"\"\",\"two\r\nlines\"\nnext",
            &[(1, &["a,b", "say \"x\"", "two\r\nlines"]), (3, &["next"])],
        );
        check("\"\",\"\"", &[(1, &["", ""])]);
    }

    #[test]
    fn quotes_that_do_not_fit_are_named_with_their_line() {
        for (text, line, found) in [
            ("a\n\"b\nc", 2, "not closed"),
            ("a\n\"b\"c", 2, "behind a closing"),
            ("a\nb\"c\"", 2, "within a field"),
        ] {
            let mistake = parse(text).unwrap_err();
            assert!(mistake.line == line && mistake.found.contains(found), "{mistake:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(table in vec(vec("[a\",\r\n ]{0,6}", 2..4), 0..6)) {
            let quote = |field: &String| format!("\"{}\"", field.replace('"', "\"\""));
            let text: String = table
                .iter()
                .map(|record| record.iter().map(quote).collect::<Vec<_>>().join(",") + "\r\n")
                .collect();
            let found: Vec<Vec<String>> =
                parse(&text).unwrap().into_iter().map(|record| record.fields).collect();
            prop_assert_eq!(found, table);
        }

        #[test]
        fn any_text_is_a_table_or_a_mistake(text in "[a\",\r\n]{0,40}") {
            let _ = parse(&text);
        }
    }
}
