//! Hosts in addresses.

use std::net::IpAddr;

/// True if a host in an address can only be this machine: requests to it cannot be read on the way.
#[must_use]
pub fn is_loopback(host: &str) -> bool {
    let address = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    host == "localhost" || address.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::is_loopback;

    #[test]
    fn only_what_cannot_be_elsewhere_is_this_machine() {
        for host in ["localhost", "127.0.0.1", "127.0.0.2", "127.255.255.255", "[::1]", "::1"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in [
            "",
            "localhost.",
            "localhost.evil.test",
            "a.localhost",
            "127.0.0.1.evil.test",
            "127.1",
            "128.0.0.1",
            "0.0.0.0",
            "[::]",
            "[::2]",
            "[::1",
            "[localhost]",
            "[::ffff:127.0.0.1]",
            "10.0.0.1",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
