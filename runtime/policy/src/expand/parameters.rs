//! `${…}`: what a parameter expansion gives.

use brush_parser::word::{
    Parameter, ParameterExpr, ParameterTestType, ParameterTransformOp, SpecialParameter, SubstringMatchKind,
};

use super::super::analysis::{Analysis, Arg};
use super::{is_name, joined};
use lobster_base::glob::glob_match;

/// The choice between an environment that sets none of the unknown variables and one that may set all.
const ENVIRONMENT: &str = "";

impl Analysis<'_> {
    /// Carries out the assignment of `${x:=word}`.
    fn assign_default(&mut self, parameter: &Parameter, value: Arg) {
        match parameter {
            Parameter::Named(name) => self.maybe(|a| a.assign(name, value)),
            Parameter::NamedWithIndex { name, .. } | Parameter::NamedWithAllIndices { name, .. } => {
                self.check_assignment(name, &value);
                if self.is_integer(name) {
                    self.arithmetic_data(&value);
                }
                self.set_array(name, vec![Arg::unknown()]);
            }
            Parameter::Positional(_) | Parameter::Special(_) => {}
        }
    }

    fn indirect(&mut self, values: Vec<Arg>, indirect: bool) -> Vec<Arg> {
        if !indirect {
            return values;
        }
        for name in &values {
            self.refuse_subscript(name);
        }
        match values.first().and_then(Arg::known).map(str::to_owned) {
            Some(name) if is_name(&name) => vec![self.variable(&name)],
            Some(_) | None => vec![Arg::unknown()],
        }
    }

    /// What `${x:-word}` and its like become: whether `x` is set decides.
    fn by_presence(
        &mut self,
        values: &[Arg],
        set: Vec<Arg>,
        not_set: Vec<Arg>,
        test: &ParameterTestType,
    ) -> Vec<Arg> {
        match values {
            [] => not_set,
            [value] if value.unset && value.text.is_empty() => {
                if !value.inherited {
                    return not_set;
                }
                match self.choice.as_mut().map(|choice| choice.pick(ENVIRONMENT, 2)) {
                    Some(0) => not_set,
                    Some(_) => vec![Arg::unknown()],
                    // Hard blocks take it for not set; for all else it is unknown.
                    None => not_set
                        .into_iter()
                        .map(|word| Arg {
                            unknown: true,
                            unknown_start: true,
                            unset: true,
                            inherited: true,
                            ..word
                        })
                        .collect(),
                }
            }
            [value] if value.unknown => vec![Arg { unset: false, inherited: false, ..value.clone() }],
            [value]
                if value.text.is_empty()
                    && !value.stands_for_names()
                    && matches!(test, ParameterTestType::UnsetOrNull) =>
            {
                not_set
            }
            [_] => set,
            // Of several words each shell has its own view.
            [_, _, ..] => vec![Arg::unknown()],
        }
    }

    pub(super) fn parameter_values(&mut self, expr: &ParameterExpr) -> Vec<Arg> {
        match expr {
            ParameterExpr::Parameter { parameter, indirect } => {
                let values = self.values(parameter);
                self.indirect(values, *indirect)
            }
            ParameterExpr::UseDefaultValues { parameter, indirect, test_type, default_value } => {
                let values = self.values(parameter);
                let values = self.indirect(values, *indirect);
                let default = self.nested(default_value.as_deref());
                self.by_presence(&values, values.clone(), default, test_type)
            }
            ParameterExpr::AssignDefaultValues { parameter, indirect, test_type, default_value } => {
                let values = self.values(parameter);
                let values = self.indirect(values, *indirect);
                let default = self.nested(default_value.as_deref());
                if *indirect {
                    self.deny("nameref", "the variable that ${!x:=...} assigns is not known");
                }
                let picked = self.by_presence(&values, values.clone(), default.clone(), test_type);
                let given = if picked == values { &default } else { &picked };
                // What is not known may be empty.
                if picked != values || values.iter().any(Arg::depends_on_data) {
                    let value = given.first().cloned().unwrap_or_default();
                    self.assign_default(parameter, value);
                }
                picked
            }
            ParameterExpr::IndicateErrorIfNullOrUnset { parameter, indirect, error_message, .. } => {
                self.nested(error_message.as_deref());
                let values = self.values(parameter);
                self.indirect(values, *indirect)
            }
            ParameterExpr::UseAlternativeValue { parameter, indirect, test_type, alternative_value } => {
                let values = self.values(parameter);
                let values = self.indirect(values, *indirect);
                let alternative = self.nested(alternative_value.as_deref());
                let mut picked = self.by_presence(&values, alternative, vec![Arg::default()], test_type);
                if values.iter().any(|value| value.unknown && !(value.unset && value.text.is_empty())) {
                    picked = vec![Arg::unknown()];
                }
                picked
            }
            ParameterExpr::ParameterLength { parameter, .. } => {
                self.values(parameter);
                vec![Arg::number()]
            }
            ParameterExpr::RemoveSmallestSuffixPattern { parameter, indirect, pattern } => {
                self.trim(parameter, *indirect, pattern.as_deref(), Trim::SuffixSmall)
            }
            ParameterExpr::RemoveLargestSuffixPattern { parameter, indirect, pattern } => {
                self.trim(parameter, *indirect, pattern.as_deref(), Trim::SuffixLarge)
            }
            ParameterExpr::RemoveSmallestPrefixPattern { parameter, indirect, pattern } => {
                self.trim(parameter, *indirect, pattern.as_deref(), Trim::PrefixSmall)
            }
            ParameterExpr::RemoveLargestPrefixPattern { parameter, indirect, pattern } => {
                self.trim(parameter, *indirect, pattern.as_deref(), Trim::PrefixLarge)
            }
            ParameterExpr::Substring { parameter, indirect, offset, length } => self.substring(
                parameter,
                *indirect,
                &offset.value,
                length.as_ref().map(|length| length.value.as_str()),
            ),
            ParameterExpr::Transform { parameter, op, .. } => self.transform(parameter, op),
            ParameterExpr::UppercasePattern { parameter, pattern, .. } => {
                self.change_case(parameter, pattern.as_deref(), raised)
            }
            ParameterExpr::LowercasePattern { parameter, pattern, .. } => {
                self.change_case(parameter, pattern.as_deref(), lowered)
            }
            ParameterExpr::UppercaseFirstChar { parameter, pattern, .. }
            | ParameterExpr::LowercaseFirstChar { parameter, pattern, .. } => {
                self.values(parameter);
                self.nested(pattern.as_deref());
                vec![Arg::unknown()]
            }
            ParameterExpr::ReplaceSubstring { parameter, indirect, pattern, replacement, match_kind } => {
                let pattern = self.expand_whole(pattern);
                let replacement = match replacement {
                    Some(text) => self.expand_whole(text),
                    None => Arg::default(),
                };
                let values = self.values(parameter);
                let values = self.indirect(values, *indirect);
                replace_in(values, &pattern, &replacement, match_kind)
            }
            ParameterExpr::VariableNames { .. } => vec![Arg::unknown()],
            ParameterExpr::MemberKeys { .. } => vec![Arg::unknown()],
        }
    }

    fn transform(&mut self, parameter: &Parameter, op: &ParameterTransformOp) -> Vec<Arg> {
        if matches!(op, ParameterTransformOp::PromptExpand) {
            self.deny("prompt-expansion", "${...@P} runs whatever the value says");
        }
        let values = self.values(parameter);
        match op {
            ParameterTransformOp::ToLowerCase => map_known(values, lowered),
            ParameterTransformOp::ToUpperCase => map_known(values, raised),
            _ => vec![Arg::unknown()],
        }
    }

    fn substring(
        &mut self,
        parameter: &Parameter,
        indirect: bool,
        offset: &str,
        length: Option<&str>,
    ) -> Vec<Arg> {
        self.arithmetic(offset);
        if let Some(length) = length {
            self.arithmetic(length);
        }
        let bounds = (offset.trim().parse::<usize>().ok(), length.map(|l| l.trim().parse::<usize>().ok()));
        let values = self.values(parameter);
        if is_list(parameter) {
            // The bounds count the words of a list, not the characters of one.
            return vec![Arg::unknown()];
        }
        let values = self.indirect(values, indirect);
        map_known(values, |text| match bounds {
            // Bytes or characters, as the locale says.
            _ if !text.is_ascii() => None,
            (Some(from), None) => Some(text.chars().skip(from).collect()),
            (Some(from), Some(Some(count))) => Some(text.chars().skip(from).take(count).collect()),
            _ => None,
        })
    }

    /// Expands the word inside `${x:-...}`; it may hold code of its own.
    fn nested(&mut self, word: Option<&str>) -> Vec<Arg> {
        let Some(word) = word else {
            return vec![Arg::default()];
        };
        let fields = self.expand_pieces(word, false);
        let several = fields.len() > 1;
        let mut value = joined(&fields);
        // Quotes inside keep apart what the value of a variable would not.
        let quoted = fields.iter().any(|field| field.quoted);
        if several || (quoted && value.text.contains([' ', '\t', '\n', '*', '?', '['])) {
            (value.unknown, value.unknown_start, value.unset) = (true, true, false);
        }
        vec![value]
    }

    fn trim(&mut self, parameter: &Parameter, indirect: bool, pattern: Option<&str>, trim: Trim) -> Vec<Arg> {
        let pattern = self.nested(pattern).swap_remove(0);
        let values = self.values(parameter);
        let values = self.indirect(values, indirect);
        // Quotes make a wildcard plain; brackets and escapes are read in too many ways.
        let is_quoted_wildcard = pattern.quoted && pattern.text.contains(['*', '?']);
        let plain = !pattern.unknown
            && pattern.text.is_ascii()
            && !pattern.text.contains(['[', '\\', '('])
            && !is_quoted_wildcard;
        map_known(values, |text| {
            let pattern = (plain && text.is_ascii()).then_some(pattern.text.as_str())?;
            let mut cuts: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
            if matches!(trim, Trim::PrefixLarge | Trim::SuffixSmall) {
                cuts.reverse();
            }
            let prefix = matches!(trim, Trim::PrefixSmall | Trim::PrefixLarge);
            let hit = cuts
                .into_iter()
                .find(|&at| glob_match(pattern, if prefix { &text[..at] } else { &text[at..] }));
            Some(match hit {
                Some(at) if prefix => text[at..].to_owned(),
                Some(at) => text[..at].to_owned(),
                None => text.to_owned(),
            })
        })
    }

    fn change_case(
        &mut self,
        parameter: &Parameter,
        pattern: Option<&str>,
        change: fn(&str) -> Option<String>,
    ) -> Vec<Arg> {
        self.nested(pattern);
        let values = self.values(parameter);
        map_known(values, |text| if pattern.is_none() { change(text) } else { None })
    }
}

#[derive(Clone, Copy)]
enum Trim {
    PrefixSmall,
    PrefixLarge,
    SuffixSmall,
    SuffixLarge,
}

/// `${name/pattern/replacement}`, where the pattern is plain text.
fn replace_in(values: Vec<Arg>, pattern: &Arg, replacement: &Arg, kind: &SubstringMatchKind) -> Vec<Arg> {
    let plain = pattern.known().filter(|p| !p.is_empty() && !p.contains(['*', '?', '[', '\\']));
    map_known(values, |text| {
        // Newer versions of bash put the match in for `&`.
        let replacement = replacement.known().filter(|text| !text.contains(['&', '\\']));
        let (pattern, replacement) = (plain?, replacement?);
        Some(match kind {
            SubstringMatchKind::FirstOccurrence => text.replacen(pattern, replacement, 1),
            SubstringMatchKind::Anywhere => text.replace(pattern, replacement),
            SubstringMatchKind::Prefix => match text.strip_prefix(pattern) {
                Some(rest) => format!("{replacement}{rest}"),
                None => text.to_owned(),
            },
            SubstringMatchKind::Suffix => match text.strip_suffix(pattern) {
                Some(rest) => format!("{rest}{replacement}"),
                None => text.to_owned(),
            },
        })
    })
}

/// Whether `parameter` may be several words.
fn is_list(parameter: &Parameter) -> bool {
    matches!(
        parameter,
        Parameter::Special(SpecialParameter::AllPositionalParameters { .. })
            | Parameter::NamedWithAllIndices { .. }
    )
}

/// Whether `expr` in double quotes is one word, as `"$*"` is.
pub(super) fn joins_its_words(expr: &ParameterExpr) -> bool {
    use ParameterExpr as E;
    let (E::Parameter { parameter, .. }
    | E::RemoveSmallestSuffixPattern { parameter, .. }
    | E::RemoveLargestSuffixPattern { parameter, .. }
    | E::RemoveSmallestPrefixPattern { parameter, .. }
    | E::RemoveLargestPrefixPattern { parameter, .. }
    | E::ReplaceSubstring { parameter, .. }
    | E::UppercasePattern { parameter, .. }
    | E::LowercasePattern { parameter, .. }
    | E::Transform { parameter, .. }) = expr
    else {
        return false;
    };
    matches!(
        parameter,
        Parameter::Special(SpecialParameter::AllPositionalParameters { concatenate: true })
            | Parameter::NamedWithAllIndices { concatenate: true, .. }
    )
}

fn lowered(text: &str) -> Option<String> {
    text.is_ascii().then(|| text.to_ascii_lowercase())
}

fn raised(text: &str) -> Option<String> {
    text.is_ascii().then(|| text.to_ascii_uppercase())
}

fn map_known(values: Vec<Arg>, change: impl Fn(&str) -> Option<String>) -> Vec<Arg> {
    values
        .into_iter()
        .map(|value| {
            if value.unset {
                return value;
            }
            match value.known().and_then(&change) {
                Some(text) => Arg { text, ..value },
                None => Arg { taint: value.taint, loose: value.loose, ..Arg::unknown() },
            }
        })
        .collect()
}
