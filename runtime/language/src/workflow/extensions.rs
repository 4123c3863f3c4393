//! Fields that the incumbent does not know: `exec`, `component`, `js`, `mcp`, `grants`, `limits`,
//! `cache`, `changes`, `inputs`, `idempotent`, `stop_grace`, `secrets`, `credentials`. `undo` is in
//! [`super::undo`].
//!
//! Files that use them were written for this runtime, so every mistake in these fields is an error.

use super::super::codes;
use super::super::diagnostic::{Checked, Diagnostic};
use super::super::pipeline;
use super::super::plan::{ChangesMode, DirGrant, Extras, Grants, StepLimits, WaitFor, Work};
use super::super::source::{Data, Node};
use super::budget::BudgetOwner;
use super::{Lowering, fields, nearest_field};
use lobster_base::quantity::{self, Bytes};
use lobster_stage::McpServer;

impl Lowering<'_> {
    /// A list of texts under a key, or a single text.
    pub(super) fn text_list(&self, owner: &Node, key: &str, name: &str) -> Checked<Vec<String>> {
        let Some(node) = owner.get_some(key) else { return Ok(Vec::new()) };
        let items = match &node.data {
            Data::List(items) => items.as_slice(),
            Data::Text(_) => std::slice::from_ref(node),
            Data::Null | Data::Bool(_) | Data::Number(_) | Data::NotFinite | Data::Map(_) => {
                return self
                    .reject_type(node, format!("{name} must be a list of texts, not {}", node.kind_name()));
            }
        };
        items
            .iter()
            .map(|item| match item.as_text() {
                Some(text) if !text.is_empty() => Ok(text.to_owned()),
                Some(_) => self.reject_type(item, format!("{name} must not hold an empty text")),
                None => {
                    self.reject_type(item, format!("{name} must hold texts only, not {}", item.kind_name()))
                }
            })
            .collect()
    }

    fn bool_field(&self, owner: &Node, key: &str, name: &str) -> Checked<bool> {
        match owner.get_some(key) {
            None => Ok(false),
            Some(node) => match node.as_bool() {
                Some(value) => Ok(value),
                None => {
                    self.reject_type(node, format!("{name} must be true or false, not {}", node.kind_name()))
                }
            },
        }
    }

    /// Rejects unknown keys: rights and limits must not be misread.
    pub(super) fn reject_unknown_keys(&self, node: &Node, known: &[&str], name: &str) -> Checked<()> {
        let Some(entries) = node.as_map() else {
            return self.reject_type(node, format!("{name} must be a map, not {}", node.kind_name()));
        };
        match entries.iter().find(|entry| !known.contains(&entry.key.as_str())) {
            None => Ok(()),
            Some(entry) => {
                let message = format!("{name} has no field {:?}", entry.key);
                let error = Diagnostic::error(self.source, codes::FIELD_TYPE, entry.key_span, message);
                Err(match nearest_field(&entry.key, known) {
                    Some(meant) => error
                        .with_help(format!("did you mean `{meant}`?"))
                        .with_fix(entry.key_span, meant)
                        .into(),
                    None => error.with_help(format!("it takes {}", known.join(", "))).into(),
                })
            }
        }
    }

    /// `exec: [program, argument, ...]`.
    pub(super) fn lower_exec(&self, node: &Node, prefix: &str) -> Checked<Work> {
        let Some(items) = node.as_list().filter(|items| !items.is_empty()) else {
            let message = format!("{prefix}exec must be a list: the program and its arguments");
            let error = Diagnostic::error(self.source, codes::FIELD_TYPE, node.span, message);
            return Err(error
                .with_help("for example `exec: [git, log, -n, \"5\"]`; use `run:` for shell text")
                .into());
        };
        let mut argv = Vec::new();
        for item in items {
            match &item.data {
                Data::Text(text) => argv.push(text.clone()),
                Data::Number(number) => argv.push(lobster_base::json::number_text(number)),
                Data::Null | Data::Bool(_) | Data::NotFinite | Data::List(_) | Data::Map(_) => {
                    return self.reject_type(
                        item,
                        format!("{prefix}exec must hold texts only, not {}", item.kind_name()),
                    );
                }
            }
        }
        if argv.first().is_some_and(|program| program.trim().is_empty()) {
            return self.reject_type(node, format!("{prefix}exec names no program"));
        }
        Ok(Work::Exec(argv))
    }

    pub(super) fn lower_component(&self, step: &Node, node: &Node, prefix: &str) -> Checked<Work> {
        let Some(component) = node.as_text().filter(|text| !text.trim().is_empty()) else {
            let message = format!("{prefix}component must be a path, or blake3: and a digest");
            return self.reject_type(node, message);
        };
        if let Some(hex) = component.strip_prefix("blake3:")
            && hex.parse::<lobster_base::digest::Digest>().is_err()
        {
            let message = format!("{prefix}component digest must be 64 lower-case hex digits after blake3:");
            return self.reject_type(node, message);
        }
        Ok(Work::Component { component: component.to_owned(), args: self.lower_args(step, prefix)? })
    }

    fn lower_args(&self, step: &Node, prefix: &str) -> Checked<serde_json::Map<String, serde_json::Value>> {
        match step.get_some("args").map(|args| (args, args.as_map())) {
            None => Ok(serde_json::Map::new()),
            Some((_, Some(entries))) => Ok(super::super::source::to_map(entries)),
            Some((args, None)) => {
                let message = format!("{prefix}args must be a map, not {}", args.kind_name());
                self.reject_type(args, message)
            }
        }
    }

    /// `mcp: {server: NAME, tool: TOOL}`, or with `command: [...]` or `url:` in place of the name.
    pub(super) fn lower_mcp(&self, step: &Node, node: &Node, prefix: &str) -> Checked<Work> {
        let name = format!("{prefix}mcp");
        self.reject_unknown_keys(node, &["server", "command", "url", "tool"], &name)?;
        let text = |key: &str| match node.get_some(key) {
            None => Ok(None),
            Some(value) => match value.as_text().filter(|text| !text.trim().is_empty()) {
                Some(text) => Ok(Some(text.to_owned())),
                None => self.reject_type(value, format!("{name}.{key} must be a text")),
            },
        };
        let argv = node
            .get_some("command")
            .map(|node| self.lower_exec(node, &format!("{name}.command: ")))
            .transpose()?;
        let server = match (text("server")?, argv, text("url")?) {
            (Some(named), None, None) => McpServer::Named(named),
            (None, Some(Work::Exec(argv)), None) => McpServer::Command(argv),
            (None, None, Some(url)) => McpServer::Url(url),
            _ => {
                let message = format!("{name} takes one of server, command and url");
                let error = Diagnostic::error(self.source, codes::FIELD_TYPE, node.span, message);
                return Err(error.with_help("for example `mcp: {server: files, tool: read_file}`").into());
            }
        };
        match text("tool")? {
            Some(tool) => Ok(Work::Mcp { server, tool, args: self.lower_args(step, prefix)? }),
            None => self.reject_type(node, format!("{name} names no tool")),
        }
    }

    /// `wait: 90s`, `wait: {until: TIME}` or `wait: {event: NAME, timeout: 1h}`.
    pub(super) fn lower_wait(&self, node: &Node, prefix: &str) -> Checked<Work> {
        let wait = match &node.data {
            Data::Text(text) => WaitFor::Span(text.clone()),
            Data::Map(_) => self.wait_map(node, prefix)?,
            Data::Null | Data::Bool(_) | Data::Number(_) | Data::NotFinite | Data::List(_) => {
                let message = format!("{prefix}wait must be a duration or a map, not {}", node.kind_name());
                let help = "for example `wait: 90s`, `wait: {until: TIME}` or `wait: {event: NAME}`";
                return self.reject_with_help(codes::FIELD_TYPE, node.span, message, help);
            }
        };
        match wait.constant_error() {
            Some(why) => self.reject_type(node, format!("{prefix}wait: {why}")),
            None => Ok(Work::Wait(wait)),
        }
    }

    fn wait_map(&self, node: &Node, prefix: &str) -> Checked<WaitFor> {
        self.reject_unknown_keys(node, fields::WAIT_FIELDS, &format!("{prefix}wait"))?;
        let text = |key: &str, what: &str| match node.get_some(key) {
            None => Ok(None),
            Some(found) => match found.as_text() {
                Some(text) => Ok(Some(text.to_owned())),
                None => self.reject_type(
                    found,
                    format!("{prefix}wait.{key} must be {what} as text, not {}", found.kind_name()),
                ),
            },
        };
        let until = text("until", "a time")?;
        let event = text("event", "a name")?;
        match (until, event, text("timeout", "a duration")?) {
            (Some(time), None, None) => Ok(WaitFor::Time(time)),
            (None, Some(name), timeout) => Ok(WaitFor::Event { name, timeout }),
            (Some(_), ..) => {
                self.reject_node(codes::CONFLICT, node, format!("{prefix}wait.until stands alone in its map"))
            }
            (None, None, _) => {
                self.reject_type(node, format!("{prefix}wait names neither `until` nor `event`"))
            }
        }
    }

    pub(super) fn lower_js(&self, node: &Node, prefix: &str) -> Checked<Work> {
        match node.as_text().filter(|text| !text.trim().is_empty()) {
            Some(text) => Ok(Work::Js(text.to_owned())),
            None => self
                .reject_type(node, format!("{prefix}js must be JavaScript text, not {}", node.kind_name())),
        }
    }

    pub(super) fn lower_extras(
        &mut self,
        step: &Node,
        work: &Work,
        declared: &[String],
        prefix: &str,
    ) -> Checked<Extras> {
        let (cache, cache_ttl_ms) = self.lower_cache(step, prefix)?;
        let extras = Extras {
            cache,
            cache_ttl_ms,
            inputs: self.text_list(step, "inputs", &format!("{prefix}inputs"))?,
            idempotent: self.bool_field(step, "idempotent", &format!("{prefix}idempotent"))?,
            stop_grace_ms: self.stop_grace(step, work, prefix)?,
            secrets: self.lower_secrets(step, declared, prefix)?,
            credentials: self.lower_credentials(step, declared, prefix)?,
            budget: self.lower_budget(step, BudgetOwner::Step, prefix)?,
            grants: step.get_some("grants").map(|node| self.lower_grants(node, prefix)).transpose()?,
            changes: self.lower_changes(step, work, prefix)?,
            limits: step.get_some("limits").map(|node| self.lower_limits(node, prefix)).transpose()?,
            ..Extras::default()
        };
        self.secrets_in_text(step, work, &extras.secrets, declared, prefix)?;
        self.credentials_in_place(step, work, &extras, prefix)?;
        self.out_of_place(step, work, prefix)?;
        self.check_caching(step, work, &extras, prefix)?;
        Ok(extras)
    }

    /// `stop_grace:` of a step with processes that can be asked to end.
    fn stop_grace(&self, step: &Node, work: &Work, prefix: &str) -> Checked<Option<u64>> {
        let Some(node) = step.get_some("stop_grace") else { return Ok(None) };
        let has_processes = match work {
            Work::Shell(_) | Work::Exec(_) => true,
            Work::Pipeline(text) => pipeline::parse(text)
                .map_or(true, |parsed| parsed.stages.iter().any(|stage| runs_processes(&stage.name))),
            _ => false,
        };
        if !has_processes {
            let message = format!("{prefix}stop_grace: only steps that run a program have it");
            let error = Diagnostic::error(self.source, codes::CONFLICT, node.span, message);
            return Err(error.with_help("put it on the run, command, exec or pipeline steps inside").into());
        }
        let grace = match &node.data {
            Data::Number(number) => number.as_u64(),
            Data::Text(text) => Unit::Duration.parse_amount(text),
            Data::Null | Data::Bool(_) | Data::NotFinite | Data::List(_) | Data::Map(_) => None,
        };
        match grace.filter(|grace| *grace <= LONGEST_GRACE_MS) {
            Some(grace) => Ok(Some(grace)),
            None => {
                let message = format!("{prefix}stop_grace must be a duration from 0s to 60s, such as 30s");
                self.reject_type(node, message)
            }
        }
    }

    /// `changes:` of a step.
    fn lower_changes(&self, step: &Node, work: &Work, prefix: &str) -> Checked<Option<ChangesMode>> {
        let Some(node) = step.get_some("changes") else { return Ok(None) };
        let changes_files =
            matches!(work, Work::Shell(_) | Work::Exec(_) | Work::Pipeline(_) | Work::Component { .. });
        if !changes_files {
            let message =
                format!("{prefix}changes: only run, command, exec, pipeline and component steps have it");
            let help = "put it on the steps inside of others, or at the top of the file for all of them";
            return self.reject_with_help(codes::CONFLICT, node.span, message, help);
        }
        self.changes_mode(node, prefix).map(Some)
    }

    /// Value of `changes:`.
    pub(super) fn changes_mode(&self, node: &Node, prefix: &str) -> Checked<ChangesMode> {
        let known =
            node.as_text().and_then(|text| ChangesMode::ALL.into_iter().find(|(name, _)| *name == text));
        match known {
            Some((_, mode)) => Ok(mode),
            None => self.reject_type(node, format!("{prefix}changes must be direct, staged or review")),
        }
    }

    /// Reports fields that this kind of work does not use: errors if they promise confinement,
    /// otherwise warnings.
    fn out_of_place(&mut self, step: &Node, work: &Work, prefix: &str) -> Checked<()> {
        let runs_itself = matches!(
            work,
            Work::Shell(_) | Work::Exec(_) | Work::Pipeline(_) | Work::Component { .. } | Work::Js(_)
        );
        if runs_itself {
            return Ok(());
        }
        let is_call = matches!(work, Work::Mcp { .. });
        for key in ["grants", "limits", "secrets"] {
            if let Some(node) = step.get_some(key).filter(|_| !is_call || key != "secrets") {
                let message = format!("{prefix}{key} has no effect on a step that runs nothing itself");
                let error = Diagnostic::error(self.source, codes::CONFLICT, node.span, message);
                return Err(error.with_help("put it on the steps inside").into());
            }
        }
        let has_effect = matches!(work, Work::Mcp { .. });
        if let Some(node) = step.get_some("idempotent").filter(|_| !has_effect) {
            let message = format!("{prefix}idempotent has no effect on a step that runs nothing itself");
            self.warn(codes::INPUT_OUTSIDE, node.span, message);
        }
        Ok(())
    }

    /// Rejects caching of a step whose outcome cannot be kept.
    fn check_caching(&mut self, step: &Node, work: &Work, extras: &Extras, prefix: &str) -> Checked<()> {
        let is_native = matches!(work, Work::Shell(_) | Work::Exec(_));
        let is_component = matches!(work, Work::Component { .. } | Work::Js(_));
        let refuse = |node: &Node, message: String, help: &str| -> Checked<()> {
            let error = Diagnostic::error(self.source, codes::CACHE, node.span, format!("{prefix}{message}"));
            Err(error.with_help(help).into())
        };
        if let Some(node) = step.get_some("cache").filter(|_| extras.cache == Some(true)) {
            if !is_native && !is_component {
                return refuse(
                    node,
                    "cache: only run, command, exec, component and js steps can be cached".to_owned(),
                    "put it on the steps inside; model calls have a cache of their own",
                );
            }
            if !extras.secrets.is_empty() || !extras.credentials.is_empty() {
                return refuse(
                    node,
                    "cache: a step with secrets or credentials is never cached".to_owned(),
                    "let a step without secrets do what is to be cached",
                );
            }
            if is_component && extras.grants.as_ref().is_some_and(|grants| !grants.write.is_empty()) {
                return refuse(
                    node,
                    "cache: a step that may write files is never cached".to_owned(),
                    "a cached step is not run, so its files would not be written; print the result instead",
                );
            }
        }
        if let Some(node) = step.get_some("inputs") {
            if !is_native {
                let help = if is_component {
                    "what a component can read belongs to its action by itself: see grants.read"
                } else {
                    "put it on the steps inside"
                };
                return refuse(
                    node,
                    "inputs: only run, command and exec steps take input files".to_owned(),
                    help,
                );
            }
            if extras.cache.is_none() {
                let message = format!(
                    "{prefix}inputs without cache: the step runs whether they changed or not \
                     (`cache: true` reuses its outcome, `cache: false` says that this is meant)"
                );
                self.warn(codes::IDLE_INPUTS, node.span, message);
            }
        }
        Ok(())
    }

    /// `cache: true`, `cache: false` or `cache: {ttl: 10m}`.
    fn lower_cache(&self, step: &Node, prefix: &str) -> Checked<(Option<bool>, Option<u64>)> {
        let Some(node) = step.get_some("cache") else { return Ok((None, None)) };
        if let Some(value) = node.as_bool() {
            return Ok((Some(value), None));
        }
        if node.as_map().is_none() {
            return self
                .reject_type(node, format!("{prefix}cache must be true, false or {{ttl: <duration>}}"));
        }
        let name = format!("{prefix}cache");
        self.reject_unknown_keys(node, &["ttl"], &name)?;
        Ok((Some(true), self.lower_amount(node, "ttl", &name, Unit::Duration)?))
    }

    fn lower_grants(&self, node: &Node, prefix: &str) -> Checked<Grants> {
        let name = format!("{prefix}grants");
        self.reject_unknown_keys(node, &["read", "write", "env", "net", "clock", "random"], &name)?;
        Ok(Grants {
            read: self.lower_directories(node, "read", &name)?,
            write: self.lower_directories(node, "write", &name)?,
            env: self.text_list(node, "env", &format!("{name}.env"))?,
            net: self.lower_hosts(node, &name)?,
            clock: self.bool_field(node, "clock", &format!("{name}.clock"))?,
            random: self.bool_field(node, "random", &format!("{name}.random"))?,
        })
    }

    fn lower_directories(&self, grants: &Node, key: &str, name: &str) -> Checked<Vec<DirGrant>> {
        let Some(node) = grants.get_some(key) else { return Ok(Vec::new()) };
        let name = format!("{name}.{key}");
        let items = node.as_list().unwrap_or(std::slice::from_ref(node));
        items.iter().map(|item| self.lower_directory_grant(item, &name)).collect()
    }

    fn lower_directory_grant(&self, item: &Node, name: &str) -> Checked<DirGrant> {
        let path = |node: &Node| match node.as_text().filter(|text| !text.trim().is_empty()) {
            Some(text) => Ok(text.to_owned()),
            None => {
                let message = format!(
                    "{name} must hold directories, DIR:GUEST or {{from: <directory>, to: <guest path>}}"
                );
                self.reject_type(node, message)
            }
        };
        let grant = if item.as_map().is_none() {
            let text = path(item)?;
            // As on the command line; only a map can name a directory with `:/` in its path.
            match text.rsplit_once(":/") {
                Some((from, guest)) if !from.is_empty() => {
                    DirGrant { from: from.to_owned(), to: Some(format!("/{guest}")) }
                }
                _ => DirGrant { from: text, to: None },
            }
        } else {
            self.reject_unknown_keys(item, &["from", "to"], name)?;
            let to = item.get_some("to").map(path).transpose()?;
            DirGrant { from: path(item.get("from").unwrap_or(item))?, to }
        };
        if let Some(guest) = &grant.to
            && (!guest.starts_with('/') || guest.split('/').any(|part| part == ".."))
        {
            return self.reject_type(
                item.get("to").unwrap_or(item),
                format!("{name} guest path must be absolute, without `..`"),
            );
        }
        Ok(grant)
    }

    fn lower_hosts(&self, grants: &Node, name: &str) -> Checked<Vec<String>> {
        let name = format!("{name}.net");
        let hosts = self.text_list(grants, "net", &name)?;
        for host in &hosts {
            let port_fits = match host.rsplit_once(':') {
                // An IPv6 address without a port ends in `]`.
                Some((_, port)) if !port.ends_with(']') => {
                    port == "*" || port.parse::<u16>().is_ok_and(|n| n > 0)
                }
                _ => true,
            };
            if !port_fits || host.contains(['/', ' ', '@']) {
                let node = grants.get("net").unwrap_or(grants);
                let message = format!("{name} takes `host` or `host:port`, not {host:?}");
                return self.reject_type(node, message);
            }
        }
        Ok(hosts)
    }

    fn lower_limits(&self, node: &Node, prefix: &str) -> Checked<StepLimits> {
        let name = format!("{prefix}limits");
        self.reject_unknown_keys(node, &["fuel", "memory", "output"], &name)?;
        Ok(StepLimits {
            fuel: self.lower_amount(node, "fuel", &name, Unit::Count)?,
            memory: self.lower_amount(node, "memory", &name, Unit::Bytes)?,
            output: self.lower_amount(node, "output", &name, Unit::Bytes)?,
        })
    }

    fn lower_amount(&self, owner: &Node, key: &str, name: &str, unit: Unit) -> Checked<Option<u64>> {
        let Some(node) = owner.get_some(key) else { return Ok(None) };
        let amount = match &node.data {
            Data::Number(number) => number.as_u64(),
            Data::Text(text) => unit.parse_amount(text),
            Data::Null | Data::Bool(_) | Data::NotFinite | Data::List(_) | Data::Map(_) => None,
        };
        match amount.filter(|amount| *amount > 0) {
            Some(amount) => Ok(Some(amount)),
            None => self.reject_type(node, format!("{name}.{key} must be {}", unit.description())),
        }
    }
}

/// Longest `stop_grace` in milliseconds: the service waits a little longer for a run that has to end.
const LONGEST_GRACE_MS: u64 = 60_000;

/// True if a pipeline command of this name runs a program.
fn runs_processes(name: &str) -> bool {
    matches!(name, "exec" | "gog.gmail.search" | "gog.gmail.send" | "openclaw.agent" | "workflows.run")
        || name.starts_with("github.pr.monitor")
}

/// Unit of an amount. Bare numbers are plain units, bytes or milliseconds.
#[derive(Clone, Copy)]
enum Unit {
    Count,
    Bytes,
    Duration,
}

impl Unit {
    fn description(self) -> &'static str {
        match self {
            Self::Count => "a positive whole number, such as 2_000_000",
            Self::Bytes => "a positive size, such as 64MiB or 1_000_000",
            Self::Duration => "a positive duration, such as 500ms, 10s, 5m, 1h or 7d",
        }
    }

    fn parse_amount(self, text: &str) -> Option<u64> {
        match self {
            Self::Count => quantity::parse_count(text),
            Self::Bytes => Bytes::parse_or_bytes(text).ok().map(|bytes| bytes.0),
            Self::Duration => quantity::Span::parse_or_milliseconds(text).map(quantity::Span::milliseconds),
        }
    }
}

#[cfg(test)]
mod unit_tests {
    use super::Unit;

    #[test]
    fn amounts() {
        for (unit, text, amount) in [
            (Unit::Count, "2_000_000_000", Some(2_000_000_000)),
            (Unit::Count, "64MiB", None),
            (Unit::Bytes, "64MiB", Some(64 << 20)),
            (Unit::Bytes, "8 kB", Some(8000)),
            (Unit::Bytes, "1gib", Some(1 << 30)),
            (Unit::Bytes, "99999999999GiB", None),
            (Unit::Bytes, "-1", None),
            (Unit::Bytes, "1.5MiB", None),
            (Unit::Bytes, "", None),
            (Unit::Duration, "10m", Some(600_000)),
            (Unit::Duration, "250", Some(250)),
            (Unit::Duration, "1w", Some(604_800_000)),
        ] {
            assert_eq!(unit.parse_amount(text), amount, "{text}");
        }
    }
}
