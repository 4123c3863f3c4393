//! What the host of an address means.

use std::net::IpAddr;

/// Whether a host, as it stands in an address, can be no other machine than this one: what is sent there is not
/// seen on the way.
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
