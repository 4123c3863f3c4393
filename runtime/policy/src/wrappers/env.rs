//! `env`, which sets variables, changes the directory and splits words before it starts a command.

use super::super::analysis::{Analysis, Arg, Flow};
use super::super::command::Invocation;
use super::super::paths::normalise_path;

/// Known long options of `env`.
const ENV_LONG: &[&str] = text_list!("../lists/env-long-options.txt");

impl Analysis<'_> {
    pub(super) fn env_wrapper(&mut self, inv: &Invocation) -> Flow {
        let mut args: Vec<Arg> = inv.args[1..].to_vec();
        let outside = (self.scope.cwd.clone(), self.scope.visited.clone());
        let mut at = 0;
        let mut values = Vec::new();
        let mut ended = false;
        while at < args.len() {
            let arg = args[at].clone();
            let text = arg.text.as_str();
            at += 1;
            if let Some((name, value)) = text.split_once('=')
                && (ended || !text.starts_with('-'))
            {
                ended = true;
                let value = Arg { text: value.to_owned(), ..arg.clone() };
                self.check_exported(name, &value);
                continue;
            }
            if ended {
                at -= 1;
                break;
            }
            if text == "--" {
                ended = true;
                continue;
            }
            let long = text.strip_prefix("--");
            let is_long = |full: &str| {
                long.is_some_and(|l| {
                    let l = l.split('=').next().unwrap_or(l);
                    !l.is_empty() && full.starts_with(l)
                })
            };
            if text == "-" && !arg.unknown {
                ended = true;
                continue;
            }
            if text.len() > 1 && text.starts_with('-') {
                let short = text.strip_prefix('-').filter(|_| long.is_none()).unwrap_or("");
                let value_at = short.find(['u', 'C', 'S', 'a']);
                let by_name = [("unset", 'u'), ("chdir", 'C'), ("split-string", 'S'), ("argv0", 'a')];
                let by_name = by_name.into_iter().find(|(full, _)| is_long(full)).map(|(_, letter)| letter);
                let takes = by_name.or_else(|| value_at.and_then(|i| short[i..].chars().next()));
                let is_known = match long {
                    Some(long) => ENV_LONG.contains(&long.split('=').next().unwrap_or(long)),
                    None => {
                        short[..value_at.unwrap_or(short.len())].chars().all(|c| matches!(c, 'i' | '0' | 'v'))
                    }
                };
                if !is_known {
                    self.require_approval(
                        "wrapper",
                        format!("option {} of env is not known", arg.display_text()),
                    );
                }
                let Some(takes) = takes else { continue };
                let attached = match (long, value_at) {
                    (Some(l), _) => l.split_once('=').map(|(_, v)| v.to_owned()),
                    (None, Some(i)) => Some(short[i + 1..].to_owned()).filter(|v| !v.is_empty()),
                    (None, None) => None,
                };
                let value = match attached {
                    Some(text) => Arg { text, ..arg.clone() },
                    None if arg.unknown => Arg { text: String::new(), ..arg.clone() },
                    None => {
                        values.push(at);
                        at += 1;
                        args.get(at - 1).cloned().unwrap_or_default()
                    }
                };
                self.env_option(takes, &value, &mut args, at);
                continue;
            }
            if arg.unknown && text.is_empty() {
                self.require_approval("dynamic", "env starts a program that is not known");
            }
            at -= 1;
            break;
        }
        let rest = args.split_off(at.min(args.len()));
        self.own_words("env", &args, &values, &rest);
        let flow = if rest.is_empty() {
            self.record_draw("env", Vec::new(), true);
            self.record_command(&inv.args, None, vec!["catalogue".to_owned()]);
            Flow::default()
        } else {
            self.follow_wrapped_command(rest, inv, false)
        };
        (self.scope.cwd, self.scope.visited) = outside;
        flow
    }

    /// Handles an option that takes `value`; the words from `-S` are inserted into `args` at `at`.
    fn env_option(&mut self, option: char, value: &Arg, args: &mut Vec<Arg>, at: usize) {
        match option {
            'C' => {
                if !value.is_settled() {
                    self.require_approval("dynamic", "env enters a directory that is not known");
                }
                self.read_path(value);
                self.note_upward(&value.text);
                self.enter_directory(normalise_path(&self.scope.cwd, &value.text));
            }
            'S' => {
                if value.unknown {
                    self.add_denial("opaque-code", "env -S splits text that is not known");
                }
                // Escapes, ${VAR} and comments, which no two versions read in the same way.
                if !value.text.is_ascii() || value.text.contains(['\\', '$', '#']) {
                    self.require_approval(
                        "dynamic",
                        "env -S finds variables, escapes or a comment in its text",
                    );
                }
                let words = split_words(&value.text).into_iter().map(Arg::literal);
                let at = at.min(args.len());
                args.splice(at..at, words);
            }
            _ => {}
        }
    }
}

/// Splits text into words as `env -S` does: blanks, quotes, backslashes.
fn split_words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, '\\') if quote != Some('\'') => {
                if let Some(next) = chars.next() {
                    word.get_or_insert_default().push(next);
                }
            }
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}
