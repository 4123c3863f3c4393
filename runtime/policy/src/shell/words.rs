//! Words: quotes, expansions, nested code, here-documents.

use super::super::output::take_digits;
use super::{
    Expansion, Part, Pending, Piece, Read, Reader, Stop, Word, is_delimiter, is_name_byte, name_len,
};

/// Context of an expansion, which decides how quotes in it are read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Context {
    Bare,
    Double,
    Document,
}

/// Most words into which the braces of one word are expanded.
const MOST_ALTERNATIVES: usize = 64;

impl Word {
    /// A word of unknown value, with all the code in it.
    pub(super) fn unknown_value(parts: Vec<Part>) -> Self {
        let piece = Piece::Beyond(Expansion::Unknown, parts);
        Self { parts: vec![Part { piece, quoted: true }], ..Self::default() }
    }
}

fn push_char(parts: &mut Vec<Part>, c: char, quoted: bool) {
    match parts.last_mut() {
        Some(Part { piece: Piece::Text(text), quoted: same }) if *same == quoted => text.push(c),
        _ => push_text(parts, c, quoted),
    }
}

fn push_text(parts: &mut Vec<Part>, text: impl Into<String>, quoted: bool) {
    parts.push(Part { piece: Piece::Text(text.into()), quoted });
}

impl Reader<'_> {
    /// Reads one word, which is required.
    pub(super) fn read_word(&mut self) -> Read<Word> {
        let start = self.at;
        let word = self.read_value()?;
        if self.at == start { Err(Stop::Syntax) } else { Ok(word) }
    }

    /// Reads a word that may be empty, such as the value after `name=`.
    pub(super) fn read_value(&mut self) -> Read<Word> {
        let start = self.at;
        let mut parts = Vec::new();
        let mut has_braces = false;
        if self.is_at("<(") || self.is_at(">(") {
            self.flag_unsupported("`<(...)`");
            self.at += 2;
            let list = self.read_nested(Self::list_until_paren)?;
            parts.push(Part { piece: Piece::Process(list), quoted: true });
        }
        if self.peek() == Some(b'~') {
            self.read_tilde(&mut parts);
        }
        while let Some(byte) = self.peek() {
            match byte {
                b'\'' => {
                    let rest = &self.remaining_text()[1..];
                    let len = rest.find('\'').ok_or(Stop::Syntax)?;
                    push_text(&mut parts, &rest[..len], true);
                    self.at += len + 2;
                }
                b'"' => self.double_quoted(&mut parts)?,
                b'`' => parts.push(self.read_backquoted(Context::Bare)?),
                b'$' => self.read_dollar(Context::Bare, &mut parts)?,
                b'\\' => self.read_escaped(&mut parts),
                _ if is_delimiter(byte) => break,
                _ => {
                    if byte == b'{' && self.may_be_braces() {
                        self.flag_unsupported("a brace expansion");
                        has_braces = true;
                    } else if byte == b'[' && self.peek_at(1) == Some(b'^') {
                        self.flag_unsupported("`[^...]`");
                    }
                    if let Some(c) = self.take_char() {
                        push_char(&mut parts, c, false);
                    }
                }
            }
        }
        let mut alternatives = Vec::new();
        if has_braces && self.depth < self.nesting {
            let mut texts = Vec::new();
            expand_braces(&self.text[start..self.at], &mut texts);
            for text in texts.iter().filter(|text| texts.len() > 1 && !text.is_empty()) {
                let mut reader = Reader::new(text, self.nesting);
                reader.depth = self.nesting;
                alternatives.extend(reader.read_word());
            }
        }
        Ok(Word { parts, alternatives, span: Some(self.text_span(start, self.at)) })
    }

    fn read_tilde(&mut self, parts: &mut Vec<Part>) {
        let user = &self.remaining_text()[1..];
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '+');
        let end = user.find(|c| !is_part(c)).unwrap_or(user.len());
        let ends = user[end..].starts_with('/') || user.as_bytes().get(end).is_none_or(|b| is_delimiter(*b));
        if user.starts_with(['+', '-']) || user.starts_with(|c: char| c.is_ascii_digit()) {
            self.flag_unsupported("`~+`");
            parts.push(Part { piece: Piece::Beyond(Expansion::Unknown, Vec::new()), quoted: true });
            self.at += 2;
        } else if ends {
            parts.push(Part { piece: Piece::Tilde(user[..end].to_owned()), quoted: true });
            self.at += end + 1;
        }
    }

    /// True if bash may expand the brace at this position.
    fn may_be_braces(&self) -> bool {
        let rest = &self.bytes[self.at..];
        let end = rest.iter().position(|b| is_delimiter(*b)).unwrap_or(rest.len());
        // Quotes may hide blanks; then the rest of the text is searched.
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

    fn read_escaped(&mut self, parts: &mut Vec<Part>) {
        self.at += 1;
        match self.peek() {
            None => {
                self.flag_unsupported("a backslash at the end");
                push_char(parts, '\\', true);
            }
            Some(b'\n') => {
                self.flag_unsupported("a line that continues inside a word");
                self.at += 1;
            }
            Some(_) => {
                if let Some(c) = self.take_char() {
                    push_char(parts, c, true);
                }
            }
        }
    }

    fn double_quoted(&mut self, parts: &mut Vec<Part>) -> Read<()> {
        self.at += 1;
        let before = parts.len();
        loop {
            match self.peek() {
                None => return Err(Stop::Syntax),
                Some(b'"') => {
                    self.at += 1;
                    if parts.len() == before {
                        push_text(parts, "", true);
                    }
                    return Ok(());
                }
                Some(_) => self.quoted_char(Context::Double, parts)?,
            }
        }
    }

    /// Reads a character or an expansion in double quotes or in a here-document.
    fn quoted_char(&mut self, context: Context, parts: &mut Vec<Part>) -> Read<()> {
        match self.peek() {
            Some(b'\\') => {
                let next = self.peek_at(1);
                if next == Some(b'\n') {
                    self.flag_unsupported("a line that continues inside a word");
                    self.at += 2;
                    return Ok(());
                }
                let is_special = matches!(next, Some(b'$' | b'`' | b'\\'))
                    || (next == Some(b'"') && context == Context::Double);
                if is_special {
                    self.at += 1;
                } else {
                    push_char(parts, '\\', true);
                    self.at += 1;
                    if next == Some(b'"') {
                        return Ok(());
                    }
                }
                if let Some(c) = self.take_char() {
                    push_char(parts, c, true);
                }
            }
            Some(b'`') => parts.push(self.read_backquoted(context)?),
            Some(b'$') => self.read_dollar(context, parts)?,
            _ => {
                if let Some(c) = self.take_char() {
                    push_char(parts, c, true);
                }
            }
        }
        Ok(())
    }

    /// `` `code` ``, which is read as `$(code)`.
    fn read_backquoted(&mut self, context: Context) -> Read<Part> {
        let start = self.at + 1;
        let mut code = String::new();
        let mut rest = self.text[start..].char_indices();
        let end = loop {
            match rest.next() {
                None => return Err(Stop::Syntax),
                Some((at, '`')) => break start + at,
                Some((_, '\\')) => {
                    self.flag_unsupported("a backslash inside backquotes");
                    match rest.next() {
                        None => return Err(Stop::Syntax),
                        Some((_, c @ ('\\' | '`' | '$'))) => code.push(c),
                        Some((_, '"')) if context == Context::Double => code.push('"'),
                        Some((_, c)) => code.extend(['\\', c]),
                    }
                }
                Some((_, c)) => {
                    if c == '"' && context != Context::Bare {
                        self.flag_unsupported("a double quote inside quoted backquotes");
                    }
                    code.push(c);
                }
            }
        };
        let list = self.one_level_deeper(|outer| {
            let mut inner = Reader::new(&code, outer.nesting);
            inner.depth = outer.depth;
            let list = inner.read_program();
            if let Some(beyond) = inner.beyond {
                outer.flag_unsupported(beyond.what);
            }
            list
        })?;
        self.at = end + 1;
        Ok(Part { piece: Piece::Code(list), quoted: context != Context::Bare })
    }

    /// Reads code that is separate from the words around it.
    fn read_nested<T>(&mut self, inside: impl FnOnce(&mut Self) -> Read<T>) -> Read<T> {
        let pending = std::mem::take(&mut self.pending);
        let result = self.one_level_deeper(inside);
        let unfinished = !self.pending.is_empty();
        self.pending = pending;
        if unfinished && result.is_ok() {
            return self.give_up("a here-document that ends with its substitution");
        }
        result
    }

    fn read_dollar(&mut self, context: Context, parts: &mut Vec<Part>) -> Read<()> {
        let quoted = context != Context::Bare;
        if context == Context::Document
            && self.peek_at(1).is_some_and(|b| b"({[$@*#?-!".contains(&b) || is_name_byte(b))
        {
            self.flag_unsupported("an expansion in a here-document");
        }
        let name = |len: usize, text: &str| text[1..len].to_owned();
        let rest = self.remaining_text();
        let (len, piece) = match self.peek_at(1) {
            Some(b'(') if self.is_at("$((") => {
                self.flag_unsupported("arithmetic");
                match closed_arithmetic(&rest[1..]) {
                    Some(len) => {
                        let end = self.at + len - 1;
                        self.at += 3;
                        let inside = self.one_level_deeper(|r| r.parts_until(end))?;
                        (2, Piece::Beyond(Expansion::Number, inside))
                    }
                    None => return self.read_substitution(quoted, parts),
                }
            }
            Some(b'(') => return self.read_substitution(quoted, parts),
            Some(b'{') => return self.one_level_deeper(|r| r.read_braced(context, parts)),
            Some(b'\'') if context == Context::Bare => {
                self.flag_unsupported("`$'...'`");
                let end = ansi_c_end(rest).ok_or(Stop::Syntax)?;
                let piece = match decode_ansi_c(&rest[2..end]) {
                    Some(text) => Piece::Text(text),
                    None => Piece::Beyond(Expansion::Unshowable, Vec::new()),
                };
                self.at += end + 1;
                parts.push(Part { piece, quoted: true });
                return Ok(());
            }
            Some(b'"') if context == Context::Bare => {
                self.flag_unsupported("`$\"...\"`");
                self.at += 1;
                return Ok(());
            }
            Some(b'[') => {
                self.flag_unsupported("`$[...]`");
                (1, Piece::Text("$".to_owned()))
            }
            Some(digit) if digit.is_ascii_digit() => {
                if self.peek_at(2).is_some_and(|b| b.is_ascii_digit()) {
                    self.flag_unsupported("`$` with several digits and no braces");
                }
                (2, Piece::Parameter(name(2, rest)))
            }
            Some(b'@' | b'*' | b'#' | b'?' | b'-' | b'$' | b'!') => (2, Piece::Parameter(name(2, rest))),
            Some(byte) if is_name_byte(byte) => {
                let len = 1 + name_len(&rest[1..]);
                (len, Piece::Parameter(name(len, rest)))
            }
            Some(b'\\') if self.peek_at(2) == Some(b'\n') => {
                return self.give_up("a line that continues after `$`");
            }
            Some(_) | None => (1, Piece::Text("$".to_owned())),
        };
        self.at += len;
        parts.push(Part { piece, quoted });
        Ok(())
    }

    /// `$(code)`.
    fn read_substitution(&mut self, quoted: bool, parts: &mut Vec<Part>) -> Read<()> {
        self.at += 2;
        if self.remaining_text().trim_start().starts_with('<') {
            self.flag_unsupported("`$(<file)`");
        }
        let list = self.read_nested(Self::list_until_paren)?;
        parts.push(Part { piece: Piece::Code(list), quoted });
        Ok(())
    }

    /// Reads the parts up to a position, past any quotes.
    pub(super) fn parts_until(&mut self, end: usize) -> Read<Vec<Part>> {
        let mut parts = Vec::new();
        while self.at < end {
            self.quoted_char(Context::Double, &mut parts)?;
        }
        if self.at > end { self.give_up("an expansion that ends inside another") } else { Ok(parts) }
    }

    /// `${…}`; if it contains more than a name, it is beyond the language.
    fn read_braced(&mut self, context: Context, parts: &mut Vec<Part>) -> Read<()> {
        let quoted = context != Context::Bare;
        let start = self.at;
        self.at += 2;
        let plain = self.parameter_len();
        if plain > 0 && self.peek_at(plain) == Some(b'}') {
            let piece = Piece::Parameter(self.remaining_text()[..plain].to_owned());
            self.at += plain + 1;
            parts.push(Part { piece, quoted });
            return Ok(());
        }
        self.at = start;
        self.flag_unsupported("an expansion such as `${x:-y}`");
        self.at += 2;
        if matches!(self.peek(), Some(b'#' | b'!')) {
            self.at += 1;
        }
        let len = self.parameter_len();
        let mut name = self.remaining_text()[..len].to_owned();
        self.at += len;
        let is_direct = self.at == start + 2 + len;
        let mut inside = Vec::new();
        if self.peek() == Some(b'[')
            && let Some(end) = self.remaining_text().find(']')
        {
            name.push_str(&self.remaining_text()[..=end]);
            let end = self.at + end;
            inside = self.parts_until(end)?;
            inside.retain(|part| !matches!(part.piece, Piece::Text(_)));
            self.at = end + 1;
            if name.ends_with("[@]") && self.peek() == Some(b'}') && is_direct && inside.is_empty() {
                self.at += 1;
                parts.push(Part { piece: Piece::Parameter(name), quoted });
                return Ok(());
            }
        }
        let behind = self.remaining_text();
        let operators = [":-", ":=", ":?", ":+", "-", "=", "?", "+"];
        let operator = operators.into_iter().find(|operator| behind.starts_with(operator)).unwrap_or("");
        self.at += operator.len();
        loop {
            match self.peek() {
                None => return Err(Stop::Syntax),
                Some(b'}') => break,
                Some(b'\'') if !quoted => {
                    let rest = &self.remaining_text()[1..];
                    let len = rest.find('\'').ok_or(Stop::Syntax)?;
                    push_text(&mut inside, &rest[..len], true);
                    self.at += len + 2;
                }
                Some(b'"') => self.double_quoted(&mut inside)?,
                Some(_) => self.quoted_char(context, &mut inside)?,
            }
        }
        self.at += 1;
        let expansion = match operator {
            "-" | ":-" if is_direct => Expansion::Default(name),
            "=" | ":=" if is_direct => Expansion::Assign(name),
            "?" | ":?" if is_direct => Expansion::Checked(name),
            "+" | ":+" => Expansion::Alternative(name),
            _ if behind.starts_with("@P") => Expansion::Prompt,
            _ if is_direct => Expansion::Changed(name),
            _ => Expansion::Unknown,
        };
        parts.push(Part { piece: Piece::Beyond(expansion, inside), quoted });
        Ok(())
    }

    /// Length of the parameter name at this position.
    fn parameter_len(&self) -> usize {
        let rest = self.remaining_text();
        match rest.bytes().next() {
            Some(b'@' | b'*' | b'#' | b'?' | b'-' | b'$' | b'!') => 1,
            Some(digit) if digit.is_ascii_digit() => rest.bytes().take_while(u8::is_ascii_digit).count(),
            Some(_) | None => name_len(rest),
        }
    }

    /// Reads the bodies of the here-documents that begin after a line end.
    pub(super) fn here_bodies(&mut self) -> Read<()> {
        for Pending { delimiter, strip, expand, body } in std::mem::take(&mut self.pending) {
            let start = self.at;
            let mut line = start;
            let (body_end, next) = loop {
                if line >= self.bytes.len() {
                    self.flag_unsupported("a here-document without an end");
                    break (self.bytes.len(), self.bytes.len());
                }
                let end = self.text[line..].find('\n').map_or(self.bytes.len(), |len| line + len);
                let content = &self.text[line..end];
                let content = if strip { content.trim_start_matches('\t') } else { content };
                let next = (end + 1).min(self.bytes.len());
                if content == delimiter {
                    break (line, next);
                }
                line = if end == self.bytes.len() { end } else { next };
            };
            let mut parts = Vec::new();
            if expand {
                while self.at < body_end {
                    self.quoted_char(Context::Document, &mut parts)?;
                }
                if self.at > body_end {
                    return self.give_up("code that continues after its here-document");
                }
            } else {
                push_text(&mut parts, &self.text[start..body_end], true);
            }
            if strip {
                for part in &mut parts {
                    if let Piece::Text(text) = &mut part.piece {
                        let lines: Vec<&str> = text.split('\n').map(|l| l.trim_start_matches('\t')).collect();
                        *text = lines.join("\n");
                    }
                }
            }
            let _ = body.set(Word { parts, ..Word::default() });
            self.at = next;
        }
        Ok(())
    }
}

/// Expands the braces of a word, one word per alternative.
fn expand_braces(raw: &str, out: &mut Vec<String>) {
    let mut depth = 0;
    let mut open = 0;
    let mut cuts = Vec::new();
    for (at, c) in raw.char_indices() {
        match c {
            '{' if !raw[..at].ends_with(['$', '\\']) => {
                if depth == 0 {
                    (open, cuts) = (at, vec![at]);
                }
                depth += 1;
            }
            ',' if depth == 1 => cuts.push(at),
            '}' if depth > 0 => {
                depth -= 1;
                if depth == 0 && cuts.len() > 1 {
                    cuts.push(at);
                    for pair in cuts.windows(2) {
                        let item = &raw[pair[0] + 1..pair[1]];
                        expand_braces(&format!("{}{item}{}", &raw[..open], &raw[at + 1..]), out);
                    }
                    return;
                }
            }
            _ => {}
        }
    }
    if out.len() < MOST_ALTERNATIVES {
        out.push(raw.to_owned());
    }
}

/// Length of the arithmetic expression at the start of `source`, if the `)` of its second parenthesis
/// directly precedes the `)` of its first.
fn closed_arithmetic(source: &str) -> Option<usize> {
    let mut depth = 0usize;
    let mut quote: Option<u8> = None;
    let bytes = source.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match (quote, bytes[at]) {
            (_, b'\\') => at += 1,
            (Some(q), c) if c == q => quote = None,
            (Some(_), _) => {}
            (None, c @ (b'\'' | b'"')) => quote = Some(c),
            (None, b'(') => depth += 1,
            (None, b')') => {
                depth = depth.saturating_sub(1);
                if depth == 1 {
                    return (bytes.get(at + 1) == Some(&b')')).then_some(at + 2);
                }
            }
            (None, _) => {}
        }
        at += 1;
    }
    None
}

/// Position of the `'` that ends `$'…'`.
fn ansi_c_end(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.char_indices().skip(2).find_map(|(at, c)| {
        let ends = c == '\'' && !escaped;
        escaped = c == '\\' && !escaped;
        ends.then_some(at)
    })
}

/// Decodes the text of `$'...'`; `None` if it stands for a character that cannot be displayed.
fn decode_ansi_c(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        let (radix, most) = match rest.peek()? {
            'x' => (16, 2),
            'u' => (16, 4),
            'U' => (16, 8),
            '0'..='7' => (8, 3),
            _ => {
                out.push(match rest.next()? {
                    'n' => '\n',
                    't' => '\t',
                    'a' | 'b' | 'e' | 'E' | 'f' | 'r' | 'v' | 'c' => return None,
                    other => other,
                });
                continue;
            }
        };
        if radix == 16 {
            rest.next();
        }
        let decoded = char::from_u32(take_digits(&mut rest, 0, radix, most))?;
        if decoded != '\n' && decoded != '\t' && decoded.is_control() {
            return None;
        }
        out.push(decoded);
    }
    Some(out)
}
