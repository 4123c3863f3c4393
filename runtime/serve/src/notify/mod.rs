//! Telling people: of questions, of ends of runs, of ticks that were missed.
//!
//! What there is to tell is found in the store and queued there, once for each who is to hear of it
//! ([`occasions`]); it is sent from there until they took it or it was tried long enough. Who hears of
//! what is the operator's; a workflow can only name those whom the operator knows. A notice carries no right: whoever wants to answer logs in, or is a
//! person whom the operator has bound to the place where the question was asked ([`replies`]).

mod email;
mod ntfy;
mod occasions;
mod replies;
mod send;
mod settings;
mod slack;
mod telegram;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use lobster_runtime::store::StoreError;
use lobster_runtime::store::service::Notice;

use crate::http::App;
use crate::workflows::Content;

pub(crate) use replies::listen;
pub use settings::{NotifySettings, Target};

/// How often the store is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// How often it is looked for notices that nobody sends any more.
const FORGETTING: Duration = Duration::from_secs(3600);

/// So long after it was due a notice of a target that this server does not know is taken to be nobody's, in
/// milliseconds: another server of the store may know the target.
const LEFT_MS: i64 = 3_600_000;

/// Notices sent to one target at once.
const AT_ONCE: usize = 16;

/// So long a notice is nobody else's; an attempt takes less.
const LEASE_MS: i64 = 45_000;

/// How long after each failed attempt the next one is made, in milliseconds.
const BACKOFF_MS: [i64; 8] =
    [1_000, 5_000, 30_000, 120_000, 600_000, 3_600_000, 6 * 3_600_000, 12 * 3_600_000];

/// Tells people what a store says.
pub(crate) struct Teller {
    app: Arc<App>,
    settings: NotifySettings,
}

impl Teller {
    /// From now on everything is told: the first look ever is taken before the server answers anybody.
    pub(crate) fn new(app: Arc<App>, settings: NotifySettings) -> Self {
        let teller = Self { app, settings };
        if !teller.settings.targets.is_empty() {
            teller.look();
        }
        teller
    }

    fn look(&self) {
        if let Err(error) = occasions::queue(&self.app.service, &self.settings) {
            tracing::error!(%error, "the service cannot look for what people are to be told");
        }
    }

    /// Works until `ended` says so. Each target has a thread of its own: one that takes nothing, or is slow, keeps
    /// neither the others waiting nor the look for what is to be told.
    pub(crate) fn work(&self, ended: impl Fn(Duration) -> bool) {
        self.warn_of_unknown_names();
        if self.settings.targets.is_empty() {
            return;
        }
        std::thread::scope(|scope| {
            let mut ends = Vec::new();
            for target in &self.settings.targets {
                let (end, over) = mpsc::channel::<()>();
                let named = std::thread::Builder::new().name("notices".to_owned());
                match named.spawn_scoped(scope, move || self.send_to_target(target, &over)) {
                    Ok(_) => ends.push(end),
                    Err(error) => {
                        tracing::error!(%error, target = target.name, "nobody can be told anything")
                    }
                }
            }
            let mut forgot = Instant::now();
            loop {
                self.look();
                if forgot.elapsed() >= FORGETTING {
                    forgot = Instant::now();
                    self.end_unknown();
                }
                if ended(LOOK) {
                    return;
                }
            }
        });
    }

    /// Sends what is due for one target until the other end of `over` is gone.
    fn send_to_target(&self, target: &Target, over: &Receiver<()>) {
        let http = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => {
                tracing::error!(%error, target = target.name, "nobody can be told anything");
                return;
            }
        };
        loop {
            if let Err(error) = self.send_due(target, &http) {
                tracing::error!(%error, "the service cannot read what people are to be told");
            }
            if !matches!(over.recv_timeout(LOOK), Err(RecvTimeoutError::Timeout)) {
                return;
            }
        }
    }

    /// Ends notices that no server sends any more, because their target was taken out of the settings.
    fn end_unknown(&self) {
        let names: Vec<&str> = self.settings.targets.iter().map(|target| target.name.as_str()).collect();
        let before = self.app.service.store().clock_ms() - LEFT_MS;
        if let Err(error) = self.app.service.end_notices_of_others(&names, before) {
            tracing::error!(%error, "the service cannot end what nobody is told any more");
        }
    }

    /// Says which workflows want somebody told whom the operator does not know.
    fn warn_of_unknown_names(&self) {
        let all = self.app.service.workflows().unwrap_or_default();
        for workflow in &all {
            for told in &Content::of(workflow).notify {
                if !self.settings.targets.iter().any(|target| target.name == told.target) {
                    let (name, target) = (&workflow.name, &told.target);
                    tracing::warn!(
                        "workflow {name} has {target} told, which no [[notify]] of --config names"
                    );
                }
            }
        }
    }

    fn send_due(&self, target: &Target, http: &tokio::runtime::Runtime) -> Result<(), StoreError> {
        let lease = self.app.service.store().clock_ms() + LEASE_MS;
        let due = self.app.service.take_notices(&target.name, lease, AT_ONCE)?;
        http.block_on(async {
            let mut at_work = tokio::task::JoinSet::new();
            for notice in due {
                match self.message_for(target, &notice) {
                    Err(why) => {
                        at_work.spawn(async move { (notice, Err(why)) });
                    }
                    Ok(message) => {
                        at_work.spawn(async move {
                            let sent = send::send(&message).await;
                            (notice, sent)
                        });
                    }
                }
            }
            // One that panicked is sent again when its lease is over.
            while let Some(done) = at_work.join_next().await {
                let Ok((notice, result)) = done else { continue };
                // The clock after the attempt: it may have taken longer than the rest after it.
                let now = self.app.service.store().clock_ms();
                let failed = result.as_ref().err().map(|why| (why.as_str(), next_attempt(&notice, now)));
                if let Some((why, again)) = &failed {
                    tracing::warn!(target = notice.target, why, again, "a notice was not taken");
                }
                self.app.service.end_attempt(notice.n, failed)?;
            }
            Ok(())
        })
    }

    /// Everything that sending needs.
    fn message_for(&self, target: &Target, notice: &Notice) -> Result<send::Message, String> {
        let names: Vec<String> = target.channel.secret().into_iter().map(str::to_owned).collect();
        let secret = self.app.runtime.secret_values(&names).map_err(|failure| failure.message)?.pop();
        let mut text = occasions::text_of(notice);
        let takes_answers = notice.kind == "question" && target.channel.takes_answers();
        let offer = takes_answers.then(|| replies::Offer::of(&self.app, notice)).flatten();
        if takes_answers && offer.is_none() {
            text.1 += "\nNot to be answered here: it is too long, or asks for more than a yes or a no.";
        }
        Ok(send::Message {
            target: target.name.clone(),
            offer,
            channel: Arc::clone(&target.channel),
            secret,
            key: notice.key.clone(),
            at: notice.queued_at,
            text,
            content: notice.content.clone(),
            dir: self.app.runtime.state_dir().to_owned(),
        })
    }
}

/// When a notice is tried again whose attempt failed now; never, if it was tried long enough.
fn next_attempt(notice: &Notice, now: i64) -> Option<i64> {
    let failed = usize::try_from(notice.attempts).unwrap_or(usize::MAX);
    BACKOFF_MS.get(failed).map(|wait| now + wait)
}
