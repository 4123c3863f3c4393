//! Checks that text that arrives in pieces is JSON, and finds the ends of the items of its outermost list. It stores
//! only the open brackets.
//!
//! It accepts the same text as [`serde_json`]: one value in UTF-8 with complete escapes, no number beyond a double,
//! and at most [`MAX_DEPTH`] levels. It is several times as fast as parsing the values, and handles any size.

use super::MAX_DEPTH;

/// The text is not JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotPlain;

type Scanned<T> = Result<T, NotPlain>;

/// Up to this number of characters, a number without an exponent fits in a double.
const SAFE_DIGITS: usize = 300;

/// The state between two pieces.
#[derive(Clone, Debug)]
pub struct Scanner {
    state: State,
    open: Vec<Bracket>,
    /// True if the current string is a field's name.
    in_name: bool,
    /// The start of a number from earlier pieces.
    number: Vec<u8>,
    /// True to stop after each item of the outermost list.
    by_item: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bracket {
    List,
    Object,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A value is expected.
    Value,
    /// A value or the end of the list is expected.
    FirstValue,
    /// A name is expected.
    Name,
    /// A name or the end of the object is expected.
    FirstName,
    Colon,
    /// A comma or the end of the list or object is expected.
    AfterValue,
    Text(Text),
    Number(Number),
    /// The rest of `true`, `false` or `null` is expected.
    Word(&'static [u8]),
}

/// Inside a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Text {
    Plain,
    Escape,
    /// Four hex digits are expected; after the first half of a pair, they are the second half.
    Hex {
        left: u8,
        value: u16,
        second: bool,
    },
    /// `\` and then the `u` of the second half of a pair are expected.
    SecondHalf {
        u: bool,
    },
    /// Number of further bytes of a character, and the range of the next one.
    Character {
        left: u8,
        low: u8,
        high: u8,
    },
}

/// Inside a number, by the last part that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    Minus,
    Zero,
    Digits,
    Point,
    Fraction,
    E,
    Sign,
    Exponent,
}

impl Default for Scanner {
    fn default() -> Self {
        Self::new()
    }
}

impl Scanner {
    /// A scanner at the start of a text.
    #[must_use]
    pub fn new() -> Self {
        Self { state: State::Value, open: Vec::new(), in_name: false, number: Vec::new(), by_item: false }
    }

    /// A scanner for use with [`Scanner::next`], item by item.
    pub fn by_item() -> Self {
        Self { by_item: true, ..Self::new() }
    }

    /// Takes the next piece.
    pub fn push(&mut self, piece: &[u8]) -> Scanned<()> {
        let mut at = 0;
        while let Some(item) = self.next(piece, at)? {
            at = item;
        }
        Ok(())
    }

    /// Ends the text.
    pub fn finish_text(mut self) -> Scanned<()> {
        if let State::Number(part) = self.state {
            self.end_number(part, &[])?;
        }
        if self.state == State::AfterValue && self.open.is_empty() { Ok(()) } else { Err(NotPlain) }
    }

    /// Reads `piece` from `at` on: in item mode to the end of the next item of the outermost list, otherwise to the
    /// end of the piece (`None`).
    pub fn next(&mut self, piece: &[u8], mut at: usize) -> Scanned<Option<usize>> {
        while let Some(&byte) = piece.get(at) {
            match self.state {
                State::Text(text) => {
                    at = self.scan_text(text, piece, at)?;
                    if self.is_between_items() {
                        return Ok(Some(at));
                    }
                }
                State::Number(part) => {
                    at = self.scan_number(part, piece, at)?;
                    if self.is_between_items() {
                        return Ok(Some(at));
                    }
                }
                _ if matches!(byte, b' ' | b'\n' | b'\t' | b'\r')
                    && !matches!(self.state, State::Word(_)) =>
                {
                    at += 1;
                }
                State::Value | State::FirstValue => {
                    at += 1;
                    self.begin_value(byte)?;
                    if self.is_between_items() {
                        return Ok(Some(at));
                    }
                }
                State::Name | State::FirstName => {
                    at += 1;
                    match byte {
                        b'"' => {
                            self.in_name = true;
                            self.state = State::Text(Text::Plain);
                        }
                        b'}' if self.state == State::FirstName => {
                            self.close_bracket(Bracket::Object)?;
                            if self.is_between_items() {
                                return Ok(Some(at));
                            }
                        }
                        _ => return Err(NotPlain),
                    }
                }
                State::Colon if byte == b':' => {
                    at += 1;
                    self.state = State::Value;
                }
                State::Colon => return Err(NotPlain),
                State::AfterValue => {
                    at += 1;
                    match (byte, self.open.last()) {
                        (b',', Some(Bracket::List)) => self.state = State::Value,
                        (b',', Some(Bracket::Object)) => self.state = State::Name,
                        (b']', _) => self.close_bracket(Bracket::List)?,
                        (b'}', _) => self.close_bracket(Bracket::Object)?,
                        _ => return Err(NotPlain),
                    }
                    if byte != b',' && self.is_between_items() {
                        return Ok(Some(at));
                    }
                }
                State::Word(rest) => {
                    let matching = rest.iter().zip(&piece[at..]).take_while(|(a, b)| a == b).count();
                    at += matching;
                    self.state = match &rest[matching..] {
                        [] => State::AfterValue,
                        left if at == piece.len() => State::Word(left),
                        _ => return Err(NotPlain),
                    };
                    if self.is_between_items() {
                        return Ok(Some(at));
                    }
                }
            }
        }
        Ok(None)
    }

    /// True if an item of the outermost list has just ended.
    fn is_between_items(&self) -> bool {
        self.by_item && self.state == State::AfterValue && self.open.as_slice() == [Bracket::List]
    }

    fn begin_value(&mut self, byte: u8) -> Scanned<()> {
        self.state = match byte {
            b'"' => {
                self.in_name = false;
                State::Text(Text::Plain)
            }
            b'{' => self.open_bracket(Bracket::Object, State::FirstName)?,
            b'[' => self.open_bracket(Bracket::List, State::FirstValue)?,
            b']' if self.state == State::FirstValue => return self.close_bracket(Bracket::List),
            b't' => State::Word(b"rue"),
            b'f' => State::Word(b"alse"),
            b'n' => State::Word(b"ull"),
            b'-' => self.begin_number(byte, Number::Minus),
            b'0' => self.begin_number(byte, Number::Zero),
            b'1'..=b'9' => self.begin_number(byte, Number::Digits),
            _ => return Err(NotPlain),
        };
        Ok(())
    }

    fn open_bracket(&mut self, bracket: Bracket, then: State) -> Scanned<State> {
        if self.open.len() == MAX_DEPTH {
            return Err(NotPlain);
        }
        self.open.push(bracket);
        Ok(then)
    }

    fn close_bracket(&mut self, bracket: Bracket) -> Scanned<()> {
        if self.open.pop() != Some(bracket) {
            return Err(NotPlain);
        }
        self.state = State::AfterValue;
        Ok(())
    }

    fn scan_text(&mut self, mut text: Text, piece: &[u8], mut at: usize) -> Scanned<usize> {
        loop {
            if text == Text::Plain {
                at = end_of_plain(piece, at);
            }
            let Some(&byte) = piece.get(at) else {
                self.state = State::Text(text);
                return Ok(at);
            };
            at += 1;
            text = match text {
                Text::Plain => match byte {
                    b'"' => {
                        self.state = if self.in_name { State::Colon } else { State::AfterValue };
                        return Ok(at);
                    }
                    b'\\' => Text::Escape,
                    _ => begin_character(byte)?,
                },
                Text::Escape => match byte {
                    b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Text::Plain,
                    b'u' => Text::Hex { left: 4, value: 0, second: false },
                    _ => return Err(NotPlain),
                },
                Text::Hex { left, value, second } => add_hex_digit(byte, left, value, second)?,
                Text::SecondHalf { u: false } if byte == b'\\' => Text::SecondHalf { u: true },
                Text::SecondHalf { u: true } if byte == b'u' => Text::Hex { left: 4, value: 0, second: true },
                Text::SecondHalf { .. } => return Err(NotPlain),
                Text::Character { left, low, high } if (low..=high).contains(&byte) => match left {
                    1 => Text::Plain,
                    _ => Text::Character { left: left - 1, low: 0x80, high: 0xbf },
                },
                Text::Character { .. } => return Err(NotPlain),
            };
        }
    }

    fn begin_number(&mut self, byte: u8, part: Number) -> State {
        self.number.clear();
        self.number.push(byte);
        State::Number(part)
    }

    fn scan_number(&mut self, mut part: Number, piece: &[u8], begin: usize) -> Scanned<usize> {
        let mut at = begin;
        while let Some(&byte) = piece.get(at) {
            part = match (part, byte) {
                (Number::Minus, b'0') => Number::Zero,
                (Number::Minus | Number::Digits, b'0'..=b'9') => Number::Digits,
                (Number::Zero | Number::Digits, b'.') => Number::Point,
                (Number::Point | Number::Fraction, b'0'..=b'9') => Number::Fraction,
                (Number::Zero | Number::Digits | Number::Fraction, b'e' | b'E') => Number::E,
                (Number::E, b'+' | b'-') => Number::Sign,
                (Number::E | Number::Sign | Number::Exponent, b'0'..=b'9') => Number::Exponent,
                _ => {
                    self.end_number(part, &piece[begin..at])?;
                    return Ok(at);
                }
            };
            at += 1;
        }
        self.number.extend_from_slice(&piece[begin..]);
        self.state = State::Number(part);
        Ok(at)
    }

    fn end_number(&mut self, part: Number, rest: &[u8]) -> Scanned<()> {
        match part {
            Number::Minus | Number::Point | Number::E | Number::Sign => return Err(NotPlain),
            Number::Zero | Number::Digits | Number::Fraction
                if self.number.len() + rest.len() <= SAFE_DIGITS => {}
            Number::Zero | Number::Digits | Number::Fraction | Number::Exponent => {
                self.number.extend_from_slice(rest);
                let number = std::str::from_utf8(&self.number).ok().and_then(|text| text.parse::<f64>().ok());
                if !number.is_some_and(f64::is_finite) {
                    return Err(NotPlain);
                }
            }
        }
        self.state = State::AfterValue;
        Ok(())
    }
}

/// Position of the first byte that is a quote, a backslash, a control character or not ASCII.
pub(super) fn end_of_plain(piece: &[u8], mut at: usize) -> usize {
    const ONES: u64 = u64::MAX / 255;
    const HIGH: u64 = ONES << 7;
    while let Some(eight) = piece.get(at..).and_then(<[u8]>::first_chunk) {
        let word = u64::from_le_bytes(*eight);
        let quote = word ^ (ONES * b'"' as u64);
        let backslash = word ^ (ONES * b'\\' as u64);
        // A borrow can only mark a byte after a special one by mistake.
        let special = (quote.wrapping_sub(ONES) & !quote)
            | (backslash.wrapping_sub(ONES) & !backslash)
            | (word.wrapping_sub(ONES * 0x20) & !word)
            | word;
        if special & HIGH != 0 {
            return at + (special & HIGH).trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    let special = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..0x20 | 0x80..);
    at + piece[at..].iter().position(special).unwrap_or(piece.len() - at)
}

/// The expected further bytes of a multi-byte character: the well-formed sequences of the Unicode Standard, table 3-7.
fn begin_character(first: u8) -> Scanned<Text> {
    let (left, low, high) = match first {
        0xc2..=0xdf => (1, 0x80, 0xbf),
        0xe0 => (2, 0xa0, 0xbf),
        0xed => (2, 0x80, 0x9f),
        0xe1..=0xef => (2, 0x80, 0xbf),
        0xf0 => (3, 0x90, 0xbf),
        0xf1..=0xf3 => (3, 0x80, 0xbf),
        0xf4 => (3, 0x80, 0x8f),
        _ => return Err(NotPlain),
    };
    Ok(Text::Character { left, low, high })
}

/// One digit of a `\u` escape. Half of a pair requires the other half.
fn add_hex_digit(byte: u8, left: u8, value: u16, second: bool) -> Scanned<Text> {
    let digit = (byte as char).to_digit(16).ok_or(NotPlain)?;
    let value = value << 4 | u16::try_from(digit).map_err(|_| NotPlain)?;
    if left > 1 {
        return Ok(Text::Hex { left: left - 1, value, second });
    }
    match (second, value) {
        (false, 0xd800..=0xdbff) => Ok(Text::SecondHalf { u: false }),
        (false, 0xdc00..=0xdfff) => Err(NotPlain),
        (true, 0xdc00..=0xdfff) | (false, _) => Ok(Text::Plain),
        (true, _) => Err(NotPlain),
    }
}

#[cfg(test)]
mod tests;
