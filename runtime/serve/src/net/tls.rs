//! TLS with the operator's certificate. If the files are replaced, as renewal programs do, they are read again. The
//! earlier ones stay in use until the new ones are valid.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use lobster_runtime::sync::lock;
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

/// Interval at which the files are checked for changes.
const LOOK: Duration = Duration::from_secs(30);

/// The files of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate and the intermediate ones up to its authority, in PEM.
    pub certificate: PathBuf,
    /// Its key, in PEM.
    pub key: PathBuf,
    /// Names by which clients call the server. The certificate must cover them.
    pub names: Vec<String>,
}

/// The TLS configuration, reloaded when its files change.
pub struct Tls {
    files: TlsFiles,
    now: Mutex<Loaded>,
}

struct Loaded {
    acceptor: TlsAcceptor,
    /// Modification times of the files.
    changed: [Option<SystemTime>; 2],
    looked: Instant,
    chain: Vec<CertificateDer<'static>>,
    /// True if the expiry has been logged.
    is_over: bool,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// Returns the name of the bad file and the fault in it.
    pub fn load(files: TlsFiles) -> Result<Self, String> {
        let changed = modified_times(&files);
        let (config, chain) = load_config(&files)?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let loaded = Loaded { acceptor, changed, looked: Instant::now(), chain, is_over: false };
        Ok(Self { files, now: Mutex::new(loaded) })
    }

    /// The TLS acceptor for the next connection.
    pub(super) fn current_acceptor(&self) -> TlsAcceptor {
        let mut now = lock(&self.now);
        if now.looked.elapsed() >= LOOK {
            now.looked = Instant::now();
            let changed = modified_times(&self.files);
            if changed != now.changed {
                now.changed = changed;
                match load_config(&self.files) {
                    Ok((config, chain)) => {
                        now.acceptor = TlsAcceptor::from(Arc::new(config));
                        (now.chain, now.is_over) = (chain, false);
                    }
                    Err(why) => tracing::error!("the earlier certificate stays in use: {why}"),
                }
            }
            if !now.is_over
                && let Err(why) = check_certificate(&now.chain, &[])
            {
                now.is_over = true;
                tracing::error!("{}: {why}; clients refuse it", self.files.certificate.display());
            }
        }
        now.acceptor.clone()
    }
}

fn modified_times(files: &TlsFiles) -> [Option<SystemTime>; 2] {
    [&files.certificate, &files.key].map(|file| std::fs::metadata(file).and_then(|meta| meta.modified()).ok())
}

/// Checks the validity period of a certificate and that it covers these names. Its signature is for clients to judge.
///
/// # Errors
/// Returns the reason why the certificate is not valid.
pub(crate) fn check_certificate(chain: &[CertificateDer<'_>], names: &[String]) -> Result<(), String> {
    let (leaf, rest) = chain.split_first().ok_or("there is no certificate")?;
    let leaf = ParsedCertificate::try_from(leaf)
        .map_err(|error| format!("the certificate cannot be read: {error}"))?;
    let known = rustls::crypto::ring::default_provider().signature_verification_algorithms;
    let nobody = RootCertStore::empty();
    let checked = verify_server_cert_signed_by_trust_anchor(&leaf, &nobody, rest, UnixTime::now(), known.all);
    let day = |time: UnixTime| {
        let second = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        jiff::Timestamp::from_second(second).map(|time| time.to_string()).unwrap_or_default()
    };
    match checked {
        Err(rustls::Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) => {
            return Err(format!("the certificate has expired on {}", day(not_after)));
        }
        Err(rustls::Error::InvalidCertificate(CertificateError::NotValidYetContext {
            not_before, ..
        })) => {
            return Err(format!("the certificate is not valid before {}", day(not_before)));
        }
        Err(rustls::Error::InvalidCertificate(CertificateError::Expired)) => {
            return Err("the certificate has expired".to_owned());
        }
        // An unknown authority is one of these errors.
        Ok(()) | Err(_) => {}
    }
    for name in names {
        let is_for =
            ServerName::try_from(name.as_str()).is_ok_and(|name| verify_server_name(&leaf, &name).is_ok());
        if !is_for {
            return Err(format!("the certificate is not for {name}, which --allow-host names"));
        }
    }
    Ok(())
}

fn load_config(files: &TlsFiles) -> Result<(ServerConfig, Vec<CertificateDer<'static>>), String> {
    let TlsFiles { certificate, key, names } = files;
    let read = |file: &Path| std::fs::read(file).map_err(|error| format!("{}: {error}", file.display()));
    let (certificates, private) = (read(certificate)?, read(key)?);
    let chain = CertificateDer::pem_slice_iter(&certificates).collect::<Result<Vec<_>, _>>();
    let chain = chain.ok().filter(|chain| !chain.is_empty()).ok_or_else(|| {
        format!("{}: there is no certificate in it (PEM, BEGIN CERTIFICATE)", certificate.display())
    })?;
    check_certificate(&chain, names).map_err(|why| format!("{}: {why}", certificate.display()))?;
    let private = PrivateKeyDer::from_pem_slice(&private)
        .map_err(|_| format!("{}: there is no private key in it (PEM, BEGIN PRIVATE KEY)", key.display()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_no_client_auth();
    let mut config = builder.with_single_cert(chain.clone(), private).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            format!("{} is not the key of the certificate in {}", key.display(), certificate.display())
        }
        other => format!("{} and {}: {other}", certificate.display(), key.display()),
    })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok((config, chain))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::Router;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// A self-signed certificate for localhost.
    const CERTIFICATE: &str = include_str!("../../../../tests/certificates/localhost.pem");
    const KEY: &str = include_str!("../../../../tests/certificates/localhost.key");
    const OTHER_KEY: &str = include_str!("../../../../tests/certificates/other.key");

    fn load_pair(certificate: &str, key: &str) -> Result<Tls, String> {
        load_for(certificate, key, &[])
    }

    fn load_for(certificate: &str, key: &str, names: &[&str]) -> Result<Tls, String> {
        let dir = tempfile::tempdir().unwrap();
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        let files =
            TlsFiles { certificate: dir.path().join("cert.pem"), key: dir.path().join("key.pem"), names };
        std::fs::write(&files.certificate, certificate).unwrap();
        std::fs::write(&files.key, key).unwrap();
        Tls::load(files)
    }

    #[test]
    fn a_certificate_that_does_not_fit_is_named() {
        for (certificate, key, about) in [
            ("", KEY, "cert.pem: there is no certificate in it"),
            (KEY, KEY, "cert.pem: there is no certificate in it"),
            (CERTIFICATE, "", "key.pem: there is no private key in it"),
            (CERTIFICATE, CERTIFICATE, "key.pem: there is no private key in it"),
            (CERTIFICATE, OTHER_KEY, "key.pem is not the key of the certificate in"),
        ] {
            let refused = load_pair(certificate, key).err().unwrap_or_default();
            assert!(refused.contains(about), "{refused}");
        }
        let nowhere =
            TlsFiles { certificate: "/nowhere.pem".into(), key: "/nowhere.key".into(), names: Vec::new() };
        assert!(Tls::load(nowhere).err().is_some_and(|why| why.contains("/nowhere.pem")));
    }

    /// The certificate with other dates. Its signature is not checked here.
    fn with_times(before: &[u8; 6], year: &[u8; 4]) -> String {
        use base64::Engine as _;
        let mut der = CertificateDer::from_pem_slice(CERTIFICATE.as_bytes()).unwrap().to_vec();
        for (was, is) in [(&b"261124"[..], &before[..]), (b"2126", year)] {
            let at = der.windows(was.len()).position(|bytes| bytes == was).unwrap();
            der[at..at + was.len()].copy_from_slice(is);
        }
        let text = base64::engine::general_purpose::STANDARD.encode(der);
        format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
    }

    #[test]
    fn a_certificate_that_is_not_in_its_time_or_not_for_its_names_is_refused() {
        let why =
            |certificate: &str, names: &[&str]| load_for(certificate, KEY, names).err().unwrap_or_default();
        assert_eq!(why(&with_times(b"201124", b"2126"), &["localhost", "127.0.0.1"]), "");
        let expired = why(&with_times(b"201124", b"2025"), &[]);
        assert!(expired.contains("cert.pem: the certificate has expired on 2025-10-31"), "{expired}");
        let early = why(&with_times(b"491124", b"2126"), &[]);
        assert!(early.contains("not valid before 2049-11-24"), "{early}");
        let other = why(CERTIFICATE, &["localhost", "flows.example"]);
        assert!(other.contains("is not for flows.example"), "{other}");
    }

    #[tokio::test]
    async fn a_client_that_trusts_the_certificate_is_answered_and_plain_http_is_not() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let router = Router::new().route("/", get(|| async { "hello" }));
        let port =
            super::super::Port { listener, tls: load_pair(CERTIFICATE, KEY).ok(), is_behind_proxy: false };
        let server = tokio::spawn(super::super::serve_connections(port, None, router, async {
            let _ = stopped.await;
        }));
        let request = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(CERTIFICATE.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let stream = TcpStream::connect(address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let mut stream =
            tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
        stream.write_all(request).await.unwrap();
        let mut answer = String::new();
        // Some servers close the connection without a TLS close message; the received data is what matters.
        let _ = stream.read_to_string(&mut answer).await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("hello"), "{answer}");
        let mut plain = TcpStream::connect(address).await.unwrap();
        plain.write_all(request).await.unwrap();
        let mut answer = Vec::new();
        let _ = plain.read_to_end(&mut answer).await;
        assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
        let _ = stop.send(());
        server.await.unwrap();
    }
}
