//! Shell wildcards, as policies use them for names.

/// True if `text` matches a shell pattern with `*`, `?` and `[...]`.
pub fn glob_match(pattern: &str, text: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let text: Vec<char> = text.chars().collect();
    glob_match_chars(&pattern, &text)
}

fn glob_match_chars(pattern: &[char], text: &[char]) -> bool {
    // Iterative matching with one remembered star: linear in practice, and never exponential, since others control the
    // text.
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        let step = match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
                continue;
            }
            Some('?') => Some(1),
            Some('[') => match_class(&pattern[p..], text[t]),
            Some('\\') if p + 1 < pattern.len() => (pattern[p + 1] == text[t]).then_some(2),
            Some(c) => (*c == text[t]).then_some(1),
            None => None,
        };
        match (step, star) {
            (Some(width), _) => {
                p += width;
                t += 1;
            }
            (None, Some((star_p, star_t))) => {
                p = star_p + 1;
                t = star_t + 1;
                star = Some((star_p, star_t + 1));
            }
            (None, None) => return false,
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

/// The width of the bracket expression at the start of `pattern` if it accepts `c`; a lone `[` matches itself.
fn match_class(pattern: &[char], c: char) -> Option<usize> {
    let mut i = 1;
    let negated = matches!(pattern.get(i), Some('!' | '^'));
    if negated {
        i += 1;
    }
    let mut hit = false;
    let mut first = true;
    loop {
        match pattern.get(i) {
            None => return (c == '[').then_some(1),
            Some(']') if !first => break,
            Some(&low) => {
                if pattern.get(i + 1) == Some(&'-') && pattern.get(i + 2).is_some_and(|high| *high != ']') {
                    hit |= low <= c && c <= pattern[i + 2];
                    i += 3;
                } else {
                    hit |= low == c;
                    i += 1;
                }
            }
        }
        first = false;
    }
    (hit != negated).then_some(i + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_match_like_the_shell() {
        assert!(glob_match("*.rs", "main.rs"));
        assert!(glob_match("id_[re]*", "id_rsa"));
        assert!(glob_match("[!a]b", "cb"));
        assert!(!glob_match("?", ""));
        assert!(glob_match("a*b*c", "axxbyyc"));
        assert!(!glob_match("a*b*c", "axxbyy"));
    }
}
