//! Answers given where a question was asked: with a button under a message.
//!
//! The server fetches them from the place, so it needs no public address. An answer is valid only if it comes from a
//! person whom the operator has bound to that place. It is then treated like an answer of that person in the console:
//! the same role, the same rule of the workflow about approvers, the same digest. Buttons appear only under a message
//! that shows everything that the question shows.

use std::sync::Arc;
use std::time::Duration;

use lobster_runtime::engine::{QuestionKind, QuestionView};
use lobster_runtime::store::service::{CredentialKind, Notice};
use lobster_runtime::store::{Gate, GateStatus};

use super::settings::{Answerer, Channel, NotifySettings};
use super::{ntfy, slack, telegram};
use crate::access::{Actor, Object, Verb, is_allowed};
use crate::http::acts::decide_gate;
use crate::http::{App, workflow_of_run};

/// The longest question that is asked with buttons, in bytes. The services accept slightly more.
const MOST: usize = 3_500;

/// Delays after consecutive failures to fetch answers, in seconds.
const AGAIN: [u64; 5] = [1, 5, 15, 30, 60];

/// A question that can be answered where it is read.
pub(super) struct Offer {
    pub(super) app: Arc<App>,
    pub(super) gate: Gate,
    pub(super) workflow: String,
    /// The complete text of the question.
    pub(super) shown: String,
}

impl Offer {
    /// Returns the offer for a notice, or `None` if it is not about an open approval or its question is too long.
    pub(super) fn for_notice(app: &Arc<App>, notice: &Notice) -> Option<Self> {
        let show = app.question?;
        let gate = app.store.find_gate(notice.gate.as_deref().filter(|_| notice.kind == "question")?).ok()?;
        let view = QuestionView::of_gate(&app.store, &gate).ok()?;
        let shown = show(&view);
        let is_short = shown.len() <= MOST;
        let is_yes_or_no = matches!(view.kind, QuestionKind::Approval | QuestionKind::Policy);
        let workflow = notice.content["workflow"].as_str()?.to_owned();
        let app = Arc::clone(app);
        (gate.status == GateStatus::Open && is_short && is_yes_or_no).then_some(Self {
            app,
            gate,
            workflow,
            shown,
        })
    }
}

/// An approval or a rejection of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word<'t> {
    pub(super) is_yes: bool,
    pub(super) gate: &'t str,
    /// Proof that the answer is meant for this question.
    pub(super) proof: &'t str,
}

impl<'t> Word<'t> {
    pub(super) fn format_word(is_yes: bool, gate: &str, proof: &str) -> String {
        format!("{} {gate} {proof}", if is_yes { "yes" } else { "no" })
    }

    pub(super) fn parse_text(text: &'t str) -> Option<Self> {
        let mut words = text.trim().split(' ');
        let is_yes = match words.next()? {
            "yes" => true,
            "no" => false,
            _ => return None,
        };
        let (gate, proof) = (words.next()?, words.next()?);
        (words.next().is_none() && !gate.is_empty()).then_some(Self { is_yes, gate, proof })
    }
}

/// Reason why an answer was not accepted.
pub(super) struct Refused {
    /// Text for the person.
    pub(super) why: String,
    /// True if a later attempt may succeed.
    pub(super) is_for_now: bool,
}

/// Applies a person's answer.
pub(super) fn apply_answer(
    app: &App,
    who: &Answerer,
    place: &str,
    gate: &Gate,
    is_yes: bool,
) -> Result<String, Refused> {
    let refused = |problem: crate::http::Problem| Refused {
        why: problem.detail,
        is_for_now: problem.status.is_server_error(),
    };
    let workflow = workflow_of_run(app, gate.run).map_err(refused)?;
    let actor = Actor {
        name: who.name.clone(),
        role: who.role,
        scope: who.workflows.clone(),
        credential: place.to_owned(),
        kind: CredentialKind::Reply,
        logged_in_at: None,
    };
    if !is_allowed(&actor, Verb::Answer, workflow.as_deref().map_or(Object::Everything, Object::Workflow)) {
        let why = format!("{} may not answer this: the file of --config gives other workflows", who.name);
        return Err(Refused { why, is_for_now: false });
    }
    decide_gate(app, gate, is_yes, (&who.name, place)).map_err(refused)?;
    tracing::info!(
        place,
        gate = gate.id,
        by = who.name,
        is_yes,
        "a question was answered where it was asked"
    );
    Ok(format!("{} said {}", who.name, if is_yes { "yes" } else { "no" }))
}

/// Processes answers from every place that has buttons, until the future is dropped.
pub(crate) async fn listen_for_answers(app: Arc<App>, settings: NotifySettings) {
    let mut all = tokio::task::JoinSet::new();
    for target in settings.targets {
        let app = Arc::clone(&app);
        match &*target.channel {
            Channel::Telegram(telegram) if !telegram.people.is_empty() => {
                let telegram = telegram.clone();
                all.spawn(async move { telegram::listen(&app, &target.name, &telegram).await });
            }
            Channel::Ntfy(ntfy) => {
                let Some(answers) = ntfy.answers.clone() else { continue };
                let ntfy = ntfy.clone();
                all.spawn(async move { ntfy::listen(&app, &target.name, &ntfy, &answers).await });
            }
            Channel::Slack(slack) if !slack.people.is_empty() => {
                let slack = slack.clone();
                all.spawn(async move { slack::listen(&app, &target.name, &slack).await });
            }
            Channel::Slack(_)
            | Channel::Telegram(_)
            | Channel::Command(_)
            | Channel::Webhook(_)
            | Channel::Email(_) => {}
        }
    }
    while all.join_next().await.is_some() {}
}

/// Consecutive failures to fetch answers from one place; only the first one is logged.
#[derive(Default)]
pub(super) struct Failures(usize);

impl Failures {
    pub(super) fn reset_delay(&mut self) {
        self.0 = 0;
    }

    /// Waits, longer after each failure.
    pub(super) async fn wait_to_retry(&mut self, target: &str, why: &str) {
        if self.0 == 0 {
            tracing::warn!(target, why, "answers cannot be fetched; lobster will retry");
        }
        let wait = AGAIN.get(self.0).or(AGAIN.last()).copied().unwrap_or(60);
        self.0 = (self.0 + 1).min(AGAIN.len() - 1);
        tokio::time::sleep(Duration::from_secs(wait)).await;
    }
}

/// Reads the value of a secret.
pub(super) async fn secret_value(app: &Arc<App>, name: &str) -> Result<String, String> {
    let (app, names) = (Arc::clone(app), vec![name.to_owned()]);
    let found = tokio::task::spawn_blocking(move || app.runtime.secret_values(&names)).await;
    let mut values = found.map_err(|error| error.to_string())?.map_err(|failure| failure.message)?;
    values.pop().ok_or_else(|| format!("the secret {name} has no value"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_one_line_of_three() {
        let text = Word::format_word(true, "1a2b3c4d", "proof");
        assert_eq!(Word::parse_text(&text), Some(Word { is_yes: true, gate: "1a2b3c4d", proof: "proof" }));
        assert_eq!(Word::parse_text(" no g p\n").map(|word| word.is_yes), Some(false));
        for other in ["", "yes", "yes g", "Yes g p", "yes g p q", "maybe g p", "yes  p", "approve"] {
            assert_eq!(Word::parse_text(other), None, "{other:?}");
        }
    }
}
