//! Dates as ECMAScript's `Date` reads and prints them, because templates in use
//! hold whatever mail and calendar programs write: ISO 8601, `Jan 2 2026`,
//! `2 January 2026 15:04 GMT+0100`, `1/2/2026 3:04 PM`.
//!
//! What is not ISO 8601 follows the reader of V8 (`src/date/dateparser`), which
//! is what such texts were tried with.

use jiff::civil;
use jiff::tz::TimeZone;

/// ECMA-262 §21.4.1.1: no moment is further than this from 1970.
const MAX_EPOCH_MS: i64 = 8_640_000_000_000_000;
const DAY_MS: i64 = 86_400_000;

/// A moment, for printing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    ms: i64,
}

impl Moment {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        reason = "within the bounds checked"
    )]
    pub(super) fn from_epoch_ms(ms: f64) -> Option<Self> {
        (ms.abs() <= MAX_EPOCH_MS as f64).then_some(Self { ms: ms as i64 })
    }

    /// `2026-01-02T03:04:05.678Z`.
    pub(super) fn iso(self) -> String {
        let (year, month, day) = civil_from_days(self.ms.div_euclid(DAY_MS));
        let ms = self.ms.rem_euclid(DAY_MS);
        let year = match year {
            0..=9999 => format!("{year:04}"),
            _ => format!("{}{:06}", if year < 0 { '-' } else { '+' }, year.abs()),
        };
        let (hour, minute, second, ms) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60, ms % 1000);
        format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
    }

    /// Every `YYYY`, `MM`, `DD`, `HH`, `mm` and `ss` of the format replaced, in UTC.
    pub(super) fn format(self, format: &str) -> String {
        let (year, month, day) = civil_from_days(self.ms.div_euclid(DAY_MS));
        let ms = self.ms.rem_euclid(DAY_MS);
        let parts = [
            ("YYYY", year, 4),
            ("MM", month, 2),
            ("DD", day, 2),
            ("HH", ms / 3_600_000, 2),
            ("mm", ms / 60_000 % 60, 2),
            ("ss", ms / 1000 % 60, 2),
        ];
        let mut out = String::with_capacity(format.len());
        let mut rest = format;
        while let Some(c) = rest.chars().next() {
            match parts.iter().find(|(token, ..)| rest.starts_with(token)) {
                Some((token, number, width)) => {
                    out.push_str(&format!("{number:0width$}"));
                    rest = &rest[token.len()..];
                }
                None => {
                    out.push(c);
                    rest = &rest[c.len_utf8()..];
                }
            }
        }
        out
    }
}

/// Milliseconds since 1970, or `None` for what is no date. `zone` names the
/// time zone (the variable `TZ`) of times without one.
pub(super) fn parse(text: &str, zone: &dyn Fn() -> Option<String>) -> Option<f64> {
    let read = iso(text).or_else(|| Legacy::new(text).read())?;
    let local_ms = days_from_civil(read.year, read.month) * DAY_MS + (read.day - 1) * DAY_MS + read.ms_of_day;
    let ms = match read.offset_minutes {
        Some(minutes) => local_ms - minutes * 60_000,
        None => local_ms - local_offset_ms(local_ms, zone()),
    };
    (ms.abs() <= MAX_EPOCH_MS).then(|| {
        #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
        let ms = ms as f64;
        ms
    })
}

/// A date as written: local unless it says how far from UTC it is.
struct Written {
    year: i64,
    /// 1 to 12.
    month: i64,
    /// 1 to 31; a day that the month has not is one of the next month.
    day: i64,
    ms_of_day: i64,
    offset_minutes: Option<i64>,
}

/// `[±YY]YYYY[-MM[-DD]][THH:mm[:ss[.f]]][Z|±HH:mm]` (ECMA-262 §21.4.1.32).
fn iso(text: &str) -> Option<Written> {
    let mut at = Cursor { rest: text };
    let year = match at.rest.as_bytes().first()? {
        sign @ (b'+' | b'-') => {
            at.skip(1);
            let year = at.digits(6)?;
            if *sign == b'-' && year == 0 {
                return None;
            }
            if *sign == b'-' { -year } else { year }
        }
        _ => at.digits(4)?,
    };
    let month = if at.eat("-") { at.digits(2)? } else { 1 };
    let day = if text.contains('-') && at.eat("-") { at.digits(2)? } else { 1 };
    let (mut ms_of_day, mut offset_minutes) = (0, Some(0));
    if at.eat("T") {
        let hour = at.digits(2)?;
        let minute = at.eat(":").then(|| at.digits(2)).flatten()?;
        let second = if at.eat(":") { at.digits(2)? } else { 0 };
        let ms = if at.eat(".") { at.fraction()? } else { 0 };
        ms_of_day = clock(hour, minute, second, ms)?;
        offset_minutes = if at.eat("Z") {
            Some(0)
        } else if at.rest.starts_with(['+', '-']) {
            let sign = if at.eat("-") { -1 } else { at.skip(1) };
            let hours = at.digits(2)?;
            let minutes = at.eat(":").then(|| at.digits(2)).flatten()?;
            (hours < 24 && minutes < 60).then_some(())?;
            Some(sign * (hours * 60 + minutes))
        } else {
            None
        };
    }
    let fits = at.rest.is_empty() && (1..=12).contains(&month) && (1..=31).contains(&day);
    fits.then_some(Written { year, month, day, ms_of_day, offset_minutes })
}

struct Cursor<'a> {
    rest: &'a str,
}

impl Cursor<'_> {
    fn skip(&mut self, bytes: usize) -> i64 {
        self.rest = &self.rest[bytes..];
        1
    }

    fn eat(&mut self, text: &str) -> bool {
        self.rest.strip_prefix(text).inspect(|_| ()).map(|rest| rest.len()).is_some_and(|left| {
            self.rest = &self.rest[self.rest.len() - left..];
            true
        })
    }

    /// Exactly so many digits.
    fn digits(&mut self, count: usize) -> Option<i64> {
        let digits = self.rest.get(..count).filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))?;
        self.rest = &self.rest[count..];
        digits.parse().ok()
    }

    /// The digits of a fraction of a second, as milliseconds.
    fn fraction(&mut self) -> Option<i64> {
        let count = self.rest.bytes().take_while(u8::is_ascii_digit).count();
        let ms = milliseconds(&self.rest[..count])?;
        self.skip(count);
        Some(ms)
    }
}

fn milliseconds(digits: &str) -> Option<i64> {
    let first: String = digits.chars().chain("00".chars()).take(3).collect();
    (!digits.is_empty()).then(|| first.parse().ok()).flatten()
}

fn clock(hour: i64, minute: i64, second: i64, ms: i64) -> Option<i64> {
    let of_day = ((hour * 60 + minute) * 60 + second) * 1000 + ms;
    let usual = hour < 24 && minute < 60 && second < 60;
    (usual || of_day == DAY_MS && hour == 24).then_some(of_day)
}

/// The tolerant reader: numbers, names of months and zones, and signs, in
/// almost any order. Parentheses hold remarks.
struct Legacy<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
    day: Vec<i64>,
    named_month: Option<i64>,
    time: Vec<i64>,
    /// Hours to add after noon: 0 or 12.
    half_day: Option<i64>,
    zone: Zone,
}

#[derive(Clone, Copy, PartialEq)]
enum Token<'a> {
    Number {
        value: i64,
        text: &'a str,
    },
    /// The first three letters, in lower case, and how many there were.
    Word([u8; 3], usize),
    Sign(char),
    Blank,
}

#[derive(Default)]
struct Zone {
    sign: Option<i64>,
    hour: Option<i64>,
    minute: Option<i64>,
}

const MONTHS: [&[u8; 3]; 12] =
    [b"jan", b"feb", b"mar", b"apr", b"may", b"jun", b"jul", b"aug", b"sep", b"oct", b"nov", b"dec"];

const ZONES: [(&[u8; 3], usize, i64); 12] = [
    (b"utc", 3, 0),
    (b"ut\0", 2, 0),
    (b"z\0\0", 1, 0),
    (b"gmt", 3, 0),
    (b"cdt", 3, -5),
    (b"cst", 3, -6),
    (b"edt", 3, -4),
    (b"est", 3, -5),
    (b"mdt", 3, -6),
    (b"mst", 3, -7),
    (b"pdt", 3, -7),
    (b"pst", 3, -8),
];

impl<'a> Legacy<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            tokens: tokens(text),
            at: 0,
            day: Vec::new(),
            named_month: None,
            time: Vec::new(),
            half_day: None,
            zone: Zone::default(),
        }
    }

    fn peek(&self) -> Option<Token<'a>> {
        self.tokens.get(self.at).copied()
    }

    fn eat(&mut self, sign: char) -> bool {
        let there = self.peek() == Some(Token::Sign(sign));
        self.at += usize::from(there);
        there
    }

    fn read(mut self) -> Option<Written> {
        let mut seen_number = false;
        while let Some(token) = self.peek() {
            self.at += 1;
            match token {
                Token::Number { value, text } => {
                    seen_number = true;
                    self.number(value, text)?;
                }
                Token::Word(word, len) => self.word(word, len, seen_number)?,
                Token::Sign(sign @ ('+' | '-')) if self.zone_is_open() => self.offset(sign)?,
                Token::Sign('+' | '-' | ')') if seen_number => return None,
                Token::Sign(_) | Token::Blank => {}
            }
        }
        self.written()
    }

    fn number(&mut self, value: i64, text: &str) -> Option<()> {
        if self.eat(':') {
            if self.eat(':') {
                return None;
            }
            return self.add_time(value);
        }
        if self.time_expects(value) && self.eat('.') {
            self.add_time(value)?;
            let Some(Token::Number { text, .. }) = self.peek() else { return None };
            self.at += 1;
            return self.finish_time(milliseconds(text)?);
        }
        if self.zone.hour.is_some() && self.zone.minute.is_none() && value < 60 {
            self.zone.minute = Some(value);
            return Some(());
        }
        if self.time_expects(value) {
            self.finish_time(value)?;
            return match self.peek() {
                None | Some(Token::Blank | Token::Word([b'z', 0, 0], _) | Token::Sign('+' | '-')) => Some(()),
                Some(_) => None,
            };
        }
        let _ = text;
        if self.day.len() == 3 {
            return None;
        }
        self.day.push(value);
        self.eat('-');
        Some(())
    }

    fn word(&mut self, word: [u8; 3], len: usize, seen_number: bool) -> Option<()> {
        let month = MONTHS.iter().position(|name| **name == word).filter(|_| len >= 3);
        let zone = ZONES.iter().find(|(name, letters, _)| **name == word && *letters == len);
        match (&word, len, month, zone) {
            (b"am\0", 2, ..) if !self.time.is_empty() => self.half_day = Some(0),
            (b"pm\0", 2, ..) if !self.time.is_empty() => self.half_day = Some(12),
            (_, _, Some(month), _) => {
                self.named_month = i64::try_from(month).ok().map(|month| month + 1);
                self.eat('-');
            }
            (_, _, _, Some((_, _, hours))) if seen_number => {
                self.zone = Zone { sign: Some(hours.signum()), hour: Some(hours.abs()), minute: Some(0) };
                if *hours == 0 {
                    self.zone.sign = Some(1);
                }
            }
            // Other words may stand before the first number, if something parts them from it.
            _ if seen_number || matches!(self.peek(), Some(Token::Number { .. })) => return None,
            _ => {}
        }
        Some(())
    }

    /// After a time, or after `UTC`, a sign begins an offset.
    fn zone_is_open(&self) -> bool {
        !self.time.is_empty() || self.zone.hour == Some(0) && self.zone.minute == Some(0)
    }

    fn offset(&mut self, sign: char) -> Option<()> {
        self.zone.sign = Some(if sign == '-' { -1 } else { 1 });
        let (mut value, mut len) = (0, 0);
        if let Some(Token::Number { value: number, text }) = self.peek() {
            self.at += 1;
            (value, len) = (number, text.len());
        }
        if self.peek() == Some(Token::Sign(':')) {
            self.zone.hour = Some(value);
            self.zone.minute = None;
        } else if len == 1 || len == 2 {
            self.zone.hour = Some(value);
            self.zone.minute = Some(0);
        } else if len == 3 || len == 4 {
            self.zone.hour = Some(value / 100);
            self.zone.minute = Some(value % 100);
        } else {
            return None;
        }
        Some(())
    }

    fn time_expects(&self, value: i64) -> bool {
        match self.time.len() {
            1 | 2 => value < 60,
            3 => value < 1000,
            _ => false,
        }
    }

    fn add_time(&mut self, value: i64) -> Option<()> {
        (self.time.len() < 4).then(|| self.time.push(value))
    }

    fn finish_time(&mut self, value: i64) -> Option<()> {
        self.add_time(value)?;
        self.time.resize(4, 0);
        Some(())
    }

    fn written(mut self) -> Option<Written> {
        if self.day.is_empty() {
            return None;
        }
        let named = self.day.len();
        self.day.resize(3, 1);
        let is_day = |number: i64| (1..=31).contains(&number);
        let [first, second, third] = *self.day.as_slice() else { return None };
        let (year, month, day) = match self.named_month {
            None if !is_day(first) => (first, second, third),
            None => (third, first, second),
            Some(month) if named == 1 => (1, month, first),
            Some(month) if !is_day(first) => (first, month, second),
            Some(month) => (second, month, first),
        };
        let year = match year {
            0..=49 => year + 2000,
            50..=99 => year + 1900,
            _ => year,
        };
        let fits = (1..=12).contains(&month) && is_day(day);
        self.time.resize(4, 0);
        let [hour, minute, second, ms] = *self.time.as_slice() else { return None };
        let hour = match self.half_day {
            Some(_) if hour > 12 => return None,
            Some(half) => hour % 12 + half,
            None => hour,
        };
        let ms_of_day = clock(hour, minute, second, ms)?;
        let offset_minutes = self
            .zone
            .sign
            .map(|sign| sign * (self.zone.hour.unwrap_or(0) * 60 + self.zone.minute.unwrap_or(0)));
        fits.then_some(Written { year, month, day, ms_of_day, offset_minutes })
    }
}

fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let len = match c {
            '0'..='9' => {
                let len = rest.bytes().take_while(u8::is_ascii_digit).count();
                let digits = rest[..len].trim_start_matches('0');
                let value = digits.get(..digits.len().min(9)).and_then(|d| d.parse().ok()).unwrap_or(0);
                tokens.push(Token::Number { value, text: &rest[..len] });
                len
            }
            'a'..='z' | 'A'..='Z' => {
                let len = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
                let mut word = [0; 3];
                for (to, from) in word.iter_mut().zip(rest.bytes().take(len)) {
                    *to = from.to_ascii_lowercase();
                }
                tokens.push(Token::Word(word, len));
                len
            }
            '(' => skip_remark(rest),
            _ if c.is_whitespace() || c == '\u{feff}' => {
                tokens.push(Token::Blank);
                c.len_utf8()
            }
            _ => {
                tokens.push(Token::Sign(c));
                c.len_utf8()
            }
        };
        rest = &rest[len..];
    }
    tokens
}

/// The length of a parenthesis with those inside it, up to the end if it is not closed.
fn skip_remark(text: &str) -> usize {
    let mut depth = 0usize;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    text.len()
}

/// How far local time is ahead of UTC at that local time.
fn local_offset_ms(local_ms: i64, zone: Option<String>) -> i64 {
    let zone = match zone.as_deref().map(|name| name.trim_start_matches(':')) {
        None | Some("") => TimeZone::system(),
        Some(name) => TimeZone::get(name).or_else(|_| TimeZone::posix(name)).unwrap_or(TimeZone::UTC),
    };
    let (year, month, day) = civil_from_days(local_ms.div_euclid(DAY_MS));
    let ms = local_ms.rem_euclid(DAY_MS);
    let part = |number: i64| i8::try_from(number).unwrap_or(1);
    let local = i16::try_from(year).ok().and_then(|year| {
        let second = part(ms / 1000 % 60);
        civil::DateTime::new(
            year,
            part(month),
            part(day),
            part(ms / 3_600_000),
            part(ms / 60_000 % 60),
            second,
            0,
        )
        .ok()
    });
    // Further away than any zone has rules for: the offset of the last of them.
    let local = local.unwrap_or(if year > 0 { civil::DateTime::MAX } else { civil::DateTime::MIN });
    let offset = zone.to_ambiguous_timestamp(local).compatible().map(|moment| zone.to_offset(moment));
    offset.map_or(0, |offset| i64::from(offset.seconds()) * 1000)
}

/// Days from 1970-01-01 to the first of that month (Howard Hinnant, "chrono-Compatible
/// Low-Level Date Algorithms").
fn days_from_civil(year: i64, month: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// Year, month and day so many days after 1970-01-01 (same source).
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day_of_year - (153 * shifted + 2) / 5 + 1)
}
