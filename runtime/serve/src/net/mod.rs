//! Connections: their number, and which are closed to make room.

mod accept;
mod newcomers;
mod socket;
mod tls;
mod unread;

pub use accept::{Door, Port, serve_connections};
pub use newcomers::{Newcomer, Newcomers};
pub use socket::SocketListener;
pub(crate) use tls::check_certificate;
pub use tls::{Tls, TlsFiles};
pub use unread::Shared;
