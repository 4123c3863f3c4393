//! Shell text: limits, parsing, and the walk over every command in it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};

use brush_parser::{Parser, ParserOptions, ast};

use super::analysis::{Analysis, Arg, Call, Choice, Flow, Input, MAX_VALUES, TextSpan};
use super::command::{Assignment, Invocation};
use super::expand::is_closed_arithmetic;
use super::wrappers::is_shell;

/// bash as it runs scripts: extended globbing is off unless switched on.
pub(crate) static PARSER_OPTIONS: LazyLock<ParserOptions> =
    LazyLock::new(|| ParserOptions { enable_extended_globbing: false, ..ParserOptions::default() });

/// Openers of nested structure that the parser's own stack is sure to hold.
const SHALLOW: usize = 64;
/// Openers beyond which text is not parsed at all.
const MAX_OPENERS: usize = 4_096;
/// Stack reserved per opener on the parsing thread: four times what the
/// deepest construct was measured to need without optimisation.
const STACK_PER_OPENER: usize = 64 * 1024;

/// Runs a parser call that must not bring the process down: the parser is
/// foreign code fed with hostile text. `None` when it panicked.
pub(crate) fn guarded<T>(parse: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(parse)).ok()
}

/// Why text was not parsed.
pub(crate) enum Unread {
    TooDeep,
    Syntax(String),
}

/// Parses `text`, on a thread with a stack to match when it nests deeply.
pub(crate) fn parse(text: &str, nesting: usize) -> Result<ast::Program, Unread> {
    let shape = Shape::of(text);
    if shape.depth > nesting || shape.openers > MAX_OPENERS {
        return Err(Unread::TooDeep);
    }
    let run = |text: &str| guarded(|| Parser::new(text.as_bytes(), &PARSER_OPTIONS).parse_program());
    let parsed = if shape.openers <= SHALLOW {
        run(text)
    } else {
        std::thread::scope(|scope| {
            std::thread::Builder::new()
                .stack_size(8 * 1024 * 1024 + shape.openers * STACK_PER_OPENER)
                .spawn_scoped(scope, || run(text))
                .ok()
                .and_then(|thread| thread.join().ok())
                .flatten()
        })
    };
    match parsed {
        Some(Ok(program)) => Ok(program),
        Some(Err(error)) => Err(Unread::Syntax(error.to_string())),
        None => Err(Unread::Syntax("the parser failed on this text".to_owned())),
    }
}

/// How deeply text nests, counted over its bytes without understanding it.
struct Shape {
    /// Every opener: an upper bound of the parser's recursion.
    openers: usize,
    /// Openers less closers.
    depth: usize,
}

impl Shape {
    fn of(text: &str) -> Self {
        let (mut openers, mut depth, mut deepest) = (0usize, 0usize, 0usize);
        let mut word_start = 0;
        let bytes = text.as_bytes();
        for at in 0..=bytes.len() {
            let byte = bytes.get(at).copied().unwrap_or(b' ');
            if byte.is_ascii_alphanumeric() || byte == b'_' {
                continue;
            }
            match &bytes[word_start..at] {
                b"if" | b"while" | b"until" | b"for" | b"select" | b"case" | b"coproc" | b"function" => {
                    openers += 1;
                    depth += 1;
                }
                b"fi" | b"done" | b"esac" => depth = depth.saturating_sub(1),
                _ => {}
            }
            word_start = at + 1;
            match byte {
                b'(' | b'{' | b'[' | b'`' => {
                    openers += 1;
                    if byte != b'`' {
                        depth += 1;
                    }
                }
                b')' | b'}' | b']' => depth = depth.saturating_sub(1),
                b'!' => openers += 1,
                _ => {}
            }
            deepest = deepest.max(depth);
        }
        Self { openers, depth: deepest }
    }
}

/// The first character of `text` that cannot be shown faithfully, with its
/// position: control characters, bidirectional and invisible ones.
pub(crate) fn unshowable(text: &str) -> Option<(usize, char)> {
    if text.bytes().all(|b| (b' '..0x7f).contains(&b) || b == b'\n' || b == b'\t') {
        return None;
    }
    text.chars().enumerate().find(|(_, c)| {
        matches!(c,
            '\0'..='\u{8}' | '\u{b}'..='\u{1f}' | '\u{7f}'..='\u{9f}'
            | '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
    })
}

fn span_of(word: &ast::Word) -> Option<TextSpan> {
    word.loc.as_ref().map(|loc| TextSpan { start: loc.start.index, end: loc.end.index })
}

impl Analysis<'_> {
    /// Reads `text` as shell code run in this shell.
    pub(crate) fn walk_text(&mut self, text: &str) -> Flow {
        let input = std::mem::take(&mut self.child_input);
        match parse(text, self.policy.limits().nesting) {
            Ok(program) => self.program(&program, &input, text),
            Err(Unread::TooDeep) => {
                self.deny("limit:nesting", "the text nests too deeply to be parsed");
                Flow::default()
            }
            Err(Unread::Syntax(message)) => {
                self.deny_hint(
                    "syntax",
                    format!("the text is not valid shell: {message}"),
                    "fix the quoting, or give the step an argument list instead of shell text",
                );
                Flow::default()
            }
        }
    }

    /// Reads `text` as the code of a new shell process: functions and plain
    /// variables of this one are not seen by it.
    pub(crate) fn walk_child(&mut self, text: &str, positional: Vec<Arg>) -> Flow {
        self.deeper(|a| {
            a.subshell(|a| {
                a.scope.functions.clear();
                a.scope.positional = positional;
                a.scope.positional_unknown = false;
                let span = a.span;
                let flow = a.walk_text(text);
                a.span = span;
                flow
            })
        })
    }

    pub(crate) fn program(&mut self, program: &ast::Program, input: &Input, text: &str) -> Flow {
        let mut flow: Option<Flow> = None;
        for list in &program.complete_commands {
            let next = self.list(list, input, text);
            flow = Some(match flow {
                None => next,
                Some(before) => before.join(next),
            });
        }
        flow.unwrap_or(Flow { known: Some(String::new()), ..Flow::default() })
    }

    fn list(&mut self, list: &ast::CompoundList, input: &Input, text: &str) -> Flow {
        let mut flow: Option<Flow> = None;
        for ast::CompoundListItem(and_or, separator) in &list.0 {
            let next = match separator {
                ast::SeparatorOperator::Async => {
                    self.spread += 1;
                    let flow = self.subshell(|a| a.and_or(and_or, input, text));
                    self.spread -= 1;
                    flow
                }
                ast::SeparatorOperator::Sequence => self.and_or(and_or, input, text),
            };
            flow = Some(match flow {
                None => next,
                Some(before) => before.join(next),
            });
        }
        flow.unwrap_or_default()
    }

    fn and_or(&mut self, list: &ast::AndOrList, input: &Input, text: &str) -> Flow {
        let mut flow = self.pipeline(&list.first, input, text);
        for next in &list.additional {
            let pipeline = match next {
                ast::AndOr::And(pipeline) | ast::AndOr::Or(pipeline) => pipeline,
            };
            let after = self.maybe(|a| a.pipeline(pipeline, input, text));
            flow = flow.join(after);
        }
        flow
    }

    fn pipeline(&mut self, pipeline: &ast::Pipeline, input: &Input, text: &str) -> Flow {
        if let [command] = pipeline.seq.as_slice() {
            return self.command(command, input, text);
        }
        let mut upstream = input.clone();
        let mut flow = Flow::default();
        self.spread += 1;
        for command in &pipeline.seq {
            let carried = match &upstream {
                Input::Pipe(before) => (before.taint, before.shell),
                _ => Default::default(),
            };
            flow = self.subshell(|a| a.command(command, &upstream, text));
            // Data keeps its origin through every filter.
            flow.taint = flow.taint.join(carried.0);
            flow.shell |= carried.1;
            upstream = Input::Pipe(flow.clone());
        }
        self.spread -= 1;
        if flow.shell && flow.taint.network {
            self.hard(
                "remote-shell",
                "the pipeline connects a shell to the network",
                Some("download to a file, read it, and run it as a step of its own"),
            );
        }
        flow
    }

    fn command(&mut self, command: &ast::Command, input: &Input, text: &str) -> Flow {
        match command {
            ast::Command::Simple(simple) => self.simple(simple, input, text),
            ast::Command::Compound(compound, redirects) => {
                self.compound(compound, redirects.as_ref(), input, text)
            }
            ast::Command::Function(function) => {
                self.define(function, input, text);
                Flow::default()
            }
            ast::Command::ExtendedTest(test, redirects) => {
                self.redirects(redirects.as_ref(), input, text);
                self.extended_test(&test.expr);
                Flow { known: Some(String::new()), ..Flow::default() }
            }
        }
    }

    fn define(&mut self, function: &ast::FunctionDefinition, input: &Input, text: &str) {
        let name = self.expand_whole(&function.fname.value);
        let Some(name) = name.known().map(str::to_owned) else {
            self.deny("dynamic-function", "the name of a function is not known");
            return;
        };
        let body = Arc::new(function.body.clone());
        self.scope.functions.insert(name.clone(), Arc::clone(&body));
        // The body is judged where it is written, whether or not it is called.
        self.calls.push(Call { name, spread: self.spread });
        self.subshell(|a| {
            a.scope.positional = Vec::new();
            a.scope.positional_unknown = true;
            a.compound(&body.0, body.1.as_ref(), input, text);
        });
        self.calls.pop();
    }

    /// Follows a call of a function of the text.
    pub(crate) fn call(&mut self, name: &str, args: &[Arg], input: &Input) -> Flow {
        if let Some(outer) = self.calls.iter().find(|call| call.name == name) {
            if self.spread > outer.spread {
                self.hard(
                    "fork-bomb",
                    format!("{name} starts itself again in the background or in a pipeline"),
                    None,
                );
            }
            return Flow::default();
        }
        let Some(body) = self.scope.functions.get(name).cloned() else {
            return Flow::default();
        };
        self.calls.push(Call { name: name.to_owned(), spread: self.spread });
        let saved =
            (std::mem::replace(&mut self.scope.positional, args.to_vec()), self.scope.positional_unknown);
        self.scope.positional_unknown = false;
        let flow = self.deeper(|a| a.compound(&body.0, body.1.as_ref(), input, ""));
        (self.scope.positional, self.scope.positional_unknown) = saved;
        self.calls.pop();
        flow
    }

    fn compound(
        &mut self,
        compound: &ast::CompoundCommand,
        redirects: Option<&ast::RedirectList>,
        input: &Input,
        text: &str,
    ) -> Flow {
        let input = &self.redirects(redirects, input, text).input;
        match compound {
            ast::CompoundCommand::BraceGroup(group) => self.list(&group.list, input, text),
            ast::CompoundCommand::Subshell(subshell) => {
                self.subshell(|a| a.list(&subshell.list, input, text))
            }
            ast::CompoundCommand::Arithmetic(command) => {
                self.check_arithmetic_source(&command.loc, text);
                self.arithmetic(&command.expr.value);
                Flow { known: Some(String::new()), ..Flow::default() }
            }
            ast::CompoundCommand::ArithmeticForClause(clause) => {
                for expr in [&clause.initializer, &clause.condition, &clause.updater] {
                    if let Some(expr) = expr {
                        self.arithmetic(&expr.value);
                    }
                }
                if clause.condition.as_ref().is_none_or(|c| c.value.trim().is_empty()) {
                    self.refuse_spawn_loop(&clause.body.list);
                }
                self.repeat(|a| a.list(&clause.body.list, input, text))
            }
            ast::CompoundCommand::ForClause(clause) => {
                let values = match &clause.values {
                    None => self.scope.positional.clone(),
                    Some(words) => words.iter().flat_map(|word| self.expand(&word.value)).collect(),
                };
                let values = if values.len() > MAX_VALUES { vec![Arg::unknown()] } else { values };
                if !values.is_empty() {
                    self.set_values(&clause.variable_name, values);
                }
                self.repeat(|a| a.list(&clause.body.list, input, text))
            }
            ast::CompoundCommand::WhileClause(ast::WhileOrUntilClauseCommand(condition, body, _)) => {
                if is_constant(condition, &["true", ":"]) {
                    self.refuse_spawn_loop(&body.list);
                }
                self.repeat(|a| {
                    let flow = a.list(condition, input, text);
                    flow.join(a.list(&body.list, input, text))
                })
            }
            ast::CompoundCommand::UntilClause(ast::WhileOrUntilClauseCommand(condition, body, _)) => {
                if is_constant(condition, &["false"]) {
                    self.refuse_spawn_loop(&body.list);
                }
                self.repeat(|a| {
                    let flow = a.list(condition, input, text);
                    flow.join(a.list(&body.list, input, text))
                })
            }
            ast::CompoundCommand::IfClause(clause) => {
                let mut flow = self.list(&clause.condition, input, text);
                flow = flow.join(self.maybe(|a| a.list(&clause.then, input, text)));
                for branch in clause.elses.iter().flatten() {
                    flow = self.maybe(|a| {
                        let mut flow = flow;
                        if let Some(condition) = &branch.condition {
                            flow = flow.join(a.list(condition, input, text));
                        }
                        flow.join(a.list(&branch.body, input, text))
                    });
                }
                flow
            }
            ast::CompoundCommand::CaseClause(clause) => {
                self.expand_whole(&clause.value.value);
                let mut flow = Flow::default();
                for case in &clause.cases {
                    for pattern in &case.patterns {
                        self.expand_whole(&pattern.value);
                    }
                    if let Some(body) = &case.cmd {
                        flow = flow.join(self.maybe(|a| a.list(body, input, text)));
                    }
                }
                flow
            }
            ast::CompoundCommand::Coprocess(coprocess) => {
                self.ask("coproc", "a coprocess keeps running beside the step");
                if let Some(name) = &coprocess.name {
                    let name = self.expand_whole(&name.value);
                    self.assign(&name.text, Arg::unknown());
                }
                self.spread += 1;
                let flow = self.subshell(|a| a.command(&coprocess.body, input, text));
                self.spread -= 1;
                flow
            }
        }
    }

    /// Walks a loop body until what it assigns to itself is seen as well.
    fn repeat(&mut self, mut body: impl FnMut(&mut Self) -> Flow) -> Flow {
        let before = (self.scope.vars.clone(), self.scope.cwd.clone());
        let flow = self.maybe(&mut body);
        if (&before.0, &before.1) == (&self.scope.vars, &self.scope.cwd) {
            return flow;
        }
        let commands = self.commands.len();
        let again = self.maybe(&mut body);
        self.commands.truncate(commands);
        flow.join(again)
    }

    fn refuse_spawn_loop(&mut self, body: &ast::CompoundList) {
        if starts_background_jobs(body) {
            self.hard(
                "fork-bomb",
                "an endless loop starts background processes",
                Some("bound the loop, or wait for each process"),
            );
        }
    }

    /// Two readings of `((` are not one: bash falls back to nested subshells
    /// when the closing parentheses do not stand together.
    fn check_arithmetic_source(&mut self, loc: &brush_parser::SourceSpan, text: &str) {
        let source: String =
            text.chars().skip(loc.start.index).take(loc.end.index.saturating_sub(loc.start.index)).collect();
        let source = source.trim();
        if source.starts_with("((") && !is_closed_arithmetic(source) {
            self.ambiguous(source);
        }
        if source.is_empty() && text.contains("((") {
            self.ambiguous(text);
        }
    }

    fn extended_test(&mut self, expr: &ast::ExtendedTestExpr) {
        match expr {
            ast::ExtendedTestExpr::And(a, b) | ast::ExtendedTestExpr::Or(a, b) => {
                self.extended_test(a);
                self.extended_test(b);
            }
            ast::ExtendedTestExpr::Not(inner) | ast::ExtendedTestExpr::Parenthesized(inner) => {
                self.extended_test(inner);
            }
            ast::ExtendedTestExpr::UnaryTest(predicate, word) => {
                let value = self.expand_whole(&word.value);
                if matches!(
                    predicate,
                    ast::UnaryPredicate::ShellVariableIsSetAndAssigned
                        | ast::UnaryPredicate::ShellVariableIsSetAndNameRef
                ) {
                    self.refuse_subscript(&value);
                }
            }
            ast::ExtendedTestExpr::BinaryTest(predicate, left, right) => {
                let left = self.expand_whole(&left.value);
                let right = self.expand_whole(&right.value);
                if matches!(
                    predicate,
                    ast::BinaryPredicate::ArithmeticEqualTo
                        | ast::BinaryPredicate::ArithmeticNotEqualTo
                        | ast::BinaryPredicate::ArithmeticLessThan
                        | ast::BinaryPredicate::ArithmeticLessThanOrEqualTo
                        | ast::BinaryPredicate::ArithmeticGreaterThan
                        | ast::BinaryPredicate::ArithmeticGreaterThanOrEqualTo
                ) {
                    for value in [left, right] {
                        self.arithmetic_data(&value);
                        let text = value.text.clone();
                        self.arithmetic(&text);
                    }
                }
            }
        }
    }

    /// Refuses a variable name whose subscript bash would evaluate.
    pub(crate) fn refuse_subscript(&mut self, name: &Arg) {
        if name.text.contains('[') && name.text.contains(['$', '`']) {
            self.expand_whole(&name.text.clone());
            self.deny("arithmetic-code", "the subscript of a variable name is evaluated as code");
        } else if name.unknown && !name.numeric && !name.unset {
            self.ask("arithmetic-data", "the subscript of a name that is not known is evaluated");
        }
    }

    fn simple(&mut self, simple: &ast::SimpleCommand, input: &Input, text: &str) -> Flow {
        if !self.spend() {
            return Flow::default();
        }
        if self.depth == 0
            && let Some(word) = &simple.word_or_name
        {
            self.span = span_of(word);
        }
        let outer = self.choice.replace(Choice::default());
        let mut flow: Option<Flow> = None;
        let mut readings = 0;
        loop {
            let next = self.simple_once(simple, input, text);
            flow = Some(match flow {
                None => next,
                Some(before) => before.join(next),
            });
            readings += 1;
            if readings > MAX_VALUES {
                self.deny("limit:values", "a command has too many possible readings");
                break;
            }
            if !self.choice.as_mut().is_some_and(Choice::advance) {
                break;
            }
        }
        self.choice = outer;
        flow.unwrap_or_default()
    }

    /// Judges one reading of a simple command.
    fn simple_once(&mut self, simple: &ast::SimpleCommand, input: &Input, text: &str) -> Flow {
        self.facts = Default::default();
        let mut assignments = Vec::new();
        let mut args: Vec<Arg> = Vec::new();
        let mut redirects: Vec<&ast::IoRedirect> = Vec::new();
        let prefix = simple.prefix.iter().flat_map(|prefix| &prefix.0);
        for item in prefix {
            match item {
                ast::CommandPrefixOrSuffixItem::AssignmentWord(assignment, _) => {
                    assignments.push(self.assignment(assignment));
                }
                ast::CommandPrefixOrSuffixItem::IoRedirect(redirect) => redirects.push(redirect),
                ast::CommandPrefixOrSuffixItem::Word(word) => {
                    args.extend(self.expand(&word.value));
                }
                ast::CommandPrefixOrSuffixItem::ProcessSubstitution(_, inner) => {
                    let arg = self.process_substitution(inner, input, text);
                    args.push(arg);
                }
            }
        }
        if let Some(word) = &simple.word_or_name {
            args.extend(self.expand(&word.value));
        }
        let suffix = simple.suffix.iter().flat_map(|suffix| &suffix.0);
        for item in suffix {
            match item {
                ast::CommandPrefixOrSuffixItem::AssignmentWord(assignment, word) => match &assignment.value {
                    ast::AssignmentValue::Scalar(_) => args.extend(self.expand(&word.value)),
                    ast::AssignmentValue::Array(_) => {
                        let assigned = self.assignment(assignment);
                        args.push(Arg::literal(format!("{}=", assigned.name)));
                        self.store(assigned, false);
                    }
                },
                ast::CommandPrefixOrSuffixItem::IoRedirect(redirect) => redirects.push(redirect),
                ast::CommandPrefixOrSuffixItem::Word(word) => {
                    args.extend(self.expand(&word.value));
                }
                ast::CommandPrefixOrSuffixItem::ProcessSubstitution(_, inner) => {
                    let arg = self.process_substitution(inner, input, text);
                    args.push(arg);
                }
            }
        }
        let mut redirected = Redirected { input: input.clone(), ..Redirected::default() };
        for redirect in redirects {
            self.redirect(redirect, &mut redirected, text);
        }
        let name = args.first().and_then(Arg::known).unwrap_or("");
        if redirected.network && is_shell(name.rsplit('/').next().unwrap_or(name)) {
            self.hard("remote-shell", "a shell is connected to the network", None);
        }
        let mut flow = self.invoke(Invocation {
            args,
            assignments,
            input: redirected.input,
            functions: true,
            is_plain: true,
        });
        if redirected.output {
            flow.known = Some(String::new());
        }
        flow
    }

    fn process_substitution(&mut self, inner: &ast::SubshellCommand, input: &Input, text: &str) -> Arg {
        if self.choice.as_ref().is_some_and(|c| c.repeated) {
            return Arg::literal("/dev/fd/63");
        }
        let choice = self.choice.take();
        let saved = (self.span, std::mem::take(&mut self.facts));
        self.spread += 1;
        let flow = self.deeper(|a| a.subshell(|a| a.list(&inner.list, input, text)));
        self.spread -= 1;
        (self.span, self.facts) = saved;
        self.choice = choice;
        Arg { text: "/dev/fd/63".to_owned(), unknown: true, taint: flow.taint, ..Arg::default() }
    }

    fn assignment(&mut self, assignment: &ast::Assignment) -> Assignment {
        let (name, index) = match &assignment.name {
            ast::AssignmentName::VariableName(name) => (name.clone(), None),
            ast::AssignmentName::ArrayElementName(name, index) => {
                self.arithmetic(index);
                (name.clone(), Some(index.clone()))
            }
        };
        let value = match &assignment.value {
            ast::AssignmentValue::Scalar(word) => vec![self.expand_whole(&word.value)],
            ast::AssignmentValue::Array(words) => {
                let mut values = Vec::new();
                for (key, word) in words {
                    if let Some(key) = key {
                        self.arithmetic(&key.value);
                    }
                    values.extend(self.expand(&word.value));
                }
                values
            }
        };
        Assignment {
            name,
            index,
            array: matches!(assignment.value, ast::AssignmentValue::Array(_)),
            append: assignment.append,
            value,
        }
    }

    /// Carries out an assignment that outlives its command.
    pub(crate) fn store(&mut self, assignment: Assignment, exported: bool) {
        let Assignment { name, index, array, append, value } = assignment;
        let first = value.first().cloned().unwrap_or_default();
        if exported {
            self.check_exported(&name, &first);
        } else {
            self.check_assignment(&name, &first);
        }
        match index {
            None if array => {
                let list = self.scope.arrays.entry(name.clone()).or_default();
                if !append {
                    list.clear();
                }
                list.extend(value);
                self.scope.vars.remove(&name);
            }
            None => {
                let value = if append {
                    let mut old = self.variable(&name);
                    old.text.push_str(&first.text);
                    old.unset &= !first.unknown;
                    if old.unset {
                        first
                    } else {
                        Arg {
                            unknown: old.unknown || first.unknown,
                            taint: old.taint.join(first.taint),
                            ..old
                        }
                    }
                } else {
                    first
                };
                self.set_variable(&name, value);
            }
            Some(index) => {
                let list = self.scope.arrays.entry(name.clone()).or_default();
                match index.trim().parse::<usize>() {
                    Ok(at) if at < MAX_VALUES => {
                        if list.len() <= at {
                            list.resize(at + 1, Arg::unset());
                        }
                        list[at] = first;
                    }
                    Ok(_) | Err(_) => *list = vec![Arg::unknown()],
                }
            }
        }
    }

    fn redirects(&mut self, redirects: Option<&ast::RedirectList>, input: &Input, text: &str) -> Redirected {
        let mut redirected = Redirected { input: input.clone(), ..Redirected::default() };
        for redirect in redirects.iter().flat_map(|list| &list.0) {
            self.redirect(redirect, &mut redirected, text);
        }
        redirected
    }

    fn redirect(&mut self, redirect: &ast::IoRedirect, to: &mut Redirected, text: &str) {
        match redirect {
            ast::IoRedirect::File(fd, kind, target) => {
                if let Some(fd) = fd {
                    self.scope.opened.push(*fd);
                }
                self.redirect_file(*fd, kind, target, to, text);
            }
            ast::IoRedirect::HereDocument(_, document) => {
                let body = if document.requires_expansion {
                    self.expand_here_document(&document.doc.value)
                } else {
                    Arg::literal(document.doc.value.clone())
                };
                to.input = Input::Text((!body.unknown).then_some(body.text), body.taint);
            }
            ast::IoRedirect::HereString(_, word) => {
                let body = self.expand_whole(&word.value);
                to.input = Input::Text((!body.unknown).then(|| format!("{}\n", body.text)), body.taint);
            }
            ast::IoRedirect::OutputAndError(word, _) => {
                let target = self.expand_target(&word.value);
                to.network |= self.write_redirect(&target);
                to.output = true;
            }
        }
    }

    fn expand_target(&mut self, raw: &str) -> Arg {
        let mut words = self.expand(raw);
        if words.len() == 1 { words.swap_remove(0) } else { Arg::unknown() }
    }

    fn redirect_file(
        &mut self,
        fd: Option<i32>,
        kind: &ast::IoFileRedirectKind,
        target: &ast::IoFileRedirectTarget,
        to: &mut Redirected,
        text: &str,
    ) {
        use ast::IoFileRedirectKind as Kind;
        let target = match target {
            ast::IoFileRedirectTarget::Filename(word) => self.expand_target(&word.value),
            ast::IoFileRedirectTarget::Fd(n) => {
                self.duplicate(*n);
                return;
            }
            ast::IoFileRedirectTarget::Duplicate(word) => {
                let target = self.expand_target(&word.value);
                let digits = target.text.trim_end_matches('-');
                if target.text == "-" {
                    return;
                }
                if let Ok(n) = digits.parse::<i32>() {
                    self.duplicate(n);
                    return;
                }
                target
            }
            ast::IoFileRedirectTarget::ProcessSubstitution(_, inner) => {
                let arg = self.process_substitution(inner, &Input::Empty, text);
                if matches!(kind, Kind::Read | Kind::ReadAndWrite) {
                    to.input = Input::Pipe(Flow { taint: arg.taint, ..Flow::default() });
                }
                return;
            }
        };
        match kind {
            Kind::Read => {
                to.network |= self.read_redirect(&target);
                if fd.unwrap_or(0) == 0 {
                    to.input = Input::File;
                }
            }
            Kind::Write | Kind::Append | Kind::Clobber | Kind::DuplicateOutput => {
                to.network |= self.write_redirect(&target);
                to.output |= fd.unwrap_or(1) == 1;
            }
            Kind::ReadAndWrite => {
                to.network |= self.write_redirect(&target);
                if fd.unwrap_or(0) == 0 {
                    to.input = Input::File;
                }
            }
            Kind::DuplicateInput => {
                to.network |= self.read_redirect(&target);
                to.input = Input::File;
            }
        }
    }

    fn duplicate(&mut self, fd: i32) {
        if fd > 2 && !self.scope.opened.contains(&fd) {
            self.ask("descriptor", format!("descriptor {fd} was not opened by this command"));
        }
    }
}

/// What the redirects of one command did.
#[derive(Default)]
struct Redirected {
    input: Input,
    /// Some redirect is a network connection.
    network: bool,
    /// Standard output goes elsewhere.
    output: bool,
}

/// Whether a loop condition is one command among `names`.
fn is_constant(condition: &ast::CompoundList, names: &[&str]) -> bool {
    let [ast::CompoundListItem(and_or, _)] = condition.0.as_slice() else {
        return false;
    };
    if !and_or.additional.is_empty() {
        return false;
    }
    match and_or.first.seq.as_slice() {
        [ast::Command::Simple(simple)] => {
            simple.word_or_name.as_ref().is_some_and(|word| names.contains(&word.value.as_str()))
        }
        [ast::Command::Compound(ast::CompoundCommand::Arithmetic(arithmetic), _)] => {
            arithmetic.expr.value.trim().parse::<i64>().is_ok_and(|n| n != 0)
        }
        [ast::Command::ExtendedTest(..)] | [] | [_] | [_, _, ..] => false,
    }
}

fn starts_background_jobs(list: &ast::CompoundList) -> bool {
    list.0.iter().any(|ast::CompoundListItem(and_or, separator)| {
        matches!(separator, ast::SeparatorOperator::Async)
            || and_or.iter().any(|(_, pipeline)| {
                pipeline.seq.iter().any(|command| match command {
                    ast::Command::Compound(compound, _) => compound_spawns(compound),
                    ast::Command::Simple(_) | ast::Command::Function(_) | ast::Command::ExtendedTest(..) => {
                        false
                    }
                })
            })
    })
}

fn compound_spawns(compound: &ast::CompoundCommand) -> bool {
    use ast::CompoundCommand as C;
    match compound {
        C::BraceGroup(group) => starts_background_jobs(&group.list),
        C::Subshell(subshell) => starts_background_jobs(&subshell.list),
        C::ForClause(clause) => starts_background_jobs(&clause.body.list),
        C::ArithmeticForClause(clause) => starts_background_jobs(&clause.body.list),
        C::WhileClause(clause) | C::UntilClause(clause) => starts_background_jobs(&clause.1.list),
        C::IfClause(clause) => {
            starts_background_jobs(&clause.then)
                || clause.elses.iter().flatten().any(|e| starts_background_jobs(&e.body))
        }
        C::CaseClause(clause) => {
            clause.cases.iter().filter_map(|case| case.cmd.as_ref()).any(starts_background_jobs)
        }
        C::Coprocess(_) => true,
        C::Arithmetic(_) => false,
    }
}
