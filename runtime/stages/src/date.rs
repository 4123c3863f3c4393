//! Dates as ECMAScript's `Date` reads and prints them, because templates in use
//! hold whatever mail and calendar programs write: ISO 8601, `Jan 2 2026`,
//! `2 January 2026 15:04 GMT+0100`, `1/2/2026 3:04 PM`.
//!
//! Other texts are read as V8 reads them (`src/date/dateparser`), since templates in use were tried with V8.

use jiff::civil;
use jiff::tz::TimeZone;

/// ECMA-262 §21.4.1.1: the largest distance of a time from 1970.
const MAX_EPOCH_MS: i64 = 8_640_000_000_000_000;
const DAY_MS: i64 = 86_400_000;

/// A point in time, for printing.
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
    pub(super) fn iso_text(self) -> String {
        let (year, month, day) = civil_from_days(self.ms.div_euclid(DAY_MS));
        let ms = self.ms.rem_euclid(DAY_MS);
        let year = match year {
            0..=9999 => format!("{year:04}"),
            _ => format!("{}{:06}", if year < 0 { '-' } else { '+' }, year.abs()),
        };
        let (hour, minute, second, ms) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60, ms % 1000);
        format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
    }

    /// Replaces every `YYYY`, `MM`, `DD`, `HH`, `mm` and `ss` of the format, in UTC.
    pub(super) fn format_with(self, format: &str) -> String {
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

/// Milliseconds since 1970, or `None` if the text is not a date. `zone` names the time zone (the variable
/// `TZ`) of times without one.
pub(super) fn parse(text: &str, zone: &dyn Fn() -> Option<String>) -> Option<f64> {
    let mut reader = Reader { tokens: split_tokens(text), ..Reader::default() };
    match reader.read_iso() {
        Iso::Complete => {}
        Iso::UpTo => reader.read_leniently()?,
        Iso::Broken => return None,
    }
    let (local_ms, offset_minutes) = reader.local_and_offset()?;
    let ms = match offset_minutes {
        Some(minutes) => local_ms - minutes * 60_000,
        None => local_ms - local_offset_ms(local_ms, zone()),
    };
    #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
    (ms.abs() <= MAX_EPOCH_MS).then_some(ms as f64)
}

#[derive(Clone, Copy, PartialEq)]
enum Token<'a> {
    Number {
        value: i64,
        digits: &'a str,
    },
    /// The first three letters, in lower case and padded with zeros, and the number of letters.
    Word([u8; 3], usize),
    Sign(char),
    Blank,
    /// A remark in parentheses.
    Remark,
}

/// Extent to which a text was ISO 8601.
enum Iso {
    Complete,
    /// The text up to here was a part of a date; the tolerant reader continues with the rest.
    UpTo,
    /// After a `T` nothing else is tolerated.
    Broken,
}

/// Sorts numbers into the parts of a date. Reads ISO 8601 first; if that ends early, the tolerant reader
/// keeps the parts read so far and continues with the rest.
#[derive(Default)]
struct Reader<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
    is_iso: bool,
    day: Vec<i64>,
    named_month: Option<i64>,
    /// Hour, minute, second, millisecond.
    time: Vec<i64>,
    /// Hours to add after noon: 0 or 12.
    half_day: Option<i64>,
    zone: Zone,
}

#[derive(Default)]
struct Zone {
    sign: Option<i64>,
    hour: Option<i64>,
    minute: Option<i64>,
}

impl Zone {
    fn set(&mut self, hours: i64) {
        let sign = if hours < 0 { -1 } else { 1 };
        *self = Self { sign: Some(sign), hour: Some(hours.abs()), minute: Some(0) };
    }

    fn is_utc(&self) -> bool {
        self.hour == Some(0) && self.minute == Some(0)
    }
}

const MONTHS: [&[u8; 3]; 12] =
    [b"jan", b"feb", b"mar", b"apr", b"may", b"jun", b"jul", b"aug", b"sep", b"oct", b"nov", b"dec"];

/// Names of zones with their hours ahead of UTC (RFC 2822 §4.3).
const ZONES: [(&[u8; 3], i64); 12] = [
    (b"utc", 0),
    (b"ut\0", 0),
    (b"z\0\0", 0),
    (b"gmt", 0),
    (b"cdt", -5),
    (b"cst", -6),
    (b"edt", -4),
    (b"est", -5),
    (b"mdt", -6),
    (b"mst", -7),
    (b"pdt", -7),
    (b"pst", -8),
];

const ZULU: Token<'_> = Token::Word(*b"z\0\0", 1);

impl<'a> Reader<'a> {
    fn peek_token(&self) -> Option<Token<'a>> {
        self.tokens.get(self.at).copied()
    }

    fn eat_token(&mut self, token: Token<'_>) -> bool {
        let there = self.peek_token() == Some(token);
        self.at += usize::from(there);
        there
    }

    /// The next number, if it has `count` digits and passes.
    fn fixed_number(&mut self, count: usize, passes: impl Fn(i64) -> bool) -> Option<i64> {
        match self.peek_token() {
            Some(Token::Number { value, digits }) if digits.len() == count && passes(value) => {
                self.at += 1;
                Some(value)
            }
            _ => None,
        }
    }

    /// `[±YY]YYYY[-MM[-DD]][THH:mm[:ss[.f]]][Z|±HH:mm]` (ECMA-262 §21.4.1.32).
    fn read_iso(&mut self) -> Iso {
        let read = self.iso_date().and_then(|()| {
            if self.eat_token(Token::Word(*b"t\0\0", 1)) { Some(self.iso_time()) } else { None }
        });
        let at_end = self.at == self.tokens.len();
        self.is_iso = match read {
            Some(time) if time.is_some() && at_end => true,
            Some(_) => return Iso::Broken,
            None => {
                at_end
                    && !self.day.is_empty()
                    && self.tokens.last().is_some_and(|t| matches!(t, Token::Number { .. }))
            }
        };
        if !self.is_iso {
            return Iso::UpTo;
        }
        // A date alone is in UTC, a date with a time is local.
        if self.time.is_empty() && self.zone.sign.is_none() {
            self.zone.set(0);
        }
        Iso::Complete
    }

    fn iso_date(&mut self) -> Option<()> {
        let year = match self.peek_token() {
            Some(Token::Sign(sign @ ('+' | '-'))) => {
                self.at += 1;
                let year = self.fixed_number(6, |year| sign == '+' || year != 0);
                if year.is_none() {
                    // The tolerant reader still reads the sign.
                    self.at -= 1;
                }
                if sign == '-' { -year? } else { year? }
            }
            _ => self.fixed_number(4, |_| true)?,
        };
        self.day.push(year);
        if self.eat_token(Token::Sign('-')) {
            let month = self.fixed_number(2, |month| (1..=12).contains(&month))?;
            self.day.push(month);
            if self.eat_token(Token::Sign('-')) {
                let day = self.fixed_number(2, is_day)?;
                self.day.push(day);
            }
        }
        Some(())
    }

    fn iso_time(&mut self) -> Option<()> {
        let hour = self.fixed_number(2, |hour| hour <= 24)?;
        let within = |limit: i64| move |part: i64| part < if hour == 24 { 1 } else { limit };
        self.time.push(hour);
        self.eat_token(Token::Sign(':')).then_some(())?;
        let minute = self.fixed_number(2, within(60))?;
        self.time.push(minute);
        if self.eat_token(Token::Sign(':')) {
            let second = self.fixed_number(2, within(60))?;
            self.time.push(second);
            if self.eat_token(Token::Sign('.')) {
                let Some(Token::Number { value, digits }) = self.peek_token() else { return None };
                within(i64::MAX)(value).then_some(())?;
                self.at += 1;
                self.time.push(fraction_milliseconds(digits));
            }
        }
        if self.eat_token(ZULU) {
            self.zone.set(0);
        } else if let Some(Token::Sign(sign @ ('+' | '-'))) = self.peek_token() {
            self.at += 1;
            self.zone.sign = Some(if sign == '-' { -1 } else { 1 });
            if let Some(both) = self.fixed_number(4, |both| both / 100 < 24 && both % 100 < 60) {
                self.zone.hour = Some(both / 100);
                self.zone.minute = Some(both % 100);
            } else {
                let hour = self.fixed_number(2, |hour| hour < 24)?;
                self.zone.hour = Some(hour);
                self.eat_token(Token::Sign(':')).then_some(())?;
                self.zone.minute = Some(self.fixed_number(2, |minute| minute < 60)?);
            }
        }
        Some(())
    }

    fn read_leniently(&mut self) -> Option<()> {
        let mut seen_number = !self.day.is_empty();
        while let Some(token) = self.peek_token() {
            self.at += 1;
            match token {
                Token::Number { value, .. } => {
                    seen_number = true;
                    self.accept_number(value)?;
                }
                Token::Word(word, len) => self.accept_word(word, len, seen_number)?,
                Token::Sign(sign @ ('+' | '-')) if self.zone.is_utc() || !self.time.is_empty() => {
                    seen_number = true;
                    self.read_offset(sign)?;
                }
                Token::Sign('+' | '-' | ')') if seen_number => return None,
                Token::Sign(_) | Token::Blank | Token::Remark => {}
            }
        }
        Some(())
    }

    fn accept_number(&mut self, value: i64) -> Option<()> {
        if self.eat_token(Token::Sign(':')) {
            if self.eat_token(Token::Sign(':')) {
                self.time.is_empty().then_some(())?;
                self.time.extend([value, 0]);
                return Some(());
            }
            self.add_time(value)?;
            self.eat_token(Token::Sign('.'));
            return Some(());
        }
        if self.eat_token(Token::Sign('.')) && self.time_expects(value) {
            let _ = self.add_time(value);
            let Some(Token::Number { digits, .. }) = self.peek_token() else { return None };
            self.at += 1;
            self.finish_time(fraction_milliseconds(digits));
            return Some(());
        }
        if self.zone.hour.is_some() && self.zone.minute.is_none() && value < 60 {
            self.zone.minute = Some(value);
            return Some(());
        }
        if self.time_expects(value) {
            self.finish_time(value);
            let ends = matches!(self.peek_token(), None | Some(ZULU | Token::Blank | Token::Sign('+' | '-')));
            return ends.then_some(());
        }
        if self.day.len() == 3 {
            return None;
        }
        self.day.push(value);
        self.eat_token(Token::Sign('-'));
        Some(())
    }

    fn accept_word(&mut self, word: [u8; 3], len: usize, seen_number: bool) -> Option<()> {
        let month = MONTHS.iter().position(|name| **name == word);
        let zone = ZONES.iter().find(|(name, _)| **name == word && len <= 3);
        match (&word, month, zone) {
            (b"am\0", ..) if !self.time.is_empty() => self.half_day = Some(0),
            (b"pm\0", ..) if !self.time.is_empty() => self.half_day = Some(12),
            (_, Some(month), _) => {
                self.named_month = i64::try_from(month).ok().map(|month| month + 1);
                self.eat_token(Token::Sign('-'));
            }
            (_, _, Some((_, hours))) if seen_number => self.zone.set(*hours),
            // Other words may precede the first number if something separates them from it.
            _ if seen_number || matches!(self.peek_token(), Some(Token::Number { .. })) => return None,
            _ => {}
        }
        Some(())
    }

    fn read_offset(&mut self, sign: char) -> Option<()> {
        self.zone.sign = Some(if sign == '-' { -1 } else { 1 });
        let (mut value, mut len) = (0, 0);
        if let Some(Token::Number { value: number, digits }) = self.peek_token() {
            self.at += 1;
            (value, len) = (number, digits.len());
        }
        (self.zone.hour, self.zone.minute) = match (self.peek_token(), len) {
            (Some(Token::Sign(':')), _) => (Some(value), None),
            (_, 1 | 2) => (Some(value), Some(0)),
            (_, 3 | 4) => (Some(value / 100), Some(value % 100)),
            _ => return None,
        };
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

    /// Adds the last part of a time; a surplus part is ignored.
    fn finish_time(&mut self, value: i64) {
        let _ = self.add_time(value);
        self.time.resize(4, 0);
    }

    /// Local milliseconds since 1970 and, if the text has an offset, the minutes that local time is ahead
    /// of UTC.
    fn local_and_offset(mut self) -> Option<(i64, Option<i64>)> {
        if self.day.is_empty() {
            return None;
        }
        self.day.resize(3, 1);
        let [first, second, third] = *self.day.as_slice() else { return None };
        let (year, month, day) = match self.named_month {
            None if self.is_iso || !is_day(first) => (first, second, third),
            None => (third, first, second),
            Some(month) if !is_day(first) => (first, month, second),
            Some(month) => (second, month, first),
        };
        let year = match year {
            0..=49 if !self.is_iso => year + 2000,
            50..=99 if !self.is_iso => year + 1900,
            _ => year,
        };
        ((1..=12).contains(&month) && is_day(day)).then_some(())?;
        self.time.resize(4, 0);
        let [hour, minute, second, ms] = *self.time.as_slice() else { return None };
        let hour = match self.half_day {
            Some(_) if hour > 12 => return None,
            Some(half) => hour % 12 + half,
            None => hour,
        };
        let ms_of_day = ((hour * 60 + minute) * 60 + second) * 1000 + ms;
        let fits = hour < 24 && minute < 60 && second < 60 && ms < 1000 || hour == 24 && ms_of_day == DAY_MS;
        fits.then_some(())?;
        let minutes = self.zone.hour.unwrap_or(0) * 60 + self.zone.minute.unwrap_or(0);
        // A day past the end of the month falls in the next month.
        let days = days_from_civil(year, month) + day - 1;
        Some((days * DAY_MS + ms_of_day, self.zone.sign.map(|sign| sign * minutes)))
    }
}

fn is_day(number: i64) -> bool {
    (1..=31).contains(&number)
}

/// The digits of a fraction of a second as milliseconds.
fn fraction_milliseconds(digits: &str) -> i64 {
    let first: String = digits.chars().chain("00".chars()).take(3).collect();
    first.parse().unwrap_or(0)
}

/// Most significant digits of a number; further digits are ignored.
const SIGNIFICANT_DIGITS: usize = 9;

fn split_tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let blank = |c: char| c.is_whitespace() || c == '\u{feff}';
        let (token, len) = match c {
            '0'..='9' => {
                let len = rest.bytes().take_while(u8::is_ascii_digit).count();
                let digits = &rest[..len];
                let significant = digits.trim_start_matches('0');
                let value = significant[..significant.len().min(SIGNIFICANT_DIGITS)].parse().unwrap_or(0);
                (Token::Number { value, digits }, len)
            }
            '(' => (Token::Remark, remark_len(rest)),
            _ if blank(c) => (Token::Blank, c.len_utf8()),
            'A'.. => {
                let len = rest.find(|c: char| c < 'A' || blank(c)).unwrap_or(rest.len());
                let mut word = [0; 3];
                for (to, from) in word.iter_mut().zip(rest[..len].bytes()) {
                    *to = from.to_ascii_lowercase();
                }
                (Token::Word(word, len), len)
            }
            _ => (Token::Sign(c), c.len_utf8()),
        };
        tokens.push(token);
        rest = &rest[len..];
    }
    tokens
}

/// The length of a parenthesis including nested ones, or to the end of the text if it is not closed.
fn remark_len(text: &str) -> usize {
    let mut depth = 0usize;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return at + c.len_utf8();
        }
    }
    text.len()
}

/// Milliseconds that local time is ahead of UTC at a local time.
fn local_offset_ms(local_ms: i64, zone: Option<String>) -> i64 {
    let zone = match zone.as_deref().map(|name| name.trim_start_matches(':')) {
        None | Some("") => TimeZone::system(),
        Some(name) => TimeZone::get(name).or_else(|_| TimeZone::posix(name)).unwrap_or(TimeZone::UTC),
    };
    let (year, month, day) = civil_from_days(local_ms.div_euclid(DAY_MS));
    let ms = local_ms.rem_euclid(DAY_MS);
    // The calendar repeats after 400 years, and no zone has other rules so far away.
    let year = if (1..9000).contains(&year) {
        year
    } else {
        year.rem_euclid(400) + if year < 1 { 400 } else { 8000 }
    };
    let part = |number: i64| i8::try_from(number).unwrap_or(1);
    let (hour, minute, second) = (part(ms / 3_600_000), part(ms / 60_000 % 60), part(ms / 1000 % 60));
    let year = i16::try_from(year).unwrap_or(1970);
    let Ok(local) = civil::DateTime::new(year, part(month), part(day), hour, minute, second, 0) else {
        return 0;
    };
    let offset = zone.to_ambiguous_timestamp(local).compatible().map(|moment| zone.to_offset(moment));
    offset.map_or(0, |offset| i64::from(offset.seconds()) * 1000)
}

/// Days from 1970-01-01 to the first day of a month (Howard Hinnant, "chrono-Compatible Low-Level Date
/// Algorithms").
fn days_from_civil(year: i64, month: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// Year, month and day of the date `days` days after 1970-01-01 (same source).
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    /// Texts with the result of `new Date(text)` in Node 22 (null: no date), by time zone.
    const RECORDED: &str = include_str!("date/node.json");

    #[test]
    fn texts_mean_what_they_mean_to_v8() {
        let zones: Vec<Value> = serde_json::from_str(RECORDED).unwrap();
        let mut wrong = Vec::new();
        for zone in &zones {
            for case in zone["cases"].as_array().unwrap() {
                let read = parse(case[0].as_str().unwrap(), &|| zone["tz"].as_str().map(str::to_owned));
                if read != case[1].as_f64() {
                    wrong.push(format!("{} {case} we: {read:?}", zone["tz"]));
                }
            }
        }
        assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong[..wrong.len().min(40)].join("\n"));
    }

    #[test]
    fn days_count_both_ways() {
        for days in (-800_000..800_000).step_by(97) {
            let (year, month, day) = civil_from_days(days);
            assert_eq!(days_from_civil(year, month) + day - 1, days);
        }
        assert_eq!(civil_from_days(19_782), (2024, 2, 29));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in r"[0-9A-Za-z:+\-./,() é]{0,30}") {
            let _ = parse(&text, &|| Some("Europe/Berlin".to_owned())).map(|ms| Moment::from_epoch_ms(ms).map(Moment::iso_text));
        }
    }
}
