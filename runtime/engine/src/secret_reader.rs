//! Reads the value of a secret from its source, and explains why a step cannot have it.

use std::ffi::OsString;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use lobster_base::cancel::CancelToken;
use lobster_base::code::Code;
use lobster_base::credential::NotForHeaders;
use lobster_credentials::login::{LoginTerm, Logins, TokenError};
use lobster_policy::{SecretOrigin, SecretReference};
use lobster_sandbox::{
    Confinement, Ended, ExitStatus, OutputSinks, ProcessLimits, Sandbox, SpawnRequest, Stdin,
};
use lobster_stage::StageError;

use crate::env::Env;
use crate::envelope::Failure;

/// Most bytes of a value. Credentials are small; a file or output of this size is something else.
pub(crate) const MAX_VALUE: u64 = 64 << 10;
/// Fewest bytes of a value. A shorter text would be replaced in too many places.
pub(crate) const SHORTEST: usize = 4;
/// Time limit of a command; a slower password manager waits for a person who is not there.
const COMMAND_TIME: Duration = Duration::from_secs(30);

/// The reason why a step cannot have a secret.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SecretError {
    #[error(
        "secret {0}: it has no source yet; add [secrets.{0}] with one of env, file, command and login to {1}"
    )]
    Unknown(String, String),
    #[error(
        "secret {0}: the policy does not let steps receive it; add it to `secrets` under [sandbox.env] of the policy"
    )]
    Forbidden(String),
    #[error("secret {0}: it cannot be given as {1}, a variable that decides which code runs")]
    Variable(String, String),
    #[error("secret {0}: environment variable {1} is not set")]
    Unset(String, String),
    #[error("secret {0}: cannot read {path}: {source}", path = .1.display(), source = .2)]
    File(String, PathBuf, io::Error),
    #[error("secret {0}: {1} has more than {MAX_VALUE} bytes")]
    TooLarge(String, String),
    #[error("secret {0}: {1} is not UTF-8 text without NUL")]
    NotText(String, String),
    #[error("secret {0}: {1} is empty")]
    Empty(String, String),
    #[error("secret {0}: {1} has fewer than {SHORTEST} bytes, so it cannot be hidden in records")]
    TooShort(String, String),
    #[error("secret {0}: {1} {2}; run it by hand to see why")]
    Command(String, String, String),
    #[error(
        "secret {0}: it is only added to what steps send to {1}, and no step receives it; use `credentials:` in place of `secrets:`"
    )]
    Bound(String, String),
    #[error("secret {0}: the operator allows it for {2}, not for {1}")]
    OtherHost(String, String, String),
    #[error("secret {0}: its server is at {1}, and credentials are sent only over https")]
    NotHttps(String, String),
    #[error("secret {0}: it cannot be sent to {1}: {2}")]
    Unsendable(String, String, NotForHeaders),
    #[error("secret {0}: {1}")]
    LoginServer(String, StageError),
    #[error(transparent)]
    Login(#[from] TokenError),
    #[error(
        "{place} the value of {mark}; grant the secret to the step (`secrets:`) and use its variable instead"
    )]
    InClear { place: &'static str, mark: String },
}

impl SecretError {
    /// The code of the failure.
    pub(crate) fn code(&self) -> Code {
        match self {
            Self::Login(_) => Code::McpLogin,
            Self::LoginServer(..) => Code::McpServer,
            _ => Code::Secret,
        }
    }

    /// The failure of a step for this reason.
    pub(crate) fn into_failure(self) -> StageError {
        let code = self.code();
        StageError::permanent_from(self).with_code(code)
    }
}

impl From<SecretError> for Failure {
    fn from(error: SecretError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}

/// Finds the operator's MCP servers that secrets name as their logins.
pub(crate) trait LoginServers {
    /// The login at a server, for this secret.
    fn login_term(&self, secret: &str, server: &str) -> Result<LoginTerm, StageError>;

    /// The address of a server.
    fn login_address(&self, server: &str) -> Result<String, StageError>;

    /// The directory of the logins.
    fn logins(&self) -> Logins;
}

/// The context that reading a secret needs.
pub(crate) struct Reader<'r> {
    pub(crate) env: &'r Env,
    pub(crate) cwd: &'r Path,
    pub(crate) sandbox: &'r Sandbox,
    pub(crate) cancel: &'r CancelToken,
    pub(crate) servers: &'r dyn LoginServers,
}

impl Reader<'_> {
    pub(crate) fn read_secret(
        &self,
        name: &str,
        reference: &SecretReference,
        home: &Path,
    ) -> Result<Vec<u8>, SecretError> {
        match &reference.origin {
            SecretOrigin::Env(variable) => self
                .env
                .get(variable)
                .map(String::into_bytes)
                .ok_or_else(|| SecretError::Unset(name.to_owned(), variable.clone())),
            SecretOrigin::File(path) => {
                let path = in_home(path, home);
                let mut bytes = Vec::new();
                std::fs::File::open(&path)
                    .and_then(|file| file.take(MAX_VALUE + 1).read_to_end(&mut bytes))
                    .map_err(|source| SecretError::File(name.to_owned(), path, source))?;
                Ok(bytes)
            }
            SecretOrigin::Command(words) => self.run_command(name, words),
            // The login supplies its token.
            SecretOrigin::Login(_) => Ok(Vec::new()),
        }
    }

    /// Runs the operator's own command, unconfined and with the operator's rights.
    fn run_command(&self, name: &str, words: &[String]) -> Result<Vec<u8>, SecretError> {
        let failed = |why: String| SecretError::Command(name.to_owned(), words.join(" "), why);
        let request = SpawnRequest {
            argv: words.iter().map(OsString::from).collect(),
            env: self.env.all_vars().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            cwd: self.cwd.to_owned(),
            stdin: Stdin::Empty,
            limits: ProcessLimits {
                wall: Some(COMMAND_TIME),
                stdout_cap: MAX_VALUE + 1,
                ..ProcessLimits::default()
            },
            confinement: Confinement::None,
            upstream: None,
        };
        let mut sink = StdoutOnly::default();
        let exit = self
            .sandbox
            .run(&request, &mut sink, self.cancel)
            .map_err(|error| failed(format!("cannot run: {error}")))?;
        match (exit.ended, exit.status) {
            (Ended::ByItself, ExitStatus::Code(0)) => Ok(sink.0),
            (Ended::ByItself, ExitStatus::Code(code)) => Err(failed(format!("ended with code {code}"))),
            (Ended::ByItself, ExitStatus::Signal(signal)) => {
                Err(failed(format!("was ended by signal {signal}")))
            }
            (Ended::TimedOut, _) => {
                Err(failed(format!("took longer than {} seconds", COMMAND_TIME.as_secs())))
            }
            (Ended::Cancelled, _) => Err(failed("was cancelled".to_owned())),
            (Ended::OutputCap { .. } | Ended::DiskLimit { .. }, _) => {
                Err(SecretError::TooLarge(name.to_owned(), format!("the output of {}", words.join(" "))))
            }
        }
    }
}

/// Collects a command's output. Its stderr may contain anything, and is dropped.
#[derive(Default)]
pub(crate) struct StdoutOnly(pub(crate) Vec<u8>);

impl OutputSinks for StdoutOnly {
    fn write_stdout(&mut self, chunk: &[u8]) -> io::Result<()> {
        self.0.extend_from_slice(chunk);
        Ok(())
    }

    fn write_stderr(&mut self, _chunk: &[u8]) -> io::Result<()> {
        Ok(())
    }
}

/// The path of a file in a reference.
pub(crate) fn in_home(path: &str, home: &Path) -> PathBuf {
    path.strip_prefix("~/").map_or_else(|| PathBuf::from(path), |rest| home.join(rest))
}
