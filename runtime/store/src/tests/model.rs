//! Random requests compared with a model in memory: the store must give the same answers, even after closing and
//! opening it again.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

#[derive(Clone, Debug)]
enum Request {
    Put(u8, usize),
    Create(u8),
    Append(usize, Vec<u8>, bool),
    End(usize, bool),
    Open(usize, Option<i64>),
    Answer(usize, bool),
    Cancel(usize),
    Cache(u8, Option<i64>),
    Value(usize, u8, u8),
    Pass(i64),
    Expire,
    Collect(u64),
    GiveBackMemory,
    Reopen,
}

fn request() -> impl Strategy<Value = Request> {
    let lens = prop_oneof![0..300_usize, Just(INLINE_MAX), Just(INLINE_MAX + 1)];
    prop_oneof![
        4 => (any::<u8>(), lens).prop_map(|(b, n)| Request::Put(b, n)),
        3 => (0..3_u8).prop_map(Request::Create),
        6 => (any::<usize>(), vec(any::<u8>(), 0..5), any::<bool>()).prop_map(|(r, e, s)| Request::Append(r, e, s)),
        2 => (any::<usize>(), any::<bool>()).prop_map(|(r, ok)| Request::End(r, ok)),
        3 => (any::<usize>(), proptest::option::of(0..5000_i64)).prop_map(|(r, e)| Request::Open(r, e)),
        3 => (any::<usize>(), any::<bool>()).prop_map(|(g, yes)| Request::Answer(g, yes)),
        1 => any::<usize>().prop_map(Request::Cancel),
        2 => (0..4_u8, proptest::option::of(0..5000_i64)).prop_map(|(a, ttl)| Request::Cache(a, ttl)),
        2 => (any::<usize>(), 0..3_u8, any::<u8>()).prop_map(|(r, k, v)| Request::Value(r, k, v)),
        2 => (-2000..4000_i64).prop_map(Request::Pass),
        1 => Just(Request::Expire),
        1 => (0..6_u64).prop_map(Request::Collect),
        1 => Just(Request::GiveBackMemory),
        2 => Just(Request::Reopen),
    ]
}

struct ModelRun {
    id: RunId,
    name: String,
    status: RunStatus,
    events: usize,
    values: BTreeMap<String, u8>,
}

struct ModelGate {
    key: GateKey,
    run: RunId,
    expires: Option<i64>,
    status: GateStatus,
}

#[derive(Default)]
struct Model {
    blobs: BTreeMap<Digest, Vec<u8>>,
    runs: Vec<ModelRun>,
    gates: Vec<ModelGate>,
    cache: BTreeMap<u8, (Option<i64>, i64)>,
}

struct Both {
    store: Store,
    model: Model,
    dir: TempDir,
    now: Arc<AtomicI64>,
    clock: Clock,
}

impl Both {
    fn now(&self) -> i64 {
        self.now.load(Ordering::Relaxed)
    }

    fn apply(&mut self, request: Request) {
        let now = self.now();
        let runs = self.model.runs.len();
        let gates = self.model.gates.len();
        match request {
            Request::Put(byte, len) => {
                let bytes = vec![byte; len];
                let blob = self.store.put_blob(&bytes).unwrap();
                self.model.blobs.insert(blob.digest, bytes);
            }
            Request::Create(name) => {
                let name = format!("w{name}");
                let id = new_run(&self.store, &name);
                self.model.blobs.insert(Digest::of_bytes(b"plan"), b"plan".to_vec());
                let status = RunStatus::Running;
                self.model.runs.push(ModelRun { id, name, status, events: 1, values: BTreeMap::new() });
            }
            Request::Append(run, notes, synced) if runs > 0 => {
                let run = &mut self.model.runs[run % runs];
                let durability = if synced { Durability::Synced } else { Durability::Lazy };
                let events: Vec<_> = notes.iter().map(|n| note(&n.to_string())).collect();
                run.events += events.len();
                self.store.append_events(run.id, events, durability).unwrap();
            }
            Request::End(run, ok) if runs > 0 => {
                let run = &mut self.model.runs[run % runs];
                run.status = if ok { RunStatus::Ok } else { RunStatus::Failed };
                run.events += 1;
                let end =
                    Event::RunEnded { status: run.status, output: None, error: None, detail: json!(null) };
                self.store.append_events(run.id, vec![end], Durability::Lazy).unwrap();
            }
            Request::Open(run, expires) if runs > 0 => {
                let run = &mut self.model.runs[run % runs];
                let expires = expires.map(|ms| now + ms);
                let opened = self.store.open_gate(gate(run.id, expires)).unwrap();
                run.events += 1;
                self.model.gates.push(ModelGate {
                    key: opened.key,
                    run: run.id,
                    expires,
                    status: GateStatus::Open,
                });
            }
            Request::Answer(gate, yes) if gates > 0 => self.close(gate % gates, Some(yes)),
            Request::Cancel(gate) if gates > 0 => self.close(gate % gates, None),
            Request::Cache(action, ttl) => {
                let mut outcome = StepOutcome::new(StepStatus::Ok);
                outcome.value = json!(now);
                self.store.cache_outcome(Digest::of_bytes(&[action]), &outcome, ttl).unwrap();
                self.model.cache.insert(action, (ttl.map(|ttl| now + ttl), now));
            }
            Request::Value(run, key, value) if runs > 0 => {
                let run = &mut self.model.runs[run % runs];
                self.store.set_run_value(run.id, &key.to_string(), &json!(value), Durability::Lazy).unwrap();
                run.values.insert(key.to_string(), value);
            }
            Request::Pass(ms) => drop(self.now.fetch_add(ms, Ordering::Relaxed)),
            Request::Expire => {
                let closed = self.store.expire_gates().unwrap();
                let mut count = 0;
                for at in 0..gates {
                    let gate = &mut self.model.gates[at];
                    if gate.status == GateStatus::Open && gate.expires.is_some_and(|at| at <= now) {
                        gate.status = GateStatus::Expired;
                        count += 1;
                        self.grown(at);
                    }
                }
                assert_eq!(closed.len(), count);
            }
            Request::Collect(most) => self.collect(most),
            Request::GiveBackMemory => self.store.give_back_memory(),
            Request::Reopen => {
                // The old one closes while the new one is open.
                self.store = Store::open_with(self.dir.path(), Arc::clone(&self.clock)).unwrap();
            }
            Request::Append(..)
            | Request::End(..)
            | Request::Open(..)
            | Request::Answer(..)
            | Request::Cancel(_)
            | Request::Value(..) => {}
        }
    }

    fn collect(&mut self, most: u64) {
        let policy = GcPolicy { max_runs: Some(most), ..GcPolicy::default() };
        self.store.collect_garbage(&policy).unwrap();
        let mut over = 0;
        let kept: Vec<bool> = self
            .model
            .runs
            .iter()
            .rev()
            .map(|run| {
                over += u64::from(run.status.is_over());
                !run.status.is_over() || over <= most
            })
            .collect();
        let mut kept = kept.into_iter().rev();
        self.model.runs.retain(|_| kept.next().unwrap());
        let runs: Vec<_> = self.model.runs.iter().map(|r| r.id).collect();
        self.model.gates.retain(|gate| runs.contains(&gate.run));
    }

    fn grown(&mut self, gate: usize) {
        let run = self.model.gates[gate].run;
        self.model.runs.iter_mut().find(|r| r.id == run).unwrap().events += 1;
    }

    fn close(&mut self, at: usize, answer: Option<bool>) {
        let now = self.now();
        let gate = &mut self.model.gates[at];
        let result = match answer {
            Some(true) => self.store.answer_gate(gate.key, GateAnswer::Approved, None),
            Some(false) => self.store.answer_gate(gate.key, GateAnswer::Rejected, None),
            None => self.store.cancel_gate(gate.key, None),
        };
        let was = gate.status;
        match (was, answer) {
            (GateStatus::Open, Some(_)) if gate.expires.is_some_and(|at| at <= now) => {
                gate.status = GateStatus::Expired;
                assert!(matches!(result, Err(StoreError::ExpiredGate { .. })));
            }
            (GateStatus::Open, _) => {
                gate.status = if answer.is_some() { GateStatus::Answered } else { GateStatus::Cancelled };
                assert_eq!(result.unwrap().status, gate.status);
            }
            (GateStatus::Expired, _) => assert!(matches!(result, Err(StoreError::ExpiredGate { .. }))),
            (GateStatus::Answered | GateStatus::Cancelled, _) => {
                assert!(matches!(result, Err(StoreError::ConsumedGate { .. })));
            }
        }
        if was == GateStatus::Open {
            self.grown(at);
        }
    }

    fn compare(&self) {
        let (store, model, now) = (&self.store, &self.model, self.now());
        let listed: Vec<_> = store
            .list_runs(&RunFilter::default())
            .unwrap()
            .into_iter()
            .map(|r| (r.id, r.name, r.status))
            .collect();
        let wanted: Vec<_> = model.runs.iter().rev().map(|r| (r.id, r.name.clone(), r.status)).collect();
        assert_eq!(listed, wanted);
        for run in &model.runs {
            assert_eq!(store.all_events(run.id).unwrap().len(), run.events);
            for key in ["0", "1", "2"] {
                let value = store.run_value(run.id, key).unwrap();
                assert_eq!(value, run.values.get(key).map(|v| json!(v)));
            }
        }
        for gate in &model.gates {
            assert_eq!(store.approval_by_key(gate.key).unwrap().status, gate.status);
        }
        let open = store
            .list_approvals(&GateFilter { status: Some(GateStatus::Open), ..Default::default() })
            .unwrap();
        let open: Vec<_> = open.into_iter().map(|g| g.key).collect();
        let live = |g: &&ModelGate| g.status == GateStatus::Open && g.expires.is_none_or(|at| at > now);
        let wanted: Vec<_> = model.gates.iter().rev().filter(live).map(|g| g.key).collect();
        assert_eq!(open, wanted);
        for action in 0..4 {
            let found = store.cached_outcome(&Digest::of_bytes(&[action]), None).unwrap().map(|o| o.value);
            // With a limit on age, an outcome dated in the future is too old.
            let holds = |(expires, created): &&(Option<i64>, i64)| {
                expires.is_none_or(|at| at > now && *created <= now)
            };
            let wanted = model.cache.get(&action).filter(holds);
            assert_eq!(found, wanted.map(|(_, at)| json!(at)));
        }
        for (digest, bytes) in &model.blobs {
            assert_eq!(&store.load_blob(digest, u64::MAX).unwrap(), bytes);
        }
        assert_eq!(store.verify().unwrap().problems, []);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn the_store_agrees_with_its_model(requests in vec(request(), 1..60)) {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let (now, clock) = hand();
        // The grace time of gc, an hour, then covers all requests.
        now.store(1_000_000_000, Ordering::Relaxed);
        let store = Store::open_with(dir.path(), Arc::clone(&clock)).unwrap();
        let mut both = Both { store, model: Model::default(), dir, now, clock };
        for request in requests {
            both.apply(request);
        }
        both.compare();
        both.apply(Request::Reopen);
        both.compare();
    }
}

proptest! {
    #[test]
    fn whatever_is_typed_finds_nothing_and_breaks_nothing(text in "\\PC{0,40}|[0-9a-fA-F-]{0,40}") {
        thread_local!(static STORE: Store = Store::in_memory().unwrap());
        STORE.with(|store| {
            assert!(matches!(store.find_run(&text), Err(StoreError::UnknownRun(_))));
            assert!(matches!(store.gate_by_id(&text), Err(StoreError::UnknownGate(_))));
            assert!(matches!(store.import_run(vec![text], &Redacted::default()), Err(StoreError::BrokenChain { seq: 1, .. })));
        });
    }
}
