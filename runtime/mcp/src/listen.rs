//! Listeners for clients: a port, or a socket file that only this user can reach.

use std::io;

use lobster_serve::net::SocketListener;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;

use super::http::ListenPlace;
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
    pub(super) async fn bind(place: &ListenPlace) -> Result<Self, Failure> {
        match place {
            ListenPlace::Port(address) => {
                let failed = |error: io::Error| work_failure(format!("cannot listen on {address}: {error}"));
                TcpListener::bind(*address).await.map(Self::Port).map_err(failed)
            }
            // A socket file in a directory that no other user can enter.
            ListenPlace::Socket(path) => {
                let failed =
                    |why: String| work_failure(format!("cannot listen on {}: {why}", path.display()));
                SocketListener::bind(path, &[]).map(Self::Socket).map_err(failed)
            }
        }
    }

    /// The next connection of a permitted client.
    pub(super) async fn accept(&self) -> io::Result<Box<dyn Connection>> {
        match self {
            Self::Port(listener) => Ok(Box::new(listener.accept().await?.0)),
            Self::Socket(listener) => Ok(Box::new(listener.accept().await?)),
        }
    }
}
