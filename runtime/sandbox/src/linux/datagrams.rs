//! Datagrams with descriptors over a `SOCK_SEQPACKET` pair.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

/// To the helper: the descriptor is the control socket of a new supervisor.
pub(super) const SUPERVISOR: &[u8] = b"supervisor";

/// The same, inside new namespaces.
pub(super) const JAIL: &[u8] = b"jail";

/// The same, but in the host's network.
pub(super) const JAIL_ON_HOST_NETWORK: &[u8] = b"jail on host network";

/// The same, in a network made for [`NETWORK`], whose namespaces are attached.
pub(super) const JAIL_IN_NETWORK: &[u8] = b"jail in network";

/// To the helper: the descriptor is the socket that receives the namespaces of a new network.
pub(super) const NETWORK: &[u8] = b"network";

/// To a supervisor: the descriptors are a job's request, stdin, stdout and stderr, and the entrance to its
/// control groups.
pub(super) const JOB: &[u8] = b"job";

/// More descriptors than any of our messages carries; a jail sends up to [`super::super::proxy::MOST_WAYS`]
/// sockets.
const MOST_FDS: usize = 72;

/// Longest message: an error that quotes a path.
const LONGEST: usize = 8 * 1024;

pub(super) fn send(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::other("too many descriptors in one message"));
    }
    loop {
        match sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL) {
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Receives the next message, or `None` if the other end is closed.
pub(super) fn receive(socket: BorrowedFd<'_>) -> io::Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = vec![0; LONGEST];
    let length = loop {
        match recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC) {
            Ok(message) => break message.bytes,
            // The other end was closed before it read all our messages. This error occurs once; messages that
            // it had sent can still be read.
            Err(rustix::io::Errno::INTR | rustix::io::Errno::CONNRESET) => {}
            Err(error) => return Err(error.into()),
        }
    };
    let fds = control
        .drain()
        .flat_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => fds.collect(),
            _ => Vec::new(),
        })
        .collect();
    // None of our messages is empty, so an empty one marks the end.
    if length == 0 {
        return Ok(None);
    }
    bytes.truncate(length);
    Ok(Some((bytes, fds)))
}
