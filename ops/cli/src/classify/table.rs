//! Rows of `headwater classify` as text, CSV or JSON.

use headwater_protocol::{Exit, Undecided};
use serde::Serialize;

/// Form of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Text,
    Csv,
    Json,
}

/// The answer to one sample. A sample of which no photo can be read has none.
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
    /// Photos that cannot be read, with the reasons.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
    /// Probability of each class at the exit.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) scores: Vec<f32>,
    /// Photos that cannot be read.
    #[serde(skip)]
    pub(super) broken_views: u32,
}

/// Writer of rows.
pub(super) struct Table<'a> {
    form: Form,
    labels: &'a [String],
    /// Characters of the longest label or reason.
    width: usize,
}

/// Mark of a sample without a class in the text.
const UNDECIDED: &str = "undecided: ";

impl<'a> Table<'a> {
    pub(super) fn new(form: Form, labels: &'a [String]) -> Self {
        let reason = UNDECIDED.len() + Undecided::Unsure.name().len();
        let width = labels.iter().map(|label| label.chars().count()).max().unwrap_or(0).max(reason);
        Self { form, labels, width }
    }

    /// The first line; empty for JSON.
    pub(super) fn header(&self) -> String {
        match self.form {
            Form::Text => format!("{:<1$}  confidence  exit     file\n", "label", self.width),
            Form::Csv => {
                let columns =
                    ["file", "label", "confidence", "exit", "undecided", "error"].map(str::to_owned);
                let scores = self.labels.iter().map(|label| format!("p_{label}"));
                csv_line(columns.into_iter().chain(scores))
            }
            Form::Json => String::new(),
        }
    }

    /// A row, with the end of its line.
    pub(super) fn row(&self, row: &Row<'_>) -> String {
        match self.form {
            Form::Text => self.text(row),
            Form::Csv => self.csv(row),
            // Names and numbers always become JSON.
            Form::Json => serde_json::to_string(row).unwrap_or_default() + "\n",
        }
    }

    fn text(&self, row: &Row<'_>) -> String {
        let label = match (row.label, row.undecided) {
            (Some(label), _) => label.to_owned(),
            (None, Some(reason)) => format!("{UNDECIDED}{}", reason.name()),
            (None, None) => "no answer".into(),
        };
        let confidence = row.confidence.map(|confidence| format!("{confidence:.2}")).unwrap_or_default();
        let exit = row.exit.map_or("", Exit::name);
        let error = row.error.as_ref().map(|error| format!("  error: {error}")).unwrap_or_default();
        let (file, width) = (row.file, self.width);
        crate::escaped(&format!("{label:<width$}  {confidence:>10}  {exit:<7}  {file}{error}")) + "\n"
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
        csv_line(columns.into_iter().chain((0..self.labels.len()).map(score)))
    }
}

fn csv_line(fields: impl Iterator<Item = String>) -> String {
    let mut line = csv::Writer::from_writer(Vec::new());
    let written = line.write_record(fields).ok().and_then(|()| line.into_inner().ok());
    String::from_utf8(written.expect("a Vec takes every write")).expect("fields of text")
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

    fn lines(form: Form) -> Vec<String> {
        let labels = ["coat".to_owned(), "t-shirt, top".to_owned()];
        let table = Table::new(form, &labels);
        let unsure = Row { label: None, undecided: Some(Undecided::Unsure), ..row() };
        let unread = Row { file: "x.jpg", error: Some("x.jpg: cut".into()), ..Row::default() };
        let rows = [row(), unsure, unread].map(|row| table.row(&row));
        let lines = [table.header()].into_iter().chain(rows);
        lines.map(|line| line.trim_end_matches('\n').to_owned()).collect()
    }

    #[test]
    fn every_row_of_the_csv_has_the_columns_of_its_first_line_and_quotes_what_needs_it() {
        let lines = lines(Form::Csv);
        assert_eq!(lines[0], r#"file,label,confidence,exit,undecided,error,p_coat,"p_t-shirt, top""#);
        assert_eq!(lines[1], r#""a ""b"", c.jpg",coat,0.5,local,,,0.75,0.25"#);
        assert_eq!(lines[2], r#""a ""b"", c.jpg",,0.5,local,unsure,,0.75,0.25"#);
        assert_eq!(lines[3], "x.jpg,,,,,x.jpg: cut,,");
    }

    #[test]
    fn a_row_is_a_line_of_json_without_what_it_lacks() {
        let lines = lines(Form::Json);
        let expected = r#"{"file":"a \"b\", c.jpg","label":"coat","confidence":0.5,"exit":"local","scores":[0.75,0.25]}"#;
        assert_eq!((lines[0].as_str(), lines[1].as_str()), ("", expected));
        assert_eq!(lines[3], r#"{"file":"x.jpg","error":"x.jpg: cut"}"#);
    }

    #[test]
    fn a_name_with_control_characters_stays_in_its_row() {
        let labels = ["coat".to_owned()];
        let text = Table::new(Form::Text, &labels).row(&Row { file: "a\n\u{1b}[2J.jpg", ..row() });
        assert!(text.ends_with("a\\n\\u{1b}[2J.jpg\n") && text.lines().count() == 1, "{text}");
    }

    #[test]
    fn the_text_has_its_columns_below_each_other() {
        let lines = lines(Form::Text);
        assert_eq!(lines[0], "label              confidence  exit     file");
        assert_eq!(lines[1], "coat                     0.50  local    a \"b\", c.jpg");
        assert_eq!(lines[2], "undecided: unsure        0.50  local    a \"b\", c.jpg");
        assert_eq!(lines[3], "no answer                               x.jpg  error: x.jpg: cut");
    }
}
