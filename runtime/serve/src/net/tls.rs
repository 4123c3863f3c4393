//! TLS with the operator's certificate. Files that are replaced, as those who renew certificates do, are
//! read again; until they are good the earlier ones are used.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use lobster_runtime::sync::lock;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

/// How often it is looked whether the files are others.
const LOOK: Duration = Duration::from_secs(30);

/// The files of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate and those between it and its authority, in PEM.
    pub certificate: PathBuf,
    /// Its key, in PEM.
    pub key: PathBuf,
}

/// What encrypts connections.
pub struct Tls {
    files: TlsFiles,
    now: Mutex<Loaded>,
}

struct Loaded {
    acceptor: TlsAcceptor,
    /// When the files were changed last.
    changed: [Option<SystemTime>; 2],
    looked: Instant,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// Which file is wrong, and what is wrong with it.
    pub fn load(files: TlsFiles) -> Result<Self, String> {
        let changed = changed(&files);
        let acceptor = TlsAcceptor::from(Arc::new(config(&files)?));
        Ok(Self { files, now: Mutex::new(Loaded { acceptor, changed, looked: Instant::now() }) })
    }

    /// What encrypts the next connection.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        let mut now = lock(&self.now);
        if now.looked.elapsed() >= LOOK {
            now.looked = Instant::now();
            let changed = changed(&self.files);
            if changed != now.changed {
                now.changed = changed;
                match config(&self.files) {
                    Ok(config) => now.acceptor = TlsAcceptor::from(Arc::new(config)),
                    Err(why) => tracing::error!("the earlier certificate is used on: {why}"),
                }
            }
        }
        now.acceptor.clone()
    }
}

fn changed(files: &TlsFiles) -> [Option<SystemTime>; 2] {
    [&files.certificate, &files.key].map(|file| std::fs::metadata(file).and_then(|meta| meta.modified()).ok())
}

fn config(files: &TlsFiles) -> Result<ServerConfig, String> {
    let TlsFiles { certificate, key } = files;
    let read = |file: &Path| std::fs::read(file).map_err(|error| format!("{}: {error}", file.display()));
    let (certificates, private) = (read(certificate)?, read(key)?);
    let chain = CertificateDer::pem_slice_iter(&certificates).collect::<Result<Vec<_>, _>>();
    let chain = chain.ok().filter(|chain| !chain.is_empty()).ok_or_else(|| {
        format!("{}: there is no certificate in it (PEM, BEGIN CERTIFICATE)", certificate.display())
    })?;
    let private = PrivateKeyDer::from_pem_slice(&private)
        .map_err(|_| format!("{}: there is no private key in it (PEM, BEGIN PRIVATE KEY)", key.display()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_no_client_auth();
    let mut config = builder.with_single_cert(chain, private).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            format!("{} is not the key of the certificate in {}", key.display(), certificate.display())
        }
        other => format!("{} and {}: {other}", certificate.display(), key.display()),
    })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::Router;
    use axum::routing::get;
    use rustls::pki_types::ServerName;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// A certificate of nobody, for this machine's own name.
    const CERTIFICATE: &str = include_str!("../../../../tests/certificates/localhost.pem");
    const KEY: &str = include_str!("../../../../tests/certificates/localhost.key");
    const OTHER_KEY: &str = include_str!("../../../../tests/certificates/other.key");

    fn load(certificate: &str, key: &str) -> Result<Tls, String> {
        let dir = tempfile::tempdir().unwrap();
        let files = TlsFiles { certificate: dir.path().join("cert.pem"), key: dir.path().join("key.pem") };
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
            let refused = load(certificate, key).err().unwrap_or_default();
            assert!(refused.contains(about), "{refused}");
        }
        let nowhere = TlsFiles { certificate: "/nowhere.pem".into(), key: "/nowhere.key".into() };
        assert!(Tls::load(nowhere).err().is_some_and(|why| why.contains("/nowhere.pem")));
    }

    #[tokio::test]
    async fn a_client_that_trusts_the_certificate_is_answered_and_plain_http_is_not() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let router = Router::new().route("/", get(|| async { "hello" }));
        let server =
            tokio::spawn(super::super::serve(listener, load(CERTIFICATE, KEY).ok(), router, async {
                let _ = stopped.await;
            }));
        let request = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        let mut roots = rustls::RootCertStore::empty();
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
        // Some servers close without a goodbye; what came counts.
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
