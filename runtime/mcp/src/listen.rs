//! Listeners for clients: a port, or a socket file that only this user can reach.

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use lobster_serve::net::SocketListener;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;

use crate::work_failure;
use lobster_runtime::envelope::Failure;

/// A port or a socket file.
pub(super) enum Listener {
    Port(TcpListener),
    Socket(SocketListener),
}

/// A connection of either kind.
pub(super) trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

impl Listener {
    pub(super) async fn bind_port(address: SocketAddr) -> Result<Self, Failure> {
        let listener = TcpListener::bind(address).await;
        listener.map(Self::Port).map_err(|error| work_failure(format!("cannot listen on {address}: {error}")))
    }

    /// A socket file in a directory that no other user can enter.
    pub(super) fn bind_socket(path: &Path) -> Result<Self, Failure> {
        let listener = SocketListener::bind(path, &[]);
        listener
            .map(Self::Socket)
            .map_err(|why| work_failure(format!("cannot listen on {}: {why}", path.display())))
    }

    /// The next connection of a permitted client.
    pub(super) async fn accept(&self) -> io::Result<Box<dyn Connection>> {
        match self {
            Self::Port(listener) => Ok(Box::new(listener.accept().await?.0)),
            Self::Socket(listener) => Ok(Box::new(listener.accept().await?)),
        }
    }
}
