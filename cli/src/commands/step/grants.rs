//! Grants and limits on the command line.

use std::path::{Path, PathBuf};
use std::time::Duration;

use lobster_runtime::component::{Ceilings, DirGrant, Grants, Limits};
use lobster_runtime::quantity::{Bytes, Span, parse_count};

use crate::exit::CommandError;

/// The grants of a program. Without these it has none.
#[derive(Debug, Default, clap::Args)]
pub(super) struct GrantArgs {
    /// A directory that the step may read, as GUEST (by default under its own path).
    #[arg(long, value_name = "DIR[:GUEST]")]
    read: Vec<String>,
    /// A directory that the step may read and write. Writes take effect when the step succeeds.
    #[arg(long, value_name = "DIR[:GUEST]")]
    write: Vec<String>,
    /// An environment variable that the step may read.
    #[arg(long, value_name = "NAME")]
    env: Vec<String>,
    /// A host that the step may connect to.
    #[arg(long, value_name = "HOST:PORT")]
    net: Vec<String>,
    /// Grants the real clock instead of the virtual one.
    #[arg(long)]
    clock: bool,
    /// Grants real randomness instead of the seeded one.
    #[arg(long)]
    random: bool,
}

impl GrantArgs {
    pub(super) fn to_grants(&self) -> Result<Grants, CommandError> {
        let cwd = std::env::current_dir()?;
        let dirs = |texts: &[String]| {
            texts.iter().map(|text| parse_directory(&cwd, text)).collect::<Result<Vec<_>, _>>()
        };
        let env = self.env.iter().map(|name| match std::env::var(name) {
            Ok(value) => Ok((name.clone(), value)),
            Err(_) => Err(CommandError::usage(format!(
                "--env {name}: this variable is not set, or is not UTF-8 text"
            ))),
        });
        let grants = Grants {
            read: dirs(&self.read)?,
            write: dirs(&self.write)?,
            env: env.collect::<Result<_, _>>()?,
            net: self.net.clone(),
            clock: self.clock,
            random: self.random,
        };
        grants.check_guest_paths().map_err(|error| CommandError::usage(error.to_string()))?;
        Ok(grants)
    }
}

fn parse_directory(cwd: &Path, text: &str) -> Result<DirGrant, CommandError> {
    let (host, guest) = match text.rsplit_once(':') {
        Some((host, guest)) if !host.is_empty() && !guest.is_empty() => (host, guest),
        Some(_) => return Err(CommandError::usage(format!("{text:?} is not DIR or DIR:GUEST"))),
        None => (text, text),
    };
    let path = cwd.join(PathBuf::from(host));
    if !path.is_dir() {
        return Err(CommandError::usage(format!("cannot grant {host}: it is not a directory")));
    }
    Ok(DirGrant { host: path, guest: guest.to_owned() })
}

/// The limits of a program.
#[derive(Debug, Default, clap::Args)]
pub(super) struct LimitArgs {
    /// The most WebAssembly operations, approximately.
    #[arg(long, value_name = "N", value_parser = parse_number)]
    fuel: Option<u64>,
    /// The most memory, such as 64MiB.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    memory: Option<u64>,
    /// The most output, such as 8MiB.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    output: Option<u64>,
    /// The longest duration, such as 5s.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    timeout: Option<Duration>,
}

impl LimitArgs {
    pub(super) fn to_limits(&self) -> Limits {
        let Self { fuel, memory, output, timeout: wall } = *self;
        Limits::of_step(Ceilings { fuel, memory, output, wall })
    }
}

/// Parses `2_000_000` or `2000000`.
fn parse_number(text: &str) -> Result<u64, String> {
    parse_count(text).ok_or_else(|| format!("{text:?} is not a number such as 2_000_000"))
}

pub(super) fn parse_size(text: &str) -> Result<u64, String> {
    Bytes::parse_or_bytes(text).map(|bytes| bytes.0)
}

pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    text.parse::<Span>().map(|span| span.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_units() {
        assert_eq!([parse_size("64MiB"), parse_size("1000")], [Ok(64 << 20), Ok(1000)]);
        assert_eq!(parse_duration("5s"), Ok(Duration::from_secs(5)));
        assert_eq!(parse_number("2_000"), Ok(2000));
        for wrong in [parse_size("64 bananas").err(), parse_duration("5").err(), parse_number("-1").err()] {
            assert!(wrong.is_some());
        }
    }

    #[test]
    fn two_directories_cannot_have_one_name_inside() {
        let dir = tempfile::tempdir().unwrap();
        let grant = |name: &str, guest: &str| {
            let host = dir.path().join(name);
            std::fs::create_dir_all(&host).unwrap();
            format!("{}:{guest}", host.display())
        };
        let args = |read, write| GrantArgs { read: vec![read], write: vec![write], ..GrantArgs::default() };
        assert!(args(grant("a", "/o"), grant("b", "/p")).to_grants().is_ok());
        assert!(args(grant("a", "/o"), grant("b", "/o/")).to_grants().is_err());
    }

    #[test]
    fn a_directory_may_have_another_name_inside() {
        let dir = std::env::temp_dir();
        let text = dir.display().to_string();
        assert_eq!(parse_directory(Path::new("/"), &text).unwrap().guest, text);
        let renamed = parse_directory(Path::new("/"), &format!("{text}:/data")).unwrap();
        assert_eq!((renamed.host, renamed.guest.as_str()), (dir, "/data"));
        for wrong in ["/no/such/directory", ":/data", "/tmp:"] {
            assert!(parse_directory(Path::new("/"), wrong).is_err(), "{wrong}");
        }
    }
}
