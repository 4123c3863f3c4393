//! The words and operators of a text in order, from either reader.

use brush_parser::ast;

use super::super::parse::parse;
use super::{Flavour, Reader};

/// Words, operators and reserved words of a text, and its here-documents, each
/// as the text has it. Two readings of a text agree when theirs are equal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Skeleton {
    /// Each part after a NUL, which no text holds; words also after a `=`.
    parts: String,
    documents: String,
    /// Where the last command begins.
    command: usize,
}

impl Skeleton {
    pub(super) fn mark(&mut self, mark: &str) {
        if mark == "command" {
            self.command = self.parts.len();
        }
        self.parts.push('\0');
        self.parts.push_str(mark);
    }

    pub(super) fn word(&mut self, raw: &str) {
        self.parts.push_str("\0=");
        self.parts.push_str(raw);
    }

    pub(super) fn redirect(&mut self, descriptor: &str, operator: &str) {
        self.parts.push_str("\0>");
        self.parts.push_str(descriptor);
        self.parts.push_str(operator);
    }

    pub(super) fn document(&mut self, body: &str, expand: bool) {
        self.documents.push_str(if expand { "\0$" } else { "\0'" });
        for line in body.lines() {
            self.documents.push_str(line.trim_start_matches('\t'));
            self.documents.push('\n');
        }
    }

    /// The last command turned out to be a function's name.
    pub(super) fn turn_into_function(&mut self) {
        let name = self.parts[self.command..].trim_start_matches("\0command").to_owned();
        self.parts.truncate(self.command);
        self.parts.push_str("\0function");
        self.parts.push_str(&name);
    }

    /// What the parser read in `text`, if all of it is of the common language.
    pub(super) fn of(program: &ast::Program, text: &str, nesting: usize) -> Option<Self> {
        let mut parsed = Parsed { skeleton: Self::default(), text, nesting };
        parsed.program(program)?;
        Some(parsed.skeleton)
    }
}

/// A walk over a syntax tree.
struct Parsed<'t> {
    skeleton: Skeleton,
    text: &'t str,
    nesting: usize,
}

impl Parsed<'_> {
    fn mark(&mut self, mark: &str) {
        self.skeleton.mark(mark);
    }

    /// The parser leaves comments and repeated blanks out of nested code; both
    /// readings are compared as rewritten there.
    fn word(&mut self, raw: &str) {
        if raw.contains("$(") {
            let mut reader = Reader::new(raw, Flavour::Dash, 1);
            if reader.word().is_ok() && reader.at == raw.len() {
                self.skeleton.word(&reader.out);
                return;
            }
        }
        self.skeleton.word(raw);
    }

    fn program(&mut self, program: &ast::Program) -> Option<()> {
        program.complete_commands.iter().try_for_each(|list| self.list(list))
    }

    fn list(&mut self, list: &ast::CompoundList) -> Option<()> {
        for ast::CompoundListItem(and_or, separator) in &list.0 {
            self.pipeline(&and_or.first)?;
            for next in &and_or.additional {
                match next {
                    ast::AndOr::And(pipeline) => {
                        self.mark("&&");
                        self.pipeline(pipeline)?;
                    }
                    ast::AndOr::Or(pipeline) => {
                        self.mark("||");
                        self.pipeline(pipeline)?;
                    }
                }
            }
            if matches!(separator, ast::SeparatorOperator::Async) {
                self.mark("&");
            }
        }
        Some(())
    }

    fn pipeline(&mut self, pipeline: &ast::Pipeline) -> Option<()> {
        if pipeline.bang {
            self.mark("!");
        }
        for (at, command) in pipeline.seq.iter().enumerate() {
            if at > 0 {
                self.mark("|");
            }
            let timed = pipeline.timed.as_ref().filter(|_| at == 0);
            self.command(command, timed)?;
        }
        Some(())
    }

    fn command(&mut self, command: &ast::Command, timed: Option<&ast::PipelineTimed>) -> Option<()> {
        match (command, timed) {
            (ast::Command::Simple(simple), timed) => {
                self.mark("command");
                if let Some(timed) = timed {
                    self.word("time");
                    if matches!(timed, ast::PipelineTimed::TimedWithPosixOutput(_)) {
                        self.word("-p");
                    }
                }
                self.simple(simple)
            }
            (_, Some(_)) | (ast::Command::ExtendedTest(..), _) => None,
            (ast::Command::Compound(compound, redirects), None) => {
                self.compound(compound)?;
                self.redirects(redirects.as_ref())
            }
            (ast::Command::Function(function), None) => {
                self.mark("function");
                self.word(&function.fname.value);
                self.compound(&function.body.0)?;
                self.redirects(function.body.1.as_ref())
            }
        }
    }

    fn simple(&mut self, simple: &ast::SimpleCommand) -> Option<()> {
        for item in simple.prefix.iter().flat_map(|prefix| &prefix.0) {
            self.item(item)?;
        }
        if let Some(word) = &simple.word_or_name {
            self.word(&word.value);
        }
        for item in simple.suffix.iter().flat_map(|suffix| &suffix.0) {
            self.item(item)?;
        }
        Some(())
    }

    fn item(&mut self, item: &ast::CommandPrefixOrSuffixItem) -> Option<()> {
        match item {
            ast::CommandPrefixOrSuffixItem::IoRedirect(redirect) => self.io(redirect),
            ast::CommandPrefixOrSuffixItem::Word(word)
            | ast::CommandPrefixOrSuffixItem::AssignmentWord(_, word) => {
                self.word(&word.value);
                Some(())
            }
            ast::CommandPrefixOrSuffixItem::ProcessSubstitution(..) => None,
        }
    }

    fn redirects(&mut self, redirects: Option<&ast::RedirectList>) -> Option<()> {
        redirects.iter().flat_map(|list| &list.0).try_for_each(|redirect| self.io(redirect))
    }

    fn io(&mut self, redirect: &ast::IoRedirect) -> Option<()> {
        use ast::IoFileRedirectKind as Kind;
        let number = |fd: &Option<i32>| fd.map(|fd| fd.to_string()).unwrap_or_default();
        match redirect {
            ast::IoRedirect::File(fd, kind, target) => {
                let operator = match kind {
                    Kind::Read => "<",
                    Kind::Write => ">",
                    Kind::Append => ">>",
                    Kind::ReadAndWrite => "<>",
                    Kind::Clobber => ">|",
                    Kind::DuplicateInput => "<&",
                    Kind::DuplicateOutput => ">&",
                };
                self.skeleton.redirect(&number(fd), operator);
                match target {
                    ast::IoFileRedirectTarget::Filename(word)
                    | ast::IoFileRedirectTarget::Duplicate(word) => self.word(&word.value),
                    ast::IoFileRedirectTarget::Fd(fd) => self.word(&fd.to_string()),
                    ast::IoFileRedirectTarget::ProcessSubstitution(..) => return None,
                }
            }
            ast::IoRedirect::HereDocument(fd, document) => {
                self.skeleton.redirect(&number(fd), if document.remove_tabs { "<<-" } else { "<<" });
                self.word(&document.here_end.value);
                self.skeleton.document(&document.doc.value, document.requires_expansion);
            }
            ast::IoRedirect::HereString(..) | ast::IoRedirect::OutputAndError(..) => return None,
        }
        Some(())
    }

    fn compound(&mut self, compound: &ast::CompoundCommand) -> Option<()> {
        use ast::CompoundCommand as C;
        match compound {
            C::BraceGroup(group) => {
                self.mark("{");
                self.list(&group.list)?;
                self.mark("}");
            }
            C::Subshell(subshell) => {
                self.mark("(");
                self.list(&subshell.list)?;
                self.mark(")");
            }
            C::ForClause(clause) => {
                self.mark("for");
                self.word(&clause.variable_name);
                if let Some(values) = &clause.values {
                    self.mark("in");
                    values.iter().for_each(|word| self.word(&word.value));
                }
                self.do_group(&clause.body)?;
            }
            C::CaseClause(clause) => {
                self.mark("case");
                self.word(&clause.value.value);
                self.mark("in");
                for case in &clause.cases {
                    if !matches!(case.post_action, ast::CaseItemPostAction::ExitCase) {
                        return None;
                    }
                    case.patterns.iter().for_each(|pattern| self.word(&pattern.value));
                    self.mark(")");
                    if let Some(body) = &case.cmd {
                        self.list(body)?;
                    }
                }
                self.mark("esac");
            }
            C::IfClause(clause) => {
                self.mark("if");
                self.list(&clause.condition)?;
                self.mark("then");
                self.list(&clause.then)?;
                for branch in clause.elses.iter().flatten() {
                    match &branch.condition {
                        Some(condition) => {
                            self.mark("elif");
                            self.list(condition)?;
                            self.mark("then");
                        }
                        None => self.mark("else"),
                    }
                    self.list(&branch.body)?;
                }
                self.mark("fi");
            }
            C::WhileClause(ast::WhileOrUntilClauseCommand(condition, body, _)) => {
                self.mark("while");
                self.list(condition)?;
                self.do_group(body)?;
            }
            C::UntilClause(ast::WhileOrUntilClauseCommand(condition, body, _)) => {
                self.mark("until");
                self.list(condition)?;
                self.do_group(body)?;
            }
            // The parser takes `( (...) )` for arithmetic; every shell runs it.
            C::Arithmetic(command) => {
                let (start, end) = (command.loc.start.index, command.loc.end.index);
                let source: String = self.text.chars().skip(start).take(end.saturating_sub(start)).collect();
                let inner = source.strip_prefix('(')?.strip_suffix(')')?;
                if inner.starts_with('(') {
                    return None;
                }
                let program = parse(inner, self.nesting).ok()?;
                self.mark("(");
                let mut nested = Parsed {
                    skeleton: std::mem::take(&mut self.skeleton),
                    text: inner,
                    nesting: self.nesting,
                };
                let read = nested.program(&program);
                self.skeleton = nested.skeleton;
                read?;
                self.mark(")");
            }
            C::ArithmeticForClause(_) | C::Coprocess(_) => return None,
        }
        Some(())
    }

    fn do_group(&mut self, body: &ast::DoGroupCommand) -> Option<()> {
        self.mark("do");
        self.list(&body.list)?;
        self.mark("done");
        Some(())
    }
}
