//! `lobster mcp lock`

use std::io::Write;

use lobster_runtime::mcp::Lock;
use lobster_runtime::stage::{McpServer, Mode};

use crate::exit::{CommandError, CommandResult, Exit};
use crate::prepare;
use crate::render::{one_line, units};
use crate::stdout::stdout;

/// Pins the tools of the servers in lobster.mcp.toml.
///
/// Prints the new and different tools and writes lobster.mcp.lock beside the file. A tool that changes later
/// is not called.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lobster mcp lock
  lobster mcp lock files
  lobster mcp lock --check          changes nothing; exit code 1 if something differs")]
pub(super) struct Args {
    /// Only these servers.
    servers: Vec<String>,
    /// Prints the differences, without writing.
    #[arg(long)]
    check: bool,
}

pub(super) fn run(args: &Args) -> CommandResult {
    let runtime = prepare::runtime(Mode::Human)?;
    let (path, config) = runtime.mcp_servers().map_err(CommandError::failed)?;
    for name in &args.servers {
        if !config.servers.contains_key(name) {
            return Err(CommandError::usage(format!("there is no server {name:?} in lobster.mcp.toml")));
        }
    }
    let known = Lock::read(&path).map_err(CommandError::failed)?;
    let mut lock = known.unwrap_or_else(|| Lock { version: 1, ..Lock::default() });
    lock.servers.retain(|name, _| config.servers.contains_key(name));
    let mut out = stdout();
    let mut differs = false;
    for name in config.servers.keys().filter(|name| args.servers.is_empty() || args.servers.contains(name)) {
        let tools = runtime
            .mcp_tools(&McpServer::Named(name.clone()))
            .map_err(|error| CommandError::failed(error.message))?;
        let pinned = lock.servers.entry(name.clone()).or_default();
        for (tool, now) in &tools {
            let change = match pinned.get(tool) {
                None => Some(format!("new: {}", now.description.clone().unwrap_or_default())),
                Some(was) => was.describe_difference(now).map(|difference| format!("changed: {difference}")),
            };
            if let Some(change) = change {
                differs = true;
                writeln!(out, "{}", one_line(&format!("{name}  {tool}  {change}")))?;
            }
        }
        for tool in pinned.keys().filter(|tool| !tools.contains_key(*tool)) {
            differs = true;
            writeln!(out, "{}", one_line(&format!("{name}  {tool}  gone")))?;
        }
        *pinned = tools;
    }
    if args.check {
        return Ok(if differs { Exit::FAILED } else { Exit::OK });
    }
    lock.write(&path).map_err(CommandError::failed)?;
    let servers = units::count_noun(lock.servers.len() as u64, "server");
    writeln!(out, "{} pins {servers}", path.display())?;
    Ok(Exit::OK)
}
