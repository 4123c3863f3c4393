//! The catalogue of programs that only read: versioned data, and the checks
//! that make each entry true.

mod awk;
mod find;
mod git;
mod sed;

use std::collections::HashMap;
use std::sync::LazyLock;

use super::analysis::{Analysis, Arg};

const TABLE: &str = include_str!("readonly-1.txt");

/// What a program's operands are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operands {
    Paths,
    Meta,
    Text,
    Pattern,
    None,
    /// One input; a second operand would be written.
    FirstOnly,
    Ip,
    Sysctl,
    Date,
    Top,
    OpenSsl,
}

/// What an option means for reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    TextValue,
    PathValue,
    Refused,
}

#[derive(Debug)]
struct Entry {
    operands: Operands,
    short: Vec<(char, Meaning)>,
    long: Vec<(&'static str, Meaning)>,
    required: Vec<&'static str>,
    /// Some option runs another program.
    runs: bool,
    verbs: Vec<&'static str>,
}

impl Entry {
    fn parse(operands: &str, options: &'static str, verbs: &'static str) -> Option<Self> {
        let operands = match operands {
            "paths" => Operands::Paths,
            "meta" => Operands::Meta,
            "text" => Operands::Text,
            "pattern" => Operands::Pattern,
            "none" => Operands::None,
            "first-only" => Operands::FirstOnly,
            "ip" => Operands::Ip,
            "sysctl" => Operands::Sysctl,
            "date" => Operands::Date,
            "top" => Operands::Top,
            "openssl" => Operands::OpenSsl,
            _ => return None,
        };
        let mut entry = Self {
            operands,
            short: Vec::new(),
            long: Vec::new(),
            required: Vec::new(),
            runs: false,
            verbs: verbs.split_whitespace().collect(),
        };
        for token in options.split_whitespace() {
            if let Some(required) = token.strip_prefix('?') {
                entry.required.push(required);
                continue;
            }
            let (meaning, flag) = if let Some(flag) = token.strip_prefix("!!") {
                entry.runs = true;
                (Meaning::Refused, flag)
            } else if let Some(flag) = token.strip_prefix('!') {
                (Meaning::Refused, flag)
            } else if let Some(flag) = token.strip_suffix(['@']) {
                (Meaning::PathValue, flag)
            } else if let Some(flag) = token.strip_suffix([':', '=']) {
                (Meaning::TextValue, flag)
            } else {
                continue;
            };
            match flag.strip_prefix("--") {
                Some(long) => entry.long.push((long, meaning)),
                None => {
                    entry.short.extend(flag.strip_prefix('-')?.chars().next().map(|c| (c, meaning)));
                }
            }
        }
        // A refused option wins over its value when both are listed.
        entry.short.sort_by_key(|(c, m)| (*c, *m != Meaning::Refused));
        Some(entry)
    }

    /// Whether a word that turns out to be an option could do harm. What would
    /// only write does none: a catalogue command gets no write root.
    fn is_risky(&self) -> bool {
        self.runs
            || !self.required.is_empty()
            || matches!(self.operands, Operands::None | Operands::FirstOnly)
    }
}

static ENTRIES: LazyLock<HashMap<&'static str, Entry>> = LazyLock::new(|| {
    let mut entries = HashMap::new();
    for line in TABLE.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
        let mut fields = line.split('|').map(str::trim);
        let mut field = || fields.next().unwrap_or("");
        let (names, operands, options, verbs) = (field(), field(), field(), field());
        for name in names.split_whitespace() {
            if let Some(entry) = Entry::parse(operands, options, verbs) {
                entries.insert(name, entry);
            }
        }
    }
    entries
});

/// Programs that answer `--version` without doing anything else.
const VERSIONED: &[&str] = &[
    "python",
    "python2",
    "python3",
    "pypy",
    "pypy3",
    "perl",
    "ruby",
    "node",
    "nodejs",
    "deno",
    "bun",
    "php",
    "lua",
    "luajit",
    "java",
    "javac",
    "go",
    "rustc",
    "cargo",
    "rustup",
    "rustfmt",
    "gcc",
    "g++",
    "cc",
    "clang",
    "clang++",
    "make",
    "gmake",
    "cmake",
    "ninja",
    "meson",
    "npm",
    "yarn",
    "pnpm",
    "npx",
    "corepack",
    "tsc",
    "pip",
    "pip3",
    "pipx",
    "poetry",
    "uv",
    "git",
    "docker",
    "podman",
    "kubectl",
    "helm",
    "terraform",
    "tofu",
    "ansible",
    "curl",
    "wget",
    "ssh",
    "rsync",
    "tar",
    "zip",
    "unzip",
    "gzip",
    "xz",
    "zstd",
    "openssl",
    "gpg",
    "sqlite3",
    "psql",
    "mysql",
    "redis-cli",
    "nginx",
    "systemctl",
    "journalctl",
    "tmux",
    "vim",
    "nvim",
    "emacs",
    "less",
    "jq",
    "yq",
    "rg",
    "fd",
    "bat",
    "fzf",
    "awk",
    "gawk",
    "mawk",
    "sed",
    "grep",
    "find",
    "xargs",
    "parallel",
    "strace",
    "gdb",
    "lldb",
    "valgrind",
    "ffmpeg",
    "convert",
    "magick",
    "pandoc",
    "dot",
    "ghc",
    "stack",
    "cabal",
    "swift",
    "kotlinc",
    "scala",
    "sbt",
    "mvn",
    "gradle",
    "dotnet",
    "mono",
    "R",
    "Rscript",
    "julia",
    "ocaml",
    "opam",
    "elixir",
    "mix",
    "erl",
    "zig",
    "nim",
    "crystal",
    "dart",
    "flutter",
    "bundle",
    "gem",
    "rake",
    "composer",
    "aws",
    "gcloud",
    "az",
    "gh",
    "lobster",
    "buildah",
    "skopeo",
    "protoc",
    "bazel",
    "pytest",
    "ruff",
    "mypy",
    "black",
    "eslint",
    "prettier",
    "jest",
    "blkid",
    "mount",
    "lsblk",
    "bash",
    "zsh",
    "dash",
];

/// Whether the command only prints a version.
pub(crate) fn is_version_query(name: &str, args: &[Arg]) -> bool {
    const FLAGS: &[&str] = &["--version", "-V", "-VV", "-version", "-vV"];
    if !VERSIONED.contains(&name)
        && !VERSIONED.contains(&name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.'))
    {
        return false;
    }
    let known: Option<Vec<&str>> = args.iter().map(Arg::known).collect();
    let Some(words) = known else { return false };
    // `-v` prints the version of these; others take it for "verbose".
    let short = matches!(
        name,
        "node"
            | "npm"
            | "yarn"
            | "pnpm"
            | "bun"
            | "php"
            | "ruby"
            | "perl"
            | "nginx"
            | "lua"
            | "docker"
            | "tsc"
            | "rustup"
    );
    let is_version = |w: &&str| FLAGS.contains(w) || (short && *w == "-v");
    words.iter().any(is_version) && words.iter().all(|w| is_version(w) || *w == "--verbose")
        || matches!(words.as_slice(), ["version"] if matches!(name, "go" | "docker" | "podman" | "helm" | "terraform" | "tofu" | "openssl" | "gh" | "lobster" | "npm" | "zig" | "bazel"))
}

/// Whether the catalogue knows the program at all.
pub(crate) fn names_program(name: &str) -> bool {
    ENTRIES.contains_key(name)
        || matches!(
            name,
            "git" | "find" | "sed" | "gsed" | "tar" | "bsdtar" | "awk" | "gawk" | "mawk" | "nawk"
        )
}

/// Whether no argument of the program is ever a path it opens.
pub(crate) fn is_text_only(name: &str) -> bool {
    matches!(
        name,
        "echo"
            | "printf"
            | "basename"
            | "dirname"
            | "seq"
            | "expr"
            | "yes"
            | "sleep"
            | "true"
            | "false"
            | "which"
            | "type"
            | "whereis"
            | "tr"
            | "date-text"
            | "test"
            | "["
            | "whatis"
            | "apropos"
            | "dpkg-query"
            | "pgrep"
            | "pkill"
            | "kill"
            | "ps"
            | "logger"
    )
}

/// Whether the argument at `at` is text of a known command: a pattern, a
/// script, a message.
pub(crate) fn is_text_at(name: &str, args: &[Arg], at: usize) -> bool {
    match name {
        "git" => git::is_text_at(args, at),
        "find" | "gfind" => find::is_text_at(args, at),
        "awk" | "gawk" | "mawk" | "nawk" | "sed" | "gsed" => {
            script_operand(args) == Some(at)
                || args
                    .get(at.wrapping_sub(1))
                    .is_some_and(|a| matches!(a.text.as_str(), "-e" | "-F" | "-v" | "--expression"))
        }
        _ => {
            let Some(entry) = ENTRIES.get(name) else {
                return false;
            };
            let is_value = at > 0
                && args[at - 1].text.strip_prefix('-').is_some_and(|flags| match flags.strip_prefix('-') {
                    Some(long) => {
                        entry.long.iter().any(|(name, m)| *m == Meaning::TextValue && *name == long)
                    }
                    None => flags.chars().last().is_some_and(|last| {
                        entry.short.iter().any(|(c, m)| *m == Meaning::TextValue && *c == last)
                    }),
                });
            let own_value =
                args[at].text.strip_prefix('-').is_some_and(|flags| match flags.strip_prefix('-') {
                    Some(long) => long.split_once('=').is_some_and(|(given, _)| {
                        entry.long.iter().any(|(name, m)| *m == Meaning::TextValue && *name == given)
                    }),
                    None => flags.chars().next().is_some_and(|first| {
                        entry.short.iter().any(|(c, m)| *m == Meaning::TextValue && *c == first)
                    }),
                });
            is_value
                || own_value
                || (entry.operands == Operands::Pattern && pattern_operand(entry, args) == Some(at))
        }
    }
}

/// The position of the pattern of a search program, when an operand holds it.
fn pattern_operand(entry: &Entry, args: &[Arg]) -> Option<usize> {
    let mut given = false;
    let mut operand = None;
    let mut skip = false;
    let mut ended = false;
    for (at, arg) in args.iter().enumerate() {
        if std::mem::take(&mut skip) {
            continue;
        }
        let text = arg.text.as_str();
        if !ended && text == "--" {
            ended = true;
        } else if !ended && text.starts_with("--") && !arg.unknown_start {
            let long = &text[2..];
            let (name, value) = long.split_once('=').map_or((long, None), |(n, v)| (n, Some(v)));
            given |= name.len() > 2
                && ("regexp".starts_with(name)
                    || "file".starts_with(name)
                    || "from-file".starts_with(name)
                    || "files" == name && entry.operands == Operands::Pattern);
            skip = value.is_none() && entry.long.iter().any(|(n, m)| *n == name && *m != Meaning::Refused);
        } else if !ended && text.starts_with('-') && text.len() > 1 && !arg.unknown_start {
            for (i, c) in text.char_indices().skip(1) {
                given |= matches!(c, 'e' | 'f')
                    && entry.short.iter().any(|(s, m)| *s == c && *m != Meaning::Refused);
                if entry.short.iter().any(|(s, m)| *s == c && *m != Meaning::Refused) {
                    skip = i + c.len_utf8() == text.len();
                    break;
                }
            }
        } else if operand.is_none() {
            operand = Some(at);
        }
    }
    if given { None } else { operand }
}

/// The position of the script operand of sed or awk.
fn script_operand(args: &[Arg]) -> Option<usize> {
    let mut skip = false;
    let mut operand = None;
    for (at, arg) in args.iter().enumerate() {
        if std::mem::take(&mut skip) {
            continue;
        }
        let text = arg.text.as_str();
        if text == "--" {
            continue;
        }
        if let Some(flags) = text.strip_prefix('-').filter(|f| !f.is_empty()) {
            if flags.starts_with('e')
                || flags.starts_with('f')
                || flags.starts_with("-expr")
                || flags.starts_with("-file")
            {
                return None;
            }
            if flags.ends_with('e') || flags.ends_with('f') {
                return None;
            }
            skip = matches!(flags, "F" | "v" | "l");
            continue;
        }
        if operand.is_none() {
            operand = Some(at);
        }
    }
    operand
}

impl Analysis<'_> {
    /// Whether the catalogue covers the command: `Ok(false)` for a program it
    /// does not know, an error with the reason for a use that does more than
    /// read.
    pub(crate) fn catalogued(&mut self, name: &str, args: &[Arg]) -> Result<bool, String> {
        match name {
            "git" => return self.git(args),
            "sed" | "gsed" => return self.sed(args),
            "awk" | "gawk" | "mawk" | "nawk" | "original-awk" => return self.awk_reads(name, args),
            "tar" | "bsdtar" => return self.tar_reads(args),
            _ => {}
        }
        if name == "tee" && args.iter().all(|a| super::paths::is_harmless_device(&a.text)) {
            return Ok(true);
        }
        let entries: &'static HashMap<&'static str, Entry> = &ENTRIES;
        let Some(entry) = entries.get(name) else {
            return Ok(false);
        };
        if matches!(name, "jq" | "gojq" | "jaq" | "yq") {
            check_jq(entry, args)?;
        }
        match entry.operands {
            Operands::Ip => return self.ip(args),
            Operands::Sysctl => return sysctl(args),
            Operands::Date => return self.date(args),
            Operands::Top => return top(args),
            Operands::OpenSsl => return self.openssl(args),
            Operands::Paths
            | Operands::Meta
            | Operands::Text
            | Operands::Pattern
            | Operands::None
            | Operands::FirstOnly => {}
        }
        self.check_entry(entry, args)?;
        Ok(true)
    }

    fn check_entry(&mut self, entry: &Entry, args: &[Arg]) -> Result<(), String> {
        let gives = |arg: &Arg, required: &str| {
            let text = arg.text.as_str();
            let in_cluster = required.len() == 2
                && text.starts_with('-')
                && !text.starts_with("--")
                && text.contains(&required[1..]);
            in_cluster || text == required || text.split('=').next() == Some(required)
        };
        let satisfied = entry.required.is_empty()
            || args.iter().any(|arg| entry.required.iter().any(|required| gives(arg, required)))
            || (args.is_empty() && entry.required.contains(&"nothing"));
        if !satisfied {
            return Err(format!("only reads with one of {}", entry.required.join(", ")));
        }
        let pattern = if entry.operands == Operands::Pattern { pattern_operand(entry, args) } else { None };
        let mut operands = 0usize;
        let mut ended = false;
        let mut at = 0;
        while let Some(arg) = args.get(at) {
            let index = at;
            at += 1;
            let text = arg.text.as_str();
            if !ended && text == "--" {
                ended = true;
                continue;
            }
            if !ended && arg.may_be_flag() && entry.is_risky() {
                return Err("a word that is not known yet may turn into an option".to_owned());
            }
            if !ended && text.starts_with("--") && !arg.unknown_start {
                let long = &text[2..];
                let (name, value) = long.split_once('=').map_or((long, None), |(n, v)| (n, Some(v)));
                let exact = entry.long.iter().find(|(n, _)| *n == name);
                let abbreviated =
                    entry.long.iter().find(|(n, m)| n.starts_with(name) && *m == Meaning::Refused);
                match exact.or(abbreviated).or_else(|| entry.long.iter().find(|(n, _)| n.starts_with(name))) {
                    Some((option, Meaning::Refused)) => {
                        return Err(format!("--{option} does more than read"));
                    }
                    Some((_, meaning)) => {
                        let value = match value {
                            Some(value) => Some(Arg { text: value.to_owned(), ..arg.clone() }),
                            None => {
                                at += 1;
                                args.get(at - 1).cloned()
                            }
                        };
                        if *meaning == Meaning::PathValue
                            && let Some(value) = value
                        {
                            self.read_path(&value);
                        }
                    }
                    None => {}
                }
                continue;
            }
            if !ended && text.starts_with('-') && text.len() > 1 && !arg.unknown_start {
                for (i, c) in text.char_indices().skip(1) {
                    let Some((_, meaning)) = entry.short.iter().find(|(s, _)| *s == c) else {
                        continue;
                    };
                    if *meaning == Meaning::Refused {
                        return Err(format!("-{c} does more than read"));
                    }
                    let attached = &text[i + c.len_utf8()..];
                    let value = if attached.is_empty() {
                        at += 1;
                        args.get(at - 1).cloned()
                    } else {
                        Some(Arg { text: attached.to_owned(), ..arg.clone() })
                    };
                    if *meaning == Meaning::PathValue
                        && let Some(value) = value
                    {
                        self.read_path(&value);
                    }
                    break;
                }
                continue;
            }
            operands += 1;
            if operands == 1 && !entry.verbs.is_empty() && !entry.verbs.contains(&text) {
                return Err(format!("{} is not one of the verbs that only read", arg.shown()));
            }
            match entry.operands {
                Operands::Paths => self.read_path(arg),
                Operands::FirstOnly if operands == 1 => self.read_path(arg),
                Operands::FirstOnly => return Err("the second operand is written".to_owned()),
                Operands::Pattern if pattern != Some(index) => self.read_path(arg),
                Operands::None => return Err(format!("the operand {} changes something", arg.shown())),
                Operands::Meta
                | Operands::Text
                | Operands::Pattern
                | Operands::Ip
                | Operands::Sysctl
                | Operands::Date
                | Operands::Top
                | Operands::OpenSsl => {}
            }
        }
        Ok(())
    }

    fn date(&mut self, args: &[Arg]) -> Result<bool, String> {
        let mut rest = args.iter();
        while let Some(arg) = rest.next() {
            let text = arg.text.as_str();
            if arg.unknown_start || arg.glob_start {
                return Err("a word that is not known yet may set the clock".to_owned());
            }
            if let Some(long) = text.strip_prefix("--") {
                let (name, value) = long.split_once('=').map_or((long, None), |(n, v)| (n, Some(v)));
                if "set".starts_with(name) {
                    return Err("--set sets the clock".to_owned());
                }
                let value = match value {
                    Some(value) => Some(Arg::literal(value)),
                    None if ["date", "file", "reference"].iter().any(|n| n.starts_with(name)) => {
                        rest.next().cloned()
                    }
                    None => None,
                };
                if ("file".starts_with(name) || "reference".starts_with(name))
                    && let Some(value) = value
                {
                    self.read_path(&value);
                }
            } else if let Some(flags) = text.strip_prefix('-') {
                for (i, c) in flags.char_indices() {
                    if c == 's' {
                        return Err("-s sets the clock".to_owned());
                    }
                    if c == 'I' {
                        break;
                    }
                    if matches!(c, 'd' | 'f' | 'r') {
                        let attached = &flags[i + 1..];
                        let value = if attached.is_empty() {
                            rest.next().cloned()
                        } else {
                            Some(Arg::literal(attached))
                        };
                        if c != 'd'
                            && let Some(value) = value
                        {
                            self.read_path(&value);
                        }
                        break;
                    }
                }
            } else if !text.starts_with('+') {
                return Err("an operand without + sets the clock".to_owned());
            }
        }
        Ok(true)
    }

    fn ip(&mut self, args: &[Arg]) -> Result<bool, String> {
        const OBJECTS: &[&str] = &[
            "address",
            "addr",
            "link",
            "route",
            "neighbour",
            "neighbor",
            "neigh",
            "rule",
            "maddress",
            "maddr",
            "mroute",
            "tunnel",
            "netns",
            "ntable",
            "netconf",
            "token",
            "vrf",
            "stats",
            "nexthop",
            "a",
            "l",
            "r",
            "n",
            "ru",
        ];
        let mut rest = args.iter();
        let mut object = None;
        while let Some(arg) = rest.next() {
            let text = arg.text.as_str();
            if arg.unknown {
                return Err("a word is not known yet".to_owned());
            }
            if let Some(flag) = text.strip_prefix('-') {
                let flag = flag.trim_start_matches('-');
                if flag == "b" || (flag.len() > 1 && "batch".starts_with(flag)) {
                    if let Some(file) = rest.next() {
                        self.read_path(file);
                    }
                    return Err("-batch runs commands from a file".to_owned());
                }
                if matches!(flag, "n" | "netns") {
                    return Err("-netns enters another namespace".to_owned());
                }
                if matches!(flag, "f" | "family" | "l" | "loops" | "rc" | "rcvbuf") {
                    rest.next();
                }
                continue;
            }
            object = Some(text);
            break;
        }
        let Some(object) = object else { return Ok(true) };
        if !OBJECTS.contains(&object) {
            return Err(format!("ip {object} is not known to only read"));
        }
        match rest.next().map(|a| a.text.as_str()) {
            None
            | Some("show" | "list" | "ls" | "lst" | "sh" | "s" | "get" | "help" | "identify" | "pids") => {
                Ok(true)
            }
            Some(verb) => Err(format!("ip {object} {verb} changes the network")),
        }
    }

    fn openssl(&mut self, args: &[Arg]) -> Result<bool, String> {
        let verb = args.first().map_or("", |a| a.text.as_str());
        let reads = match verb {
            "version" | "ciphers" | "list" | "errstr" | "prime" => true,
            "x509" | "req" | "crl" | "asn1parse" | "verify" | "dgst" => !args.iter().any(|a| {
                matches!(
                    a.text.as_str(),
                    "-out"
                        | "-sign"
                        | "-signkey"
                        | "-key"
                        | "-engine"
                        | "-provider"
                        | "-CA"
                        | "-CAkey"
                        | "-keyout"
                        | "-new"
                        | "-newkey"
                        | "-x509toreq"
                        | "-provider-path"
                        | "-config"
                )
            }),
            _ => false,
        };
        if !reads {
            return Err(format!("openssl {verb} is not known to only read"));
        }
        for arg in args.iter().skip(1).filter(|a| !a.text.starts_with('-')) {
            self.read_path(arg);
        }
        Ok(true)
    }

    fn tar_reads(&mut self, args: &[Arg]) -> Result<bool, String> {
        let mut list = false;
        let mut at = 0;
        let mut first = true;
        while let Some(arg) = args.get(at) {
            at += 1;
            let text = arg.text.as_str();
            if arg.may_be_flag() {
                return Err("a word that is not known yet may turn into an option".to_owned());
            }
            let cluster = if std::mem::take(&mut first) && !text.starts_with('-') {
                Some(text)
            } else {
                text.strip_prefix('-').filter(|c| !c.starts_with('-'))
            };
            if let Some(cluster) = cluster {
                if let Some(bad) = cluster.chars().find(|c| !"tvfjzJZaOqh".contains(*c)) {
                    return Err(format!("-{bad} does more than list"));
                }
                list |= cluster.contains('t');
                if cluster.contains('f')
                    && let Some(file) = args.get(at)
                {
                    at += 1;
                    if file.text.contains(':') {
                        return Err("the archive is on another host".to_owned());
                    }
                    self.read_path(file);
                }
            } else if let Some(long) = text.strip_prefix("--") {
                let name = long.split('=').next().unwrap_or(long);
                match name {
                    "list" => list = true,
                    "verbose" | "gzip" | "bzip2" | "xz" | "zstd" | "auto-compress" | "wildcards"
                    | "exclude" | "full-time" | "numeric-owner" => {}
                    "file" => {
                        if let Some((_, file)) = long.split_once('=') {
                            self.read_path(&Arg::literal(file));
                        }
                    }
                    other => return Err(format!("--{other} does more than list")),
                }
            }
        }
        if list { Ok(true) } else { Err("only listing an archive only reads".to_owned()) }
    }
}

fn sysctl(args: &[Arg]) -> Result<bool, String> {
    for arg in args {
        let text = arg.text.as_str();
        if arg.unknown {
            return Err("a word is not known yet".to_owned());
        }
        if text.contains('=') && !text.starts_with("--pattern") {
            return Err("name=value sets a kernel parameter".to_owned());
        }
        let sets = match text.strip_prefix("--") {
            Some(long) => {
                "write".starts_with(long)
                    || "load".starts_with(long.split('=').next().unwrap_or(long))
                    || "system".starts_with(long)
            }
            None => text.strip_prefix('-').is_some_and(|f| f.contains(['w', 'p', 'f'])),
        };
        if sets {
            return Err(format!("{text} sets kernel parameters"));
        }
    }
    Ok(true)
}

fn top(args: &[Arg]) -> Result<bool, String> {
    let batch = args.iter().any(|a| a.text.starts_with('-') && a.text.contains('b'));
    if batch { Ok(true) } else { Err("without -b top needs a terminal".to_owned()) }
}

/// jq reads; what it must not do is print the environment wholesale, because
/// the environment is where secret references end up.
fn check_jq(entry: &Entry, args: &[Arg]) -> Result<(), String> {
    if let Some(at) = pattern_operand(entry, args) {
        let filter = &args[at].text;
        if args[at].unknown {
            return Err("the filter is not known yet".to_owned());
        }
        let mut rest = filter.as_str();
        while let Some(i) = rest.find("env") {
            let before = rest[..i].chars().last();
            let after = rest[i + 3..].chars().next();
            let word = !before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '.' | '"' | '$'))
                && !after.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '"');
            if word {
                return Err("env prints the environment".to_owned());
            }
            rest = &rest[i + 3..];
        }
        if filter.contains("$ENV") || filter.contains("strenv") || filter.contains("env(") {
            return Err("the filter prints the environment".to_owned());
        }
        if filter.contains("import ") || filter.contains("include ") || filter.contains("load(") {
            return Err("the filter loads other files".to_owned());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_an_entry() {
        for line in TABLE.lines().filter(|l| !l.starts_with('#') && !l.trim().is_empty()) {
            assert!((2..=4).contains(&line.split('|').count()), "{line}");
            for name in line.split('|').next().unwrap().split_whitespace() {
                assert!(ENTRIES.contains_key(name), "{name}: {line}");
            }
        }
        assert_eq!(ENTRIES["sort"].operands, Operands::Paths);
        assert!(ENTRIES["sort"].long.contains(&("compress-program", Meaning::Refused)));
        assert_eq!(ENTRIES["systemctl"].verbs[0], "status");
        assert_eq!(ENTRIES["go"].verbs, ["version", "env"]);
    }
}
