//! Path patterns, matched name by name while directories are walked.
//!
//! They have the same meaning as in the policy: `**` matches any number of names, a name may contain
//! wildcards, a pattern covers the path it names and all paths below, and the last pattern that covers a path
//! decides.

use std::collections::HashMap;
use std::rc::Rc;

use lobster_base::glob::glob_match;

/// The wildcards of a name.
const WILDCARDS: [char; 4] = ['*', '?', '[', '\\'];

/// A list of patterns, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Patterns(Vec<Pattern>);

#[derive(Clone, Debug)]
struct Pattern {
    /// Excludes paths that earlier patterns cover.
    negated: bool,
    parts: Vec<Part>,
}

#[derive(Clone, Debug)]
enum Part {
    /// `**`
    Deep,
    Name(String),
    /// A name with wildcards; `prefix` precedes the first wildcard and `suffix` follows the last.
    Glob {
        text: String,
        prefix: String,
        suffix: String,
    },
}

/// Progress of each pattern along one path: if bit `n` is set, its first `n` parts have matched.
pub(super) type Progress = Vec<u64>;

/// A pattern part to compare with the next name of a path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Test {
    pattern: usize,
    part: usize,
}

/// More parts than a path of 4,096 bytes is likely to have; one bit is for the end.
const MOST_PARTS: usize = 63;

impl Patterns {
    /// Reads patterns such as `**/.env`, `/srv/*/key` and `!**/.env.example`.
    ///
    /// # Errors
    /// The first pattern with more than [`MOST_PARTS`] parts.
    pub(super) fn new(texts: &[String]) -> Result<Self, &str> {
        let patterns = texts.iter().map(|text| {
            let (negated, path) = text.strip_prefix('!').map_or((false, text.as_str()), |rest| (true, rest));
            let parts: Vec<Part> = path.split('/').filter(|name| !name.is_empty()).map(Part::new).collect();
            if parts.len() > MOST_PARTS { Err(text.as_str()) } else { Ok(Pattern { negated, parts }) }
        });
        patterns.collect::<Result<_, _>>().map(Self)
    }

    /// The progress at the root directory.
    pub(super) fn at_root(&self) -> Progress {
        self.0.iter().map(|pattern| pattern.epsilon_closure(1)).collect()
    }

    /// The progress after one more name.
    pub(super) fn after_name(&self, from: &[u64], name: &[u8]) -> Progress {
        let mut to = self.carried_progress(from);
        for test in self.pending_tests(from) {
            if self.passes(test, name) {
                self.record_pass(&mut to, test);
            }
        }
        to
    }

    /// The progress along a whole path.
    pub(super) fn along_path<'a>(&self, names: impl IntoIterator<Item = &'a [u8]>) -> Progress {
        names.into_iter().fold(self.at_root(), |progress, name| self.after_name(&progress, name))
    }

    /// The progress that remains for any next name.
    pub(super) fn carried_progress(&self, from: &[u64]) -> Progress {
        let carried = self.0.iter().zip(from).map(|(pattern, bits)| {
            let lasting = (0..pattern.parts.len())
                .filter(|part| bits >> part & 1 == 1 && matches!(pattern.parts[*part], Part::Deep))
                .fold(bits & pattern.end_bit(), |kept, part| kept | 1 << part);
            pattern.epsilon_closure(lasting)
        });
        carried.collect()
    }

    /// Parts to compare with the next name.
    pub(super) fn pending_tests(&self, from: &[u64]) -> Vec<Test> {
        let mut tests = Vec::new();
        for (index, (pattern, bits)) in self.0.iter().zip(from).enumerate() {
            for (part, kind) in pattern.parts.iter().enumerate() {
                if bits >> part & 1 == 1 && !matches!(kind, Part::Deep) {
                    tests.push(Test { pattern: index, part });
                }
            }
        }
        tests
    }

    pub(super) fn passes(&self, test: Test, name: &[u8]) -> bool {
        match &self.0[test.pattern].parts[test.part] {
            Part::Deep => false,
            Part::Name(wanted) => wanted.as_bytes() == name,
            Part::Glob { text, prefix, suffix } => {
                name.starts_with(prefix.as_bytes())
                    && name.ends_with(suffix.as_bytes())
                    && glob_match(text, &String::from_utf8_lossy(name))
            }
        }
    }

    /// Records that the test was passed.
    pub(super) fn record_pass(&self, progress: &mut [u64], test: Test) {
        let pattern = &self.0[test.pattern];
        progress[test.pattern] |= pattern.epsilon_closure(1 << (test.part + 1));
    }

    /// True if the patterns as a whole cover the path.
    pub(super) fn is_hit(&self, progress: &[u64]) -> bool {
        let mut covering =
            self.0.iter().zip(progress).rev().filter(|(pattern, bits)| *bits & pattern.end_bit() != 0);
        covering.next().is_some_and(|(pattern, _)| !pattern.negated)
    }

    /// True if the patterns may cover a path below that they do not cover here.
    pub(super) fn may_hit_below(&self, progress: &[u64]) -> bool {
        self.0.iter().zip(progress).any(|(pattern, bits)| !pattern.negated && bits & !pattern.end_bit() != 0)
    }

    /// True if the patterns may exclude a path below that they cover here.
    pub(super) fn may_except_below(&self, progress: &[u64]) -> bool {
        self.0.iter().zip(progress).any(|(pattern, bits)| pattern.negated && bits & !pattern.end_bit() != 0)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A state of a walk: places that the patterns cannot distinguish share one.
pub(super) type StateId = usize;

/// Patterns with one precomputed state for all places of equal progress. Nearly all directories of a tree
/// share a state.
#[derive(Debug)]
pub(super) struct Walk {
    patterns: Patterns,
    states: Vec<Rc<State>>,
    numbers: HashMap<Progress, StateId>,
    /// The state after a name that no pattern matches.
    carried: Vec<Option<StateId>>,
    names: Names,
}

/// Results of the patterns at a place.
#[derive(Debug)]
pub(super) struct State {
    progress: Progress,
    tests: Vec<Test>,
    pub(super) is_hit: bool,
    pub(super) may_hit_below: bool,
    pub(super) may_except_below: bool,
}

impl Walk {
    pub(super) fn new(patterns: Patterns) -> Self {
        let names = Names::new(&patterns);
        Self { patterns, states: Vec::new(), numbers: HashMap::new(), carried: Vec::new(), names }
    }

    pub(super) fn patterns(&self) -> &Patterns {
        &self.patterns
    }

    /// Names that any of the patterns may match.
    pub(super) fn matchable_names(&self) -> &Names {
        &self.names
    }

    pub(super) fn get(&self, state: StateId) -> Rc<State> {
        Rc::clone(&self.states[state])
    }

    /// The state of this progress.
    pub(super) fn intern_state(&mut self, progress: Progress) -> StateId {
        if let Some(state) = self.numbers.get(&progress) {
            return *state;
        }
        let state = State {
            tests: self.patterns.pending_tests(&progress),
            is_hit: self.patterns.is_hit(&progress),
            may_hit_below: self.patterns.may_hit_below(&progress),
            may_except_below: self.patterns.may_except_below(&progress),
            progress: progress.clone(),
        };
        self.states.push(Rc::new(state));
        self.carried.push(None);
        self.numbers.insert(progress, self.states.len() - 1);
        self.states.len() - 1
    }

    /// The state after one more name, and true if a pattern matched the name.
    pub(super) fn after_name(&mut self, from: StateId, name: &[u8]) -> (StateId, bool) {
        if self.names.may_be(name) {
            let state = self.get(from);
            let mut passed = state.tests.iter().filter(|test| self.patterns.passes(**test, name)).peekable();
            if passed.peek().is_some() {
                let mut progress = self.patterns.carried_progress(&state.progress);
                passed.for_each(|test| self.patterns.record_pass(&mut progress, *test));
                return (self.intern_state(progress), true);
            }
        }
        if let Some(carried) = self.carried[from] {
            return (carried, false);
        }
        let carried = self.intern_state(self.patterns.carried_progress(&self.states[from].progress));
        self.carried[from] = Some(carried);
        (carried, false)
    }
}

/// Quick test by first and last byte that no pattern matches a name anywhere.
#[derive(Debug)]
pub(super) struct Names {
    first: [bool; 256],
    last: [bool; 256],
    /// True if a pattern matches names that begin and end with any byte.
    any: bool,
}

impl Names {
    fn new(patterns: &Patterns) -> Self {
        let mut names = Self { first: [false; 256], last: [false; 256], any: false };
        for part in patterns.0.iter().flat_map(|pattern| &pattern.parts) {
            let (prefix, suffix) = match part {
                Part::Deep => continue,
                Part::Name(name) => (name, name),
                Part::Glob { prefix, suffix, .. } => (prefix, suffix),
            };
            match (prefix.bytes().next(), suffix.bytes().last()) {
                (Some(first), _) => names.first[usize::from(first)] = true,
                (None, Some(last)) => names.last[usize::from(last)] = true,
                (None, None) => names.any = true,
            }
        }
        names
    }

    pub(super) fn may_be(&self, name: &[u8]) -> bool {
        let (Some(first), Some(last)) = (name.first(), name.last()) else { return self.any };
        self.any || self.first[usize::from(*first)] || self.last[usize::from(*last)]
    }
}

impl Pattern {
    fn end_bit(&self) -> u64 {
        1 << self.parts.len()
    }

    /// Lets `**` match no name at all.
    fn epsilon_closure(&self, mut bits: u64) -> u64 {
        for (part, kind) in self.parts.iter().enumerate() {
            if bits >> part & 1 == 1 && matches!(kind, Part::Deep) {
                bits |= 1 << (part + 1);
            }
        }
        bits
    }
}

impl Part {
    fn new(name: &str) -> Self {
        if name == "**" {
            return Self::Deep;
        }
        match (name.find(WILDCARDS), name.rfind(WILDCARDS)) {
            (Some(first), Some(last)) => {
                // The text after the last `[` or `\` is not literal.
                let plain_end = !name.contains(['[', '\\']);
                Self::Glob {
                    text: name.to_owned(),
                    prefix: name[..first].to_owned(),
                    suffix: if plain_end { name[last + 1..].to_owned() } else { String::new() },
                }
            }
            _ => Self::Name(name.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches_path(patterns: &[&str], path: &str) -> bool {
        let texts: Vec<String> = patterns.iter().map(|text| (*text).to_owned()).collect();
        let patterns = Patterns::new(&texts).unwrap();
        let names = path.split('/').filter(|name| !name.is_empty()).map(str::as_bytes);
        patterns.is_hit(&patterns.along_path(names))
    }

    #[test]
    fn a_pattern_covers_what_it_names_and_all_below() {
        assert!(matches_path(&["**/.env"], "/.env"));
        assert!(matches_path(&["**/.env"], "/a/b/.env/c"));
        assert!(!matches_path(&["**/.env"], "/a/.env2"));
        assert!(matches_path(&["/srv/*/key"], "/srv/x/key"));
        assert!(!matches_path(&["/srv/*/key"], "/srv/x/y/key"));
        assert!(matches_path(&["**/a/**/b"], "/x/a/y/a/z/b"));
        assert!(matches_path(&["/**"], "/x"));
        assert!(matches_path(&["**/k[ab]*.pem"], "/x/kb1.pem"));
        assert!(!matches_path(&["**/k[ab]*.pem"], "/x/kc1.pem"));
    }

    #[test]
    fn the_last_pattern_that_covers_decides() {
        let env = ["**/.env", "**/.env.*", "!**/.env.example"];
        assert!(matches_path(&env, "/w/.env.local"));
        assert!(!matches_path(&env, "/w/.env.example"));
        assert!(matches_path(&["!**/.env.example", "**/.env.*"], "/w/.env.example"));
        assert!(!matches_path(&["**/.ssh", "!**/.ssh/config"], "/h/.ssh/config"));
        assert!(matches_path(&["**/.ssh", "!**/.ssh/config"], "/h/.ssh/id"));
    }

    #[test]
    fn a_walk_goes_where_the_patterns_go() {
        let texts =
            ["**/.env", "!**/.env.*", "**/*.pem", "/a/*/c", "**/k[ab]?", "**/x/**/y"].map(str::to_owned);
        let patterns = Patterns::new(&texts).unwrap();
        let mut walk = Walk::new(patterns.clone());
        let names = ["a", "b", "c", ".env", ".env.x", "k.pem", "ka1", "x", "y", "z"];
        for number in 0..10_000_usize {
            let path: Vec<&[u8]> =
                (0..4).map(|place| names[number / 10_usize.pow(place) % 10].as_bytes()).collect();
            let progress = patterns.along_path(path.iter().copied());
            let root = walk.intern_state(patterns.at_root());
            let state = path.iter().fold(root, |state, name| walk.after_name(state, name).0);
            assert_eq!(walk.get(state).progress, progress, "{path:?}");
            assert_eq!(walk.get(state).is_hit, patterns.is_hit(&progress));
        }
        assert!(walk.states.len() < 1_000);
    }

    #[test]
    fn a_pattern_of_too_many_parts_is_named() {
        let long = "/a".repeat(64);
        assert_eq!(Patterns::new(std::slice::from_ref(&long)).unwrap_err(), long);
    }
}
