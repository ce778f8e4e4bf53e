//! Names of files and classes: conversion to text and to one form, endings, numbers and cameras in names.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::str::FromStr;

/// Endings of image files, in lower case. The content decides about other files.
const IMAGE_ENDINGS: [&str; 7] = ["png", "jpg", "jpeg", "jpe", "jfif", "jif", "webp"];

/// Folders that a system or a file server puts beside the files of a user.
pub(crate) const SYSTEM_FOLDERS: [&str; 5] =
    ["__MACOSX", "@eaDir", "$RECYCLE.BIN", "System Volume Information", "lost+found"];

/// A name as text. A byte that is not UTF-8 becomes an escape such as `\xE9`, so that names of different bytes stay different.
pub(crate) fn text(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        text.push_str(chunk.valid());
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\x{byte:02X}")));
    }
    text
}

/// A name of the file system as text.
pub(crate) fn text_of(name: &OsStr) -> String {
    text(name.as_encoded_bytes())
}

/// The composed form of a name (Unicode NFC): a Mac writes `ö` as `o` and a mark. Without the feature `unicode` the name stays as it is.
pub(crate) fn one_form(name: &str) -> Cow<'_, str> {
    #[cfg(feature = "unicode")]
    if !name.is_ascii() {
        return icu_normalizer::ComposingNormalizerBorrowed::new_nfc().normalize(name);
    }
    Cow::Borrowed(name)
}

/// Returns true if a part of the path begins with a dot or is a folder of the system.
pub fn is_hidden(path: &str) -> bool {
    path.split('/').any(|step| (step.starts_with('.') && step != ".") || SYSTEM_FOLDERS.contains(&step))
}

/// Name without the ending of an image, and the ending; empty if there is none. Other endings belong to the name.
pub(crate) fn image_stem(file: &str) -> (&str, &str) {
    let known = |ending: &str| IMAGE_ENDINGS.iter().any(|known| ending.eq_ignore_ascii_case(known));
    file.rsplit_once('.').filter(|(stem, ending)| !stem.is_empty() && known(ending)).unwrap_or((file, ""))
}

/// Returns true if the name of a file has the ending of an image.
pub fn is_image_name(path: &str) -> bool {
    !image_stem(file_of(path)).1.is_empty()
}

/// Ending of a file's name in lower case, with its dot, in words for a count. Up to eight letters and digits are an ending;
/// other names give `without an ending`.
pub(crate) fn ending(path: &str) -> String {
    let is_ending = |ending: &str| {
        (1..=8).contains(&ending.len()) && ending.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    match file_of(path).rsplit_once('.') {
        Some((_, ending)) if is_ending(ending) => format!(".{}", ending.to_ascii_lowercase()),
        _ => "without an ending".into(),
    }
}

/// Number of a text of digits alone; `None` for another text.
pub(crate) fn number<N: FromStr>(digits: &str) -> Option<N> {
    // Parsing would take a sign too.
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// Number of the camera in a name `camN`; `None` for another name.
pub(crate) fn camera(name: &str) -> Option<usize> {
    number(name.strip_prefix("cam")?)
}

fn file_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_not_utf_8_stay_two() {
        assert_eq!(text(b"caf\xe9.png"), "caf\\xE9.png");
        assert_ne!(text(b"caf\xe9.png"), text(b"caf\xe8.png"));
        assert_eq!(text("Größe".as_bytes()), "Größe");
    }

    #[cfg(feature = "unicode")]
    #[test]
    fn composed_and_decomposed_names_have_one_form() {
        assert_eq!(one_form("Gro\u{308}ße"), "Gr\u{f6}ße");
        assert_eq!(one_form("\u{1112}\u{1161}\u{11ab}"), "\u{d55c}");
        assert_eq!(one_form("car"), "car");
    }

    #[test]
    fn endings_of_images_are_no_part_of_a_name_and_others_are() {
        assert_eq!(image_stem("a.b.JPG"), ("a.b", "JPG"));
        assert_eq!(image_stem("n01230"), ("n01230", ""));
        assert_eq!(image_stem("2020.01"), ("2020.01", ""));
        assert_eq!(image_stem(".png"), (".png", ""));
        assert!(is_image_name("train/a.b/x.jpe") && !is_image_name("train/a.png/x"));
        assert_eq!([ending("a/x.BMP"), ending("a.b/x")], [".bmp".to_owned(), "without an ending".to_owned()]);
        assert_eq!(ending("a.b, taken by c"), "without an ending");
        assert!(is_hidden("./a/.git/x") && !is_hidden("./a/x.y"));
        assert!(is_hidden("car/@eaDir/x.jpg/thumb.jpg") && is_hidden("__MACOSX") && !is_hidden("a__MACOSX"));
    }
}
