//! `on:`, from the tree of a file to [`Triggers`].
//!
//! Each entry is parsed separately, so that `lobster check` reports the errors of all entries.

use std::collections::{BTreeMap, HashSet};

use serde_json::Map;

use super::super::codes;
use super::super::diagnostic::{Checked, Diagnostic};
use super::super::plan::ArgSpec;
use super::super::source::{Data, Node};
use super::super::template;
use super::super::triggers::{
    self, After, Due, Ended, Missed, Overlap, Schedule, Source, Triggers, Verify, Watch, Webhook, cron,
};
use super::{Lowering, nearest_field};
use lobster_base::quantity::Span as Time;

pub(super) const TRIGGER_FIELDS: &[&str] = &["schedule", "webhook", "after", "watch"];
pub(super) const SCHEDULE_FIELDS: &[&str] =
    &["name", "cron", "timezone", "every", "jitter", "missed", "overlap", "args"];
pub(super) const WEBHOOK_FIELDS: &[&str] = &["path", "verify", "header", "secret", "args"];
pub(super) const AFTER_FIELDS: &[&str] = &["workflow", "ended", "args"];
pub(super) const WATCH_FIELDS: &[&str] = &["paths", "settle", "args"];
pub(super) const MISSED_FIELDS: &[&str] = &["policy", "max", "within"];
pub(super) const OVERLAP_FIELDS: &[&str] = &["policy", "max"];

pub(super) const MISSED: &[&str] = &["skip", "last", "all"];
pub(super) const OVERLAP: &[&str] = &["allow", "skip", "queue", "cancel_previous"];
pub(super) const VERIFY: &[&str] = &["standard", "github", "stripe", "slack", "hmac", "token"];
pub(super) const ENDED: &[&str] = &["ok", "failed", "any"];

/// A schedule that is due more often than this may miss ticks: the next one is due soon.
const OFTEN_MS: u64 = 3_600_000;

/// Default number of missed ticks that `all` runs.
const CATCH_UP: u64 = 10;

/// Most missed ticks that a file may request, and most ticks that may wait for an earlier run.
const MOST_TICKS: u64 = 1000;

/// Default number of ticks that wait under `overlap: queue`.
const QUEUED: u64 = 1;

/// Shortest interval.
const SHORTEST_MS: u64 = 1000;

/// Default time without file changes before a run starts.
const SETTLE_MS: u64 = 2000;

/// Secrets of one webhook: the old and the new one.
const MOST_SECRETS: usize = 2;

/// Source of arguments.
#[derive(Clone, Copy)]
enum Brings {
    /// None: the file has the values.
    Nothing,
    /// Data with this name, as in `$body.ref`.
    Named(&'static str),
}

impl Lowering<'_> {
    /// Triggers of the workflow. Errors are reported and their entries left out.
    pub(super) fn lower_triggers(&mut self, root: &Node, args: &[ArgSpec]) -> Triggers {
        let Some(on) = root.get_some("on") else { return Triggers::default() };
        if let Err(error) = self.reject_unknown_keys(on, TRIGGER_FIELDS, "on") {
            self.push_trigger_error(*error);
        }
        let is_alone = on.get("schedule").and_then(Node::as_list).is_none_or(|list| list.len() == 1);
        let found = Triggers {
            schedules: self
                .each_trigger(on, "schedule", |this, node| this.lower_schedule(node, is_alone, args)),
            webhooks: self.each_trigger(on, "webhook", |this, node| this.lower_webhook(node, args)),
            after: self.each_trigger(on, "after", |this, node| this.lower_after(node, args)),
            watch: self.each_trigger(on, "watch", |this, node| this.lower_watch(node, args)),
        };
        self.refuse_equal_names(&found);
        self.refuse_data_in_commands(root, &found);
        found
    }

    fn each_trigger<T>(&mut self, on: &Node, key: &str, read: impl Fn(&Self, &Node) -> Checked<T>) -> Vec<T> {
        let Some(node) = on.get(key) else { return Vec::new() };
        let entries = match &node.data {
            Data::List(items) if !items.is_empty() => items.as_slice(),
            Data::Map(_) => std::slice::from_ref(node),
            _ => {
                let message = format!("on.{key} must be a map, or a list of maps, not {}", node.kind_name());
                let error = self.trigger_error(node, message);
                self.push_trigger_error(error);
                return Vec::new();
            }
        };
        let mut found = Vec::with_capacity(entries.len());
        for entry in entries {
            match read(self, entry) {
                Ok(trigger) => found.push(trigger),
                Err(error) => self.push_trigger_error(*error),
            }
        }
        found
    }

    /// Errors of helpers that other fields also use are attributed to the trigger, which no run needs.
    pub(super) fn push_trigger_error(&mut self, mut error: Diagnostic) {
        error.code = codes::TRIGGER;
        self.warnings.push(error);
    }

    fn lower_schedule(&self, node: &Node, is_alone: bool, args: &[ArgSpec]) -> Checked<Schedule> {
        self.reject_unknown_keys(node, SCHEDULE_FIELDS, "on.schedule")?;
        let name = match self.trigger_text(node, "name", "on.schedule.name")? {
            Some(name) => name,
            None if is_alone => "schedule".to_owned(),
            None => {
                let error = self.trigger_error(node, "each of several schedules needs a name");
                return Err(error.with_help("add `name:`, by which `lobster schedule` calls it").into());
            }
        };
        let (due, gap_ms) = self.lower_due_times(node)?;
        let jitter_ms = self.span_of(node, "jitter", "on.schedule.jitter")?.unwrap_or(0);
        if let (Some(jitter), Some(gap)) = (node.get("jitter"), gap_ms.filter(|gap| jitter_ms >= *gap)) {
            let message = format!(
                "on.schedule.jitter must be shorter than the time between two ticks, {}",
                format_milliseconds(gap)
            );
            return Err(self.trigger_error(jitter, message).into());
        }
        let missed = self.lower_missed(node, gap_ms)?;
        let overlap = self.lower_overlap(node)?;
        let values = self.trigger_args(node, args, Brings::Nothing, "on.schedule")?;
        let args = values.into_iter().filter_map(|(name, source)| match source {
            Source::Value(value) => Some((name, value)),
            Source::Path(_) => None,
        });
        Ok(Schedule {
            span: node.span,
            name,
            due,
            jitter_ms,
            missed,
            overlap,
            args: args.collect::<Map<_, _>>(),
        })
    }

    /// Times at which the schedule is due, and the time between two ticks.
    fn lower_due_times(&self, node: &Node) -> Checked<(Due, Option<u64>)> {
        match (node.get_some("cron"), node.get_some("every")) {
            (Some(pattern), None) => {
                let Some(text) = pattern.as_text() else {
                    let message = format!("on.schedule.cron must be a text, not {}", pattern.kind_name());
                    return Err(self.trigger_error(pattern, message).with_help(CRON_HELP).into());
                };
                let read = cron::parse(text).map_err(|error| {
                    let message = format!("on.schedule.cron {text:?}: {error}");
                    self.trigger_error(pattern, message).with_help(CRON_HELP)
                })?;
                let timezone = self.lower_timezone(node)?;
                Ok((Due::Cron { pattern: text.to_owned(), timezone }, read.shortest_gap_ms()))
            }
            (None, Some(every)) => {
                if let Some(zone) = node.get_some("timezone") {
                    let message = "on.schedule.timezone has no meaning with `every`, which uses real time";
                    return Err(self.trigger_error(zone, message).into());
                }
                let ms = self.span_of(node, "every", "on.schedule.every")?.unwrap_or(0);
                if ms < SHORTEST_MS {
                    let message =
                        format!("on.schedule.every must be at least {}", format_milliseconds(SHORTEST_MS));
                    return Err(self.trigger_error(every, message).into());
                }
                Ok((Due::Every { ms }, Some(ms)))
            }
            _ => {
                let error = self.trigger_error(node, "on.schedule takes one of cron and every");
                Err(error.with_help("for example `cron: \"30 2 * * *\"` or `every: 15m`").into())
            }
        }
    }

    fn lower_timezone(&self, node: &Node) -> Checked<String> {
        let Some(name) = self.trigger_text(node, "timezone", "on.schedule.timezone")? else {
            return Ok("UTC".to_owned());
        };
        if triggers::is_zone(&name) {
            return Ok(name);
        }
        let written = node.get("timezone").unwrap_or(node);
        let error = self.trigger_error(written, format!("there is no time zone {name:?}"));
        let names = triggers::zone_names();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        Err(match nearest_field(&name, &names) {
            Some(near) => {
                error.with_help(format!("did you mean `{near}`?")).with_fix(written.span, near).into()
            }
            None => error.with_help("write a name of the IANA database, such as `Europe/Berlin`").into(),
        })
    }

    fn lower_missed(&self, schedule: &Node, gap_ms: Option<u64>) -> Checked<Missed> {
        let Some(node) = schedule.get_some("missed") else {
            let is_often = gap_ms.is_some_and(|gap| gap < OFTEN_MS);
            return Ok(if is_often { Missed::Skip } else { Missed::Last { within_ms: None } });
        };
        let name = "on.schedule.missed";
        let (policy, max, within_ms) = if node.as_text().is_some() {
            (self.choice_of(node, MISSED, name)?, None, None)
        } else {
            self.reject_unknown_keys(node, MISSED_FIELDS, name)?;
            let policy =
                self.choice_of(node.get("policy").unwrap_or(node), MISSED, &format!("{name}.policy"))?;
            let max = self.count_of(node, &format!("{name}.max"))?;
            (policy, max, self.span_of(node, "within", &format!("{name}.within"))?)
        };
        let unused = match policy {
            "skip" => max.map(|_| "max").or(within_ms.map(|_| "within")),
            "last" => max.map(|_| "max"),
            _ => None,
        };
        if let Some(unused) = unused {
            let message = format!("{name}.{unused} has no meaning with the policy {policy}");
            return Err(self.trigger_error(node.get(unused).unwrap_or(node), message).into());
        }
        Ok(match policy {
            "skip" => Missed::Skip,
            "last" => Missed::Last { within_ms },
            _ => Missed::All { max: max.unwrap_or(CATCH_UP), within_ms },
        })
    }

    fn lower_overlap(&self, schedule: &Node) -> Checked<Overlap> {
        let Some(node) = schedule.get_some("overlap") else { return Ok(Overlap::default()) };
        let name = "on.schedule.overlap";
        let (policy, max) = if node.as_text().is_some() {
            (self.choice_of(node, OVERLAP, name)?, None)
        } else {
            self.reject_unknown_keys(node, OVERLAP_FIELDS, name)?;
            let policy =
                self.choice_of(node.get("policy").unwrap_or(node), OVERLAP, &format!("{name}.policy"))?;
            (policy, self.count_of(node, &format!("{name}.max"))?)
        };
        if max.is_some() && policy != "queue" {
            let message = format!("{name}.max has no meaning with the policy {policy}");
            return Err(self.trigger_error(node.get("max").unwrap_or(node), message).into());
        }
        Ok(match policy {
            "allow" => Overlap::Allow,
            "skip" => Overlap::Skip,
            "queue" => Overlap::Queue { max: max.unwrap_or(QUEUED) },
            _ => Overlap::CancelPrevious,
        })
    }

    fn lower_webhook(&self, node: &Node, args: &[ArgSpec]) -> Checked<Webhook> {
        self.reject_unknown_keys(node, WEBHOOK_FIELDS, "on.webhook")?;
        let path = self.needed_text(node, "path", "on.webhook", "for example `path: github/push`")?;
        let path = path.strip_prefix('/').unwrap_or(&path).to_owned();
        if !path.split('/').all(is_segment) {
            let written = node.get("path").unwrap_or(node);
            let error = self.trigger_error(written, "on.webhook.path must be segments joined by /");
            let help = "a segment has letters, digits, `-`, `_` and `.`, and does not begin with a `.`";
            return Err(error.with_help(help).into());
        }
        let secrets = self.text_list(node, "secret", "on.webhook.secret")?;
        if secrets.is_empty() || secrets.len() > MOST_SECRETS {
            let message = "on.webhook.secret must be the name of a secret, or a list of two while one replaces the other";
            let help = "write `secret: NAME`, and in secrets.toml where its value is";
            return Err(self
                .trigger_error(node.get("secret").unwrap_or(node), message)
                .with_help(help)
                .into());
        }
        let verify = self.lower_verify(node)?;
        let args = self.trigger_args(node, args, Brings::Named("body"), "on.webhook")?;
        Ok(Webhook { span: node.span, path, verify, secrets, args })
    }

    fn lower_verify(&self, node: &Node) -> Checked<Verify> {
        let Some(written) = node.get_some("verify") else {
            let error = self.trigger_error(node, "on.webhook.verify is missing");
            let help = format!("it sets how the sender is authenticated: {}", VERIFY.join(", "));
            return Err(error.with_help(help).into());
        };
        let scheme = self.choice_of(written, VERIFY, "on.webhook.verify")?;
        let header = self.trigger_text(node, "header", "on.webhook.header")?.map(|h| h.to_ascii_lowercase());
        if let (Some(header), Some(written)) = (&header, node.get("header")) {
            if !header.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_') {
                let message = "on.webhook.header must be the name of a header";
                return Err(self.trigger_error(written, message).into());
            }
            if !matches!(scheme, "hmac" | "token") {
                let message = format!("on.webhook.header has no meaning with verify: {scheme}");
                return Err(self.trigger_error(written, message).into());
            }
        }
        Ok(match (scheme, header) {
            ("standard", _) => Verify::Standard,
            ("github", _) => Verify::Github,
            ("stripe", _) => Verify::Stripe,
            ("slack", _) => Verify::Slack,
            ("hmac", Some(header)) => Verify::Hmac { header },
            ("hmac", None) => {
                let help = "name the header with the signature: `header: X-Signature`";
                let error = self.trigger_error(written, "on.webhook.header is missing");
                return Err(error.with_help(help).into());
            }
            (_, header) => Verify::Token { header: header.unwrap_or_else(|| "authorization".to_owned()) },
        })
    }

    fn lower_after(&self, node: &Node, args: &[ArgSpec]) -> Checked<After> {
        self.reject_unknown_keys(node, AFTER_FIELDS, "on.after")?;
        let workflow =
            self.needed_text(node, "workflow", "on.after", "for example `workflow: fetch.lobster`")?;
        let own = self.source.path.file_name().and_then(|name| name.to_str());
        if own.is_some_and(|own| workflow.trim_start_matches("./") == own) {
            let written = node.get("workflow").unwrap_or(node);
            let message = "on.after.workflow names this file: it would never end";
            return Err(self.trigger_error(written, message).into());
        }
        let ended = match node.get_some("ended") {
            None => Ended::default(),
            Some(ended) => match self.choice_of(ended, ENDED, "on.after.ended")? {
                "ok" => Ended::Ok,
                "failed" => Ended::Failed,
                _ => Ended::Any,
            },
        };
        let args = self.trigger_args(node, args, Brings::Named("run"), "on.after")?;
        Ok(After { span: node.span, workflow, ended, args })
    }

    fn lower_watch(&self, node: &Node, args: &[ArgSpec]) -> Checked<Watch> {
        self.reject_unknown_keys(node, WATCH_FIELDS, "on.watch")?;
        let paths = self.text_list(node, "paths", "on.watch.paths")?;
        if paths.is_empty() {
            let error = self.trigger_error(node.get("paths").unwrap_or(node), "on.watch.paths names no file");
            return Err(error.with_help("for example `paths: [inbox/*.csv]`, relative to this file").into());
        }
        let settle_ms = self.span_of(node, "settle", "on.watch.settle")?.unwrap_or(SETTLE_MS);
        let args = self.trigger_args(node, args, Brings::Named("watch"), "on.watch")?;
        Ok(Watch { span: node.span, paths, settle_ms, args })
    }

    /// `args:` of a trigger: every name must be declared, every value must have the right type, and all
    /// required arguments must be set.
    fn trigger_args(
        &self,
        node: &Node,
        declared: &[ArgSpec],
        brings: Brings,
        name: &str,
    ) -> Checked<BTreeMap<String, Source>> {
        let mut args = BTreeMap::new();
        let written = node.get_some("args");
        if let Some(written) = written.filter(|written| written.as_map().is_none()) {
            let message = format!("{name}.args must be a map, not {}", written.kind_name());
            return Err(self.trigger_error(written, message).into());
        }
        for entry in written.and_then(Node::as_map).unwrap_or_default() {
            let Some(spec) = declared.iter().find(|spec| spec.name == entry.key) else {
                let message = format!("{name}.args: the file declares no argument {:?}", entry.key);
                let error = Diagnostic::error(self.source, codes::TRIGGER, entry.key_span, message);
                let names: Vec<&str> = declared.iter().map(|spec| spec.name.as_str()).collect();
                return Err(match nearest_field(&entry.key, &names) {
                    Some(near) => error
                        .with_help(format!("did you mean `{near}`?"))
                        .with_fix(entry.key_span, near)
                        .into(),
                    None => error.with_help("declare it under `args:` at the top of the file").into(),
                });
            };
            let source = self.argument_source(&entry.value, brings, name)?;
            if let Source::Value(value) = &source {
                spec.check_value(value)
                    .map_err(|error| self.trigger_error(&entry.value, format!("{name}.args: {error}")))?;
            }
            args.insert(entry.key.clone(), source);
        }
        let missing =
            |spec: &&ArgSpec| spec.required && spec.default.is_none() && !args.contains_key(&spec.name);
        if let Some(spec) = declared.iter().find(missing) {
            let message = format!("{name}.args: argument {:?} is required and gets no value", spec.name);
            return Err(self.trigger_error(written.unwrap_or(node), message).into());
        }
        Ok(args)
    }

    fn argument_source(&self, node: &Node, brings: Brings, name: &str) -> Checked<Source> {
        let Some(reference) = node.as_text().and_then(template::strict_reference) else {
            // The whole data of the trigger.
            return Ok(match (node.as_text().map(str::trim), brings) {
                (Some(text), Brings::Named(root)) if text.strip_prefix('$') == Some(root) => {
                    Source::Path(Vec::new())
                }
                (Some(text), _) if is_meant_as_reference(text, brings) => {
                    let message = format!("{name}.args: {text:?} is not a reference to the trigger's data");
                    let help = match brings {
                        Brings::Named(root) => {
                            format!("write `${root}.NAME` alone for a part of it, or `${root}` for all of it")
                        }
                        Brings::Nothing => "a schedule provides no data: write the value itself".to_owned(),
                    };
                    return Err(self.trigger_error(node, message).with_help(help).into());
                }
                _ => Source::Value(node.to_value()),
            });
        };
        match brings {
            Brings::Named(root) if reference.id == root => Ok(Source::Path(reference.path)),
            Brings::Named(root) => {
                let error = self.trigger_error(node, format!("{name}.args: there is no `${reference}` here"));
                let help = format!(
                    "write `${root}.{}` for a part of the data of the trigger",
                    reference.path.join(".")
                );
                Err(error.with_help(help).into())
            }
            Brings::Nothing => {
                let message =
                    format!("{name}.args: there is no `${reference}` here: a schedule provides no data");
                Err(self.trigger_error(node, message).with_help("write the value itself").into())
            }
        }
    }

    fn refuse_equal_names(&mut self, found: &Triggers) {
        let schedules = found.schedules.iter().map(|s| (s.span, format!("the name {:?}", s.name)));
        let webhooks = found.webhooks.iter().map(|w| (w.span, format!("the path {:?}", w.path)));
        let mut seen = HashSet::new();
        let twice: Vec<_> =
            schedules.chain(webhooks).filter(|(_, what)| !seen.insert(what.clone())).collect();
        for (span, what) in twice {
            let error =
                Diagnostic::error(self.source, codes::TRIGGER, span, format!("{what} is taken twice"));
            self.push_trigger_error(*error);
        }
    }

    fn trigger_error(&self, node: &Node, message: impl Into<String>) -> Diagnostic {
        *Diagnostic::error(self.source, codes::TRIGGER, node.span, message)
    }

    fn trigger_text(&self, owner: &Node, key: &str, name: &str) -> Checked<Option<String>> {
        let Some(node) = owner.get_some(key) else { return Ok(None) };
        match node.as_text().filter(|text| !text.trim().is_empty()) {
            Some(text) => Ok(Some(text.to_owned())),
            None => {
                let message = format!("{name} must be a text that is not empty");
                Err(self.trigger_error(node, message).into())
            }
        }
    }

    fn needed_text(&self, owner: &Node, key: &str, name: &str, help: &str) -> Checked<String> {
        self.trigger_text(owner, key, &format!("{name}.{key}"))?.ok_or_else(|| {
            self.trigger_error(owner, format!("{name}.{key} is missing")).with_help(help).into()
        })
    }

    fn span_of(&self, owner: &Node, key: &str, name: &str) -> Checked<Option<u64>> {
        let Some(node) = owner.get_some(key) else { return Ok(None) };
        match node.as_text().and_then(|text| text.parse::<Time>().ok()) {
            Some(span) => Ok(Some(span.milliseconds())),
            None => {
                let error = self.trigger_error(node, format!("{name} must be a duration"));
                Err(error.with_help("a number and a unit: `30s`, `15m`, `6h`, `1d`").into())
            }
        }
    }

    fn count_of(&self, owner: &Node, name: &str) -> Checked<Option<u64>> {
        let Some(node) = owner.get_some("max") else { return Ok(None) };
        match node.to_value().as_u64().filter(|count| (1..=MOST_TICKS).contains(count)) {
            Some(count) => Ok(Some(count)),
            None => {
                let message = format!("{name} must be an integer between 1 and {MOST_TICKS}");
                Err(self.trigger_error(node, message).into())
            }
        }
    }

    fn choice_of(&self, node: &Node, choices: &[&'static str], name: &str) -> Checked<&'static str> {
        let text = node.as_text().unwrap_or_default();
        if let Some(choice) = choices.iter().find(|choice| **choice == text) {
            return Ok(choice);
        }
        let error = self.trigger_error(node, format!("{name} must be one of {}", choices.join(", ")));
        Err(match nearest_field(text, choices) {
            Some(near) => error.with_help(format!("did you mean `{near}`?")).with_fix(node.span, near).into(),
            None => error.into(),
        })
    }
}

const CRON_HELP: &str = "five fields: minute, hour, day of the month, month, day of the week; `\"30 2 * * 1-5\"` is 02:30 on weekdays";

fn is_segment(segment: &str) -> bool {
    let is_allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    !segment.is_empty() && !segment.starts_with('.') && segment.bytes().all(is_allowed)
}

/// A time in milliseconds as people write it.
fn format_milliseconds(ms: u64) -> String {
    Time(std::time::Duration::from_millis(ms)).to_string()
}

/// True if a text that is not a reference looks like one: it would become the value literally. An
/// amount (`$5`) does not.
fn is_meant_as_reference(text: &str, brings: Brings) -> bool {
    let begins = |rest: &str| {
        rest.starts_with(|c: char| c.is_ascii_alphabetic() || matches!(c, '.' | '[' | '{' | '_'))
    };
    let names_root = match brings {
        Brings::Named(root) => text.contains(&format!("${root}.")) || text.contains(&format!("${{{root}")),
        Brings::Nothing => false,
    };
    names_root || text.strip_prefix('$').is_some_and(begins)
}
