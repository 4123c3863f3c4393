//! `budget:` of a file and of a step.

use lobster_base::budget::{MOST_USD, Unit, UsageLimits, nano_usd};

use super::super::codes;
use super::super::diagnostic::Checked;
use super::super::plan::Budget;
use super::super::source::Node;
use super::{Lowering, fields, validate};

/// Owner of a budget.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum BudgetOwner {
    File,
    Step,
}

impl Lowering<'_> {
    /// Limits of model calls in a file or a step.
    pub(super) fn lower_budget(
        &mut self,
        holder: &Node,
        place: BudgetOwner,
        prefix: &str,
    ) -> Checked<Option<Budget>> {
        let Some(node) = holder.get_some("budget") else { return Ok(None) };
        let name = format!("{prefix}budget");
        if node.as_map().is_none() {
            return self.reject_type(node, format!("{name} must be an object"));
        }
        if place == BudgetOwner::Step
            && let Some(day) = node.get("day")
        {
            let message = format!("{name}.day: only the file has a budget for a day");
            return self.reject_node(codes::CONFLICT, day, message);
        }
        let known = match place {
            BudgetOwner::File => fields::FILE_BUDGET_FIELDS,
            BudgetOwner::Step => fields::BUDGET_FIELDS,
        };
        self.reject_unknown_keys(node, known, &name)?;
        let mut budget = Budget { limits: self.budget_limits(node, &name)?, ..Budget::default() };
        if let Some(day) = node.get_some("day") {
            let name = format!("{name}.day");
            if day.as_map().is_none() {
                return self.reject_type(day, format!("{name} must be an object"));
            }
            self.reject_unknown_keys(day, fields::DAY_BUDGET_FIELDS, &name)?;
            budget.day = self.budget_limits(day, &name)?;
        }
        if let Some(unpriced) = node.get_some("unpriced") {
            match unpriced.as_text() {
                Some("allow") => budget.allows_unpriced = true,
                Some("refuse") => {}
                _ => {
                    let message = format!("{name}.unpriced must be \"allow\" or \"refuse\"");
                    return self.reject_type(unpriced, message);
                }
            }
        }
        if budget.limits.is_empty() && budget.day.is_empty() {
            let message = format!("{name} limits nothing: it needs calls, tokens or usd");
            return self.reject_type(node, message);
        }
        Ok(Some(budget))
    }

    fn budget_limits(&self, node: &Node, name: &str) -> Checked<UsageLimits> {
        Ok(UsageLimits {
            calls: self.whole_limit(node, Unit::Calls, name)?,
            tokens: self.whole_limit(node, Unit::Tokens, name)?,
            nano_usd: self.usd_limit(node, name)?,
        })
    }

    fn whole_limit(&self, node: &Node, unit: Unit, name: &str) -> Checked<Option<u64>> {
        let Some(limit) = node.get_some(unit.field_name()) else { return Ok(None) };
        match limit.to_value().as_u64() {
            Some(count) => Ok(Some(count)),
            None => {
                let message = format!("{name}.{} must be a whole number, 0 or more", unit.field_name());
                self.reject_type(limit, message)
            }
        }
    }

    fn usd_limit(&self, node: &Node, name: &str) -> Checked<Option<u64>> {
        let Some(limit) = node.get_some(Unit::Usd.field_name()) else { return Ok(None) };
        let usd = validate::js_number_of(limit);
        if (0.0..=MOST_USD).contains(&usd) {
            return Ok(Some(nano_usd(usd)));
        }
        let message = format!("{name}.usd must be dollars, from 0 to {MOST_USD}");
        self.reject_type(limit, message)
    }
}
