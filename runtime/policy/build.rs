//! Compiles the catalogue of programs that only read (`src/catalogue/programs/*.toml`) into static tables.
//! A key, an operand kind or an option that it does not understand fails the build.

use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde::Deserialize;

const DIRECTORY: &str = "src/catalogue/programs";

/// The entry of an option that does more than read.
const REFUSED: &str = "known(Takes::Refused)";

/// One file of the catalogue; `README.md` beside it explains the keys.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
#[derive(Default)]
struct Family {
    set: Vec<Set>,
    program: Vec<Program>,
    version: Vec<Version>,
}

#[derive(Deserialize)]
struct Set {
    name: String,
    #[serde(default)]
    include: Vec<String>,
    #[serde(flatten)]
    options: HashMap<String, Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Version {
    question: String,
    programs: Vec<String>,
}

#[derive(Deserialize)]
struct Program {
    names: Vec<String>,
    operands: String,
    #[serde(default)]
    verbs: Vec<String>,
    #[serde(default)]
    requires: Vec<String>,
    #[serde(default)]
    include: Vec<String>,
    #[serde(default)]
    one_dash: bool,
    #[serde(default)]
    options_first: bool,
    #[serde(default)]
    no_equals: bool,
    #[serde(default)]
    refuse_schemes: bool,
    #[serde(default)]
    pure: bool,
    #[serde(flatten)]
    options: HashMap<String, Vec<String>>,
}

/// The options of one entry: what each takes, by name without dashes.
#[derive(Default)]
struct Options {
    /// By name, with true for a long one: the value of the option, and true if a set lists it.
    known: BTreeMap<(bool, String), (&'static str, bool)>,
    runs: bool,
}

impl Options {
    fn include(&mut self, names: &[String], sets: &[Set]) -> Result<(), String> {
        for name in names {
            let set = sets.iter().find(|set| set.name == *name).ok_or(format!("there is no set `{name}`"))?;
            self.include(&set.include, sets)?;
            self.add(&set.options, false, true)?;
        }
        Ok(())
    }

    fn add(
        &mut self,
        columns: &HashMap<String, Vec<String>>,
        one_dash: bool,
        is_set: bool,
    ) -> Result<(), String> {
        for (column, options) in columns {
            let known = match column.as_str() {
                "flags" => "known(Takes::Nothing)",
                "text" => "known(Takes::Text)",
                "paths" => "known(Takes::Path)",
                "attached" => "known(Takes::Attached)",
                "two_texts" => "known(Takes::TwoTexts)",
                "text_and_path" => "known(Takes::TextAndPath)",
                "pattern_flags" => "pattern(Takes::Nothing)",
                "pattern_text" => "pattern(Takes::Text)",
                "pattern_file" => "pattern(Takes::Path)",
                "refused" | "runs" => REFUSED,
                _ => return Err(format!("`{column}` is not a key")),
            };
            self.runs |= column == "runs" && !options.is_empty();
            for option in options {
                let name = option.strip_prefix('-').ok_or(format!("`{option}` has no dash"))?;
                let names = match name.strip_prefix('-') {
                    Some(long) => vec![(true, long.to_owned())],
                    None if one_dash => vec![(true, name.to_owned())],
                    None => name.chars().map(|c| (false, c.to_string())).collect(),
                };
                for name in names {
                    let before = self.known.get(&name).copied();
                    // A program's own row overrides a set, but nothing overrides a refusal.
                    match before.filter(|(before, _)| *before != known) {
                        Some((REFUSED, _)) => {}
                        Some((_, of_set)) if of_set == is_set && known != REFUSED => {
                            return Err(format!("`{option}` is listed twice, in `{column}` and elsewhere"));
                        }
                        _ => drop(self.known.insert(name, (known, is_set))),
                    }
                }
            }
        }
        Ok(())
    }
}

fn entry(program: &Program, sets: &[Set]) -> Result<String, String> {
    let mut options = Options::default();
    options.include(&program.include, sets)?;
    options.add(&program.options, program.one_dash, false)?;
    let operands = match program.operands.as_str() {
        "paths" => "Paths",
        "meta" => "Meta",
        "text" => "Text",
        "pattern" => "Pattern",
        "none" => "None",
        "free" => "Free",
        "first-only" => "FirstOnly",
        "git" => "Git",
        other => return Err(format!("`{other}` is not a kind of operands")),
    };
    if !program.one_dash && !matches!(operands, "Git" | "Free") {
        for name in ["help", "version"] {
            options.known.entry((true, name.to_owned())).or_insert(("known(Takes::Nothing)", false));
        }
    }
    let required: Vec<&str> = program.requires.iter().map(|option| option.trim_start_matches('-')).collect();
    let (mut short, mut long) = (String::new(), String::new());
    for ((is_long, name), (known, _)) in &options.known {
        match is_long {
            true => long.push_str(&format!("({name:?}, {known}), ")),
            false => short.push_str(&format!("({:?}, {known}), ", name.chars().next().unwrap_or_default())),
        }
    }
    // A second input is often an option behind the first.
    let first = program.options_first || operands == "FirstOnly";
    Ok(format!(
        "Entry {{ operands: Operands::{operands}, short: &[{short}], long: &[{long}], required: &{required:?}, runs: {}, \
         verbs: &{:?}, one_dash: {}, options_first: {first}, no_equals: {}, refuse_schemes: {}, pure: {} }}",
        options.runs,
        program.verbs,
        program.one_dash,
        program.no_equals,
        program.refuse_schemes,
        program.pure
    ))
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={DIRECTORY}");
    let mut files: Vec<_> =
        fs::read_dir(DIRECTORY)?.map(|file| Ok(file?.path())).collect::<Result<_, std::io::Error>>()?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    let (mut entries, mut names, mut versions) = (String::new(), BTreeMap::new(), String::new());
    let (mut sets, mut families) = (Vec::new(), Vec::new());
    for path in files {
        let file = path.display().to_string();
        let mut family: Family =
            toml::from_str(&fs::read_to_string(&path)?).map_err(|error| format!("{file}: {error}"))?;
        sets.append(&mut family.set);
        families.push((file, family));
    }
    for (file, family) in families {
        for program in family.program {
            let at = names.len();
            let text = entry(&program, &sets).map_err(|why| format!("{file}: {:?}: {why}", program.names))?;
            writeln!(entries, "static ENTRY_{at}: Entry = {text};")?;
            for name in program.names {
                if names.insert(name.clone(), at).is_some() {
                    return Err(format!("{file}: `{name}` is listed twice").into());
                }
            }
        }
        for version in family.version {
            writeln!(versions, "    ({:?}, &{:?}),", version.question, version.programs)?;
        }
    }
    let mut code = format!("{entries}static PROGRAMS: &[(&str, &Entry)] = &[\n");
    for (name, at) in names {
        writeln!(code, "    ({name:?}, &ENTRY_{at}),")?;
    }
    writeln!(code, "];\npub(super) static VERSIONS: &[(&str, &[&str])] = &[\n{versions}];")?;
    Ok(fs::write(Path::new(&std::env::var("OUT_DIR")?).join("programs.rs"), code)?)
}
