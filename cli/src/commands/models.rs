//! `lobster models`

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use lobster_runtime::json;
use lobster_runtime::model::pricing::{AS_OF, Origin, Pricing, Rate, VARIABLE, prices_file, read_rates};
use serde_json::{Value, json};

use crate::exit::{CommandError, CommandResult, Exit, print_json};
use crate::render::one_line;
use crate::render::pager::PagedOutput;
use crate::render::table::{Cell, Room, Table};
use crate::render::units;
use crate::stdout::stdout;
use crate::whole_files::replace_file;

/// Lists prices of models, and stores the operator's own prices.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, clap::Subcommand)]
enum Task {
    /// Lists the prices that limits use, in dollars per million tokens.
    #[command(after_help = "Examples:
  lobster models prices
  lobster models prices openai/gpt-5-2025-08-07
  lobster models prices --update prices.json        {\"MODEL\": {\"input\": 2.5, \"output\": 10}}

--update writes lobster/prices.json of the configuration directory (~/.config). LOBSTER_LLM_PRICING_JSON takes
precedence.")]
    Prices(Prices),
}

#[derive(Debug, clap::Args)]
struct Prices {
    /// Only the prices of these models. The exit code is 1 if one has no price.
    models: Vec<String>,
    /// Adds the prices of this file to the operator's ones, all or none; - reads stdin.
    #[arg(long, value_name = "FILE", conflicts_with = "models")]
    update: Option<PathBuf>,
    /// Prints a JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> CommandResult {
    let Task::Prices(prices) = &args.task;
    match &prices.update {
        Some(file) => update_prices(file, prices.json),
        None => list_prices(&prices.models, prices.json),
    }
}

/// The name of an entry, its price and its source.
type Entry<'p> = (&'p str, Rate, Origin);

pub(super) fn env_variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// The current prices.
///
/// # Errors
/// One of the operator's tables is unusable.
pub(super) fn usable_prices() -> Result<Pricing, CommandError> {
    let (pricing, bad) = Pricing::configured(env_variable);
    bad.first().map_or(Ok(pricing), |bad| Err(CommandError::failed(bad.to_string())))
}

/// The source of a price, for people.
fn describe_origin(origin: Origin) -> String {
    match origin {
        Origin::BuiltIn => format!("built in, {AS_OF}"),
        Origin::File => "prices.json".to_owned(),
        Origin::Variable => VARIABLE.to_owned(),
    }
}

fn list_prices(models: &[String], as_json: bool) -> CommandResult {
    let pricing = usable_prices()?;
    // The requested name and its entry.
    let rows: Vec<(&str, Option<Entry<'_>>)> = if models.is_empty() {
        pricing.entries().map(|entry| (entry.0, Some(entry))).collect()
    } else {
        models.iter().map(|model| (model.as_str(), pricing.find_entry(model))).collect()
    };
    let exit = if rows.iter().all(|(_, entry)| entry.is_some()) { Exit::OK } else { Exit::FAILED };
    let mut out = PagedOutput::for_reader(as_json);
    if as_json {
        let object = |(model, entry): &(&str, Option<Entry<'_>>)| {
            let Some((name, rate, from)) = entry else { return json!({ "model": model, "price": null }) };
            json!({ "model": model, "entry": name, "price": rate, "from": describe_origin(*from) })
        };
        let all: Vec<Value> = rows.iter().map(object).collect();
        writeln!(out, "{}", json::pretty(&json!({ "unit": "USD per million tokens", "models": all })))?;
        return Ok(exit);
    }
    let mut table = Table::new(&["MODEL", "INPUT", "OUTPUT", "LONG REQUESTS", "FROM"])
        .numeric_columns(&["INPUT", "OUTPUT"]);
    for (model, entry) in rows {
        let name = one_line(model);
        let Some((entry, rate, from)) = entry else {
            table.push(vec![
                name.as_str().into(),
                "".into(),
                "".into(),
                "".into(),
                Cell::state_word("no price"),
            ]);
            continue;
        };
        let from = if entry == model {
            describe_origin(from)
        } else {
            format!("{entry}, {}", describe_origin(from))
        };
        table.push(vec![
            name.as_str().into(),
            format_dollars(rate.input).as_str().into(),
            format_dollars(rate.output).as_str().into(),
            long_price(rate).as_str().into(),
            one_line(&from).as_str().into(),
        ]);
    }
    table.print_to(&mut out, Room::of_stdout())?;
    out.flush()?;
    Ok(exit)
}

/// At least two decimals, and no digit lost.
fn format_dollars(usd: f64) -> String {
    let exact = usd.to_string();
    let rounded = format!("{usd:.2}");
    format!("${}", if exact.len() > rounded.len() { exact } else { rounded })
}

fn long_price(rate: Rate) -> String {
    rate.long.map_or_else(String::new, |long| {
        format!(
            "above {} tokens {} and {}",
            long.above,
            format_dollars(long.input),
            format_dollars(long.output)
        )
    })
}

/// Adds the prices of a file to the operator's.
fn update_prices(file: &Path, as_json: bool) -> CommandResult {
    let text = match file == Path::new("-") {
        true => std::io::read_to_string(std::io::stdin().lock()),
        false => std::fs::read_to_string(file),
    };
    let shown = file.display();
    let new = read_rates(&text.map_err(CommandError::failed_at(file))?).ok_or_else(|| {
        CommandError::failed(format!(
            "{shown} is not a table of prices, and nothing was changed; it looks like \
             {{\"MODEL\": {{\"input\": 2.5, \"output\": 10}}}}, in dollars per million tokens"
        ))
    })?;
    let Some(place) = prices_file(env_variable) else {
        return Err(CommandError::failed("neither HOME nor XDG_CONFIG_HOME names a directory for prices"));
    };
    let mut kept: BTreeMap<String, Rate> = match std::fs::read_to_string(&place) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => BTreeMap::new(),
        other => read_rates(&other.map_err(CommandError::failed_at(&place))?).ok_or_else(|| {
            let place = place.display();
            CommandError::failed(format!("{place} is not a table of prices; mend or remove it first"))
        })?,
    };
    let before = Pricing::configured(|name| if name == VARIABLE { None } else { env_variable(name) }).0;
    let changed: Vec<(String, Option<Rate>, Rate)> = new
        .iter()
        .map(|(model, rate)| {
            (model.clone(), before.entries().find(|entry| entry.0 == model).map(|e| e.1), *rate)
        })
        .filter(|(_, old, new)| old.as_ref() != Some(new))
        .collect();
    kept.extend(new);
    replace_file(&place, format!("{}\n", json::pretty(&json!(kept))))
        .map_err(CommandError::failed_at(&place))?;
    let mut out = stdout();
    if as_json {
        let all: Vec<Value> = changed
            .iter()
            .map(|(model, old, new)| json!({ "model": model, "before": old, "price": new }))
            .collect();
        let answer = json!({ "file": place.display().to_string(), "changed": all });
        return print_json(&mut out, &answer);
    }
    for (model, old, new) in &changed {
        let new = format!("{} in, {} out", format_dollars(new.input), format_dollars(new.output));
        let old = old.map_or_else(
            || "no price before".to_owned(),
            |old| format!("before {} in, {} out", format_dollars(old.input), format_dollars(old.output)),
        );
        writeln!(out, "{}: {new} ({old})", one_line(model))?;
    }
    let count = units::count_noun(kept.len() as u64, "model");
    writeln!(out, "wrote {}: {count}, {} changed", place.display(), changed.len())?;
    Ok(Exit::OK)
}
