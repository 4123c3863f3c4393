//! The abilities that a server lacks now, for `/readyz`: its threads note them, and a probe checks the store.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lobster_runtime::store::Store;
use lobster_runtime::sync::lock;

/// Validity of a probe's result: anyone who can connect may request `/readyz`.
const FRESH: Duration = Duration::from_secs(1);

/// Free bytes that a disk must have; otherwise it is full.
const PROBE: usize = 64 << 10;

/// A clock before 1 January 2010 is wrong: a machine without a battery for its clock starts in 1970 or 2000.
pub(crate) const EARLIEST_MS: i64 = 1_262_304_000_000;

/// The abilities that fail, each with the reason.
type Failing = BTreeMap<Ability, String>;

/// A kind of work of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ability {
    /// Use the store at all.
    Store,
    /// Write to it.
    Record,
    /// Start processes for runs.
    Workers,
    /// Decide about schedules.
    Clock,
}

impl Ability {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Record => "record",
            Self::Workers => "workers",
            Self::Clock => "clock",
        }
    }
}

/// The missing abilities, each with its reason. Clones share the same list.
#[derive(Clone, Default)]
pub(crate) struct Readiness {
    noted: Arc<Mutex<BTreeMap<Ability, String>>>,
    probed: Arc<Mutex<Option<(Instant, Failing)>>>,
}

impl Readiness {
    /// Notes why an ability is missing now, or that it is available again.
    pub(crate) fn update_ability(&self, ability: Ability, why: Option<String>) {
        let mut noted = lock(&self.noted);
        match why {
            Some(why) => noted.insert(ability, why),
            None => noted.remove(&ability),
        };
    }

    /// All missing abilities.
    pub(crate) fn missing_abilities(&self, store: &Store) -> BTreeMap<Ability, String> {
        let mut probed = lock(&self.probed);
        let mut found = match &*probed {
            Some((at, found)) if at.elapsed() < FRESH => found.clone(),
            _ => {
                let found = probe_abilities(store);
                *probed = Some((Instant::now(), found.clone()));
                found
            }
        };
        found.extend(lock(&self.noted).clone());
        found
    }
}

fn probe_abilities(store: &Store) -> BTreeMap<Ability, String> {
    let mut found = BTreeMap::new();
    let usable = store.check_identity().and_then(|()| store.check_rollback());
    if let Err(error) = usable.and_then(|()| store.service()?.next_decision().map(|_| ())) {
        found.insert(Ability::Store, error.to_string());
    }
    if let Err(error) = write_probe(store) {
        found.insert(Ability::Record, format!("{}: {error}", store.dir().display()));
    }
    if store.clock_ms() < EARLIEST_MS {
        let why = "the clock of this machine is wrong: no schedule is decided until it is set".to_owned();
        found.insert(Ability::Clock, why);
    }
    found
}

/// Writes a file without a name, so that it leaves nothing behind.
fn write_probe(store: &Store) -> std::io::Result<()> {
    let mut file = tempfile::tempfile_in(store.dir())?;
    file.write_all(&[0x5a; PROBE])?;
    file.sync_data()
}

/// Delay after `times` consecutive failures: 2 s, then twice as long each time.
pub(crate) fn rest_ms(times: u32, longest: i64) -> i64 {
    const FIRST: i64 = 2_000;
    FIRST.checked_shl(times.saturating_sub(1).min(16)).map_or(longest, |rest| rest.min(longest))
}
