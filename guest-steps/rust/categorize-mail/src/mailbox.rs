//! The granted directory: which files are messages, and reading one.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use lobster_step::{StepError, files};

use crate::Which;

/// Bytes of a message that are looked at; what comes after is attachments.
const READ_AT_MOST: u64 = 1024 * 1024;

/// The two folders of a Maildir that hold messages.
const MAILDIR: [&str; 2] = ["cur", "new"];

pub(crate) struct Mailbox {
    guest: String,
    path: PathBuf,
}

impl Mailbox {
    /// # Errors
    /// `not-granted` if there is no such directory for this step.
    pub(crate) fn open(guest: &str) -> Result<Self, StepError> {
        let path = files::guest(guest);
        fs::metadata(&path).map_err(|error| {
            StepError::new(
                "not-granted",
                format!("cannot read `{guest}` ({error}); grant it: `grants: {{ read: [{{ from: ./inbox, to: {guest} }}] }}`"),
            )
        })?;
        Ok(Self { guest: guest.to_owned(), path })
    }

    /// The message files, in the order of their names.
    pub(crate) fn list(&self) -> Result<Vec<String>, StepError> {
        let mut names = Vec::new();
        let folders: Vec<&str> = MAILDIR.into_iter().filter(|name| self.path.join(name).is_dir()).collect();
        if folders.is_empty() {
            self.list_folder("", &mut names)?;
        }
        for folder in folders {
            self.list_folder(folder, &mut names)?;
        }
        names.sort();
        Ok(names)
    }

    fn list_folder(&self, folder: &str, names: &mut Vec<String>) -> Result<(), StepError> {
        let maildir = !folder.is_empty();
        let entries = fs::read_dir(self.path.join(folder)).map_err(|error| self.failed(folder, &error))?;
        for entry in entries {
            let entry = entry.map_err(|error| self.failed(folder, &error))?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let is_mail = if maildir { !name.starts_with('.') } else { has_mail_extension(&name) };
            if is_mail && entry.path().is_file() {
                names.push(if maildir { format!("{folder}/{name}") } else { name });
            }
        }
        Ok(())
    }

    /// The file that an input item means.
    pub(crate) fn find(&self, which: &Which) -> Result<String, StepError> {
        let name = which
            .file
            .as_deref()
            .or(which.id.as_deref())
            .ok_or_else(|| StepError::bad_input("an input item has neither `file` nor `id`"))?;
        let inside = Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
        if name.is_empty() || !inside {
            return Err(StepError::new(
                "bad-file",
                format!("`{name}` is not a file name below `{}`", self.guest),
            ));
        }
        let with_extension = format!("{name}.eml");
        if which.file.is_none()
            && !self.path.join(name).is_file()
            && self.path.join(&with_extension).is_file()
        {
            return Ok(with_extension);
        }
        Ok(name.to_owned())
    }

    /// The first [`READ_AT_MOST`] bytes of a message.
    pub(crate) fn read(&self, file: &str) -> Result<Vec<u8>, StepError> {
        let mut bytes = Vec::new();
        File::open(self.path.join(file))
            .and_then(|file| file.take(READ_AT_MOST).read_to_end(&mut bytes))
            .map_err(|error| self.failed(file, &error))?;
        Ok(bytes)
    }

    fn failed(&self, file: &str, error: &std::io::Error) -> StepError {
        let code = if error.kind() == std::io::ErrorKind::NotFound { "not-found" } else { "io" };
        StepError::new(code, format!("`{}/{file}`: {error}", self.guest))
    }
}

fn has_mail_extension(name: &str) -> bool {
    let extension = Path::new(name).extension().and_then(|extension| extension.to_str());
    !name.starts_with('.')
        && extension.is_some_and(|extension| {
            extension.eq_ignore_ascii_case("eml") || extension.eq_ignore_ascii_case("email")
        })
}
