//! Files that a pipeline command reads itself. It reads no file that the policy hides from every step.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use lobster_base::regular_file;
use lobster_policy::denial_message;

use super::decision_env::decision_env;
use super::jail_spec::real_path;
use super::own_places::kept_from_steps;
use crate::run::Run;

/// Opens a regular file, and judges the opened file by its real path.
pub(crate) fn open(run: &Run<'_>, path: &Path) -> io::Result<File> {
    let services = run.services;
    let file = regular_file::open(path)?;
    if services.policy.is_open() {
        return Ok(file);
    }
    let found =
        fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).or_else(|_| fs::canonicalize(path))?;
    let place = decision_env(&services.policy, &run.surroundings, &real_path(&run.cwd), &services.env);
    let own = kept_from_steps(&services.state_dir);
    let is_own = own.iter().any(|dir| found.starts_with(real_path(dir)));
    if !is_own && services.policy.may_read(&found, &place) {
        return Ok(file);
    }
    let message = format!("the policy lets no step read {}", found.display());
    let hint = "sandbox.fs.read has to cover it, and sandbox.fs.deny not";
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        denial_message("the file", &message, "read-root", Some(hint)),
    ))
}
