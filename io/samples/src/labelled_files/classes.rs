//! Names of classes: the file that lists them in the order of their labels, and their folders.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::error::Mismatch;

/// Name of the file, beside the parts or the table.
pub(crate) const CLASSES_FILE: &str = "classes.txt";

/// Folder of a class: its name, with `%` and two hexadecimal digits for a character that some file system refuses.
pub(crate) fn folder_name(class: &str) -> String {
    let mut name = String::with_capacity(class.len());
    let last = class.chars().count().saturating_sub(1);
    for (at, letter) in class.chars().enumerate() {
        let at_an_end = (at == 0 && letter == '.') || (at == last && matches!(letter, '.' | ' '));
        if letter.is_ascii_control() || "/\\:*?\"<>|%".contains(letter) || at_an_end {
            // Every such letter is ASCII, and writing to a string cannot fail.
            let _ = write!(name, "%{:02X}", u32::from(letter));
        } else {
            name.push(letter);
        }
    }
    name
}

/// Parses the class names of a file.
pub(crate) fn parse_classes(bytes: &[u8]) -> Result<Vec<String>, Mismatch> {
    let text = std::str::from_utf8(bytes).map_err(|_| Mismatch::new("UTF-8", "other bytes"))?;
    let text = text.trim_start_matches('\u{feff}');
    let classes: Vec<String> =
        text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect();
    if classes.is_empty() {
        return Err(Mismatch::new("one class per line", "none"));
    }
    let mut known = BTreeSet::new();
    match classes.iter().find(|class| !known.insert(folder_name(class).to_lowercase())) {
        Some(class) => Err(Mismatch::new("every class once", format!("`{class}` twice"))),
        None => Ok(classes),
    }
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
    }
}
