//! The rules: each is a name, a category, points, words for people, and a test.

mod phrases;

use std::collections::BTreeMap;

use lobster_step::{JsonSchema, StepError};
use serde::{Deserialize, Serialize};

use crate::letter::{Letter, Person, one_line};

use phrases::{
    ACTION, ASSIGNED, AUTOMATED, CALENDAR_SUBJECTS, DEADLINES, FRAUD, FREE_MAIL, LATE, RECEIPT_SUBJECTS,
    REQUESTS,
};

/// What is to be done with a message. The order breaks ties: the earlier wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(crate = "lobster_step::schemars")]
pub enum Category {
    /// Unwanted or fraudulent.
    Spam,
    /// An invitation, a change of one, or an answer to one.
    Calendar,
    /// Something other than an answer is expected, often by a date.
    NeedsAction,
    /// An invoice, a receipt, an order or a payment.
    Receipt,
    /// Sent to a list of subscribers.
    Newsletter,
    /// A person waits for an answer.
    NeedsReply,
    /// Good to know.
    Fyi,
    /// Not a message.
    Unreadable,
}

/// A rule from the arguments. All given parts must match; texts match anywhere,
/// ignoring case.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "lobster_step::schemars")]
pub struct CustomRule {
    pub name: String,
    pub category: Category,
    /// 1 to 100; 100 outweighs any single built-in rule.
    #[serde(default = "full")]
    pub points: u32,
    /// Part of the sender's name or address.
    pub from: Option<String>,
    /// Part of the subject.
    pub subject: Option<String>,
    /// Part of the text.
    pub text: Option<String>,
}

fn full() -> u32 {
    100
}

/// What the rules say.
#[derive(Debug, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) category: Category,
    pub(crate) score: f64,
    pub(crate) reason: String,
    pub(crate) rules: Vec<String>,
}

pub(crate) struct Rules<'a> {
    me: Vec<String>,
    vip: Vec<String>,
    custom: &'a [CustomRule],
}

/// A message with what several rules ask of it, found out once.
struct Case<'a> {
    letter: &'a Letter,
    /// Lower case, one line.
    subject: String,
    own: String,
    all: String,
    automated: bool,
    bulk: bool,
    /// The owner is in `To`; true if the owner is not known.
    addressed: bool,
    vip: bool,
}

struct Rule {
    name: &'static str,
    category: Category,
    points: u32,
    because: &'static str,
    test: fn(&Case<'_>) -> bool,
}

const RULES: &[Rule] = &[
    // --- spam
    rule("spam-flag", Category::Spam, 95, "the mail server marked it as spam", |case| {
        case.header_has("x-spam-flag", "yes") || case.header_has("x-spam-status", "yes")
    }),
    rule(
        "failed-authentication",
        Category::Spam,
        45,
        "the sender's domain disowns it (SPF, DKIM or DMARC failed)",
        |case| {
            ["spf=fail", "dkim=fail", "dmarc=fail"]
                .iter()
                .any(|result| case.header_has("authentication-results", result))
        },
    ),
    rule("disguised-link", Category::Spam, 40, "a link shows one site and leads to another", disguised_link),
    rule(
        "borrowed-name",
        Category::Spam,
        40,
        "the sender's name shows an address of another domain",
        |case| {
            let from = &case.letter.from;
            from.name.split_whitespace().any(|word| {
                let shown = word.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
                shown
                    .rsplit_once('@')
                    .is_some_and(|(_, domain)| domain.contains('.') && domain != from.domain())
            })
        },
    ),
    rule(
        "answers-elsewhere",
        Category::Spam,
        20,
        "answers would go to a free mailbox of another domain",
        |case| {
            case.letter.reply_to.as_ref().is_some_and(|reply| {
                reply.domain() != case.letter.from.domain() && FREE_MAIL.contains(&reply.domain())
            })
        },
    ),
    rule("fraud-words", Category::Spam, 45, "it promises or threatens as fraud does", |case| {
        case.says(FRAUD)
    }),
    rule("shouting", Category::Spam, 20, "the subject shouts", |case| {
        let letters: Vec<char> = case.letter.subject.chars().filter(|c| c.is_alphabetic()).collect();
        letters.len() >= 12 && letters.iter().all(|c| !c.is_lowercase())
            || case.letter.subject.contains("!!!")
    }),
    // --- calendar
    rule("calendar-part", Category::Calendar, 90, "it carries a calendar entry", |case| {
        case.letter.calendar.is_some()
    }),
    rule(
        "calendar-subject",
        Category::Calendar,
        50,
        "the subject is that of an invitation or an answer to one",
        |case| CALENDAR_SUBJECTS.iter().any(|start| case.subject.starts_with(start)),
    ),
    // --- newsletter
    rule("unsubscribe-header", Category::Newsletter, 40, "it can be unsubscribed from", |case| {
        case.letter.header("list-unsubscribe").is_some()
    }),
    rule("list", Category::Newsletter, 25, "it came over a mailing list", |case| {
        case.letter.header("list-id").is_some()
            || case.header_has("precedence", "bulk")
            || case.header_has("precedence", "list")
    }),
    rule("newsletter-sender", Category::Newsletter, 30, "the sender is a newsletter's", |case| {
        case.sender_is(&[
            "newsletter",
            "news",
            "digest",
            "updates",
            "marketing",
            "hello",
            "community",
            "weekly",
        ]) && (case.bulk || case.says(&["unsubscribe", "abmelden", "se désabonner"]))
    }),
    rule("unsubscribe-text", Category::Newsletter, 20, "the text tells how to unsubscribe", |case| {
        contains_any(
            &case.all,
            &[
                "unsubscribe",
                "abmelden",
                "manage your preferences",
                "email preferences",
                "view in browser",
                "im browser ansehen",
                "se désabonner",
                "darse de baja",
            ],
        )
    }),
    rule("newsletter-subject", Category::Newsletter, 15, "the subject is that of an issue", |case| {
        case.bulk
            && contains_any(
                &case.subject,
                &[
                    "weekly",
                    "digest",
                    "newsletter",
                    "issue",
                    "edition",
                    "this week",
                    "roundup",
                    "% off",
                    "sale",
                ],
            )
    }),
    // --- receipts
    rule(
        "receipt-subject",
        Category::Receipt,
        50,
        "the subject is that of an invoice, an order or a payment",
        |case| contains_any(&case.subject, RECEIPT_SUBJECTS),
    ),
    rule("receipt-sender", Category::Receipt, 25, "the sender is a billing office or a shop", |case| {
        case.sender_is(&[
            "billing",
            "invoice",
            "invoices",
            "receipts",
            "receipt",
            "orders",
            "order",
            "payments",
            "payment",
            "rechnung",
            "buchhaltung",
            "accounts",
            "store",
        ])
    }),
    rule("total", Category::Receipt, 25, "it states a total", |case| states_total(&case.all)),
    rule("invoice-attached", Category::Receipt, 30, "an invoice is attached", |case| {
        case.letter.attachments.iter().any(|name| {
            contains_any(
                &name.to_lowercase(),
                &["invoice", "receipt", "rechnung", "facture", "quittung", "factura"],
            )
        })
    }),
    // --- action
    rule("action-words", Category::NeedsAction, 55, "it asks for something to be done", |case| {
        !case.fraud() && contains_any(&case.subject, ACTION) || case.says_itself(ACTION)
    }),
    rule("overdue", Category::NeedsAction, 45, "something is late or about to end", |case| {
        contains_any(&case.subject, LATE) || case.says_itself(LATE)
    }),
    rule("deadline", Category::NeedsAction, 20, "it names a deadline", |case| case.says_itself(DEADLINES)),
    rule("important", Category::NeedsAction, 15, "the sender marked it as important", |case| {
        case.header_has("importance", "high")
            || case
                .letter
                .header("x-priority")
                .is_some_and(|value| value.starts_with('1') || value.starts_with('2'))
    }),
    rule("broken", Category::NeedsAction, 40, "a machine reports a failure", |case| {
        case.automated
            && contains_any(
                &case.subject,
                &["failed", "failure", "down", "alert", "critical", "incident", "broken", "fehlgeschlagen"],
            )
    }),
    rule("assigned", Category::NeedsAction, 55, "a tool hands a task to you", |case| {
        case.automated && contains_any(&case.all, ASSIGNED)
    }),
    rule("undelivered", Category::NeedsAction, 50, "a message you sent did not arrive", |case| {
        case.header_has("content-type", "report-type=delivery-status")
            || case.letter.from.local() == "mailer-daemon"
    }),
    // --- reply
    rule("question", Category::NeedsReply, 30, "it asks a question", |case| {
        case.person() && asks(&case.letter.own_text)
    }),
    rule("request", Category::NeedsReply, 30, "it asks to be answered", |case| {
        case.person() && (case.says_itself(REQUESTS) || contains_any(&case.subject, REQUESTS))
    }),
    rule("conversation", Category::NeedsReply, 10, "it goes on with a conversation", |case| {
        case.person() && case.letter.is_reply && asks(&case.letter.own_text)
    }),
    rule("to-you", Category::NeedsReply, 15, "a person wrote it to you", |case| {
        case.person() && case.addressed
    }),
    rule("vip", Category::NeedsReply, 20, "the sender matters to you", |case| case.vip && !case.automated),
    // --- the rest
    rule("plain", Category::Fyi, 25, "nothing in it asks for anything", |_| true),
];

const fn rule(
    name: &'static str,
    category: Category,
    points: u32,
    because: &'static str,
    test: fn(&Case<'_>) -> bool,
) -> Rule {
    Rule { name, category, points, because, test }
}

impl<'a> Rules<'a> {
    /// # Errors
    /// `bad-args` if a rule of the arguments can never say anything.
    pub(crate) fn new(me: &[String], vip: &[String], custom: &'a [CustomRule]) -> Result<Self, StepError> {
        for rule in custom {
            if rule.from.is_none() && rule.subject.is_none() && rule.text.is_none() {
                return Err(StepError::bad_args(format!(
                    "rule `{}` matches nothing: give it `from`, `subject` or `text`",
                    rule.name
                )));
            }
            if !(1..=100).contains(&rule.points) {
                return Err(StepError::bad_args(format!(
                    "rule `{}` has {} points; 1 to 100 are possible",
                    rule.name, rule.points
                )));
            }
        }
        let lower = |list: &[String]| list.iter().map(|text| text.to_lowercase()).collect();
        Ok(Self { me: lower(me), vip: lower(vip), custom })
    }

    /// Adds up the points of each category and takes the highest.
    pub(crate) fn judge(&self, letter: &Letter) -> Verdict {
        if !letter.is_mail {
            return Verdict {
                category: Category::Unreadable,
                score: 1.0,
                reason: "the file is not an e-mail message".to_owned(),
                rules: Vec::new(),
            };
        }
        let case = self.case(letter);
        let mut heard: BTreeMap<Category, Vec<(&str, u32, &str)>> = BTreeMap::new();
        for rule in RULES {
            if (rule.test)(&case) {
                heard.entry(rule.category).or_default().push((rule.name, rule.points, rule.because));
            }
        }
        for rule in self.custom {
            if rule.matches(&case) {
                heard.entry(rule.category).or_default().push((&rule.name, rule.points, &rule.name));
            }
        }
        let sum = |rules: &[(&str, u32, &str)]| rules.iter().map(|rule| rule.1).sum::<u32>();
        let mut best = (Category::Fyi, 0);
        for (category, rules) in &heard {
            if sum(rules) > best.1 {
                best = (*category, sum(rules));
            }
        }
        let won = heard.remove(&best.0).unwrap_or_default();
        let reasons: Vec<&str> = won.iter().map(|rule| rule.2).collect();
        Verdict {
            category: best.0,
            score: f64::from(best.1.min(100)) / 100.0,
            reason: reasons.join("; "),
            rules: won.iter().map(|(name, points, _)| format!("{name} +{points}")).collect(),
        }
    }

    fn case<'l>(&self, letter: &'l Letter) -> Case<'l> {
        let from = &letter.from;
        let mine = |people: &[Person]| people.iter().any(|person| self.me.contains(&person.address));
        let bulk = letter.header("list-unsubscribe").is_some()
            || letter.header("list-id").is_some()
            || letter.header("precedence").is_some_and(|value| value == "bulk" || value == "list");
        Case {
            subject: letter.subject.to_lowercase(),
            own: one_line(&letter.own_text).to_lowercase(),
            all: one_line(&letter.text).to_lowercase(),
            automated: AUTOMATED.iter().any(|name| is_word_of(from.local(), name))
                || letter.header("auto-submitted").is_some_and(|value| value != "no"),
            bulk,
            addressed: self.me.is_empty() || mine(&letter.to) && !mine(&letter.cc),
            vip: self.vip.iter().any(|vip| {
                *vip == from.address || vip.strip_prefix('@').is_some_and(|domain| domain == from.domain())
            }),
            letter,
        }
    }
}

impl CustomRule {
    fn matches(&self, case: &Case<'_>) -> bool {
        let has = |wanted: &Option<String>, text: &str| {
            wanted.as_ref().is_none_or(|wanted| text.contains(&wanted.to_lowercase()))
        };
        has(&self.from, &case.letter.from.to_string().to_lowercase())
            && has(&self.subject, &case.subject)
            && has(&self.text, &case.all)
    }
}

impl Case<'_> {
    fn header_has(&self, name: &str, part: &str) -> bool {
        self.letter.header(name).is_some_and(|value| value.contains(part))
    }

    fn sender_is(&self, names: &[&str]) -> bool {
        names.iter().any(|name| is_word_of(self.letter.from.local(), name))
    }

    /// Anywhere in the text.
    fn says(&self, phrases: &[&str]) -> bool {
        contains_any(&self.all, phrases) || contains_any(&self.subject, phrases)
    }

    /// In the writer's own words, and not to a list of subscribers.
    fn says_itself(&self, phrases: &[&str]) -> bool {
        !self.bulk && !self.fraud() && contains_any(&self.own, phrases)
    }

    fn fraud(&self) -> bool {
        self.says(FRAUD)
    }

    /// Written by a person to people.
    fn person(&self) -> bool {
        !self.automated && !self.bulk && self.letter.calendar.is_none()
    }
}

/// Whether a phrase stands in a text, beginning and ending at word boundaries.
fn contains_any(text: &str, phrases: &[&str]) -> bool {
    phrases.iter().any(|phrase| {
        text.match_indices(phrase).any(|(at, found)| {
            let before = text[..at].chars().next_back();
            let after = text[at + found.len()..].chars().next();
            let open = |next: Option<char>, edge: Option<char>| {
                !(next.is_some_and(char::is_alphanumeric) && edge.is_some_and(char::is_alphanumeric))
            };
            open(before, found.chars().next()) && open(after, found.chars().next_back())
        })
    })
}

/// Whether a word stands in the part of an address before the `@`.
fn is_word_of(local: &str, word: &str) -> bool {
    local == word
        || local.split(['.', '-', '_', '+']).any(|part| part == word)
        || (word.contains(['-', '_']) && local.contains(word))
}

/// A question mark that ends a sentence, outside of links.
fn asks(text: &str) -> bool {
    text.split_whitespace().any(|word| {
        let word = word.trim_end_matches(['"', '\'', ')', '”', '“', '»', '!']);
        (word.ends_with('?') || word.ends_with('？')) && !word.contains("://")
    })
}

/// `total` with an amount of money close behind it.
fn states_total(text: &str) -> bool {
    const NEAR: usize = 60;
    ["total", "gesamt", "summe", "amount", "betrag", "montant", "importe"].iter().any(|word| {
        text.match_indices(word).any(|(at, _)| {
            let near: String = text[at..].chars().take(NEAR).collect();
            let digits = near.contains(|c: char| c.is_ascii_digit());
            digits && ["$", "€", "£", "usd", "eur", "gbp", "chf"].iter().any(|sign| near.contains(sign))
        })
    })
}

/// A link whose text is a host other than the one it leads to.
fn disguised_link(case: &Case<'_>) -> bool {
    case.letter.links.iter().any(|(target, text)| {
        let text = text.trim().to_lowercase();
        let shown = host(&text);
        let real = host(&target.to_lowercase());
        let is_host = shown.contains('.')
            && !shown.contains(char::is_whitespace)
            && !shown.ends_with('.')
            && !text.contains('@');
        is_host && real.contains('.') && site(&shown) != site(&real)
    })
}

fn host(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.rsplit('@').next().unwrap_or_default().split(':').next().unwrap_or_default().to_owned()
}

/// The last two labels of a host. Good enough to tell sites apart without the
/// public suffix list: it errs on the side of calling two sites the same.
fn site(host: &str) -> &str {
    let mut dots = host.rmatch_indices('.').map(|(at, _)| at);
    dots.next();
    dots.next().map_or(host, |at| &host[at + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(mail: &str) -> (Category, Vec<String>) {
        let letter = Letter::parse(mail.as_bytes());
        let me = ["ada@example.com".to_owned()];
        let verdict = Rules { me: me.to_vec(), vip: Vec::new(), custom: &[] }.judge(&letter);
        (verdict.category, verdict.rules)
    }

    #[test]
    fn phrases_are_whole_words() {
        assert!(contains_any("your invoice 12", &["invoice"]));
        assert!(!contains_any("she could your", &["could you"]));
        assert!(contains_any("20% off", &["% off"]));
        assert!(is_word_of("no-reply", "no-reply") && is_word_of("billing+77", "billing"));
        assert!(!is_word_of("abbot", "bot"));
    }

    #[test]
    fn a_question_in_a_quote_is_not_asked() {
        let mail = "From: bob@example.org\nTo: ada@example.com\nSubject: Re: x\nIn-Reply-To: <1@x>\n\nYes.\n> shall we?\n";
        assert_eq!(verdict(mail), (Category::Fyi, vec!["plain +25".into()]));
    }

    #[test]
    fn links_to_elsewhere() {
        let mail = "From: x@example.org\nSubject: s\nContent-Type: text/html\n\n<a href=\"http://evil.example.net/a\">www.bank.example.com</a>";
        assert_eq!(verdict(mail), (Category::Spam, vec!["disguised-link +40".into()]));
        let honest = mail.replace("evil.example.net", "mail.example.com");
        assert_eq!(verdict(&honest), (Category::Fyi, vec!["plain +25".into()]));
    }

    #[test]
    fn hosts_and_sites() {
        assert_eq!(host("https://user@a.example.com:8443/p?q"), "a.example.com");
        assert_eq!(site("a.b.example.com"), "example.com");
        assert_eq!(site("localhost"), "localhost");
    }
}
