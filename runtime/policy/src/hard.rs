//! Hard blocks: commands that never run, under any rule, profile or approval.
//!
//! They are judged on parsed commands rather than on text, so a commit message or a search pattern may
//! mention any of them.

use super::analysis::{Analysis, Arg, CommandInput};
use super::paths::{is_kernel_trigger, is_raw_device, normalise_path};
use super::rules::{hard_rule_matches, is_flag};

/// Programs whose only purpose is to change disks, accounts or the running system.
const NEVER: &[(&str, &str, &str)] = &[
    ("reboot", "power", "restarts the host"),
    ("halt", "power", "stops the host"),
    ("poweroff", "power", "switches the host off"),
    ("shutdown", "power", "stops the host"),
    ("telinit", "power", "changes the run level"),
    ("pm-suspend", "power", "suspends the host"),
    ("pm-hibernate", "power", "suspends the host"),
    ("rtcwake", "power", "suspends the host"),
    ("blkdiscard", "raw-device", "discards a block device"),
    ("mkswap", "format", "formats a device"),
    ("mke2fs", "format", "formats a device"),
    ("mkdosfs", "format", "formats a device"),
    ("mkntfs", "format", "formats a device"),
    ("newfs", "format", "formats a device"),
    ("killall5", "kill-all", "signals every process"),
    ("modprobe", "kernel", "changes the kernel's modules"),
    ("insmod", "kernel", "loads a kernel module"),
    ("rmmod", "kernel", "removes a kernel module"),
    ("kexec", "kernel", "replaces the running kernel"),
    ("kpatch", "kernel", "patches the running kernel"),
    ("userdel", "accounts", "removes an account"),
    ("useradd", "accounts", "adds an account"),
    ("usermod", "accounts", "changes an account"),
    ("deluser", "accounts", "removes an account"),
    ("adduser", "accounts", "adds an account"),
    ("groupdel", "accounts", "removes a group"),
    ("groupadd", "accounts", "adds a group"),
    ("groupmod", "accounts", "changes a group"),
    ("delgroup", "accounts", "removes a group"),
    ("addgroup", "accounts", "adds a group"),
    ("gpasswd", "accounts", "changes a group"),
    ("chpasswd", "accounts", "changes passwords"),
    ("chgpasswd", "accounts", "changes passwords"),
    ("newusers", "accounts", "adds accounts"),
    ("passwd", "accounts", "changes a password"),
    ("chage", "accounts", "changes an account"),
    ("chsh", "accounts", "changes a login shell"),
    ("chfn", "accounts", "changes an account"),
    ("vipw", "accounts", "edits the accounts"),
    ("vigr", "accounts", "edits the groups"),
    ("pwconv", "accounts", "converts the accounts"),
    ("pwunconv", "accounts", "converts the accounts"),
    ("visudo", "accounts", "edits who may raise privileges"),
    ("setenforce", "security-module", "changes a kernel security module"),
    ("aa-teardown", "security-module", "removes the kernel's profiles"),
    ("aa-disable", "security-module", "disables a kernel profile"),
    ("aa-complain", "security-module", "disables a kernel profile"),
    ("swapoff", "memory", "disables swap space of the host"),
    ("pivot_root", "mount", "changes the root file system"),
    ("switch_root", "mount", "changes the root file system"),
    ("umount", "mount", "removes a mounted file system"),
    ("fsfreeze", "mount", "freezes a file system"),
];

/// Partition and volume tools: only reading their tables is harmless.
const DISK_TOOLS: &[(&str, &[&str])] = &[
    ("fdisk", &["-l", "--list", "-s", "-v", "-V", "--version"]),
    ("sfdisk", &["-l", "--list", "-d", "--dump", "-V", "-s", "-J", "--json"]),
    ("cfdisk", &["-V", "--version"]),
    ("gdisk", &["-l"]),
    ("cgdisk", &[]),
    ("sgdisk", &["-p", "--print", "-i", "--info", "-v", "--verify"]),
    ("parted", &["-l", "--list", "print", "-v", "--version"]),
    ("wipefs", &["-n", "--no-act", "-V", "--version"]),
];

/// Programs whose first argument can destroy volumes or stop the system.
const NEVER_VERBS: &[(&str, &str, &[&str])] = &[
    (
        "systemctl",
        "power",
        &[
            "reboot",
            "poweroff",
            "halt",
            "kexec",
            "soft-reboot",
            "suspend",
            "hibernate",
            "hybrid-sleep",
            "suspend-then-hibernate",
            "rescue",
            "emergency",
            "exit",
            "isolate",
            "switch-root",
            "default",
            "sleep",
        ],
    ),
    ("loginctl", "power", &["reboot", "poweroff", "suspend", "hibernate", "halt"]),
    (
        "cryptsetup",
        "raw-device",
        &[
            "luksErase",
            "erase",
            "luksFormat",
            "reencrypt",
            "luksKillSlot",
            "luksRemoveKey",
            "luksHeaderRestore",
            "open-format",
        ],
    ),
    ("zpool", "volume", &["destroy", "labelclear", "offline", "detach", "remove", "split"]),
    ("zfs", "volume", &["destroy", "rollback"]),
    ("nvme", "raw-device", &["format", "sanitize", "delete-ns", "write", "write-zeroes", "reset"]),
    ("dmsetup", "volume", &["remove", "remove_all", "wipe_table", "suspend"]),
    ("ufw", "firewall", &["disable", "reset"]),
    ("nft", "firewall", &["flush", "delete"]),
    ("lvm", "volume", &["lvremove", "vgremove", "pvremove"]),
];

const VOLUME_REMOVERS: &[&str] =
    &["lvremove", "vgremove", "pvremove", "lvreduce", "vgreduce", "vgcfgrestore"];

const RECURSIVE_DELETE_HINT: &str = "name the files or directories below the workspace";

impl Analysis<'_> {
    /// Checks for commands that never run.
    pub(crate) fn check_hard(&mut self, name: &str, args: &[Arg], input: &CommandInput) {
        for rule in &self.policy.file().hard.extra {
            if hard_rule_matches(rule, name, args) {
                self.add_hard_block(&rule.id, format!("{name} is blocked by the policy"), None);
            }
        }
        if only_asks_for_help(args) {
            return;
        }
        if let Some((_, id, what)) = NEVER.iter().find(|(program, ..)| *program == name) {
            let reads = match name {
                "chage" => has_flag(args, &["-S", "--status", "-l"]),
                "modprobe" => {
                    has_flag(args, &["-n", "--dry-run", "--show-depends", "-D", "-c", "--showconfig"])
                }
                _ => false,
            };
            let cancels = name == "shutdown" && has_flag(args, &["-c"]);
            if !reads && !cancels {
                self.add_hard_block(id, format!("{name} {what}"), None);
            }
        }
        if name.starts_with("mkfs") {
            self.add_hard_block("format", format!("{name} formats a device"), None);
        }
        self.check_disk_tools(name, args);
        match name {
            "rm" | "rmdir" | "unlink" | "srm" => self.check_remove(name, args),
            "chmod" | "chown" | "chgrp" | "setfacl" | "chattr" | "chcon" | "restorecon" => {
                self.check_recursive_change(name, args);
            }
            "mv" | "cp" | "install" | "ln" | "rsync" | "truncate" | "tee" | "shred" | "gzip" | "tar"
            | "unzip" | "cpio" | "rename" => self.check_vital_operands(name, args),
            "dd" | "dcfldd" | "dc3dd" | "ddrescue" => self.check_dd(name, args),
            "kill" | "pkill" | "killall" | "skill" => self.check_kill(name, args),
            "init" => {
                if let Some(level) = args.iter().find(|a| !a.text.starts_with('-'))
                    && (level.unknown || level.text.len() == 1)
                {
                    self.add_hard_block("power", "init changes the run level", None);
                }
            }
            "mount" if args.iter().any(|a| !LISTING_FLAGS.contains(&a.text.as_str())) => {
                self.add_hard_block("mount", "mount changes the host's file systems", None);
            }
            "crontab" if args.iter().any(|a| is_flag(&a.text, "-r")) => {
                self.add_hard_block("crontab", "crontab -r removes every job", Some("crontab -l lists them"));
            }
            "nc" | "ncat" | "netcat" => self.check_netcat(name, args),
            "socat"
                if args.iter().any(|a| {
                    let text = a.text.to_ascii_uppercase();
                    text.starts_with("EXEC:") || text.starts_with("SYSTEM:") || text.contains("SHELL:")
                }) =>
            {
                self.add_hard_block("remote-shell", "socat connects a program to the network", None);
            }
            "busctl" | "dbus-send" | "gdbus" | "qdbus"
                if args.iter().any(|a| {
                    ["Reboot", "PowerOff", "Halt", "Suspend", "Hibernate"]
                        .iter()
                        .any(|w| a.text.rsplit('.').next() == Some(w))
                }) =>
            {
                self.add_hard_block("power", format!("{name} stops the host"), None);
            }
            "apparmor_parser" if has_flag(args, &["-R", "--remove"]) => {
                self.add_hard_block("security-module", "removes a kernel profile", None);
            }
            "semodule" if has_flag(args, &["-r", "-d", "--remove", "--disable"]) => {
                self.add_hard_block("security-module", "removes a security module", None);
            }
            "auditctl" if has_flag(args, &["-D", "-e"]) => {
                self.add_hard_block("security-module", "changes what the kernel records", None);
            }
            "sysctl" => self.check_sysctl(args),
            "git" => self.check_git_clean(args),
            "lobster" => self.check_lobster(args),
            _ => {}
        }
        self.check_input_lines(name, args, input);
        // A network program whose input comes from a shell, or whose output goes to one.
        if matches!(name, "nc" | "ncat" | "netcat" | "telnet" | "socat" | "openssl")
            && let CommandInput::Pipe(flow) = input
            && flow.shell
        {
            self.add_hard_block(
                "remote-shell",
                format!("a shell is connected to the network by {name}"),
                None,
            );
        }
    }

    fn check_disk_tools(&mut self, name: &str, args: &[Arg]) {
        if let Some((_, harmless)) = DISK_TOOLS.iter().find(|(program, _)| *program == name) {
            let lists = args.iter().any(|a| harmless.contains(&a.text.as_str()));
            let wipes = name == "wipefs"
                && !args.iter().any(|a| a.unknown || is_any_flag(a, &["-a", "--all", "-o", "--offset"]));
            if !lists && !wipes {
                self.add_hard_block("raw-device", format!("{name} changes a disk"), None);
            }
        }
        if VOLUME_REMOVERS.contains(&name) {
            self.add_hard_block("volume", format!("{name} removes storage"), None);
        }
        if let Some((_, id, verbs)) = NEVER_VERBS.iter().find(|(program, ..)| *program == name)
            && let Some(verb) = args.iter().find(|a| !a.text.starts_with('-'))
            && verbs.contains(&verb.text.as_str())
        {
            self.add_hard_block(id, format!("{name} {} is not allowed in a step", verb.text), None);
        }
        if name == "mdadm" && has_flag(args, &["--zero-superblock", "--stop", "-S", "--fail", "--remove"]) {
            self.add_hard_block("volume", "mdadm removes storage", None);
        }
        let changes_disk =
            |a: &Arg| ["--security", "--trim", "--make-bad"].iter().any(|start| a.text.starts_with(start));
        if name == "hdparm" && args.iter().any(changes_disk) {
            self.add_hard_block("raw-device", "hdparm changes a disk", None);
        }
        if name == "badblocks" && args.iter().any(|a| is_any_flag(a, &["-w", "-n"])) {
            self.add_hard_block("raw-device", "badblocks writes to a disk", None);
        }
        if name == "debugfs" && has_flag(args, &["-w"]) {
            self.add_hard_block("raw-device", "debugfs writes to a disk", None);
        }
    }

    fn target_path(&self, arg: &Arg) -> String {
        normalise_path(&self.scope.cwd, &arg.text)
    }

    fn check_remove(&mut self, name: &str, args: &[Arg]) {
        if before_end(args).any(|a| a.text.len() > 4 && is_flag(&a.text, "--no-preserve-root")) {
            self.add_hard_block("rm-root", format!("{name} may remove the root"), None);
        }
        let recursive = before_end(args).any(|a| is_any_flag(a, &["-r", "-R", "--recursive"]));
        for arg in operands(args) {
            if arg.vital && matches!(arg.text.as_str(), "" | "/" | "/*") {
                self.add_hard_block(
                    "rm-root",
                    format!("{name} removes what it is given, which is everything below a vital directory"),
                    Some(RECURSIVE_DELETE_HINT),
                );
            }
            if arg.unknown_start && !arg.unset {
                // A path with an unknown start is judged as if that part were empty: `rm -rf "$DIR"/`
                // may be `rm -rf /`.
                if recursive && !arg.text.is_empty() && self.roots.is_vital(&self.target_path(arg)) {
                    self.deny_hint(
                        "dynamic-delete",
                        format!("{name} removes everything if the start of {} is empty", arg.display_text()),
                        "check the value first, and write the directory out",
                    );
                }
                continue;
            }
            if arg.text.is_empty() {
                continue;
            }
            let path = self.target_path(arg);
            if recursive && self.roots.is_vital(&path) {
                self.add_hard_block(
                    "rm-root",
                    format!("{name} removes {path} and everything below"),
                    Some(RECURSIVE_DELETE_HINT),
                );
            } else if is_raw_device(&path) || is_kernel_trigger(&path) {
                self.add_hard_block("raw-device", format!("{name} removes {path}"), None);
            }
        }
    }

    fn check_recursive_change(&mut self, name: &str, args: &[Arg]) {
        let flags: &[&str] =
            if name == "restorecon" { &["-R", "--recursive", "-r"] } else { &["-R", "--recursive"] };
        let recursive = before_end(args).any(|a| is_any_flag(a, flags));
        let skip = usize::from(
            matches!(name, "chmod" | "chown" | "chgrp" | "chcon")
                && !args.iter().any(|a| a.text.starts_with("--reference")),
        );
        for arg in operands(args).skip(skip) {
            let path = self.target_path(arg);
            if recursive && !arg.text.is_empty() && self.roots.is_vital(&path) {
                self.add_hard_block(
                    "change-root",
                    format!("{name} changes {path} and everything below"),
                    Some(RECURSIVE_DELETE_HINT),
                );
            } else if is_raw_device(&path) {
                self.add_hard_block("raw-device", format!("{name} changes {path}"), None);
            }
        }
    }

    /// git clean removes untracked files, which in some directories are all files.
    fn check_git_clean(&mut self, args: &[Arg]) {
        let mut words = operands(args).skip_while(|a| a.text != "clean").skip(1);
        if let Some(arg) = words.find(|a| !a.unknown_start && self.roots.is_vital(&self.target_path(a))) {
            let path = self.target_path(arg);
            self.add_hard_block(
                "rm-root",
                format!("git clean removes {path} and everything below"),
                Some(RECURSIVE_DELETE_HINT),
            );
        }
    }

    /// Programs that run lines of their standard input in their own language.
    fn check_input_lines(&mut self, name: &str, args: &[Arg], input: &CommandInput) {
        let from_input = |option: char| {
            args.windows(2)
                .any(|w| w[0].text.starts_with('-') && w[0].text.ends_with(option) && w[1].text == "-")
                || args.iter().any(|a| a.text == format!("-{option}-") || a.text == "--file=-")
        };
        // Characters in a line after which a command may begin.
        let behind: &[char] = match name {
            // `target:;code`, or a line of a recipe.
            "make" | "gmake" if from_input('f') => &['\t', ':', ';'],
            // `* * * * * code`.
            "crontab" if args.is_empty() || args.iter().any(|a| a.text == "-") => &[' ', '\t'],
            "ed" | "red" | "ex" | "vi" | "vim" | "ftp" | "gdb" => &['!'],
            // `syscmd(`code')`.
            "m4" => &['('],
            _ => return,
        };
        let Some(text) = input.known_text().map(str::to_owned) else { return };
        for line in text.lines().take(256) {
            for (at, c) in line.match_indices(behind).take(16) {
                let code = line[at + c.len()..].trim_matches(['`', '\'', '"', '(', ')', ' ', '@', '-', ';']);
                self.probe_text(code, name, true);
            }
        }
    }

    fn check_vital_operands(&mut self, name: &str, args: &[Arg]) {
        for arg in operands(args) {
            if arg.unknown_start || arg.text.is_empty() {
                continue;
            }
            let path = self.target_path(arg);
            let vital = self.roots.is_vital(&path);
            if name == "mv" && vital && Some(arg.text.as_str()) != last_operand(args) {
                self.add_hard_block("rm-root", format!("mv takes {path} away"), None);
            }
            if (is_raw_device(&path) || is_kernel_trigger(&path))
                && (name != "cp" || Some(arg.text.as_str()) == last_operand(args))
                && !matches!(name, "tar" | "ln" | "rsync")
            {
                self.add_hard_block("raw-device", format!("{name} writes {path}"), None);
            }
        }
        if name == "rsync"
            && args.iter().any(|a| a.text.starts_with("--del"))
            && let Some(last) = operands(args).last()
            && self.roots.is_vital(&self.target_path(last))
        {
            self.add_hard_block("rm-root", "rsync --delete empties a system directory", None);
        }
    }

    fn check_dd(&mut self, name: &str, args: &[Arg]) {
        for arg in args {
            if let Some(file) = arg.text.strip_prefix("of=") {
                let path = normalise_path(&self.scope.cwd, file);
                if is_raw_device(&path) || is_kernel_trigger(&path) {
                    self.add_hard_block("raw-device", format!("{name} writes {path}"), None);
                }
            }
        }
        if name == "ddrescue"
            && let Some(last) = operands(args).nth(1)
            && is_raw_device(&self.target_path(last))
        {
            self.add_hard_block("raw-device", "ddrescue writes a device", None);
        }
    }

    fn check_kill(&mut self, name: &str, args: &[Arg]) {
        let mut operands: Vec<&Arg> = Vec::new();
        let mut rest = args.iter();
        let mut signal_seen = false;
        while let Some(arg) = rest.next() {
            match arg.text.as_str() {
                "-s" | "-n" | "--signal" => {
                    rest.next();
                    signal_seen = true;
                }
                "--" => {
                    operands.extend(rest.by_ref());
                }
                text if text.starts_with("--") => {}
                text if text.starts_with('-') && text.len() > 1 => {
                    if signal_seen && name == "kill" {
                        operands.push(arg);
                    }
                    // `kill -9 -1`: after the signal comes a process group.
                    signal_seen = true;
                }
                _ => {
                    signal_seen = true;
                    operands.push(arg);
                }
            }
        }
        if has_flag(args, &["-l", "-L", "--list"]) {
            operands.clear();
        }
        for arg in operands {
            if name == "kill" {
                let target = arg.text.trim();
                if arg.supervisor || arg.text.contains("PPID") {
                    self.add_hard_block(
                        "kill-supervisor",
                        "kill signals the process that supervises the step",
                        None,
                    );
                } else if !arg.unknown && matches!(target.parse::<i64>(), Ok(-1 | 1)) {
                    self.add_hard_block(
                        "kill-all",
                        format!("kill {target} signals init or every process"),
                        None,
                    );
                }
            } else {
                let pattern = arg.text.trim_matches(['^', '$', '.', '*', '+']);
                let vital = ["init", "systemd", "lobster", "sshd", "dbus-daemon", "launchd"];
                if !arg.unknown && (pattern.is_empty() || vital.contains(&pattern)) {
                    self.add_hard_block("kill-all", format!("{name} {} signals the system", arg.text), None);
                }
            }
        }
        if name != "kill"
            && args.iter().any(|a| is_any_flag(a, &["-u", "-U"]))
            && args.iter().any(|a| a.text == "root" || a.text == "0")
        {
            self.add_hard_block("kill-all", format!("{name} signals every process of a user"), None);
        }
    }

    fn check_netcat(&mut self, name: &str, args: &[Arg]) {
        let runs = |a: &Arg| {
            let starts = ["--sh-exec", "--exec=", "--lua-exec"];
            is_flag(&a.text, "-e")
                || matches!(a.text.as_str(), "-c" | "--exec")
                || starts.iter().any(|start| a.text.starts_with(start))
        };
        if args.iter().any(runs) {
            self.add_hard_block("remote-shell", format!("{name} connects a program to the network"), None);
        }
    }

    fn check_sysctl(&mut self, args: &[Arg]) {
        const TRIGGERS: &[&str] = &[
            "kernel.sysrq",
            "kernel.panic",
            "kernel.core_pattern",
            "kernel.modprobe",
            "kernel.modules_disabled",
        ];
        for arg in args {
            if let Some((key, _)) = arg.text.split_once('=')
                && TRIGGERS.contains(&key.replace('/', ".").as_str())
            {
                self.add_hard_block("kernel", format!("{key} commands the kernel"), None);
            }
        }
    }

    /// A step may query its policy but must not change it.
    fn check_lobster(&mut self, args: &[Arg]) {
        const READS: &[&str] = &["explain", "check", "test", "lint", "schema", "show"];
        let mut words = args.iter().filter(|a| !a.text.starts_with('-'));
        if words.next().is_some_and(|a| a.text == "policy")
            && !words.next().is_some_and(|a| READS.contains(&a.text.as_str()))
        {
            self.add_hard_block("own-policy", "a step may not change the policy it runs under", None);
        }
    }
}

fn is_any_flag(arg: &Arg, flags: &[&str]) -> bool {
    flags.iter().any(|flag| is_flag(&arg.text, flag))
}

fn has_flag(args: &[Arg], flags: &[&str]) -> bool {
    args.iter().any(|a| flags.contains(&a.text.as_str()))
}

fn only_asks_for_help(args: &[Arg]) -> bool {
    matches!(args, [one] if matches!(one.text.as_str(), "--help" | "--version" | "-V" | "-?"))
}

/// Arguments with which `mount` only lists.
const LISTING_FLAGS: &[&str] = &["-l", "-v", "-V", "--version", "--show-labels", "-h", "--help"];

fn before_end(args: &[Arg]) -> impl Iterator<Item = &Arg> {
    args.iter().take_while(|a| a.text != "--")
}

/// Arguments that are not flags, and everything after `--`.
pub(crate) fn operands(args: &[Arg]) -> impl Iterator<Item = &Arg> {
    let end = args.iter().position(|a| a.text == "--").unwrap_or(args.len());
    args.iter().enumerate().filter_map(move |(at, arg)| {
        let flag = at <= end && arg.text.starts_with('-') && !arg.unknown_start && arg.text != "-";
        (at != end && !(at < end && flag)).then_some(arg)
    })
}

fn last_operand(args: &[Arg]) -> Option<&str> {
    operands(args).last().map(|a| a.text.as_str())
}

#[cfg(test)]
mod tests {
    use super::super::{DecisionEnv, Policy, Proposal, Verdict};

    #[test]
    fn without_a_policy_what_destroys_is_seen_through_data_too() {
        let policy = Policy::builtin();
        let decide = |text: &str| policy.decide(&Proposal::shell(text), &DecisionEnv::fixture());
        for text in [
            "rm -rf $(echo /)",
            "rm -rf \"$(printf /)\"",
            "rm -rf \"$(echo ~)\"/",
            "find / | xargs rm -rf",
            "find / -xdev -type f -print0 | xargs -0 rm -f",
            "find /home | xargs -I{} rm -rf {}",
            "rm -rf /proc/self/task/1/root/",
            "git clean -fdx /",
            "make -f - <<< 'all:;rm -rf /'",
            "make -f - <<'E'\nall:\n\t@rm -rf /\nE",
            "ed <<< '!rm -rf /'",
            "m4 <<< 'syscmd(`rm -rf /'\"'\"')'",
            "crontab - <<< '* * * * * rm -rf /'",
        ] {
            let decision = decide(text);
            assert!(decision.is_hard(), "{text}: {}", decision.reason_code);
            assert!(decision.reason_code.starts_with("hard:"), "{text}: {}", decision.reason_code);
        }
        for text in [
            "rm -rf $(echo target)",
            "rm -rf \"$DIR\"",
            "rm -rf $(mktemp -d)",
            "find . | xargs rm -rf",
            "find / -name '*.bak' | xargs rm -f",
            "find / | grep x | xargs ls",
            "git clean -fdx",
            "git clean -fdx build",
            "make -f - <<< 'all:;cc -o x x.c'",
            "crontab - <<< '* * * * * true'",
            "ed <<< 'rm -rf / is what this note is about'",
            "cp $(echo /)etc/hosts .",
        ] {
            assert_eq!(decide(text).verdict, Verdict::Allow, "{text}");
        }
    }
}
