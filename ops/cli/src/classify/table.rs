//! Rows of `headwater classify` as CSV or JSON.

use headwater_protocol::{Exit, Undecided};
use serde::Serialize;

/// The row of one sample. If no photo of the sample can be read, the row has no answer.
#[derive(Debug, Default, Serialize)]
pub(super) struct Row<'a> {
    /// Photo, or name of a sample of several cameras.
    pub(super) file: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) label: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) confidence: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) exit: Option<Exit>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) undecided: Option<Undecided>,
    /// Photos that cannot be read, with the reasons; `None` if all can be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
    /// Probability of each class at the exit.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) scores: Vec<f32>,
    /// Number of photos that cannot be read.
    #[serde(skip)]
    pub(super) broken_views: u32,
}

/// Writer of rows, with commas or in JSON.
pub(super) struct Table<'a> {
    pub(super) is_json: bool,
    /// True when control characters of names are escaped, as a terminal needs.
    pub(super) is_terminal: bool,
    pub(super) labels: &'a [String],
}

impl Table<'_> {
    /// The first line; empty for JSON.
    pub(super) fn header(&self) -> String {
        if self.is_json {
            return String::new();
        }
        let columns = ["file", "label", "confidence", "exit", "undecided", "error"].map(str::to_owned);
        let scores = self.labels.iter().map(|label| format!("p_{label}"));
        self.csv_line(columns.into_iter().chain(scores))
    }

    /// A row, with the end of its line.
    pub(super) fn row(&self, row: &Row<'_>) -> String {
        match self.is_json {
            // Names and numbers always become JSON.
            true => serde_json::to_string(row).unwrap_or_default() + "\n",
            false => self.csv(row),
        }
    }

    fn csv(&self, row: &Row<'_>) -> String {
        let columns = [
            row.file.to_owned(),
            row.label.unwrap_or_default().to_owned(),
            row.confidence.map(|confidence| confidence.to_string()).unwrap_or_default(),
            row.exit.map_or("", Exit::name).to_owned(),
            row.undecided.map_or("", Undecided::name).to_owned(),
            row.error.clone().unwrap_or_default(),
        ];
        // Without an answer the probabilities are empty, and every row has as many columns.
        let score = |class| row.scores.get(class).map(f32::to_string).unwrap_or_default();
        self.csv_line(columns.into_iter().chain((0..self.labels.len()).map(score)))
    }

    fn csv_line(&self, fields: impl Iterator<Item = String>) -> String {
        let shown = |field: String| if self.is_terminal { crate::escaped(&field) } else { field };
        let mut line = csv::Writer::from_writer(Vec::new());
        let written = line.write_record(fields.map(shown)).ok().and_then(|()| line.into_inner().ok());
        String::from_utf8(written.expect("a Vec takes every write")).expect("fields of text")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Row<'static> {
        Row {
            file: "a \"b\", c.jpg",
            label: Some("coat"),
            confidence: Some(0.5),
            exit: Some(Exit::LOCAL),
            scores: vec![0.75, 0.25],
            ..Row::default()
        }
    }

    fn lines(is_json: bool) -> Vec<String> {
        let labels = ["coat".to_owned(), "t-shirt, top".to_owned()];
        let table = Table { is_json, is_terminal: false, labels: &labels };
        let unsure = Row { label: None, undecided: Some(Undecided::Unsure), ..row() };
        let unread = Row { file: "x.jpg", error: Some("x.jpg: cut".into()), ..Row::default() };
        let rows = [row(), unsure, unread].map(|row| table.row(&row));
        let lines = [table.header()].into_iter().chain(rows);
        lines.map(|line| line.trim_end_matches('\n').to_owned()).collect()
    }

    #[test]
    fn every_row_of_the_csv_has_the_columns_of_its_first_line_and_quotes_what_needs_it() {
        let lines = lines(false);
        assert_eq!(lines[0], r#"file,label,confidence,exit,undecided,error,p_coat,"p_t-shirt, top""#);
        assert_eq!(lines[1], r#""a ""b"", c.jpg",coat,0.5,local,,,0.75,0.25"#);
        assert_eq!(lines[2], r#""a ""b"", c.jpg",,0.5,local,unsure,,0.75,0.25"#);
        assert_eq!(lines[3], "x.jpg,,,,,x.jpg: cut,,");
    }

    #[test]
    fn a_terminal_gets_no_control_characters_of_names_and_a_file_gets_them() {
        let line = |is_terminal| {
            let table = Table { is_json: false, is_terminal, labels: &[] };
            table.row(&Row { file: "a\u{1b}[2J.jpg", ..Row::default() })
        };
        assert_eq!(
            (line(true).as_str(), line(false).as_str()),
            ("a\\u{1b}[2J.jpg,,,,,\n", "a\u{1b}[2J.jpg,,,,,\n")
        );
    }

    #[test]
    fn a_row_is_a_line_of_json_without_what_it_lacks() {
        let lines = lines(true);
        let expected = r#"{"file":"a \"b\", c.jpg","label":"coat","confidence":0.5,"exit":"local","scores":[0.75,0.25]}"#;
        assert_eq!((lines[0].as_str(), lines[1].as_str()), ("", expected));
        assert_eq!(lines[3], r#"{"file":"x.jpg","error":"x.jpg: cut"}"#);
    }
}
