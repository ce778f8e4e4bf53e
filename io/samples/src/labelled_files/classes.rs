//! Class names: the file that lists them in label order, and the folders of the classes.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::error::Mismatch;
use crate::file_names::{SYSTEM_FOLDERS, one_form};

/// Name of the file with the class names, which lies beside the parts or the table.
pub(crate) const CLASSES_FILE: &str = "classes.txt";

/// Folder of a class: its name, with `%` and two hexadecimal digits for a character that some file system refuses.
pub(crate) fn folder_name(class: &str) -> String {
    let mut name = String::with_capacity(class.len());
    let last = class.chars().count().saturating_sub(1);
    for (at, letter) in class.chars().enumerate() {
        let is_passed_over = letter == '.' || SYSTEM_FOLDERS.contains(&class);
        let at_an_end = (at == 0 && is_passed_over) || (at == last && matches!(letter, '.' | ' '));
        if letter.is_ascii_control() || "/\\:*?\"<>|%".contains(letter) || at_an_end {
            // Every such letter is ASCII, and writing to a string cannot fail.
            let _ = write!(name, "%{:02X}", u32::from(letter));
        } else {
            name.push(letter);
        }
    }
    name
}

/// Parses the class names of a file, each in its composed form.
pub(crate) fn parse_classes(bytes: &[u8]) -> Result<Vec<String>, Mismatch> {
    let text = std::str::from_utf8(bytes).map_err(|_| Mismatch::new("UTF-8", "other bytes"))?;
    let text = text.trim_start_matches('\u{feff}');
    let lines = text.split(['\n', '\r']).map(str::trim).filter(|line| !line.is_empty());
    let classes: Vec<String> = lines.map(|line| one_form(line).into_owned()).collect();
    if classes.is_empty() {
        return Err(Mismatch::new("one class per line", "none"));
    }
    match alike(&classes) {
        Some((first, second)) if first == second => {
            Err(Mismatch::new("every class once", format!("`{second}` twice")))
        }
        Some((first, second)) => {
            let expected = "every class once, also where the case of letters makes no difference";
            Err(Mismatch::new(expected, format!("`{first}` and `{second}`; rename one")))
        }
        None => Ok(classes),
    }
}

/// The file with these class names.
///
/// # Errors
/// [`Mismatch`] for names that [`parse_classes`] does not give back, such as one with a line break.
pub(crate) fn classes_file(classes: &[String]) -> Result<String, Mismatch> {
    let comes_back = |class: &str| parse_classes(class.as_bytes()).is_ok_and(|read| read == [class]);
    if let Some(class) = classes.iter().find(|class| !comes_back(class)) {
        let expected =
            "class names of one line, without spaces at the ends, since folders cannot keep them otherwise";
        return Err(Mismatch::new(expected, format!("{class:?}; rename it")));
    }
    let text = classes.join("\n") + "\n";
    parse_classes(text.as_bytes()).map(|_| text)
}

/// Two class names whose folders are the same on a file system that ignores the case of letters; `None` if there are none.
pub(super) fn alike(classes: &[String]) -> Option<(&str, &str)> {
    let mut known = BTreeMap::new();
    let mut earlier = |class| known.insert(folder_name(class).to_lowercase(), class);
    classes.iter().find_map(|class| Some((earlier(class.as_str())?, class.as_str())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_listed_once_in_label_order() {
        assert_eq!(parse_classes(b"\xef\xbb\xbfb\r\n\r\n a \n").unwrap(), ["b", "a"]);
        assert!(parse_classes(b"b\na\nb\n").unwrap_err().found.contains("`b` twice"));
        assert!(parse_classes(b"\n \n").unwrap_err().to_string().contains("found none"));
        assert!(parse_classes(b"\xff").unwrap_err().expected.contains("UTF-8"));
        assert_eq!(parse_classes(b"b\ra\r").unwrap(), ["b", "a"], "lines of an old Mac");
    }

    #[test]
    fn class_names_that_would_not_come_back_are_refused_before_they_are_written() {
        let written = |classes: &[&str]| {
            classes_file(&classes.iter().map(|class| (*class).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(written(&["t-shirt/top", "Größe", "100%", "."]).unwrap(), "t-shirt/top\nGröße\n100%\n.\n");
        for (classes, found) in [
            (&["two\nlines", "car"][..], "two\\nlines"),
            (&["a\nb", "a"], "\"a\\nb\"; rename it"),
            (&["car", "b "], "\"b \""),
            (&["car", "b\r"], "\"b\\r\""),
            (&["\u{feff}car"], "car"),
            (&["car", ""], "\"\""),
            (&["Car", "car"], "`Car` and `car`; rename one"),
        ] {
            let error = written(classes).unwrap_err();
            assert!(error.found.contains(found), "{error}");
        }
    }
}
