//! The only way out of a jail that may reach some hosts.
//!
//! The jail's supervisor opens a listening socket inside the jail's network namespace and passes it out; this
//! proxy, outside, accepts connections on it. It speaks HTTP: `CONNECT`, and plain requests in absolute form.
//! The proxy resolves names and checks the resulting addresses, so a name never leads to the host's own
//! services.
//!
//! For programs without proxy support, each granted host also has an address on the jail's loopback
//! interface, to which its name resolves there. A connection to that address on a granted port is forwarded
//! to the host.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::{Denial, HostPort, Promise, UPSTREAM};
use lobster_base::sync::lock;

/// Port of the proxy on the loopback interface of the jail.
pub(super) const PORT: u16 = 3128;

/// Longest accepted request head.
const LONGEST_HEAD: u64 = 64 * 1024;

/// Simultaneous connections; further ones are closed at once.
const MOST_CONNECTIONS: usize = 128;

/// Refusals kept for the statement; only the first ones of a step are reported.
const MOST_DENIALS: usize = 100;

/// Hosts kept for the statement; only the first ones of a step are reported.
const MOST_HOSTS: usize = 100;

/// Time limit for connecting to a host.
const CONNECT_PATIENCE: Duration = Duration::from_secs(20);

/// Time limit for a client to send its request head.
const HEAD_PATIENCE: Duration = Duration::from_secs(60);

/// Hosts that get an address in the jail; the others are reached only through the proxy.
pub(super) const MOST_WAYS: usize = 64;

/// First address for granted names: 127.0.3.1.
const FIRST_ADDRESS: u32 = 0x7f00_0301;

/// Address of a granted host on the loopback interface of the jail.
pub(super) struct Way {
    pub(super) address: SocketAddr,
    host: HostPort,
}

/// Addresses for all hosts that are given by an exact name or address.
pub(super) fn plan_ways(allowed: &[HostPort]) -> Vec<Way> {
    let names = named_addresses(allowed);
    let mut ways: Vec<Way> = Vec::new();
    for host in allowed {
        let named =
            || names.iter().find(|(_, name)| *name == plain_name(host)).map(|(ip, _)| IpAddr::V4(*ip));
        let Some(ip) = host.host.parse().ok().or_else(named) else { continue };
        let address = SocketAddr::new(ip, host.port);
        let is_taken = address == SocketAddr::V4(UPSTREAM)
            || address == SocketAddr::from((Ipv4Addr::LOCALHOST, PORT))
            || ways.iter().any(|way| way.address == address);
        if !is_taken && ways.len() < MOST_WAYS {
            ways.push(Way { address, host: host.clone() });
        }
    }
    ways
}

/// The granted names, each with its address in the jail. `localhost` is the jail itself.
pub(super) fn named_addresses(allowed: &[HostPort]) -> Vec<(Ipv4Addr, String)> {
    let mut names: Vec<(Ipv4Addr, String)> = Vec::new();
    for name in allowed.iter().map(plain_name) {
        let is_name = name.parse::<IpAddr>().is_err() && !name.contains('*') && name != "localhost";
        let is_safe =
            name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'));
        if is_name && is_safe && !names.iter().any(|(_, known)| *known == name) && names.len() < MOST_WAYS {
            names.push((Ipv4Addr::from_bits(FIRST_ADDRESS + names.len() as u32), name));
        }
    }
    names
}

/// The granted addresses that must be added to the jail's loopback interface.
pub(super) fn foreign_addresses(allowed: &[HostPort]) -> Vec<Ipv4Addr> {
    let mut addresses: Vec<Ipv4Addr> = plan_ways(allowed)
        .iter()
        .filter_map(|way| match way.address.ip() {
            IpAddr::V4(ip) if !ip.is_loopback() && !ip.is_unspecified() => Some(ip),
            _ => None,
        })
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

fn plain_name(host: &HostPort) -> String {
    host.host.trim_end_matches('.').to_ascii_lowercase()
}

/// A running proxy; dropping it stops accepting.
pub(super) struct Proxy {
    listener: Arc<TcpListener>,
    rules: Arc<Rules>,
}

#[derive(Default)]
struct Rules {
    allowed: Vec<HostPort>,
    denied: Mutex<Vec<Denial>>,
    reached: Mutex<Vec<HostPort>>,
    connections: AtomicUsize,
}

/// The variables that direct programs to the proxy. The service at [`UPSTREAM`] is reached without it.
pub(super) fn client_variables(has_upstream: bool) -> Vec<(&'static str, String)> {
    let url = format!("http://127.0.0.1:{PORT}");
    let mut variables: Vec<_> =
        ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"]
            .map(|name| (name, url.clone()))
            .to_vec();
    // Servers started by the step itself are reached directly, and so are granted loopback addresses of the
    // host.
    let upstream = if has_upstream { format!(",{}", UPSTREAM.ip()) } else { String::new() };
    let direct = format!("localhost,127.0.0.1,::1{upstream}");
    variables.extend([("NO_PROXY", direct.clone()), ("no_proxy", direct)]);
    variables
}

impl Proxy {
    /// Serves the hosts of `allowed` on a listening socket, and each of them on the sockets of its [`plan_ways`].
    ///
    /// # Errors
    /// If no thread can be started.
    pub(super) fn start(
        listener: OwnedFd,
        others: impl Iterator<Item = OwnedFd>,
        allowed: &[HostPort],
    ) -> io::Result<Self> {
        let listener = Arc::new(TcpListener::from(listener));
        let mut ways = plan_ways(allowed);
        let mut opened = vec![(Arc::clone(&listener), None)];
        for other in others.map(TcpListener::from) {
            let address = other.local_addr()?;
            if let Some(found) = ways.iter().position(|way| way.address == address) {
                opened.push((Arc::new(other), Some(ways.swap_remove(found).host)));
            }
        }
        let rules = Arc::new(Rules { allowed: allowed.to_vec(), ..Rules::default() });
        let proxy = Self { listener: Arc::clone(&listener), rules: Arc::clone(&rules) };
        std::thread::Builder::new()
            .name("sandbox-proxy".into())
            .spawn(move || accept_connections(&opened, &rules))?;
        Ok(proxy)
    }

    /// Refusals so far.
    pub(super) fn denied_requests(&self) -> Vec<Denial> {
        lock(&self.rules.denied).clone()
    }

    /// Hosts reached so far, each once, under the names that the step used.
    pub(super) fn reached_hosts(&self) -> Vec<HostPort> {
        lock(&self.rules.reached).clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // Wakes the accepting thread. Open connections end when the step closes its ends.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
    }
}

/// Accepts on all sockets, the proxy's and the hosts', until the proxy's is shut down.
fn accept_connections(listeners: &[(Arc<TcpListener>, Option<HostPort>)], rules: &Arc<Rules>) {
    let mut waiting: Vec<_> =
        listeners.iter().map(|(listener, _)| PollFd::new(listener, PollFlags::IN)).collect();
    loop {
        if !matches!(poll(&mut waiting, None), Ok(_) | Err(Errno::INTR)) {
            return;
        }
        for ((listener, way), ready) in listeners.iter().zip(&waiting) {
            if ready.revents().is_empty() {
                continue;
            }
            match listener.accept() {
                Ok((client, _)) => serve_client(client, way.clone(), rules),
                Err(_) if way.is_none() => return,
                Err(_) => {}
            }
        }
    }
}

fn serve_client(client: TcpStream, way: Option<HostPort>, rules: &Arc<Rules>) {
    if rules.connections.fetch_add(1, Ordering::Relaxed) >= MOST_CONNECTIONS {
        rules.connections.fetch_sub(1, Ordering::Relaxed);
        return;
    }
    let own_rules = Arc::clone(rules);
    let started = std::thread::Builder::new().name("sandbox-proxy".into()).spawn(move || {
        // A broken connection affects only its two ends.
        let _ = match way {
            None => serve_connection(client, &own_rules),
            Some(host) => serve_way(client, host, &own_rules),
        };
        own_rules.connections.fetch_sub(1, Ordering::Relaxed);
    });
    if started.is_err() {
        rules.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Serves one connection to the address of a host.
fn serve_way(client: TcpStream, host: HostPort, rules: &Rules) -> io::Result<()> {
    match rules.connect_granted(&host.host, host.port) {
        Ok(server) => {
            rules.record_reached(host);
            join_streams(client, server)
        }
        Err(Refusal::Denied(why)) => {
            rules.record_denial(format!("{host}: {why}"));
            Ok(())
        }
        Err(Refusal::Failed(_)) => Ok(()),
    }
}

/// Serves one connection: reads the request, decides, and joins the two ends.
fn serve_connection(client: TcpStream, rules: &Rules) -> io::Result<()> {
    client.set_read_timeout(Some(HEAD_PATIENCE))?;
    let mut reader = BufReader::new(client.try_clone()?);
    let mut head = Vec::new();
    {
        let mut limited = (&mut reader).take(LONGEST_HEAD);
        while !head.ends_with(b"\r\n\r\n") && !head.ends_with(b"\n\n") {
            if limited.read_until(b'\n', &mut head)? == 0 {
                return send_response(&client, "400 Bad Request", "the request is cut off or too long");
            }
        }
    }
    client.set_read_timeout(None)?;
    let Some(request) = std::str::from_utf8(&head).ok().and_then(Wanted::parse) else {
        return send_response(
            &client,
            "400 Bad Request",
            "only CONNECT and absolute http:// requests are understood",
        );
    };
    let server = match rules.connect_granted(&request.host, request.port) {
        Ok(server) => server,
        Err(Refusal::Denied(why)) => {
            let what = HostPort { host: request.host, port: request.port };
            let text = format!("lobster: this step may not reach {what}: {why}");
            rules.record_denial(format!("{what}: {why}"));
            return send_response(&client, "403 Forbidden", &text);
        }
        Err(Refusal::Failed(error)) => {
            return send_response(
                &client,
                "502 Bad Gateway",
                &format!("cannot reach {}: {error}", request.host),
            );
        }
    };
    rules.record_reached(HostPort { host: request.host, port: request.port });
    match &request.forward {
        Some(head) => (&server).write_all(head.as_bytes())?,
        None => (&client).write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?,
    }
    // Data that the client sent together with its head.
    (&server).write_all(reader.buffer())?;
    join_streams(client, server)
}

/// Carries bytes both ways until both ends have finished.
fn join_streams(client: TcpStream, server: TcpStream) -> io::Result<()> {
    let (mut upstream_to, mut upstream_from) = (server.try_clone()?, client.try_clone()?);
    let upstream = std::thread::Builder::new().name("sandbox-proxy".into()).spawn(move || {
        let _ = io::copy(&mut upstream_from, &mut upstream_to);
        let _ = upstream_to.shutdown(Shutdown::Write);
    })?;
    let _ = io::copy(&mut &server, &mut &client);
    let _ = client.shutdown(Shutdown::Write);
    let _ = upstream.join();
    Ok(())
}

fn send_response(mut client: &TcpStream, status: &str, text: &str) -> io::Result<()> {
    let length = text.len() + 1;
    write!(
        client,
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{text}\n"
    )
}

/// Target of a request head.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    host: String,
    port: u16,
    /// The head to forward, for a plain request.
    forward: Option<String>,
}

impl Wanted {
    fn parse(head: &str) -> Option<Self> {
        let mut lines = head.lines();
        let mut words = lines.next()?.split(' ');
        let (method, target, version) = (words.next()?, words.next()?, words.next()?);
        if words.next().is_some() || !version.starts_with("HTTP/1.") {
            return None;
        }
        if method == "CONNECT" {
            let (host, port) = parse_authority(target, None)?;
            return Some(Self { host, port, forward: None });
        }
        let rest = target.strip_prefix("http://")?;
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (name, path) = rest.split_at(end);
        let (host, port) = parse_authority(name, Some(80))?;
        let slash = if path.starts_with('/') { "" } else { "/" };
        // One request per connection, and only to the checked host.
        let mut forward = format!("{method} {slash}{path} HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n");
        for line in lines.take_while(|line| !line.is_empty()) {
            let field = line.split(':').next()?.trim().to_ascii_lowercase();
            if !matches!(field.as_str(), "host" | "connection" | "keep-alive") && !field.starts_with("proxy-")
            {
                forward.push_str(line);
                forward.push_str("\r\n");
            }
        }
        forward.push_str("\r\n");
        Some(Self { host, port, forward: Some(forward) })
    }
}

/// Parses `name:port` or `[v6]:port`; user information is refused.
fn parse_authority(text: &str, default: Option<u16>) -> Option<(String, u16)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']')?;
            (host, after.strip_prefix(':'))
        }
        None => match text.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let port = match port {
        Some(port) => port.parse().ok()?,
        None => default?,
    };
    let plain = !host.is_empty() && !host.contains(['@', '/', '%', '\\']) && host.is_ascii();
    plain.then(|| (host.trim_end_matches('.').to_ascii_lowercase(), port))
}

enum Refusal {
    Denied(String),
    Failed(io::Error),
}

impl Rules {
    fn connect_granted(&self, host: &str, port: u16) -> Result<TcpStream, Refusal> {
        if !self.is_granted(host, port) {
            return Err(Refusal::Denied("not among the granted hosts".to_owned()));
        }
        let addresses: Vec<SocketAddr> = (host, port).to_socket_addrs().map_err(Refusal::Failed)?.collect();
        let mut last = Refusal::Failed(io::ErrorKind::AddrNotAvailable.into());
        for address in addresses {
            if !is_public(address.ip()) && !self.is_granted(&address.ip().to_canonical().to_string(), port) {
                last = Refusal::Denied(format!(
                    "it resolves to {}, a private or local address, which must be granted by itself",
                    address.ip()
                ));
                continue;
            }
            match TcpStream::connect_timeout(&address, CONNECT_PATIENCE) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = Refusal::Failed(error),
            }
        }
        Err(last)
    }

    fn is_granted(&self, host: &str, port: u16) -> bool {
        self.allowed.iter().any(|entry| entry.covers(host, port))
    }

    fn record_reached(&self, host: HostPort) {
        let mut reached = lock(&self.reached);
        if reached.len() < MOST_HOSTS && !reached.contains(&host) {
            reached.push(host);
        }
    }

    fn record_denial(&self, what: String) {
        let mut denied = lock(&self.denied);
        if denied.len() < MOST_DENIALS {
            denied.push(Denial { promise: Promise::NetHosts, what });
        }
    }
}

/// True if an address belongs to the public internet, and not to this host, its networks, or a cloud's
/// metadata service.
fn is_public(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => {
            let [a, b, c, _] = ip.octets();
            let shared = a == 100 && (64..128).contains(&b);
            let protocol = a == 192 && b == 0 && c == 0;
            let benchmark = a == 198 && (b == 18 || b == 19);
            !(a == 0
                || a >= 224
                || shared
                || protocol
                || benchmark
                || ip.is_private()
                || ip.is_loopback()
                || ip.is_link_local()
                || ip.is_documentation()
                || ip == Ipv4Addr::BROADCAST)
        }
        IpAddr::V6(ip) => {
            let [first, second, ..] = ip.segments();
            // Only 2000::/3 is routed; inside it, 6to4 and Teredo carry IPv4 addresses.
            (first & 0xe000) == 0x2000
                && first != 0x2002
                && !(first == 0x2001 && (second == 0 || second == 0xdb8))
                && ip != Ipv6Addr::UNSPECIFIED
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules_for(list: &[(&str, u16)]) -> Rules {
        let allowed =
            list.iter().map(|(host, port)| HostPort { host: (*host).into(), port: *port }).collect();
        Rules { allowed, ..Rules::default() }
    }

    #[test]
    fn reads_both_forms_and_nothing_else() {
        let connect = Wanted::parse("CONNECT Example.com.:443 HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!(connect, Some(Wanted { host: "example.com".into(), port: 443, forward: None }));
        let v6 = Wanted::parse("CONNECT [::1]:8 HTTP/1.1\r\n\r\n").map(|w| (w.host, w.port));
        assert_eq!(v6, Some(("::1".into(), 8)));
        let get = "GET http://a.example:81?q HTTP/1.1\r\nHost: evil\r\nProxy-Authorization: x\r\nA: b\r\n\
                   Connection: keep-alive\r\n\r\n";
        let forward = "GET /?q HTTP/1.1\r\nHost: a.example:81\r\nConnection: close\r\nA: b\r\n\r\n";
        let expected = Wanted { host: "a.example".into(), port: 81, forward: Some(forward.into()) };
        assert_eq!(Wanted::parse(get), Some(expected));
        for bad in [
            "",
            "CONNECT example.com HTTP/1.1\r\n\r\n",
            "CONNECT a@b:443 HTTP/1.1\r\n\r\n",
            "CONNECT :443 HTTP/1.1\r\n\r\n",
            "CONNECT a:99999 HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\n\r\n",
            "GET https://a/ HTTP/1.1\r\n\r\n",
            "GET http://a/ x HTTP/1.1\r\n\r\n",
            "GET http://a/ HTTP/2\r\n\r\n",
            "GET http://user@a/ HTTP/1.1\r\n\r\n",
        ] {
            assert_eq!(Wanted::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn names_match_whole_labels() {
        let rules = rules_for(&[("api.example", 443), ("*.cdn.example", 443), ("10.0.0.7", 80)]);
        for (host, port, expected) in [
            ("api.example", 443, true),
            ("api.example", 80, false),
            ("x.api.example", 443, false),
            ("a.cdn.example", 443, true),
            ("a.b.cdn.example", 443, true),
            ("cdn.example", 443, false),
            (".cdn.example", 443, false),
            ("evilcdn.example", 443, false),
            ("10.0.0.7", 80, true),
        ] {
            assert_eq!(rules.is_granted(host, port), expected, "{host}:{port}");
        }
    }

    #[test]
    fn each_granted_host_has_a_way_of_its_own() {
        let hosts =
            |list: &[&str]| list.iter().map(|host| HostPort::parse(host).unwrap()).collect::<Vec<_>>();
        let granted = hosts(&[
            "Git.example:22",
            "git.example.:443",
            "*.cdn.example:443",
            "localhost:80",
            "127.0.0.1:5432",
            "127.0.0.1:3128",
            "127.0.0.2:3129",
            "10.0.0.7:5432",
            "[::1]:81",
            "b.example:22",
            "bad name:1",
        ]);
        let addresses: Vec<String> = plan_ways(&granted).iter().map(|way| way.address.to_string()).collect();
        let expected =
            ["127.0.3.1:22", "127.0.3.1:443", "127.0.0.1:5432", "10.0.0.7:5432", "[::1]:81", "127.0.3.2:22"];
        assert_eq!(addresses, expected);
        assert_eq!(foreign_addresses(&granted), [Ipv4Addr::new(10, 0, 0, 7)]);
        let many: Vec<_> =
            (0..500).map(|number| HostPort { host: format!("h{number}"), port: 443 }).collect();
        assert_eq!((plan_ways(&many).len(), named_addresses(&many).len()), (MOST_WAYS, MOST_WAYS));
    }

    #[test]
    fn local_addresses_are_not_public() {
        for ip in [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.100.100.200",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "198.18.0.1",
            "192.0.0.192",
            "::1",
            "::",
            "fe80::1",
            "fd00:ec2::254",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "2001::1",
            "ff02::1",
        ] {
            assert!(!is_public(ip.parse().unwrap()), "{ip}");
        }
        for ip in ["1.1.1.1", "93.184.216.34", "2606:4700::1111"] {
            assert!(is_public(ip.parse().unwrap()), "{ip}");
        }
    }

    #[test]
    fn a_granted_name_is_no_way_to_a_local_service() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(matches!(
            rules_for(&[("localhost", port)]).connect_granted("localhost", port),
            Err(Refusal::Denied(_))
        ));
        assert!(rules_for(&[("127.0.0.1", port)]).connect_granted("127.0.0.1", port).is_ok());
        assert!(
            rules_for(&[("localhost", port), ("127.0.0.1", port)]).connect_granted("localhost", port).is_ok()
        );
    }
}
