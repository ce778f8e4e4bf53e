//! Rows of `labels.csv`: one sample per line, in columns of known names.

use std::collections::HashMap;

use headwater_protocol::Slot;

use super::csv::{self, LineError, Record};
use crate::Part;
use crate::file_names::{camera, number, one_form};

/// One row of the table: one sample with the files of its slots. Names are in their composed form (Unicode NFC).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    /// Line in the file, from 1.
    pub(super) line: usize,
    pub(super) part: Option<Part>,
    pub(super) class: String,
    /// Content of the column `sample`, or the line number.
    pub(super) name: String,
    pub(super) group: Option<String>,
    /// Number of the sample's frame, in a table of one recording.
    pub(super) frame: Option<u64>,
    /// File of each slot; `None` when the slot does not see the sample.
    pub(super) files: Vec<Option<String>>,
}

const COLUMNS: &str = "columns `class`, `file` or `cam0`, `cam1`, ..., and perhaps `part`, `sample`, `group` or `frame`, separated by commas";

/// Index of each column.
#[derive(Debug)]
struct Columns {
    count: usize,
    /// Columns other than files, by name.
    named: HashMap<String, usize>,
    /// Columns of the files, by slot.
    files: Vec<usize>,
}

impl Columns {
    fn of(header: &Record) -> Result<Self, LineError> {
        let mut known: HashMap<String, usize> = HashMap::new();
        for (at, name) in header.fields.iter().enumerate() {
            let name = name.trim().to_ascii_lowercase();
            if camera(&name).is_none()
                && !["part", "class", "sample", "group", "frame", "file"].contains(&name.as_str())
            {
                let found = if name.is_empty() {
                    format!("column {} without a name", at + 1)
                } else {
                    format!("`{name}`")
                };
                return Err(LineError::new(header.line, COLUMNS, found));
            }
            if known.insert(name.clone(), at).is_some() {
                return Err(LineError::new(header.line, "every column once", format!("`{name}` twice")));
            }
        }
        let refused = |expected: &str, found: &str| Err(LineError::new(header.line, expected, found));
        if !known.contains_key("class") {
            return refused("a column `class`", "none");
        }
        if known.contains_key("group") && known.contains_key("frame") {
            return refused("a column `group` or a column `frame`", "both");
        }
        let file = known.remove("file");
        let cameras: Vec<usize> =
            (0..Slot::MAX).map_while(|slot| known.remove(&format!("cam{slot}"))).collect();
        if let Some(left) = known.keys().filter(|name| name.starts_with("cam")).min() {
            let expected = format!("cameras without a gap, from cam0 up to cam{} at most", Slot::MAX - 1);
            return refused(&expected, &format!("`{left}`"));
        }
        let files = match (file, cameras.is_empty()) {
            (Some(file), true) => vec![file],
            (None, false) => cameras,
            (Some(_), false) => return refused("`file` or `cam0`, `cam1`, ...", "both"),
            (None, true) => return refused("a column `file` or columns `cam0`, `cam1`, ...", "neither"),
        };
        Ok(Self { count: header.fields.len(), named: known, files })
    }

    /// Number of the sample's frame; `None` without the column `frame`. With that column every row must have a number.
    fn frame(&self, line: usize, field: Option<&str>) -> Result<Option<u64>, LineError> {
        if !self.named.contains_key("frame") {
            return Ok(None);
        }
        let found = field.unwrap_or("nothing");
        number(found)
            .map(Some)
            .ok_or_else(|| LineError::new(line, "the number of a frame", format!("`{found}`")))
    }

    fn row(&self, record: &Record) -> Result<Row, LineError> {
        let Record { line, fields } = record;
        if fields.len() != self.count {
            let expected = format!("{} fields as in the first line", self.count);
            return Err(LineError::new(*line, expected, fields.len().to_string()));
        }
        let field = |at: usize| Some(fields[at].trim()).filter(|field| !field.is_empty());
        let named = |name: &str| field(*self.named.get(name)?);
        let part = |word: &str| {
            Part::named(&word.to_ascii_lowercase()).ok_or_else(|| {
                LineError::new(*line, "a part train, val, test or calibration", format!("`{word}`"))
            })
        };
        let text = |field: &str| one_form(field).into_owned();
        let file = |at: &usize| match field(*at) {
            None => Ok(None),
            Some(file) if is_inside(file) => Ok(Some(text(file.strip_prefix("./").unwrap_or(file)))),
            Some(file) => {
                let expected = "a path within the folder, with / as separator";
                Err(LineError::new(*line, expected, format!("`{file}`")))
            }
        };
        Ok(Row {
            line: *line,
            part: named("part").map(part).transpose()?,
            class: text(named("class").ok_or_else(|| LineError::new(*line, "a class", "none"))?),
            name: named("sample").map_or_else(|| format!("line {line}"), text),
            group: named("group").map(text),
            frame: self.frame(*line, named("frame"))?,
            files: self.files.iter().map(file).collect::<Result<_, _>>()?,
        })
    }
}

/// Parses the rows of a table. A sample that has two rows, or a file that is named twice, is an error.
pub(super) fn parse(text: &str) -> Result<Vec<Row>, LineError> {
    let records = csv::parse(text)?;
    let Some((header, records)) = records.split_first() else {
        return Err(LineError::new(1, COLUMNS, "nothing"));
    };
    let columns = Columns::of(header)?;
    let rows: Vec<Row> = records.iter().map(|record| columns.row(record)).collect::<Result<_, _>>()?;
    if rows.is_empty() {
        return Err(LineError::new(header.line, "one sample per line", "none after the first line"));
    }
    check_once("every sample once", rows.iter().map(|row| (row.line, &row.name)))?;
    let files = rows.iter().flat_map(|row| row.files.iter().flatten().map(|file| (row.line, file)));
    check_once("every file once", files)?;
    Ok(rows)
}

/// Refuses a name that comes twice. Each name comes with its line.
fn check_once<'a>(expected: &str, names: impl Iterator<Item = (usize, &'a String)>) -> Result<(), LineError> {
    let mut lines = HashMap::new();
    for (line, name) in names {
        if let Some(before) = lines.insert(name, line) {
            return Err(LineError::new(line, expected, format!("`{name}` in line {before} too")));
        }
    }
    Ok(())
}

/// Returns true if a path stays below the folder on every system.
fn is_inside(file: &str) -> bool {
    let file = file.strip_prefix("./").unwrap_or(file);
    !file.contains(['\\', ':']) && file.split('/').all(|step| !matches!(step, "" | "." | ".."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(text: &str, line: usize, words: &[&str]) {
        let error = parse(text).unwrap_err();
        let all = error.mismatch.to_string();
        assert!(error.line == line && words.iter().all(|word| all.contains(word)), "{error:?}");
    }

    #[test]
    fn columns_are_in_any_order_and_an_empty_field_is_a_slot_without_a_view() {
        let rows = parse("cam1,Class,cam0,group,part,sample\nb.png,car,a.png,g,Val,s\n,bus,,,,\n").unwrap();
        let file = |name: &str| Some(name.to_owned());
        let first = Row {
            line: 2,
            part: Some(Part::Validation),
            class: "car".into(),
            name: "s".into(),
            group: file("g"),
            frame: None,
            files: vec![file("a.png"), file("b.png")],
        };
        let second = Row {
            line: 3,
            part: None,
            class: "bus".into(),
            name: "line 3".into(),
            group: None,
            frame: None,
            files: vec![None, None],
        };
        assert_eq!(rows, [first, second]);
    }

    #[test]
    fn a_header_with_unknown_missing_or_repeated_columns_is_refused() {
        refused("", 1, &["columns `class`", "nothing"]);
        refused("class,file,colour\n", 1, &["columns `class`", "`colour`"]);
        refused("class,file,\n", 1, &["columns `class`", "column 3 without a name"]);
        refused("class;file\n", 1, &["columns `class`", "separated by commas", "`class;file`"]);
        refused("file,part\n", 1, &["a column `class`"]);
        refused("class,part\n", 1, &["`file`", "neither"]);
        refused("class,file,cam0\n", 1, &["both"]);
        refused("class,file,group,frame\n", 1, &["`group` or a column `frame`", "both"]);
        refused("class,file,class\n", 1, &["`class` twice"]);
        refused("class,cam0,cam2\n", 1, &["without a gap", "`cam2`"]);
        refused("class,file\n", 1, &["one sample per line"]);
    }

    #[test]
    fn a_line_that_breaks_a_rule_is_refused() {
        refused("class,file\ncar\n", 2, &["2 fields", "found 1"]);
        refused("class,file\n\n,a.png\n", 3, &["a class"]);
        refused("class,file,part\ncar,a.png,dev\n", 2, &["train, val, test or calibration", "`dev`"]);
        refused("class,file,frame\ncar,a.png,1\ncar,b.png,\n", 3, &["the number of a frame", "`nothing`"]);
        refused("class,file,frame\ncar,a.png,-1\n", 2, &["the number of a frame", "`-1`"]);
        refused("class,file\ncar,\"a.png\n", 2, &["RFC 4180", "not closed"]);
        for path in ["../a.png", "/a.png", "a/../b.png", "C:\\a.png", "a//b.png"] {
            refused(&format!("class,file\ncar,{path}\n"), 2, &["within the folder", path]);
        }
    }

    #[test]
    fn a_sample_or_a_file_in_two_rows_is_refused() {
        refused(
            "class,file\ncar,a.png\nbus,b.png\ncar,./a.png\n",
            4,
            &["every file once", "`a.png` in line 2"],
        );
        refused("class,file,sample\ncar,a.png,s\ncar,b.png,s\n", 3, &["every sample once", "`s` in line 2"]);
        refused("class,cam0,cam1\ncar,a.png,a.png\n", 2, &["every file once", "line 2"]);
    }
}
