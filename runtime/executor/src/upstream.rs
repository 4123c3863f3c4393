//! The credential proxy of a process: it listens on the loopback interface in place of the hosts whose credentials the
//! process may use, so that the values stay in lobster.

use std::ffi::{OsStr, OsString};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;

use serde_json::{Value, json};

use lobster_credentials::login::TokenError;
use lobster_credentials::{Credential, Serving, Upstream};
use lobster_sandbox::{Confinement, Net, UPSTREAM};
use lobster_stage::StageError;

/// In the detail of an outcome: the hosts that were called with credentials, and the refused calls.
pub(crate) const CREDENTIALS: &str = "credentials";

/// The variable with the number of git settings in the environment.
const GIT_SETTINGS: &str = "GIT_CONFIG_COUNT";

/// Serves one process while this value lives.
#[derive(Debug)]
pub(crate) struct StepUpstream {
    upstream: Upstream,
    origin: String,
    /// Set outside a jail's own network.
    serving: Option<Serving>,
}

impl StepUpstream {
    /// Opens it for a process with these credentials and this confinement; `None` without credentials.
    pub(crate) fn open(
        credentials: Vec<Credential>,
        confinement: &Confinement,
    ) -> Result<Option<Self>, StageError> {
        if credentials.is_empty() {
            return Ok(None);
        }
        let failed = |error: io::Error| {
            StageError::new(format!("cannot answer for the hosts of the step's credentials: {error}"))
        };
        let upstream = Upstream::new(credentials).map_err(failed)?;
        // A jail has its own network, unless it has the host's.
        let is_apart = confinement.jail_spec().is_some_and(|spec| spec.net != Net::Host);
        if is_apart {
            return Ok(Some(Self { upstream, origin: format!("http://{UPSTREAM}"), serving: None }));
        }
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
        let origin = format!("http://{}", listener.local_addr().map_err(failed)?);
        let serving = upstream.serve(listener, origin.clone()).map_err(failed)?;
        Ok(Some(Self { upstream, origin, serving: Some(serving) }))
    }

    /// Adds variables to the environment of the process that direct its programs here.
    pub(crate) fn extend_environment(&self, env: &mut Vec<(OsString, OsString)>) {
        let mut set = |name: OsString, value: OsString| {
            env.retain(|(known, _)| *known != name);
            env.push((name, value));
        };
        for (name, value) in self.upstream.environment(&self.origin) {
            set(name.into(), value.into());
        }
        self.lead_git(env);
        // In a jail the sandbox does this.
        if self.serving.is_some() {
            past_proxies(env);
        }
    }

    /// git has no variable for a host, but it has settings that replace one address by another.
    fn lead_git(&self, env: &mut Vec<(OsString, OsString)>) {
        let known = env.iter().find(|(name, _)| name == GIT_SETTINGS);
        let count: usize = known.and_then(|(_, value)| value.to_str()?.parse().ok()).unwrap_or(0);
        let addresses = self.upstream.address_pairs(&self.origin);
        let total = count + addresses.len();
        env.retain(|(name, _)| name != GIT_SETTINGS);
        env.push((GIT_SETTINGS.into(), total.to_string().into()));
        for (at, (asked, led)) in (count..).zip(addresses) {
            env.push((format!("GIT_CONFIG_KEY_{at}").into(), format!("url.{led}.insteadOf").into()));
            env.push((format!("GIT_CONFIG_VALUE_{at}").into(), asked.into()));
        }
    }

    /// The proxy inside a jail, if the process is in one.
    pub(crate) fn in_jail(&self) -> Option<Arc<dyn lobster_sandbox::Upstream>> {
        let inside = || InJail { upstream: self.upstream.clone(), origin: self.origin.clone() };
        self.serving.is_none().then(|| Arc::new(inside()) as Arc<dyn lobster_sandbox::Upstream>)
    }

    /// The reason why a login gave no token for one of the requests, if that happened.
    pub(crate) fn token_problem(&self) -> Option<TokenError> {
        self.upstream.token_problem()
    }

    /// The process's use of its credentials, for its outcome.
    pub(crate) fn describe_usage(&self) -> Value {
        let used = self.upstream.usage_so_far();
        let mut told = json!({ "used": used.reached });
        if !used.refused.is_empty() {
            told["refused"] = json!(used.refused);
        }
        told
    }
}

/// Excludes this machine from proxies; otherwise programs with a proxy send even these requests to it.
fn past_proxies(env: &mut Vec<(OsString, OsString)>) {
    let is_proxy = |name: &OsStr| name.to_string_lossy().to_ascii_lowercase().ends_with("_proxy");
    if !env.iter().any(|(name, _)| is_proxy(name)) {
        return;
    }
    for name in ["NO_PROXY", "no_proxy"] {
        let known = env.iter().position(|(known, _)| known == name).map(|at| env.remove(at).1);
        let mut direct = known.unwrap_or_default();
        if !direct.is_empty() {
            direct.push(",");
        }
        direct.push(Ipv4Addr::LOCALHOST.to_string());
        env.push((name.into(), direct));
    }
}

/// Listens on a socket that the sandbox has opened inside a jail.
#[derive(Debug)]
struct InJail {
    upstream: Upstream,
    origin: String,
}

impl lobster_sandbox::Upstream for InJail {
    fn serve(&self, listener: TcpListener) -> io::Result<Box<dyn Send>> {
        Ok(Box::new(self.upstream.serve(listener, self.origin.clone())?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_asked_past_every_proxy() {
        let text = |env: &[(OsString, OsString)]| -> Vec<String> {
            env.iter().map(|(name, value)| format!("{}={}", name.display(), value.display())).collect()
        };
        let mut none = vec![("A".into(), "b".into())];
        past_proxies(&mut none);
        assert_eq!(text(&none), ["A=b"]);
        let mut some = vec![("https_proxy".into(), "http://p".into()), ("NO_PROXY".into(), "h".into())];
        past_proxies(&mut some);
        assert_eq!(text(&some), ["https_proxy=http://p", "NO_PROXY=h,127.0.0.1", "no_proxy=127.0.0.1"]);
    }
}
