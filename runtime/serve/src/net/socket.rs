//! A listening socket file. The kernel identifies the user at the other end of a connection.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};

/// A listening socket file, with the users who may connect.
pub struct SocketListener {
    listener: UnixListener,
    users: Vec<u32>,
    _file: SocketFile,
}

impl SocketListener {
    /// Listens on a socket file for the user of this process and `others`. Without others, its directory must be
    /// private; otherwise only its owner may be able to change the directory.
    ///
    /// # Errors
    /// Returns the reason in words.
    pub fn bind(path: &Path, others: &[u32]) -> Result<Self, String> {
        let dir = match path.parent() {
            Some(dir) if !dir.as_os_str().is_empty() => dir,
            _ => Path::new("."),
        };
        check_dir(dir, others.is_empty())?;
        remove_stale(path)?;
        let listener = UnixListener::bind(path).map_err(|error| error.to_string())?;
        // Until here, a private directory has kept other users out. In a directory that is not private, users are
        // checked when they connect.
        let mode = if others.is_empty() { 0o600 } else { 0o666 };
        fs::set_permissions(path, Permissions::from_mode(mode)).map_err(|error| error.to_string())?;
        let meta = fs::symlink_metadata(path).map_err(|error| error.to_string())?;
        let file = SocketFile { path: path.to_owned(), id: (meta.dev(), meta.ino()) };
        let own = rustix::process::geteuid().as_raw();
        let users = others.iter().copied().chain([own]).collect();
        Ok(Self { listener, users, _file: file })
    }

    /// Accepts the next connection of a permitted user.
    ///
    /// # Errors
    /// Fails if no connection can be accepted now.
    pub async fn accept(&self) -> io::Result<UnixStream> {
        loop {
            let (stream, _) = self.listener.accept().await?;
            match stream.peer_cred().map(|peer| peer.uid()) {
                Ok(user) if self.users.contains(&user) => return Ok(stream),
                Ok(user) => tracing::warn!("a connection of user {user} to a socket of others is refused"),
                Err(error) => {
                    tracing::warn!("a connection is refused: its owner cannot be determined: {error}");
                }
            }
        }
    }
}

fn check_dir(dir: &Path, is_private: bool) -> Result<(), String> {
    if !dir.exists() {
        let mode = if is_private { 0o700 } else { 0o755 };
        let made = DirBuilder::new().recursive(true).mode(mode).create(dir);
        made.map_err(|error| format!("the directory cannot be made: {error}"))?;
    }
    let meta = fs::metadata(dir).map_err(|error| error.to_string())?;
    let own = rustix::process::geteuid().as_raw();
    let (refused, rule) = if is_private {
        (0o077, "its directory must be yours alone (mode 700)")
    } else {
        (0o022, "no other user may write in its directory (mode 755 or less), which must be yours")
    };
    if meta.uid() != own || meta.mode() & refused != 0 {
        return Err(format!(
            "{rule}; {} has mode {:o} and belongs to user {}",
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
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path)
            .map_err(|error| format!("the socket of an earlier server cannot be removed: {error}")),
        Err(error) => Err(format!("there is a socket whose owner cannot be determined: {error}")),
    }
}

/// The file of a socket, removed when its server ends.
struct SocketFile {
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

    fn bind_refusal(path: &Path, others: &[u32]) -> String {
        SocketListener::bind(path, others).err().unwrap_or_default()
    }

    fn file_mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & 0o777
    }

    #[tokio::test]
    async fn a_socket_is_private_and_a_stale_one_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/lobster.sock");
        let first = SocketListener::bind(&path, &[]).unwrap();
        assert_eq!((file_mode(&path), file_mode(&dir.path().join("new"))), (0o600, 0o700));
        assert!(bind_refusal(&path, &[]).contains("another server"));
        drop(first);
        assert!(!path.exists());
        // A killed server leaves its file.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        drop(SocketListener::bind(&path, &[]).unwrap());
        fs::write(&path, "x").unwrap();
        assert!(bind_refusal(&path, &[]).contains("not a socket"));
        let open = dir.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, Permissions::from_mode(0o755)).unwrap();
        assert!(bind_refusal(&open.join("s"), &[]).contains("yours alone"));
        // Other users may connect, but not put another socket there.
        let shared = SocketListener::bind(&open.join("s"), &[33]).unwrap();
        assert_eq!(file_mode(&open.join("s")), 0o666);
        drop(shared);
        fs::set_permissions(&open, Permissions::from_mode(0o777)).unwrap();
        assert!(bind_refusal(&open.join("s"), &[33]).contains("no other user may write"));
    }

    #[tokio::test]
    async fn only_the_users_who_may_are_let_in() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("private/s");
        let mut listener = SocketListener::bind(&path, &[]).unwrap();
        let own = rustix::process::geteuid().as_raw();
        let _client = UnixStream::connect(&path).await.unwrap();
        assert_eq!(listener.accept().await.unwrap().peer_cred().unwrap().uid(), own);
        // Pretends that the connection belongs to another user.
        listener.users = vec![own + 1];
        let mut stranger = UnixStream::connect(&path).await.unwrap();
        let waiting = tokio::time::timeout(std::time::Duration::from_millis(50), listener.accept());
        assert!(waiting.await.is_err(), "the stranger is not let in");
        let mut end = Vec::new();
        tokio::io::AsyncReadExt::read_to_end(&mut stranger, &mut end).await.unwrap();
    }
}
