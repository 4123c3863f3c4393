//! Resources that programs are known to use, whether or not they may run.
//!
//! These facts make a decision stricter: a write outside the roots, a secret in the value of any
//! option, a container with access to the host.

use super::analysis::{Analysis, Arg};
use super::paths::normalise_path;

/// Operands that a program writes.
#[derive(Clone, Copy)]
enum Writes {
    /// Every operand.
    All,
    /// Every operand except the first, which is a mode.
    AfterFirst,
    /// The last operand; the others are read.
    Last,
    /// The last operand; the others are read and removed.
    Moves,
    /// The last operand; the others are only names.
    Links,
    /// The operand with this index, when there is one.
    Nth(usize),
}

/// Programs that write operands, with their short options that take a separate value, and a description
/// of the effect.
static WRITERS: &[(&[&str], Writes, &str, &str)] = &[
    (&["touch"], Writes::All, "dtr", "creates a file"),
    (&["mkdir"], Writes::All, "mZ", "creates a directory"),
    (&["mkfifo", "mknod"], Writes::Nth(0), "mZ", "creates a special file"),
    (&["rm", "unlink", "srm"], Writes::All, "", "removes files"),
    (&["rmdir"], Writes::All, "", "removes directories"),
    (&["shred"], Writes::All, "ns", "overwrites files"),
    (&["truncate"], Writes::All, "sr", "cuts files"),
    (&["tee"], Writes::All, "", "writes files"),
    (&["chmod", "chown", "chgrp", "chcon"], Writes::AfterFirst, "", "changes metadata"),
    // Their options set the mode, so the first operand is already a file; `chattr +i` names one more.
    (&["chattr"], Writes::All, "pv", "changes metadata"),
    (&["setfacl", "setfattr"], Writes::All, "mMxXnvS", "changes metadata"),
    (&["cp", "install"], Writes::Last, "StmogZ", "copies files"),
    (&["mv"], Writes::Moves, "St", "moves files"),
    (&["ln"], Writes::Links, "St", "creates a link"),
    (&["link"], Writes::Links, "", "creates a link"),
    (&["rsync", "scp"], Writes::Last, "eBfTMFcoPSilJ", "copies files"),
    (&["split", "csplit"], Writes::Nth(1), "abClnt", "writes files"),
    (&["uniq"], Writes::Nth(1), "fsw", "writes a file"),
    (&["xxd"], Writes::Nth(1), "scloRn", "writes a file"),
    (
        &["gzip", "gunzip", "bzip2", "bunzip2", "xz", "unxz", "zstd", "unzstd", "lz4", "compress"],
        Writes::All,
        "STMD",
        "replaces files",
    ),
    (&["zip"], Writes::Nth(0), "bitxnPT", "writes an archive"),
    (&["patch"], Writes::Nth(0), "dpioBDFgrVxYz", "changes files"),
    (&["gcc", "cc", "clang", "g++", "ld", "as"], Writes::Nth(usize::MAX), "oIL", "writes files"),
];

/// Options whose value is a file or directory that is written.
static WRITE_FLAGS: &[(&[&str], &[&str])] = &[
    (&["cp", "mv", "ln", "install"], &["-t", "--target-directory"]),
    (&["sort"], &["-o", "--output"]),
    (
        &["curl"],
        &[
            "-o",
            "--output",
            "-c",
            "--cookie-jar",
            "-D",
            "--dump-header",
            "--trace",
            "--trace-ascii",
            "--output-dir",
            "--stderr",
            "--etag-save",
            "--libcurl",
            "--hsts",
            "--alt-svc",
        ],
    ),
    (
        &["wget", "wget2"],
        &[
            "-O",
            "--output-document",
            "-P",
            "--directory-prefix",
            "-o",
            "--output-file",
            "-a",
            "--append-output",
            "--save-cookies",
            "--warc-file",
        ],
    ),
    (&["tar", "bsdtar"], &["-C", "--directory", "--one-top-level"]),
    (&["unzip"], &["-d"]),
    (&["tree"], &["-o"]),
    (&["shuf"], &["-o", "--output"]),
    (&["openssl"], &["-out", "-keyout", "-writerand", "-CAcreateserial"]),
    (&["gpg", "gpg2", "age"], &["-o", "--output"]),
    (&["gcc", "cc", "clang", "g++", "ld", "as", "rustc"], &["-o", "--out-dir"]),
    (&["pandoc", "dot", "convert", "magick", "ffmpeg"], &["-o", "--output"]),
    (&["patch"], &["-o", "--output", "-r"]),
    (&["git"], &["--output"]),
    (&["tcpdump"], &["-w"]),
];

impl Analysis<'_> {
    /// Judges all resources that `name` is known to use. With `allowed`, a rule covers the command and
    /// its grant applies instead; secrets stay denied.
    pub(crate) fn judge_resources(&mut self, name: &str, args: &[Arg], allowed: bool) {
        let reader = super::catalogue::names_program(name);
        let text_only = super::catalogue::is_text_only(name);
        if !text_only {
            let is_text = super::catalogue::text_words(name, args);
            for (arg, _) in args.iter().zip(is_text).filter(|(_, is_text)| !is_text) {
                self.check_operand(arg, !allowed && !reader);
            }
        }
        if allowed {
            return;
        }
        for (names, flags) in WRITE_FLAGS {
            if names.contains(&name) {
                for value in flag_values(args, flags) {
                    self.write_path(&value, "an output option writes a file");
                }
            }
        }
        if let Some((_, writes, values, what)) = WRITERS.iter().find(|(names, ..)| names.contains(&name)) {
            self.judge_writer(name, args, *writes, values, what);
        }
        match name {
            "dd" => {
                for arg in args {
                    if let Some(file) = arg.text.strip_prefix("of=") {
                        let file = Arg { text: file.to_owned(), ..arg.clone() };
                        self.write_path(&file, "dd writes a file");
                    } else if let Some(file) = arg.text.strip_prefix("if=") {
                        self.read_path(&Arg { text: file.to_owned(), ..arg.clone() });
                    }
                }
            }
            "sed" | "gsed" => self.sed_in_place(args),
            "tar" | "bsdtar" => self.tar_effects(args),
            "docker" | "podman" | "nerdctl" | "ctr" => self.judge_container(name, args),
            "kubectl" | "oc" => self.remote_exec(name, args),
            "ssh" => self.judge_ssh(args),
            "tmux" | "screen" | "xterm" | "gnome-terminal" | "konsole" | "make" | "gmake" | "ninja"
            | "just" | "vim" | "ssh-agent" | "expect" | "ansible" | "mail" | "man" => {
                for arg in args {
                    self.probe_text(&arg.text, name, name != "vim");
                }
            }
            _ => {}
        }
    }

    fn judge_writer(&mut self, name: &str, args: &[Arg], writes: Writes, values: &str, what: &str) {
        let list = operands_without_values(args, values);
        let targeted = !flag_values(args, &["-t", "--target-directory"]).is_empty()
            && matches!(name, "cp" | "mv" | "ln" | "install");
        let to_stdout = matches!(
            name,
            "gzip" | "gunzip" | "bzip2" | "bunzip2" | "xz" | "unxz" | "zstd" | "unzstd" | "lz4"
        ) && args.iter().any(|a| {
            matches!(a.text.as_str(), "--stdout" | "--to-stdout" | "--list" | "--test")
                || (a.text.starts_with('-') && !a.text.starts_with("--") && a.text.contains(['c', 'l', 't']))
        });
        if to_stdout {
            for arg in &list {
                self.read_path(arg);
            }
            return;
        }
        let last = list.len().saturating_sub(1);
        for (at, arg) in list.iter().enumerate() {
            match writes {
                Writes::All => self.write_path(arg, what),
                Writes::AfterFirst => {
                    if at > 0 || args.iter().any(|a| a.text.starts_with("--reference")) {
                        self.write_path(arg, what);
                    }
                }
                Writes::Last | Writes::Moves | Writes::Links => {
                    if at == last && list.len() > 1 && !targeted {
                        if is_remote(name, &arg.text) {
                            continue;
                        }
                        self.write_path(arg, what);
                    } else if matches!(writes, Writes::Moves) {
                        self.write_path(arg, "moves a file away");
                    } else if matches!(writes, Writes::Last) && !is_remote(name, &arg.text) {
                        self.read_path(arg);
                    } else if list.len() == 1 {
                        let here = Arg::literal(".");
                        self.write_path(&here, what);
                    }
                }
                Writes::Nth(n) => {
                    if at == n {
                        self.write_path(arg, what);
                    } else {
                        self.read_path(arg);
                    }
                }
            }
        }
    }

    fn sed_in_place(&mut self, args: &[Arg]) {
        let in_place = args.iter().any(|a| {
            a.text.starts_with("-i")
                || a.text.starts_with("--in-p")
                || (a.text.starts_with('-')
                    && !a.text.starts_with("--")
                    && a.text[1..].contains('i')
                    && !a.text[1..].contains(['e', 'f', 'l', 's', 'E', ' ']))
        });
        if !in_place {
            return;
        }
        let begins_script = |a: &Arg| ["-e", "-f", "--expr"].iter().any(|flag| a.text.starts_with(flag));
        let scripted = args.iter().any(begins_script);
        let list = operands_without_values(args, "efl");
        for arg in list.iter().skip(usize::from(!scripted)) {
            self.write_path(arg, "sed -i changes files");
        }
    }

    fn tar_effects(&mut self, args: &[Arg]) {
        let mut create = false;
        let mut extract = false;
        for (at, arg) in args.iter().enumerate() {
            let bundled = at == 0 && !arg.text.starts_with('-');
            if bundled || (arg.text.starts_with('-') && !arg.text.starts_with("--")) {
                create |= arg.text.contains(['c', 'r', 'u']);
                extract |= arg.text.contains('x');
            }
            create |= matches!(arg.text.as_str(), "--create" | "--append" | "--update");
            extract |= matches!(arg.text.as_str(), "--extract" | "--get");
            if let Some((_, command)) = arg.text.split_once("exec=") {
                self.probe_code(command, "tar");
            }
            let takes_code = ["--to-command", "--use-compress-program", "--info-script", "--rsh-command"];
            if let Some((flag, command)) = arg.text.split_once('=')
                && takes_code.iter().any(|full| full.starts_with(flag))
            {
                self.probe_code(command, "tar");
            }
        }
        let absolute = args.iter().any(|a| a.text == "-P" || a.text == "--absolute-names");
        if extract && absolute {
            self.require_approval("write", "tar extracts with absolute names");
        }
        if create {
            for file in tar_archive(args) {
                self.write_path(&file, "tar writes an archive");
            }
        }
    }

    /// A container daemon is root on the host: the mounts and shared namespaces of the container are
    /// judged here.
    fn judge_container(&mut self, name: &str, args: &[Arg]) {
        let verb = args.iter().find(|a| !a.text.starts_with('-')).map_or("", |a| a.text.as_str());
        if !matches!(
            verb,
            "run" | "create" | "exec" | "container" | "compose" | "build" | "cp" | "import" | "load"
        ) {
            return;
        }
        let mut rest = args.iter().peekable();
        while let Some(arg) = rest.next() {
            let text = arg.text.as_str();
            let next = rest.peek().map_or("", |a| a.text.as_str());
            let (flag, value) = match text.split_once('=') {
                Some((flag, value)) => (flag, value),
                None => (text, next),
            };
            let refused = match flag {
                "--privileged" => value != "false",
                "--pid" | "--ipc" | "--uts" | "--userns" | "--cgroupns" => value == "host",
                "--network" | "--net" => value == "host",
                "--cap-add" | "--device" | "--device-cgroup-rule" | "--volumes-from" => true,
                "--security-opt" => value.contains("unconfined") || value.contains("disable"),
                "-v" | "--volume" => self.is_host_mount(value),
                "--mount" => value.split(',').any(|part| {
                    part.strip_prefix("source=")
                        .or_else(|| part.strip_prefix("src="))
                        .is_some_and(|source| self.is_host_mount(source))
                }),
                _ => text.strip_prefix("-v").is_some_and(|v| v.starts_with('/') && self.is_host_mount(v)),
            };
            if refused {
                self.add_denial(
                    "container-host",
                    format!("{name} {verb} {flag} opens the host to the container"),
                );
            }
        }
        self.probe_suffixes(args);
    }

    fn is_host_mount(&self, value: &str) -> bool {
        let source = value.split(':').next().unwrap_or(value);
        if ["docker.sock", "containerd.sock", "podman.sock"].iter().any(|socket| source.contains(socket)) {
            return true;
        }
        if !source.starts_with(['/', '~', '.']) {
            return false;
        }
        let path = normalise_path(&self.scope.cwd, source);
        !self.roots.is_writable(&path) || self.roots.is_secret(&path)
    }

    fn remote_exec(&mut self, name: &str, args: &[Arg]) {
        if let Some(at) = args.iter().position(|a| a.text == "--") {
            self.probe_suffixes(&args[at + 1..]);
        }
        if args.iter().any(|a| a.text == "debug" || a.text == "run")
            && args.iter().any(|a| a.text.contains("privileged") || a.text.contains("hostPID"))
        {
            self.add_denial("container-host", format!("{name} opens the host to a container"));
        }
    }

    fn judge_ssh(&mut self, args: &[Arg]) {
        const VALUES: &str = "BbcDEeFIiJLlmOopQRSWw";
        let mut rest = args.iter();
        while let Some(arg) = rest.next() {
            if let Some(flags) = arg.text.strip_prefix('-') {
                let Some(at) = flags.find(|c| VALUES.contains(c)) else { continue };
                let value = match flags.get(at + 1..) {
                    Some(attached) if !attached.is_empty() => attached.to_owned(),
                    _ => rest.next().map(|a| a.text.clone()).unwrap_or_default(),
                };
                if let Some((_, command)) = value.split_once('=') {
                    self.probe_code(command, "an ssh option");
                } else if let Some((key, command)) = value.split_once(' ')
                    && key.to_ascii_lowercase().contains("command")
                {
                    self.probe_code(command, "an ssh option");
                }
                continue;
            }
            break;
        }
        let remote: Vec<String> = rest.map(|a| a.text.clone()).collect();
        if !remote.is_empty() {
            self.probe_code(&remote.join(" "), "ssh");
        }
    }
}

fn is_remote(name: &str, text: &str) -> bool {
    matches!(name, "rsync" | "scp") && text.split_once(':').is_some_and(|(host, _)| !host.contains('/'))
}

/// Values of any of `flags`: attached, after `=`, or in the next word.
pub(crate) fn flag_values(args: &[Arg], flags: &[&str]) -> Vec<Arg> {
    let mut out = Vec::new();
    let mut rest = args.iter().peekable();
    while let Some(arg) = rest.next() {
        if arg.text == "--" {
            break;
        }
        for flag in flags {
            if flag.starts_with("--") {
                let (given, value) = match arg.text.split_once('=') {
                    Some((given, value)) => (given, Some(value)),
                    None => (arg.text.as_str(), None),
                };
                if given.len() > 3 && flag.starts_with(given) {
                    match value {
                        Some(value) => out.push(Arg { text: value.to_owned(), ..arg.clone() }),
                        None => out.extend(rest.peek().map(|a| (*a).clone())),
                    }
                }
            } else if flag.len() == 2 {
                let Some(cluster) = arg.text.strip_prefix('-').filter(|c| !c.starts_with('-')) else {
                    continue;
                };
                let letter = &flag[1..];
                if let Some(i) = cluster.find(letter) {
                    let attached = &cluster[i + letter.len()..];
                    if attached.is_empty() {
                        out.extend(rest.peek().map(|a| (*a).clone()));
                    } else {
                        out.push(Arg { text: attached.to_owned(), ..arg.clone() });
                    }
                }
            } else if arg.text == *flag {
                out.extend(rest.peek().map(|a| (*a).clone()));
            }
        }
    }
    out
}

/// Operands without the values of the short options `values`.
fn operands_without_values(args: &[Arg], values: &str) -> Vec<Arg> {
    let mut out = Vec::new();
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        if arg.text == "--" {
            out.extend(rest.cloned());
            break;
        }
        let cluster = arg.text.strip_prefix('-').filter(|c| !c.is_empty() && !arg.unknown_start);
        match cluster {
            Some(long) if long.starts_with('-') => {}
            Some(cluster) => {
                if cluster.find(|c| values.contains(c)).is_some_and(|i| i + 1 == cluster.len()) {
                    rest.next();
                }
            }
            None => out.push(arg.clone()),
        }
    }
    out
}

/// Archive that a tar command names.
fn tar_archive(args: &[Arg]) -> Vec<Arg> {
    let mut files = flag_values(args, &["--file"]);
    for (at, arg) in args.iter().enumerate() {
        let bundled = at == 0 && !arg.text.starts_with('-');
        let cluster = if bundled {
            Some(arg.text.as_str())
        } else {
            arg.text.strip_prefix('-').filter(|c| !c.starts_with('-'))
        };
        if let Some(cluster) = cluster
            && let Some(i) = cluster.find('f')
        {
            if i + 1 == cluster.len() || bundled {
                files.extend(args.get(at + 1).cloned());
            } else {
                files.push(Arg::literal(&cluster[i + 1..]));
            }
            break;
        }
    }
    files
}
