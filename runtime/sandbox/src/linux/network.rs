//! Networks that several jails share: a loopback interface and nothing else.
//!
//! A network is two namespaces, held open by its users. When the last user has ended, no process can reach
//! anything in it, so it is removed.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, Weak};

use super::super::SpawnError;
use super::datagrams;
use super::mechanisms::Wall;
use super::watch::Trouble;
use super::wire::{News, Stage};
use lobster_base::sync::lock;

/// The namespaces of one network.
#[derive(Debug)]
pub(super) struct Network {
    /// The user namespace that owns the network, and the network namespace.
    namespaces: [OwnedFd; 2],
}

impl Network {
    /// Receives the answer of the helper to [`datagrams::NETWORK`].
    pub(super) fn receive_from(control: OwnedFd) -> Result<Self, Trouble> {
        let doing = "make a network for the run";
        let gone = || io::Error::other("its maker was killed");
        let (message, fds) = datagrams::receive(control.as_fd())
            .and_then(|received| received.ok_or_else(gone))
            .map_err(SpawnError::io_error(doing))?;
        match News::decode(&message).map_err(SpawnError::io_error(doing))? {
            News::Network => <[OwnedFd; 2]>::try_from(fds)
                .map(|namespaces| Self { namespaces })
                .map_err(|_| SpawnError::io_error(doing)(gone()).into()),
            News::Failed { stage: Stage::Namespaces, errno, detail } => {
                Err(Trouble::wall_failed(Wall::Namespaces, errno, &detail))
            }
            _ => Err(SpawnError::io_error(doing)(gone()).into()),
        }
    }

    pub(super) fn namespaces(&self) -> &[OwnedFd] {
        &self.namespaces
    }
}

/// The networks in use, by their names.
#[derive(Debug, Default)]
pub(super) struct Register(Mutex<HashMap<String, Weak<Network>>>);

impl Register {
    /// The network of this name; made if it has no users.
    pub(super) fn get(
        &self,
        name: &str,
        make: impl FnOnce() -> Result<Network, Trouble>,
    ) -> Result<Arc<Network>, Trouble> {
        // Locked while it is made, so that two simultaneous callers get the same network.
        let mut networks = lock(&self.0);
        if let Some(network) = networks.get(name).and_then(Weak::upgrade) {
            return Ok(network);
        }
        networks.retain(|_, network| network.strong_count() > 0);
        let network = Arc::new(make()?);
        networks.insert(name.to_owned(), Arc::downgrade(&network));
        Ok(network)
    }
}
