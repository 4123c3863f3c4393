//! `lobster cost`

use std::collections::BTreeMap;
use std::io::Write;

use lobster_runtime::budget::{Amount, SERVICE_KEY, Unit, nano_usd};
use lobster_runtime::model::cost::{Ledger, PaidCall};
use lobster_runtime::model::pricing::Pricing;
use lobster_runtime::stage::Mode;
use lobster_runtime::store::{DaySpent, Record, RunFilter, iso};
use serde_json::{Value, json};

use super::models;
use crate::exit::{CommandResult, finish, print_json};
use crate::prepare;
use crate::render::one_line;
use crate::render::pager::PagedOutput;
use crate::render::table::{Cell, Room, Table};
use crate::render::units;

/// Sums up the cost of model calls from the record.
///
/// A lost answer under a cost limit counts with the highest amount that it can have cost.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lobster cost                             by run, the newest first
  lobster cost --by model
  lobster cost --by day --json

Prices are those of today: `lobster models prices` lists them.")]
pub(crate) struct Args {
    /// The grouping of the sums.
    #[arg(long, value_enum, default_value_t = By::Run, value_name = "WHAT")]
    by: By,
    /// Prints a JSON object.
    #[arg(long)]
    json: bool,
}

/// The ways to group calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum By {
    Run,
    Model,
    Workflow,
    Day,
}

/// The sum of some calls.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sum {
    calls: u64,
    lost: u64,
    unpriced: u64,
    input_tokens: u64,
    output_tokens: u64,
    usd: f64,
}

impl Sum {
    /// The sum of a run's calls; `None` if there was no call.
    pub(crate) fn of_run(journal: &[Record], pricing: &Pricing) -> Option<Self> {
        let mut sum = Self::default();
        for payment in Ledger::from_journal(journal).payments() {
            sum.add_call(&payment.price_with(pricing), payment.spend.is_lost);
        }
        (sum.calls > 0).then_some(sum)
    }

    fn add_call(&mut self, call: &PaidCall, is_lost: bool) {
        self.calls += 1;
        self.lost += u64::from(is_lost);
        self.unpriced += u64::from(call.cost_usd.is_none());
        self.input_tokens = self.input_tokens.saturating_add(call.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(call.output_tokens);
        self.usd += call.cost_usd.unwrap_or(0.0);
    }

    /// The same sum in the form of budgets.
    pub(super) fn to_amount(&self) -> Amount {
        Amount {
            calls: self.calls,
            tokens: self.input_tokens.saturating_add(self.output_tokens),
            nano_usd: nano_usd(self.usd),
        }
    }

    fn to_json(&self) -> Value {
        json!({
            "calls": self.calls,
            "lostCalls": self.lost,
            "unpricedCalls": self.unpriced,
            "inputTokens": self.input_tokens,
            "outputTokens": self.output_tokens,
            "costUsd": (self.usd * 1e6).round() / 1e6,
        })
    }

    fn to_cells(&self) -> [Cell; 5] {
        let note = match (self.lost, self.unpriced) {
            (0, 0) => String::new(),
            (lost, 0) => format!("{lost} lost"),
            (0, unpriced) => format!("{unpriced} without a price"),
            (lost, unpriced) => format!("{lost} lost, {unpriced} without a price"),
        };
        [
            self.calls.to_string().into(),
            self.input_tokens.to_string().into(),
            self.output_tokens.to_string().into(),
            format!("${:.4}", self.usd).into(),
            note.into(),
        ]
    }

    /// The sum in one line, for a person.
    pub(crate) fn to_line(&self) -> String {
        let mut line = format!(
            "{}: {} tokens in, {} out, ${:.4}",
            units::count_noun(self.calls, "model call"),
            self.input_tokens,
            self.output_tokens,
            self.usd
        );
        if self.lost > 0 {
            line.push_str(&format!("; {} lost, counted with the highest possible cost", self.lost));
        }
        if self.unpriced > 0 {
            line.push_str(&format!("; {} without a price", self.unpriced));
        }
        line
    }
}

pub(crate) fn run(args: &Args) -> CommandResult {
    let heading = match args.by {
        By::Run => "RUN",
        By::Model => "MODEL",
        By::Workflow => "WORKFLOW",
        By::Day => "DAY",
    };
    let by = heading.to_lowercase();
    let pricing = models::usable_prices()?;
    let store = prepare::runtime(Mode::Human)?.store()?;
    // Newest first, as listed by the store.
    let mut rows: Vec<(String, String, Sum)> = Vec::new();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    let mut total = Sum::default();
    for run in store.list_runs(&RunFilter::default())? {
        let (journal, _) = prepare::found_journal(&store, run.id)?;
        for payment in Ledger::from_journal(&journal).payments() {
            let call = payment.price_with(&pricing);
            let (key, name) = match args.by {
                By::Run => (run.id.to_string(), run.name.clone()),
                By::Model => (call.model.clone().unwrap_or_else(|| "unknown".to_owned()), String::new()),
                By::Workflow => (run.name.clone(), String::new()),
                By::Day => (iso(payment.at).chars().take(10).collect(), String::new()),
            };
            let place = *places.entry(key.clone()).or_insert_with(|| {
                rows.push((key, name, Sum::default()));
                rows.len() - 1
            });
            rows[place].2.add_call(&call, payment.spend.is_lost);
            total.add_call(&call, payment.spend.is_lost);
        }
    }
    match args.by {
        By::Run => {}
        By::Day => rows.sort_by(|a, b| b.0.cmp(&a.0)),
        By::Model | By::Workflow => rows.sort_by(|a, b| b.2.usd.total_cmp(&a.2.usd)),
    }
    let budgets = store.spent_on(store.today())?;
    let mut out = PagedOutput::for_reader(args.json);
    if args.json {
        let object = |(key, name, sum): &(String, String, Sum)| {
            let mut object = sum.to_json();
            object[by.as_str()] = json!(key);
            if args.by == By::Run {
                object["name"] = json!(name);
            }
            object
        };
        let all: Vec<Value> = rows.iter().map(object).collect();
        let budgets: Vec<Value> = budgets.iter().map(budget_object).collect();
        let answer = json!({ "by": by, "rows": all, "total": total.to_json(), "budgetsOfToday": budgets });
        return print_json(&mut out, &answer);
    }
    if rows.is_empty() {
        writeln!(out, "no model calls")?;
        write_budgets(&mut out, &budgets)?;
        return finish(out);
    }
    let numeric = ["CALLS", "TOKENS IN", "OUT", "COST"];
    let mut table =
        Table::new(&[heading, "CALLS", "TOKENS IN", "OUT", "COST", "", ""]).numeric_columns(&numeric);
    for (key, name, sum) in &rows {
        let key = match args.by {
            // The end of an id is enough.
            By::Run => key.chars().skip(key.len().saturating_sub(8)).collect(),
            By::Model | By::Workflow | By::Day => one_line(key),
        };
        let mut row: Vec<Cell> = vec![key.as_str().into()];
        row.extend(sum.to_cells());
        row.push(one_line(name).as_str().into());
        table.push(row);
    }
    let mut last: Vec<Cell> = vec!["total".into()];
    last.extend(total.to_cells());
    table.push(last);
    table.print_to(&mut out, Room::of_stdout())?;
    write_budgets(&mut out, &budgets)?;
    finish(out)
}

/// Prints the use of today's budgets.
fn write_budgets(out: &mut impl Write, budgets: &[DaySpent]) -> std::io::Result<()> {
    for budget in budgets {
        let (name, used) = (one_line(name_of(budget)), budget.limits.used_text(&budget.used));
        writeln!(out, "budget of {name} for today (UTC): {used} used")?;
    }
    Ok(())
}

/// The owner of a budget: a file, or the service.
fn name_of(budget: &DaySpent) -> &str {
    if budget.key == SERVICE_KEY {
        "the service"
    } else {
        budget.key.strip_prefix("file:").unwrap_or(&budget.key)
    }
}

fn budget_object(budget: &DaySpent) -> Value {
    let mut object = json!({ "of": name_of(budget) });
    for unit in Unit::ALL {
        let Some(limit) = budget.limits.limit_of(unit) else { continue };
        let used = budget.used.count_of(unit);
        #[expect(clippy::cast_precision_loss, reason = "far below 2^53 billionths")]
        let number = |count: u64| match unit {
            Unit::Usd => json!(count as f64 / 1e9),
            Unit::Calls | Unit::Tokens => json!(count),
        };
        object[unit.field_name()] = json!({ "limit": number(limit), "used": number(used), "left": number(limit.saturating_sub(used)) });
    }
    object
}
