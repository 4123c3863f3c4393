//! A compiled filter: compiling it, running it, and saying what is wrong with it.

use jaq_core::data::{DataT, HasLut};
use jaq_core::load::{self, Arena, File, Loader};
use jaq_core::{Compiler, Ctx, Filter, Lut, Vars};
use jaq_std::input::{HasInputs, Inputs};
use lobster_step::{Any, Output, StepError};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::value::Json;
use crate::{natives, standard};

/// Natives that would reach out of the step; definitions stand in for them.
const REPLACED: [&str; 2] = ["now", "env"];

/// The data kind of our filters: JSON values, and the shared input for `inputs`.
struct Kind;

#[derive(Clone)]
struct Data<'a> {
    lut: &'a Lut<Kind>,
    inputs: Inputs<'a, Json>,
}

impl DataT for Kind {
    type V<'a> = Json;
    type Data<'a> = Data<'a>;
}

impl<'a> HasLut<'a, Kind> for Data<'a> {
    fn lut(&self) -> &'a Lut<Kind> {
        self.lut
    }
}

impl<'a> HasInputs<'a, Json> for Data<'a> {
    fn inputs(&self) -> Inputs<'a, Json> {
        self.inputs
    }
}

pub(crate) struct Program {
    filter: Filter<Kind>,
    vars: Vec<Json>,
}

impl Program {
    /// # Errors
    /// `bad-filter` with line and column if the filter cannot be compiled.
    pub(crate) fn compile(
        code: &str,
        vars: &Map<String, Value>,
        now: Option<f64>,
    ) -> Result<Self, StepError> {
        let now = match now {
            Some(seconds) => format!("def now: {seconds};"),
            None => "def now: error(\"there is no clock: pass `now`\");".to_owned(),
        };
        let own = format!("{now} def env: {{}};");
        let standard = standard::used_by(&[code, &own]);
        let own = load::parse(&own, |parser| parser.defs())
            .ok_or_else(|| StepError::bad_args("`now` is not a time"))?;
        // A definition lives as long as its text; the map shortens the static ones to ours.
        fn shorten<'s>(def: load::parse::Def<&'static str>) -> load::parse::Def<&'s str> {
            def
        }
        let defs = standard.into_iter().map(shorten).chain(own);
        let funs = jaq_core::funs()
            .chain(jaq_std::funs())
            .filter(|(name, ..)| !REPLACED.contains(name))
            .chain(natives::all().into_iter().map(jaq_core::native::run))
            .chain(jaq_std::input::funs().into_vec().into_iter().map(jaq_core::native::run));

        let arena = Arena::default();
        let modules = Loader::new(defs)
            .load(&arena, File { code, path: () })
            .map_err(|errors| bad_filter(code, load_error(errors.first().map(|(_, error)| error), code)))?;
        let names: Vec<String> = ["ENV"]
            .into_iter()
            .chain(vars.keys().map(String::as_str))
            .map(|name| format!("${name}"))
            .collect();
        let filter = Compiler::default()
            .with_funs(funs)
            .with_global_vars(names.iter().map(String::as_str))
            .compile(modules)
            .map_err(|errors| {
                let first = errors.first().and_then(|(_, errors)| errors.first());
                let found = first.map(|(name, undefined)| {
                    let advice = if undefined.as_str() == "variable" { "; give it in `vars`" } else { "" };
                    (*name, format!("there is no {} `{name}`{advice}", undefined.as_str()))
                });
                bad_filter(code, found)
            })?;
        let values = vars.values().map(|value| value.to_string());
        let vars = std::iter::once(Ok(Json(jaq_json::Val::obj(Default::default()))))
            .chain(values.map(|text| {
                jaq_json::read::parse_single(text.as_bytes())
                    .map(Json)
                    .map_err(|error| StepError::bad_args(error.to_string()))
            }))
            .collect::<Result<_, _>>()?;
        Ok(Self { filter, vars })
    }

    /// Runs the filter over one value. `place` opens the message of an error.
    ///
    /// # Errors
    /// `filter-error` with what the filter raised, `not-json` for a result that JSON cannot hold.
    pub(crate) fn run<'a>(
        &'a self,
        value: Json,
        place: &str,
        inputs: Inputs<'a, Json>,
        output: &mut Output<Any>,
    ) -> Result<(), StepError> {
        let data = Data { lut: &self.filter.lut, inputs };
        let context = Ctx::<Kind>::new(data, Vars::new(self.vars.iter().cloned()));
        for result in self.filter.id.run((context, value)) {
            let value = match result {
                Ok(value) => value,
                Err(stop) => match stop.get_halt() {
                    Ok(0) => return Ok(()),
                    Ok(code) => {
                        return Err(StepError::new(
                            "filter-error",
                            format!("{place}the filter halted with {code}"),
                        ));
                    }
                    Err(stop) => {
                        let message = stop.get_err().map_or_else(
                            |_| "a `break` without its label".to_owned(),
                            |error| error.to_string(),
                        );
                        return Err(StepError::new("filter-error", format!("{place}{message}")));
                    }
                },
            };
            let text = value.to_string();
            let json = RawValue::from_string(text).map_err(|_| {
                StepError::new("not-json", format!("{place}the result {value} cannot be JSON"))
            })?;
            output.item(&json)?;
        }
        Ok(())
    }
}

fn load_error<'s>(error: Option<&load::Error<&'s str>>, code: &'s str) -> Option<(&'s str, String)> {
    match error? {
        load::Error::Io(errors) => {
            errors.first().map(|(path, _)| (*path, "there are no modules in a step".to_owned()))
        }
        load::Error::Lex(errors) => {
            errors.first().map(|(expected, found)| (*found, format!("expected {}", expected.as_str())))
        }
        load::Error::Parse(errors) => errors.first().map(|(expected, found)| {
            let end = &code[code.len()..];
            let found = if found.is_empty() { end } else { found };
            (found, format!("expected {}", expected.as_str()))
        }),
    }
}

/// Puts a place to what is wrong. `found` is a part of `code`.
fn bad_filter(code: &str, found: Option<(&str, String)>) -> StepError {
    let Some((found, what)) = found else {
        return StepError::new("bad-filter", "the filter cannot be compiled");
    };
    let at = load::span(code, found).start.min(code.len());
    let before = code.get(..at).unwrap_or(code);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    let here: String = found.lines().next().unwrap_or_default().chars().take(20).collect();
    let here = if here.is_empty() { "the end".to_owned() } else { format!("`{here}`") };
    StepError::new("bad-filter", format!("line {line}, column {column}: {what} at {here}"))
}
