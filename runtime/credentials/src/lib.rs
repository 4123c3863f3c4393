//! Credentials that a step uses and never sees. The step sends its request without one. On the way out, the host adds
//! the header, only over https and only for the host to which the credential is bound.
//!
//! A component sends its requests through the host anyway. A native step sends them to an [`Upstream`] on its loopback
//! interface, which forwards them to the host of the credential. The value may be the token of a login: each request
//! gets the current token, and is sent again with another one if the server rejects it.
//!
//! [`login`] gets tokens from servers that require a login, and renews them.

mod credential;
pub mod login;
mod masked;
mod outward;
mod resend;
mod upstream;

pub use credential::{Credential, Proof, Unready, Unsendable};
pub use masked::Masked;
pub use resend::{MOST_KEPT, Sent};
pub use upstream::{Serving, Upstream, Used};
