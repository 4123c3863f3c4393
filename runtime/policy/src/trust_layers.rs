//! Layers of policy: each is trusted less than the previous one and can only make the policy stricter.

use std::collections::BTreeSet;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::analysis::{Analysis, Arg};
use super::decide::Proposal;
use super::decision_env::DecisionEnv;
use super::file::{Effect, NetDefault, NetGrantSpec, NetWord, PolicyError, PolicyFile, Rule};
use super::paths::{expand_root, is_under, normalise_path};
use super::shell::read_script;
use super::{Policy, Stance};

/// Source of a policy file, most trusted first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Layer {
    /// The organisation or the owner of the machine.
    Organisation,
    /// The project's own file, which is trusted once a person has accepted its digest.
    Project,
    /// The run's own restrictions.
    Run,
}

/// Text of one layer.
#[derive(Clone, Debug)]
pub struct LayerText {
    /// Source of the text.
    pub layer: Layer,
    /// Name of the file, for errors.
    pub origin: String,
    /// TOML.
    pub text: String,
}

impl Policy {
    /// Loads several layers. The most trusted one sets the ceiling, and every later one can only lower
    /// it: roots are intersected, denials are united, limits take the smaller value, and the allow
    /// rules of a later layer are cut to the remaining roots. Without any layer, the result is the
    /// built-in policy.
    ///
    /// # Errors
    /// The error of the first layer that is not a policy or whose rules contradict their own examples.
    pub fn load_layers(layers: &[LayerText]) -> Result<Self, PolicyError> {
        let mut ordered: Vec<&LayerText> = layers.iter().collect();
        ordered.sort_by_key(|layer| layer.layer);
        let mut merged: Option<PolicyFile> = None;
        for layer in ordered {
            let file = Self::load(&layer.text, &layer.origin)?.file;
            merged = Some(match merged {
                None => file,
                Some(ceiling) => {
                    if let Some(name) = file.secrets.keys().next() {
                        return Err(PolicyError::Secret {
                            origin: layer.origin.clone(),
                            name: name.clone(),
                            message:
                                "only the most trusted layer may set the sources of secrets; move it there"
                                    .to_owned(),
                        });
                    }
                    if file.audit.path.is_some() || file.audit.anchor.is_some() {
                        return Err(PolicyError::Audit {
                            origin: layer.origin.clone(),
                            key: "audit.path and audit.anchor".to_owned(),
                            message:
                                "only the most trusted layer says where the audit is kept; move it there"
                                    .to_owned(),
                        });
                    }
                    let file = inherit_fields(&layer.text, file, &ceiling);
                    tighten_policy(ceiling, file)
                }
            });
        }
        Ok(merged.map_or_else(Self::builtin, |file| Self::new(file, Stance::Closed)))
    }

    /// Checks ids, matchers and every rule's own examples.
    pub(crate) fn check_rules(&self, origin: &str) -> Result<(), PolicyError> {
        let mut ids = BTreeSet::new();
        for rule in self.rules() {
            let wrong = |message: &str| PolicyError::Rule {
                origin: origin.to_owned(),
                rule: rule.id.clone(),
                message: message.to_owned(),
            };
            if !ids.insert(&rule.id) {
                return Err(wrong("this id is used twice"));
            }
            match (&rule.program, &rule.argv) {
                (Some(_), Some(_)) => return Err(wrong("give either program or argv, not both")),
                (None, None) => return Err(wrong("give program (with args) or argv")),
                (None, Some(argv)) if argv.is_empty() => return Err(wrong("argv is empty")),
                (None, Some(_)) if rule.args.is_some() => {
                    return Err(wrong("args belongs to program; argv already lists every argument"));
                }
                _ => {}
            }
            if rule.effect == Effect::Deny && rule.grant.is_some() {
                return Err(wrong("a deny rule grants nothing; remove grant"));
            }
            if rule.effect == Effect::Deny && !rule.changes.is_direct() {
                return Err(wrong("a deny rule allows no changes of files; remove changes"));
            }
            let other_network = |net: &NetGrantSpec| *net != NetGrantSpec::Word(NetWord::None);
            if rule.grant.uses_ports() && rule.grant.net.as_ref().is_some_and(other_network) {
                return Err(wrong(
                    "listen and connect use the run's own network, which has no connection to the outside; \
                     grant them without net, and grant net in a separate rule",
                ));
            }
            if rule.grant.listen.iter().chain(&rule.grant.connect).any(|port| *port == 0) {
                return Err(wrong("listen and connect name ports from 1 to 65535"));
            }
            if rule.effect != Effect::Ask && rule.ask.is_some() {
                return Err(wrong("ask terms belong to effect = \"ask\""));
            }
            for (example, wanted) in
                rule.matches.iter().map(|e| (e, true)).chain(rule.not_match.iter().map(|e| (e, false)))
            {
                if self.example_matches(rule, example) != wanted {
                    return Err(PolicyError::Example {
                        origin: origin.to_owned(),
                        rule: rule.id.clone(),
                        example: example.clone(),
                        message: if wanted {
                            "is listed under match but the rule does not match it".to_owned()
                        } else {
                            "is listed under not_match but the rule matches it".to_owned()
                        },
                    });
                }
            }
        }
        Ok(())
    }

    /// True if some command of the example text matches the rule.
    fn example_matches(&self, rule: &Rule, example: &str) -> bool {
        let env = DecisionEnv::fixture();
        if !read_script(example, self.limits().nesting).is_ok_and(|script| script.is_whole) {
            return false;
        }
        let decision = self.decide(&Proposal::shell(example), &env);
        let roots = self.resolve_roots(&env);
        let analysis = Analysis::new(self, &env, &roots, env.workspace.clone());
        decision.commands.iter().any(|command| {
            let args: Vec<Arg> = command
                .argv
                .iter()
                .map(|word| Arg { unknown: word.contains("‹?›"), ..Arg::literal(word.clone()) })
                .collect();
            let Some(first) = args.first() else { return false };
            let name = first.text.rsplit('/').next().unwrap_or("").to_owned();
            let program = analysis.resolve_program(&first.text);
            analysis.rule_matches(rule, &name, &args, program.as_deref())
        })
    }
}

impl super::RuleGrant {
    /// True if the grant has ports of the run's own network.
    fn uses_ports(&self) -> bool {
        !self.listen.is_empty() || !self.connect.is_empty()
    }

    /// True if the grant has any right beyond reading.
    pub(crate) fn is_some(&self) -> bool {
        !self.fs_read.is_empty()
            || !self.fs_write.is_empty()
            || self.net.is_some()
            || !self.env.is_empty()
            || !self.unix.is_empty()
            || self.uses_ports()
    }
}

/// Fills the fields that a layer leaves out from the layers above: only its own fields can make the
/// policy stricter.
fn inherit_fields(text: &str, mut layer: PolicyFile, ceiling: &PolicyFile) -> PolicyFile {
    fn overlay_value(base: Value, given: Option<&toml::Value>) -> Value {
        match (base, given) {
            (Value::Object(mut base), Some(toml::Value::Table(given))) => {
                for (key, value) in given {
                    let below = base.remove(key).unwrap_or(Value::Null);
                    base.insert(key.clone(), overlay_value(below, Some(value)));
                }
                Value::Object(base)
            }
            (base, None) => base,
            (_, Some(given)) => serde_json::to_value(given).unwrap_or(Value::Null),
        }
    }
    /// A part of the ceiling with the layer's changes; `None` if the result does not parse. The layer
    /// then keeps its own part, with the defaults.
    fn merge_part<T: Serialize + DeserializeOwned>(ceiling: &T, given: Option<&toml::Value>) -> Option<T> {
        let base = serde_json::to_value(ceiling).ok()?;
        serde_json::from_value(overlay_value(base, given)).ok()
    }
    let Ok(given) = toml::from_str::<toml::Table>(text) else { return layer };
    if let Some(limits) = merge_part(&ceiling.limits, given.get("limits")) {
        layer.limits = limits;
    }
    if let Some(sandbox) = merge_part(&ceiling.sandbox, given.get("sandbox")) {
        layer.sandbox = sandbox;
    }
    if !given.contains_key("profile") {
        layer.profile = ceiling.profile;
    }
    if given.get("programs").and_then(|programs| programs.get("trusted_dirs")).is_none() {
        layer.programs.trusted_dirs.clone_from(&ceiling.programs.trusted_dirs);
    }
    layer
}

/// Returns `ceiling` made stricter by `layer`.
fn tighten_policy(mut ceiling: PolicyFile, layer: PolicyFile) -> PolicyFile {
    if layer.profile.freedom_rank() < ceiling.profile.freedom_rank() {
        ceiling.profile = layer.profile;
    }
    let (limits, lower) = (&mut ceiling.limits, &layer.limits);
    limits.timeout = limits.timeout.min(lower.timeout);
    limits.cpu = limits.cpu.min(lower.cpu);
    limits.memory = limits.memory.min(lower.memory);
    limits.processes = limits.processes.min(lower.processes);
    limits.file_size = limits.file_size.min(lower.file_size);
    limits.disk = limits.disk.min(lower.disk);
    limits.open_files = limits.open_files.min(lower.open_files);
    limits.source = limits.source.min(lower.source);
    limits.nesting = limits.nesting.min(lower.nesting);
    for (output, lower) in [(&mut limits.stdout, &lower.stdout), (&mut limits.stderr, &lower.stderr)] {
        output.cap = output.cap.min(lower.cap);
        output.spill = output.spill.min(lower.spill);
        if lower.on_overflow == super::Overflow::Kill {
            output.on_overflow = super::Overflow::Kill;
        }
    }
    ceiling.approvals.by = ceiling.approvals.by.max(layer.approvals.by);
    let (sandbox, lower) = (&mut ceiling.sandbox, layer.sandbox);
    if lower.mode == super::SandboxMode::Strict {
        sandbox.mode = super::SandboxMode::Strict;
    }
    sandbox.changes = sandbox.changes.max(lower.changes);
    sandbox.agent_changes = sandbox.agent_changes.max(lower.agent_changes);
    add_missing(&mut sandbox.minimum, lower.minimum);
    sandbox.fs.read = intersect_roots(&sandbox.fs.read, &lower.fs.read);
    sandbox.fs.write = intersect_roots(&sandbox.fs.write, &lower.fs.write);
    // An exception in a lower layer would undo a denial.
    let denied = lower.fs.deny.into_iter().filter(|entry| !entry.starts_with('!'));
    add_missing(&mut sandbox.fs.deny, denied);
    add_missing(&mut sandbox.fs.protect, lower.fs.protect);
    if lower.net.default < sandbox.net.default {
        if lower.net.default == NetDefault::Hosts && sandbox.net.default == NetDefault::HostNetwork {
            sandbox.net.hosts.clone_from(&lower.net.hosts);
        }
        sandbox.net.default = lower.net.default;
    } else if sandbox.net.default == NetDefault::Hosts && lower.net.default == NetDefault::Hosts {
        sandbox.net.hosts.retain(|host| lower.net.hosts.contains(host));
    }
    sandbox.env.pass.retain(|name| lower.env.pass.contains(name));
    sandbox.env.secrets.retain(|name| lower.env.secrets.contains(name));
    ceiling.programs.trusted_dirs.retain(|dir| layer.programs.trusted_dirs.contains(dir));
    for (name, path) in layer.programs.pin {
        // A pin restricts a name to one file; it cannot move a pinned name.
        if ceiling.programs.trusted_dirs.iter().any(|dir| is_under(&path, dir)) {
            ceiling.programs.pin.entry(name).or_insert(path);
        }
    }
    let covered_before: BTreeSet<String> = ceiling.rules.iter().map(|r| r.id.clone()).collect();
    for mut rule in layer.rules {
        match rule.effect {
            Effect::Deny | Effect::Ask => rule.grant = super::RuleGrant::default(),
            Effect::Allow => {
                // A lower layer may not allow a command about which the ceiling would ask, so its allow
                // rules become questions.
                rule.effect = Effect::Ask;
                cut_grant(&mut rule, &ceiling.sandbox.fs.read, &ceiling.sandbox.fs.write);
            }
        }
        if covered_before.contains(&rule.id) {
            rule.id = format!("{}~{}", rule.id, ceiling.rules.len());
        }
        ceiling.rules.push(rule);
    }
    ceiling.components.tighten(layer.components, &ceiling.sandbox);
    let listed = layer.locked.components;
    ceiling.locked.components.retain(|one| listed.is_empty() || listed.contains(one));
    ceiling.locked.argv.retain(|argv| layer.locked.argv.is_empty() || layer.locked.argv.contains(argv));
    add_missing(&mut ceiling.hard.extra, layer.hard.extra);
    add_missing(&mut ceiling.audit.redact, layer.audit.redact);
    ceiling
}

/// Adds the entries that a list does not have yet.
pub(super) fn add_missing<T: PartialEq>(list: &mut Vec<T>, more: impl IntoIterator<Item = T>) {
    for entry in more {
        if !list.contains(&entry) {
            list.push(entry);
        }
    }
}

/// Roots that both lists allow: of two nested roots, the inner one.
pub(super) fn intersect_roots(a: &[String], b: &[String]) -> Vec<String> {
    // Root names keep their spelling; nesting is judged with fixed directories.
    let env = DecisionEnv::fixture();
    let place = |root: &String| normalise_path("/", &expand_root(root, &env));
    let mut out: Vec<String> = Vec::new();
    for x in a {
        for y in b {
            let (px, py) = (place(x), place(y));
            let inner = if x == y || is_under(&px, &py) {
                x
            } else if is_under(&py, &px) {
                y
            } else {
                continue;
            };
            if !out.contains(inner) {
                out.push(inner.clone());
            }
        }
    }
    out
}

/// Cuts a rule's grant to the roots of a ceiling.
fn cut_grant(rule: &mut Rule, read: &[String], write: &[String]) {
    let env = DecisionEnv::fixture();
    let within = |path: &String, roots: &[String]| {
        let path = normalise_path("/", &expand_root(path.trim_end_matches(":ro"), &env));
        roots.iter().any(|root| is_under(&path, &normalise_path("/", &expand_root(root, &env))))
    };
    rule.grant.fs_read.retain(|path| within(path, read));
    rule.grant.fs_write.retain(|path| within(path, write));
    rule.grant.unix.clear();
    rule.grant.listen.clear();
    rule.grant.connect.clear();
    rule.grant.env.clear();
    rule.grant.net = Some(NetGrantSpec::Word(NetWord::None));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer_text(layer: Layer, text: &str) -> LayerText {
        LayerText { layer, origin: format!("{layer:?}.toml"), text: text.to_owned() }
    }

    #[test]
    fn later_layers_only_tighten() {
        let org = layer_text(
            Layer::Organisation,
            "version = 1\n[limits]\nprocesses = 64\n[sandbox.fs]\nread = [\"@workspace\", \"/var/log\"]\nwrite = [\"@workspace\"]\n[programs]\npin = { git = \"/usr/bin/git\" }\n",
        );
        let project = layer_text(
            Layer::Project,
            "version = 1\nprofile = \"readonly\"\n[limits]\nprocesses = 512\n[sandbox.fs]\nread = [\"@workspace\", \"/etc\"]\nwrite = [\"@workspace/target\", \"/var\"]\ndeny = [\"**/*.pem\", \"!**/.env\"]\n[programs]\npin = { git = \"/tmp/git\" }\n[[rule]]\nid = \"all\"\neffect = \"allow\"\nprogram = \"make\"\n",
        );
        let merged = Policy::load_layers(&[project, org]).unwrap();
        let file = merged.file();
        assert_eq!(file.profile, super::super::Profile::ReadOnly);
        assert_eq!(file.limits.processes, 64);
        assert_eq!(file.sandbox.fs.read, ["@workspace"]);
        assert_eq!(file.sandbox.fs.write, ["@workspace/target"]);
        assert_eq!(file.sandbox.fs.deny, ["**/*.pem"]);
        assert_eq!(file.programs.pin["git"], "/usr/bin/git");
        assert_eq!(file.rules[0].effect, Effect::Ask);
    }

    #[test]
    fn what_a_layer_leaves_unsaid_stays() {
        let org = layer_text(
            Layer::Organisation,
            "version = 1\n[limits]\ntimeout = \"10m\"\n[sandbox.fs]\nread = [\"@workspace\", \"/var/log\"]\n[sandbox.env]\npass = [\"LANG\"]\nsecrets = [\"t\"]\n[programs]\ntrusted_dirs = [\"/opt/bin\"]\n",
        );
        let run = layer_text(
            Layer::Run,
            "version = 1\n[limits]\nprocesses = 8\n[sandbox.net]\ndefault = \"none\"\n",
        );
        let merged = Policy::load_layers(&[org, run]).unwrap();
        let file = merged.file();
        assert_eq!(file.limits.timeout.to_string(), "10m");
        assert_eq!(file.limits.processes, 8);
        assert_eq!(file.sandbox.fs.read, ["@workspace", "/var/log"]);
        assert_eq!((file.sandbox.env.pass.len(), file.sandbox.env.secrets.len()), (1, 1));
        assert_eq!(file.programs.trusted_dirs, ["/opt/bin"]);
    }

    #[test]
    fn examples_are_checked_when_loading() {
        let wrong = "version = 1\n[[rule]]\nid = \"t\"\neffect = \"allow\"\nprogram = \"cargo\"\nargs = { first = [\"test\"] }\nnot_match = [\"env nice cargo test -q\"]\n";
        let error = Policy::load(wrong, "p.toml").unwrap_err();
        assert_eq!(
            error.to_string(),
            r#"p.toml: rule "t": example "env nice cargo test -q" is listed under not_match but the rule matches it"#
        );
        let wrong = "version = 1\n[[rule]]\nid = \"t\"\neffect = \"allow\"\n";
        let error = Policy::load(wrong, "p.toml").unwrap_err();
        assert_eq!(error.to_string(), r#"p.toml: rule "t": give program (with args) or argv"#);
    }
}
