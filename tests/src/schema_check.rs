//! Checks JSON messages against JSON Schemas, as strictly as tests need.

use serde_json::Value;

/// Keywords that restrict no value, or that [`mistakes`] checks after its loop over the keywords.
const NOT_CHECKED: [&str; 8] =
    ["$schema", "$defs", "title", "description", "default", "format", "required", "prefixItems"];

/// Lists the rules of `schema` that `value` breaks; an empty list if `value` fits. References are looked up in `root`, the whole schema.
/// Keywords beside a reference are not read. A property that the schema does not name is a mistake too, although JSON Schema allows it,
/// since our schemas must name every field.
///
/// # Panics
/// For a keyword or a type that this function does not know, so that no rule goes unchecked.
pub fn mistakes(root: &Value, schema: &Value, value: &Value) -> Vec<String> {
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
        let target =
            root.pointer(reference.trim_start_matches('#')).expect("a reference leads to a definition");
        return mistakes(root, target, value);
    }
    let Some(keywords) = schema.as_object() else { return Vec::new() };
    let mut found = Vec::new();
    let mut expect = |is_right: bool, what: &str| {
        if !is_right {
            found.push(format!("{what}: {value}"));
        }
    };
    let number = |limit: &Value| (value.as_f64(), limit.as_f64());
    let length = value.as_array().map_or(0, Vec::len) as u64;
    for (keyword, rule) in keywords {
        match keyword.as_str() {
            "type" => {
                let is_one = match rule {
                    Value::Array(names) => names.iter().any(|name| has_type(value, name)),
                    name => has_type(value, name),
                };
                expect(is_one, &format!("expected type {rule}"));
            }
            "const" => expect(value == rule, &format!("expected {rule}")),
            "enum" => {
                let is_word = rule.as_array().is_some_and(|words| words.contains(value));
                expect(is_word, &format!("expected one of {rule}"));
            }
            "oneOf" | "anyOf" => {
                let choices = rule.as_array().map_or(&[][..], Vec::as_slice);
                let fitting =
                    choices.iter().filter(|choice| mistakes(root, choice, value).is_empty()).count();
                expect(
                    fitting > 0 && (keyword == "anyOf" || fitting == 1),
                    &format!("expected {keyword} {rule}"),
                );
            }
            "minimum" => {
                let (found, limit) = number(rule);
                expect(found.is_none_or(|found| Some(found) >= limit), &format!("expected at least {rule}"));
            }
            "maximum" => {
                let (found, limit) = number(rule);
                expect(found.is_none_or(|found| Some(found) <= limit), &format!("expected at most {rule}"));
            }
            "minItems" => expect(Some(length) >= rule.as_u64(), &format!("expected {rule} items")),
            "maxItems" => expect(Some(length) <= rule.as_u64(), &format!("expected at most {rule} items")),
            "pattern" => {
                let pattern = regex::Regex::new(rule.as_str().unwrap_or_default()).expect("a valid pattern");
                let matches = value.as_str().is_none_or(|text| pattern.is_match(text));
                expect(matches, &format!("expected {rule}"));
            }
            "properties" | "patternProperties" | "additionalProperties" | "items" => {}
            other => assert!(NOT_CHECKED.contains(&other), "unknown keyword {other} in {schema}"),
        }
    }
    match value {
        Value::Object(fields) => {
            for name in schema["required"].as_array().into_iter().flatten() {
                let name = name.as_str().unwrap_or_default();
                if !fields.contains_key(name) {
                    found.push(format!("expected a field {name}: {value}"));
                }
            }
            let of_others =
                schema.get("additionalProperties").filter(|others| **others != Value::Bool(false));
            for (name, field) in fields {
                match schema["properties"].get(name).or_else(|| of_pattern(schema, name)).or(of_others) {
                    Some(of_field) => found.extend(mistakes(root, of_field, field)),
                    None if keywords.contains_key("type") => found.push(format!("unnamed field {name}")),
                    None => {}
                }
            }
        }
        Value::Array(elements) => {
            for (index, element) in elements.iter().enumerate() {
                if let Some(of_element) = schema["prefixItems"].get(index).or_else(|| schema.get("items")) {
                    found.extend(mistakes(root, of_element, element));
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    found
}

/// Schema of the first pattern of `patternProperties` that matches a field; `None` if no pattern matches.
fn of_pattern<'a>(schema: &'a Value, name: &str) -> Option<&'a Value> {
    let matches = |pattern: &str| regex::Regex::new(pattern).expect("a valid pattern").is_match(name);
    schema["patternProperties"]
        .as_object()?
        .iter()
        .find(|(pattern, _)| matches(pattern))
        .map(|(_, rule)| rule)
}

fn has_type(value: &Value, name: &Value) -> bool {
    match name.as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_u64() || value.is_i64(),
        Some("number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        Some("null") => value.is_null(),
        _ => panic!("unknown type {name}"),
    }
}
