//! The points that every write and sync of the store passes ([`lobster_base::fault`]). The unit
//! tests of this crate install `armed` there, as does the program that the black-box tests drive.

use std::io;

#[cfg(test)]
pub(crate) mod armed;

/// Passes a point named `what`.
#[inline]
pub(super) fn point(what: &'static str) -> io::Result<()> {
    #[cfg(test)]
    lobster_base::fault::install_fault_hook(armed::pass);
    lobster_base::fault::point(what)
}
