//! Changes to the text of a TOML file. Comments and the order of keys stay.

use toml_edit::{Document, DocumentMut, Item, Table, Value};

/// Sets a key such as `local.threshold` to a value in TOML; without a value, removes the lines of the key. Comments above the key stay.
///
/// # Errors
/// A text or a value that is not TOML, or a text with something else in the place of a section.
pub fn edit(text: &str, key: &str, value: Option<&str>) -> Result<String, String> {
    match value {
        Some(value) => set(text, key, value),
        None => remove(text, key),
    }
}

/// Section and name of a key.
fn parts(key: &str) -> (Option<&str>, &str) {
    key.rsplit_once('.').map_or((None, key), |(section, name)| (Some(section), name))
}

fn set(text: &str, key: &str, value: &str) -> Result<String, String> {
    let mut value: Value = value.parse().map_err(|error: toml_edit::TomlError| error.to_string())?;
    let mut document: DocumentMut = text.parse().map_err(|error: toml_edit::TomlError| error.to_string())?;
    // In a text without keys the comments are the end of the document. They must stay above the new key.
    let comments = document.is_empty().then(|| document.trailing().as_str().unwrap_or_default().to_owned());
    if comments.is_some() {
        document.set_trailing("");
    }
    let comments = comments.filter(|comments| !comments.is_empty());
    let (section, name) = parts(key);
    let table = match section {
        None => document.as_table_mut() as &mut dyn toml_edit::TableLike,
        Some(section) => {
            let mut table = document.as_table_mut() as &mut dyn toml_edit::TableLike;
            let mut names = section.split('.').peekable();
            while let Some(name) = names.next() {
                let mut new = Table::new();
                // A section within another one needs no empty header of the outer section above: `[a.b]` without `[a]`.
                new.set_implicit(names.peek().is_some());
                if let Some(comments) = &comments {
                    new.decor_mut().set_prefix(format!("{comments}\n"));
                }
                let item = table.entry(name).or_insert(Item::Table(new));
                let found = item.as_table_like_mut();
                table = found.ok_or_else(|| format!("{section}: expected a section, found a value"))?;
            }
            table
        }
    };
    match table.get_mut(name).and_then(Item::as_value_mut) {
        Some(old) => {
            // The comment behind the old value belongs to that value's decoration.
            *value.decor_mut() = old.decor().clone();
            *old = value;
        }
        None => {
            table.insert(name, Item::Value(value));
            if let (None, Some(comments), Some(mut key)) = (section, &comments, table.key_mut(name)) {
                key.leaf_decor_mut().set_prefix(format!("{comments}\n"));
            }
        }
    }
    Ok(document.to_string())
}

fn remove(text: &str, key: &str) -> Result<String, String> {
    let document = Document::parse(text.to_owned()).map_err(|error| error.to_string())?;
    let (section, name) = parts(key);
    let mut sections = section.iter().flat_map(|section| section.split('.'));
    let table = sections.try_fold(document.as_item(), |item, name| item.get(name));
    let found = table.and_then(Item::as_table_like).and_then(|table| table.get_key_value(name));
    let Some((found, item)) = found else { return Ok(text.to_owned()) };
    let is_dotted = item.as_table().is_some_and(Table::is_dotted);
    if let (Some(section), true) = (section, is_dotted || table.is_some_and(Item::is_inline_table)) {
        // Other keys may stand on the line of an inline table, or between the lines of dotted keys.
        let mut document = document.into_mut();
        let item = section.split('.').try_fold(document.as_item_mut(), |item, name| item.get_mut(name));
        item.and_then(Item::as_table_like_mut).map(|table| table.remove(name));
        return Ok(document.to_string());
    }
    let (Some(first), Some(last)) = (found.span(), item.span()) else {
        return Err(format!("{key}: its lines are not known; take it out by hand"));
    };
    // The span of a section covers its header alone.
    let inner = item.as_table().into_iter().flat_map(Table::iter).filter_map(|(_, value)| value.span());
    let last_end = inner.map(|span| span.end).fold(last.end, usize::max);
    let begin = text[..first.start].rfind('\n').map_or(0, |at| at + 1);
    let end = text[last_end..].find('\n').map_or(text.len(), |at| last_end + at + 1);
    Ok(format!("{}{}", &text[..begin], &text[end..]))
}
