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
