//! Where clients connect: a port, or a socket file that only this user reaches.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener, UnixStream};

use crate::exit::CommandError;

/// What is listened on.
pub(super) enum Listener {
    Port(TcpListener),
    Socket { listener: UnixListener, _file: SocketFile },
}

/// A connection of either kind.
pub(super) trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

impl Listener {
    pub(super) async fn port(address: SocketAddr) -> Result<Self, CommandError> {
        let listener = TcpListener::bind(address).await;
        listener
            .map(Self::Port)
            .map_err(|error| CommandError::failed(format!("cannot listen on {address}: {error}")))
    }

    /// A socket file in a directory that nobody else can enter.
    pub(super) fn socket(path: &Path) -> Result<Self, CommandError> {
        let failed =
            |why: String| CommandError::failed(format!("cannot listen on {}: {why}", path.display()));
        let dir = match path.parent() {
            Some(dir) if !dir.as_os_str().is_empty() => dir,
            _ => Path::new("."),
        };
        make_private(dir).map_err(failed)?;
        remove_stale(path).map_err(failed)?;
        let listener = UnixListener::bind(path).map_err(|error| failed(error.to_string()))?;
        // Until here the directory's mode has kept others out.
        fs::set_permissions(path, Permissions::from_mode(0o600))
            .map_err(|error| failed(error.to_string()))?;
        let meta = fs::symlink_metadata(path).map_err(|error| failed(error.to_string()))?;
        let file = SocketFile { path: path.to_owned(), id: (meta.dev(), meta.ino()) };
        Ok(Self::Socket { listener, _file: file })
    }

    /// The next connection of somebody who may connect.
    pub(super) async fn accept(&self) -> io::Result<Box<dyn Connection>> {
        match self {
            Self::Port(listener) => Ok(Box::new(listener.accept().await?.0)),
            Self::Socket { listener, .. } => loop {
                let (stream, _) = listener.accept().await?;
                match is_own(&stream) {
                    Ok(()) => return Ok(Box::new(stream)),
                    Err(why) => tracing::warn!("a connection is refused: {why}"),
                }
            },
        }
    }
}

/// The kernel says whose process is at the other end.
fn is_own(stream: &UnixStream) -> Result<(), String> {
    let own = rustix::process::geteuid().as_raw();
    match stream.peer_cred() {
        Ok(peer) if peer.uid() == own => Ok(()),
        Ok(peer) => Err(format!("it comes from user {}, and this server is for user {own}", peer.uid())),
        Err(error) => Err(format!("its owner cannot be determined: {error}")),
    }
}

fn make_private(dir: &Path) -> Result<(), String> {
    if !dir.exists() {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
        made.map_err(|error| format!("the directory cannot be made: {error}"))?;
    }
    let meta = fs::metadata(dir).map_err(|error| error.to_string())?;
    let own = rustix::process::geteuid().as_raw();
    if meta.uid() != own || meta.mode() & 0o077 != 0 {
        return Err(format!(
            "its directory must be yours alone (mode 700); {} has mode {:o} and belongs to user {}",
            dir.display(),
            meta.mode() & 0o7777,
            meta.uid()
        ));
    }
    Ok(())
}

/// Removes the socket of a server that is gone.
fn remove_stale(path: &Path) -> Result<(), String> {
    let meta = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(|error| error.to_string())?,
    };
    if !meta.file_type().is_socket() {
        return Err("there is a file that is not a socket; remove it, or choose another path".to_owned());
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => Err("another server already listens there".to_owned()),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(|error| format!("the socket of an earlier server stays: {error}"))
        }
        Err(error) => Err(format!("there is a socket whose owner cannot be determined: {error}")),
    }
}

/// The file of a socket, removed when its server ends.
pub(super) struct SocketFile {
    path: PathBuf,
    id: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_ours = fs::symlink_metadata(&self.path).is_ok_and(|meta| (meta.dev(), meta.ino()) == self.id);
        if is_ours {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_private_and_a_stale_one_is_replaced() {
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _context = tokio.enter();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/lobster.sock");
        let mode = |path: &Path| fs::symlink_metadata(path).unwrap().mode() & 0o777;
        let first = Listener::socket(&path).ok().unwrap();
        assert_eq!((mode(&path), mode(&dir.path().join("new"))), (0o600, 0o700));
        let why =
            |path: &Path| Listener::socket(path).err().map(|error| format!("{error:?}")).unwrap_or_default();
        assert!(why(&path).contains("another server"), "{}", why(&path));
        drop(first);
        assert!(!path.exists());
        // A server that was killed leaves its file.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        drop(Listener::socket(&path).ok().unwrap());
        fs::write(&path, "x").unwrap();
        assert!(why(&path).contains("not a socket"));
        let open = dir.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, Permissions::from_mode(0o755)).unwrap();
        assert!(why(&open.join("s")).contains("yours alone"));
    }
}
