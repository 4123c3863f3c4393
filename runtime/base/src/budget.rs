//! Use and limits of model calls: calls, tokens and dollars, as whole numbers, so that sums are exact in any order.

use serde::{Deserialize, Serialize};

/// Use of some calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Requests sent to models.
    pub calls: u64,
    /// Tokens, input and output.
    pub tokens: u64,
    /// Billionths of a US dollar.
    pub nano_usd: u64,
}

/// Limits of calls; a missing field is unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageLimits {
    /// Requests to models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<u64>,
    /// Tokens, input and output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Billionths of a US dollar.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nano_usd: Option<u64>,
}

/// Largest limit in dollars, since they are stored in billionths.
pub const MOST_USD: f64 = 9e9;

/// Unit of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Requests.
    Calls,
    /// Tokens.
    Tokens,
    /// Dollars.
    Usd,
}

impl Unit {
    /// All units.
    pub const ALL: [Self; 3] = [Self::Calls, Self::Tokens, Self::Usd];

    /// The field of `budget` with its limit.
    #[must_use]
    pub fn field_name(self) -> &'static str {
        match self {
            Self::Calls => "calls",
            Self::Tokens => "tokens",
            Self::Usd => "usd",
        }
    }

    /// An amount in this unit, for display.
    #[must_use]
    pub fn format_amount(self, count: u64) -> String {
        match self {
            Self::Calls if count == 1 => "1 call".to_owned(),
            Self::Calls => format!("{count} calls"),
            Self::Tokens if count == 1 => "1 token".to_owned(),
            Self::Tokens => format!("{count} tokens"),
            Self::Usd => usd_text(count),
        }
    }
}

impl Amount {
    /// The amount in one unit.
    #[must_use]
    pub fn count_of(&self, unit: Unit) -> u64 {
        match unit {
            Unit::Calls => self.calls,
            Unit::Tokens => self.tokens,
            Unit::Usd => self.nano_usd,
        }
    }

    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            calls: self.calls.saturating_add(other.calls),
            tokens: self.tokens.saturating_add(other.tokens),
            nano_usd: self.nano_usd.saturating_add(other.nano_usd),
        }
    }

    /// The difference, but not below zero.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self {
            calls: self.calls.saturating_sub(other.calls),
            tokens: self.tokens.saturating_sub(other.tokens),
            nano_usd: self.nano_usd.saturating_sub(other.nano_usd),
        }
    }
}

impl UsageLimits {
    /// True if nothing is limited.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The limit of one unit.
    #[must_use]
    pub fn limit_of(&self, unit: Unit) -> Option<u64> {
        match unit {
            Unit::Calls => self.calls,
            Unit::Tokens => self.tokens,
            Unit::Usd => self.nano_usd,
        }
    }

    /// The first unit whose limit is exceeded. The exact limit is allowed.
    #[must_use]
    pub fn passed_by(&self, amount: &Amount) -> Option<Unit> {
        Unit::ALL
            .into_iter()
            .find(|unit| self.limit_of(*unit).is_some_and(|limit| amount.count_of(*unit) > limit))
    }

    /// The use of each limit, for display: `3 of 20 calls, $0.25 of $1.00`.
    #[must_use]
    pub fn used_text(&self, used: &Amount) -> String {
        let one = |unit: Unit| {
            let limit = self.limit_of(unit)?;
            let used = match unit {
                Unit::Usd => usd_text(used.nano_usd),
                Unit::Calls | Unit::Tokens => used.count_of(unit).to_string(),
            };
            Some(format!("{used} of {}", unit.format_amount(limit)))
        };
        Unit::ALL.into_iter().filter_map(one).collect::<Vec<_>>().join(", ")
    }

    /// The limits, for display: `20 calls, $1.00`.
    #[must_use]
    pub fn display_text(&self) -> String {
        let one = |unit: Unit| self.limit_of(unit).map(|limit| unit.format_amount(limit));
        Unit::ALL.into_iter().filter_map(one).collect::<Vec<_>>().join(", ")
    }
}

/// Dollars in billionths, rounded up, except for differences that arise from adding doubles.
#[must_use]
pub fn nano_usd(usd: f64) -> u64 {
    const NOISE: f64 = 1e-3;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates at both ends")]
    let nano = (usd * 1e9 - NOISE).ceil() as u64;
    nano
}

/// Dollars for display: at least with cents, and with all further digits.
#[must_use]
pub fn usd_text(nano: u64) -> String {
    const NANO: u64 = 1_000_000_000;
    let digits = format!("{:09}", nano % NANO);
    let shown = digits.trim_end_matches('0').len().max(2);
    format!("${}.{}", nano / NANO, &digits[..shown])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dollars_are_exact() {
        for (usd, text) in
            [(0.0, "$0.00"), (1.5, "$1.50"), (0.0025, "$0.0025"), (0.1 + 0.2, "$0.30"), (-1.0, "$0.00")]
        {
            assert_eq!(usd_text(nano_usd(usd)), text);
        }
        assert_eq!(nano_usd(0.000_000_000_1), 1);
        assert_eq!(nano_usd(f64::INFINITY), u64::MAX);
        assert_eq!(nano_usd(f64::NAN), 0);
        // Ten calls of a tenth reach the limit exactly.
        let tenth = nano_usd(0.3 / 3.0);
        assert_eq!(tenth * 10, nano_usd(1.0));
    }

    #[test]
    fn the_first_limit_that_is_passed_is_named() {
        let limits = UsageLimits { calls: Some(2), tokens: None, nano_usd: Some(5) };
        let amount = |calls, nano_usd| Amount { calls, tokens: 9, nano_usd };
        assert_eq!(limits.passed_by(&amount(2, 5)), None);
        assert_eq!(limits.passed_by(&amount(2, 6)), Some(Unit::Usd));
        assert_eq!(limits.passed_by(&amount(3, 6)), Some(Unit::Calls));
        assert_eq!(limits.used_text(&amount(1, 5)), "1 of 2 calls, $0.000000005 of $0.000000005");
        assert!(UsageLimits::default().is_empty() && !limits.is_empty());
    }
}
