//! `${…}`: what a parameter expansion gives.

use brush_parser::word::{
    Parameter, ParameterExpr, ParameterTestType, ParameterTransformOp, SubstringMatchKind,
};

use super::super::analysis::{Analysis, Arg};
use super::is_name;
use lobster_base::glob::glob_match;

impl Analysis<'_> {
    fn indirect(&mut self, values: Vec<Arg>, indirect: bool) -> Vec<Arg> {
        if !indirect {
            return values;
        }
        match values.first().and_then(Arg::known).map(str::to_owned) {
            Some(name) if is_name(&name) => vec![self.variable(&name)],
            Some(_) | None => vec![Arg::unknown()],
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
                pick_default(values, default, test_type)
            }
            ParameterExpr::AssignDefaultValues { parameter, indirect, test_type, default_value } => {
                let values = self.values(parameter);
                let values = self.indirect(values, *indirect);
                let default = self.nested(default_value.as_deref());
                let picked = pick_default(values.clone(), default, test_type);
                if picked != values
                    && let Parameter::Named(name) = parameter
                {
                    let value = picked.first().cloned().unwrap_or_default();
                    self.assign(&name.clone(), value);
                }
                picked
            }
            ParameterExpr::IndicateErrorIfNullOrUnset { parameter, indirect, error_message, .. } => {
                self.nested(error_message.as_deref());
                let values = self.values(parameter);
                self.indirect(values, *indirect)
            }
            ParameterExpr::UseAlternativeValue { parameter, indirect, alternative_value, .. } => {
                let values = self.values(parameter);
                let values = self.indirect(values, *indirect);
                let alternative = self.nested(alternative_value.as_deref());
                match values.first() {
                    Some(value) if value.unset && value.text.is_empty() => vec![Arg::default()],
                    Some(value) if value.unknown => vec![Arg::unknown()],
                    Some(_) => alternative,
                    None => vec![Arg::default()],
                }
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
            ParameterExpr::Transform { parameter, op, .. } => {
                if matches!(op, ParameterTransformOp::PromptExpand) {
                    self.deny("prompt-expansion", "${...@P} runs whatever the value says");
                }
                let values = self.values(parameter);
                match op {
                    ParameterTransformOp::ToLowerCase => map_known(values, |text| Some(text.to_lowercase())),
                    ParameterTransformOp::ToUpperCase => map_known(values, |text| Some(text.to_uppercase())),
                    _ => vec![Arg::unknown()],
                }
            }
            ParameterExpr::UppercasePattern { parameter, pattern, .. } => {
                self.change_case(parameter, pattern.as_deref(), str::to_uppercase)
            }
            ParameterExpr::LowercasePattern { parameter, pattern, .. } => {
                self.change_case(parameter, pattern.as_deref(), str::to_lowercase)
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
        let values = self.indirect(values, indirect);
        map_known(values, |text| match bounds {
            (Some(from), None) => Some(text.chars().skip(from).collect()),
            (Some(from), Some(Some(count))) => Some(text.chars().skip(from).take(count).collect()),
            _ => None,
        })
    }

    /// Expands the word inside `${x:-...}`; it may hold code of its own.
    fn nested(&mut self, word: Option<&str>) -> Vec<Arg> {
        match word {
            Some(word) => vec![self.expand_whole(word)],
            None => vec![Arg::default()],
        }
    }

    fn trim(&mut self, parameter: &Parameter, indirect: bool, pattern: Option<&str>, trim: Trim) -> Vec<Arg> {
        let pattern = self.nested(pattern).swap_remove(0);
        let values = self.values(parameter);
        let values = self.indirect(values, indirect);
        map_known(values, |text| {
            let pattern = if pattern.unknown { None } else { Some(pattern.text.as_str()) }?;
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
        change: fn(&str) -> String,
    ) -> Vec<Arg> {
        self.nested(pattern);
        let values = self.values(parameter);
        map_known(values, |text| pattern.is_none().then(|| change(text)))
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
        let (pattern, replacement) = (plain?, replacement.known()?);
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

fn pick_default(values: Vec<Arg>, default: Vec<Arg>, test: &ParameterTestType) -> Vec<Arg> {
    match values.first() {
        None => default,
        Some(value) if value.unset && value.text.is_empty() => default,
        Some(value) if value.unknown => vec![Arg { unset: false, ..value.clone() }],
        Some(value) if value.text.is_empty() && matches!(test, ParameterTestType::UnsetOrNull) => default,
        Some(_) => values,
    }
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
