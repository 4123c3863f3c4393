//! The walk over shell text: it visits every command, at any depth.

use std::rc::Rc;

use super::super::analysis::{Analysis, Arg, Choice, CommandInput, FindingLevel, Flow, MAX_VALUES};
use super::super::command::Invocation;
use super::super::dialect::Dialect;
use super::super::wrappers::is_shell;
use super::{Command, Compound, Item, List, Piece, Redirect, Simple, Target, Word, read_script};

/// Code of the reason for text beyond the language.
pub(crate) const LANGUAGE: &str = "language";

impl Analysis<'_> {
    /// Asks because of a construct that is not part of the language that shells share.
    pub(crate) fn flag_unsupported(&mut self, what: &str) {
        self.ask_hint(
            LANGUAGE,
            format!("{what} is beyond the shell language that lobster can judge; a person has to read the text"),
            "write it in the form that every POSIX shell reads alike, or give the step a program with its arguments",
        );
    }

    /// Reads `text` as shell code that runs in this shell.
    pub(crate) fn walk_text(&mut self, text: &str) -> Flow {
        let input = std::mem::take(&mut self.child_input);
        let Ok(script) = read_script(text, self.policy.limits().nesting) else {
            self.add_denial("limit:nesting", "the text nests too deeply to be read");
            return Flow::default();
        };
        if script.is_broken {
            self.deny_hint(
                "syntax",
                "the text is not valid shell",
                "fix the quoting, or give the step an argument list instead of shell text",
            );
        } else if let Some(beyond) = &script.beyond {
            let span = self.span;
            if self.depth == 0 {
                self.span = Some(beyond.span);
            }
            self.flag_unsupported(beyond.what);
            self.span = span;
        }
        if script.beyond.is_some() && self.env.shell.dialect != Dialect::Bash {
            // The other shells read bash's quotes, tests or redirects as words and commands.
            let others = [("$'", "'"), ("$\"", "\""), ("&>", "& >"), ("[[", "[ ")];
            let other = others.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
            if other != text
                && let Ok(script) = read_script(&other, self.policy.limits().nesting)
            {
                self.guess_at(&script.list, &input);
            }
        }
        if script.is_whole {
            self.walk_list(&script.list, &input)
        } else {
            self.guess_at(&script.list, &input)
        }
    }

    /// Follows the possible commands of a text: they may add denials but no questions.
    fn guess_at(&mut self, list: &List, input: &CommandInput) -> Flow {
        let kept = self.findings.len();
        let flow = self.in_subshell(|a| {
            a.scope.positional_unknown = true;
            a.walk_list(list, input)
        });
        let mut at = 0;
        self.findings.retain(|finding| {
            at += 1;
            at <= kept || finding.level != FindingLevel::Ask
        });
        Flow { shell: true, taint: flow.taint, ..Flow::default() }
    }

    /// Reads `text` as the code of a new shell process, which does not see the plain variables of this
    /// one.
    pub(crate) fn walk_child(&mut self, text: &str, positional: Vec<Arg>) -> Flow {
        self.one_level_deeper(|a| {
            a.in_subshell(|a| {
                a.scope.functions.clear();
                a.forget_unexported();
                a.scope.positional = positional;
                a.scope.positional_unknown = false;
                let span = a.span;
                let flow = a.walk_text(text);
                a.span = span;
                flow
            })
        })
    }

    pub(crate) fn walk_list(&mut self, list: &List, input: &CommandInput) -> Flow {
        let mut flow: Option<Flow> = None;
        for Item { pipelines, background } in list {
            let next = if *background {
                self.spread += 1;
                let flow = self.in_subshell(|a| a.and_or(pipelines, input));
                self.spread -= 1;
                flow
            } else {
                self.and_or(pipelines, input)
            };
            flow = Some(match flow {
                None => next,
                Some(before) => before.join(next),
            });
        }
        flow.unwrap_or(Flow { known: Some(String::new()), ..Flow::default() })
    }

    fn and_or(&mut self, pipelines: &[Vec<Command>], input: &CommandInput) -> Flow {
        let mut flow = Flow::default();
        for (at, pipeline) in pipelines.iter().enumerate() {
            flow = match at {
                0 => self.walk_pipeline(pipeline, input),
                _ => flow.join(self.in_optional_code(|a| a.walk_pipeline(pipeline, input))),
            };
        }
        flow
    }

    fn walk_pipeline(&mut self, commands: &[Command], input: &CommandInput) -> Flow {
        if let [command] = commands {
            return self.walk_command(command, input);
        }
        let mut upstream = input.clone();
        let mut flow = Flow::default();
        self.spread += 1;
        for command in commands {
            let carried = match &upstream {
                CommandInput::Pipe(before) => (before.taint, before.shell),
                _ => Default::default(),
            };
            flow = self.in_subshell(|a| a.walk_command(command, &upstream));
            // Data keeps its origin through every filter.
            flow.taint = flow.taint.join(carried.0);
            flow.shell |= carried.1;
            upstream = CommandInput::Pipe(flow.clone());
        }
        self.spread -= 1;
        if flow.shell && flow.taint.network {
            self.add_hard_block(
                "remote-shell",
                "the pipeline connects a shell to the network",
                Some("download to a file, read it, and run it as a separate step"),
            );
        }
        flow
    }

    fn walk_command(&mut self, command: &Command, input: &CommandInput) -> Flow {
        match command {
            Command::Simple(simple) => self.walk_simple(simple, input),
            Command::Compound(compound, redirects) if redirects.is_empty() => {
                self.walk_compound(compound, input)
            }
            Command::Compound(compound, redirects) => {
                let redirected = self.judge_redirects(redirects, input);
                // If a file cannot be opened, nothing inside runs.
                self.in_optional_code(|a| a.walk_compound(compound, &redirected.input))
            }
        }
    }

    fn walk_compound(&mut self, compound: &Compound, input: &CommandInput) -> Flow {
        match compound {
            Compound::Group(list) => self.walk_list(list, input),
            Compound::Subshell(list) => self.in_subshell(|a| a.walk_list(list, input)),
            Compound::If(branches) => {
                let mut flow = Flow::default();
                for (at, (condition, body)) in branches.iter().enumerate() {
                    let tested = match at {
                        0 => self.walk_list(condition, input),
                        _ => self.in_optional_code(|a| a.walk_list(condition, input)),
                    };
                    flow = flow.join(tested).join(self.in_optional_code(|a| a.walk_list(body, input)));
                }
                flow
            }
            Compound::Loop { until, condition, body } => {
                let endless: &[&str] = if *until { &["false"] } else { &["true", ":"] };
                if is_one_of(condition, endless) && starts_background_jobs(body) && !ends_or_waits(body) {
                    self.add_hard_block(
                        "fork-bomb",
                        "an endless loop starts background processes",
                        Some("bound the loop, or wait for each process"),
                    );
                }
                self.widen_values(condition);
                self.widen_values(body);
                self.walk_turns(|a| {
                    let flow = a.walk_list(condition, input);
                    flow.join(a.walk_list(body, input))
                })
            }
            Compound::For { name, words, body } => {
                let values: Vec<Arg> = match words {
                    None if self.scope.positional_unknown => vec![Arg::unknown()],
                    None => self.scope.positional.clone(),
                    Some(words) => words
                        .iter()
                        .flat_map(|word| self.expand_word(word))
                        .map(Arg::after_matching)
                        .collect(),
                };
                let values = if values.len() > MAX_VALUES { vec![Arg::unknown()] } else { values };
                if let Some(value) = values.first() {
                    self.check_assignment(name, &value.clone());
                }
                self.widen_values(body);
                self.walk_turns(|a| {
                    a.add_values(name, values.clone(), false);
                    a.walk_list(body, input)
                })
            }
            Compound::Case(subject, arms) => {
                self.expand_whole(subject);
                let mut flow = Flow::default();
                for (patterns, body) in arms {
                    for pattern in patterns {
                        self.expand_whole(pattern);
                    }
                    flow = flow.join(self.in_optional_code(|a| a.walk_list(body, input)));
                }
                flow
            }
            Compound::Function(name, body) => {
                self.scope.functions.insert(name.clone(), Rc::clone(body));
                // The body is judged at its definition, even if it is never called.
                self.in_subshell(|a| {
                    a.scope.positional = Vec::new();
                    a.scope.positional_unknown = true;
                    a.call_body(name, body, input)
                });
                Flow::default()
            }
        }
    }

    /// Follows a function with the current positional parameters.
    fn call_body(&mut self, name: &str, body: &Command, input: &CommandInput) -> Flow {
        if let Some((_, outer)) = self.calls.iter().find(|(call, _)| call == name) {
            if self.spread > *outer {
                self.add_hard_block(
                    "fork-bomb",
                    format!("{name} starts itself again in the background or in a pipeline"),
                    None,
                );
            }
            return Flow::default();
        }
        self.calls.push((name.to_owned(), self.spread));
        let flow = self.one_level_deeper(|a| a.in_optional_code(|a| a.walk_command(body, input)));
        self.calls.pop();
        flow
    }

    /// Follows a call of a function of the text; `None` if there is no function of this name.
    pub(crate) fn call_function(&mut self, inv: &Invocation) -> Option<Flow> {
        let name = &inv.args.first()?.text;
        let body = self.scope.functions.get(name).cloned()?;
        let args = inv.args[1..].to_vec();
        let saved = (std::mem::replace(&mut self.scope.positional, args), self.scope.positional_unknown);
        self.scope.positional_unknown = false;
        let flow = self.call_body(name, &body, &inv.input);
        (self.scope.positional, self.scope.positional_unknown) = saved;
        Some(flow)
    }

    /// Follows the turns of a loop until the directory at the start of each turn is known.
    fn walk_turns(&mut self, mut body: impl FnMut(&mut Self) -> Flow) -> Flow {
        let before = (self.scope.cwd.clone(), self.scope.visited.clone());
        let flow = self.in_optional_code(&mut body);
        if (&self.scope.cwd, &self.scope.visited) == (&before.0, &before.1) {
            return flow;
        }
        let commands = self.commands.len();
        let again = self.in_optional_code(&mut body);
        self.commands.truncate(commands);
        flow.join(again)
    }

    /// Judges data that bash evaluates as a number or a name.
    pub(crate) fn judge_evaluated(&mut self, data: &Arg) {
        if data.text.contains("$(") || data.text.contains('`') {
            self.add_denial("arithmetic-code", "shells would evaluate code hidden in data");
            let code = data.text.replace(['[', ']'], "\n");
            self.one_level_deeper(|a| a.in_subshell(|a| a.walk_text(&code)));
        }
    }

    /// Adds the values that the commands of a loop assign to variables: an earlier turn may have
    /// reached them.
    fn widen_values(&mut self, list: &List) {
        let mut assigned: Vec<(String, Arg)> = Vec::new();
        collect_assignments(list, &mut assigned);
        for (name, value) in assigned {
            self.add_values(&name, vec![value], true);
        }
    }

    fn walk_simple(&mut self, simple: &Simple, input: &CommandInput) -> Flow {
        if !self.count_command() {
            return Flow::default();
        }
        if self.depth == 0
            && let Some(word) = simple.words.first()
        {
            self.span = word.span;
        }
        let outer = self.choice.replace(Choice::default());
        let mut flow: Option<Flow> = None;
        for reading in 0.. {
            if reading > MAX_VALUES {
                self.add_denial("limit:values", "a command has too many possible readings");
                break;
            }
            let next = self.simple_once(simple, input);
            flow = Some(match flow {
                None => next,
                Some(before) => before.join(next),
            });
            if !self.choice.as_mut().is_some_and(Choice::next_combination) {
                break;
            }
        }
        self.choice = outer;
        flow.unwrap_or_default()
    }

    /// Judges one reading of a simple command.
    fn simple_once(&mut self, simple: &Simple, input: &CommandInput) -> Flow {
        self.facts = Default::default();
        let mut assignments: Vec<(String, Vec<Arg>)> = Vec::new();
        for (name, words) in &simple.assignments {
            let values = match words.as_slice() {
                [word] => vec![self.expand_whole(word)],
                words => words.iter().flat_map(|word| self.expand_word(word)).collect(),
            };
            assignments.push((name.clone(), values));
        }
        let args: Vec<Arg> = simple.words.iter().flat_map(|word| self.expand_word(word)).collect();
        for arg in args.iter().filter(|arg| arg.glob) {
            self.list_wildcard(arg);
        }
        let redirected = self.judge_redirects(&simple.redirects, input);
        let name = args.first().and_then(Arg::known_text).unwrap_or("");
        if redirected.network && is_shell(name.rsplit('/').next().unwrap_or(name)) {
            self.add_hard_block("remote-shell", "a shell is connected to the network", None);
        }
        let invocation =
            Invocation { args, assignments, input: redirected.input, builtins: true, is_plain: true };
        let mut flow = if simple.redirects.is_empty() {
            self.judge_command(invocation)
        } else {
            self.in_optional_code(|a| a.judge_command(invocation))
        };
        if redirected.output {
            flow.known = Some(String::new());
        }
        flow
    }

    /// Judges the files and connections that a command gets.
    fn judge_redirects(&mut self, redirects: &[Redirect], input: &CommandInput) -> Redirected {
        let mut to = Redirected { input: input.clone(), ..Redirected::default() };
        for Redirect { descriptor, target } in redirects {
            self.scope.opened.extend(descriptor);
            match target {
                Target::Document(body) => {
                    let body = body.get().map(|word| self.expand_whole(word)).unwrap_or_default();
                    to.input = CommandInput::Text((!body.unknown).then_some(body.text), body.taint);
                }
                Target::Duplicate(None) => {}
                Target::Duplicate(Some(other)) => {
                    if *other > 2 && !self.scope.opened.contains(other) {
                        self.require_approval(
                            "descriptor",
                            format!("descriptor {other} was not opened by this command"),
                        );
                    }
                }
                Target::Read(word) => {
                    let target = self.expand_target(word);
                    to.network |= self.read_redirect(&target);
                    if descriptor.unwrap_or(0) == 0 {
                        // Data that a process substitution reads from the network is code from the
                        // network.
                        to.input = if target.taint == Default::default() {
                            CommandInput::File
                        } else {
                            CommandInput::Pipe(Flow { taint: target.taint, ..Flow::default() })
                        };
                    }
                }
                Target::Write(word) => {
                    let target = self.expand_target(word);
                    to.network |= self.write_redirect(&target);
                    to.output |= descriptor.unwrap_or(1) == 1;
                }
                Target::ReadWrite(word) => {
                    let target = self.expand_target(word);
                    to.network |= self.write_redirect(&target);
                    if descriptor.unwrap_or(0) == 0 {
                        to.input = CommandInput::File;
                    }
                }
            }
        }
        to
    }

    fn expand_target(&mut self, word: &Word) -> Arg {
        let mut words = self.expand_word(word);
        if words.len() == 1 { words.swap_remove(0) } else { Arg::unknown() }
    }
}

/// Effects of the redirects of one command.
#[derive(Default)]
struct Redirected {
    input: CommandInput,
    /// Some redirect is a network connection.
    network: bool,
    /// Standard output is redirected.
    output: bool,
}

/// All assignments in the commands of a list; text that is not plain is unknown.
fn collect_assignments(list: &List, out: &mut Vec<(String, Arg)>) {
    for command in list.iter().flat_map(|item| item.pipelines.iter().flatten()) {
        match command {
            Command::Simple(simple) => {
                for (name, words) in &simple.assignments {
                    let values =
                        words.iter().map(|word| plain_text(word).map_or_else(Arg::unknown, Arg::literal));
                    out.extend(values.map(|value| (name.clone(), value)));
                }
                // The arguments of `read`, `export` and similar builtins may be names.
                let takes_names =
                    ["read", "export", "unset", "getopts", "readonly", "declare", "typeset", "local"];
                let mut words = simple.words.iter().filter_map(plain_text);
                if words.next().is_none_or(|name| takes_names.contains(&name.as_str()) || name == "command") {
                    for word in words {
                        let name = word.split('=').next().unwrap_or("");
                        out.push((name.to_owned(), Arg::unknown()));
                    }
                }
            }
            Command::Compound(compound, _) => match compound {
                Compound::Group(list) | Compound::Subshell(list) => collect_assignments(list, out),
                Compound::If(branches) => {
                    for (condition, body) in branches {
                        collect_assignments(condition, out);
                        collect_assignments(body, out);
                    }
                }
                Compound::Loop { condition, body, .. } => {
                    collect_assignments(condition, out);
                    collect_assignments(body, out);
                }
                Compound::For { name, words, body } => {
                    for word in words.iter().flatten() {
                        out.push((name.clone(), plain_text(word).map_or_else(Arg::unknown, Arg::literal)));
                    }
                    if words.is_none() {
                        out.push((name.clone(), Arg::unknown()));
                    }
                    collect_assignments(body, out);
                }
                Compound::Case(_, arms) => arms.iter().for_each(|(_, body)| collect_assignments(body, out)),
                Compound::Function(..) => {}
            },
        }
    }
}

/// Text of a word without expansions.
fn plain_text(word: &Word) -> Option<String> {
    let text = |part: &super::Part| match &part.piece {
        Piece::Text(text) if part.quoted || !text.contains(['*', '?', '[']) => Some(text.clone()),
        _ => None,
    };
    word.alternatives.is_empty().then_some(())?;
    word.parts.iter().map(text).collect()
}

/// True if a loop condition is a single command among `names`.
fn is_one_of(condition: &List, names: &[&str]) -> bool {
    let [Item { pipelines, .. }] = condition.as_slice() else { return false };
    let [pipeline] = pipelines.as_slice() else { return false };
    let [Command::Simple(simple)] = pipeline.as_slice() else { return false };
    simple.words.first().and_then(plain_text).is_some_and(|name| names.contains(&name.as_str()))
}

/// True if each turn of a loop waits for its jobs, or if the turn is the last.
fn ends_or_waits(body: &List) -> bool {
    body.iter().any(|item| {
        !item.background
            && item.pipelines.len() == 1
            && matches!(item.pipelines[0].as_slice(), [Command::Simple(simple)]
            if simple.words.first().and_then(plain_text).is_some_and(|name| {
                matches!(name.as_str(), "wait" | "break" | "exit" | "return")
            }))
    })
}

fn starts_background_jobs(list: &List) -> bool {
    list.iter().any(|item| {
        item.background
            || item.pipelines.iter().flatten().any(|command| match command {
                Command::Simple(_) => false,
                Command::Compound(compound, _) => match compound {
                    Compound::Group(list) | Compound::Subshell(list) => starts_background_jobs(list),
                    Compound::If(branches) => branches.iter().any(|(_, body)| starts_background_jobs(body)),
                    Compound::Loop { body, .. } | Compound::For { body, .. } => starts_background_jobs(body),
                    Compound::Case(_, arms) => arms.iter().any(|(_, body)| starts_background_jobs(body)),
                    Compound::Function(..) => false,
                },
            })
    })
}
