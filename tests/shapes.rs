//! Files, functions and names are of a size and a kind that a reader can take in.

use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};

const LONGEST_FILE: usize = 700;
const LONGEST_FUNCTION: usize = 100;

/// Names that tell nothing where the function is called. A constructor may be called `of`:
/// `Digest::of(bytes)`.
const VAGUE: [&str; 18] = [
    "of", "shown", "tell", "told", "away", "lazily", "given", "held", "coming", "ready", "stopped", "said",
    "again", "there", "above", "then", "apart", "in_two",
];

/// What is written by hand in Rust: the workspace, the steps, what is fuzzed.
fn files() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    for folder in ["cli", "fuzz", "guest-steps/rust", "runtime", "tests"] {
        collect(&root.join(folder), &mut files);
    }
    assert!(files.len() > 500, "{} files", files.len());
    files
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

#[test]
fn no_file_and_no_function_is_too_long() {
    let mut long = Vec::new();
    for file in files() {
        let text = std::fs::read_to_string(&file).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        if lines.len() > LONGEST_FILE {
            long.push(format!("{}: {} lines", file.display(), lines.len()));
        }
        for (name, at, length) in functions(&lines) {
            if length > LONGEST_FUNCTION {
                long.push(format!("{}:{at}: {name} has {length} lines", file.display()));
            }
        }
    }
    assert!(long.is_empty(), "at most {LONGEST_FILE} and {LONGEST_FUNCTION} lines:\n{}", long.join("\n"));
}

/// `just` refuses the whole file where two recipes have one name.
#[test]
fn a_recipe_has_a_name_of_its_own() {
    let text = include_str!("../justfile");
    let begins = |line: &&str| line.starts_with(|first: char| first.is_ascii_alphabetic());
    let mut names: Vec<&str> =
        text.lines().filter(begins).map(|line| line.split([' ', ':']).next().unwrap()).collect();
    assert!(names.len() > 30, "{names:?}");
    names.sort_unstable();
    let twice: Vec<&str> = names.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
    assert!(twice.is_empty(), "recipes of one name: {twice:?}");
}

/// The functions of a file by name, first line and length. The code is formatted, so a function
/// ends with the first brace that is indented as its `fn` is.
fn functions<'l>(lines: &[&'l str]) -> Vec<(&'l str, usize, usize)> {
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let indent = line.len() - code.len();
        let Some(name) = function_name(code) else { continue };
        let is_end = |later: &str| {
            later.trim_end() == format!("{:indent$}}}", "")
                || (later.len() - later.trim_start().len() == indent
                    && later.trim_end().ends_with([';', '}']))
        };
        if let Some(end) = lines[at..].iter().position(|later| is_end(later)) {
            found.push((name, at + 1, end + 1));
        }
    }
    found
}

fn function_name(code: &str) -> Option<&str> {
    let before = &code[..code.find("fn ")?];
    let words = ["pub", "const", "async", "unsafe", "extern", "\"C\""];
    let is_word = |word: &str| words.contains(&word) || word.starts_with("pub(") || word.ends_with(')');
    let name = before.split_whitespace().all(is_word).then(|| &code[before.len() + "fn ".len()..])?;
    name.split(|c: char| !c.is_alphanumeric() && c != '_').next()
}

#[test]
fn functions_are_measured_whole() {
    let text = "\
impl A {
    pub(crate) fn one<T>(
        t: T,
    ) -> usize
    where
        T: B,
    {
        if t.b() {
        }
    }

    const fn two() {}
    fn declared();
}
async unsafe fn three() {
    // fn is no function here
}";
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(functions(&lines), [("one", 2, 9), ("two", 12, 1), ("declared", 13, 1), ("three", 15, 3)]);
}

/// Collects functions whose name is vague, those that a trait names aside.
struct Vague(Vec<String>);

impl Vague {
    fn look(&mut self, signature: &syn::Signature) {
        let name = signature.ident.to_string();
        let is_constructor = name == "of" && signature.receiver().is_none() && gives_self(&signature.output);
        if VAGUE.contains(&name.as_str()) && !is_constructor {
            self.0.push(name);
        }
    }
}

/// Whether `Self` stands in what is given.
fn gives_self(output: &syn::ReturnType) -> bool {
    struct Found(bool);
    impl<'ast> Visit<'ast> for Found {
        fn visit_ident(&mut self, ident: &'ast syn::Ident) {
            self.0 |= ident == "Self";
        }
    }
    let mut found = Found(false);
    found.visit_return_type(output);
    found.0
}

impl<'ast> Visit<'ast> for Vague {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.look(&function.sig);
        visit::visit_item_fn(self, function);
    }

    fn visit_item_impl(&mut self, block: &'ast syn::ItemImpl) {
        for item in &block.items {
            if let (syn::ImplItem::Fn(function), None) = (item, &block.trait_) {
                self.look(&function.sig);
            }
        }
        visit::visit_item_impl(self, block);
    }
}

#[test]
fn functions_have_names_that_say_something() {
    let mut vague = Vec::new();
    for file in files() {
        let parts: Vec<_> = file.iter().map(|part| part.to_string_lossy()).collect();
        let is_ours = parts.iter().any(|part| part == "runtime" || part == "cli");
        if !is_ours || parts.iter().any(|part| part == "tests" || part == "tests.rs") {
            continue;
        }
        let text = std::fs::read_to_string(&file).unwrap();
        let mut found = Vague(Vec::new());
        found.visit_file(&syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display())));
        vague.extend(found.0.iter().map(|name| format!("{}: {name}", file.display())));
    }
    assert!(vague.is_empty(), "verb phrases, please:\n{}", vague.join("\n"));
}
