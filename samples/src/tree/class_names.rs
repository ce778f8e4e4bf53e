//! Names of classes where their order, or a character that no folder may have, needs a file: `classes.txt`, one a line.

use std::collections::BTreeSet;
use std::fmt::Write;

/// The file, beside the parts.
pub(crate) const CLASSES_FILE: &str = "classes.txt";

/// The folder of a class: its name, with `%` and two digits (the byte in hexadecimal) for what some file system cannot have.
pub(crate) fn folder_name(class: &str) -> String {
    let mut name = String::with_capacity(class.len());
    let last = class.chars().count().saturating_sub(1);
    for (at, letter) in class.chars().enumerate() {
        let at_an_end = (at == 0 && letter == '.') || (at == last && matches!(letter, '.' | ' '));
        if letter.is_ascii_control() || "/\\:*?\"<>|%".contains(letter) || at_an_end {
            // Every such letter is ASCII.
            let _ = write!(name, "%{:02X}", u32::from(letter));
        } else {
            name.push(letter);
        }
    }
    name
}

/// The names in the file; an error says what is wrong with it.
pub(super) fn parse(bytes: &[u8]) -> Result<Vec<String>, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "expected UTF-8, found other bytes".to_owned())?;
    let text = text.trim_start_matches('\u{feff}');
    let classes: Vec<String> =
        text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect();
    if classes.is_empty() {
        return Err("expected a class a line, found none".into());
    }
    let mut known = BTreeSet::new();
    match classes.iter().find(|class| !known.insert(folder_name(class).to_lowercase())) {
        Some(class) => Err(format!("expected every class once, found `{class}` twice")),
        None => Ok(classes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_becomes_a_folder_that_every_file_system_takes() {
        for (class, folder) in [
            ("car", "car"),
            ("t-shirt/top", "t-shirt%2Ftop"),
            ("100%", "100%25"),
            ("..", "%2E%2E"),
            ("Größe x", "Größe x"),
        ] {
            assert_eq!(folder_name(class), folder);
        }
    }

    #[test]
    fn classes_are_told_once_in_their_order() {
        assert_eq!(parse(b"\xef\xbb\xbfb\r\n\r\n a \n").unwrap(), ["b", "a"]);
        assert!(parse(b"b\na\nb\n").unwrap_err().contains("`b` twice"));
        assert!(parse(b"\n \n").unwrap_err().contains("found none"));
        assert!(parse(b"\xff").unwrap_err().contains("UTF-8"));
    }
}
