//! What a file with instructions runs in turn, as far as its text tells.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use lobster_base::json;
use lobster_policy::{Dialect, FileRole, Language, Lookup, Mention, interpreter_language};

/// What a file holds.
#[derive(Debug, Default)]
pub(super) struct Inside {
    /// Shell text that is run, and the language of the shell that runs it.
    pub(super) shell: Vec<(Dialect, String)>,
    /// Other files, named relative to the working directory or to the file's own.
    pub(super) files: Vec<Mention>,
    /// It may run and load more than its text tells.
    pub(super) loads: bool,
    pub(super) not_covered: Vec<String>,
}

/// The shell of everything that names none.
const SH: &str = "/bin/sh";

/// Reads the content of the file at `path`. `shell_of` tells the language of the shell of a name.
pub(super) fn read(
    path: &Path,
    language: &Language,
    content: &[u8],
    shell_of: &dyn Fn(&str) -> Dialect,
) -> Inside {
    let Ok(text) = std::str::from_utf8(content) else { return Inside { loads: true, ..Inside::default() } };
    let mut inside = Inside::default();
    let first = first_line(text);
    // What a shell reads is found in its text, unless the first line makes it read something else.
    inside.loads = *language == Language::Unknown && first.as_ref().is_some_and(|line| !line.is_plain);
    // Who starts it, if it is started by itself.
    if let (Language::Unknown, Some(line)) = (language, &first) {
        inside.files.push(Mention::new(line.program, Lookup::File, FileRole::Executed, Language::Unknown));
        if let Some(name) = line.name.filter(|name| !name.contains('/')) {
            inside.files.push(Mention::new(name, Lookup::Program, FileRole::Executed, Language::Unknown));
        }
    }
    let language = match (language, first) {
        (Language::Unknown, Some(line)) => {
            let name = line.name.unwrap_or(line.program);
            interpreter_language(name.rsplit('/').next().unwrap_or(name), shell_of(name))
        }
        // Text without a first line of that kind is run by a shell.
        (Language::Unknown, None) if text.contains('\0') => Language::Data,
        (Language::Unknown, None) => Language::Shell(shell_of(SH)),
        (known, _) => known.clone(),
    };
    match language {
        Language::Shell(dialect) => inside.shell.push((dialect, with_own_path(text, path))),
        Language::Make => make(text, path, &mut inside, shell_of),
        Language::Just => just(text, &mut inside, shell_of(SH)),
        Language::Package(scripts) => package(text, &scripts, &mut inside, shell_of(SH)),
        Language::Script(name) => {
            script(name, text, &mut inside);
            inside.loads = true;
        }
        Language::Unknown | Language::Data => inside.loads = true,
    }
    inside
}

/// The first line of a script.
struct FirstLine<'a> {
    program: &'a str,
    /// What `env` is to start, or the program.
    name: Option<&'a str>,
    /// It names one of the system's shells, with nothing but letters for options.
    is_plain: bool,
}

fn first_line(text: &str) -> Option<FirstLine<'_>> {
    let line = text.lines().next()?.strip_prefix("#!")?.trim();
    let mut words = line.split_whitespace();
    let program = words.next()?;
    let rest: Vec<&str> = words.collect();
    let is_system = |path: &str| ["/bin/", "/usr/bin/"].iter().any(|root| path.starts_with(root));
    let is_letters =
        |word: &str| word.strip_prefix('-').is_some_and(|rest| rest.bytes().all(|b| b"eufxvn".contains(&b)));
    if program.rsplit('/').next() != Some("env") {
        let is_plain = is_system(program) && rest.iter().all(|word| is_letters(word));
        return Some(FirstLine { program, name: None, is_plain });
    }
    let name = rest.iter().copied().find(|word| !word.starts_with('-') && !word.contains('='));
    let is_plain = is_system(program) && matches!(rest[..], [name] if !name.contains('/'));
    Some(FirstLine { program, name, is_plain })
}

/// A shell script in which the usual ways to name its own place are written out.
fn with_own_path(text: &str, path: &Path) -> String {
    let own = path.display().to_string();
    let directory = path.parent().unwrap_or(Path::new("/")).display().to_string();
    let is_plain =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '+' | ',' | '@');
    if !own.chars().all(is_plain) {
        return text.to_owned();
    }
    let mut text = text.to_owned();
    let names = ["${BASH_SOURCE[0]}", "${BASH_SOURCE}", "$BASH_SOURCE", "$0", "${0}"];
    for name in ["${BASH_SOURCE[0]%/*}", "${BASH_SOURCE%/*}", "${0%/*}"] {
        text = text.replace(name, &directory);
    }
    for command in ["readlink -f", "realpath", "readlink -f --", "realpath --", "dirname", "dirname --"] {
        let result = if command.starts_with("dirname") { &directory } else { &own };
        for name in names.into_iter().chain([own.as_str()]) {
            for quoted in [format!("\"{name}\""), name.to_owned()] {
                text = text.replace(&format!("$({command} {quoted})"), result);
                text = text.replace(&format!("`{command} {quoted}`"), result);
            }
        }
    }
    for name in names {
        // `$0` begins no longer name, but `$01` would be another thing.
        if name != "$0" {
            text = text.replace(name, &own);
        }
    }
    text = text.replace("\"$0\"", &format!("\"{own}\""));
    for (before, after) in [
        ("cd", "&& pwd"),
        ("cd", "&& pwd -P"),
        ("cd --", "&& pwd"),
        ("cd --", "&& pwd -P"),
        ("cd", ">/dev/null && pwd"),
        ("cd", "> /dev/null && pwd"),
        ("cd", ">/dev/null 2>&1 && pwd"),
        ("cd", "> /dev/null 2>&1 && pwd"),
        ("cd --", "&> /dev/null && pwd"),
        ("cd", "; pwd"),
    ] {
        for quoted in [format!("\"{directory}\""), directory.clone()] {
            text = text.replace(&format!("$({before} {quoted} {after})"), &directory);
            text = text.replace(&format!("$( {before} {quoted} {after} )"), &directory);
        }
    }
    text
}

/// A makefile: what it includes, and its recipes.
fn make(text: &str, path: &Path, inside: &mut Inside, shell_of: &dyn Fn(&str) -> Dialect) {
    let text = text.replace("\\\n", " ");
    let mut values: BTreeMap<String, String> = BTreeMap::new();
    values.insert("CURDIR".to_owned(), ".".to_owned());
    values.insert("SHELL".to_owned(), "/bin/sh".to_owned());
    values.insert("MAKEFILE_LIST".to_owned(), path.display().to_string());
    let mut recipes = Vec::new();
    for line in text.lines() {
        if let Some(recipe) = line.strip_prefix('\t') {
            recipes.push(recipe.to_owned());
            continue;
        }
        let line = line.trim_start();
        let line = line.strip_prefix("export ").unwrap_or(line);
        if let Some((_, recipe)) = line.split_once(';').filter(|(before, _)| before.contains(':')) {
            recipes.push(recipe.to_owned());
        }
        for word in ["include ", "-include ", "sinclude "] {
            for name in line.strip_prefix(word).into_iter().flat_map(str::split_whitespace) {
                let name = expanded(name, &values);
                if name.contains('$') {
                    inside.not_covered.push(format!("{}: include {name}", path.display()));
                } else {
                    let lookup = if name.contains(['*', '?', '[']) { Lookup::Glob } else { Lookup::File };
                    inside.files.push(Mention::new(&name, lookup, FileRole::Sourced, Language::Make));
                }
            }
        }
        for (at, _) in line.match_indices("$(shell ") {
            let rest = &line[at + "$(shell ".len()..];
            recipes.push(rest[..rest.rfind(')').unwrap_or(rest.len())].to_owned());
        }
        if let Some((name, value)) = line.split_once('=') {
            let name = name.trim_end_matches([':', '?', '+', '!']).trim();
            if !name.is_empty()
                && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'))
            {
                let value = expanded(value.split(" #").next().unwrap_or(value).trim(), &values);
                values.insert(name.to_owned(), value);
            }
        }
    }
    let shell = shell_of(values.get("SHELL").map_or(SH, String::as_str));
    for recipe in recipes {
        let command = recipe.trim_start().trim_start_matches(['@', '-', '+']);
        inside.shell.push((shell, recipe_text(&expanded(command, &values))));
    }
}

/// Make's variables as far as they are known; `$$` stays.
fn expanded(text: &str, values: &BTreeMap<String, String>) -> String {
    let mut text = text.to_owned();
    // Values may hold further names; a name that holds itself ends soon.
    for _ in 0..4 {
        for (name, value) in values {
            for form in [format!("$({name})"), format!("${{{name}}}")] {
                text = text.replace(&form, value);
            }
        }
        if text.len() > 64 << 10 {
            break;
        }
    }
    text
}

/// A recipe as the shell gets it: make's own unknown parts are unknown words.
fn recipe_text(recipe: &str) -> String {
    let mut out = String::with_capacity(recipe.len());
    let mut rest = recipe;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        if let Some(after) = after.strip_prefix('$') {
            out.push('$');
            rest = after;
            continue;
        }
        // `$RANDOM` is a value that no analysis knows.
        out.push_str("${RANDOM}");
        let close = match after.chars().next() {
            Some('(') => matching(after, '(', ')'),
            Some('{') => matching(after, '{', '}'),
            Some(c) => c.len_utf8(),
            None => 0,
        };
        rest = &after[close..];
    }
    out.push_str(rest);
    out
}

/// The length of a text from its opening bracket to the one that closes it.
fn matching(text: &str, open: char, close: char) -> usize {
    let mut depth = 0usize;
    for (at, c) in text.char_indices() {
        if c == open {
            depth += 1;
        } else if c == close {
            depth = depth.saturating_sub(1);
            if depth == 0 {
                return at + c.len_utf8();
            }
        }
    }
    text.len()
}

/// A justfile: the lines of its recipes and what it imports.
fn just(text: &str, inside: &mut Inside, shell: Dialect) {
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["import" | "import?" | "mod" | "mod?", .., name] = words[..] {
            let name = name.trim_matches(['\'', '"']);
            for name in [name.to_owned(), format!("{name}.just"), format!("{name}/mod.just")] {
                inside.files.push(Mention::new(&name, Lookup::File, FileRole::Sourced, Language::Just));
            }
        }
        if line.starts_with([' ', '\t']) {
            let command = line.trim_start().trim_start_matches(['@', '-']);
            let mut command = command.to_owned();
            while let Some(at) = command.find("{{") {
                let end = command[at..].find("}}").map_or(command.len(), |end| at + end + 2);
                command.replace_range(at..end, "${RANDOM}");
            }
            inside.shell.push((shell, command));
        }
    }
}

/// `package.json`: the scripts that run, and the programs of `node_modules` in them.
fn package(text: &str, wanted: &BTreeSet<String>, inside: &mut Inside, shell: Dialect) {
    let Ok(document) = json::parse(text) else { return };
    let scripts = document.get("scripts").and_then(Value::as_object);
    for (name, script) in scripts.into_iter().flatten() {
        let Some(script) = script.as_str().filter(|_| wanted.is_empty() || wanted.contains(name)) else {
            continue;
        };
        for word in script.split(|c: char| c.is_whitespace() || matches!(c, ';' | '&' | '|' | '(' | ')')) {
            if !word.is_empty() && !word.contains('/') {
                let tool = format!("node_modules/.bin/{word}");
                inside.files.push(Mention::new(&tool, Lookup::Upward, FileRole::Executed, Language::Unknown));
            }
            // `npm run other` inside a script.
            if let Some(script) = scripts.and_then(|scripts| scripts.get(word)).and_then(Value::as_str)
                && !wanted.is_empty()
                && !wanted.contains(word)
            {
                inside.shell.push((shell, script.to_owned()));
            }
        }
        inside.shell.push((shell, script.to_owned()));
    }
}

/// The files beside a script that it loads: the plain forms of each language.
fn script(language: &str, text: &str, inside: &mut Inside) {
    let mut found: BTreeSet<String> = BTreeSet::new();
    for line in text.lines() {
        let line = line.trim();
        match language {
            "python" => {
                let names = match line.split_once(' ') {
                    Some(("import", names)) => names.split(',').collect(),
                    Some(("from", rest)) => rest.split_whitespace().take(1).collect(),
                    _ => Vec::new(),
                };
                for name in names {
                    let name = name.split_whitespace().next().unwrap_or_default().trim_start_matches('.');
                    let path = name.replace('.', "/");
                    let top = path.split('/').next().unwrap_or_default();
                    for base in [path.as_str(), top].into_iter().filter(|base| !base.is_empty()) {
                        found.extend([format!("{base}.py"), format!("{base}/__init__.py")]);
                    }
                }
            }
            "node" => {
                let loads = ["require", "import", "from"].iter().any(|word| line.contains(word));
                for name in quoted(line).filter(|name| loads && name.starts_with(['.', '/'])) {
                    for end in ["", ".js", ".mjs", ".cjs", ".ts", ".json", "/index.js", "/index.ts"] {
                        found.insert(format!("{name}{end}"));
                    }
                }
            }
            "ruby" | "perl" | "php" => {
                let loads =
                    ["require", "load", "include", "do ", "use "].iter().any(|word| line.starts_with(word));
                for name in quoted(line).filter(|_| loads) {
                    let name = name.trim_start_matches('/');
                    found.extend(["", ".rb", ".pl", ".pm", ".php"].map(|end| format!("{name}{end}")));
                }
                if let Some(module) = line.strip_prefix("use ").filter(|_| language == "perl") {
                    let module = module.split([';', ' ']).next().unwrap_or_default().replace("::", "/");
                    found.extend([format!("{module}.pm"), format!("lib/{module}.pm")]);
                }
            }
            _ => {}
        }
    }
    let language = match language {
        "python" => "python",
        "node" => "node",
        "ruby" => "ruby",
        "perl" => "perl",
        "php" => "php",
        _ => return,
    };
    for name in found {
        inside.files.push(Mention::new(&name, Lookup::File, FileRole::Sourced, Language::Script(language)));
    }
}

/// The string literals of a line.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    let mut parts = line.split(['\'', '"', '`']);
    parts.next();
    // Every second part stands between quotes.
    parts.step_by(2)
}
