//! `lobster bundle`

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use lobster_runtime::json;
use lobster_runtime::replay::bundle::{
    self, BundleError, BundleSummary, ExportOptions, ImportOptions, KeyError, PublicKey, SigningKey,
};
use lobster_runtime::stage::Mode;
use serde_json::json;

use crate::exit::{CommandError, CommandResult, Exit};
use crate::prepare;
use crate::render::{one_line, print_to_stderr, units};
use crate::stdout::{print_line, stdout};
use crate::which;

/// Exports a run to a file, and verifies or imports such a file.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lobster bundle export 3f9a1c2b -o triage.lobster-bundle --redact fetch
  lobster bundle keygen me.pem             or: openssl genpkey -algorithm ed25519 -out me.pem
  lobster bundle export 3f9a1c2b -o triage.lobster-bundle --sign me.pem
  lobster bundle verify triage.lobster-bundle --key me.pem.pub")]
pub(crate) struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Writes a run's journal, results, components and policy into a file.
    Export {
        /// The run; at a terminal, lobster lists the latest.
        run: Option<String>,
        /// The file to write; `-` is stdout.
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
        /// Leaves out the results of this step and every copy of them, except for digests; may be repeated.
        #[arg(long, value_name = "STEP")]
        redact: Vec<String>,
        /// Signs the bundle with this ed25519 private key (PKCS#8 PEM).
        #[arg(long, value_name = "KEYFILE")]
        sign: Option<PathBuf>,
        /// Includes the directories that components could read.
        #[arg(long)]
        with_directories: bool,
        /// Overwrites a file that is not a bundle.
        #[arg(long)]
        force: bool,
        /// Prints a JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Checks every byte of a bundle and replays its run from the bundle alone.
    Verify {
        /// The bundle.
        file: PathBuf,
        /// Requires a signature by this ed25519 public key (PEM).
        #[arg(long, value_name = "PUBFILE")]
        key: Option<PathBuf>,
        /// Prints a JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Verifies a bundle and imports its run into this store.
    Import {
        /// The bundle.
        file: PathBuf,
        /// Requires a signature by this ed25519 public key (PEM).
        #[arg(long, value_name = "PUBFILE")]
        key: Option<PathBuf>,
        /// Does not replay the run; still checks every byte and the signature.
        #[arg(long)]
        no_replay: bool,
        /// Prints a JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Creates a key pair: FILE to sign with and FILE.pub to verify with.
    Keygen {
        /// The file for the private key.
        file: PathBuf,
        /// Prints a JSON object.
        #[arg(long)]
        json: bool,
    },
}

impl From<BundleError> for CommandError {
    fn from(error: BundleError) -> Self {
        match error {
            BundleError::Replay(failure) => failure.into(),
            BundleError::Store(error) => error.into(),
            other @ (BundleError::Edited(_) | BundleError::Unreadable { .. }) => Self::usage(other),
            other @ (BundleError::NotABundle
            | BundleError::Newer { .. }
            | BundleError::Damaged { .. }
            | BundleError::Useless { .. }
            | BundleError::Unsigned { .. }
            | BundleError::OtherSigner { .. }
            | BundleError::Interrupted { .. }
            | BundleError::Unverified { .. }) => Self::failed(other),
        }
    }
}

impl From<KeyError> for CommandError {
    fn from(error: KeyError) -> Self {
        Self::usage(error)
    }
}

pub(crate) fn run(args: &Args) -> CommandResult {
    let runtime = prepare::runtime(Mode::Tool)?;
    match &args.task {
        Task::Export { run, output, redact, sign, with_directories, force, json } => {
            let run = &which::run_or_ask(&runtime.store()?, run.as_deref(), "bundle export")?.to_string();
            let sign = sign.as_deref().map(SigningKey::read_pem).transpose()?.map(Into::into);
            let options =
                ExportOptions { redact: redact.clone(), sign, directories: *with_directories, force: *force };
            if output.as_os_str() == "-" {
                let summary = bundle::export_bundle_to(&runtime, run, &mut stdout(), &options)?;
                tell_secrets(&summary);
                return print_summary(&mut std::io::stderr().lock(), &summary, "wrote", *json);
            }
            let summary = bundle::export_bundle(&runtime, run, output, &options)?;
            tell_secrets(&summary);
            print_summary(&mut stdout(), &summary, "wrote", *json)
        }
        Task::Verify { file, key, json } => {
            let report = bundle::verify_bundle(&runtime, file, read_signer(key.as_deref())?.as_ref())?;
            let exit = if report.replay.is_faithful() { Exit::OK } else { Exit::FAILED };
            let mut out = stdout();
            if *json {
                writeln!(out, "{}", json::pretty(&report))?;
            } else {
                writeln!(out, "intact: {}", summary_line(&report.bundle))?;
                if let (Some(signer), None) = (&report.bundle.signed_by, key) {
                    writeln!(
                        out,
                        "  anyone can create a key; --key checks that it is the expected one ({signer})"
                    )?;
                }
                super::replay::print_report(&mut out, &report.replay)?;
            }
            Ok(exit)
        }
        Task::Import { file, key, no_replay, json } => {
            let options = ImportOptions { signer: read_signer(key.as_deref())?, unreplayed: *no_replay };
            let summary = bundle::import_bundle(&runtime, file, &options)?;
            print_summary(&mut stdout(), &summary, "took in", *json)
        }
        Task::Keygen { file, json } => {
            let (public, beside) = SigningKey::generate(file)?;
            if *json {
                let made = json!({ "privateFile": file, "publicFile": beside, "publicKey": public });
                print_line(&json::pretty(&made));
                return Ok(Exit::OK);
            }
            print_line(&format!("{} signs, {} verifies: {public}", file.display(), beside.display()));
            Ok(Exit::OK)
        }
    }
}

fn read_signer(key: Option<&Path>) -> Result<Option<PublicKey>, KeyError> {
    key.map(PublicKey::read_pem).transpose()
}

/// Reports which steps had secrets, and which traces of them the bundle contains.
fn tell_secrets(summary: &BundleSummary) {
    if summary.secrets.is_empty() {
        return;
    }
    let steps: Vec<String> = summary
        .secrets
        .iter()
        .map(|granted| one_line(&format!("{} ({})", granted.step, granted.secrets.join(", "))))
        .collect();
    print_to_stderr(&format!("warning: steps of this run had secrets: {}", steps.join("; ")));
    print_to_stderr(
        "  not in the bundle: their values, in the forms that lobster finds (replaced by `«secret:NAME»`)",
    );
    print_to_stderr(
        "  in the bundle: the results of these steps and files that they changed, with a value in any other form; \
         --redact STEP leaves results out",
    );
}

fn print_summary(out: &mut impl Write, summary: &BundleSummary, verb: &str, as_json: bool) -> CommandResult {
    if as_json {
        writeln!(out, "{}", json::pretty(summary))?;
    } else {
        writeln!(out, "{verb} {}", summary_line(summary))?;
        if !summary.left_out.is_empty() {
            writeln!(out, "  also left out, because it contains a copy: {}", summary.left_out.join(", "))?;
        }
        for directory in summary.directories.iter().filter(|directory| directory.listing.is_none()) {
            let why = directory.left_out.as_deref().unwrap_or_default();
            writeln!(
                out,
                "  not included: the directory {} that {} reads ({why})",
                directory.to, directory.step
            )?;
        }
    }
    Ok(Exit::OK)
}

fn summary_line(summary: &BundleSummary) -> String {
    let redacted = match summary.redacted.as_slice() {
        [] => String::new(),
        steps => format!(", without the results of {}", steps.join(", ")),
    };
    let signed = if summary.signed_by.is_some() { ", signed" } else { "" };
    format!(
        "run {} of {}: {}, {}, {}{signed}{redacted}",
        summary.run.short_id(),
        one_line(&summary.name),
        units::count_noun(summary.records, "record"),
        units::count_noun(summary.blobs, "blob"),
        units::format_bytes(summary.bytes),
    )
}
