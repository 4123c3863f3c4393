//! Names of a component's imports and exports: the versions that this host implements and the grants
//! that an interface needs.

use wasmparser::{ComponentTypeRef, Encoding, Parser, Payload};

use crate::kind::malformed_error;
use crate::{Grants, LoadError};

/// Version of the contract that this host implements.
const STEP_VERSION: &str = "0.1.0";

/// Packages of WASI 0.2 that this host implements.
const WASI_PACKAGES: [&str; 7] = ["cli", "clocks", "filesystem", "http", "io", "random", "sockets"];

/// Rejects a component that could never run before any time is spent on compiling it.
pub(crate) fn check_interface(component: &[u8]) -> Result<(), LoadError> {
    let mut depth = 0u32;
    let mut exports = Vec::new();
    for payload in Parser::new(0).parse_all(component) {
        match payload.map_err(malformed_error)? {
            Payload::Version { encoding, .. } => {
                depth += 1;
                if depth == 1 && encoding != Encoding::Component {
                    return Err(LoadError::NotWasm);
                }
            }
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ComponentImportSection(imports) if depth == 1 => {
                for import in imports {
                    let import = import.map_err(malformed_error)?;
                    match import.ty {
                        // A type that the world's own functions use.
                        ComponentTypeRef::Type(_) => {}
                        ComponentTypeRef::Instance(_) => check_import(import.name.name)?,
                        ComponentTypeRef::Func(_)
                        | ComponentTypeRef::Module(_)
                        | ComponentTypeRef::Value(_)
                        | ComponentTypeRef::Component(_) => {
                            return Err(LoadError::UnknownImport { import: import.name.name.to_owned() });
                        }
                    }
                }
            }
            Payload::ComponentExportSection(section) if depth == 1 => {
                for export in section {
                    exports.push(export.map_err(malformed_error)?.name.name);
                }
            }
            _ => {}
        }
    }
    check_exports(&exports)
}

fn check_import(import: &str) -> Result<(), LoadError> {
    let unknown = || LoadError::UnknownImport { import: import.to_owned() };
    let other_version = |spoken: &'static str| LoadError::UnsupportedVersion {
        found: import.to_owned(),
        spoken: spoken.into(),
    };
    let (name, version) = import.rsplit_once('@').unwrap_or((import, ""));
    let (package, interface) = name.split_once('/').ok_or_else(unknown)?;
    if package == "lobster:step" {
        if !version.starts_with("0.1.") {
            return Err(other_version("lobster:step 0.1"));
        }
        return if matches!(interface, "types" | "host" | "io" | "http") { Ok(()) } else { Err(unknown()) };
    }
    let Some(package) = package.strip_prefix("wasi:") else { return Err(unknown()) };
    if !version.starts_with("0.2.") || version.contains('-') {
        return Err(other_version("WASI 0.2"));
    }
    if WASI_PACKAGES.contains(&package) { Ok(()) } else { Err(unknown()) }
}

fn check_exports(exports: &[&str]) -> Result<(), LoadError> {
    let has = |name: &str| exports.contains(&name);
    if exports.iter().any(|name| is_cli_run(name)) {
        return Ok(());
    }
    let half = |present: &'static str, missing: &'static str| {
        Err(LoadError::HalfAStep { present: present.into(), missing: missing.into() })
    };
    match (has("describe"), has("run")) {
        (true, true) => Ok(()),
        (true, false) => half("describe", "run"),
        (false, true) => half("run", "describe"),
        (false, false) => {
            // A step of another version may have other functions; its name gives a clearer error.
            if let Some(other) = exports.iter().find(|name| name.starts_with("wasi:cli/run@")) {
                return Err(LoadError::UnsupportedVersion {
                    found: (*other).to_owned(),
                    spoken: "WASI 0.2".into(),
                });
            }
            let found = if exports.is_empty() { "nothing".to_owned() } else { exports.join(", ") };
            Err(LoadError::MissingExport { found })
        }
    }
}

/// True if `name` is the entry point of a command component.
pub(crate) fn is_cli_run(name: &str) -> bool {
    name.starts_with("wasi:cli/run@0.2.")
}

/// The first import that lacks its grant, and the grant to add.
pub(crate) fn ungranted_import(imports: &[String], grants: &Grants) -> Option<(String, String)> {
    if !grants.net.is_empty() {
        return None;
    }
    let import = imports.iter().find(|import| uses_network(import))?;
    Some((
        import.clone(),
        "`net: [\"host:port\"]` to its grants, or build the component without sockets and http".to_owned(),
    ))
}

/// Interfaces that send data or names over the network in a way that no record can hold.
const RAW_SOCKETS: [&str; 3] = ["wasi:sockets/tcp@", "wasi:sockets/udp@", "wasi:sockets/ip-name-lookup@"];

/// The import with which a program with these grants could reach hosts without a record. A step that
/// has HTTP gets no sockets; its language's runtime may import them without opening any.
pub(crate) fn raw_socket<'i>(imports: &'i [String], is_step: bool, grants: &Grants) -> Option<&'i String> {
    if grants.net.is_empty()
        || (is_step && imports.iter().any(|import| HTTP.iter().any(|http| import.starts_with(http))))
    {
        return None;
    }
    imports.iter().find(|import| RAW_SOCKETS.iter().any(|raw| import.starts_with(raw)))
}

/// Interfaces for HTTP requests of a step.
const HTTP: [&str; 2] = ["wasi:http/outgoing-handler@", OWN_HTTP];

/// The contract's own HTTP, for languages that cannot link WASI's.
pub(crate) const OWN_HTTP: &str = "lobster:step/http@";

/// True if an interface can reach hosts.
pub(crate) fn uses_network(import: &str) -> bool {
    ["wasi:sockets/", "wasi:http/", OWN_HTTP].iter().any(|network| import.starts_with(network))
}

/// True if calls into `import` may have to wait and so need the asynchronous engine.
pub(crate) fn may_wait(import: &str) -> bool {
    uses_network(import) || import.starts_with("wasi:io/poll@") || import.starts_with("wasi:io/streams@")
}

/// Contracts of this host, for `inspect`.
pub(crate) fn host_contracts() -> String {
    format!("lobster:step {STEP_VERSION}, WASI 0.2 ({})", WASI_PACKAGES.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_raw_where_they_reach_somewhere() {
        let python = ["wasi:sockets/tcp@0.2.9".to_owned(), "wasi:http/outgoing-handler@0.2.9".to_owned()];
        let net = Grants { net: vec!["a.example".to_owned()], ..Grants::default() };
        assert_eq!(raw_socket(&python, true, &net), None, "a step with HTTP is given no sockets");
        let go = ["wasi:sockets/tcp@0.2.9".to_owned(), "lobster:step/http@0.1.0".to_owned()];
        assert_eq!(raw_socket(&go, true, &net), None, "whichever HTTP it is");
        assert_eq!(raw_socket(&python, false, &net), Some(&python[0]), "a command may use both");
        assert_eq!(raw_socket(&python[..1], true, &net), Some(&python[0]));
        assert_eq!(raw_socket(&python[..1], true, &Grants::default()), None, "nothing is reached");
    }

    #[test]
    fn imports_are_judged_by_package_and_version() {
        let judge = |name: &str| check_import(name).map_err(|e| e.to_string());
        for good in [
            "lobster:step/host@0.1.0",
            "lobster:step/io@0.1.7",
            "wasi:cli/environment@0.2.0",
            "wasi:sockets/tcp@0.2.12",
        ] {
            assert_eq!(judge(good), Ok(()), "{good}");
        }
        assert_eq!(
            judge("lobster:step/io@0.2.0"),
            Err("the component speaks lobster:step/io@0.2.0; this host speaks lobster:step 0.1".into())
        );
        assert_eq!(
            judge("wasi:io/streams@0.3.0"),
            Err("the component speaks wasi:io/streams@0.3.0; this host speaks WASI 0.2".into())
        );
        for unknown in ["wasi:keyvalue/store@0.2.0", "env", "lobster:step/gpu@0.1.0", "acme:x/y@1.0.0"] {
            assert!(matches!(check_import(unknown), Err(LoadError::UnknownImport { .. })), "{unknown}");
        }
    }
}
