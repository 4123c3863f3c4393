//! Fault points, which every write and sync of the store passes ([`lobster_base::fault`]). The unit tests of this
//! crate install `armed` there, and so does the program that the black-box tests run.

use std::io;

#[cfg(test)]
pub(crate) mod armed;

/// Passes the fault point `what`.
#[inline]
pub(super) fn point(what: &'static str) -> io::Result<()> {
    #[cfg(test)]
    lobster_base::fault::install_fault_hook(armed::pass);
    lobster_base::fault::point(what)
}
