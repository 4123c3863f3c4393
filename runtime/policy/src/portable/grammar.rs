//! Commands, lists and compound commands.

use super::{Flavour, Read, Reader, Stop, is_blank, is_delimiter, name_len};

/// Words that every shell reserves where a command begins.
const RESERVED: &[&str] = &[
    "!", "{", "}", "case", "do", "done", "elif", "else", "esac", "fi", "for", "if", "in", "then", "until",
    "while",
];

/// Words that bash reserves and the others take for a program, or the reverse.
const DISPUTED: &[&str] = &["[[", "function", "select", "coproc"];

/// Builtins whose effect outlives them; `time` in front is a keyword in bash
/// and a program elsewhere, which would run them somewhere else.
const STATEFUL: &[&str] = &[
    "cd", "chdir", "eval", "exec", ".", "source", "export", "local", "readonly", "set", "shift", "unset",
    "trap", "read", "umask", "ulimit", "alias", "unalias", "return", "exit", "break", "continue", "getopts",
    "hash", "command", "builtin", "declare", "typeset", "let", "pushd", "popd", "shopt", "wait", "time",
];

/// Commands whose arguments are assignments.
const DECLARING: &[&str] = &["export", "readonly", "local", "declare", "typeset"];

/// Whether a reserved word may follow without a separator.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ended {
    Simple,
    Compound,
}

impl<'t> Reader<'t> {
    pub(super) fn program(&mut self) -> Read<()> {
        self.list(&[])?;
        if self.at < self.bytes.len() {
            return Err(Stop::Syntax);
        }
        if !self.pending.is_empty() {
            self.odd("a here-document without an end");
            self.out.push('\n');
            self.here_bodies()?;
        }
        Ok(())
    }

    /// Commands up to the `)` that ends them, which is read as well.
    pub(super) fn list_until_paren(&mut self) -> Read<()> {
        self.list(&[")"])?;
        self.expect_paren()
    }

    fn expect_paren(&mut self) -> Read<()> {
        if self.peek() != Some(b')') {
            return Err(Stop::Syntax);
        }
        self.at += 1;
        Ok(())
    }

    /// Skips blanks and comments; a line end stays.
    fn skip_blanks(&mut self) {
        loop {
            match self.peek() {
                Some(byte) if is_blank(byte) => self.at += 1,
                Some(b'\\') if self.peek_at(1) == Some(b'\n') => {
                    let before = self.at.checked_sub(1).map(|at| self.bytes[at]);
                    let clear = before.is_none_or(|b| is_blank(b) || b == b'\n')
                        || self.peek_at(2).is_some_and(is_blank);
                    if !clear {
                        self.odd("a line that goes on inside an operator");
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
            self.line_end()?;
        }
    }

    fn line_end(&mut self) -> Read<()> {
        self.at += 1;
        self.out.push('\n');
        self.here_bodies()
    }

    /// The characters up to the next delimiter, if a word could be reserved.
    fn bare(&self) -> &'t str {
        let rest = &self.bytes[self.at.min(self.bytes.len())..];
        let len = rest.iter().position(|b| is_delimiter(*b)).unwrap_or(rest.len());
        self.text.get(self.at..self.at + len).unwrap_or("")
    }

    /// Takes the reserved word `word`, which must stand here.
    fn keyword(&mut self, word: &'static str) -> Read<()> {
        self.skip_lines()?;
        if self.bare() != word {
            return Err(Stop::Syntax);
        }
        self.at += word.len();
        self.skeleton.mark(word);
        self.out.push_str(word);
        self.out.push(' ');
        Ok(())
    }

    /// Commands up to one of `ends`, which is left standing; how many they are.
    fn list(&mut self, ends: &[&str]) -> Read<usize> {
        let top = ends.is_empty() && self.depth == 0;
        let mut commands = 0usize;
        loop {
            loop {
                self.skip_blanks();
                if self.peek() != Some(b'\n') {
                    break;
                }
                self.line_end()?;
                if top {
                    self.complete = self.out.len();
                }
            }
            let Some(byte) = self.peek() else { break };
            let bare = self.bare();
            if ends.iter().any(|end| match *end {
                ")" => byte == b')',
                ";;" => self.sees(";;"),
                word => bare == word,
            }) {
                break;
            }
            let ended = self.and_or()?;
            commands += 1;
            self.skip_blanks();
            match self.peek() {
                None => break,
                Some(b'\n') => {}
                Some(b';') if self.peek_at(1) == Some(b';') => {}
                Some(b';') => {
                    if self.peek_at(1) == Some(b'&') {
                        self.odd("`;&`");
                        return Err(Stop::Syntax);
                    }
                    self.at += 1;
                    self.out.push_str("; ");
                }
                Some(b'&') => {
                    self.at += 1;
                    if self.peek() == Some(b'>') {
                        self.odd("`&>`");
                    }
                    self.skeleton.mark("&");
                    self.out.push_str("& ");
                }
                Some(b')') => {}
                Some(_) if ended == Ended::Compound => {
                    self.odd("a reserved word without `;` before it");
                    // An error for dash. Others may be more lenient, so the
                    // command in front counts, and what follows it is left out.
                    while !ends.contains(&self.bare()) && self.peek().is_some_and(|b| !is_delimiter(b)) {
                        self.at += self.bare().len();
                        self.skip_blanks();
                    }
                }
                Some(_) => return Err(Stop::Syntax),
            }
            if self.sees(";;") && !ends.contains(&";;") {
                return Err(Stop::Syntax);
            }
        }
        Ok(commands)
    }

    /// A list that must not be empty.
    fn commands(&mut self, ends: &[&str]) -> Read<()> {
        if self.list(ends)? == 0 { Err(Stop::Syntax) } else { Ok(()) }
    }

    fn and_or(&mut self) -> Read<Ended> {
        let mut ended = self.pipeline()?;
        loop {
            self.skip_blanks();
            let operator = if self.sees("&&") {
                "&&"
            } else if self.sees("||") {
                "||"
            } else {
                return Ok(ended);
            };
            self.at += 2;
            self.skeleton.mark(operator);
            self.out.push_str(operator);
            self.out.push(' ');
            self.skip_lines()?;
            ended = self.pipeline()?;
        }
    }

    fn pipeline(&mut self) -> Read<Ended> {
        if self.bare() == "!" {
            self.at += 1;
            self.skeleton.mark("!");
            self.out.push_str("! ");
            self.skip_blanks();
            if matches!(self.bare(), "!" | "time") {
                self.odd("`! !`");
            }
        }
        let mut ended = self.command(true)?;
        loop {
            self.skip_blanks();
            if self.peek() != Some(b'|') || self.peek_at(1) == Some(b'|') {
                return Ok(ended);
            }
            self.at += 1;
            if self.peek() == Some(b'&') {
                self.odd("`|&`");
            }
            self.skeleton.mark("|");
            self.out.push_str("| ");
            self.skip_lines()?;
            ended = self.command(false)?;
        }
    }

    fn command(&mut self, first: bool) -> Read<Ended> {
        self.skip_blanks();
        if self.peek() == Some(b'(') {
            if self.peek_at(1) == Some(b'(') {
                self.odd("`((`");
                if let Some(len) = self.arithmetic_without_names() {
                    // Nothing in it can be a command or a file of a name.
                    self.at += len;
                    self.out.push_str(": ");
                    return Ok(Ended::Compound);
                }
            }
            self.at += 1;
            self.skeleton.mark("(");
            self.out.push_str("( ");
            self.deeper(|r| r.commands(&[")"]))?;
            self.expect_paren()?;
            self.skeleton.mark(")");
            self.out.push_str(") ");
            return self.redirects();
        }
        let bare = self.bare();
        match bare {
            "{" => {
                self.keyword("{")?;
                self.deeper(|r| r.commands(&["}"]))?;
                self.keyword("}")?;
                self.redirects()
            }
            "if" => self.deeper(Self::if_clause),
            "while" => self.deeper(|r| r.loop_clause("while")),
            "until" => self.deeper(|r| r.loop_clause("until")),
            "for" => self.deeper(Self::for_clause),
            "case" => self.deeper(Self::case_clause),
            "function" if self.flavour == Flavour::Ash => self.function_keyword(),
            _ if RESERVED.contains(&bare) => Err(Stop::Syntax),
            _ => self.simple(first),
        }
    }

    /// The length of a `((...))` that holds numbers and operators only.
    fn arithmetic_without_names(&self) -> Option<usize> {
        let rest = &self.text[self.at..];
        let len = super::super::arithmetic::closed_arithmetic(rest)?;
        let plain = |b: u8| b.is_ascii_digit() || b" +-*/%<>=!&|^~?:()".contains(&b);
        rest[..len].bytes().all(plain).then_some(len)
    }

    fn redirects(&mut self) -> Read<Ended> {
        loop {
            self.skip_blanks();
            if !self.redirect()? {
                return Ok(Ended::Compound);
            }
        }
    }

    fn if_clause(&mut self) -> Read<Ended> {
        self.keyword("if")?;
        self.commands(&["then"])?;
        self.keyword("then")?;
        loop {
            self.commands(&["elif", "else", "fi"])?;
            match self.bare() {
                "elif" => {
                    self.keyword("elif")?;
                    self.commands(&["then"])?;
                    self.keyword("then")?;
                }
                "else" => {
                    self.keyword("else")?;
                    self.commands(&["fi"])?;
                    break;
                }
                _ => break,
            }
        }
        self.keyword("fi")?;
        self.redirects()
    }

    fn loop_clause(&mut self, word: &'static str) -> Read<Ended> {
        self.keyword(word)?;
        self.commands(&["do"])?;
        self.do_group()
    }

    fn do_group(&mut self) -> Read<Ended> {
        self.keyword("do")?;
        self.commands(&["done"])?;
        self.keyword("done")?;
        self.redirects()
    }

    fn for_clause(&mut self) -> Read<Ended> {
        self.keyword("for")?;
        self.skip_blanks();
        let name = self.bare();
        if name.is_empty() || name_len(name) != name.len() {
            self.odd("`for` without a plain name");
            return Err(Stop::Syntax);
        }
        self.at += name.len();
        self.skeleton.word(name);
        self.out.push_str(name);
        self.out.push(' ');
        self.skip_lines()?;
        if self.bare() == "in" {
            self.keyword("in")?;
            loop {
                self.skip_blanks();
                if self.peek().is_none_or(is_delimiter) {
                    break;
                }
                self.plain_word()?;
            }
            match self.peek() {
                Some(b';') => self.at += 1,
                Some(b'\n') => {}
                _ => return Err(Stop::Syntax),
            }
            self.out.push_str("; ");
        } else if self.peek() == Some(b';') {
            self.at += 1;
            self.out.push_str("; ");
        }
        self.skip_lines()?;
        if self.bare() == "{" {
            self.odd("`for` with braces");
        }
        self.do_group()
    }

    fn case_clause(&mut self) -> Read<Ended> {
        self.keyword("case")?;
        self.skip_blanks();
        self.plain_word()?;
        self.keyword("in")?;
        self.out.push('\n');
        loop {
            self.skip_lines()?;
            if self.bare() == "esac" {
                break;
            }
            self.out.push('(');
            if self.peek() == Some(b'(') {
                self.at += 1;
            }
            loop {
                self.skip_blanks();
                self.plain_word()?;
                self.skip_blanks();
                match self.peek() {
                    Some(b'|') if !matches!(self.peek_at(1), Some(b'|' | b'&')) => {
                        self.at += 1;
                        self.out.push_str("| ");
                    }
                    Some(b')') => break,
                    _ => return Err(Stop::Syntax),
                }
            }
            self.at += 1;
            self.skeleton.mark(")");
            self.out.push_str(") ");
            self.list(&[";;", "esac"])?;
            if self.sees(";;") {
                if self.peek_at(2) == Some(b'&') {
                    self.odd("`;;&`");
                    return Err(Stop::Syntax);
                }
                self.at += 2;
            }
            self.out.push_str(" ;;\n");
        }
        self.keyword("esac")?;
        self.redirects()
    }

    /// `function name { ...; }`, which ash takes and dash does not.
    fn function_keyword(&mut self) -> Read<Ended> {
        self.odd("`function`");
        self.at += "function".len();
        self.skip_blanks();
        let name = self.bare();
        if name.is_empty() || name_len(name) != name.len() {
            return self.lose("`function`");
        }
        self.at += name.len();
        self.skip_blanks();
        if self.peek() == Some(b'(') {
            self.at += 1;
            self.skip_blanks();
            self.expect_paren()?;
        }
        self.out.push_str(name);
        self.out.push_str("() ");
        self.function_body()
    }

    fn function_body(&mut self) -> Read<Ended> {
        self.skip_lines()?;
        let compound = self.peek() == Some(b'(')
            || matches!(self.bare(), "{" | "if" | "while" | "until" | "for" | "case");
        if !compound {
            self.odd("a function whose body is a simple command");
            return self.lose("a function whose body is a simple command");
        }
        self.deeper(|r| r.command(false))
    }

    /// A word with a blank after it, in skeleton and output.
    fn plain_word(&mut self) -> Read<&'t str> {
        let (start, written) = (self.at, self.out.len());
        self.word()?;
        let raw = &self.text[start..self.at];
        if raw.starts_with('{') && raw.ends_with('}') && matches!(self.peek(), Some(b'<' | b'>')) {
            self.odd("`{name}` in front of a redirect");
        }
        if raw.contains("$(") {
            let rewritten = self.out[written..].to_owned();
            self.skeleton.word(&rewritten);
        } else {
            self.skeleton.word(raw);
        }
        self.out.push(' ');
        Ok(raw)
    }

    fn simple(&mut self, first: bool) -> Read<Ended> {
        self.skeleton.mark("command");
        let begun = self.at;
        let mut name: Option<&str> = None;
        let mut prefixed = false;
        loop {
            self.skip_blanks();
            if self.redirect()? {
                prefixed |= name.is_none();
                continue;
            }
            if self.peek().is_none_or(|b| is_delimiter(b) && b != b'(') {
                break;
            }
            if self.peek() == Some(b'(') {
                // Only a function's name may stand in front of it.
                self.odd("`(` behind a word");
                return Err(Stop::Syntax);
            }
            let written = self.out.len();
            let raw = self.plain_word()?;
            let is_assignment = is_assignment(raw);
            match name {
                None if is_assignment => prefixed = true,
                None => {
                    self.command_name(raw, written);
                    self.skip_blanks();
                    if self.peek() == Some(b'(') && !prefixed {
                        return self.function(raw, written);
                    }
                    if raw == "time" {
                        self.timed(first && !prefixed)?;
                    }
                    name = Some(raw);
                }
                Some(name) => self.argument(name, raw),
            }
        }
        if self.at == begun {
            return Err(Stop::Syntax);
        }
        Ok(Ended::Simple)
    }

    /// Notes what is odd about the name of a command.
    fn command_name(&mut self, raw: &str, written: usize) {
        if DISPUTED.contains(&raw) {
            self.odd(match raw {
                "[[" => "`[[`",
                "function" => "`function`",
                "select" => "`select`",
                _ => "`coproc`",
            });
        } else if raw.contains('=') || (raw.contains('[') && raw != "[") {
            self.odd("an assignment such as `a[i]=x` or `a+=x`");
            // For bash the rewritten text must not be an assignment either.
            let word = self.out[written..].replace('[', "\\[").replace("+=", "\\+=");
            self.out.truncate(written);
            self.out.push_str(&word);
        }
        // No program has such a name; what it gets to see is still of interest.
        let nameless =
            !raw.bytes().any(|b| b.is_ascii_alphabetic() || b"/.:'\"\\$`".contains(&b) || b >= 0x80);
        self.skip_blanks();
        let groups = raw == "time" && (self.bare() == "{" || self.peek() == Some(b'('));
        if groups || DISPUTED.contains(&raw) || raw.starts_with('-') || (nameless && raw != "[") {
            self.out.truncate(written);
            self.out.push_str(": ");
        }
    }

    /// Notes what is odd about an argument of the command `name`.
    fn argument(&mut self, name: &str, raw: &str) {
        let target = name_len(raw);
        if target == 0 {
            return;
        }
        let rest = &raw[target..];
        if rest.starts_with("+=") || (rest.starts_with('[') && rest.contains("]=")) {
            self.odd("an assignment such as `a[i]=x` or `a+=x`");
        }
        let Some(value) = rest.strip_prefix('=') else {
            return;
        };
        if value.starts_with('~') || value.contains(":~") {
            self.odd("a tilde behind `=` in an argument");
        }
        if DECLARING.contains(&name) && has_bare_expansion(value) {
            self.odd("an unquoted expansion in the value of `export`");
        }
    }

    /// `time` is a keyword in bash and a program elsewhere.
    fn timed(&mut self, may_be_keyword: bool) -> Read<()> {
        let mut next = self.bare();
        if next == "-p" {
            let rest = self.text[self.at + 2..].trim_start_matches([' ', '\t']);
            next = &rest[..rest.bytes().position(is_delimiter).unwrap_or(rest.len())];
        } else if next.starts_with('-') {
            self.odd("`time` with an option");
        }
        let plain = next.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-./".contains(&b));
        if !may_be_keyword
            || !plain
            || next.is_empty()
            || STATEFUL.contains(&next)
            || RESERVED.contains(&next)
        {
            self.odd("`time` in front of this");
        }
        Ok(())
    }

    fn function(&mut self, name: &str, written: usize) -> Read<Ended> {
        if name_len(name) != name.len() || STATEFUL.contains(&name) {
            self.odd("a function of this name");
        }
        self.at += 1;
        self.skip_blanks();
        if self.peek() != Some(b')') {
            self.odd("`(` directly behind a word");
            return Err(Stop::Syntax);
        }
        self.at += 1;
        self.out.truncate(written);
        self.out.push_str(name);
        self.out.push_str("() ");
        self.skeleton.turn_into_function();
        self.function_body()
    }

    /// Reads a redirect if one stands here.
    fn redirect(&mut self) -> Read<bool> {
        let digits =
            self.bytes[self.at.min(self.bytes.len())..].iter().take_while(|b| b.is_ascii_digit()).count();
        if !matches!(self.peek_at(digits), Some(b'<' | b'>')) {
            if self.flavour == Flavour::Ash && self.sees("&>") {
                self.odd("`&>`");
                let operator = if self.sees("&>>") { "&>>" } else { "&>" };
                self.at += operator.len();
                self.out.push_str(operator);
                self.skip_blanks();
                self.plain_word()?;
                return Ok(true);
            }
            return Ok(false);
        }
        if digits > 1 {
            // A word for dash, a descriptor for bash.
            self.odd("a descriptor of several digits");
            return Ok(false);
        }
        let descriptor = &self.text[self.at..self.at + digits];
        if self.at > 0 && digits > 0 && !is_delimiter(self.bytes[self.at - 1]) {
            self.odd("a redirect directly behind a word");
        }
        self.at += digits;
        const OPERATORS: &[&str] = &["<<-", "<<", "<&", "<>", "<", ">>", ">&", ">|", ">"];
        let Some(operator) = OPERATORS.iter().find(|operator| self.sees(operator)) else {
            return Err(Stop::Syntax);
        };
        self.at += operator.len();
        self.skeleton.redirect(descriptor, operator);
        self.out.push_str(descriptor);
        self.out.push_str(operator);
        match (*operator, self.peek()) {
            ("<<", Some(b'<')) => {
                self.odd("`<<<`");
                return Err(Stop::Syntax);
            }
            ("<" | ">", Some(b'(')) => return self.process_substitution(),
            _ => {}
        }
        self.skip_blanks();
        if operator.starts_with("<<") {
            self.here_document(*operator == "<<-")?;
            self.out.push(' ');
            return Ok(true);
        }
        if self.peek().is_none_or(is_delimiter) {
            return Err(Stop::Syntax);
        }
        let target = self.plain_word()?;
        if operator.ends_with('&') {
            let single = target == "-" || (target.len() == 1 && target.as_bytes()[0].is_ascii_digit());
            if !single {
                self.odd("`>&` with anything but one digit or `-`");
            }
        }
        Ok(true)
    }

    fn process_substitution(&mut self) -> Read<bool> {
        self.odd("`<(...)`");
        match self.flavour {
            Flavour::Dash => Err(Stop::Syntax),
            Flavour::Ash => {
                self.at += 1;
                self.out.push_str("( ");
                self.nested(|r| r.list_until_paren())?;
                self.out.push_str(") ");
                Ok(true)
            }
        }
    }
}

/// `name=...`.
fn is_assignment(raw: &str) -> bool {
    let len = name_len(raw);
    len > 0 && raw[len..].starts_with('=')
}

/// Whether an expansion stands outside of quotes; some shells split its value.
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
