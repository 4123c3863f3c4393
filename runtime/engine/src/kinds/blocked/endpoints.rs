//! Finds the host and port that a program names when it cannot connect.

use std::net::{IpAddr, Ipv4Addr};

/// Words of programs that cannot resolve a host. The name follows, if they print it.
const UNRESOLVED: [&str; 12] = [
    "Could not resolve hostname ",
    "Could not resolve host: ",
    "resolve host address ",
    "resolve host: ",
    "translate host name ",
    "EAI_AGAIN ",
    "ENOTFOUND ",
    "dial tcp: lookup ",
    "Temporary failure in name resolution",
    "Name or service not known",
    "Network is unreachable",
    "No address associated with hostname",
];

/// Their words, in lower case, for an address that has no listener.
const REFUSED: [&str; 5] =
    ["connection refused", "couldn't connect", "could not connect", "failed to connect", "econnrefused"];

/// Ports by the scheme before a host name.
const SCHEMES: [(&str, u16); 4] = [("https://", 443), ("http://", 80), ("ssh://", 22), ("ftp://", 21)];

/// True if a line reports an unknown host or a missing network.
pub(super) fn is_unresolved(line: &str) -> bool {
    UNRESOLVED.iter().any(|words| line.contains(words))
}

/// The `host:port` that a program could not resolve. If its line does not name the host, it is looked for in `all`,
/// the program's whole output and its command.
pub(super) fn unresolved_endpoint(line: &str, all: &str) -> Option<String> {
    let (at, words) = UNRESOLVED.iter().find_map(|words| Some((line.find(words)?, words)))?;
    let named =
        line[at + words.len()..].split_whitespace().next().map(trim_punctuation).filter(|word| is_host(word));
    let host = named.or_else(|| hosts_of_urls(line).next()).or_else(|| hosts_of_urls(all).next())?;
    let port =
        port_of(host, all).or_else(|| scheme_of(host, all)).unwrap_or_else(|| usual_port(host, line, all));
    Some(format!("{host}:{port}"))
}

/// The port that a program uses if nothing names one.
fn usual_port(host: &str, line: &str, all: &str) -> u16 {
    // The command names the host without a scheme.
    let is_typed = || all.matches(host).count() > line.matches(host).count();
    match line {
        _ if line.contains("Could not resolve hostname ") => ssh_port(all).unwrap_or(22),
        _ if line.contains("translate host name ") => 5432,
        _ if (line.starts_with("curl: ") || line.starts_with("wget: ")) && is_typed() => 80,
        _ => 443,
    }
}

/// The port among the options of ssh or scp.
fn ssh_port(all: &str) -> Option<u16> {
    let mut words = all.split_whitespace();
    while let Some(word) = words.next() {
        let value = ["-p", "-P", "-oPort="].iter().find_map(|option| word.strip_prefix(option));
        let value = value.and_then(|value| if value.is_empty() { words.next() } else { Some(value) });
        if let Some(port) = value.and_then(|value| value.parse().ok()) {
            return Some(port);
        }
    }
    None
}

/// The address and port that a program without a network could not reach. If its line names no address, it is looked
/// for in `all`.
pub(super) fn unreached_address(line: &str, all: &str) -> Option<String> {
    let lower = line.to_ascii_lowercase();
    let is_unreached = lower.contains("network is unreachable") || lower.contains("enetunreach");
    if !is_unreached && !REFUSED.iter().any(|words| lower.contains(words)) {
        return None;
    }
    let texts = [Some(line), is_unreached.then_some(all)];
    texts.into_iter().flatten().find_map(|text| {
        let words = text.split(|c: char| !c.is_ascii_digit() && c != '.').map(|word| word.trim_matches('.'));
        let outside = words.filter(|word| {
            word.parse::<Ipv4Addr>().is_ok_and(|address| !address.is_loopback() && !address.is_unspecified())
        });
        let mut ports = outside.filter_map(|address| {
            let port = port_of(address, text).or_else(|| port_of(address, all));
            Some(format!("{address}:{}", port.or_else(|| scheme_of(address, all))?))
        });
        ports.next()
    })
}

/// The port that a program may not use, and true if it wanted to listen there.
pub(super) fn refused_port(line: &str) -> Option<(bool, u16)> {
    let lower = line.to_ascii_lowercase();
    let is_denied = ["eacces", "permission denied"].iter().any(|words| lower.contains(words));
    if !is_denied && !REFUSED.iter().any(|words| lower.contains(words)) {
        return None;
    }
    let mut words = lower.split(|c: char| !c.is_ascii_alphabetic());
    let verb = words.find(|word| {
        ["listen", "listening", "bind", "binding", "connect", "connecting", "connection"].contains(word)
    })?;
    let marks = lower.match_indices(':').map(|(at, mark)| at + mark.len());
    let marks = marks.chain(lower.match_indices("port ").map(|(at, mark)| at + mark.len()));
    let mut ports = marks.filter_map(|at| {
        let rest = &lower[at..];
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest[..end].parse().ok().filter(|port| *port != 0)
    });
    Some((!verb.starts_with("connect"), ports.next()?))
}

/// The port of the loopback interface that refused a program, if a process of the host listens on it.
pub(super) fn refused_on_loopback(line: &str, all: &str) -> Option<u16> {
    let lower = line.to_ascii_lowercase();
    if !REFUSED.iter().any(|words| lower.contains(words)) {
        return None;
    }
    let names = ["127.0.0.1", "localhost", "::1"];
    let port = [line, all].iter().find_map(|text| names.iter().find_map(|name| port_of(name, text)))?;
    is_listened_at(port).then_some(port)
}

fn trim_punctuation(word: &str) -> &str {
    word.trim_matches(|c: char| !c.is_ascii_alphanumeric())
}

fn is_host(word: &str) -> bool {
    let is_part =
        |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    word.split('.').all(is_part) && word.contains('.') && word.parse::<f64>().is_err()
}

fn hosts_of_urls(text: &str) -> impl Iterator<Item = &str> {
    let named = text.match_indices("://").chain(text.match_indices("host='"));
    named.filter_map(move |(at, word)| {
        let rest = &text[at + word.len()..];
        let end = rest.find(|c: char| c.is_whitespace() || "/\"'),?#".contains(c)).unwrap_or(rest.len());
        let host = rest[..end].rsplit('@').next()?.split(':').next()?;
        is_host(host).then_some(host)
    })
}

/// The port after a host: `name:80`, `name port 80`, `host='name', port=80`, `"name", port 80`, `"name", 80`.
fn port_of(host: &str, text: &str) -> Option<u16> {
    text.match_indices(host).find_map(|(at, _)| {
        let rest = &text[at + host.len()..];
        let after = rest.trim_start_matches(['"', '\'', ']', ',', ' ']);
        let is_argument = rest.starts_with("\",") || rest.starts_with("',");
        let after = [":", "port=", "port "].iter().find_map(|word| after.strip_prefix(word));
        let after = after.or_else(|| is_argument.then(|| rest.trim_start_matches(['"', '\'', ',', ' '])))?;
        let end = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        after[..end].parse().ok().filter(|port| *port != 0)
    })
}

fn scheme_of(host: &str, text: &str) -> Option<u16> {
    text.match_indices(host).find_map(|(at, _)| {
        let before = text[..at].rsplit(|c: char| c.is_whitespace() || "\"'(".contains(c)).next()?;
        let scheme = SCHEMES.iter().find(|(scheme, _)| before.starts_with(scheme));
        scheme.map(|(_, port)| *port).or_else(|| before.ends_with('@').then_some(22))
    })
}

/// True if a process of the host listens on this port of the loopback interface, or of all interfaces.
fn is_listened_at(port: u16) -> bool {
    let tables =
        ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| std::fs::read_to_string(table).unwrap_or_default());
    let listens = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let (local, state) = (fields.next()?, fields.nth(1)?);
        (state == "0A" && u16::from_str_radix(local.rsplit(':').next()?, 16) == Ok(port)).then_some(())
    };
    tables.iter().flat_map(|table| table.lines()).any(|line| listens(line).is_some())
}

/// The host to grant after a denial by the proxy (`HOST: REASON`). A host in a private network is granted by its
/// address.
pub(super) fn granted_host(denied: &str) -> String {
    let (host, why) = denied.split_once(": ").unwrap_or((denied, ""));
    let address = why
        .split_whitespace()
        .map(|word| word.trim_end_matches(','))
        .find_map(|word| word.parse::<IpAddr>().ok());
    match (address, host.rsplit_once(':')) {
        (Some(IpAddr::V6(address)), Some((_, port))) => format!("[{address}]:{port}"),
        (Some(address), Some((_, port))) => format!("{address}:{port}"),
        _ => host.to_owned(),
    }
}

/// A port of the host's loopback interface, as rules spell it.
pub(super) fn loopback_endpoint(port: u16) -> String {
    format!("{}:{port}", Ipv4Addr::LOCALHOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_name_the_hosts_that_they_do_not_find() {
        for (line, command, expected) in [
            (
                "curl: (6) Could not resolve host: example.com",
                "curl https://example.com/x",
                "example.com:443",
            ),
            ("curl: (6) Could not resolve host: example.com", "curl http://example.com", "example.com:80"),
            ("curl: (6) Could not resolve host: example.com", "curl example.com:8080", "example.com:8080"),
            (
                "wget: unable to resolve host address ‘example.com’",
                "wget http://example.com",
                "example.com:80",
            ),
            (
                "ssh: Could not resolve hostname github.com: Temporary failure in name resolution",
                "git clone git@github.com:a/b",
                "github.com:22",
            ),
            ("Error: getaddrinfo EAI_AGAIN registry.npmjs.org", "npm ci", "registry.npmjs.org:443"),
            (
                "urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name resolution>",
                "python3 -c 'urlopen(\"http://example.com:81/a\")'",
                "example.com:81",
            ),
            ("could not translate host name \"db.example.com\" to address", "psql", "db.example.com:5432"),
            (
                "ssh: Could not resolve hostname example.com: Temporary failure in name resolution",
                "ssh example.com",
                "example.com:22",
            ),
            (
                "ssh: Could not resolve hostname example.com: Temporary failure in name resolution",
                "ssh -p 2222 example.com",
                "example.com:2222",
            ),
            ("curl: (6) Could not resolve host: example.com", "curl example.com", "example.com:80"),
            (
                "HTTPSConnectionPool(host='pypi.org', port=443): [Errno -3] Temporary failure in name resolution",
                "pip",
                "pypi.org:443",
            ),
        ] {
            let all = format!("{line}\n{command}");
            assert_eq!(unresolved_endpoint(line, &all).as_deref(), Some(expected), "{line}");
        }
        assert_eq!(unresolved_endpoint("cat: a.txt: No such file or directory", ""), None);
        let nameless = "connect: Network is unreachable";
        assert!(is_unresolved(nameless) && unresolved_endpoint(nameless, "sh net.sh").is_none());
    }

    #[test]
    fn an_address_without_a_route_is_named_with_its_port() {
        for (line, command, expected) in [
            (
                "curl: (7) Failed to connect to 10.1.2.3 port 8080 after 0 ms: Couldn't connect to server",
                "curl http://10.1.2.3:8080",
                Some("10.1.2.3:8080"),
            ),
            (
                "OSError: [Errno 101] Network is unreachable",
                "python3 -c 'socket.create_connection((\"1.1.1.1\", 443))'",
                Some("1.1.1.1:443"),
            ),
            ("Error: connect ENETUNREACH 10.1.2.3:80 - Local (0.0.0.0:0)", "node a.js", Some("10.1.2.3:80")),
            ("connect: Network is unreachable", "sh net.sh", None),
            ("connect to 127.0.0.1 port 80: Connection refused", "", None),
            ("version 1.2.3.4 of port 80", "", None),
        ] {
            let all = format!("{line}\n{command}");
            assert_eq!(unreached_address(line, &all).as_deref(), expected, "{line}");
        }
    }

    #[test]
    fn a_refused_port_is_named_with_its_direction() {
        for (line, expected) in [
            ("Error: listen EACCES: permission denied 0.0.0.0:3001", Some((true, 3001))),
            ("Error: listen EACCES: permission denied :::3001", Some((true, 3001))),
            ("listen tcp :3001: bind: permission denied", Some((true, 3001))),
            ("Error: connect EACCES 127.0.0.1:3005 - Local (undefined:undefined)", Some((false, 3005))),
            (
                "curl: (7) Failed to connect to 127.0.0.1 port 3005 after 0 ms: Couldn't connect to server",
                Some((false, 3005)),
            ),
            ("PermissionError: [Errno 13] Permission denied", None),
            ("cat: a:80: Permission denied", None),
        ] {
            assert_eq!(refused_port(line), expected, "{line}");
        }
    }

    #[test]
    fn a_refused_port_is_the_hosts_only_if_somebody_listens_there() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        for line in [
            format!(
                "curl: (7) Failed to connect to 127.0.0.1 port {port} after 0 ms: Couldn't connect to server"
            ),
            format!("connect to host 127.0.0.1 port {port}: Connection refused"),
            format!("Error: connect ECONNREFUSED 127.0.0.1:{port}"),
            format!("connection to server at \"127.0.0.1\", port {port} failed: Connection refused"),
            format!("Connecting to localhost:{port}... failed: Connection refused."),
        ] {
            assert_eq!(refused_on_loopback(&line, &line), Some(port), "{line}");
        }
        drop(listener);
        let line = format!("connect ECONNREFUSED 127.0.0.1:{port}");
        assert_eq!(refused_on_loopback(&line, &line), None);
    }
}
