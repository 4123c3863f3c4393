//! Network access within the grants: named hosts on named ports.
//!
//! A program learns addresses only from this resolver, and only addresses of granted hosts. A socket
//! may connect only to an address that the resolver returned or that was granted literally. A name that
//! resolves differently the second time (DNS rebinding) therefore reaches no new host.

use std::collections::{BTreeSet, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use wasmtime::component::Resource;
use wasmtime_wasi::async_trait;
use wasmtime_wasi::p2::bindings::sockets::network::{self, ErrorCode, IpAddress};
use wasmtime_wasi::p2::{DynPollable, Network, Pollable, SocketError, subscribe};
use wasmtime_wasi::sockets::SocketAddrUse;

use super::wasi_own::wasi::sockets::ip_name_lookup;
use crate::RunError;
use crate::state::State;
use lobster_base::sync::lock;

/// Ports of a grant that names none: http and https.
const USUAL_PORTS: [u16; 2] = [80, 443];

/// Number of different refusals that are kept for the report.
const MAX_DENIED: usize = 64;

/// Hosts and ports that a run may connect to.
pub(crate) struct NetGrants {
    hosts: Vec<Host>,
    resolved: Mutex<HashSet<SocketAddr>>,
    denied: Mutex<BTreeSet<String>>,
}

struct Host {
    name: Name,
    ports: Vec<u16>,
}

enum Name {
    /// Lower case, without the final dot.
    Dns(String),
    Address(IpAddr),
}

impl NetGrants {
    /// Parses `host:port`, `host`, `[v6]:port` and so on.
    pub(crate) fn parse_hosts(grants: &[String]) -> Result<Arc<Self>, RunError> {
        let hosts = grants.iter().map(|grant| {
            read_host(grant).ok_or_else(|| RunError::BadGrant {
                grant: format!("net {grant}"),
                message: "expected host:port, such as api.example.com:443".to_owned(),
            })
        });
        let hosts = hosts.collect::<Result<_, _>>()?;
        Ok(Arc::new(Self { hosts, resolved: Mutex::default(), denied: Mutex::default() }))
    }

    /// Addresses of a granted name without the forbidden ones.
    pub(crate) async fn resolve_host(&self, name: &str) -> Result<Vec<IpAddr>, ErrorCode> {
        if let Some(address) = parse_address(name) {
            let granted = self.hosts.iter().any(|host| host.is_address(address));
            return if granted { Ok(vec![address]) } else { Err(self.record_denial(name)) };
        }
        let name = dns_name(name).ok_or(ErrorCode::InvalidArgument)?;
        let ports: Vec<u16> = self
            .hosts
            .iter()
            .filter(|host| host.is_name(&name))
            .flat_map(|host| host.ports.clone())
            .collect();
        if ports.is_empty() {
            return Err(self.record_denial(&name));
        }
        let found = tokio::net::lookup_host((name.as_str(), 0)).await.map_err(|error| {
            tracing::debug!(name, %error, "a granted host does not resolve");
            ErrorCode::NameUnresolvable
        })?;
        let mut addresses: Vec<IpAddr> = found.map(|address| address.ip()).collect();
        addresses.dedup();
        // A grant of `localhost` by name means this machine.
        let local = name == "localhost" || name.ends_with(".localhost");
        let refused = |address: &IpAddr| !(is_public(*address) || (local && address.is_loopback()));
        if !addresses.is_empty() && addresses.iter().all(refused) {
            return Err(self.record_denial(&format!("{name} (a private address)")));
        }
        addresses.retain(|address| !refused(address));
        let mut resolved = lock(&self.resolved);
        for address in &addresses {
            resolved.extend(ports.iter().map(|port| SocketAddr::new(*address, *port)));
        }
        Ok(addresses)
    }

    /// True if a socket may be used in this way.
    pub(crate) fn allows(&self, address: SocketAddr, purpose: SocketAddrUse) -> bool {
        match purpose {
            SocketAddrUse::TcpConnect | SocketAddrUse::UdpSend | SocketAddrUse::UdpReceive => {
                let address = SocketAddr::new(address.ip().to_canonical(), address.port());
                let literal = self
                    .hosts
                    .iter()
                    .any(|host| host.is_address(address.ip()) && host.ports.contains(&address.port()));
                let known = || lock(&self.resolved).contains(&address);
                let allowed = literal || known();
                if !allowed {
                    self.record_denial(&address.to_string());
                }
                allowed
            }
            // The operating system chooses the local address of an outgoing connection.
            SocketAddrUse::TcpBind | SocketAddrUse::UdpBind => {
                address.ip().is_unspecified() && address.port() == 0
            }
            SocketAddrUse::TcpListen | SocketAddrUse::TcpAccept => false,
        }
    }

    /// Hosts and addresses that the program tried without a grant.
    pub(crate) fn denied_hosts(&self) -> Vec<String> {
        lock(&self.denied).iter().cloned().collect()
    }

    fn record_denial(&self, what: &str) -> ErrorCode {
        let mut denied = lock(&self.denied);
        if denied.len() < MAX_DENIED {
            denied.insert(format!("net {what}"));
        }
        ErrorCode::AccessDenied
    }
}

impl Host {
    /// True if this is that host or, with `below`, a domain around it.
    fn covers(&self, name: &Name, below: bool) -> bool {
        match (&self.name, name) {
            (Name::Dns(own), Name::Dns(name)) if below => {
                name.strip_suffix(own.as_str()).is_some_and(|rest| rest.ends_with('.'))
            }
            (Name::Dns(own), Name::Dns(name)) => own == name,
            (Name::Address(own), Name::Address(address)) => !below && own == address,
            (Name::Dns(_), Name::Address(_)) | (Name::Address(_), Name::Dns(_)) => false,
        }
    }

    fn is_name(&self, name: &str) -> bool {
        matches!(&self.name, Name::Dns(own) if own == name)
    }

    fn is_address(&self, address: IpAddr) -> bool {
        matches!(&self.name, Name::Address(own) if *own == address)
    }
}

/// Part of a grant that the wants ask for.
pub(crate) enum AskedAddress {
    All,
    /// These ports of its host.
    Ports(Vec<String>),
    Nothing,
}

/// Part of a granted host that the wants ask for. A want names a host as a grant does. It may begin
/// with `*.` for all names below a domain; `*` or an empty text is any host. Without a port, it asks
/// for the usual ones.
pub(crate) fn asked_of<'w>(grant: &str, wants: impl Iterator<Item = &'w str>) -> AskedAddress {
    let wants: Vec<_> = wants.collect();
    if wants.iter().any(|want| matches!(*want, "" | "*")) {
        return AskedAddress::All;
    }
    // The run reports the fault of such a grant.
    let Some(granted) = read_host(grant) else { return AskedAddress::All };
    let asked_port = |port: &u16| {
        wants.iter().any(|want| {
            let (below, host) = match want.strip_prefix("*.") {
                Some(rest) => (true, read_host(rest)),
                None => (false, read_host(want)),
            };
            host.is_some_and(|asked| asked.ports.contains(port) && asked.covers(&granted.name, below))
        })
    };
    let asked: Vec<u16> = granted.ports.iter().copied().filter(asked_port).collect();
    if asked.is_empty() {
        return AskedAddress::Nothing;
    }
    if asked == granted.ports {
        return AskedAddress::All;
    }
    let named = |port: u16| match &granted.name {
        Name::Dns(name) => format!("{name}:{port}"),
        Name::Address(address) => SocketAddr::new(*address, port).to_string(),
    };
    AskedAddress::Ports(asked.into_iter().map(named).collect())
}

fn read_host(grant: &str) -> Option<Host> {
    if let Some(address) = parse_address(grant) {
        return Some(Host { name: Name::Address(address), ports: USUAL_PORTS.to_vec() });
    }
    let (host, ports) = match grant.rsplit_once(':') {
        Some((host, port)) => (host, vec![port.parse().ok().filter(|port| *port != 0)?]),
        None => (grant, USUAL_PORTS.to_vec()),
    };
    let name = match parse_address(host) {
        Some(address) => Name::Address(address),
        None => Name::Dns(dns_name(host)?),
    };
    Some(Host { name, ports })
}

fn parse_address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    bare.unwrap_or(text).parse::<IpAddr>().ok().map(|address| address.to_canonical())
}

/// Normalises a host name. Texts that a lenient resolver takes for an address (`0x7f.1`, `2130706433`)
/// are not names.
fn dns_name(text: &str) -> Option<String> {
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    let last = name.rsplit('.').next()?;
    let numeric = last.bytes().all(|b| b.is_ascii_digit()) || last.starts_with("0x");
    (name.len() <= 253 && name.split('.').all(label) && !numeric).then_some(name)
}

/// True if an address belongs to the public internet (IANA special-purpose address registries). All
/// other addresses may be this machine, its network or the cloud's metadata service.
fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

fn is_public_v4(v4: Ipv4Addr) -> bool {
    let [a, b, c, _] = v4.octets();
    let shared = a == 100 && (64..128).contains(&b);
    let protocol = a == 192 && b == 0 && c == 0;
    let relay = a == 192 && b == 88 && c == 99;
    let benchmark = a == 198 && (b == 18 || b == 19);
    !(a == 0
        || a >= 224
        || shared
        || protocol
        || relay
        || benchmark
        || v4.is_loopback()
        || v4.is_private()
        || v4.is_link_local()
        || v4.is_documentation())
}

fn is_public_v6(v6: Ipv6Addr) -> bool {
    let [s0, s1, s2, s3, s4, s5, s6, s7] = v6.segments();
    let inner = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    if (s0, s1, s2, s3, s4, s5) == (0x64, 0xff9b, 0, 0, 0, 0) {
        return inner(s6, s7);
    }
    if s0 == 0x2002 {
        return inner(s1, s2);
    }
    // Only 2000::/3 is global unicast; in it, 2001::/23 is for protocols and
    // 2001:db8::/32 and 3fff::/20 for documentation.
    let global = s0 & 0xe000 == 0x2000;
    let protocol = s0 == 0x2001 && s1 < 0x0200;
    let documentation = (s0 == 0x2001 && s1 == 0x0db8) || (s0 == 0x3fff && s1 < 0x1000);
    global && !protocol && !documentation
}

/// Addresses that a name resolved to.
#[expect(unreachable_pub, reason = "the generated bindings re-export it")]
pub struct Addresses(std::vec::IntoIter<IpAddr>);

#[async_trait]
impl Pollable for Addresses {
    async fn ready(&mut self) {}
}

impl network::Host for State {
    fn convert_error_code(&mut self, error: SocketError) -> wasmtime::Result<ErrorCode> {
        error.downcast()
    }

    fn network_error_code(
        &mut self,
        error: Resource<wasmtime::Error>,
    ) -> wasmtime::Result<Option<ErrorCode>> {
        Ok(self.table.get(&error)?.downcast_ref::<ErrorCode>().copied())
    }
}

impl network::HostNetwork for State {
    fn drop(&mut self, network: Resource<Network>) -> wasmtime::Result<()> {
        self.table.delete(network)?;
        Ok(())
    }
}

impl ip_name_lookup::Host for State {
    async fn resolve_addresses(
        &mut self,
        network: Resource<Network>,
        name: String,
    ) -> Result<Resource<Addresses>, SocketError> {
        self.table.get(&network)?;
        let found = self.net.resolve_host(&name).await?;
        Ok(self.table.push(Addresses(found.into_iter()))?)
    }
}

impl ip_name_lookup::HostResolveAddressStream for State {
    fn resolve_next_address(
        &mut self,
        stream: Resource<Addresses>,
    ) -> Result<Option<IpAddress>, SocketError> {
        Ok(self.table.get_mut(&stream)?.0.next().map(|address| match address {
            IpAddr::V4(v4) => IpAddress::Ipv4(v4.octets().into()),
            IpAddr::V6(v6) => IpAddress::Ipv6(v6.segments().into()),
        }))
    }

    fn subscribe(&mut self, stream: Resource<Addresses>) -> wasmtime::Result<Resource<DynPollable>> {
        subscribe(&mut self.table, stream)
    }

    fn drop(&mut self, stream: Resource<Addresses>) -> wasmtime::Result<()> {
        self.table.delete(stream)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net_grants(hosts: &[&str]) -> Arc<NetGrants> {
        let hosts: Vec<_> = hosts.iter().map(|host| (*host).to_owned()).collect();
        NetGrants::parse_hosts(&hosts).unwrap_or_else(|error| panic!("{error}"))
    }

    fn resolve_blocking(grants: &NetGrants, name: &str) -> Result<Vec<IpAddr>, ErrorCode> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let Ok(runtime) = runtime else { panic!("no runtime") };
        runtime.block_on(grants.resolve_host(name))
    }

    #[test]
    fn only_public_addresses_are_public() {
        for private in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "127.0.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "192.168.1.1",
            "192.0.0.1",
            "192.0.2.1",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "fe80::1",
            "fd00:ec2::254",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "2001:db8::1",
            "2001::1",
            "64:ff9b:1::1",
            "::7f00:1",
        ] {
            let address: Option<IpAddr> = private.parse().ok();
            assert_eq!(address.map(is_public), Some(false), "{private}");
        }
        for public in ["1.1.1.1", "93.184.216.34", "2606:4700::1111", "64:ff9b::101:101", "2002:0101:0101::"]
        {
            let address: Option<IpAddr> = public.parse().ok();
            assert_eq!(address.map(is_public), Some(true), "{public}");
        }
    }

    #[test]
    fn grants_are_read_and_odd_spellings_refused() {
        let port = |grant: &str| read_host(grant).map(|host| host.ports);
        assert_eq!(port("API.example.com.:8443"), Some(vec![8443]));
        assert_eq!(port("example.com"), Some(vec![80, 443]));
        assert_eq!(port("[::1]:99"), Some(vec![99]));
        assert_eq!(port("::1"), Some(vec![80, 443]));
        for bad in [
            "",
            ":80",
            "a:0",
            "a:x",
            "a:70000",
            "2130706433:80",
            "0x7f.1:80",
            "a b:1",
            "127.1:80",
            "*.com:443",
        ] {
            assert!(read_host(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn names_and_addresses_need_their_grant() {
        let net = net_grants(&["localhost:9999", "10.0.0.1:80", "[::ffff:10.0.0.2]:81"]);
        assert!(matches!(resolve_blocking(&net, "example.com"), Err(ErrorCode::AccessDenied)));
        assert!(matches!(resolve_blocking(&net, "127.0.0.1"), Err(ErrorCode::AccessDenied)));
        assert!(matches!(resolve_blocking(&net, "2130706433"), Err(ErrorCode::InvalidArgument)));
        assert!(
            matches!(resolve_blocking(&net, "10.0.0.1"), Ok(found) if found == [IpAddr::from([10, 0, 0, 1])])
        );
        let at = |text: &str| text.parse::<SocketAddr>().unwrap_or_else(|error| panic!("{error}"));
        let connect = |address: &str| net.allows(at(address), SocketAddrUse::TcpConnect);
        assert!(connect("10.0.0.1:80") && !connect("10.0.0.1:81"));
        assert!(connect("[::ffff:10.0.0.2]:81") && connect("10.0.0.2:81"));
        // Not before the name was resolved, and then on the granted port only.
        assert!(!connect("127.0.0.1:9999"));
        assert!(matches!(resolve_blocking(&net, "localhost"), Ok(found) if !found.is_empty()));
        assert!(connect("127.0.0.1:9999") && !connect("127.0.0.1:80"));
        assert!(!net.allows(at("0.0.0.0:8080"), SocketAddrUse::TcpBind));
        assert!(net.allows(at("0.0.0.0:0"), SocketAddrUse::TcpBind));
        assert!(!net.allows(at("0.0.0.0:0"), SocketAddrUse::TcpListen));
        assert_eq!(
            net.denied_hosts(),
            ["net 10.0.0.1:81", "net 127.0.0.1", "net 127.0.0.1:80", "net 127.0.0.1:9999", "net example.com"]
        );
    }
}
