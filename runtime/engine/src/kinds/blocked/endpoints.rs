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

/// The `host:port` that a program could not resolve. If its line does not name the host, it is looked for in `all`,
/// the program's whole output and its command.
pub(super) fn unresolved(line: &str, all: &str) -> Option<String> {
    let (at, words) = UNRESOLVED.iter().find_map(|words| Some((line.find(words)?, words)))?;
    let named = line[at + words.len()..].split_whitespace().next().map(trimmed).filter(|word| is_host(word));
    let host = named.or_else(|| hosts_of_urls(line).next()).or_else(|| hosts_of_urls(all).next());
    Some(host.map_or_else(
        || "HOST:PORT".to_owned(),
        |host| format!("{host}:{}", port_of(host, all).or_else(|| scheme_of(host, all)).unwrap_or(443)),
    ))
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

fn trimmed(word: &str) -> &str {
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

/// The port after a host: `name:80`, `name port 80`, `host='name', port=80`, `"name", port 80`.
fn port_of(host: &str, text: &str) -> Option<u16> {
    text.match_indices(host).find_map(|(at, _)| {
        let after = text[at + host.len()..].trim_start_matches(['"', '\'', ']', ',', ' ']);
        let after = [":", "port=", "port "].iter().find_map(|word| after.strip_prefix(word))?;
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
pub(super) fn loopback(port: u16) -> String {
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
            ("could not translate host name \"db.example.com\" to address", "psql", "db.example.com:443"),
            (
                "HTTPSConnectionPool(host='pypi.org', port=443): [Errno -3] Temporary failure in name resolution",
                "pip",
                "pypi.org:443",
            ),
            ("connect: Network is unreachable", "sh net.sh", "HOST:PORT"),
        ] {
            let all = format!("{line}\n{command}");
            assert_eq!(unresolved(line, &all).as_deref(), Some(expected), "{line}");
        }
        assert_eq!(unresolved("cat: a.txt: No such file or directory", ""), None);
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
