//! Values over time: what a variable may hold whenever a command runs.
//!
//! The walk follows a text from its beginning to its end. Traps, recursion,
//! later turns of a loop, `return`, local variables, and lines that bash gives
//! up half-way run in another order. So what would be allowed is read again,
//! with every variable holding any value that the text ever gives it. That can
//! only raise a question.

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};

use brush_parser::ast;

use super::Policy;
use super::analysis::{Analysis, Arg, is_too_much};
use super::decide::Proposal;
use super::expand::is_set_by_shell;

/// Readings after which variables whose values keep changing count as unknown.
const EXACT_READINGS: usize = 3;
/// Readings before a person is asked.
const MOST_READINGS: usize = 8;

/// Values at different times that are followed: each reading of a command
/// takes one of each variable.
const MOST_VALUES: usize = 16;

/// What a text assigns, wherever it does so.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Assigned {
    values: BTreeMap<String, Vec<Arg>>,
    /// The elements of each array; `None` if it holds several lists in turn.
    arrays: BTreeMap<String, Option<Vec<Arg>>>,
    /// Variables whose values bash evaluates as arithmetic.
    pub(crate) integers: BTreeSet<String>,
    /// Variables that are declared to be arrays.
    pub(crate) declared_arrays: BTreeSet<String>,
    /// Functions that are defined.
    pub(crate) functions: BTreeSet<String>,
    /// Variables that are assigned where the text may not come, or come again.
    unsteady: BTreeSet<String>,
    /// Some code runs at a time that is not known.
    pub(crate) has_trap: bool,
    /// Some name is made read-only, so that an assignment may fail.
    pub(crate) has_readonly: bool,
}

impl Assigned {
    pub(crate) fn record(&mut self, name: &str, value: &Arg) {
        let values = self.values.entry(name.to_owned()).or_default();
        if values.first() == Some(&Arg::unknown()) || values.contains(value) {
            return;
        }
        values.push(value.clone());
        if *value == Arg::unknown() || values.len() > MOST_VALUES || is_too_much(values) {
            *values = vec![Arg::unknown()];
        }
    }

    pub(crate) fn record_array(&mut self, name: &str, elements: &[Arg]) {
        match self.arrays.entry(name.to_owned()) {
            Entry::Vacant(entry) => {
                entry.insert(Some(elements.to_vec()));
            }
            Entry::Occupied(mut entry) if entry.get().as_deref() != Some(elements) => {
                entry.insert(None);
            }
            Entry::Occupied(_) => {}
        }
    }

    pub(crate) fn values(&self, name: &str) -> Option<&[Arg]> {
        self.values.get(name).map(Vec::as_slice)
    }

    /// Whether an array ever holds but one list.
    pub(crate) fn has_one_list(&self, name: &str) -> bool {
        !self.values.contains_key(name) && matches!(self.arrays.get(name), Some(Some(_)))
    }

    /// Whether what `name` is given by a declaration may be read as a list.
    pub(crate) fn may_be_array(&self, name: &str) -> bool {
        self.declared_arrays.contains(name) || self.has_array(name)
    }

    pub(crate) fn has_array(&self, name: &str) -> bool {
        self.arrays.contains_key(name)
    }

    /// Whether the walk knows the value of `name` wherever it comes to it.
    pub(crate) fn is_steady(&self, name: &str) -> bool {
        !self.has_trap && !self.has_readonly && !self.unsteady.contains(name)
    }

    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Gives up on the variables that have got more values since `before`.
    fn give_up_on_growing(&mut self, before: &Self) {
        for (name, values) in &mut self.values {
            if before.values.get(name) != Some(values) {
                *values = vec![Arg::unknown()];
            }
        }
    }
}

impl Policy {
    /// Asks where an allowed text does something else if its variables have
    /// another of their values.
    pub(super) fn judge_at_any_time<'a>(&'a self, analysis: &mut Analysis<'a>, proposal: &Proposal) {
        if self.is_open() || !analysis.findings.is_empty() || analysis.assigned.is_empty() {
            return;
        }
        let mut assigned = analysis.assigned.clone();
        for reading in 0..MOST_READINGS {
            let start = analysis.start.clone();
            let mut again = Analysis::new(self, analysis.env, analysis.roots, start);
            again.at_any_time = true;
            again.assigned = assigned.clone();
            self.walk(&mut again, proposal);
            if let Some(finding) = again.findings.into_iter().max_by_key(|finding| finding.level) {
                analysis.span = finding.span;
                let message =
                    format!("with another value that a variable has at some time: {}", finding.message);
                analysis.ask("variable-time", message);
                return;
            }
            if let Some(draw) = again.draws.iter().find(|draw| !analysis.has_draw(draw)) {
                let message = format!("a variable has a value at some time with which {} runs", draw.name);
                analysis.ask("variable-time", message);
                return;
            }
            if again.assigned == assigned {
                return;
            }
            if reading >= EXACT_READINGS {
                again.assigned.give_up_on_growing(&assigned);
            }
            assigned = again.assigned;
        }
        analysis.ask("variable-time", "the values of the text's variables cannot be followed");
    }
}

impl Analysis<'_> {
    /// What the beginning of a line assigns before anything in it can fail, and
    /// whether that is the whole line.
    pub(crate) fn sure_part(&self, list: &ast::CompoundList) -> (Vec<String>, bool) {
        let mut names = Vec::new();
        if self.assigned.has_readonly || !self.assigned.integers.is_empty() {
            return (names, false);
        }
        for ast::CompoundListItem(and_or, separator) in &list.0 {
            let ([command], ast::SeparatorOperator::Sequence, true) =
                (and_or.first.seq.as_slice(), separator, and_or.additional.is_empty())
            else {
                return (names, false);
            };
            match command {
                ast::Command::Function(function) => names.push(format!("{}()", function.fname.value)),
                ast::Command::Simple(simple) if cannot_fail(simple) => {
                    let assigned = assigned_names(simple);
                    if assigned.iter().any(|name| is_set_by_shell(name)) {
                        return (names, false);
                    }
                    names.extend(assigned);
                }
                ast::Command::Simple(_) | ast::Command::Compound(..) | ast::Command::ExtendedTest(..) => {
                    return (names, false);
                }
            }
        }
        (names, true)
    }

    /// A child process gets what is exported; of the rest, what its environment has.
    pub(crate) fn forget_unexported(&mut self) {
        let names: Vec<String> = self.scope.vars.keys().cloned().collect();
        for name in names.iter().filter(|name| !self.scope.exported.contains(*name)) {
            let initial = self.initial(name);
            if let Some(values) = self.scope.vars.get_mut(name)
                && !values.contains(&initial)
            {
                values.push(initial);
            }
        }
        self.scope.arrays.clear();
    }

    /// Runs `inside` as something whose end may not be reached.
    pub(crate) fn uncertain<T>(&mut self, inside: impl FnOnce(&mut Self) -> T) -> T {
        let certain = self.scope.certain.clone();
        let positional = self.scope.positional.clone();
        let earlier = self.assigned_in_line.len();
        let out = inside(self);
        self.scope.certain = certain;
        let later = self.assigned_in_line.get(earlier..).unwrap_or_default();
        self.assigned.unsteady.extend(later.iter().cloned());
        if self.scope.positional != positional {
            self.doubt_positional();
        }
        out
    }

    /// Judges one line, which bash gives up where an expansion in it fails; it
    /// then reads the next one.
    pub(crate) fn line<T>(&mut self, list: &ast::CompoundList, inside: impl FnOnce(&mut Self) -> T) -> T {
        let mut certain = self.scope.certain.clone();
        let positional = self.scope.positional.clone();
        let earlier = self.assigned_in_line.len();
        let out = inside(self);
        let (sure, whole) = self.sure_part(list);
        let later = self.assigned_in_line.get(earlier..).unwrap_or_default();
        let unsure = later.iter().filter(|name| !whole && count(later, name) > count(&sure, name));
        self.assigned.unsteady.extend(unsure.cloned());
        certain.extend(sure.into_iter().filter(|name| self.scope.certain.contains(name)));
        self.scope.certain = certain;
        if !whole && self.scope.positional != positional {
            self.doubt_positional();
        }
        out
    }

    fn doubt_positional(&mut self) {
        if self.at_any_time {
            self.scope.positional.clear();
            self.scope.positional_unknown = true;
        }
    }

    /// Notes that a command gives `name` a value.
    pub(crate) fn note_assigned(&mut self, name: &str) {
        self.assigned_in_line.push(name.to_owned());
        if !self.calls.is_empty() {
            self.assigned.unsteady.insert(name.to_owned());
        }
        self.scope.certain.insert(name.to_owned());
    }
}

fn count(names: &[String], name: &str) -> usize {
    names.iter().filter(|other| *other == name).count()
}

/// Whether a command is assignments of plain text, or `set` with plain words: no
/// expansion in it can fail.
fn cannot_fail(simple: &ast::SimpleCommand) -> bool {
    let prefix = simple.prefix.iter().flat_map(|prefix| &prefix.0);
    let suffix = simple.suffix.iter().flat_map(|suffix| &suffix.0);
    // Wildcards that match nothing can be made an error.
    let is_plain = |text: &str| !text.contains(['$', '`', '*', '?', '[']);
    simple.word_or_name.as_ref().is_none_or(|word| word.value == "set")
        && prefix.chain(suffix).all(|item| match item {
            ast::CommandPrefixOrSuffixItem::AssignmentWord(assignment, word) => {
                is_plain(&word.value) && matches!(assignment.name, ast::AssignmentName::VariableName(_))
            }
            ast::CommandPrefixOrSuffixItem::Word(word) => is_plain(&word.value),
            ast::CommandPrefixOrSuffixItem::IoRedirect(_)
            | ast::CommandPrefixOrSuffixItem::ProcessSubstitution(..) => false,
        })
}

fn assigned_names(simple: &ast::SimpleCommand) -> Vec<String> {
    let prefix = simple.prefix.iter().flat_map(|prefix| &prefix.0);
    let names = prefix.filter_map(|item| match item {
        ast::CommandPrefixOrSuffixItem::AssignmentWord(assignment, _) => match &assignment.name {
            ast::AssignmentName::VariableName(name) => Some(name.clone()),
            ast::AssignmentName::ArrayElementName(..) => None,
        },
        ast::CommandPrefixOrSuffixItem::IoRedirect(_)
        | ast::CommandPrefixOrSuffixItem::Word(_)
        | ast::CommandPrefixOrSuffixItem::ProcessSubstitution(..) => None,
    });
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::super::{DecisionEnv, Dialect, Shell, Verdict};
    use super::*;

    fn verdict(text: &str, dialect: Dialect) -> (Verdict, String) {
        let policy = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/policy/example.toml");
        let policy = Policy::load(&std::fs::read_to_string(policy).unwrap(), "example.toml").unwrap();
        let env = DecisionEnv::fixture().with_shell(Shell::example(dialect));
        let decision = policy.decide(&Proposal::shell(text), &env);
        (decision.verdict, decision.message)
    }

    #[test]
    fn a_variable_with_one_value_at_all_times_is_followed() {
        for text in [
            "X=docker; $X ps",
            "X=docker\n$X ps",
            "set -eu\nX=docker\nY=ps\n$X $Y",
            "X=a.txt; cat $X; X=b.txt; cat $X",
            "d=src; for f in a b; do ls \"$d\" \"$f\"; done",
            "d=src; if test -d \"$d\"; then ls \"$d\"; fi",
            "f() { ls src; }; f",
            "n=0; while [ \"$n\" -lt 3 ]; do echo \"$n\"; n=$((n + 1)); done",
            "set -- a.txt; cat \"$1\"",
            "echo \"${NAME:-nobody}\"",
            "s=; for i in a b; do s=$s$i; done; echo \"$s\"",
        ] {
            for dialect in [Dialect::Dash, Dialect::Ash, Dialect::Bash] {
                let (verdict, message) = verdict(text, dialect);
                assert_eq!(verdict, Verdict::Allow, "{dialect:?} {text}: {message}");
            }
        }
        for text in ["a=(a.txt); a+=(b.txt); cat \"${a[@]}\"", "declare -i n=1; echo $n"] {
            let (verdict, message) = verdict(text, Dialect::Bash);
            assert_eq!(verdict, Verdict::Allow, "{text}: {message}");
        }
    }

    /// In every shell, whatever the language of the text is.
    #[test]
    fn a_variable_with_other_values_at_other_times_asks() {
        for text in [
            "X=${LOBSTER_RUN_ID:+./evil}; ${X:-docker} ps",
            "X=./evil; f() { local X=cat; }; f; $X README.md",
            "X=cat; trap '$X README.md' EXIT; X=./evil",
            "A=cat; B=cat; for i in 1 2 3; do $A README.md; A=$B; B=./evil; done",
            "X=cat; f() { $X README.md; X=./evil; f; }; f",
            "X=./evil; g() { return; X=cat; }; g; $X README.md",
            "g() { return; python3() { :; }; }; g; python3 -c x",
            "X=cat; sh -c '$X ./evil'",
            "set -- cat; for i in 1 2; do $1 README.md; set -- ./evil; done",
        ] {
            for dialect in [Dialect::Dash, Dialect::Ash, Dialect::Bash] {
                assert_ne!(verdict(text, dialect).0, Verdict::Allow, "{dialect:?} {text}");
            }
        }
    }

    /// However a text makes its values grow, what is kept of them stays small.
    #[test]
    fn values_that_grow_become_unknown() {
        for step in ["x=$x$x", "a+=(\"${a[@]}\")", "set -- \"$@\" \"$@\"", "x=$x$y; y=$y$x"] {
            let text =
                format!("x=0123456789; y=$x; a=(1 2); set -- 1 2; {}echo $x", format!("{step}; ").repeat(24));
            verdict(&text, Dialect::Bash);
            verdict(&format!("x=0123456789; y=$x; while :; do {step}; done"), Dialect::Bash);
        }
        let mut assigned = Assigned::default();
        for n in 0..2 * MOST_VALUES {
            assigned.record("x", &Arg::literal("a".repeat(n)));
        }
        assert_eq!(assigned.values("x"), Some(&[Arg::unknown()][..]));
    }

    #[test]
    fn hard_blocks_still_take_unknown_variables_for_unset() {
        let open = Policy::builtin();
        for text in ["rm -rf \"$UNSET\"/", "${X:-rm} -rf /", "X=\"$UNSET\"rm; $X -rf /", "rm -rf ${X:-/}"] {
            let decision = open.decide(&Proposal::shell(text), &DecisionEnv::fixture());
            assert!(decision.reason_code.starts_with("hard:"), "{text}: {}", decision.reason_code);
        }
    }
}
