//! The state of one analysis: the findings about a command so far.
//!
//! An analysis follows shell text as every shell would, without running any of it. A value that cannot
//! be known is kept as *unknown*; nothing unknown is ever treated as harmless.

use std::collections::HashMap;
use std::rc::Rc;

use serde::Serialize;

use super::Policy;
use super::decision_env::DecisionEnv;
use super::file::Rule;
use super::paths::{Roots, name_step_home};
use super::shell;
use lobster_base::glob::glob_match;

/// Most nested wrappers that are followed.
pub(crate) const WRAPPER_DEPTH: usize = 8;
/// Most nested code (substitutions, `sh -c`, functions) that is followed.
const CODE_DEPTH: usize = 64;
/// Most simple commands that one analysis judges before it gives up.
const COMMAND_BUDGET: usize = 8_192;
/// Most values that a variable may have before it is treated as unknown.
pub(crate) const MAX_VALUES: usize = 1_024;

/// Most bytes in all values of a variable before it is treated as unknown.
pub(crate) const MAX_VALUE_LEN: usize = 65_536;

/// True if a variable, an array or the positional parameters have more values than are followed.
pub(crate) fn is_too_much(values: &[Arg]) -> bool {
    values.len() > MAX_VALUES || values.iter().map(|value| value.text.len()).sum::<usize>() > MAX_VALUE_LEN
}

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FindingLevel {
    /// A person decides.
    Ask,
    /// Never under a policy file.
    Deny,
    /// Never at all; no rule and no approval can allow it.
    Hard,
}

/// A range of characters in the proposed shell text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TextSpan {
    /// The first character, counted from 0.
    pub start: usize,
    /// The position after the last character.
    pub end: usize,
}

/// A reason against running the command without a question.
#[derive(Clone, Debug)]
pub(crate) struct CommandFinding {
    pub(crate) level: FindingLevel,
    pub(crate) code: String,
    pub(crate) message: String,
    pub(crate) hint: Option<&'static str>,
    pub(crate) span: Option<TextSpan>,
    pub(crate) rule: Option<String>,
}

/// One word of a command after expansion, as far as it can be known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Arg {
    /// Known text; unknown parts are left out.
    pub(crate) text: String,
    /// Some part is unknown.
    pub(crate) unknown: bool,
    /// The word begins with an unknown part.
    pub(crate) unknown_start: bool,
    /// Every unknown part is a variable that nothing in the text sets.
    pub(crate) unset: bool,
    /// Some unknown part is a variable that the environment may set after all.
    pub(crate) inherited: bool,
    /// Position in the text of the first unknown part.
    pub(crate) unknown_at: usize,
    /// Some part was quoted, so the word exists even when empty.
    pub(crate) quoted: bool,
    /// It is one of the words into which an unquoted value was split.
    pub(crate) from_split: bool,
    /// Some unknown part is unquoted or a list: the word may turn into no words or several.
    pub(crate) loose: bool,
    /// It contains an unquoted wildcard.
    pub(crate) glob: bool,
    /// The text is a wildcard that a loop or `set` has replaced by matching names: quotes no longer
    /// protect it.
    pub(crate) matched: bool,
    /// The unknown part is a file name or list item that `find` or `xargs` inserts.
    pub(crate) item: bool,
    /// The unknown part is a number.
    pub(crate) numeric: bool,
    /// The unknown part is a directory whose loss ends the system, or the list of its contents.
    pub(crate) vital: bool,
    /// Process id of the supervisor of the step.
    pub(crate) supervisor: bool,
    /// Origin of the unknown part.
    pub(crate) taint: Taint,
}

/// Origins of data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taint {
    /// Some of it came over the network.
    pub(crate) network: bool,
    /// Some of it was decoded from unreadable data.
    pub(crate) decoded: bool,
}

impl Taint {
    pub(crate) fn join(self, other: Self) -> Self {
        Self { network: self.network || other.network, decoded: self.decoded || other.decoded }
    }
}

impl Arg {
    pub(crate) fn literal(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    pub(crate) fn unknown() -> Self {
        Self { unknown: true, unknown_start: true, ..Self::default() }
    }

    pub(crate) fn unset() -> Self {
        Self { unset: true, ..Self::unknown() }
    }

    /// A variable that neither the text nor the known environment sets. Hard blocks treat it as empty;
    /// no permission follows from that.
    pub(crate) fn inherited() -> Self {
        Self { inherited: true, ..Self::unset() }
    }

    pub(crate) fn unknown_number() -> Self {
        Self { numeric: true, ..Self::unknown() }
    }

    /// The word as a variable holds it after its wildcards are replaced by names.
    pub(crate) fn after_matching(mut self) -> Self {
        self.matched |= self.glob;
        self
    }

    /// True if the text is replaced by the names of files that match it.
    pub(crate) fn stands_for_names(&self) -> bool {
        self.glob || self.matched
    }

    /// True if the word depends on data, such as the output of a command or a file name of unknown
    /// origin. `a[0]` can only become `a0`.
    pub(crate) fn depends_on_data(&self) -> bool {
        self.unknown || (self.stands_for_names() && !has_only_digits_in_brackets(&self.text))
    }

    /// True if it depends on data whether the word is `word`.
    pub(crate) fn may_be(&self, word: &str) -> bool {
        let may_become = self.unknown && !self.numeric && is_within(&self.text, word);
        may_become || (self.stands_for_names() && glob_match(&self.text, word)) || self.text == word
    }

    /// The whole text, if every part is known and no part is, or was, matched against file names.
    pub(crate) fn known_text(&self) -> Option<&str> {
        (!self.unknown && !self.stands_for_names()).then_some(&self.text)
    }

    /// True if the word may become a flag at run time. A number is not a flag, but if it is empty, the
    /// text after it begins the word.
    pub(crate) fn may_be_flag(&self) -> bool {
        let is_number = self.numeric && !self.text.starts_with('-');
        (self.unknown_start && !is_number) || (self.stands_for_names() && self.text.starts_with(WILDCARDS))
    }

    /// True if all shells read this word in the same way.
    pub(crate) fn is_settled(&self) -> bool {
        !self.unknown && !self.stands_for_names() && self.is_one_word()
    }

    /// True if it is exactly one word, whatever its text. An empty unquoted word is no word.
    pub(crate) fn is_one_word(&self) -> bool {
        !self.loose && !self.glob && (self.quoted || self.unknown || !self.text.is_empty())
    }

    /// True if a program is certain to use one of its words in the role that the analysis gives it. A
    /// value attached to an option may be empty, and an operand may be an option; only the separate
    /// value of an option is always used as one.
    pub(crate) fn keeps_its_place(&self, is_separate_value: bool) -> bool {
        self.is_settled() || (is_separate_value && self.is_one_word())
    }

    /// Text for people, with `‹?›` for each unknown part.
    pub(crate) fn display_text(&self) -> String {
        match (self.unknown, self.unknown_start) {
            (false, _) => self.text.clone(),
            (true, true) => format!("‹?›{}", self.text),
            (true, false) => format!("{}‹?›", self.text),
        }
    }
}

/// First characters of file name patterns.
const WILDCARDS: [char; 3] = ['*', '?', '['];

fn has_only_digits_in_brackets(pattern: &str) -> bool {
    let mut parts = pattern.split('[');
    let is_plain = |text: &str| !text.contains(WILDCARDS);
    let is_digits = |part: &str| {
        part.split_once(']').is_some_and(|(inside, behind)| {
            !inside.is_empty() && inside.bytes().all(|b| b.is_ascii_digit()) && is_plain(behind)
        })
    };
    parts.next().is_some_and(is_plain) && parts.all(is_digits)
}

/// True if the characters of `part` occur in `whole` in this order, so that the unknown parts of `part`
/// may be the rest.
fn is_within(part: &str, whole: &str) -> bool {
    let mut rest = whole.chars();
    part.chars().all(|c| rest.any(|other| other == c))
}

/// Contents of a command's standard output.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flow {
    /// Exact text, if it follows from the command alone.
    pub(crate) known: Option<String>,
    pub(crate) taint: Taint,
    /// Either a number or empty.
    pub(crate) numeric: bool,
    /// A shell or interpreter took part without visible code.
    pub(crate) shell: bool,
    /// Shells differ on its escapes, so `known` is one of several readings.
    pub(crate) disputed: bool,
    /// It lists the contents of a directory whose loss ends the system.
    pub(crate) vital: bool,
}

impl Flow {
    pub(crate) fn join(self, other: Self) -> Self {
        Self {
            known: None,
            taint: self.taint.join(other.taint),
            numeric: false,
            shell: self.shell || other.shell,
            disputed: self.disputed || other.disputed,
            vital: self.vital || other.vital,
        }
    }
}

/// Standard input of a command.
#[derive(Clone, Debug, Default)]
pub(crate) enum CommandInput {
    /// Empty: steps start with an empty standard input.
    #[default]
    Empty,
    /// Output of the preceding pipeline.
    Pipe(Flow),
    /// A file.
    File,
    /// A here-document or here-string; `None` when parts are unknown.
    Text(Option<String>, Taint),
}

impl CommandInput {
    pub(crate) fn taint(&self) -> Taint {
        match self {
            Self::Pipe(flow) => flow.taint,
            Self::Text(_, taint) => *taint,
            Self::Empty | Self::File => Taint::default(),
        }
    }

    /// True if shells differ on the known text.
    pub(crate) fn is_disputed(&self) -> bool {
        matches!(self, Self::Pipe(flow) if flow.disputed)
    }

    pub(crate) fn known_text(&self) -> Option<&str> {
        match self {
            Self::Pipe(flow) => flow.known.as_deref(),
            Self::Text(text, _) => text.as_deref(),
            Self::Empty | Self::File => None,
        }
    }
}

/// State that later commands of the same shell see.
#[derive(Clone, Default)]
pub(crate) struct ShellScope {
    /// Possible values by variable; a variable that is not listed has its value from the environment.
    pub(crate) vars: HashMap<String, Vec<Arg>>,
    /// Functions of the text, which are not part of the language.
    pub(crate) functions: HashMap<String, Rc<shell::Command>>,
    pub(crate) positional: Vec<Arg>,
    /// The positional parameters come from an unknown caller.
    pub(crate) positional_unknown: bool,
    pub(crate) cwd: String,
    /// Directories besides the step's own that the shell has entered: after a `cd` that fails or is
    /// skipped, the shell is still in one of them.
    pub(crate) visited: Vec<String>,
    pub(crate) opened: Vec<i32>,
}

/// One simple command that would start, as reported with the decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CommandFact {
    /// Program and arguments, with `‹?›` for each unknown part.
    pub argv: Vec<String>,
    /// File that would run, if it is a trusted program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// Permissions of the command: the ids of matching rules, or `catalogue`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub covered_by: Vec<String>,
    /// Resources that the command uses.
    pub facts: Facts,
}

/// Grounds on which one command of a text runs.
#[derive(Clone, Debug)]
pub(crate) struct Draw<'a> {
    /// Name of the command for messages.
    pub(crate) name: String,
    /// The matching rules, whose rights it draws.
    pub(crate) rules: Vec<&'a Rule>,
    /// It runs because the catalogue knows it.
    pub(crate) catalogued: bool,
}

/// Resources that a command uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Facts {
    /// Paths read, normalised; wildcards are kept.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<String>,
    /// Paths written or removed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub writes: Vec<String>,
    /// The network is used.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub net: bool,
    /// Code runs that the analysis cannot read.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub opaque: bool,
    /// Some word is only known when the command runs.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dynamic: bool,
}

/// State of one analysis.
pub(crate) struct Analysis<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) env: &'a DecisionEnv,
    pub(crate) roots: &'a Roots,
    pub(crate) findings: Vec<CommandFinding>,
    pub(crate) commands: Vec<CommandFact>,
    pub(crate) rules: Vec<&'a Rule>,
    /// Everything that draws rights: programs, and code that the analysis cannot read.
    pub(crate) draws: Vec<Draw<'a>>,
    pub(crate) scope: ShellScope,
    /// Directory in which the command starts.
    pub(crate) start: String,
    /// Functions being followed, each with the number of pipelines and background jobs around it.
    pub(crate) calls: Vec<(String, usize)>,
    /// Nesting depth of code.
    pub(crate) depth: usize,
    /// Nesting depth of wrappers.
    pub(crate) wrapped: usize,
    /// Nesting depth of pipelines and background jobs.
    pub(crate) spread: usize,
    /// Facts about the command being judged.
    pub(crate) facts: Facts,
    pub(crate) budget: usize,
    pub(crate) choice: Option<Choice>,
    /// Standard input of the code that is read next.
    pub(crate) child_input: CommandInput,
    pub(crate) span: Option<TextSpan>,
}

/// Chosen value of each variable in one reading of a command.
#[derive(Clone, Debug, Default)]
pub(crate) struct Choice {
    pub(crate) picks: Vec<Pick>,
    /// Substitutions were already followed in the first reading.
    pub(crate) repeated: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Pick {
    pub(crate) name: String,
    pub(crate) index: usize,
    pub(crate) count: usize,
}

impl Choice {
    /// Index of the value, of `count` possible ones, that `name` has in this reading.
    pub(crate) fn pick_index(&mut self, name: &str, count: usize) -> usize {
        if let Some(pick) = self.picks.iter().find(|pick| pick.name == name) {
            return pick.index;
        }
        self.picks.push(Pick { name: name.to_owned(), index: 0, count });
        0
    }

    /// Moves to the next combination; false when all have been read.
    pub(crate) fn next_combination(&mut self) -> bool {
        self.repeated = true;
        while let Some(last) = self.picks.last_mut() {
            last.index += 1;
            if last.index < last.count {
                return true;
            }
            self.picks.pop();
        }
        false
    }
}

impl<'a> Analysis<'a> {
    pub(crate) fn new(policy: &'a Policy, env: &'a DecisionEnv, roots: &'a Roots, cwd: String) -> Self {
        Self {
            policy,
            env,
            roots,
            findings: Vec::new(),
            commands: Vec::new(),
            rules: Vec::new(),
            draws: Vec::new(),
            start: cwd.clone(),
            scope: ShellScope { cwd, ..ShellScope::default() },
            calls: Vec::new(),
            depth: 0,
            wrapped: 0,
            spread: 0,
            facts: Facts::default(),
            budget: COMMAND_BUDGET,
            choice: None,
            child_input: CommandInput::Empty,
            span: None,
        }
    }

    /// A new analysis of a text inside this one, in the same place.
    pub(crate) fn start_probe(&self) -> Self {
        let mut probe = Self::new(self.policy, self.env, self.roots, self.scope.cwd.clone());
        probe.scope.vars.clone_from(&self.scope.vars);
        probe.scope.visited.clone_from(&self.scope.visited);
        probe.depth = self.depth + 1;
        probe.wrapped = self.wrapped;
        probe.budget = self.budget / 4;
        probe
    }

    fn report_finding(
        &mut self,
        level: FindingLevel,
        code: impl Into<String>,
        message: impl Into<String>,
        hint: Option<&'static str>,
    ) {
        let (code, message) = (code.into(), message.into());
        self.add_finding(CommandFinding { level, code, message, hint, span: self.span, rule: None });
    }

    pub(crate) fn add_finding(&mut self, mut finding: CommandFinding) {
        finding.message = name_step_home(&finding.message);
        let known = |f: &CommandFinding| {
            f.level == finding.level && f.code == finding.code && f.message == finding.message
        };
        if !self.findings.iter().any(known) {
            self.findings.push(finding);
        }
    }

    pub(crate) fn require_approval(&mut self, code: &str, message: impl Into<String>) {
        self.report_finding(FindingLevel::Ask, code, message, None);
    }

    pub(crate) fn ask_hint(&mut self, code: &str, message: impl Into<String>, hint: &'static str) {
        self.report_finding(FindingLevel::Ask, code, message, Some(hint));
    }

    pub(crate) fn add_denial(&mut self, code: &str, message: impl Into<String>) {
        self.report_finding(FindingLevel::Deny, code, message, None);
    }

    pub(crate) fn deny_hint(&mut self, code: &str, message: impl Into<String>, hint: &'static str) {
        self.report_finding(FindingLevel::Deny, code, message, Some(hint));
    }

    pub(crate) fn add_hard_block(
        &mut self,
        id: &str,
        message: impl Into<String>,
        hint: Option<&'static str>,
    ) {
        self.report_finding(FindingLevel::Hard, format!("hard:{id}"), message, hint);
    }

    /// Adopts a hard block that another analysis found; its other findings are left out.
    pub(crate) fn adopt_hard(&mut self, found: &CommandFinding, message: impl Into<String>) {
        if found.level == FindingLevel::Hard {
            self.report_finding(found.level, found.code.clone(), message, found.hint);
        }
    }

    pub(crate) fn by_rule(&mut self, level: FindingLevel, rule: &Rule, message: String) {
        self.report_finding(level, format!("rule:{}", rule.id), message, None);
        if let Some(last) = self.findings.last_mut() {
            last.rule = Some(rule.id.clone());
        }
    }

    /// Records that `name` runs and on which grounds.
    pub(crate) fn record_draw(&mut self, name: &str, rules: Vec<&'a Rule>, catalogued: bool) {
        let draw = Draw { name: name.to_owned(), rules, catalogued };
        let is_same = |own: &Draw<'_>| {
            (own.catalogued, &own.name) == (draw.catalogued, &draw.name)
                && own.rules.len() == draw.rules.len()
                && own.rules.iter().zip(&draw.rules).all(|(a, b)| std::ptr::eq(*a, *b))
        };
        if !self.draws.iter().any(is_same) {
            self.draws.push(draw);
        }
    }

    /// The first hard finding, if there is one.
    pub(crate) fn hard_finding(&self) -> Option<&CommandFinding> {
        self.findings.iter().find(|f| f.level == FindingLevel::Hard)
    }

    /// Runs `inside` one level deeper, or refuses.
    pub(crate) fn one_level_deeper<T: Default>(&mut self, inside: impl FnOnce(&mut Self) -> T) -> T {
        if self.depth >= CODE_DEPTH.min(self.policy.limits().nesting) {
            self.add_denial("limit:nesting", "code is nested too deeply to be read");
            return T::default();
        }
        self.depth += 1;
        let out = inside(self);
        self.depth -= 1;
        out
    }

    /// Runs `inside` in a copy of the scope, as a subshell would.
    pub(crate) fn in_subshell<T>(&mut self, inside: impl FnOnce(&mut Self) -> T) -> T {
        let saved = self.scope.clone();
        let out = inside(self);
        self.scope = saved;
        out
    }

    /// Counts one command; false if the analysis has to give up.
    pub(crate) fn count_command(&mut self) -> bool {
        if self.budget == 0 {
            self.add_denial("limit:commands", "there are too many commands to be read");
            return false;
        }
        self.budget -= 1;
        true
    }
}
