//! The tokens of logins, in one file per server. The files are next to the store, so that no copy, bundle or export of
//! the store contains them.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use lobster_base::cancel::CancelToken;
use lobster_base::digest::Digest;
use lobster_base::regular_file;
use serde::{Deserialize, Serialize};

use super::LoginError;
use super::attempt::{Client, granted_tokens, request_tokens};
use super::http::parse_login_url;

/// A token is renewed this many seconds before it expires, so that it does not expire during a call.
const BEFORE_END: i64 = 60;

/// A short-lived token is renewed in the last quarter of its lifetime; otherwise each call would renew it.
const LAST_PART: i64 = 4;

/// The stored result of a login.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Login {
    /// The format; 1.
    pub(super) version: u32,
    /// The address of the server.
    pub(super) server: String,
    pub(super) issuer: String,
    pub(super) resource: String,
    pub(super) token_endpoint: String,
    pub(super) client_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) client_secret: Option<String>,
    #[serde(default)]
    pub(super) secret_in_form: bool,
    pub(super) access_token: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) refresh_token: Option<String>,
    /// Seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) expires_at: Option<i64>,
    /// Time at which the token is renewed, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) renew_at: Option<i64>,
}

impl Login {
    /// The authorization server where the person logged in.
    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// True if the token can be renewed without the person.
    #[must_use]
    pub fn is_renewed(&self) -> bool {
        self.refresh_token.is_some()
    }

    /// Expiry time of the token, in seconds since 1970.
    #[must_use]
    pub fn expires_at(&self) -> Option<i64> {
        self.expires_at
    }

    fn to_access_token(&self, stamp: Stamp) -> AccessToken {
        AccessToken { text: self.access_token.as_str().into(), renew_at: self.renew_at, stamp }
    }

    /// Sets the expiry and renewal times from the token's lifetime in seconds, if the server gave one.
    pub(super) fn runs_out_in(&mut self, seconds: Option<i64>) {
        let at = |after: i64| unix_seconds().saturating_add(after);
        self.expires_at = seconds.map(at);
        self.renew_at = seconds.map(|seconds| at(seconds - BEFORE_END.min(seconds / LAST_PART)));
    }

    fn is_good(&self, want: WantedToken<'_>) -> bool {
        let is_wanted = match want {
            WantedToken::Good => true,
            WantedToken::OtherThan(token) => self.access_token != token,
        };
        is_wanted && is_before_renewal(self.renew_at)
    }
}

/// Leaves out the tokens.
impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Login")
            .field("server", &self.server)
            .field("issuer", &self.issuer)
            .finish_non_exhaustive()
    }
}

/// A token with the time of its renewal.
#[derive(Clone)]
pub struct AccessToken {
    text: Arc<str>,
    /// Seconds since 1970.
    renew_at: Option<i64>,
    pub(super) stamp: Stamp,
}

/// Leaves out the token.
impl std::fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AccessToken").field("renew_at", &self.renew_at).finish_non_exhaustive()
    }
}

impl AccessToken {
    /// The token itself.
    #[must_use]
    pub fn reveal(&self) -> &Arc<str> {
        &self.text
    }

    /// True if the token will not expire during a call that is sent now.
    #[must_use]
    pub fn is_fresh(&self) -> bool {
        is_before_renewal(self.renew_at)
    }
}

fn is_before_renewal(renew_at: Option<i64>) -> bool {
    renew_at.is_none_or(|at| unix_seconds() < at)
}

/// Distinguishes versions of a file: each version is a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    file: u64,
    length: u64,
    changed: (i64, i64),
}

impl Stamp {
    fn from_metadata(file: &fs::Metadata) -> Self {
        Self { file: file.ino(), length: file.len(), changed: (file.mtime(), file.mtime_nsec()) }
    }
}

/// Kind of token that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WantedToken<'t> {
    /// Any token that should be valid.
    Good,
    /// A token other than this one, which the server has rejected.
    OtherThan(&'t str),
}

/// The logins of one user.
#[derive(Clone, Debug)]
pub struct Logins(PathBuf);

impl Logins {
    /// The logins in this state directory of lobster.
    #[must_use]
    pub fn in_state_dir(state_dir: &Path) -> Self {
        Self(Self::dir_below(state_dir))
    }

    /// Directory of the logins. Steps may not read it.
    #[must_use]
    pub fn dir_below(state_dir: &Path) -> PathBuf {
        state_dir.join("logins")
    }

    /// Returns the login at this server, if there is one.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub fn find_login(&self, server: &str) -> Result<Option<Login>, LoginError> {
        Ok(self.read_login(server)?.map(|(login, _)| login))
    }

    /// Stores a login and replaces an earlier one.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn store_login(&self, login: &Login) -> Result<(), LoginError> {
        let _locked = self.lock_login(&login.server)?;
        self.write_login(login).map(drop)
    }

    /// Deletes a login. Returns true if there was one.
    ///
    /// # Errors
    /// Fails if the file cannot be removed.
    pub fn delete_login(&self, server: &str) -> Result<bool, LoginError> {
        match fs::remove_file(self.login_path(server)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err(self.file_error(server, source)),
        }
    }

    /// Returns the token for a server, renewed if necessary, or `None` if there is no login. `secret` is the secret of
    /// a client that was registered by hand.
    ///
    /// # Errors
    /// Fails if the login has ended, or its file cannot be read or written.
    pub fn valid_token(
        &self,
        server: &str,
        secret: Option<&str>,
        want: WantedToken<'_>,
        cancel: &CancelToken,
    ) -> Result<Option<AccessToken>, LoginError> {
        match self.read_login(server)? {
            None => return Ok(None),
            Some((login, stamp)) if login.is_good(want) => return Ok(Some(login.to_access_token(stamp))),
            Some(_) => {}
        }
        // Many refresh tokens are valid for one use, so two processes must not use the same one.
        let _locked = self.lock_login(server)?;
        let Some((mut login, mut stamp)) = self.read_login(server)? else { return Ok(None) };
        if !login.is_good(want) {
            renew_login(&mut login, secret, cancel)?;
            stamp = self.write_login(&login)?;
        }
        Ok(Some(login.to_access_token(stamp)))
    }

    /// Returns the stored token for a server if it meets `want`. No other token is requested.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub(super) fn stored_token(
        &self,
        server: &str,
        want: WantedToken<'_>,
    ) -> Result<Option<AccessToken>, LoginError> {
        let read = self.read_login(server)?;
        Ok(read.filter(|(login, _)| login.is_good(want)).map(|(login, stamp)| login.to_access_token(stamp)))
    }

    /// The version of a server's file, without its content.
    pub(super) fn file_stamp(&self, server: &str) -> Option<Stamp> {
        fs::metadata(self.login_path(server)).ok().map(|file| Stamp::from_metadata(&file))
    }

    fn login_path(&self, server: &str) -> PathBuf {
        self.0.join(format!("{}.json", Digest::of_bytes(server.as_bytes()).short()))
    }

    fn file_error(&self, server: &str, source: io::Error) -> LoginError {
        LoginError::File { path: self.login_path(server).display().to_string(), source }
    }

    fn read_login(&self, server: &str) -> Result<Option<(Login, Stamp)>, LoginError> {
        let problem = |source| self.file_error(server, source);
        let mut file = match regular_file::open_own(File::options().read(true), &self.login_path(server)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(problem(source)),
        };
        let stamp = Stamp::from_metadata(&file.metadata().map_err(problem)?);
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(problem)?;
        let login: Login = serde_json::from_str(&text)
            .map_err(|_| problem(io::Error::other("it does not contain a login of this version")))?;
        Ok(Some((login, stamp)).filter(|(login, _)| login.server == server && login.version == 1))
    }

    fn write_login(&self, login: &Login) -> Result<Stamp, LoginError> {
        let problem = |source| self.file_error(&login.server, source);
        let text = serde_json::to_string(login).map_err(|error| problem(error.into()))?;
        // The file has mode 0600 from the start.
        let mut file = tempfile::NamedTempFile::new_in(&self.0).map_err(problem)?;
        file.write_all(text.as_bytes()).and_then(|()| file.as_file().sync_all()).map_err(problem)?;
        let file = file.persist(self.login_path(&login.server)).map_err(|error| problem(error.error))?;
        Ok(Stamp::from_metadata(&file.metadata().map_err(problem)?))
    }

    fn lock_login(&self, server: &str) -> Result<File, LoginError> {
        let problem = |source| self.file_error(server, source);
        DirBuilder::new().recursive(true).mode(0o700).create(&self.0).map_err(problem)?;
        let path = self.login_path(server).with_extension("lock");
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        let file = regular_file::open_own(&mut options, &path).map_err(problem)?;
        file.lock().map_err(problem)?;
        Ok(file)
    }
}

/// Requests a new token from the server.
fn renew_login(login: &mut Login, secret: Option<&str>, cancel: &CancelToken) -> Result<(), LoginError> {
    let Some(refresh) = login.refresh_token.clone() else { return Err(LoginError::Expired) };
    let client = Client {
        id: login.client_id.clone(),
        secret: login.client_secret.clone().or_else(|| secret.map(str::to_owned)),
        is_registered: login.client_secret.is_some(),
        is_in_form: login.secret_in_form,
    };
    let fields =
        [("grant_type", "refresh_token"), ("refresh_token", &refresh), ("resource", &login.resource)];
    let reply = request_tokens(&parse_login_url(&login.token_endpoint)?, &client, &fields, cancel)?;
    let tokens = granted_tokens(&reply, &login.issuer, "to renew the login")?;
    login.update_tokens(&tokens);
    Ok(())
}

pub(super) fn unix_seconds() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
pub(super) mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    pub(in crate::login) fn sample_login(seconds: Option<i64>) -> Login {
        let mut login = Login {
            version: 1,
            server: "https://h.example/mcp".to_owned(),
            issuer: "https://as.example".to_owned(),
            resource: "https://h.example/mcp".to_owned(),
            token_endpoint: "https://as.invalid/token".to_owned(),
            client_id: "c".to_owned(),
            client_secret: None,
            secret_in_form: false,
            access_token: "t".to_owned(),
            refresh_token: None,
            expires_at: None,
            renew_at: None,
        };
        login.runs_out_in(seconds);
        login
    }

    #[test]
    fn a_token_is_renewed_before_its_end() {
        for (seconds, renewed) in [(3600, 3540), (240, 180), (60, 45), (1, 1), (0, 0)] {
            let begun = unix_seconds();
            let at = sample_login(Some(seconds)).renew_at.unwrap();
            assert!((begun + renewed..=unix_seconds() + renewed).contains(&at), "{seconds}");
        }
        assert_eq!(sample_login(None).renew_at, None);
    }

    #[test]
    fn a_login_is_kept_for_its_server_and_its_user_alone() {
        let dir = tempfile::tempdir().unwrap();
        let logins = Logins::in_state_dir(dir.path());
        let server = "https://h.example/mcp";
        let token = |want| logins.valid_token(server, None, want, &CancelToken::new());
        let has = |server| logins.find_login(server).unwrap().is_some();
        assert!(!has(server) && !logins.delete_login(server).unwrap());
        logins.store_login(&sample_login(None)).unwrap();
        assert_eq!(
            token(WantedToken::Good).unwrap().map(|token| token.text.to_string()).as_deref(),
            Some("t")
        );
        assert!(!has("https://h.example/other"));
        for entry in fs::read_dir(dir.path().join("logins")).unwrap() {
            assert_eq!(entry.unwrap().metadata().unwrap().permissions().mode() & 0o777, 0o600);
        }
        assert_eq!(fs::metadata(dir.path().join("logins")).unwrap().permissions().mode() & 0o777, 0o700);
        assert!(matches!(token(WantedToken::OtherThan("t")), Err(LoginError::Expired)));
        logins.store_login(&sample_login(Some(0))).unwrap();
        assert!(matches!(token(WantedToken::Good), Err(LoginError::Expired)));
        assert!(logins.delete_login(server).unwrap());
        assert!(token(WantedToken::Good).unwrap().is_none());
    }
}
