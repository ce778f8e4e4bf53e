//! A module imports only modules that come after it in the diagram of `src/lib.rs`. So modules never import each other in a circle.

use std::fs;
use std::path::{Path, PathBuf};

/// Types at the root of the crate, and their modules.
const ROOT_TYPES: [(&str, &str); 8] = [
    ("DataError", "error"),
    ("Mismatch", "error"),
    ("DataSet", "data_set"),
    ("InMemory", "in_memory"),
    ("Part", "part"),
    ("SampleViews", "view"),
    ("Shape", "view"),
    ("View", "view"),
];

fn src() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// Modules of the diagram in reading order.
fn diagram() -> Vec<String> {
    let lib = fs::read_to_string(src().join("lib.rs")).unwrap();
    let lines = lib.split("//! ```").nth(1).expect("a diagram").lines().skip(1);
    let modules = lines.filter_map(|line| line.strip_prefix("//! ")?.get(16..));
    modules.flat_map(|modules| modules.split_whitespace().map(str::to_owned)).collect()
}

/// Text of a module's files without tests.
fn text(path: &Path) -> String {
    if path.is_dir() {
        return fs::read_dir(path).unwrap().map(|entry| text(&entry.unwrap().path())).collect();
    }
    if path.ends_with("tests.rs") {
        return String::new();
    }
    let text = fs::read_to_string(path).unwrap();
    text.split("#[cfg(test)]\nmod tests {").next().unwrap().to_owned()
}

/// Modules that a text imports: `crate::a::B`, and each item of `crate::{a, b::C}`.
fn imports(text: &str) -> Vec<String> {
    let name = |path: &str| {
        let name: String =
            path.trim().chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect();
        ROOT_TYPES.iter().find(|(root, _)| *root == name).map_or(name, |(_, module)| (*module).to_owned())
    };
    let mut found = Vec::new();
    for path in text.split("crate::").skip(1) {
        match path.strip_prefix('{') {
            None => found.push(name(path)),
            Some(group) => {
                let group = group.split(';').next().unwrap();
                let mut depth = 0;
                let items = group.split(|letter| {
                    depth += i32::from(letter == '{') - i32::from(letter == '}');
                    letter == ',' && depth == 0
                });
                found.extend(items.map(name));
            }
        }
    }
    found.retain(|name| !name.is_empty());
    found
}

#[test]
fn a_module_imports_only_modules_after_it_in_the_diagram() {
    let order = diagram();
    for (at, module) in order.iter().enumerate() {
        let file = src().join(format!("{module}.rs"));
        let path = if file.is_file() { file } else { src().join(module) };
        for import in imports(&text(&path)) {
            let imported = order.iter().position(|module| *module == import);
            let imported =
                imported.unwrap_or_else(|| panic!("{module} imports {import}, which no layer has"));
            assert!(imported > at || import == *module, "{module} imports {import}, which comes before it");
        }
    }
}

#[test]
fn the_diagram_has_every_module() {
    let mut order = diagram();
    let lib = fs::read_to_string(src().join("lib.rs")).unwrap();
    let module = |line: &str| {
        Some(line.trim_start_matches("pub ").strip_prefix("mod ")?.trim_end_matches(';').to_owned())
    };
    let mut modules: Vec<String> = lib.lines().filter_map(module).collect();
    order.sort_unstable();
    modules.sort_unstable();
    assert_eq!(order, modules);
}

#[test]
fn imports_are_found_in_every_form() {
    let text = "use crate::{DataError, files::{self, Entry}, idx};\nuse crate::split::Groups;\nlet x = crate::view::View;";
    assert_eq!(imports(text), ["error", "files", "idx", "split", "view"]);
}
