//! Words: quotes, expansions, nested code, here-documents.

use super::{Flavour, Pending, Read, Reader, Stop, is_delimiter, is_name_byte, name_len};

/// Where an expansion stands, which decides what quotes in it mean.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Context {
    Bare,
    Double,
    Document,
    Arithmetic,
}

impl Reader<'_> {
    /// Reads one word; its source is what stood between the old and the new
    /// position. The rewritten word goes to the output.
    pub(super) fn word(&mut self) -> Read<()> {
        let start = self.at;
        if self.peek() == Some(b'~')
            && self.peek_at(1).is_some_and(|b| matches!(b, b'+' | b'-') || b.is_ascii_digit())
        {
            self.odd("`~+`");
            self.out.push('\\');
        }
        while let Some(byte) = self.peek() {
            match byte {
                b'\'' => self.single_quoted()?,
                b'"' => self.double_quoted()?,
                b'`' => self.backquoted(Context::Bare)?,
                b'$' => self.dollar(Context::Bare)?,
                b'\\' => self.escaped()?,
                b'{' => {
                    if self.may_be_braces() {
                        self.odd("a brace expansion");
                        self.out.push('\\');
                    }
                    self.copy_char();
                }
                b'[' => {
                    if self.peek_at(1) == Some(b'^') {
                        self.odd("`[^...]`");
                    }
                    self.copy_char();
                }
                _ if is_delimiter(byte) => break,
                _ => self.copy_char(),
            }
        }
        if self.at == start {
            return Err(Stop::Syntax);
        }
        Ok(())
    }

    /// Whether bash may expand the brace that stands here.
    fn may_be_braces(&self) -> bool {
        let rest = &self.bytes[self.at..];
        let end = rest.iter().position(|b| is_delimiter(*b)).unwrap_or(rest.len());
        // Quotes may hide blanks; then the rest of the text is looked at.
        let rest = if rest[..end].iter().any(|b| matches!(b, b'\'' | b'"' | b'\\' | b'$' | b'`')) {
            rest
        } else {
            &rest[..end]
        };
        let Some(close) = rest.iter().rposition(|b| *b == b'}') else {
            return false;
        };
        let inner = &rest[1..close.max(1)];
        inner.contains(&b',') || inner.windows(2).any(|pair| pair == b"..")
    }

    fn escaped(&mut self) -> Read<()> {
        match self.peek_at(1) {
            None => {
                self.odd("a backslash at the end");
                self.out.push_str("\\\\");
                self.at += 1;
            }
            Some(b'\n') => {
                self.odd("a line that goes on inside a word");
                self.at += 2;
            }
            Some(_) => {
                self.copy_char();
                self.copy_char();
            }
        }
        Ok(())
    }

    fn single_quoted(&mut self) -> Read<()> {
        let Some(len) = self.text[self.at + 1..].find('\'') else {
            return Err(Stop::Syntax);
        };
        let end = self.at + len + 2;
        self.out.push_str(&self.text[self.at..end]);
        self.at = end;
        Ok(())
    }

    fn double_quoted(&mut self) -> Read<()> {
        self.copy_char();
        loop {
            match self.peek() {
                None => return Err(Stop::Syntax),
                Some(b'"') => {
                    self.copy_char();
                    return Ok(());
                }
                Some(b'\\') => {
                    if self.peek_at(1) == Some(b'\n') && self.bytes[self.at - 1] == b'$' {
                        return self.lose("a line that goes on after `$`");
                    }
                    self.copy_char();
                    self.copy_char();
                }
                Some(b'`') => self.backquoted(Context::Double)?,
                Some(b'$') => self.dollar(Context::Double)?,
                Some(_) => self.copy_char(),
            }
        }
    }

    /// `` `code` ``, which becomes `$(code)`.
    fn backquoted(&mut self, context: Context) -> Read<()> {
        let start = self.at + 1;
        let mut code = String::new();
        let mut rest = self.text[start..].char_indices();
        let end = loop {
            match rest.next() {
                None => return Err(Stop::Syntax),
                Some((at, '`')) => break start + at,
                Some((_, '\\')) => {
                    self.odd("a backslash inside backquotes");
                    match rest.next() {
                        None => return Err(Stop::Syntax),
                        Some((_, c @ ('\\' | '`' | '$'))) => code.push(c),
                        Some((_, '"')) if context == Context::Double => code.push('"'),
                        Some((_, c)) => code.extend(['\\', c]),
                    }
                }
                Some((_, c)) => {
                    if c == '"' && context != Context::Bare {
                        self.odd("a double quote inside quoted backquotes");
                    }
                    code.push(c);
                }
            }
        };
        let (rewritten, oddity, lost, result) = self.deeper(|outer| {
            let mut inner = Reader::new(&code, outer.flavour, outer.depth);
            let result = inner.program();
            Ok((inner.out, inner.oddity, inner.lost, result))
        })?;
        if let Some(oddity) = oddity {
            self.odd(oddity.what);
        }
        self.lost |= lost;
        result?;
        self.out.push_str("$(");
        self.out.push_str(&rewritten);
        self.out.push_str("\n)");
        self.codes.push(rewritten.trim().to_owned());
        self.at = end + 1;
        Ok(())
    }

    pub(super) fn dollar(&mut self, context: Context) -> Read<()> {
        match self.peek_at(1) {
            Some(b'(') if self.peek_at(2) == Some(b'(') => self.arithmetic(),
            Some(b'(') => self.substitution(),
            Some(b'{') => self.deeper(|r| r.braced(context)),
            Some(b'\'') if context == Context::Bare => {
                self.odd("`$'...'`");
                match self.flavour {
                    Flavour::Dash => {
                        self.at += 1;
                        self.out.push_str("'$'");
                        Ok(())
                    }
                    Flavour::Ash => self.ansi_c_quoted(),
                }
            }
            Some(b'"') if context == Context::Bare => {
                self.odd("`$\"...\"`");
                self.at += 1;
                self.out.push_str("'$'");
                Ok(())
            }
            Some(b'[') => {
                self.odd("`$[...]`");
                self.at += 1;
                self.out.push_str("'$'");
                Ok(())
            }
            Some(digit) if digit.is_ascii_digit() => {
                if self.peek_at(2).is_some_and(|b| b.is_ascii_digit()) {
                    self.odd("`$` with several digits and no braces");
                }
                self.copy_char();
                self.copy_char();
                Ok(())
            }
            Some(b'@' | b'*' | b'#' | b'?' | b'-' | b'$' | b'!') => {
                self.copy_char();
                self.copy_char();
                Ok(())
            }
            Some(byte) if is_name_byte(byte) => {
                self.copy_char();
                while self.peek().is_some_and(is_name_byte) {
                    self.copy_char();
                }
                Ok(())
            }
            Some(b'\\') if self.peek_at(2) == Some(b'\n') => self.lose("a line that goes on after `$`"),
            Some(_) | None => {
                self.copy_char();
                Ok(())
            }
        }
    }

    fn ansi_c_quoted(&mut self) -> Read<()> {
        self.copy_char();
        self.copy_char();
        loop {
            match self.peek() {
                None => return Err(Stop::Syntax),
                Some(b'\'') => {
                    self.copy_char();
                    return Ok(());
                }
                Some(b'\\') => {
                    self.copy_char();
                    self.copy_char();
                }
                Some(_) => self.copy_char(),
            }
        }
    }

    /// `$(code)`.
    fn substitution(&mut self) -> Read<()> {
        self.out.push_str("$( ");
        let begun = self.out.len();
        self.at += 2;
        if self.text[self.at..].trim_start().starts_with('<') {
            self.odd("`$(<file)`");
        }
        self.nested(|r| r.list_until_paren())?;
        self.codes.push(self.out[begun..].trim().to_owned());
        self.out.push(')');
        Ok(())
    }

    /// Reads code that is not part of the words around it.
    pub(super) fn nested(&mut self, inside: impl FnOnce(&mut Self) -> Read<()>) -> Read<()> {
        let skeleton = std::mem::take(&mut self.skeleton);
        let codes = std::mem::take(&mut self.codes);
        let pending = std::mem::take(&mut self.pending);
        let result = self.deeper(inside);
        let unfinished = !self.pending.is_empty();
        (self.skeleton, self.codes, self.pending) = (skeleton, codes, pending);
        if unfinished && result.is_ok() {
            return self.lose("a here-document that ends with its substitution");
        }
        result
    }

    fn arithmetic(&mut self) -> Read<()> {
        self.out.push_str("$((");
        self.at += 3;
        let mut depth = 0usize;
        loop {
            match self.peek() {
                None => return Err(Stop::Syntax),
                Some(b'(') => {
                    depth += 1;
                    self.copy_char();
                }
                Some(b')') if depth > 0 => {
                    depth -= 1;
                    self.copy_char();
                }
                Some(b')') => {
                    if self.peek_at(1) != Some(b')') {
                        return self.lose("`$((` without `))`");
                    }
                    self.out.push_str("))");
                    self.at += 2;
                    return Ok(());
                }
                Some(b'$') => {
                    if self.peek_at(1) == Some(b'[') {
                        return self.lose("`$[...]`");
                    }
                    self.deeper(|r| r.dollar(Context::Arithmetic))?;
                }
                // The parser keeps one blank where there are several.
                Some(b' ' | b'\t' | b'\n') => {
                    if !self.out.ends_with(' ') {
                        self.out.push(' ');
                    }
                    self.at += 1;
                }
                Some(byte) if byte.is_ascii_alphanumeric() || b"_+-*/%<>=!&|^~?:,".contains(&byte) => {
                    self.copy_char();
                }
                Some(_) => return self.lose("quotes or brackets in arithmetic"),
            }
        }
    }

    /// `${...}`.
    fn braced(&mut self, context: Context) -> Read<()> {
        let start = self.at;
        self.out.push_str("${");
        self.at += 2;
        if self.peek() == Some(b'#') && self.peek_at(1) != Some(b'}') {
            self.copy_char();
            let name = self.parameter_len();
            if name == 0 || self.peek_at(name) != Some(b'}') {
                return self.bad_substitution(start);
            }
            return self.copy_until(name + 1);
        }
        let name = self.parameter_len();
        if name == 0 {
            return self.bad_substitution(start);
        }
        self.copy_until(name)?;
        let operator = match (self.peek(), self.peek_at(1)) {
            (Some(b'}'), _) => 0,
            (Some(b':'), Some(b'-' | b'=' | b'?' | b'+')) => 2,
            (Some(b'-' | b'=' | b'?' | b'+'), _) => 1,
            (Some(b'%'), Some(b'%')) | (Some(b'#'), Some(b'#')) => 2,
            (Some(b'%' | b'#'), _) => 1,
            _ => return self.bad_substitution(start),
        };
        self.copy_until(operator)?;
        loop {
            match self.peek() {
                None => return Err(Stop::Syntax),
                Some(b'}') => {
                    self.copy_char();
                    return Ok(());
                }
                Some(b'\'') if context == Context::Bare => self.single_quoted()?,
                Some(b'"') if context == Context::Bare => self.double_quoted()?,
                Some(b'\\') if context == Context::Bare && self.peek_at(1) != Some(b'\n') => {
                    self.escaped()?
                }
                Some(b'\'' | b'"' | b'\\' | b'`') => return self.lose("quotes inside a quoted `${...}`"),
                Some(b'$') => {
                    if matches!(self.peek_at(1), Some(b'\'' | b'"' | b'[')) {
                        return self.lose("`$'...'` inside `${...}`");
                    }
                    self.dollar(context)?;
                }
                Some(b'{' | b';' | b'&' | b'<' | b'>' | b'(' | b')' | b'|' | b'\n' | b'~') => {
                    return self.lose("an operator inside `${...}`");
                }
                Some(b'[') if self.peek_at(1) == Some(b'^') => return self.lose("`[^...]`"),
                Some(_) => self.copy_char(),
            }
        }
    }

    /// The length of the parameter name that stands here.
    fn parameter_len(&self) -> usize {
        let rest = &self.text[self.at..];
        match rest.bytes().next() {
            Some(b'@' | b'*' | b'#' | b'?' | b'-' | b'$' | b'!') => 1,
            Some(digit) if digit.is_ascii_digit() => rest.bytes().take_while(u8::is_ascii_digit).count(),
            Some(_) | None => name_len(rest),
        }
    }

    fn copy_until(&mut self, len: usize) -> Read<()> {
        for _ in 0..len {
            self.copy_char();
        }
        Ok(())
    }

    /// `${x/a/b}` and its like: dash gives up when it comes to it.
    fn bad_substitution(&mut self, start: usize) -> Read<()> {
        self.odd("an expansion such as `${x/a/b}` or `${!x}`");
        let rest = &self.text[self.at..];
        let Some(end) = rest.find('}') else {
            return Err(Stop::Syntax);
        };
        let plain = |b: u8| is_name_byte(b) || b"*@?#!^,/:.%+-=[] ".contains(&b);
        if !rest[..end].bytes().all(plain) {
            return self.lose("an expansion such as `${x/a/b}`");
        }
        self.at += end + 1;
        let written = self.out.rfind("${").unwrap_or(self.out.len());
        self.out.truncate(written);
        self.out.push_str(&self.text[start..self.at]);
        Ok(())
    }

    /// Reads `<<delimiter`; the body comes after the next line end.
    pub(super) fn here_document(&mut self, strip: bool) -> Read<()> {
        let start = self.at;
        let mut scratch = std::mem::take(&mut self.out);
        let read = self.word();
        std::mem::swap(&mut self.out, &mut scratch);
        read?;
        let raw = &self.text[start..self.at];
        let plain = |text: &str| {
            !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-+@%".contains(&b))
        };
        let unquoted = ['\'', '"'].iter().find_map(|q| raw.strip_prefix(*q)?.strip_suffix(*q));
        let unquoted = unquoted.or_else(|| raw.strip_prefix('\\'));
        let (delimiter, expand) = match unquoted {
            Some(inner) if plain(inner) => (inner, false),
            None if plain(raw) => (raw, true),
            Some(_) | None => return self.lose("a here-document whose delimiter is quoted this way"),
        };
        self.skeleton.word(raw);
        self.out.push_str(raw);
        self.pending.push(Pending { delimiter: delimiter.to_owned(), strip, expand });
        Ok(())
    }

    /// Reads the bodies that begin where a line ended.
    pub(super) fn here_bodies(&mut self) -> Read<()> {
        for doc in std::mem::take(&mut self.pending) {
            let start = self.at;
            let mut line = start;
            let (body_end, next) = loop {
                if line >= self.bytes.len() {
                    self.odd("a here-document without an end");
                    break (self.bytes.len(), self.bytes.len());
                }
                let end = self.text[line..].find('\n').map_or(self.bytes.len(), |len| line + len);
                let mut content = &self.text[line..end];
                if doc.strip {
                    content = content.trim_start_matches('\t');
                }
                let next = (end + 1).min(self.bytes.len());
                if content == doc.delimiter {
                    break (line, next);
                }
                line = if end == self.bytes.len() { end } else { next };
            };
            self.skeleton.document(&self.text[start..body_end], doc.expand);
            if doc.expand {
                self.document_body(body_end)?;
            } else {
                self.out.push_str(&self.text[start..body_end]);
            }
            if !self.out.ends_with('\n') {
                self.out.push('\n');
            }
            self.out.push_str(&doc.delimiter);
            self.out.push('\n');
            self.at = next;
        }
        Ok(())
    }

    fn document_body(&mut self, end: usize) -> Read<()> {
        while self.at < end {
            match self.bytes[self.at] {
                b'\\' => {
                    if self.peek_at(1) == Some(b'\n') {
                        return self.lose("a line that goes on inside a here-document");
                    }
                    self.copy_char();
                    self.copy_char();
                }
                b'`' => self.backquoted(Context::Document)?,
                b'$' => self.dollar(Context::Document)?,
                _ => self.copy_char(),
            }
        }
        if self.at > end {
            return self.lose("code that goes on behind its here-document");
        }
        Ok(())
    }
}
