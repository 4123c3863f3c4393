//! Keeping the rights of several commands apart.
//!
//! A text runs in one sandbox, so what one of its commands may do, all of them
//! may. Rights are therefore never united in silence: a text whose commands draw
//! different rights is asked about, or refused when code of unknown origin would
//! get a socket, the network or a credential. Only what the catalogue knows may
//! stand beside a command that has other rights of its own.

use super::Policy;
use super::analysis::{Analysis, Draw};
use super::decide::{Grant, NetGrant};
use super::env::DecisionEnv;
use super::file::{NetGrantSpec, NetWord, Rule};
use super::paths::{Roots, expand_root, is_under};

const HINT: &str = "give each command a step of its own";

impl Policy {
    /// Refuses a text that would hand one command the rights of another.
    pub(super) fn keep_grants_apart(&self, analysis: &mut Analysis<'_>, env: &DecisionEnv) {
        let (mut ruled, others): (Vec<Draw<'_>>, Vec<Draw<'_>>) =
            analysis.draws.clone().into_iter().partition(|draw| !draw.rules.is_empty());
        if ruled.is_empty() || ruled.len() + others.len() == 1 {
            return;
        }
        // Rules may differ and grant the same.
        let grant = |draw: &Draw<'_>| self.grant(&draw.rules, false, false, env, analysis.roots);
        let mut grants: Vec<Grant> = Vec::new();
        ruled.retain(|draw| {
            let grant = grant(draw);
            let is_new = !grants.contains(&grant);
            if is_new {
                grants.push(grant);
            }
            is_new
        });
        let held = ruled.iter().find_map(|draw| {
            let right = draw.rules.iter().find_map(|rule| self.sensitive_right(rule, env, analysis.roots))?;
            Some((draw, right))
        });
        if let Some((draw, right)) = held {
            let code =
                ruled.iter().chain(&others).find(|other| !std::ptr::eq(*other, draw) && !other.catalogued);
            if let Some(other) = code {
                let message = format!("{} would run with the rights of {}: {right}", other.name, draw.name);
                analysis.deny_hint("mixed-grants", message, HINT);
            } else if let Some(other) = others.first() {
                let message = format!("{} would run with the rights of {}: {right}", other.name, draw.name);
                analysis.ask_hint("mixed-grants", message, HINT);
            }
        } else if let [first, second, ..] = ruled.as_slice() {
            let message = format!("{} and {} would run with the rights of both", first.name, second.name);
            analysis.ask_hint("mixed-grants", message, HINT);
        } else if let (Some(ruled), Some(other)) = (ruled.first(), others.first())
            && grants.iter().any(|grant| grant.net != NetGrant::None)
        {
            let message = format!("{} would run with the network of {}", other.name, ruled.name);
            analysis.ask_hint("mixed-grants", message, HINT);
        }
    }

    /// The right of a rule that no other command may have: a socket, the
    /// network, a credential, or what the kernel cannot hold.
    fn sensitive_right(&self, rule: &Rule, env: &DecisionEnv, roots: &Roots) -> Option<String> {
        let sandbox = &self.file().sandbox;
        let grant = &rule.grant;
        if let Some(socket) = grant.unix.first() {
            return Some(format!("the socket {socket}"));
        }
        if !matches!(grant.net, None | Some(NetGrantSpec::Word(NetWord::None))) {
            return Some("the network".to_owned());
        }
        if let Some(name) = grant.env.iter().find(|name| !sandbox.env.pass.contains(name)) {
            return Some(format!("the variable {name}"));
        }
        if let Some(what) = &grant.unenforceable {
            return Some(what.clone());
        }
        let base: Vec<String> = sandbox.fs.read.iter().map(|root| expand_root(root, env)).collect();
        let is_credential = |path: &str| {
            let path = expand_root(path, env);
            !base.iter().any(|root| is_under(&path, root)) && !roots.is_readable(&path)
        };
        let read = grant.fs_read.iter().find(|path| is_credential(path));
        let secret = grant.fs_write.iter().filter_map(|path| path.strip_suffix(":ro"));
        let secret = secret.filter(|path| roots.is_secret(&expand_root(path, env))).map(str::to_owned).next();
        read.cloned().or(secret).map(|path| format!("reading {path}"))
    }
}
