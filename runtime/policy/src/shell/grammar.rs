//! Commands, lists and compound commands.

use std::cell::OnceCell;
use std::rc::Rc;

use super::{
    Command, Compound, Item, List, Part, Pending, Piece, Read, Reader, Redirect, Simple, Stop, Target, Word,
    is_blank, is_delimiter, name_len,
};

/// Words that every shell reserves at the start of a command.
const RESERVED: &[&str] = &[
    "!", "{", "}", "case", "do", "done", "elif", "else", "esac", "fi", "for", "if", "in", "then", "until",
    "while",
];

/// Builtins with lasting effects on the shell: a program called `time` would run them in another
/// process.
const STATEFUL: &[&str] = &[
    "cd", "chdir", "eval", "exec", ".", "source", "export", "local", "readonly", "set", "shift", "unset",
    "trap", "read", "umask", "ulimit", "alias", "unalias", "return", "exit", "break", "continue", "getopts",
    "hash", "command", "builtin", "declare", "typeset", "let", "pushd", "popd", "shopt", "wait", "time",
];

/// Commands whose arguments are assignments.
const DECLARING: &[&str] = &["export", "readonly", "local", "declare", "typeset"];

const ASSIGNMENT: &str = "an assignment such as `a[i]=x` or `a+=x`";

impl<'t> Reader<'t> {
    pub(super) fn read_program(&mut self) -> Read<List> {
        let list = self.read_list(&[])?;
        if self.at < self.bytes.len() {
            return Err(Stop::Syntax);
        }
        if !self.pending.is_empty() {
            self.flag_unsupported("a here-document without an end");
            self.here_bodies()?;
        }
        Ok(list)
    }

    /// All commands that may be in text that cannot be followed, each separately.
    pub(super) fn scattered_commands(&mut self) -> List {
        self.lenient = true;
        let mut list = List::new();
        while let Some(byte) = self.peek() {
            let bare = self.read_bare();
            let is_keyword =
                RESERVED.contains(&bare) || matches!(bare, "select" | "coproc" | "function" | "time");
            if byte == b'\n' {
                self.at += 1;
                // A body that cannot be read is read as commands.
                let _ = self.here_bodies();
            } else if byte == b'#' {
                self.skip_blanks();
            } else if (is_delimiter(byte) && !matches!(byte, b'<' | b'>')) || is_keyword {
                self.at += bare.len().max(1);
            } else {
                let start = self.at;
                match self.read_simple(true) {
                    Ok(command) => {
                        list.push(Item { pipelines: vec![vec![command]], background: false });
                    }
                    Err(_) => self.at = start,
                }
                if self.at == start {
                    self.take_char();
                }
            }
        }
        list
    }

    /// Commands up to and including the `)` that ends them.
    pub(super) fn list_until_paren(&mut self) -> Read<List> {
        let list = self.read_list(&[")"])?;
        self.expect_paren()?;
        Ok(list)
    }

    fn expect_paren(&mut self) -> Read<()> {
        if self.peek() != Some(b')') {
            return Err(Stop::Syntax);
        }
        self.at += 1;
        Ok(())
    }

    /// Skips blanks and comments but not the line end.
    pub(super) fn skip_blanks(&mut self) {
        loop {
            match self.peek() {
                Some(byte) if is_blank(byte) => self.at += 1,
                Some(b'\\') if self.peek_at(1) == Some(b'\n') => {
                    let before = self.at.checked_sub(1).map(|at| self.bytes[at]);
                    let clear = before.is_none_or(|b| is_blank(b) || b == b'\n')
                        || self.peek_at(2).is_some_and(is_blank);
                    if !clear {
                        self.flag_unsupported("a line that continues inside an operator");
                    }
                    self.at += 2;
                }
                Some(b'#') => {
                    while self.peek().is_some_and(|b| b != b'\n') {
                        self.at += 1;
                    }
                }
                _ => return,
            }
        }
    }

    /// Skips line ends as well.
    fn skip_lines(&mut self) -> Read<()> {
        loop {
            self.skip_blanks();
            if self.peek() != Some(b'\n') {
                return Ok(());
            }
            self.at += 1;
            self.here_bodies()?;
        }
    }

    /// Characters up to the next delimiter, if the word could be reserved.
    fn read_bare(&self) -> &'t str {
        let rest = &self.bytes[self.at.min(self.bytes.len())..];
        let ends = |at: &usize| is_delimiter(rest[*at]) || rest[*at..].starts_with(b"\\\n");
        let len = (0..rest.len()).find(ends).unwrap_or(rest.len());
        self.text.get(self.at..self.at + len).unwrap_or("")
    }

    /// Takes the reserved word `word`, which is required here.
    fn expect_keyword(&mut self, word: &'static str) -> Read<()> {
        self.skip_lines()?;
        if self.read_bare() != word {
            return Err(Stop::Syntax);
        }
        self.at += word.len();
        Ok(())
    }

    /// Commands up to one of `ends`, which is not consumed.
    fn read_list(&mut self, ends: &[&str]) -> Read<List> {
        let mut list = List::new();
        loop {
            self.skip_lines()?;
            let Some(byte) = self.peek() else { break };
            if ends.iter().any(|end| match *end {
                ")" => byte == b')',
                ";;" => self.is_at(";;") || self.is_at(";&"),
                word => self.read_bare() == word,
            }) {
                break;
            }
            let pipelines = self.and_or()?;
            self.skip_blanks();
            let mut background = false;
            match self.peek() {
                Some(b';') if matches!(self.peek_at(1), Some(b';' | b'&')) && ends.contains(&";;") => {}
                Some(b';') => self.at += 1,
                Some(b'&') => {
                    self.at += 1;
                    background = true;
                }
                None | Some(b'\n' | b')') => {}
                Some(_) => return Err(Stop::Syntax),
            }
            list.push(Item { pipelines, background });
        }
        Ok(list)
    }

    /// A list that must not be empty.
    fn read_commands(&mut self, ends: &[&str]) -> Read<List> {
        let list = self.read_list(ends)?;
        if list.is_empty() { Err(Stop::Syntax) } else { Ok(list) }
    }

    fn and_or(&mut self) -> Read<Vec<Vec<Command>>> {
        let mut pipelines = vec![self.read_pipeline()?];
        loop {
            self.skip_blanks();
            if !self.is_at("&&") && !self.is_at("||") {
                return Ok(pipelines);
            }
            self.at += 2;
            self.skip_lines()?;
            pipelines.push(self.read_pipeline()?);
        }
    }

    fn read_pipeline(&mut self) -> Read<Vec<Command>> {
        let mut negations = 0;
        while self.read_bare() == "!" {
            self.at += 1;
            self.skip_blanks();
            negations += 1;
        }
        if negations > 1 || (negations == 1 && self.read_bare() == "time") {
            self.flag_unsupported("`! !`");
        }
        let mut commands = vec![self.read_command(true)?];
        loop {
            self.skip_blanks();
            if self.peek() != Some(b'|') || self.peek_at(1) == Some(b'|') {
                return Ok(commands);
            }
            self.at += 1;
            if self.peek() == Some(b'&') {
                self.flag_unsupported("`|&`");
                self.at += 1;
            }
            self.skip_lines()?;
            commands.push(self.read_command(false)?);
        }
    }

    fn read_command(&mut self, first: bool) -> Read<Command> {
        self.skip_blanks();
        let compound = if self.peek() == Some(b'(') {
            if self.peek_at(1) == Some(b'(') {
                self.flag_unsupported("`((`");
            }
            self.at += 1;
            let list = self.one_level_deeper(|r| r.read_commands(&[")"]))?;
            self.expect_paren()?;
            Compound::Subshell(list)
        } else {
            match self.read_bare() {
                "{" => {
                    self.expect_keyword("{")?;
                    let list = self.one_level_deeper(|r| r.read_commands(&["}"]))?;
                    self.expect_keyword("}")?;
                    Compound::Group(list)
                }
                "if" => self.one_level_deeper(Self::if_clause)?,
                "while" => self.one_level_deeper(|r| r.loop_clause("while"))?,
                "until" => self.one_level_deeper(|r| r.loop_clause("until"))?,
                "for" => self.one_level_deeper(|r| r.for_clause("for"))?,
                "select" => {
                    self.flag_unsupported("`select`");
                    self.one_level_deeper(|r| r.for_clause("select"))?
                }
                "case" => self.one_level_deeper(Self::case_clause)?,
                "coproc" => {
                    self.flag_unsupported("`coproc`");
                    self.at += "coproc".len();
                    return self.one_level_deeper(|r| r.read_command(false));
                }
                "time" if self.remaining_text()[4..].trim_start().starts_with(['{', '(']) => {
                    self.flag_unsupported("`time` in front of this");
                    self.at += "time".len();
                    return self.one_level_deeper(|r| r.read_command(false));
                }
                "function" => {
                    self.flag_unsupported("a function");
                    self.at += "function".len();
                    self.skip_blanks();
                    let name = self.read_bare();
                    self.at += name.len();
                    self.skip_blanks();
                    if self.peek() == Some(b'(') {
                        self.at += 1;
                        self.skip_blanks();
                        self.expect_paren()?;
                    }
                    return self.function_body(name);
                }
                bare if RESERVED.contains(&bare) => return Err(Stop::Syntax),
                _ => return self.read_simple(first),
            }
        };
        let mut redirects = Vec::new();
        loop {
            self.skip_blanks();
            match self.read_redirect()? {
                Some(redirect) => redirects.push(redirect),
                None => return Ok(Command::Compound(compound, redirects)),
            }
        }
    }

    fn if_clause(&mut self) -> Read<Compound> {
        self.expect_keyword("if")?;
        let mut branches = Vec::new();
        let mut condition = self.read_commands(&["then"])?;
        loop {
            self.expect_keyword("then")?;
            branches.push((condition, self.read_commands(&["elif", "else", "fi"])?));
            match self.read_bare() {
                "elif" => {
                    self.expect_keyword("elif")?;
                    condition = self.read_commands(&["then"])?;
                }
                "else" => {
                    self.expect_keyword("else")?;
                    branches.push((List::new(), self.read_commands(&["fi"])?));
                    break;
                }
                _ => break,
            }
        }
        self.expect_keyword("fi")?;
        Ok(Compound::If(branches))
    }

    fn loop_clause(&mut self, word: &'static str) -> Read<Compound> {
        self.expect_keyword(word)?;
        let condition = self.read_commands(&["do"])?;
        Ok(Compound::Loop { until: word == "until", condition, body: self.do_group()? })
    }

    fn do_group(&mut self) -> Read<List> {
        self.expect_keyword("do")?;
        let body = self.read_commands(&["done"])?;
        self.expect_keyword("done")?;
        Ok(body)
    }

    fn for_clause(&mut self, word: &'static str) -> Read<Compound> {
        self.expect_keyword(word)?;
        self.skip_blanks();
        let name = self.read_bare();
        if name.is_empty() || name_len(name) != name.len() {
            return self.give_up("`for` without a plain name");
        }
        self.at += name.len();
        let name = name.to_owned();
        self.skip_lines()?;
        let mut words = None;
        if self.read_bare() == "in" {
            self.expect_keyword("in")?;
            let list: &mut Vec<Word> = words.insert(Vec::new());
            loop {
                self.skip_blanks();
                if self.peek().is_none_or(is_delimiter) {
                    break;
                }
                list.push(self.read_word()?);
            }
            match self.peek() {
                Some(b';') => self.at += 1,
                Some(b'\n') => {}
                _ => return Err(Stop::Syntax),
            }
        } else if self.peek() == Some(b';') {
            self.at += 1;
        }
        Ok(Compound::For { name, words, body: self.do_group()? })
    }

    fn case_clause(&mut self) -> Read<Compound> {
        self.expect_keyword("case")?;
        self.skip_blanks();
        let subject = self.read_word()?;
        self.expect_keyword("in")?;
        let mut arms = Vec::new();
        loop {
            self.skip_lines()?;
            if self.read_bare() == "esac" {
                break;
            }
            if self.peek() == Some(b'(') {
                self.at += 1;
            }
            let mut patterns = Vec::new();
            loop {
                self.skip_blanks();
                patterns.push(self.read_word()?);
                self.skip_blanks();
                match self.peek() {
                    Some(b'|') if !matches!(self.peek_at(1), Some(b'|' | b'&')) => self.at += 1,
                    Some(b')') => break,
                    _ => return Err(Stop::Syntax),
                }
            }
            self.at += 1;
            arms.push((patterns, self.read_list(&[";;", "esac"])?));
            if self.is_at(";&") || self.is_at(";;&") {
                self.flag_unsupported("`;&`");
                self.at += if self.is_at(";&") { 2 } else { 3 };
            } else if self.is_at(";;") {
                self.at += 2;
            }
        }
        self.expect_keyword("esac")?;
        Ok(Compound::Case(subject, arms))
    }

    /// Body of the function `name`, which is beyond the language.
    fn function_body(&mut self, name: &str) -> Read<Command> {
        self.skip_lines()?;
        let name = name.replace(['\\', '\'', '"'], "");
        let body = Rc::new(self.one_level_deeper(|r| r.read_command(false))?);
        Ok(Command::Compound(Compound::Function(name, body), Vec::new()))
    }

    fn read_simple(&mut self, first: bool) -> Read<Command> {
        let begun = self.at;
        let mut simple = Simple::default();
        let mut name: Option<&str> = None;
        loop {
            self.skip_blanks();
            let start = self.at;
            if let Some(redirect) = self.read_redirect()? {
                simple.redirects.push(redirect);
                continue;
            }
            let begins_process = self.is_at("<(") || self.is_at(">(");
            if self.peek().is_none_or(|b| is_delimiter(b) && b != b'(') && !begins_process {
                break;
            }
            if self.peek() == Some(b'(') {
                if let Some(name) = name.filter(|_| simple.words.len() == 1 && simple.assignments.is_empty())
                {
                    self.flag_unsupported("a function");
                    self.at += 1;
                    self.skip_blanks();
                    if self.peek() == Some(b')') && simple.redirects.is_empty() {
                        self.at += 1;
                        return self.function_body(name);
                    }
                    self.at = start;
                }
                // Only the name of a function may precede it.
                self.flag_unsupported("`(` after a word");
                if self.lenient && self.at > begun {
                    break;
                }
                return Err(Stop::Lost);
            }
            if name.is_none()
                && let Some(assignment) = self.read_assignment()?
            {
                simple.assignments.push(assignment);
                continue;
            }
            let word = match self.read_word() {
                Err(Stop::Syntax | Stop::Lost) if self.lenient && start > begun => {
                    self.at = start;
                    break;
                }
                word => word?,
            };
            simple.words.push(word);
            let raw = self.text.get(start..self.at).unwrap_or("");
            if raw.starts_with('{') && raw.ends_with('}') && matches!(self.peek(), Some(b'<' | b'>')) {
                self.flag_unsupported("`{name}` in front of a redirect");
                let name = raw[1..raw.len() - 1].to_owned();
                simple.assignments.push((name, vec![Word::unknown_value(Vec::new())]));
            }
            match name {
                Some(name) => self.check_argument(name, raw),
                None => {
                    name = Some(raw);
                    let is_alone = simple.assignments.is_empty() && simple.redirects.is_empty();
                    match raw {
                        "[[" => self.extended_test(&mut simple)?,
                        "time" => self.check_time(first && is_alone),
                        _ if raw.contains('=') || (raw.contains('[') && raw != "[") => {
                            self.flag_unsupported(ASSIGNMENT);
                        }
                        _ => {}
                    }
                }
            }
        }
        if self.at == begun {
            return Err(Stop::Syntax);
        }
        Ok(Command::Simple(simple))
    }

    /// `[[ … ]]`, of which the words are kept.
    fn extended_test(&mut self, simple: &mut Simple) -> Read<()> {
        self.flag_unsupported("`[[`");
        loop {
            self.skip_lines()?;
            match self.peek() {
                None | Some(b';') => return Err(Stop::Syntax),
                Some(byte) if is_delimiter(byte) => self.at += 1,
                Some(_) => {
                    let is_end = self.read_bare() == "]]";
                    simple.words.push(self.read_word()?);
                    if is_end {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// `name=word` at the start of a command; other assignments are beyond the language.
    fn read_assignment(&mut self) -> Read<Option<(String, Vec<Word>)>> {
        let rest = self.remaining_text();
        let len = name_len(rest);
        let (name, behind) = rest.split_at(len);
        let is_plain = behind.starts_with('=');
        let subscript = behind.strip_prefix('[').and_then(|inner| {
            let end = ["]=", "]+="].iter().filter_map(|end| inner.find(end)).min()?;
            // A blank may occur only in quotes or code.
            let is_one_word = !inner[..end].contains(['\n', ';']);
            is_one_word.then_some(end + "[]".len())
        });
        if len == 0 || !(is_plain || behind.starts_with("+=") || subscript.is_some()) {
            return Ok(None);
        }
        let mut inside = Vec::new();
        if !is_plain {
            self.flag_unsupported(ASSIGNMENT);
        }
        self.at += len;
        if let Some(len) = subscript {
            let end = self.at + len;
            self.at += 1;
            inside.extend(self.parts_until(end - 1)?);
            self.at = end;
        }
        let appends = self.peek() == Some(b'+');
        self.at += if appends { 2 } else { 1 };
        let old = |parts: &mut Vec<Part>| {
            let piece = Piece::Parameter(name.to_owned());
            parts.insert(0, Part { piece, quoted: true });
        };
        if self.peek() == Some(b'(') {
            self.flag_unsupported("an array");
            self.at += 1;
            let mut elements = Vec::new();
            loop {
                self.skip_lines()?;
                match self.peek() {
                    Some(b')') => break,
                    None | Some(b';' | b'&' | b'|' | b'(' | b'<' | b'>') => return self.give_up("an array"),
                    Some(_) => elements.push(self.read_word()?),
                }
            }
            self.at += 1;
            if appends {
                let mut all = Word::default();
                old(&mut all.parts);
                elements.insert(0, all);
            }
            return Ok(Some((name.to_owned(), elements)));
        }
        let mut word = self.read_value()?;
        if subscript.is_some() {
            inside.append(&mut word.parts);
            word = Word::unknown_value(inside);
        } else if appends {
            old(&mut word.parts);
        }
        Ok(Some((name.to_owned(), vec![word])))
    }

    /// Records an argument of the command `name` that shells read differently.
    fn check_argument(&mut self, name: &str, raw: &str) {
        let target = name_len(raw);
        if target == 0 {
            return;
        }
        let rest = &raw[target..];
        if rest.starts_with("+=") || (rest.starts_with('[') && rest.contains("]=")) {
            self.flag_unsupported(ASSIGNMENT);
        }
        let Some(value) = rest.strip_prefix('=') else {
            return;
        };
        if value.starts_with('~') || value.contains(":~") {
            self.flag_unsupported("a tilde behind `=` in an argument");
        }
        if DECLARING.contains(&name) && has_bare_expansion(value) {
            self.flag_unsupported("an unquoted expansion in the value of `export`");
        }
    }

    /// `time` is a keyword in bash and a program elsewhere.
    fn check_time(&mut self, may_be_keyword: bool) {
        self.skip_blanks();
        let mut next = self.read_bare();
        if next == "-p" {
            let rest = self.remaining_text()[2..].trim_start_matches([' ', '\t']);
            next = &rest[..rest.bytes().position(is_delimiter).unwrap_or(rest.len())];
        }
        let plain = next.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-./".contains(&b));
        let is_program = plain && !next.is_empty() && !next.starts_with('-');
        if !may_be_keyword || !is_program || STATEFUL.contains(&next) || RESERVED.contains(&next) {
            self.flag_unsupported("`time` in front of this");
        }
    }

    /// Reads a redirect, if there is one here.
    fn read_redirect(&mut self) -> Read<Option<Redirect>> {
        let rest = &self.bytes[self.at.min(self.bytes.len())..];
        let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
        if !matches!(self.peek_at(digits), Some(b'<' | b'>')) || self.peek_at(digits + 1) == Some(b'(') {
            if digits == 0 && self.is_at("&>") {
                self.flag_unsupported("`&>`");
                self.at += if self.is_at("&>>") { 3 } else { 2 };
                self.skip_blanks();
                let target = Target::Write(self.read_word()?);
                return Ok(Some(Redirect { descriptor: None, target }));
            }
            return Ok(None);
        }
        if digits > 1 {
            // A word in dash, a descriptor in bash.
            self.flag_unsupported("a descriptor of several digits");
        }
        if self.at > 0 && digits > 0 && !is_delimiter(self.bytes[self.at - 1]) {
            self.flag_unsupported("a redirect directly after a word");
        }
        let descriptor = self.text[self.at..self.at + digits].parse().ok();
        self.at += digits;
        const OPERATORS: &[&str] = &["<<<", "<<-", "<<", "<&", "<>", "<", ">>", ">&", ">|", ">"];
        let Some(operator) = OPERATORS.iter().copied().find(|operator| self.is_at(operator)) else {
            return Err(Stop::Syntax);
        };
        self.at += operator.len();
        self.skip_blanks();
        let is_process = self.is_at("<(") || self.is_at(">(");
        if self.peek().is_none_or(is_delimiter) && !is_process {
            return Err(Stop::Syntax);
        }
        let start = self.at;
        let target = match operator {
            "<<" | "<<-" => Target::Document(self.here_document(operator == "<<-")?),
            "<<<" => {
                self.flag_unsupported("`<<<`");
                let mut word = self.read_word()?;
                word.parts.push(Part { piece: Piece::Text("\n".to_owned()), quoted: true });
                word.parts.iter_mut().for_each(|part| part.quoted = true);
                Target::Document(Rc::new(OnceCell::from(word)))
            }
            "<&" | ">&" => {
                let word = self.read_word()?;
                let raw = &self.text[start..self.at];
                match raw.strip_suffix('-').unwrap_or(raw).parse() {
                    _ if raw == "-" => Target::Duplicate(None),
                    Ok(descriptor) => {
                        if raw.len() > 1 {
                            self.flag_unsupported("a descriptor of several digits");
                        }
                        Target::Duplicate(Some(descriptor))
                    }
                    Err(_) => {
                        self.flag_unsupported("`>&` with anything but one digit or `-`");
                        if operator == "<&" { Target::Read(word) } else { Target::Write(word) }
                    }
                }
            }
            "<" => Target::Read(self.read_word()?),
            "<>" => Target::ReadWrite(self.read_word()?),
            _ => Target::Write(self.read_word()?),
        };
        Ok(Some(Redirect { descriptor, target }))
    }

    /// Reads `<<delimiter`; the body follows the next line end.
    fn here_document(&mut self, strip: bool) -> Read<Rc<OnceCell<Word>>> {
        let start = self.at;
        self.read_word()?;
        let raw = &self.text[start..self.at];
        let plain = |text: &str| {
            !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-+@%".contains(&b))
        };
        let unquoted = ['\'', '"'].iter().find_map(|q| raw.strip_prefix(*q)?.strip_suffix(*q));
        let unquoted = unquoted.or_else(|| raw.strip_prefix('\\'));
        let (delimiter, expand) = match unquoted {
            Some(inner) if plain(inner) => (inner, false),
            None if plain(raw) => (raw, true),
            Some(_) | None => return self.give_up("a here-document whose delimiter is quoted this way"),
        };
        let body = Rc::new(OnceCell::new());
        let pending = Pending { delimiter: delimiter.to_owned(), strip, expand, body: Rc::clone(&body) };
        self.pending.push(pending);
        Ok(body)
    }
}

/// True if an expansion is outside of quotes; some shells split its value.
fn has_bare_expansion(value: &str) -> bool {
    let mut double = false;
    let mut bytes = value.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => {
                bytes.next();
            }
            b'\'' if !double => while bytes.next().is_some_and(|b| b != b'\'') {},
            b'"' => double = !double,
            b'$' | b'`' if !double => return true,
            _ => {}
        }
    }
    false
}
