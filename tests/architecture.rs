//! The layers of `docs/ARCHITECTURE.md` are those of the manifests.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use syn::visit::Visit;

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

/// An entry of "Words in the code" of `docs/ARCHITECTURE.md`.
struct Word {
    word: String,
    /// The code that the entry names: `crate::module` or `crate::Type`.
    code: Vec<String>,
    /// False if the glossary has the meaning.
    has_meaning: bool,
}

fn words_in_the_code() -> Vec<Word> {
    let text = std::fs::read_to_string(root().join("docs/ARCHITECTURE.md")).unwrap();
    let section = text.split("## Words in the code").nth(1).unwrap().split("\n## ").next().unwrap();
    // `- **word** (code): meaning` or `- **word**: code`
    let entry = |line: &str| {
        let (word, rest) = line.strip_prefix("- **")?.split_once("**")?;
        let code = rest.split("): ").next()?.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        Some(Word { word: word.to_owned(), code, has_meaning: rest.contains("): ") })
    };
    section.lines().filter_map(entry).collect()
}

#[test]
fn each_word_of_the_code_has_one_meaning() {
    let glossary = std::fs::read_to_string(root().join("docs/glossary.md")).unwrap();
    for Word { word, has_meaning, .. } in words_in_the_code() {
        let is_in_glossary = glossary.contains(&format!("\n- **{word}**: "));
        assert!(
            is_in_glossary != has_meaning,
            "{word} needs a meaning either in docs/glossary.md or in docs/ARCHITECTURE.md"
        );
    }
}

fn sources(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
}

#[test]
fn the_code_that_the_words_name_is_there() {
    let names: Vec<String> = words_in_the_code().into_iter().flat_map(|word| word.code).collect();
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

/// Collects what a façade shows: the path that leads to a thing, and the one under which it is shown.
fn push_shown(items: &[syn::Item], module: &[String], shown: &mut Vec<(Vec<String>, Vec<String>)>) {
    for item in items {
        match item {
            syn::Item::Mod(inner) => {
                let module = [module, &[inner.ident.to_string()]].concat();
                push_shown(&inner.content.as_ref().unwrap().1, &module, shown);
            }
            syn::Item::Use(item) if !matches!(item.vis, syn::Visibility::Inherited) => {
                let mut found = Vec::new();
                named(&item.tree, &[], &mut found);
                shown.extend(found.into_iter().map(|(name, path)| (path, [module, &[name]].concat())));
            }
            _ => {}
        }
    }
}

/// Collects the names that `use` gives to what the façade shows, at any depth of a file.
struct Imported(BTreeMap<String, Vec<String>>);

impl<'ast> Visit<'ast> for Imported {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let mut found = Vec::new();
        named(&item.tree, &[], &mut found);
        for (name, mut path) in found {
            if path[0] != "lobster_runtime" {
                continue;
            }
            path.remove(0);
            let is_itself = name == "self";
            if is_itself {
                path.pop();
            }
            let name = if is_itself { path.last().unwrap().clone() } else { name };
            self.0.insert(name, path);
        }
    }
}

/// The paths `a::b::c` of a text, macros included.
fn paths_in(text: &str) -> Vec<Vec<&str>> {
    let mut paths: Vec<Vec<&str>> = Vec::new();
    let mut goes_on = false;
    let is_of_name = |c: char| c.is_alphanumeric() || c == '_';
    let mut rest = text;
    while let Some(at) = rest.find(is_of_name) {
        let end = rest[at..].find(|c| !is_of_name(c)).map_or(rest.len(), |length| at + length);
        let name = &rest[at..end];
        match paths.last_mut() {
            Some(path) if goes_on && at == 2 => path.push(name),
            _ => paths.push(vec![name]),
        }
        rest = &rest[end..];
        goes_on = rest.starts_with("::");
    }
    paths
}

#[test]
fn the_facade_shows_what_is_used_once_and_nothing_else() {
    let facade = std::fs::read_to_string(root().join("runtime/src/lib.rs")).unwrap();
    let mut shown = Vec::new();
    push_shown(&syn::parse_file(&facade).unwrap().items, &[], &mut shown);
    assert!(shown.len() > 100, "{shown:?}");
    let mut names: BTreeMap<_, Vec<String>> = BTreeMap::new();
    for (thing, path) in &shown {
        names.entry(thing).or_default().push(path.join("::"));
    }
    let twice: Vec<_> = names.values().filter(|names| names.len() > 1).collect();
    assert!(twice.is_empty(), "runtime/src/lib.rs has several names for one thing: {twice:?}");

    let places = [
        "cli/src",
        "tests",
        "runtime/console/src",
        "runtime/examples",
        "runtime/mcp/src",
        "runtime/render/src",
        "runtime/serve/src",
        "runtime/tests",
    ];
    let files = places.iter().flat_map(|place| sources(&root().join(place)));
    let mut used: BTreeSet<Vec<String>> = BTreeSet::new();
    for file in files.filter(|file| file.extension().is_some_and(|ext| ext == "rs")) {
        let text = std::fs::read_to_string(&file).unwrap();
        let Ok(parsed) = syn::parse_file(&text) else { continue };
        let mut imported = Imported(BTreeMap::new());
        imported.visit_file(&parsed);
        used.extend(imported.0.values().cloned());
        for path in paths_in(&text) {
            let before = match path[0] {
                "lobster_runtime" => Some(Vec::new()),
                name => imported.0.get(name).cloned(),
            };
            let Some(mut whole) = before else { continue };
            for part in &path[1..] {
                whole.push((*part).to_owned());
                used.insert(whole.clone());
            }
        }
    }
    let unused: Vec<_> = shown.iter().map(|(_, path)| path).filter(|path| !used.contains(*path)).collect();
    assert!(unused.is_empty(), "runtime/src/lib.rs shows what nothing uses: {unused:?}");
}

/// The most files of a crate that may import one another in a circle.
const LARGEST_CIRCLE: usize = 15;

/// A module by the names that lead to it from the root of its crate.
type Module = Vec<String>;

/// The files of a crate by their modules, tests aside; the root is among them.
fn files(src: &Path) -> BTreeMap<Module, syn::File> {
    let rust = sources(src).into_iter().filter(|file| file.extension().is_some_and(|ext| ext == "rs"));
    let parsed = rust.filter_map(|file| {
        let path = file.strip_prefix(src).unwrap().with_extension("");
        let mut module: Module = path.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
        if matches!(module.last().map(String::as_str), Some("mod" | "lib" | "main")) {
            module.pop();
        }
        let text = std::fs::read_to_string(&file).unwrap();
        let is_test = module.iter().any(|part| part == "tests");
        (!is_test)
            .then(|| (module, syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()))))
    });
    parsed.collect()
}

/// The paths of a `use` by the names that it gives them.
fn named(tree: &syn::UseTree, before: &[String], found: &mut Vec<(String, Vec<String>)>) {
    let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
    match tree {
        syn::UseTree::Path(path) => named(&path.tree, &with(&path.ident), found),
        syn::UseTree::Name(name) => found.push((name.ident.to_string(), with(&name.ident))),
        syn::UseTree::Rename(name) => found.push((name.rename.to_string(), with(&name.ident))),
        syn::UseTree::Glob(_) => found.push(("*".to_owned(), before.to_vec())),
        syn::UseTree::Group(group) => group.items.iter().for_each(|tree| named(tree, before, found)),
    }
}

/// The names that a module shows though they are defined elsewhere.
fn shown_by(file: &syn::File) -> BTreeMap<String, Vec<String>> {
    let mut found = Vec::new();
    for item in &file.items {
        if let syn::Item::Use(item) = item
            && !matches!(item.vis, syn::Visibility::Inherited)
        {
            named(&item.tree, &[], &mut found);
        }
    }
    found.into_iter().collect()
}

/// Where the modules of a crate and the names that they hand on are.
struct Names {
    modules: BTreeSet<Module>,
    handed_on: BTreeMap<Module, BTreeMap<String, Vec<String>>>,
}

impl Names {
    /// The file that defines what a path means in a module; none if it is of another crate.
    fn file_of(&self, module: &Module, path: &[String], depth: usize) -> Option<Module> {
        let (first, rest) = path.split_first()?;
        let mut at = match first.as_str() {
            "crate" => Module::new(),
            "self" => module.clone(),
            "super" => module[..module.len().checked_sub(1)?].to_vec(),
            name => {
                let child = [module.as_slice(), &[name.to_owned()]].concat();
                self.modules.contains(&child).then_some(child)?
            }
        };
        for (n, part) in rest.iter().enumerate() {
            let child = [at.as_slice(), std::slice::from_ref(part)].concat();
            if part == "super" {
                at.pop();
            } else if self.modules.contains(&child) {
                at = child;
            } else if let Some(path) = self.handed_on.get(&at).and_then(|names| names.get(part))
                && depth < 8
            {
                return self.file_of(&at, &[path.as_slice(), &rest[n + 1..]].concat(), depth + 1);
            } else {
                break;
            }
        }
        Some(at)
    }
}

/// Collects the files whose definitions a file needs.
struct Imports<'n> {
    names: &'n Names,
    module: &'n Module,
    found: BTreeSet<Module>,
}

impl Imports<'_> {
    fn add(&mut self, path: &[String]) {
        let file = self.names.file_of(self.module, path, 0);
        self.found.extend(file.filter(|file| !file.is_empty() && file != self.module));
    }
}

impl<'ast> Visit<'ast> for Imports<'_> {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        // What is only handed on is needed by those who take it.
        if matches!(item.vis, syn::Visibility::Inherited) {
            let mut found = Vec::new();
            named(&item.tree, &[], &mut found);
            found.iter().for_each(|(_, path)| self.add(path));
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let parts: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if parts.len() > 1 {
            self.add(&parts);
        }
        syn::visit::visit_path(self, path);
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if item.ident != "tests" {
            syn::visit::visit_item_mod(self, item);
        }
    }
}

/// The modules that can be reached from one, itself only if it is in a circle.
fn reached<'g>(graph: &'g BTreeMap<Module, BTreeSet<Module>>, from: &'g Module) -> BTreeSet<&'g Module> {
    let (mut found, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(next) = open.pop() {
        open.extend(graph[next].iter().filter(|import| found.insert(*import)));
    }
    found
}

#[test]
fn no_large_part_of_a_crate_is_one_circle() {
    for member in members() {
        let src = match member.as_str() {
            "tests" => continue,
            member => root().join(member).join("src"),
        };
        let files = files(&src);
        let names = Names {
            modules: files.keys().cloned().collect(),
            handed_on: files.iter().map(|(module, file)| (module.clone(), shown_by(file))).collect(),
        };
        let graph: BTreeMap<Module, BTreeSet<Module>> = files
            .iter()
            .map(|(module, file)| {
                let mut imports = Imports { names: &names, module, found: BTreeSet::new() };
                imports.visit_file(file);
                (module.clone(), imports.found)
            })
            .collect();
        let reached: BTreeMap<&Module, _> =
            graph.keys().map(|module| (module, reached(&graph, module))).collect();
        for (module, from_here) in &reached {
            let circle: Vec<String> = from_here
                .iter()
                .filter(|other| reached[**other].contains(module))
                .map(|other| other.join("::"))
                .collect();
            assert!(
                circle.len() <= LARGEST_CIRCLE,
                "{member}: {} files import one another: {circle:?}",
                circle.len()
            );
        }
    }
}
