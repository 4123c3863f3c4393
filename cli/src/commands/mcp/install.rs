//! `lobster mcp install`

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::{env, fs, iter};

use lobster_runtime::setting::read_path;
use serde_json::{Map, Value, json};

use super::serve;
use crate::exit::{CommandError, CommandResult, Exit};
use crate::stdout::stdout;
use crate::which;
use crate::whole_files::replace_file;

/// Adds this server to the configuration file of an MCP client.
///
/// Options after `--` are passed to `lobster mcp` when the client starts it; paths are made absolute. Nothing
/// else in the file changes.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lobster mcp install --client claude -- --workflows ~/flows
  lobster mcp install --client cursor --project -- --workflows flows --profile readonly
  lobster mcp install --client codex --print
  lobster mcp install --client openclaw --remove")]
pub(super) struct Args {
    /// The client. At a terminal lobster asks for it.
    #[arg(long, value_enum)]
    client: Option<Client>,
    /// Writes to the configuration of the project in this directory, which its other users share.
    #[arg(long)]
    project: bool,
    /// The name of the server in the client.
    #[arg(long, default_value = "lobster", value_parser = server_name)]
    name: String,
    /// Replaces a different entry of the same name.
    #[arg(long)]
    force: bool,
    /// Removes the entry.
    #[arg(long, conflicts_with_all = ["force", "words"])]
    remove: bool,
    /// Prints the name of the file and the entry, without writing.
    #[arg(long, conflicts_with = "remove")]
    print: bool,
    /// Options of `lobster mcp`.
    #[arg(last = true, value_name = "OPTIONS")]
    words: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Client {
    /// Claude Code: `~/.claude.json`, or `.mcp.json` of a project.
    Claude,
    /// Codex: `~/.codex/config.toml`, or `.codex/config.toml` of a project.
    Codex,
    /// Cursor: `~/.cursor/mcp.json`, or `.cursor/mcp.json` of a project.
    Cursor,
    /// OpenClaw: `~/.openclaw/openclaw.json`.
    Openclaw,
}

impl Client {
    fn config_file(self, project: bool) -> Result<PathBuf, CommandError> {
        if project {
            return match self {
                Self::Claude => Ok(PathBuf::from(".mcp.json")),
                Self::Codex => Ok(PathBuf::from(".codex/config.toml")),
                Self::Cursor => Ok(PathBuf::from(".cursor/mcp.json")),
                Self::Openclaw => {
                    Err(CommandError::usage("OpenClaw has no file for a project; leave --project out"))
                }
            };
        }
        let named =
            |variable: &str| env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
        let home = || {
            named("HOME").ok_or_else(|| {
                CommandError::usage("HOME is not set, so the configuration file cannot be found")
            })
        };
        Ok(match self {
            Self::Claude => match named("CLAUDE_CONFIG_DIR") {
                Some(dir) => dir.join(".claude.json"),
                None => home()?.join(".claude.json"),
            },
            Self::Codex => match named("CODEX_HOME") {
                Some(dir) => dir.join("config.toml"),
                None => home()?.join(".codex/config.toml"),
            },
            Self::Cursor => home()?.join(".cursor/mcp.json"),
            Self::Openclaw => match named("OPENCLAW_CONFIG_PATH") {
                Some(file) => file,
                None => home()?.join(".openclaw/openclaw.json"),
            },
        })
    }

    /// The path of the servers' table in the file.
    fn servers_path(self) -> &'static [&'static str] {
        match self {
            Self::Claude | Self::Cursor => &["mcpServers"],
            Self::Codex => &["mcp_servers"],
            Self::Openclaw => &["mcp", "servers"],
        }
    }

    fn shows_it_by(self) -> &'static str {
        match self {
            Self::Claude => "`claude mcp list`",
            Self::Codex => "`codex mcp list`",
            Self::Cursor => "The MCP page of Cursor's settings",
            Self::Openclaw => "`openclaw mcp list`",
        }
    }
}

fn server_name(name: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    match !name.is_empty() && name.len() <= 64 && name.chars().all(fits) {
        true => Ok(name.to_owned()),
        false => Err("a name has up to 64 letters, digits, - and _".to_owned()),
    }
}

pub(super) fn run(args: &Args) -> CommandResult {
    let client = match args.client {
        Some(client) => client,
        None if which::can_ask() => which::pick_value("Which client?")?,
        None => return Err(CommandError::usage("name the client: --client claude|codex|cursor|openclaw")),
    };
    let file = client.config_file(args.project)?;
    let mut entry = server_entry(&args.words)?;
    if client == Client::Codex {
        // Without it `codex exec` calls no tool; lobster's own policy and questions still decide.
        entry["default_tools_approval_mode"] = "approve".into();
    }
    let mut out = stdout();
    if args.print {
        writeln!(out, "# {}\n{}", file.display(), text_of(client, &args.name, &entry)?)?;
        return Ok(Exit::OK);
    }
    let config = Config::read(client, &file)?;
    let known = config.find_entry(client, &args.name);
    let new = match (args.remove, known) {
        (true, None) => {
            writeln!(out, "{} has no server {:?}; there is nothing to remove", file.display(), args.name)?;
            return Ok(Exit::OK);
        }
        (true, Some(_)) => config.without_entry(client, &args.name)?,
        (false, Some(known)) if known == entry => {
            writeln!(out, "{} has this entry already", file.display())?;
            return Ok(Exit::OK);
        }
        (false, Some(known)) if !args.force => {
            return Err(CommandError::failed(format!(
                "{} has another server {:?}: {known}",
                file.display(),
                args.name
            ))
            .with_hint("--force replaces it; --name gives this one another name"));
        }
        (false, Some(_)) => {
            config.without_entry(client, &args.name)?.with_entry(client, &args.name, &entry)?
        }
        (false, None) => config.with_entry(client, &args.name, &entry)?,
    };
    new.write_file(&file)?;
    if args.remove {
        writeln!(out, "{} no longer has the server {:?}", file.display(), args.name)?;
        return Ok(Exit::OK);
    }
    writeln!(out, "{} now has the server {:?}:\n\n{}", file.display(), args.name, indent_entry(&entry))?;
    writeln!(out, "\nRestart the client. {} lists its servers", client.shows_it_by())?;
    Ok(Exit::OK)
}

fn indent_entry(entry: &Value) -> String {
    let text = serde_json::to_string_pretty(entry).unwrap_or_default();
    text.lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

/// The command with which a client starts this server.
fn server_entry(words: &[String]) -> Result<Value, CommandError> {
    let mut args = vec!["mcp".to_owned()];
    args.extend(serve::absolute_words(words)?);
    let mut entry = json!({ "command": own_program()?, "args": args });
    let mut variables = Map::new();
    for name in ["LOBSTER_STATE_DIR", "LOBSTER_POLICY"] {
        // The client has a different environment; these two variables select the record and the rules.
        if let Some(value) = env::var_os(name).and_then(read_path) {
            let path = std::path::absolute(&value)?;
            let text = path.to_str().ok_or_else(|| {
                CommandError::failed(format!("{name} must be text (UTF-8) for a client, not {path:?}"))
            })?;
            variables.insert(name.to_owned(), text.into());
        }
    }
    if !variables.is_empty() {
        entry["env"] = variables.into();
    }
    Ok(entry)
}

/// The name that finds this program in the user's `PATH`, which survives an update; else its path.
fn own_program() -> Result<String, CommandError> {
    let own = env::current_exe()?.canonicalize()?;
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path)
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join("lobster"))
        .find(|file| file.canonicalize().is_ok_and(|real| real == own));
    let program = found.unwrap_or(own);
    program.into_os_string().into_string().map_err(|path| {
        CommandError::failed(format!("the path of this program is not UTF-8: {}", path.display()))
    })
}

/// The entry as written in the client's file.
fn text_of(client: Client, name: &str, entry: &Value) -> Result<String, CommandError> {
    let servers = client.servers_path().iter().rev();
    let whole = servers.fold(json!({ name: entry }), |inner, key| json!({ *key: inner }));
    match client {
        Client::Codex => toml_text(&whole),
        _ => Ok(serde_json::to_string_pretty(&whole).map_err(io::Error::from)?),
    }
}

fn toml_text(value: &Value) -> Result<String, CommandError> {
    let text = toml::to_string(value).map_err(|error| CommandError::failed(error.to_string()))?;
    // The table of all servers has no line in the entry: a file may contain it only once.
    Ok(text.trim_start_matches("[mcp_servers]\n").to_owned())
}

/// A client's file, parsed far enough to change one entry.
enum Config {
    Json(Map<String, Value>),
    /// TOML is changed as text, so that comments are kept.
    Toml {
        text: String,
        tree: Value,
    },
}

impl Config {
    fn read(client: Client, file: &Path) -> Result<Self, CommandError> {
        let text = match fs::read_to_string(file) {
            Ok(text) => text.trim_start_matches('\u{feff}').to_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(CommandError::failed_at(file)(error)),
        };
        let not_read = |why: String| {
            CommandError::failed(format!("{} is not changed: {why}", file.display()))
                .with_hint("--print shows the entry, to add it by hand")
        };
        if client == Client::Codex {
            let tree = toml::from_str(&text).map_err(|error| not_read(error.to_string()))?;
            return Ok(Self::Toml { text, tree });
        }
        if text.trim().is_empty() {
            return Ok(Self::Json(Map::new()));
        }
        let map: Map<String, Value> = lobster_runtime::json::parse_as(&text).map_err(|error| {
            not_read(format!("it is not a plain JSON object ({error}); comments would be lost"))
        })?;
        let mut inside = &map;
        for key in client.servers_path() {
            inside = match inside.get(*key) {
                None => break,
                Some(Value::Object(next)) => next,
                Some(_) => return Err(not_read(format!("its {key:?} is not an object"))),
            };
        }
        Ok(Self::Json(map))
    }

    fn find_entry(&self, client: Client, name: &str) -> Option<Value> {
        let mut keys = client.servers_path().iter().copied().chain(iter::once(name));
        let first = keys.next()?;
        let value = match self {
            Self::Json(map) => map.get(first)?,
            Self::Toml { tree, .. } => tree.get(first)?,
        };
        keys.try_fold(value, |value, key| value.get(key)).cloned()
    }

    fn with_entry(self, client: Client, name: &str, entry: &Value) -> Result<Self, CommandError> {
        match self {
            Self::Json(mut map) => {
                let mut inside = &mut map;
                for key in client.servers_path() {
                    let next = inside.entry(*key).or_insert_with(|| json!({}));
                    inside = next
                        .as_object_mut()
                        .ok_or_else(|| CommandError::failed(format!("{key:?} is not an object")))?;
                }
                inside.insert(name.to_owned(), entry.clone());
                Ok(Self::Json(map))
            }
            Self::Toml { mut text, .. } => {
                if !text.is_empty() {
                    text.truncate(text.trim_end().len());
                    text.push_str("\n\n");
                }
                text.push_str(&text_of(client, name, entry)?);
                Self::parse_toml(text)
            }
        }
    }

    fn without_entry(self, client: Client, name: &str) -> Result<Self, CommandError> {
        match self {
            Self::Json(mut map) => {
                let servers = client
                    .servers_path()
                    .iter()
                    .try_fold(&mut map, |inside, key| inside.get_mut(*key)?.as_object_mut());
                servers.map(|servers| servers.shift_remove(name));
                Ok(Self::Json(map))
            }
            Self::Toml { text, .. } => {
                let new = Self::parse_toml(without_table(&text, client.servers_path(), name))?;
                match new.find_entry(client, name) {
                    None => Ok(new),
                    Some(_) => {
                        Err(CommandError::failed(format!("the entry {name:?} is not written as a table"))
                            .with_hint("remove it by hand"))
                    }
                }
            }
        }
    }

    fn parse_toml(text: String) -> Result<Self, CommandError> {
        let tree = toml::from_str(&text).map_err(|error| CommandError::failed(error.to_string()))?;
        Ok(Self::Toml { text, tree })
    }

    fn write_file(self, file: &Path) -> Result<(), CommandError> {
        let text = match self {
            Self::Json(map) => serde_json::to_string_pretty(&map).map_err(io::Error::from)? + "\n",
            Self::Toml { text, .. } => text,
        };
        replace_file(file, &text).map_err(CommandError::failed_at(file))
    }
}

/// The text without the table of that name and the tables inside it.
fn without_table(text: &str, servers: &[&str], name: &str) -> String {
    let own = [servers, &[name]].concat().join(".");
    let mut kept = String::new();
    let mut inside = false;
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim();
        if let Some(header) = trimmed.strip_prefix('[') {
            let header: String =
                header.chars().take_while(|c| *c != ']').filter(|c| !" \"'[".contains(*c)).collect();
            inside = header == own || header.starts_with(&format!("{own}."));
        }
        if !inside {
            kept.push_str(line);
        }
    }
    kept.truncate(kept.trim_end().len());
    if !kept.is_empty() {
        kept.push('\n');
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODEX: &str = "# mine\nmodel = \"x\"\n\n[mcp_servers.other]\ncommand = \"o\" # stays\n\n[mcp_servers.lobster]\ncommand = \"old\"\n\n[mcp_servers.lobster.env]\nA = \"b\"\n\n[tui]\ntheme = \"dark\"\n";

    #[test]
    fn a_toml_file_keeps_what_is_not_ours() {
        let config =
            Config::parse_toml(CODEX.to_owned()).unwrap().without_entry(Client::Codex, "lobster").unwrap();
        let entry = json!({"command": "/bin/l", "args": ["mcp", "--workflows", "/a \"b\""]});
        let Config::Toml { text, tree } = config.with_entry(Client::Codex, "lobster", &entry).unwrap() else {
            panic!("not TOML");
        };
        assert_eq!(tree["mcp_servers"]["lobster"], entry);
        let begun = "# mine\nmodel = \"x\"\n\n[mcp_servers.other]\ncommand = \"o\" # stays\n\n[tui]\ntheme = \"dark\"\n\n[mcp_servers.lobster]\n";
        assert!(text.starts_with(begun), "{text}");
    }

    #[test]
    fn an_inline_entry_is_left_to_its_owner() {
        let config =
            Config::parse_toml("mcp_servers = { lobster = { command = \"x\" } }\n".to_owned()).unwrap();
        assert!(config.without_entry(Client::Codex, "lobster").is_err());
    }

    #[test]
    fn json_keeps_its_order() {
        let map =
            serde_json::from_str(r#"{"z":1,"mcp":{"servers":{"lobster":{"command":"old"},"a":{}}},"b":2}"#)
                .unwrap();
        let config = Config::Json(map).without_entry(Client::Openclaw, "lobster").unwrap();
        let Config::Json(map) =
            config.with_entry(Client::Openclaw, "lobster", &json!({"command": "new"})).unwrap()
        else {
            panic!("not JSON");
        };
        let text = serde_json::to_string(&map).unwrap();
        assert_eq!(text, r#"{"z":1,"mcp":{"servers":{"a":{},"lobster":{"command":"new"}}},"b":2}"#);
    }
}
