//! Exact comparison of numbers of all kinds. Conditions, `where`, `sort`, `dedupe`, JSON Schema and all other
//! comparisons of numbers use it.

use std::cmp::Ordering;

use serde_json::Number;

use super::{float_text, trim_js};

/// 2^63: the first double above every `i64`.
const ABOVE_I64: f64 = 9_223_372_036_854_775_808.0;
/// 2^64: the first double above every `u64`.
const ABOVE_U64: f64 = 18_446_744_073_709_551_616.0;

/// A number that is compared without losing digits. Whole numbers are `Int` or `Big` if they fit, so that `1` and
/// `1.0` are the same value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Exact {
    Int(i64),
    /// Above `i64::MAX`.
    Big(u64),
    /// A fraction, a whole number beyond 64 bits, an infinity or NaN.
    Float(f64),
}

impl Exact {
    /// The value of a JSON number.
    #[must_use]
    pub fn of_number(number: &Number) -> Self {
        match (number.as_i64(), number.as_u64()) {
            (Some(int), _) => Self::Int(int),
            (None, Some(big)) => Self::Big(big),
            (None, None) => Self::of_float(number.as_f64().unwrap_or(f64::NAN)),
        }
    }

    /// The value of a double.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a whole number within the bounds of the type"
    )]
    pub fn of_float(float: f64) -> Self {
        match float {
            _ if float.fract() != 0.0 => Self::Float(float),
            _ if (-ABOVE_I64..ABOVE_I64).contains(&float) => Self::Int(float as i64),
            _ if (ABOVE_I64..ABOVE_U64).contains(&float) => Self::Big(float as u64),
            _ => Self::Float(float),
        }
    }

    /// The whole number that `text` contains in plain digits, otherwise its ECMA-262 `Number`.
    #[must_use]
    pub fn of_text(text: &str) -> Self {
        let plain = trim_js(text);
        match (plain.parse(), plain.parse()) {
            (Ok(int), _) => Self::Int(int),
            (Err(_), Ok(big)) => Self::Big(big),
            (Err(_), Err(_)) => Self::of_float(super::js_number(text)),
        }
    }

    /// True if it is NaN.
    #[must_use]
    pub fn is_nan(self) -> bool {
        matches!(self, Self::Float(float) if float.is_nan())
    }

    /// The order of the two values; `None` only for NaN.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        reason = "rounding a whole number leaves it on its side of a `Float`"
    )]
    pub fn compare_to(self, other: Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Float(a), Self::Float(b)) => a.partial_cmp(&b),
            (Self::Float(_), _) => other.compare_to(self).map(Ordering::reverse),
            (Self::Int(int), Self::Float(float)) => (int as f64).partial_cmp(&float),
            // Equal only to 2^64, if it was rounded up to it.
            (Self::Big(big), Self::Float(float)) => {
                (big as f64).partial_cmp(&float).map(|order| order.then(Ordering::Less))
            }
            (Self::Int(a), Self::Int(b)) => Some(a.cmp(&b)),
            (Self::Big(a), Self::Big(b)) => Some(a.cmp(&b)),
            (Self::Int(_), Self::Big(_)) => Some(Ordering::Less),
            (Self::Big(_), Self::Int(_)) => Some(Ordering::Greater),
        }
    }

    /// True if the values are the same number.
    #[must_use]
    pub fn is_equal(self, other: Self) -> bool {
        self.compare_to(other) == Some(Ordering::Equal)
    }

    /// The same text for all numbers of the same value: whole numbers with all their digits.
    #[must_use]
    pub fn to_text(self) -> String {
        match self {
            Self::Int(int) => int.to_string(),
            Self::Big(big) => big.to_string(),
            Self::Float(float) => float_text(float),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    /// Sign, digits without zeros at the ends, and the power of ten by which they are multiplied.
    type Decimal = (bool, String, i64);

    /// The exact value of a text as decimal digits: the model, which does not use binary numbers.
    fn exact_decimal(text: &str) -> Decimal {
        let (negative, rest) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
        let (mantissa, exponent) = rest.split_once(['e', 'E']).unwrap_or((rest, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let mut power = exponent.parse::<i64>().unwrap() - i64::try_from(fraction.len()).unwrap();
        let mut digits = format!("{whole}{fraction}").trim_start_matches('0').to_owned();
        while digits.ends_with('0') {
            digits.pop();
            power += 1;
        }
        if digits.is_empty() { (false, digits, 0) } else { (negative, digits, power) }
    }

    fn compare_decimals(a: &Decimal, b: &Decimal) -> Ordering {
        let signed = |(negative, digits, _): &Decimal| match (digits.is_empty(), negative) {
            (true, _) => 0,
            (false, true) => -1,
            (false, false) => 1,
        };
        let by_sign = signed(a).cmp(&signed(b));
        if by_sign != Ordering::Equal || a.1.is_empty() {
            return by_sign;
        }
        let top = |(_, digits, power): &Decimal| i64::try_from(digits.len()).unwrap() + power;
        let by_size = top(a).cmp(&top(b)).then_with(|| {
            let width = a.1.len().max(b.1.len());
            format!("{:0<width$}", a.1).cmp(&format!("{:0<width$}", b.1))
        });
        if a.0 { by_size.reverse() } else { by_size }
    }

    /// All digits of a JSON number.
    fn digits_of(number: &Number) -> String {
        match number.as_f64() {
            Some(float) if number.is_f64() => format!("{float:.1100}"),
            _ => number.to_string(),
        }
    }

    /// Texts of numbers that are close together: around the limits of doubles and of 64 bits, in every spelling.
    fn number() -> impl Strategy<Value = String> {
        let border = prop::sample::select(vec![
            0_i128,
            1 << 24,
            1 << 53,
            1 << 60,
            (1 << 63) - 1,
            1 << 63,
            (1 << 64) - 1,
            1 << 64,
            8_202_522_731_445_525_542,
            10_i128.pow(18),
            10_i128.pow(21),
        ]);
        let near = (border, -3_i128..=3, any::<bool>())
            .prop_map(|(border, by, negative)| if negative { -(border + by) } else { border + by });
        let spelled = (near.clone(), 0_usize..5).prop_map(|(n, how)| match how {
            0 => format!("{n}.0"),
            1 => format!("{n}.5"),
            2 => format!("{n}e0"),
            3 => format!("{n}.000e0"),
            _ => format!("{n}E+2"),
        });
        prop_oneof![
            3 => near.prop_map(|n| n.to_string()),
            3 => spelled,
            1 => any::<i64>().prop_map(|n| n.to_string()),
            1 => any::<u64>().prop_map(|n| n.to_string()),
            1 => any::<f64>().prop_filter("is a number", |n| n.is_finite()).prop_map(|n| format!("{n:e}")),
            1 => "-?(0|[1-9][0-9]{0,18})(\\.[0-9]{1,3})?([eE][+-]?[0-9]{1,2})?",
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(4_000) })]

        #[test]
        fn numbers_compare_as_exact_decimals_do(a in number(), b in number()) {
            let read = |text: &str| match super::super::parse(text) {
                Ok(Value::Number(number)) => number,
                other => panic!("{text}: {other:?}"),
            };
            let (left, right) = (read(&a), read(&b));
            let model = compare_decimals(&exact_decimal(&digits_of(&left)), &exact_decimal(&digits_of(&right)));
            let (x, y) = (Exact::of_number(&left), Exact::of_number(&right));
            prop_assert_eq!(x.compare_to(y), Some(model), "{} {}", a, b);
            prop_assert_eq!(y.compare_to(x), Some(model.reverse()));
            prop_assert_eq!(x.to_text() == y.to_text(), model == Ordering::Equal, "{} {}", a, b);
        }

        #[test]
        fn whole_numbers_in_texts_keep_their_digits(a in any::<i64>(), by in -2_i64..=2) {
            let b = a.saturating_add(by);
            prop_assert_eq!(Exact::of_text(&format!(" {a}\n")).compare_to(Exact::of_text(&b.to_string())), Some(a.cmp(&b)));
        }
    }

    #[test]
    fn what_is_no_number_has_no_order() {
        for text in ["x", "1_0", "\u{85}1", "0x", "--1"] {
            assert!(Exact::of_text(text).is_nan(), "{text}");
            assert_eq!(Exact::of_text(text).compare_to(Exact::Int(1)), None);
            assert_eq!(Exact::Big(u64::MAX).compare_to(Exact::of_text(text)), None);
        }
        assert!(Exact::of_text("1e400").compare_to(Exact::Big(u64::MAX)) == Some(Ordering::Greater));
        assert!(
            Exact::of_text("0x10").is_equal(Exact::Int(16))
                && Exact::of_text("1e3").is_equal(Exact::Int(1000))
        );
    }
}
