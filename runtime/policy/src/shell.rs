//! The walk over shell text: every command in it, wherever it hides.

use std::collections::HashMap;
use std::sync::Arc;

use brush_parser::ast;

use super::analysis::{Analysis, Arg, Call, Choice, Flow, Function, Input, Local, MAX_VALUES, TextSpan};
use super::arithmetic::{closed_arithmetic, unclosed_arithmetic};
use super::command::{Assignment, Invocation};
use super::expand::{appended, is_name};
use super::parse::{Unread, parse};
use super::redirects::Redirected;
use super::wrappers::is_shell;

fn span_of(word: &ast::Word) -> Option<TextSpan> {
    word.loc.as_ref().map(|loc| TextSpan { start: loc.start.index, end: loc.end.index })
}

/// Builtins that dash and ash run even where a function has their name.
const SPECIAL_BUILTINS: &[&str] = &[
    ".", ":", "break", "continue", "eval", "exec", "exit", "export", "local", "readonly", "return", "set",
    "shift", "times", "trap", "unset",
];

impl Analysis<'_> {
    /// Reads `text` as shell code run in this shell.
    pub(crate) fn walk_text(&mut self, text: &str) -> Flow {
        let input = std::mem::take(&mut self.child_input);
        match parse(text, self.policy.limits().nesting) {
            Ok(program) => {
                let before = self.arithmetic_read.len();
                let codes = self.codes_read.len();
                let flow = self.program(&program, &input, text);
                let all = std::mem::take(&mut self.codes_read);
                self.check_dialect(text, Some(&program), &all[codes..]);
                self.codes_read = all;
                let read = self.arithmetic_read.split_off(before);
                // The tokenizer may have put together what the text keeps
                // apart; then bash reads something else.
                if let Some(source) = read.iter().find(|source| !text.contains(source.as_str())) {
                    self.ambiguous(source);
                } else if !read.is_empty()
                    && let Some(source) = unclosed_arithmetic(text)
                {
                    self.ambiguous(source);
                }
                flow
            }
            Err(Unread::TooDeep) => {
                self.deny("limit:nesting", "the text nests too deeply to be parsed");
                Flow::default()
            }
            Err(Unread::Syntax(message)) => {
                self.check_dialect(text, None, &[]);
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
                a.scope.certain.clear();
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

    pub(crate) fn program(&mut self, program: &ast::Program, input: &Input, text: &str) -> Flow {
        let mut flow: Option<Flow> = None;
        let several = program.complete_commands.len() > 1;
        for list in &program.complete_commands {
            let next = if several {
                self.line(list, |a| a.list(list, input, text))
            } else {
                self.list(list, input, text)
            };
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
        if SPECIAL_BUILTINS.contains(&name.as_str()) {
            self.deny(
                "function-name",
                format!("{name} is a builtin that no function can replace in every shell"),
            );
        }
        let body = Arc::new(function.body.clone());
        let defined = Function { body: Arc::clone(&body), text: Arc::from(text) };
        self.scope.functions.insert(name.clone(), defined);
        self.scope.certain.insert(format!("{name}()"));
        self.assigned.functions.insert(name.clone());
        // The body is judged where it is written, whether or not it is called.
        self.calls.push(Call { name, spread: self.spread, locals: Vec::new() });
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
        let Some(Function { body, text }) = self.scope.functions.get(name).cloned() else {
            return Flow::default();
        };
        self.calls.push(Call { name: name.to_owned(), spread: self.spread, locals: Vec::new() });
        let saved =
            (std::mem::replace(&mut self.scope.positional, args.to_vec()), self.scope.positional_unknown);
        self.scope.positional_unknown = false;
        let certain = self.scope.certain.clone();
        let flow = self.deeper(|a| a.compound(&body.0, body.1.as_ref(), input, &text));
        self.scope.certain = certain;
        (self.scope.positional, self.scope.positional_unknown) = saved;
        for local in self.calls.pop().into_iter().flat_map(|call| call.locals).rev() {
            restore(&mut self.scope.vars, &local.name, local.values);
            restore(&mut self.scope.arrays, &local.name, local.array);
        }
        flow
    }

    /// Hides a variable of the caller until the function at hand returns.
    pub(crate) fn make_local(&mut self, name: &str) {
        let values = self.scope.vars.get(name).cloned();
        let array = self.scope.arrays.get(name).cloned();
        if let Some(call) = self.calls.last_mut() {
            call.locals.push(Local { name: name.to_owned(), values, array });
        }
    }

    fn compound(
        &mut self,
        compound: &ast::CompoundCommand,
        redirects: Option<&ast::RedirectList>,
        input: &Input,
        text: &str,
    ) -> Flow {
        let redirected = self.redirects(redirects, input, text);
        if redirects.is_some() {
            // Where a file cannot be opened, nothing in it runs.
            return self.uncertain(|a| a.compound_body(compound, &redirected.input, text));
        }
        self.compound_body(compound, &redirected.input, text)
    }

    fn compound_body(&mut self, compound: &ast::CompoundCommand, input: &Input, text: &str) -> Flow {
        match compound {
            ast::CompoundCommand::BraceGroup(group) => self.list(&group.list, input, text),
            ast::CompoundCommand::Subshell(subshell) => {
                self.subshell(|a| a.list(&subshell.list, input, text))
            }
            ast::CompoundCommand::Arithmetic(command) => self.arithmetic_command(command, input, text),
            ast::CompoundCommand::ArithmeticForClause(clause) => {
                for expr in [&clause.initializer, &clause.condition, &clause.updater].into_iter().flatten() {
                    self.arithmetic(&expr.value);
                }
                if clause.condition.as_ref().is_none_or(|c| c.value.trim().is_empty()) {
                    self.refuse_spawn_loop(&clause.body.list);
                }
                self.repeat(|a| a.list(&clause.body.list, input, text))
            }
            ast::CompoundCommand::ForClause(clause) => {
                let values: Vec<Arg> = match &clause.values {
                    None if self.scope.positional_unknown => vec![Arg::unknown()],
                    None => self.scope.positional.clone(),
                    Some(words) => words
                        .iter()
                        .flat_map(|word| self.expand(&word.value))
                        .map(Arg::after_matching)
                        .collect(),
                };
                let values = if values.len() > MAX_VALUES { vec![Arg::unknown()] } else { values };
                let name = &clause.variable_name;
                if !values.is_empty() {
                    self.set_values(name, values);
                }
                self.repeat(|a| {
                    a.scope.certain.insert(name.clone());
                    a.list(&clause.body.list, input, text)
                })
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

    /// `((...))`, if bash reads it so. The parser also takes `( (...) )` for
    /// arithmetic; bash runs that as a subshell in a subshell.
    fn arithmetic_command(&mut self, command: &ast::ArithmeticCommand, input: &Input, text: &str) -> Flow {
        let (start, end) = (command.loc.start.index, command.loc.end.index);
        let source: String = text.chars().skip(start).take(end.saturating_sub(start)).collect();
        if source.starts_with("((") && closed_arithmetic(&source) == Some(source.len()) {
            self.arithmetic_read.push(source);
            self.arithmetic(&command.expr.value);
            return Flow { known: Some(String::new()), ..Flow::default() };
        }
        let inner = source.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
        match inner {
            Some(inner) if !inner.starts_with('(') => {
                let inner = inner.to_owned();
                self.child_input = input.clone();
                self.deeper(|a| a.subshell(|a| a.walk_text(&inner)))
            }
            Some(_) | None => {
                self.ambiguous(if source.is_empty() { text } else { &source });
                Flow::default()
            }
        }
    }

    /// Walks a loop body until what it assigns to itself is seen as well.
    fn repeat(&mut self, mut body: impl FnMut(&mut Self) -> Flow) -> Flow {
        let before = self.scope.clone();
        let flow = self.maybe(&mut body);
        let after = &self.scope;
        if (&before.vars, &before.arrays, &before.cwd, &before.visited, &before.positional)
            == (&after.vars, &after.arrays, &after.cwd, &after.visited, &after.positional)
        {
            return flow;
        }
        let commands = self.commands.len();
        let again = self.maybe(&mut body);
        self.commands.truncate(commands);
        flow.join(again)
    }

    fn refuse_spawn_loop(&mut self, body: &ast::CompoundList) {
        if starts_background_jobs(body) && !ends_or_waits(body) {
            self.hard(
                "fork-bomb",
                "an endless loop starts background processes",
                Some("bound the loop, or wait for each process"),
            );
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
                    args.extend(self.argument(&word.value));
                }
                ast::CommandPrefixOrSuffixItem::ProcessSubstitution(_, inner) => {
                    let arg = self.process_substitution(inner, input, text);
                    args.push(arg);
                }
            }
        }
        if let Some(word) = &simple.word_or_name {
            args.extend(self.argument(&word.value));
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
                    args.extend(self.argument(&word.value));
                }
                ast::CommandPrefixOrSuffixItem::ProcessSubstitution(_, inner) => {
                    let arg = self.process_substitution(inner, input, text);
                    args.push(arg);
                }
            }
        }
        for arg in args.iter().filter(|arg| arg.glob) {
            self.list_wildcard(arg);
        }
        let mut redirected = Redirected { input: input.clone(), ..Redirected::default() };
        let redirects_any = !redirects.is_empty();
        for redirect in redirects {
            self.redirect(redirect, &mut redirected, text);
        }
        let name = args.first().and_then(Arg::known).unwrap_or("");
        if redirected.network && is_shell(name.rsplit('/').next().unwrap_or(name)) {
            self.hard("remote-shell", "a shell is connected to the network", None);
        }
        let invocation =
            Invocation { args, assignments, input: redirected.input, functions: true, is_plain: true };
        let mut flow =
            if redirects_any { self.uncertain(|a| a.invoke(invocation)) } else { self.invoke(invocation) };
        if redirected.output {
            flow.known = Some(String::new());
        }
        flow
    }

    /// A word of a command. `{name}` before a redirect is a variable that bash
    /// gives the number of the descriptor; in front of others it is text.
    fn argument(&mut self, raw: &str) -> Vec<Arg> {
        if let Some(target) = raw.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
            let name = target.split('[').next().unwrap_or(target);
            if is_name(name) {
                self.check_assignment(name, &Arg::number());
                self.refuse_subscript(&Arg::literal(target));
            }
        }
        self.expand(raw)
    }

    pub(crate) fn process_substitution(
        &mut self,
        inner: &ast::SubshellCommand,
        input: &Input,
        text: &str,
    ) -> Arg {
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
                // Keys put them into another order.
                if words.iter().any(|(key, _)| key.is_some()) {
                    values.insert(0, Arg::unknown());
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

    /// What a variable that is no array yet is as one.
    fn first_element(&mut self, name: &str) -> Vec<Arg> {
        let value = self.variable(name);
        if value.is_surely_unset() || (value.unset && !self.at_any_time) { Vec::new() } else { vec![value] }
    }

    /// Carries out an assignment that outlives its command.
    pub(crate) fn store(&mut self, assignment: Assignment, exported: bool) {
        let Assignment { name, index, array, append, value } = assignment;
        if self.is_integer(&name) {
            value.iter().for_each(|element| self.arithmetic_data(element));
        }
        let first = value.first().cloned().unwrap_or_default();
        if exported {
            self.check_exported(&name, &first);
        } else {
            self.check_assignment(&name, &first);
        }
        match index {
            None if array => {
                let mut list = match self.scope.arrays.get(&name) {
                    Some(list) if append => list.clone(),
                    None if append => self.first_element(&name),
                    Some(_) | None => Vec::new(),
                };
                list.extend(value);
                self.set_array(&name, list);
            }
            None => {
                let value = if append {
                    let old = self.variable(&name);
                    if old.is_surely_unset() { first } else { appended(&old, &first) }
                } else {
                    first
                };
                self.set_variable(&name, value);
            }
            Some(index) => {
                let mut list = match self.scope.arrays.get(&name) {
                    Some(list) => list.clone(),
                    None => self.first_element(&name),
                };
                match index.trim().parse::<usize>() {
                    Ok(at) if at < MAX_VALUES && !append => {
                        if list.len() <= at {
                            list.resize(at + 1, Arg::unset());
                        }
                        list[at] = first;
                    }
                    Ok(_) | Err(_) => list = vec![Arg::unknown()],
                }
                self.set_array(&name, list);
            }
        }
    }
}

fn restore(map: &mut HashMap<String, Vec<Arg>>, name: &str, before: Option<Vec<Arg>>) {
    match before {
        Some(values) => map.insert(name.to_owned(), values),
        None => map.remove(name),
    };
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

/// Whether each turn of a loop waits for its jobs or is the last one.
fn ends_or_waits(body: &ast::CompoundList) -> bool {
    body.0.iter().any(|ast::CompoundListItem(and_or, separator)| {
        matches!(separator, ast::SeparatorOperator::Sequence)
            && and_or.additional.is_empty()
            && matches!(and_or.first.seq.as_slice(), [ast::Command::Simple(simple)]
            if simple.word_or_name.as_ref().is_some_and(|word| {
                matches!(word.value.as_str(), "wait" | "break" | "exit" | "return")
            }))
    })
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
