//! Which files an approval of a command has to cover: whatever its text names
//! that would be executed, sourced or read.
//!
//! This part looks at no file. It collects the names that the analysis comes
//! across, with what each is to the command that names it; which of them are
//! files, and what those run in turn, is found out where the question is put.
//! A name too many costs a look at the disk, a name too few is a hole: so
//! names are collected from every word that may be one.

mod programs;

use std::collections::BTreeMap;

use self::programs::{attached_values, is_file_option, script_operands, tool};
use super::analysis::{Analysis, Arg, Finding, Input, Level};
use super::command::Invocation;
use super::decide::Command;
use super::decision_env::DecisionEnv;
use super::dialect::Dialect;
use super::inline_code::is_interpreter;
use super::mentions::{FileRole, Language, Listing, Lookup, MAX_MENTIONS, MAX_NAME, Mention, Mentions};
use super::paths::{Roots, is_harmless_device, normalise};
use super::shell::LANGUAGE;
use super::wrappers::is_shell;
use super::{Policy, catalogue};

/// What a file that is analysed on its own finds around it.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    pub vars: BTreeMap<String, Vec<Arg>>,
    /// It is a script: its arguments are not known.
    pub is_script: bool,
    /// Whose language it is in, if it is not the text of a command itself.
    pub dialect: Option<Dialect>,
}

/// The language of the scripts of a program named on a script's first line; `shell` is the
/// language of that program if it is a shell.
pub fn interpreter_language(name: &str, shell: Dialect) -> Language {
    match name {
        "make" | "gmake" => Language::Make,
        "just" => Language::Just,
        _ if is_shell(name) => Language::Shell(shell),
        _ if is_interpreter(name) => programs::language(name),
        _ => Language::Data,
    }
}

impl Policy {
    /// The names in a command, started in `cwd`.
    pub fn mentions(
        &self,
        command: &Command,
        cwd: &str,
        env: &DecisionEnv,
        around: &Surroundings,
    ) -> Mentions {
        let roots = self.roots(env);
        let mut analysis = Analysis::new(self, env, &roots, cwd.to_owned());
        let mut mentions = Mentions::default();
        mentions.add_directory(cwd);
        analysis.mentions = Some(Box::new(mentions));
        analysis.scope.positional_unknown = around.is_script;
        analysis.scope.vars.extend(around.vars.clone());
        match command {
            Command::Shell(text) => {
                analysis.walk_text(text);
            }
            Command::Argv(words) => {
                let args = words.iter().map(|word| Arg::literal(word.clone())).collect();
                analysis.invoke(Invocation { args, ..Invocation::default() });
            }
        }
        let unread = analysis
            .findings
            .iter()
            .any(|f| matches!(f.code.as_str(), "syntax" | LANGUAGE) || f.code.starts_with("limit:"));
        let mut mentions = analysis.mentions.take().map(|mentions| *mentions).unwrap_or_default();
        if mentions.dynamic || !analysis.findings.iter().all(is_of_its_command) {
            mentions.not_covered.insert("what is only known when it runs".to_owned());
        }
        if unread {
            mentions.runs_code = true;
            mentions.not_covered.insert("text that cannot be read with certainty".to_owned());
        }
        mentions
    }

    /// Whether nobody but the system's administrator changes what is at this
    /// real path: the place of trusted programs and of the system's own files.
    pub fn is_system_file(&self, path: &str, roots: &Roots) -> bool {
        let trusted = self.programs().trusted_dirs.iter().map(String::as_str);
        let mut system = trusted.chain(super::SYSTEM_READ_ONLY.iter().copied()).chain(["/dev", "/run"]);
        system.any(|directory| super::paths::is_under(path, directory)) && !roots.is_writable(path)
    }
}

/// True if what a finding speaks of is a command that is known by its name, or only data.
fn is_of_its_command(finding: &Finding) -> bool {
    const KNOWN: &[&str] = &[
        "write",
        "uncovered",
        "not-read-only",
        "untrusted-program",
        "unknown-program",
        "network",
        "script",
        "opaque-code",
        "wrapper",
        "mixed-grants",
    ];
    finding.level == Level::Ask && (finding.rule.is_some() || KNOWN.contains(&finding.code.as_str()))
}

impl Analysis<'_> {
    fn mention(&mut self, arg: &Arg, role: FileRole, language: Language, may_write: bool) {
        let (cwd, vars) = (self.scope.cwd.clone(), &self.scope.vars);
        let Some(mentions) = &mut self.mentions else { return };
        mentions.add_directory(&cwd);
        if arg.unknown || arg.text.is_empty() {
            if role != FileRole::Read && arg.unknown {
                mentions.dynamic = true;
            }
            return;
        }
        let name = arg.text.strip_prefix("file://").unwrap_or(&arg.text).to_owned();
        if name.len() > MAX_NAME || is_harmless_device(&name) {
            return;
        }
        let vars = if role == FileRole::Read { BTreeMap::new() } else { vars.clone().into_iter().collect() };
        // A wildcard that a variable carries is one where the value is made, and
        // the value stands here for all files that match.
        let is_pattern = arg.glob || name.contains(['*', '?', '[']);
        let lookup = if is_pattern { Lookup::Glob } else { Lookup::File };
        if is_pattern && role != FileRole::Read {
            mentions.not_covered.insert(format!("files that match {name} only then"));
        }
        mentions.add(Mention { name, lookup, role, language, may_write, vars });
    }

    /// A word or a value, which may become the name of something that is run.
    pub(crate) fn mention_word(&mut self, word: &Arg) {
        let Some(mentions) = &mut self.mentions else { return };
        let kept = mentions.words.len();
        for part in word.text.split_whitespace().filter(|part| part.len() <= MAX_NAME) {
            if kept < MAX_MENTIONS {
                mentions.words.insert(part.to_owned());
            } else {
                mentions.not_covered.insert("the rest of a very long command".to_owned());
            }
        }
    }

    /// A file that a shell builtin reads as code.
    pub(crate) fn mention_sourced(&mut self, file: &Arg) {
        let language = Language::Shell(self.env.shell.dialect);
        self.mention(file, FileRole::Sourced, language.clone(), false);
        if let Some(mentions) = &mut self.mentions {
            mentions.runs_code = true;
            if !file.unknown && !file.text.contains('/') {
                // The shell looks for it on the PATH.
                mentions.add(Mention {
                    name: file.text.clone(),
                    lookup: Lookup::Program,
                    role: FileRole::Sourced,
                    language,
                    may_write: false,
                    vars: BTreeMap::new(),
                });
            }
        }
    }

    /// A file that is only read, by a redirect or a program known to read.
    pub(crate) fn mention_read(&mut self, file: &Arg) {
        if self.mentions.is_some() {
            self.mention(file, FileRole::Read, Language::Data, false);
        }
    }

    /// A file that is written, created or removed.
    pub(crate) fn mention_written(&mut self, file: &Arg) {
        if self.mentions.is_none() || file.unknown_start {
            return;
        }
        let path = normalise(&self.scope.cwd, &file.text);
        if let Some(mentions) = &mut self.mentions {
            mentions.written.insert(path);
        }
    }

    /// What a shell reads its code from, if that is not known.
    pub(crate) fn mention_input_as_code(&mut self, name: &str, input: &Input) {
        if let Some(mentions) = &mut self.mentions {
            mentions.runs_code = true;
            mentions.shell_reads = true;
            if matches!(input, Input::Pipe(_)) {
                let note =
                    format!("what {name} reads from the commands before it, unless they only read files");
                mentions.not_covered.insert(note);
            }
        }
    }

    /// The files below some directories, as `find` and `ls` name them.
    pub(crate) fn mention_listing(&mut self, starts: &[Arg], args: &[Arg], recursive: bool) {
        let Some(mentions) = &mut self.mentions else { return };
        let cwd = &self.scope.cwd;
        let starts = starts.iter().filter(|start| !start.unknown).map(|start| normalise(cwd, &start.text));
        let names = args.windows(2).filter(|pair| matches!(pair[0].text.as_str(), "-name" | "-iname"));
        let mut names: Vec<String> = names.map(|pair| pair[1].text.clone()).collect();
        // Patterns under a negation say what is left out.
        if args.iter().any(|arg| matches!(arg.text.as_str(), "!" | "-not" | "-iname")) {
            names.clear();
        }
        let listing = Listing { starts: starts.collect(), names, recursive };
        if !mentions.listings.contains(&listing) {
            mentions.listings.push(listing);
        }
    }

    /// Words that stand for the files which match them, wherever they go from there.
    pub(crate) fn mention_wildcards(&mut self, words: &[Arg]) {
        if self.mentions.is_some() {
            for word in words.iter().filter(|word| word.glob && !word.unknown) {
                self.mention_listing(std::slice::from_ref(word), &[], false);
            }
        }
    }

    /// A wrapper that chooses or loads code of its own, such as `npx`.
    pub(crate) fn mention_wrapper(&mut self, name: &str, args: &[Arg]) {
        if self.mentions.is_some() {
            self.mention_program(name, args);
            self.mention_tool(name, args);
        }
    }

    /// Collects what one command of the text names. `covered` tells that the
    /// catalogue knows it to do no more than read.
    pub(crate) fn mention_command(&mut self, args: &[Arg], covered: &[String]) {
        if self.mentions.is_none() {
            return;
        }
        let Some((first, rest)) = args.split_first() else { return };
        if first.unknown || first.glob {
            if let Some(mentions) = &mut self.mentions {
                mentions.dynamic = true;
                mentions.runs_code = true;
            }
            self.mention_operands(rest, true);
            return;
        }
        let full = first.text.clone();
        let name = full.rsplit('/').next().unwrap_or(&full).to_owned();
        self.mention_program(&full, rest);
        let reads_only = covered.iter().any(|by| by == "catalogue") && !is_shell(&name);
        let writes = super::touches::is_writer(&name) && self.resolve(&full).is_some();
        // Scripts of shells, and files that are programs themselves, are read where they are found.
        let is_found = is_shell(&name) || (full.contains('/') && self.resolve(&full).is_none());
        let is_settled = rest.iter().all(|arg| !arg.unknown && !arg.glob) || catalogue::is_text_only(&name);
        if let Some(mentions) = &mut self.mentions {
            mentions.runs_code |= !(reads_only || writes);
            if !(is_found || is_settled && (reads_only || writes)) {
                mentions.loads.insert(name.clone());
            }
        }
        match name.as_str() {
            "ls" | "dir" | "vdir" | "fd" | "fdfind" | "rg" | "tree" => {
                let starts: Vec<Arg> =
                    rest.iter().filter(|arg| !arg.text.starts_with('-')).cloned().collect();
                let starts = if starts.is_empty() { vec![Arg::literal(".")] } else { starts };
                let recursive = name != "ls" || rest.iter().any(|arg| arg.text == "-R");
                self.mention_listing(&starts, &[], recursive);
            }
            "git" if rest.iter().any(|arg| matches!(arg.text.as_str(), "ls-files" | "grep" | "diff")) => {
                self.mention_listing(&[Arg::literal(".")], &[], true);
            }
            _ => {}
        }
        if catalogue::is_text_only(&name) {
            return;
        }
        let runs = is_shell(&name) || is_interpreter(&name);
        if runs {
            self.mention_scripts(&name, rest);
        }
        self.mention_tool(&name, rest);
        self.mention_operands(rest, !reads_only);
    }

    /// The file that is the program itself.
    fn mention_program(&mut self, full: &str, args: &[Arg]) {
        let trusted = full.contains('/') && self.resolve(full).is_some();
        if trusted {
            return;
        }
        let lookup = if full.contains('/') { Lookup::File } else { Lookup::Program };
        let vars = self.scope.vars.clone().into_iter().collect();
        let cwd = self.scope.cwd.clone();
        let Some(mentions) = &mut self.mentions else { return };
        mentions.add_directory(&cwd);
        let mention = Mention {
            name: full.to_owned(),
            lookup,
            role: FileRole::Executed,
            language: Language::Unknown,
            may_write: false,
            vars,
        };
        if full.contains('/') {
            for arg in args.iter().filter(|arg| arg.unknown) {
                let note = format!("{full} {}: a word that is only known when it runs", arg.display_text());
                mentions.not_covered.insert(note);
            }
        }
        mentions.add(mention);
    }

    /// The script that a shell or interpreter is given.
    fn mention_scripts(&mut self, name: &str, args: &[Arg]) {
        let language = match is_shell(name) {
            true => Language::Shell(self.dialect_of(name)),
            false => programs::language(name),
        };
        let found = script_operands(name, args);
        for script in &found.scripts {
            self.mention(script, FileRole::Executed, language.clone(), false);
            // A directory stands for a file in it.
            for inside in ["__main__.py", "index.js"].into_iter().filter(|_| !is_shell(name)) {
                let inside = Arg { text: format!("{}/{inside}", script.text), ..script.clone() };
                self.mention(&inside, FileRole::Executed, language.clone(), false);
            }
            if script.unknown {
                let note =
                    format!("{name} {}: a name that is only known when it runs", script.display_text());
                self.note_not_covered(note);
            }
        }
        for module in found.modules {
            let path = module.replace('.', "/");
            for candidate in
                [format!("{path}.py"), format!("{path}/__main__.py"), format!("{path}/__init__.py")]
            {
                self.mention(&Arg::literal(candidate), FileRole::Executed, language.clone(), false);
            }
            self.note_not_covered(format!(
                "what the module {module} is, where it is not a file in the directory"
            ));
        }
    }

    /// The files that a build tool or task runner takes its instructions from.
    fn mention_tool(&mut self, name: &str, args: &[Arg]) {
        let Some(tool) = tool(name, args) else { return };
        let saved = self.scope.cwd.clone();
        if let Some(directory) = tool.directory {
            self.scope.cwd = normalise(&saved, &directory);
        }
        let cwd = self.scope.cwd.clone();
        if let Some(mentions) = &mut self.mentions {
            mentions.runs_code = true;
            mentions.add_directory(&cwd);
            for (file, language, lookup) in tool.files {
                mentions.add(Mention {
                    name: file,
                    lookup,
                    role: FileRole::Sourced,
                    language,
                    may_write: tool.may_write,
                    vars: BTreeMap::new(),
                });
            }
            mentions.not_covered.extend(tool.not_covered);
        }
        self.scope.cwd = saved;
    }

    /// Every word that may be the name of a file.
    fn mention_operands(&mut self, args: &[Arg], may_write: bool) {
        let mut after_option = false;
        for arg in args {
            let is_option = arg.text.starts_with('-') && arg.text.len() > 1;
            if is_option {
                for (value, named_by) in attached_values(&arg.text) {
                    let value = Arg { text: value.to_owned(), ..arg.clone() };
                    self.mention(
                        &value,
                        FileRole::Read,
                        Language::Data,
                        may_write && !is_file_option(named_by),
                    );
                }
                after_option = is_file_option(&arg.text);
                continue;
            }
            self.mention(arg, FileRole::Read, Language::Data, may_write && !after_option);
            for prefix in ["@", "<", "+"] {
                if let Some(value) = arg.text.strip_prefix(prefix) {
                    let value = Arg { text: value.to_owned(), ..arg.clone() };
                    self.mention(&value, FileRole::Read, Language::Data, may_write);
                }
            }
            if let Some((_, value)) = arg.text.split_once('=') {
                let value = Arg { text: value.trim_start_matches('@').to_owned(), ..arg.clone() };
                self.mention(&value, FileRole::Read, Language::Data, may_write);
            }
            after_option = false;
        }
    }

    /// A program that runs or loads more than the text names.
    pub(crate) fn mention_loader(&mut self, name: &str) {
        if let Some(mentions) = &mut self.mentions {
            mentions.loads.insert(name.to_owned());
        }
    }

    fn note_not_covered(&mut self, note: String) {
        if let Some(mentions) = &mut self.mentions {
            mentions.not_covered.insert(note);
        }
    }
}
