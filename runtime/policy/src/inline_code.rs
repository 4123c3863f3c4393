//! Code that is passed to shells and interpreters, and text that may be code.

use super::analysis::{Analysis, Arg, CommandInput, Flow};
use super::command::{Invocation, combined_taint};
use super::output::DISPUTED;
use super::shell::read_script;

/// Interpreters whose code the analysis cannot read. A versioned name such as `python3.11` belongs to
/// its family.
const INTERPRETERS: &[&str] = text_list!("lists/interpreters.txt");

/// Words in a program that pass text to a shell or start a program.
const EXEC_WORDS: &[&str] = text_list!("lists/words-that-execute.txt");

/// Words in a program that turn unreadable data into code.
const DECODE_WORDS: &[&str] = text_list!("lists/words-that-decode.txt");

/// True if `name` is an interpreter.
pub(crate) fn is_interpreter(name: &str) -> bool {
    let family = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
    INTERPRETERS.contains(&name) || (!family.is_empty() && INTERPRETERS.contains(&family))
}

/// True for shells whose language is not a POSIX shell's.
fn is_foreign(name: &str) -> bool {
    matches!(name, "fish" | "csh" | "tcsh" | "elvish" | "nu" | "xonsh" | "zsh")
}

/// True for `-l`, `-i` and clusters with them.
fn starts_interactively(flag: &str) -> bool {
    flag.strip_prefix('-').is_some_and(|f| {
        f.contains(['l', 'i']) && f.bytes().all(|b| b"abcefhiklmnprstuvxBCDEHPT".contains(&b))
    })
}

impl Analysis<'_> {
    /// Follows a shell: its code is read wherever it comes from.
    pub(crate) fn shell_command(&mut self, name: &str, inv: &Invocation) -> Flow {
        let args = &inv.args[1..];
        if args.iter().all(|a| matches!(a.text.as_str(), "--version" | "--help")) && !args.is_empty() {
            self.record_command(&inv.args, None, vec!["catalogue".to_owned()]);
            return Flow::default();
        }
        self.record_command(&inv.args, None, Vec::new());
        self.judge_rules_quietly(name, inv);
        if inv.args[1..].iter().any(|a| a.text == "--login" || starts_interactively(&a.text)) {
            self.require_approval("script", format!("{name} runs start-up files whose content is not shown"));
        }
        if is_foreign(name) {
            self.require_approval(
                "shell-language",
                format!("{name} does not read text the way the analysis does"),
            );
        }
        self.shell_code(name, inv)
    }

    /// Reads code that a program passes to `sh -c`.
    pub(crate) fn run_code(&mut self, args: &[Arg], by: &str) -> Flow {
        let code = self.code_text(args, by);
        code.map_or_else(Flow::default, |code| self.walk_child(&code, Vec::new()))
    }

    /// Reads the code of a shell wherever it comes from.
    fn shell_code(&mut self, name: &str, inv: &Invocation) -> Flow {
        let args = &inv.args[1..];
        let mut code = false;
        let mut stdin = false;
        let mut check_only = false;
        let mut values = Vec::new();
        let mut at = 0;
        while let Some(arg) = args.get(at) {
            let text = arg.text.as_str();
            if arg.may_be_flag() {
                break;
            }
            if text == "--" || text == "-" {
                at += 1;
                break;
            }
            if let Some(long) = text.strip_prefix("--") {
                at += 1;
                if matches!(long, "rcfile" | "init-file") {
                    self.record_draw("a start-up file", Vec::new(), false);
                    self.require_approval("script", "a start-up file is run whose content is not shown");
                    values.push(at);
                    at += 1;
                } else if long == "command" || long.starts_with("command=") {
                    code = true;
                }
                continue;
            }
            let Some(flags) = text.strip_prefix(['-', '+']).filter(|f| !f.is_empty()) else {
                break;
            };
            at += 1;
            code |= text.starts_with('-') && flags.contains('c');
            stdin |= text.starts_with('-') && flags.contains('s');
            check_only |= text.starts_with('-') && flags.contains('n');
            // -o and -O take the next word.
            let named = flags.chars().filter(|c| matches!(c, 'o' | 'O')).count();
            values.extend(at..at + named);
            at += named;
        }
        let (own, rest) = args.split_at(at.min(args.len()));
        self.own_words(name, own, &values, rest);
        // `+n`, or a name after `+o`, turns it off again.
        check_only &= !own.iter().any(|word| word.text.starts_with('+'));
        if code {
            let Some((code, positional)) = rest.split_first() else {
                self.add_denial("syntax", format!("{name} -c needs code"));
                return Flow::default();
            };
            let positional = positional.get(1..).unwrap_or(&[]).to_vec();
            let code = code.clone();
            return match self.code_text(&[code], &format!("{name} -c")) {
                Some(text) => self.walk_child_with(&text, positional, &inv.input),
                None => Flow { shell: true, ..Flow::default() },
            };
        }
        match rest.first() {
            Some(file)
                if !stdin
                    && !matches!(file.text.as_str(), "/dev/stdin" | "/proc/self/fd/0" | "/dev/fd/0") =>
            {
                self.script_file(name, &file.clone(), check_only);
                Flow { shell: true, ..Flow::default() }
            }
            Some(_) | None => self.shell_reads_input(name, &inv.input),
        }
    }

    fn script_file(&mut self, name: &str, file: &Arg, check_only: bool) {
        if file.taint.network {
            self.refuse_download(format!("{name} runs code that comes from the network"));
        }
        if file.taint.decoded {
            self.add_denial("obfuscated", format!("{name} runs decoded data"));
        }
        self.read_path(file);
        self.record_draw(&file.display_text(), Vec::new(), false);
        if !check_only {
            self.facts.opaque = true;
            self.require_approval("script", format!("{name} runs a file whose content is not shown"));
        }
    }

    /// Judges a shell that reads its code from standard input.
    fn shell_reads_input(&mut self, name: &str, input: &CommandInput) -> Flow {
        let taint = input.taint();
        if taint.network {
            self.refuse_download(format!("{name} runs code from the network"));
        }
        if input.is_disputed() {
            self.flag_unsupported(DISPUTED);
        }
        if let Some(text) = input.known_text().map(str::to_owned) {
            // The text of a here-document is in the command; data from a pipe is only as certain as the
            // programs that pass it on.
            if matches!(input, CommandInput::Text(..)) || self.policy.is_open() {
                return self.walk_child(&text, Vec::new());
            }
            self.record_draw(name, Vec::new(), false);
            self.require_approval(
                "stdin-code",
                format!("{name} runs the text it is piped: {:?}", text.trim_end()),
            );
            return Flow { shell: true, ..Flow::default() };
        }
        self.facts.opaque = true;
        self.record_draw(name, Vec::new(), false);
        if taint.decoded {
            self.add_denial("obfuscated", format!("{name} runs decoded data"));
        } else if matches!(input, CommandInput::Text(None, _)) {
            self.add_denial("opaque-code", format!("{name} runs text that is only known when it runs"));
        } else {
            self.require_approval("stdin-code", format!("{name} runs everything that it reads"));
        }
        Flow { shell: true, ..Flow::default() }
    }

    /// Reads the code of a child shell whose commands share its standard input.
    fn walk_child_with(&mut self, text: &str, positional: Vec<Arg>, input: &CommandInput) -> Flow {
        let saved = std::mem::replace(&mut self.child_input, input.clone());
        let flow = self.walk_child(text, positional);
        self.child_input = saved;
        flow
    }

    /// Judges an interpreter: opaque unless it only prints its version.
    pub(crate) fn judge_interpreter(&mut self, name: &str, inv: &Invocation) -> Flow {
        let args = &inv.args[1..];
        let by_name = combined_taint(args);
        self.facts.opaque = true;
        if by_name.network || inv.input.taint().network {
            self.refuse_download(format!("{name} runs code from the network"));
        }
        if by_name.decoded || inv.input.taint().decoded {
            self.add_denial("obfuscated", format!("{name} runs decoded data"));
        }
        self.require_approval("opaque-code", format!("{name} runs code that the analysis cannot read"));
        for arg in args {
            self.scan_code(&arg.text, name);
        }
        if let Some(text) = inv.input.known_text().map(str::to_owned) {
            self.scan_code(&text, name);
        }
        Flow { shell: true, ..Flow::default() }
    }

    /// Looks for hard blocks in the string literals of foreign code. This can only make the decision
    /// stricter; finding none proves nothing.
    pub(crate) fn scan_code(&mut self, code: &str, by: &str) {
        if code.len() < 4 {
            return;
        }
        if DECODE_WORDS.iter().any(|w| code.contains(w))
            && ["exec", "eval", "system", "spawn", "popen", "subprocess", "assert", "compile"]
                .iter()
                .any(|w| code.contains(w))
        {
            self.add_denial("obfuscated", format!("{by} runs decoded data"));
        }
        let connects = ["socket", "/inet/", "fsockopen", "TCPSocket", "net.connect", "createConnection"]
            .iter()
            .any(|w| code.contains(w));
        let shells = ["/bin/sh", "/bin/bash", "\"sh\"", "'sh'", "\"bash\"", "'bash'", "cmd.exe"]
            .iter()
            .any(|w| code.contains(w));
        if connects && shells {
            self.add_hard_block("remote-shell", format!("{by} connects a shell to the network"), None);
        }
        if code.contains("fork while")
            || code.contains("while fork")
            || code.contains("loop { fork")
            || (code.contains("while") && code.contains("os.fork()") && !code.contains("wait"))
        {
            self.add_hard_block("fork-bomb", format!("{by} starts itself without end"), None);
        }
        if !EXEC_WORDS.iter().any(|w| code.contains(w)) {
            return;
        }
        for text in string_literals(code) {
            self.probe_code(&text, by);
        }
        // vi's `:!command`, awk-like and make-like `!command`.
        if let Some((_, command)) = code.split_once('!')
            && (code.starts_with('!') || code.contains(":!"))
        {
            self.probe_code(command, by);
        }
    }

    /// Reads `text` as shell code and adopts any hard block in it.
    pub(crate) fn probe_code(&mut self, text: &str, by: &str) {
        self.probe_text(text, by, false);
    }

    /// Like [`Self::probe_code`]. With `strong_only`, bare words such as `reboot` are ignored, because
    /// the text may be prose.
    pub(crate) fn probe_text(&mut self, text: &str, by: &str, strong_only: bool) {
        const STRONG: &[&str] =
            &["rm-root", "raw-device", "format", "fork-bomb", "remote-shell", "download-run", "kernel"];
        let text = text.trim().trim_start_matches(['!', ':']);
        if text.len() < 4 || self.depth > 12 || self.budget == 0 {
            return;
        }
        self.budget -= 1;
        let mut probe = self.start_probe();
        let Ok(script) = read_script(text, self.policy.limits().nesting) else { return };
        if !script.is_whole {
            return;
        }
        probe.walk_list(&script.list, &CommandInput::Empty);
        let counts = |id: &str| !strong_only || STRONG.contains(&id);
        if let Some(hit) = probe.findings.iter().find(|f| f.code.strip_prefix("hard:").is_some_and(counts)) {
            self.adopt_hard(hit, format!("{by} carries a command that never runs: {}", hit.message));
        }
    }
}

/// String literals of some code, alone and joined if they are items of one list.
fn string_literals(code: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut group: Vec<String> = Vec::new();
    let mut chars = code.chars().peekable();
    let mut between = String::new();
    while let Some(c) = chars.next() {
        if !matches!(c, '"' | '\'' | '`') {
            between.push(c);
            continue;
        }
        let mut text = String::new();
        while let Some(inner) = chars.next() {
            if inner == '\\' {
                match chars.next() {
                    Some('n') => text.push('\n'),
                    Some(other) => text.push(other),
                    None => {}
                }
            } else if inner == c {
                break;
            } else {
                text.push(inner);
            }
        }
        let adjacent = between.chars().all(|c| c.is_whitespace() || matches!(c, ',' | '+' | '.' | '[' | '('));
        if !adjacent && !group.is_empty() {
            out.push(group.join(" "));
            group.clear();
        }
        between.clear();
        group.push(text.clone());
        out.push(text);
    }
    if group.len() > 1 {
        out.push(group.join(" "));
        out.push(group.concat());
    }
    // Perl's q(), qq{}, qx// and Ruby's %x{}, and code without any quotes.
    for (open, close) in [
        ("qx{", '}'),
        ("qx(", ')'),
        ("qx/", '/'),
        ("%x{", '}'),
        ("%x(", ')'),
        ("%x[", ']'),
        ("q{", '}'),
        ("q(", ')'),
        ("qq{", '}'),
        ("qw(", ')'),
        ("[[", ']'),
    ] {
        for (at, _) in code.match_indices(open) {
            let body = &code[at + open.len()..];
            if let Some(end) = body.find(close) {
                out.push(body[..end].to_owned());
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_are_found_alone_and_as_lists() {
        let found = string_literals("subprocess.run(['rm', '-rf', '/'])");
        assert!(found.contains(&"rm -rf /".to_owned()), "{found:?}");
        assert!(string_literals(r#"os.system("rm -rf /")"#).contains(&"rm -rf /".to_owned()));
        assert!(string_literals("exec qx{reboot}").contains(&"reboot".to_owned()));
    }

    #[test]
    fn interpreters_are_known_with_their_versions() {
        assert!(is_interpreter("python3.11"));
        assert!(is_interpreter("perl5.36.0"));
        assert!(is_interpreter("node"));
        assert!(!is_interpreter("pythonista"));
    }
}
