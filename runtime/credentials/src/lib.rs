//! Credentials that a step uses and never sees. The step asks without one; on the way out
//! the host adds the header, over https, to the host that it was bound to and to no other.
//!
//! Components ask through the host anyway. A native step asks an [`Upstream`] on its
//! loopback interface, which asks the host of the credential in its place. What is sent may be the token of
//! a login: each request has the one that is good then, and is made again with another if its server refuses it.
//!
//! [`login`] gets tokens from servers that want their users to log in, and renews them.

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
