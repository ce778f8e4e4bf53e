//! Modules of every crate import in one direction.
//!
//! A module at the root of a crate imports only modules to its right or in the lines below in the diagram of the crate's `lib.rs`. The
//! modules of a folder must not import each other in a circle. A module and the modules in its own folder may import each other.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex::Regex;

/// Names of the modules on the path from the root of a crate to a module; empty for the root.
type ModulePath = Vec<String>;

/// The modules of a crate.
struct Modules {
    /// Text of each module, without tests, comments and strings.
    texts: BTreeMap<ModulePath, String>,
    /// For each module: the names that it exports by `pub use`, with the paths behind the names.
    passed_on: BTreeMap<ModulePath, BTreeMap<String, Vec<String>>>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Folders of the workspace's libraries.
fn crates() -> Vec<PathBuf> {
    let workspace = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let members = workspace.split("members = [").nth(1).unwrap().split(']').next().unwrap();
    let folders = members.split('"').skip(1).step_by(2).map(|member| root().join(member));
    folders.filter(|folder| folder.join("src/lib.rs").exists()).collect()
}

/// Modules in the diagram of a `lib.rs`, in reading order; empty without a diagram.
fn diagram(lib: &str) -> Vec<String> {
    let Some((_, after)) = lib.split_once("`module_orders`") else { return Vec::new() };
    let lines = after.split("//! ```").nth(1).expect("a diagram").lines().skip(1);
    let modules = lines.filter_map(|line| line.strip_prefix("//! ")?.get(16..));
    modules.flat_map(|modules| modules.split_whitespace().map(str::to_owned)).collect()
}

impl Modules {
    fn read(src: &Path) -> Self {
        let mut texts = BTreeMap::new();
        read_folder(src, &[], &mut texts);
        let tests: BTreeSet<ModulePath> =
            texts.iter().flat_map(|(path, text)| test_modules(path, text)).collect();
        texts.retain(|path, _| !(0..=path.len()).any(|len| tests.contains(&path[..len])));
        let texts: BTreeMap<_, _> =
            texts.into_iter().map(|(path, text)| (path, without_tests(&text))).collect();
        let passed_on = texts.iter().map(|(path, text)| (path.clone(), passed_on(text))).collect();
        Self { texts, passed_on }
    }

    /// The module with the item of a path in the module `from`, also if the path leads through up to 8 `pub use`; `None` for a path out of the
    /// crate.
    fn module_of(&self, from: &[String], path: &[String], hops: usize) -> Option<ModulePath> {
        let mut rest = path;
        let mut module = match rest.first()?.as_str() {
            "crate" => Vec::new(),
            "self" | "super" => from.to_vec(),
            child => {
                let child = [from, &[child.to_owned()]].concat();
                self.texts.contains_key(&child).then(|| from.to_vec())?
            }
        };
        while let Some(word) = rest.first().filter(|word| ["crate", "self", "super"].contains(&word.as_str()))
        {
            if word == "super" {
                module.pop();
            }
            rest = &rest[1..];
        }
        while let Some(name) = rest.first() {
            let child = [&module[..], std::slice::from_ref(name)].concat();
            if !self.texts.contains_key(&child) {
                break;
            }
            (module, rest) = (child, &rest[1..]);
        }
        let passed_on = rest.first().and_then(|name| self.passed_on.get(&module)?.get(name));
        match passed_on {
            Some(path) if hops < 8 => self.module_of(&module, path, hops + 1).or(Some(module)),
            _ => Some(module),
        }
    }

    /// For each folder and each module in the folder: the imported modules of the same folder, each with a text that names the import.
    fn imports(&self) -> BTreeMap<ModulePath, BTreeMap<String, BTreeMap<String, String>>> {
        let mut found: BTreeMap<ModulePath, BTreeMap<String, BTreeMap<String, String>>> = BTreeMap::new();
        for (from, text) in &self.texts {
            for path in paths(text) {
                let Some(to) = self.module_of(from, &path, 0) else { continue };
                let shared = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
                if let (Some(from_module), Some(to_module)) = (from.get(shared), to.get(shared)) {
                    let imports = found.entry(from[..shared].to_vec()).or_default();
                    let import = format!("{} imports {}", from.join("::"), path.join("::"));
                    imports.entry(from_module.clone()).or_default().insert(to_module.clone(), import);
                }
            }
        }
        found
    }
}

fn read_folder(folder: &Path, module: &[String], texts: &mut BTreeMap<ModulePath, String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() {
            read_folder(&path, &[module, &[name]].concat(), texts);
        } else if path.extension().is_some_and(|extension| extension == "rs") && name != "main" {
            let is_folder = ["lib", "mod"].contains(&name.as_str());
            let module = if is_folder { module.to_vec() } else { [module, &[name]].concat() };
            texts.insert(module, fs::read_to_string(path).unwrap());
        }
    }
}

/// Paths of the modules that a file declares only for tests.
fn test_modules(module: &[String], text: &str) -> Vec<ModulePath> {
    static DECLARATION: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"#\[cfg\(test\)\][ \n]*(?:pub(?:\(crate\))? )?mod ([a-z0-9_]+);").unwrap()
    });
    let names = DECLARATION.captures_iter(text);
    names.map(|found| [module, &[found[1].to_owned()]].concat()).collect()
}

/// The text of a file without its tests, comments and strings.
fn without_tests(text: &str) -> String {
    static TESTS: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"#\[cfg\(test\)\][ \n]*mod [a-z0-9_]+ \{").unwrap());
    static SILENT: LazyLock<Regex> = LazyLock::new(|| Regex::new(r#"//[^\n]*|"(?:[^"\\]|\\.)*""#).unwrap());
    let code = TESTS.split(text).next().unwrap();
    SILENT.replace_all(code, "").into_owned()
}

/// Every path in a text that begins with `crate`, `self` or `super`. A group in braces gives one path for each of its items.
fn paths(text: &str) -> Vec<Vec<String>> {
    static START: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(?-u:\b)(?:crate|self|super)::").unwrap());
    let mut found = Vec::new();
    for start in START.find_iter(text) {
        // `super::super::x` is one path: its second `super` does not begin another path.
        if !text[..start.start()].ends_with("::") {
            expand(&[], &text[start.start()..], &mut found);
        }
    }
    found
}

/// Appends the paths at the beginning of a text to `found`, each with the prefix `before`. Returns the rest of the text.
fn expand<'a>(before: &[String], text: &'a str, found: &mut Vec<Vec<String>>) -> &'a str {
    let text = text.trim_start();
    let end = text.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    let path = [before, &[word.to_owned()]].concat();
    let Some(after) = rest.strip_prefix("::") else {
        found.push(if word == "self" && !before.is_empty() { before.to_vec() } else { path });
        return rest;
    };
    let Some(group) = after.trim_start().strip_prefix('{') else { return expand(&path, after, found) };
    let mut rest = group;
    loop {
        rest = rest.trim_start_matches(|letter: char| letter == ',' || letter.is_whitespace());
        if let Some(behind) = rest.strip_prefix('}') {
            return behind;
        }
        let behind = expand(&path, rest, found);
        // The rest of an item, such as `as Name`, is no path.
        let next = behind.find([',', '}']).unwrap_or(behind.len());
        rest = &behind[next..];
        if rest.is_empty() {
            return rest;
        }
    }
}

/// Names that a text exports by `pub use`, with the paths behind the names.
fn passed_on(text: &str) -> BTreeMap<String, Vec<String>> {
    static PASSED_ON: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"(?-u:\b)pub(?:\([a-z ]+\))? use ([^;]+);").unwrap());
    let mut found = Vec::new();
    for uses in PASSED_ON.captures_iter(text) {
        expand(&[], uses.get(1).unwrap().as_str(), &mut found);
    }
    found.into_iter().filter_map(|path| Some((path.last()?.clone(), path))).collect()
}

/// Removes modules that import no remaining module until no more can be removed. Returns the imports between the remaining modules; empty if
/// there is no circle.
fn circle(imports: &BTreeMap<String, BTreeMap<String, String>>) -> Vec<String> {
    let mut left = imports.clone();
    loop {
        let names: BTreeSet<String> = left.keys().cloned().collect();
        let before = left.len();
        left.retain(|_, to| to.keys().any(|to| names.contains(to)));
        if left.len() == before {
            let inside = |to: &BTreeMap<String, String>| {
                to.iter()
                    .filter(|(to, _)| names.contains(*to))
                    .map(|(_, import)| import.clone())
                    .collect::<Vec<_>>()
            };
            return left.values().flat_map(inside).collect();
        }
    }
}

#[test]
fn modules_import_in_the_order_of_the_diagram_and_never_in_a_circle() {
    let mut wrong = Vec::new();
    for folder in crates() {
        let name = folder.file_name().unwrap().to_str().unwrap();
        let src = folder.join("src");
        let order = diagram(&fs::read_to_string(src.join("lib.rs")).unwrap());
        let modules = Modules::read(&src);
        let listed: BTreeSet<&String> = order.iter().collect();
        let roots = modules.texts.keys().filter(|path| path.len() == 1 && path[0] != "commands");
        for module in roots.filter(|path| !listed.contains(&path[0])) {
            wrong.push(format!("{name}: the diagram of lib.rs lacks {}", module[0]));
        }
        for (folder, imports) in modules.imports() {
            if !folder.is_empty() {
                wrong.extend(
                    circle(&imports).into_iter().map(|import| format!("{name}: in a circle, {import}")),
                );
                continue;
            }
            let place = |module: &str| order.iter().position(|listed| listed == module);
            for (from, to) in &imports {
                for (to, import) in to {
                    if place(from) > place(to) {
                        wrong.push(format!(
                            "{name}: {import}, which comes before it in the diagram of lib.rs"
                        ));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn paths_are_found_in_every_form() {
    let text = "use crate::{DataError, files::{self, Entry as E}, idx};\nuse super::super::split::Groups;\nlet x = crate::view::View;";
    let found: Vec<String> = paths(text).iter().map(|path| path.join("::")).collect();
    let expected = "crate::DataError crate::files crate::files::Entry crate::idx super::super::split::Groups crate::view::View";
    assert_eq!(found.join(" "), expected);
}

#[test]
fn a_circle_and_a_name_that_is_passed_on_are_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let file = folder.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    };
    write("lib.rs", "mod a;\nmod b;\npub use b::Two;");
    write("a/mod.rs", "mod x;\nmod y;\nuse crate::Two;");
    write("a/x.rs", "use super::y::Y; use super::Parent;");
    write("a/y.rs", "fn y() -> super::x::X {}\n#[cfg(test)]\nmod tests {\n    use crate::b::Two;\n}");
    write("b.rs", "// crate::a::Alpha\nstruct Two;");
    let imports = Modules::read(folder.path()).imports();
    assert_eq!(imports[&Vec::new()]["a"]["b"], "a imports crate::Two");
    assert!(!imports[&Vec::new()].contains_key("b"));
    assert_eq!(
        circle(&imports[&vec!["a".to_owned()]]),
        ["a::x imports super::y::Y", "a::y imports super::x::X"]
    );
}
