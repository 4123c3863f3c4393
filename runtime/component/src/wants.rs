//! Matches a step's grants with the wants in its description.

use crate::host::network::{self, AskedAddress};
use crate::{Capability, Description, DirGrant, Grants};

impl Description {
    /// Removes the grants that the description does not ask for, and returns their names. The clock and
    /// randomness stay: they reveal nothing, and a language's runtime may use them.
    pub fn withhold_unwanted(&self, grants: &mut Grants) -> Vec<String> {
        let mut withheld = Vec::new();
        let mut keeps = |is_wanted: bool, kind: &str, name: &str| {
            if !is_wanted {
                withheld.push(format!("{kind} {name}"));
            }
            is_wanted
        };
        grants.read.retain(|dir| keeps(self.wants_dir(dir, false), "read", &dir.guest));
        grants.write.retain(|dir| keeps(self.wants_dir(dir, true), "write", &dir.guest));
        grants.env.retain(|(name, _)| keeps(self.wants_variable(name), "env", name));
        let mut net = Vec::new();
        for host in grants.net.drain(..) {
            match self.asked_of(&host) {
                AskedAddress::All => net.push(host),
                AskedAddress::Ports(hosts) => {
                    withheld.push(format!("net {host} but for {}", hosts.join(", ")));
                    net.extend(hosts);
                }
                AskedAddress::Nothing => withheld.push(format!("net {host}")),
            }
        }
        grants.net = net;
        withheld
    }

    /// True if the description asks for this variable: by its name, by a prefix (`LC_*`), or for all
    /// variables without a name.
    #[must_use]
    pub fn wants_variable(&self, name: &str) -> bool {
        self.wants.iter().any(|want| match &want.capability {
            Capability::Env(asked) if asked.is_empty() => true,
            Capability::Env(asked) => match asked.strip_suffix('*') {
                Some(start) => name.starts_with(start),
                None => name == asked,
            },
            _ => false,
        })
    }

    /// True if the step cannot run without a host.
    pub(crate) fn needs_hosts(&self) -> bool {
        self.wants.iter().any(|want| matches!(want.capability, Capability::Net(_)) && !want.optional)
    }

    /// True if the directory will be at or below the path of a want.
    fn wants_dir(&self, dir: &DirGrant, to_write: bool) -> bool {
        self.wants.iter().any(|want| match &want.capability {
            Capability::Write(path) => is_at_or_below(&dir.guest, path),
            Capability::Read(path) => !to_write && is_at_or_below(&dir.guest, path),
            _ => false,
        })
    }

    fn asked_of(&self, grant: &str) -> AskedAddress {
        let asked = self.wants.iter().filter_map(|want| match &want.capability {
            Capability::Net(host) => Some(host.as_str()),
            _ => None,
        });
        network::asked_of(grant, asked)
    }
}

/// True if a guest path is equal to or below another; `*` and the empty path cover all paths.
fn is_at_or_below(guest: &str, wanted: &str) -> bool {
    let names = |path: &str| -> Vec<String> {
        path.split('/').filter(|name| !matches!(*name, "" | ".")).map(str::to_owned).collect()
    };
    let (guest, wanted) = (names(guest), names(wanted));
    let climbs = guest.iter().any(|name| name == "..");
    wanted == ["*"] || !climbs && guest.starts_with(&wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Want;

    fn description_wanting(wants: Vec<Capability>) -> Description {
        let want = |capability| Want { capability, reason: String::new(), optional: false };
        Description {
            name: "x".to_owned(),
            version: "1".to_owned(),
            summary: String::new(),
            args_schema: "{}".to_owned(),
            input_schema: None,
            output_schema: None,
            wants: wants.into_iter().map(want).collect(),
            fuel: None,
            memory: None,
            output: None,
            timeout_ms: None,
            examples: Vec::new(),
        }
    }

    #[test]
    fn only_what_is_asked_for_by_name_stays() {
        let dir = |guest: &str| DirGrant { host: "/host".into(), guest: guest.to_owned() };
        let text = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let variables = |names: &[&str]| names.iter().map(|n| ((*n).to_owned(), "1".to_owned())).collect();
        let mut grants = Grants {
            read: vec![dir("/in"), dir("/in/deep"), dir("/else"), dir("./out"), dir("/in/../etc")],
            write: vec![dir("/in"), dir("out")],
            env: variables(&["TZ", "HOME", "LC_ALL", "SECRET"]),
            net: text(&["a.example:443", "a.example:8080", "b.example", "c.example:443", "x.d.example:1"]),
            clock: true,
            random: true,
        };
        let withheld = description_wanting(vec![
            Capability::Read("/in".into()),
            Capability::Write("/out".into()),
            Capability::Env("TZ".into()),
            Capability::Env("LC_*".into()),
            Capability::Net("A.example".into()),
            Capability::Net("b.example:443".into()),
            Capability::Net("*.d.example:1".into()),
        ])
        .withhold_unwanted(&mut grants);
        let wanted = Grants {
            read: vec![dir("/in"), dir("/in/deep"), dir("./out")],
            write: vec![dir("out")],
            env: variables(&["TZ", "LC_ALL"]),
            net: text(&["a.example:443", "b.example:443", "x.d.example:1"]),
            clock: true,
            random: true,
        };
        assert_eq!(grants, wanted);
        let refused = [
            "read /else",
            "read /in/../etc",
            "write /in",
            "env HOME",
            "env SECRET",
            "net a.example:8080",
            "net b.example but for b.example:443",
            "net c.example:443",
        ];
        assert_eq!(withheld, refused);
    }

    #[test]
    fn optional_hosts_are_not_needed() {
        let mut asks = description_wanting(vec![Capability::Net("a.example".into()), Capability::Clock]);
        assert!(asks.needs_hosts());
        asks.wants[0].optional = true;
        assert!(!asks.needs_hosts(), "optional hosts are closed without a grant");
    }

    #[test]
    fn a_kind_may_be_asked_for_without_a_name() {
        for all in ["", "*"] {
            let mut grants = Grants {
                read: vec![DirGrant { host: "/host".into(), guest: "/anything".to_owned() }],
                write: vec![DirGrant { host: "/host".into(), guest: "there".to_owned() }],
                env: vec![("HOME".to_owned(), "/".to_owned())],
                net: vec!["a.example:8080".to_owned(), "[2001:db8::1]:80".to_owned()],
                ..Grants::default()
            };
            let given = grants.clone();
            let wants =
                [Capability::Write, Capability::Env, Capability::Net].map(|kind| kind(all.to_owned()));
            assert_eq!(description_wanting(wants.into()).withhold_unwanted(&mut grants), [""; 0]);
            assert_eq!(grants, given);
        }
    }
}
