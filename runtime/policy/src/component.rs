//! Grants and limits of component steps.
//!
//! A component can use nothing that its step does not grant; this policy limits the grants of a step. A
//! pure component without grants needs no permission.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::decide::Verdict;
use super::decision_env::DecisionEnv;
use super::file::{NetDefault, Profile, Sandbox};
use super::paths::Roots;
use super::trust_layers::{add_missing, intersect_roots};
use super::{ENGINE_VERSION, Policy};
use lobster_base::digest::Digest;
use lobster_base::quantity::{Bytes, Span};

/// `[components]`. An absent field follows `[sandbox]`, as for native steps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ComponentPolicy {
    /// Directories that may be granted for reading; `[sandbox.fs] read` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read: Option<Vec<String>>,
    /// Directories that may be granted for writing; `[sandbox.fs] write` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write: Option<Vec<String>>,
    /// Variables, where a trailing `*` matches any rest; `[sandbox.env] pass` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env: Option<Vec<String>>,
    /// `host:port` entries; the network of every step in `[sandbox.net]` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub net: Option<Vec<String>>,
    /// The real clock; yes if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock: Option<bool>,
    /// Real randomness; yes if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub random: Option<bool>,
    /// Kinds of grants that need an approval.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ask: Vec<GrantKind>,
    /// Ceilings. The lowest of these, the step's and the component's own limits applies.
    pub limits: ComponentLimits,
}

impl ComponentPolicy {
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Tightens this policy by a less trusted layer. `sandbox` is the ceiling's and supplies the fields
    /// that are absent here.
    pub(super) fn tighten(&mut self, lower: Self, sandbox: &Sandbox) {
        for (mine, theirs, inherited) in [
            (&mut self.read, lower.read, &sandbox.fs.read),
            (&mut self.write, lower.write, &sandbox.fs.write),
        ] {
            if let Some(theirs) = theirs {
                *mine = Some(intersect_roots(mine.as_ref().unwrap_or(inherited), &theirs));
            }
        }
        if let Some(theirs) = lower.env {
            let mine = self.env.get_or_insert_with(|| sandbox.env.pass.clone());
            mine.retain(|name| theirs.contains(name));
        }
        if let Some(theirs) = lower.net {
            match (&mut self.net, sandbox.net.default) {
                (Some(mine), _) => mine.retain(|host| theirs.contains(host)),
                (none, NetDefault::HostNetwork) => *none = Some(theirs),
                (none, NetDefault::Hosts) => {
                    let both = sandbox.net.hosts.iter().filter(|host| theirs.contains(host));
                    *none = Some(both.cloned().collect());
                }
                (none, NetDefault::None) => *none = Some(Vec::new()),
            }
        }
        let both = |mine: Option<bool>, theirs: Option<bool>| match (mine, theirs) {
            (Some(false), _) | (_, Some(false)) => Some(false),
            (mine, theirs) => mine.or(theirs),
        };
        self.clock = both(self.clock, lower.clock);
        self.random = both(self.random, lower.random);
        add_missing(&mut self.ask, lower.ask);
        let (mine, theirs) = (&mut self.limits, lower.limits);
        mine.fuel = lowest_limit(mine.fuel, theirs.fuel);
        mine.memory = lowest_limit(mine.memory, theirs.memory);
        mine.output = lowest_limit(mine.output, theirs.output);
        mine.timeout = lowest_limit(mine.timeout, theirs.timeout);
    }
}

fn lowest_limit<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// One kind of grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum GrantKind {
    Read,
    Write,
    Env,
    Net,
    Clock,
    Random,
}

/// Ceilings of component steps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ComponentLimits {
    /// Number of WebAssembly operations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fuel: Option<u64>,
    /// Linear memory; `[limits] memory` also applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    /// Size of the output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Bytes>,
    /// Wall-clock time; `[limits] timeout` also applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
}

/// Grants that a step would give a component. Directories are absolute, with links resolved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ComponentProposal {
    pub component: Digest,
    pub read: Vec<String>,
    pub write: Vec<String>,
    pub env: Vec<String>,
    pub net: Vec<String>,
    pub clock: bool,
    pub random: bool,
}

impl ComponentProposal {
    /// True if nothing is granted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let lists = [&self.read, &self.write, &self.env, &self.net];
        lists.iter().all(|list| list.is_empty()) && !self.clock && !self.random
    }

    fn grant_kinds(&self) -> Vec<GrantKind> {
        [
            (GrantKind::Read, !self.read.is_empty()),
            (GrantKind::Write, !self.write.is_empty()),
            (GrantKind::Env, !self.env.is_empty()),
            (GrantKind::Net, !self.net.is_empty()),
            (GrantKind::Clock, self.clock),
            (GrantKind::Random, self.random),
        ]
        .into_iter()
        .filter_map(|(kind, there)| there.then_some(kind))
        .collect()
    }
}

/// Decision about a proposal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ComponentDecision {
    /// Subject of the decision, for messages.
    pub subject: &'static str,
    pub verdict: Verdict,
    pub reason_code: String,
    pub message: String,
    /// Advice on what to do instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    pub policy: Digest,
    pub engine_version: &'static str,
}

/// Subject of a decision about a component.
pub const COMPONENT_SUBJECT: &str = "the component's grants";

/// Finds a path at or below a directory that matches a predicate.
pub type Holds<'h> = dyn Fn(&str, &dyn Fn(&str) -> bool) -> Option<String> + 'h;

/// A reason against a grant: code, message, hint.
type Refusal = (&'static str, String, String);

impl Policy {
    /// Decides about the grants of a component. `holds` searches a directory and everything below it
    /// for a path that matches a predicate; nothing else reads the file system.
    pub fn decide_component(
        &self,
        proposal: &ComponentProposal,
        env: &DecisionEnv,
        holds: &Holds<'_>,
    ) -> ComponentDecision {
        let decided = |verdict, code: &str, message: String, hint| ComponentDecision {
            subject: COMPONENT_SUBJECT,
            verdict,
            reason_code: code.to_owned(),
            message,
            hint,
            policy: self.digest(),
            engine_version: ENGINE_VERSION,
        };
        if self.is_open() {
            return decided(Verdict::Allow, "open", "no policy file is in force".to_owned(), None);
        }
        let roots = self.component_roots(env);
        let refused = self
            .refused_by_profile(proposal)
            .or_else(|| refused_directory(proposal, &roots, holds))
            .or_else(|| self.refused_name(proposal));
        if let Some((code, message, hint)) = refused {
            return decided(Verdict::Deny, code, message, Some(hint));
        }
        let components = &self.file().components;
        let asked: Vec<_> =
            proposal.grant_kinds().into_iter().filter(|kind| components.ask.contains(kind)).collect();
        match asked.first() {
            None => decided(Verdict::Allow, "covered", "the policy lets steps grant this".to_owned(), None),
            Some(kind) => {
                let word = serde_json::to_value(kind).unwrap_or_default();
                let message = format!("components.ask lists {}", word.as_str().unwrap_or_default());
                let verdict =
                    if self.file().profile == Profile::Default { Verdict::Ask } else { Verdict::Deny };
                decided(verdict, "component-ask", message, None)
            }
        }
    }

    fn component_roots(&self, env: &DecisionEnv) -> Roots {
        let (fs, own) = (&self.file().sandbox.fs, &self.file().components);
        let read = own.read.as_ref().unwrap_or(&fs.read);
        let write = own.write.as_ref().unwrap_or(&fs.write);
        Roots::new(read, write, &fs.deny, &fs.protect, env)
    }

    fn refused_by_profile(&self, proposal: &ComponentProposal) -> Option<Refusal> {
        let live = !proposal.write.is_empty() || !proposal.net.is_empty();
        match self.file().profile {
            Profile::Default => None,
            Profile::ReadOnly if live => Some((
                "readonly",
                "the readonly profile grants components neither writes nor network".to_owned(),
                "leave the grant out, or use another profile".to_owned(),
            )),
            Profile::ReadOnly => None,
            Profile::Locked => {
                let hex = proposal.component.to_string();
                let listed = self
                    .file()
                    .locked
                    .components
                    .iter()
                    .any(|known| known.strip_prefix("blake3:").unwrap_or(known) == hex);
                (!listed).then(|| {
                    (
                        "locked",
                        "the profile is locked and lists no such component".to_owned(),
                        format!("add \"blake3:{hex}\" to locked.components"),
                    )
                })
            }
        }
    }

    fn refused_name(&self, proposal: &ComponentProposal) -> Option<Refusal> {
        let (own, sandbox) = (&self.file().components, &self.file().sandbox);
        let names = own.env.as_ref().unwrap_or(&sandbox.env.pass);
        let passes = |name: &String| {
            names.iter().any(|known| match known.strip_suffix('*') {
                Some(prefix) => name.starts_with(prefix),
                None => known == name,
            })
        };
        if let Some(name) = proposal.env.iter().find(|name| !passes(name)) {
            let hint = format!("add {name:?} to components.env, or name it as a secret");
            return Some((
                "component-env",
                format!("components may not be granted the variable {name}"),
                hint,
            ));
        }
        let any = own.net.is_none() && sandbox.net.default == NetDefault::HostNetwork;
        let hosts: Vec<String> = match (&own.net, sandbox.net.default) {
            (Some(hosts), _) => hosts.iter().flat_map(|host| host_ports(host)).collect(),
            (None, NetDefault::Hosts) => sandbox.net.hosts.iter().flat_map(|host| host_ports(host)).collect(),
            (None, NetDefault::None | NetDefault::HostNetwork) => Vec::new(),
        };
        let reaches = |host: &String| host_ports(host).iter().all(|one| hosts.contains(one));
        if let Some(host) = proposal.net.iter().find(|host| !any && !reaches(host)) {
            let hint = format!("add {host:?} to components.net");
            return Some(("component-net", format!("components may not be granted the host {host}"), hint));
        }
        for (granted, allowed, word) in
            [(proposal.clock, own.clock, "clock"), (proposal.random, own.random, "random")]
        {
            if granted && allowed == Some(false) {
                let hint = format!("set components.{word} = true");
                return Some(("component-grant", format!("components may not be granted `{word}`"), hint));
            }
        }
        None
    }
}

fn refused_directory(proposal: &ComponentProposal, roots: &Roots, holds: &Holds<'_>) -> Option<Refusal> {
    for (dirs, writes) in [(&proposal.read, false), (&proposal.write, true)] {
        for dir in dirs {
            let (key, may) = match writes {
                true => ("write", roots.is_writable(dir)),
                false => ("read", roots.is_readable(dir)),
            };
            if !may {
                let message = format!("components may not be granted {key} of {dir}");
                let hint = format!("add it to components.{key}, or grant a directory inside its roots");
                return Some(("component-root", message, hint));
            }
            if writes && roots.is_unnamed_repository(dir) {
                let message = format!("{dir} belongs to git and may be written only if the policy names it");
                return Some(("protected", message, "add that directory to components.write".to_owned()));
            }
            if let Some(secret) = holds(dir, &|path| roots.is_secret(path)) {
                let message = format!("{dir} holds {secret}, which the policy denies");
                return Some(("secret", message, "grant a directory without it".to_owned()));
            }
            let protected = writes.then(|| holds(dir, &|path| roots.is_protected(path))).flatten();
            if let Some(protected) = protected {
                let message = format!("{dir} holds {protected}, which the policy protects");
                return Some(("protected", message, "grant a directory without it".to_owned()));
            }
        }
    }
    None
}

/// A `host` without a port has the usual ports of http and https.
fn host_ports(host: &str) -> Vec<String> {
    match host.rsplit_once(':') {
        // An IPv6 address without a port ends in `]`.
        Some((_, port)) if !port.ends_with(']') => vec![host.to_ascii_lowercase()],
        _ => vec![format!("{}:80", host.to_ascii_lowercase()), format!("{}:443", host.to_ascii_lowercase())],
    }
}

#[cfg(test)]
mod tests {
    use super::super::paths::is_under;
    use super::*;

    fn sample_proposal() -> ComponentProposal {
        ComponentProposal {
            component: Digest::of_bytes(b"x"),
            read: Vec::new(),
            write: Vec::new(),
            env: Vec::new(),
            net: Vec::new(),
            clock: false,
            random: false,
        }
    }

    fn judge_proposal(policy: &str, proposal: &ComponentProposal, files: &[&str]) -> String {
        let env = DecisionEnv::fixture();
        let policy = Policy::load(policy, "p.toml").unwrap();
        let holds = |dir: &str, wanted: &dyn Fn(&str) -> bool| {
            files.iter().find(|file| is_under(file, dir) && wanted(file)).map(|file| (*file).to_owned())
        };
        let decision = policy.decide_component(proposal, &env, &holds);
        format!("{} {}", decision.verdict.as_str(), decision.reason_code)
    }

    #[test]
    fn grants_stay_within_the_policy() {
        let read = |dir: &str| ComponentProposal { read: vec![dir.to_owned()], ..sample_proposal() };
        let write = |dir: &str| ComponentProposal { write: vec![dir.to_owned()], ..sample_proposal() };
        let env = |name: &str| ComponentProposal { env: vec![name.to_owned()], ..sample_proposal() };
        let net = |host: &str| ComponentProposal { net: vec![host.to_owned()], ..sample_proposal() };
        let plain = "version = 1\n[sandbox.env]\npass = [\"LC_*\"]\n";
        let hosts = "version = 1\n[components]\nnet = [\"api.example\", \"x:8080\"]\nrandom = false\nask = [\"net\"]\n";
        let readonly = "version = 1\nprofile = \"readonly\"\n";
        let random = ComponentProposal { random: true, ..sample_proposal() };
        for (policy, proposal, files, expected) in [
            (plain, read("/srv/repo/data"), &[][..], "allow covered"),
            (plain, read("/root"), &[], "deny component-root"),
            (plain, read("/srv/repo"), &["/srv/repo/a/.env"], "allow covered"),
            (
                "version = 1\n[sandbox.fs]\ndeny = [\"**/.env\"]\n",
                read("/srv/repo"),
                &["/srv/repo/a/.env"],
                "deny secret",
            ),
            (plain, write("/srv/repo/out"), &[], "allow covered"),
            (plain, write("/etc"), &[], "deny component-root"),
            (
                "version = 1\n[sandbox.fs]\nprotect = [\"@workspace/out/keep\"]\n",
                write("/srv/repo/out"),
                &["/srv/repo/out/keep/x"],
                "deny protected",
            ),
            (plain, write("/srv/repo/vendor/lib"), &["/srv/repo/vendor/lib/.git/config"], "allow covered"),
            (plain, write("/srv/repo/vendor/lib/.git"), &[], "deny protected"),
            (plain, write("/srv/repo/vendor/lib/.git/refs"), &[], "deny protected"),
            (plain, write("/srv/repo/.github"), &[], "allow covered"),
            (
                "version = 1\n[components]\nwrite = [\"@workspace\", \"@workspace/lib/.git\"]\n",
                write("/srv/repo/lib/.git/refs"),
                &[],
                "allow covered",
            ),
            (plain, env("LC_ALL"), &[], "allow covered"),
            (plain, env("TOKEN"), &[], "deny component-env"),
            (plain, net("api.example"), &[], "deny component-net"),
            (hosts, net("api.example:443"), &[], "ask component-ask"),
            (hosts, net("API.example"), &[], "ask component-ask"),
            (hosts, net("api.example:22"), &[], "deny component-net"),
            (hosts, net("x"), &[], "deny component-net"),
            (hosts, random, &[], "deny component-grant"),
            (readonly, write("/srv/repo/out"), &[], "deny readonly"),
            (readonly, read("/srv/repo"), &[], "allow covered"),
            ("version = 1\nprofile = \"locked\"\n", read("/srv/repo"), &[], "deny locked"),
        ] {
            assert_eq!(judge_proposal(policy, &proposal, files), expected, "{policy} {proposal:?}");
        }
    }

    #[test]
    fn layers_only_take_away() {
        let mut ceiling = ComponentPolicy {
            net: Some(vec!["a:1".to_owned(), "b:2".to_owned()]),
            limits: ComponentLimits { fuel: Some(10), ..ComponentLimits::default() },
            ..ComponentPolicy::default()
        };
        let lower = ComponentPolicy {
            net: Some(vec!["b:2".to_owned(), "c:3".to_owned()]),
            env: Some(vec!["X".to_owned()]),
            random: Some(false),
            limits: ComponentLimits { fuel: Some(20), memory: Some(Bytes(5)), ..ComponentLimits::default() },
            read: Some(vec!["@workspace/data".to_owned(), "/var/lib".to_owned()]),
            ..ComponentPolicy::default()
        };
        ceiling.tighten(lower, &Sandbox::default());
        assert_eq!(ceiling.net.as_deref(), Some(&["b:2".to_owned()][..]));
        assert_eq!(ceiling.read.as_deref(), Some(&["@workspace/data".to_owned()][..]));
        assert_eq!((ceiling.env, ceiling.random), (Some(Vec::new()), Some(false)));
        assert_eq!((ceiling.limits.fuel, ceiling.limits.memory), (Some(10), Some(Bytes(5))));
    }
}
