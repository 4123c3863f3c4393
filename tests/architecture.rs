//! The layers of `docs/ARCHITECTURE.md` are those of the manifests.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The packages that a workspace member may import, tests and examples aside.
fn imports(member: &str) -> BTreeSet<String> {
    let text = std::fs::read_to_string(root().join(member).join("Cargo.toml")).unwrap();
    let manifest: toml::Table = text.parse().unwrap();
    let dependencies = manifest.get("dependencies").and_then(toml::Value::as_table).into_iter().flatten();
    let ours = dependencies.filter_map(|(name, _)| name.strip_prefix("lobster-"));
    ours.map(str::to_owned).collect()
}

fn members() -> BTreeSet<String> {
    let text = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let manifest: toml::Table = text.parse().unwrap();
    let members = manifest["workspace"]["members"].as_array().unwrap();
    members.iter().map(|member| member.as_str().unwrap().to_owned()).collect()
}

/// The rows of the table of layers: crate, and what its row lets it depend on.
fn rows() -> Vec<(String, String)> {
    let text = std::fs::read_to_string(root().join("docs/ARCHITECTURE.md")).unwrap();
    let table = text.split("| crate | what it is for | depends on | never |").nth(1).unwrap();
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        (cells[0].trim_matches('`').to_owned(), cells[2].to_owned())
    };
    table.lines().skip(2).take_while(|line| line.starts_with('|')).map(row).collect()
}

#[test]
fn each_crate_imports_what_its_row_names_and_nothing_else() {
    for (member, named) in rows() {
        let imports = imports(&member);
        let allowed: BTreeSet<String> = match named.as_str() {
            "nothing of ours" => BTreeSet::new(),
            "all" => continue,
            names => names.split(", ").map(str::to_owned).collect(),
        };
        assert_eq!(imports, allowed, "{member}: docs/ARCHITECTURE.md and {member}/Cargo.toml differ");
    }
}

#[test]
fn each_crate_has_a_row_and_stands_above_what_it_imports() {
    let rows: Vec<String> = rows().into_iter().map(|(member, _)| member).collect();
    assert_eq!(
        rows.iter().cloned().collect::<BTreeSet<_>>(),
        members(),
        "docs/ARCHITECTURE.md lists the crates"
    );
    for (at, member) in rows.iter().enumerate() {
        for import in imports(member) {
            let of_import = |row: &String| row.rsplit('/').next() == Some(import.as_str());
            let below = rows.iter().position(of_import).unwrap();
            assert!(below < at, "{member} imports {import}, which the table has above it");
        }
    }
}

/// The code that the glossary names: `crate::module` or `crate::Type`.
fn named_in_the_glossary() -> Vec<String> {
    let text = std::fs::read_to_string(root().join("docs/ARCHITECTURE.md")).unwrap();
    let table = text.split("| word | meaning | in the code |").nth(1).unwrap();
    let lines = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let last_cell = |line: &str| line.trim_end_matches('|').rsplit('|').next().unwrap_or_default().to_owned();
    let cells: Vec<String> = lines.map(last_cell).collect();
    cells.iter().flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
}

fn sources(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
}

#[test]
fn what_the_glossary_names_is_there() {
    let names = named_in_the_glossary();
    assert!(names.len() > 30, "{names:?}");
    for name in names {
        let mut parts: Vec<&str> = name.split("::").collect();
        let src = root().join("runtime").join(parts.remove(0)).join("src");
        assert!(src.is_dir(), "{name}: no such crate");
        let Some(last) = parts.pop() else { continue };
        let at = parts.iter().fold(src, |dir, part| dir.join(part)).join(last);
        let is_module = at.is_dir() || at.with_extension("rs").is_file();
        let dir = at.parent().unwrap();
        let files = if dir.is_dir() { sources(dir) } else { vec![dir.with_extension("rs")] };
        let defines = |file: &PathBuf| {
            let text = std::fs::read_to_string(file).unwrap_or_default();
            ["struct", "enum", "trait"].iter().any(|kind| text.contains(&format!("pub {kind} {last} ")))
        };
        assert!(is_module || files.iter().any(defines), "{name} is not there");
    }
}

/// The names that the façade shows.
fn shown_by_the_facade() -> BTreeSet<String> {
    let text = std::fs::read_to_string(root().join("runtime/src/lib.rs")).unwrap();
    let code: String = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let shown = code.split("pub use ").skip(1).filter_map(|rest| rest.split(';').next());
    let last = |path: &str| path.rsplit("::").next().unwrap_or_default().trim().to_owned();
    let names = shown.flat_map(move |path| match path.split_once('{') {
        Some((_, names)) => names.trim_end_matches('}').split(',').map(last).collect::<Vec<_>>(),
        None => vec![last(path)],
    });
    names.filter(|name| !name.is_empty()).collect()
}

#[test]
fn the_facade_shows_what_is_used_and_nothing_else() {
    let shown = shown_by_the_facade();
    assert!(shown.len() > 100 && shown.contains("Runtime"), "{shown:?}");
    let places = ["cli/src", "tests", "runtime/examples", "runtime/tests"];
    let files = places.iter().flat_map(|place| sources(&root().join(place)));
    let rust = files.filter(|file| file.extension().is_some_and(|ext| ext == "rs"));
    let text: String = rust.map(|file| std::fs::read_to_string(file).unwrap()).collect();
    let words: BTreeSet<&str> = text.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    let unused: Vec<_> = shown.iter().filter(|name| !words.contains(name.as_str())).collect();
    assert!(unused.is_empty(), "runtime/src/lib.rs shows what nothing uses: {unused:?}");
}
