//! Notifications: questions, ends of runs and missed ticks.
//!
//! Occasions for notices are found in the store and queued there, one notice per recipient ([`occasions`]). Notices are
//! sent until they are accepted or the last attempt has failed. The operator defines the recipients; a workflow can
//! only name recipients that the operator has defined. A notice carries no rights: to answer, a person logs in, or the
//! operator has bound the person to the place where the question was asked ([`replies`]).

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

pub(crate) use replies::listen_for_answers;
pub use settings::{NotifySettings, Recipient};

/// Interval at which the store is checked.
const LOOK: Duration = Duration::from_secs(1);

/// Interval of the search for notices that no server sends any longer.
const FORGETTING: Duration = Duration::from_secs(3600);

/// Time after which a due notice is ended if this server does not know its target, in milliseconds: another server of
/// the store may know the target.
const LEFT_MS: i64 = 3_600_000;

/// Notices sent to one target at once.
const AT_ONCE: usize = 16;

/// Duration of the lease on a notice; an attempt takes less.
const LEASE_MS: i64 = 45_000;

/// Delays after failed attempts, in milliseconds.
const BACKOFF_MS: [i64; 8] =
    [1_000, 5_000, 30_000, 120_000, 600_000, 3_600_000, 6 * 3_600_000, 12 * 3_600_000];

/// Sends notices about a store's events.
pub(crate) struct Teller {
    app: Arc<App>,
    settings: NotifySettings,
}

impl Teller {
    /// Creates a teller. The first check of the store happens before the server answers requests, so every later event
    /// is reported.
    pub(crate) fn new(app: Arc<App>, settings: NotifySettings) -> Self {
        let teller = Self { app, settings };
        if !teller.settings.targets.is_empty() {
            teller.queue_new_notices();
        }
        teller
    }

    fn queue_new_notices(&self) {
        if let Err(error) = occasions::queue_notices(&self.app.service, &self.settings) {
            tracing::error!(%error, "the service cannot look for new notices");
        }
    }

    /// Works until `ended` returns true. Each target has its own thread, so that a target that is slow or accepts
    /// nothing delays neither the others nor the search for new notices.
    pub(crate) fn run_until(&self, ended: impl Fn(Duration) -> bool) {
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
                        tracing::error!(%error, target = target.name, "no notices can be sent")
                    }
                }
            }
            let mut forgot = Instant::now();
            loop {
                self.queue_new_notices();
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

    /// Sends the due notices of one target until the other end of `over` is dropped.
    fn send_to_target(&self, target: &Recipient, over: &Receiver<()>) {
        let http = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => {
                tracing::error!(%error, target = target.name, "no notices can be sent");
                return;
            }
        };
        loop {
            if let Err(error) = self.send_due(target, &http) {
                tracing::error!(%error, "the service cannot read the queued notices");
            }
            if !matches!(over.recv_timeout(LOOK), Err(RecvTimeoutError::Timeout)) {
                return;
            }
        }
    }

    /// Ends notices that no server sends any longer because their target was removed from the settings.
    fn end_unknown(&self) {
        let names: Vec<&str> = self.settings.targets.iter().map(|target| target.name.as_str()).collect();
        let before = self.app.service.store().clock_ms() - LEFT_MS;
        if let Err(error) = self.app.service.end_notices_of_others(&names, before) {
            tracing::error!(%error, "the service cannot end notices without a target");
        }
    }

    /// Warns of workflows that name recipients unknown to the operator.
    fn warn_of_unknown_names(&self) {
        let all = self.app.service.list_workflows().unwrap_or_default();
        for workflow in &all {
            for told in &Content::from_registered(workflow).notify {
                if !self.settings.targets.iter().any(|target| target.name == told.target) {
                    let (name, target) = (&workflow.name, &told.target);
                    tracing::warn!(
                        "workflow {name} notifies {target}, which no [[notify]] of --config names"
                    );
                }
            }
        }
    }

    fn send_due(&self, target: &Recipient, http: &tokio::runtime::Runtime) -> Result<(), StoreError> {
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
            // If an attempt panics, the notice is sent again after its lease.
            while let Some(done) = at_work.join_next().await {
                let Ok((notice, result)) = done else { continue };
                // The clock after the attempt, which may have taken longer than the following delay.
                let now = self.app.service.store().clock_ms();
                let failed = result.as_ref().err().map(|why| (why.as_str(), next_attempt(&notice, now)));
                if let Some((why, again)) = &failed {
                    tracing::warn!(target = notice.target, why, again, "a notice was not accepted");
                }
                self.app.service.end_attempt(notice.n, failed)?;
            }
            Ok(())
        })
    }

    /// Collects everything that is needed to send a notice.
    fn message_for(&self, target: &Recipient, notice: &Notice) -> Result<send::Message, String> {
        let names: Vec<String> = target.channel.secret_name().into_iter().map(str::to_owned).collect();
        let secret = self.app.runtime.secret_values(&names).map_err(|failure| failure.message)?.pop();
        let mut text = occasions::text_of(notice);
        let takes_answers = notice.kind == "question" && target.channel.takes_answers();
        let offer = takes_answers.then(|| replies::Offer::for_notice(&self.app, notice)).flatten();
        if takes_answers && offer.is_none() {
            text.1 += "\nThis cannot be answered here: it is too long, or needs more than an approval or a rejection.";
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

/// Returns the time of the next attempt after a failure now, or `None` after the last one.
fn next_attempt(notice: &Notice, now: i64) -> Option<i64> {
    let failed = usize::try_from(notice.attempts).unwrap_or(usize::MAX);
    BACKOFF_MS.get(failed).map(|wait| now + wait)
}
