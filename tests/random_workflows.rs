//! Random workflows, and what a reference model says they do.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::home::Home;

/// A sequence that a seed decides (splitmix64).
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// One of `0..bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// True `percent` times in a hundred.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<'t, T>(&mut self, items: &'t [T]) -> Option<&'t T> {
        let index = usize::try_from(self.below(items.len() as u64)).unwrap();
        items.get(index)
    }
}

/// A workflow with its files, and what must come of it.
#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) files: BTreeMap<String, String>,
    /// How often each step writes its line, over all its rounds and attempts.
    pub(crate) effects: BTreeMap<String, u64>,
    pub(crate) output: i64,
}

/// What every input request of a scenario is answered with.
pub(crate) const RESPONSE: i64 = 7;

impl Scenario {
    pub(crate) fn random(seed: u64, with_js: bool) -> Self {
        let mut maker = Maker {
            dice: Dice::new(seed),
            next_id: 0,
            with_js,
            files: BTreeMap::new(),
            effects: BTreeMap::new(),
        };
        let (steps, output) = maker.workflow(0, 5);
        maker.file("flow.lobster", steps);
        Self { files: maker.files, effects: maker.effects, output }
    }

    pub(crate) fn install(&self, home: &Home) {
        for (name, text) in &self.files {
            home.write(name, text);
        }
    }
}

/// A step that later ones may read, with the value that they will find.
#[derive(Clone)]
struct Known {
    reference: String,
    value: i64,
}

struct Maker {
    dice: Dice,
    next_id: u32,
    with_js: bool,
    files: BTreeMap<String, String>,
    effects: BTreeMap<String, u64>,
}

impl Maker {
    /// Writes a file, sometimes as a graph: then its steps, in whatever order, run by what they
    /// read; the last stays the last, for it gives the output.
    fn file(&mut self, name: &str, mut steps: Vec<Value>) {
        let mut file = json!({ "name": name });
        if self.dice.chance(40) {
            let count = steps.len() as u64 - 1;
            for index in 0..count {
                let other = self.dice.below(count);
                steps.swap(usize::try_from(index).unwrap(), usize::try_from(other).unwrap());
            }
            let first = steps.first_mut().unwrap();
            first["needs"] = json!([]);
            if self.dice.chance(50) {
                file["concurrency"] = json!(1 + self.dice.below(3));
            }
        }
        file["steps"] = json!(steps);
        self.files.insert(name.to_owned(), file.to_string());
    }

    fn id(&mut self) -> String {
        self.next_id += 1;
        format!("s{}", self.next_id)
    }

    fn happens(&mut self, id: &str, times: u64) {
        *self.effects.entry(id.to_owned()).or_default() += times;
    }

    /// The steps of one file and the value of the last, which reads all that can be read.
    fn workflow(&mut self, depth: u32, most: u64) -> (Vec<Value>, i64) {
        let mut known = Vec::new();
        let mut steps = Vec::new();
        for _ in 0..2 + self.dice.below(most) {
            self.step(depth, &mut known, &mut steps);
        }
        let id = self.id();
        let total = known.iter().map(|known| known.value).sum::<i64>();
        let words: Vec<_> = (0..known.len()).map(|index| format!("$V{index}")).collect();
        let sum = if words.is_empty() { "0".to_owned() } else { words.join("+") };
        let env: BTreeMap<_, _> = known
            .iter()
            .enumerate()
            .map(|(index, known)| (format!("V{index}"), known.reference.clone()))
            .collect();
        steps.push(json!({ "id": id, "run": format!("echo {id} >> effects; echo $(({sum}))"), "env": env }));
        self.happens(&id, 1);
        (steps, total)
    }

    fn step(&mut self, depth: u32, known: &mut Vec<Known>, steps: &mut Vec<Value>) {
        match self.dice.below(if depth == 0 { 26 } else { 9 }) {
            0..=4 => {
                let (step, value) = self.effect(known, 1);
                self.conditional(step, value, known, steps);
            }
            5 if self.with_js => {
                let id = self.id();
                let (read, value) = self.read(known);
                let step = match read {
                    Some(reference) => json!({ "id": id, "js": "input + 1", "stdin": reference }),
                    None => json!({ "id": id, "js": "1" }),
                };
                known.push(Known { reference: format!("${id}.json"), value: value + 1 });
                steps.push(step);
            }
            5 | 6 => {
                let id = self.id();
                self.happens(&id, 1);
                steps.push(json!({ "id": id, "pipeline": format!("exec --json --shell 'echo {id} >> effects; echo 3'") }));
                known.push(Known { reference: format!("${id}.json"), value: 3 });
            }
            7 => {
                let (id, tries) = (self.id(), 2 + self.dice.below(2));
                self.happens(&id, tries);
                let work =
                    format!("echo {id} >> effects; test $(grep -cx {id} effects) -ge {tries} && echo 5");
                steps.push(json!({ "id": id, "run": work, "retry": { "max": tries + 2, "delay_ms": 1 } }));
                known.push(Known { reference: format!("${id}.json"), value: 5 });
            }
            8 => {
                let id = self.id();
                self.happens(&id, 1);
                steps.push(json!({ "id": id, "run": format!("echo {id} >> effects; exit 3"), "on_error": "continue" }));
            }
            9..=11 => self.gate(known, steps),
            12..=14 => self.branches(known, steps),
            15..=17 => self.rounds(known, steps),
            18..=20 => self.repeat(known, steps),
            21..=22 => self.switch(known, steps),
            23 => {
                let (id, (read, value)) = (self.id(), self.read(known));
                let ms = self.dice.below(5);
                let mut step = json!({ "id": id, "wait": format!("{ms}ms") });
                if let Some(reference) = read {
                    step["stdin"] = json!(reference);
                    known.push(Known { reference: format!("${id}.json"), value });
                }
                steps.push(step);
            }
            _ => {
                let (id, file) = (self.id(), format!("child{}.lobster", self.next_id));
                let (child, value) = self.workflow(depth + 1, 2);
                self.file(&file, child);
                steps.push(json!({ "id": id, "workflow": file }));
                known.push(Known { reference: format!("${id}.json"), value });
            }
        }
    }

    /// Something earlier to read, or nothing, which counts as 0.
    fn read(&mut self, known: &[Known]) -> (Option<String>, i64) {
        match self.dice.pick(known) {
            Some(known) => (Some(known.reference.clone()), known.value),
            None => (None, 0),
        }
    }

    /// A shell step that writes its line `times` times and adds something to what it reads.
    fn effect(&mut self, known: &[Known], times: u64) -> (Value, i64) {
        let (id, add) = (self.id(), i64::try_from(self.dice.below(9)).unwrap());
        let (read, value) = self.read(known);
        self.happens(&id, times);
        let mut step = json!({ "id": id, "run": format!("echo {id} >> effects; echo $((A+{add}))") });
        if let Some(reference) = read {
            step["env"] = json!({ "A": reference });
        }
        (step, value + add)
    }

    /// Puts a step there, sometimes under a condition, which sometimes does not hold.
    fn conditional(&mut self, mut step: Value, value: i64, known: &mut Vec<Known>, steps: &mut Vec<Value>) {
        let id = step["id"].as_str().unwrap().to_owned();
        let condition = self.dice.chance(30).then(|| self.dice.pick(known).cloned()).flatten();
        let holds = condition.is_none() || self.dice.chance(60);
        if let Some(on) = condition {
            let wanted = if holds { on.value } else { on.value + 1 };
            step["when"] = json!(format!("{} == {wanted}", on.reference));
        }
        if holds {
            known.push(Known { reference: format!("${id}.json"), value });
        } else {
            self.effects.remove(&id);
        }
        steps.push(step);
    }

    fn gate(&mut self, known: &mut Vec<Known>, steps: &mut Vec<Value>) {
        match self.dice.below(3) {
            0 => {
                let id = self.id();
                steps.push(json!({ "id": id, "approval": "Go on?" }));
            }
            1 => {
                let (mut step, value) = self.effect(known, 1);
                step["approval"] = json!({ "prompt": "Good?" });
                known.push(Known { reference: format!("${}.json", step["id"].as_str().unwrap()), value });
                steps.push(step);
            }
            _ => {
                let id = self.id();
                let schema = json!({ "type": "integer" });
                steps.push(json!({ "id": id, "input": { "prompt": "How many?", "responseSchema": schema } }));
                known.push(Known { reference: format!("${id}.response"), value: RESPONSE });
            }
        }
    }

    fn branches(&mut self, known: &mut Vec<Known>, steps: &mut Vec<Value>) {
        let id = self.id();
        let before = known.clone();
        let branches: Vec<Value> = (0..2 + self.dice.below(2))
            .map(|_| {
                let (mut branch, value) = self.effect(&before, 1);
                if self.dice.chance(20) {
                    branch["approval"] = json!("This branch?");
                }
                known.push(Known { reference: format!("${}.json", branch["id"].as_str().unwrap()), value });
                branch
            })
            .collect();
        steps.push(json!({ "id": id, "parallel": { "branches": branches } }));
    }

    fn rounds(&mut self, known: &mut Vec<Known>, steps: &mut Vec<Value>) {
        let (list, id, count) = (self.id(), self.id(), 1 + self.dice.below(3));
        let items: Vec<_> = (1..=count).collect();
        self.happens(&list, 1);
        steps
            .push(json!({ "id": list, "run": format!("echo {list} >> effects; printf '{}'", json!(items)) }));
        let mut inner = vec![self.effect(known, count).0];
        if self.dice.chance(25) {
            let ask = self.id();
            inner.push(json!({ "id": ask, "approval": "Next?" }));
        }
        if self.dice.chance(40) {
            inner.push(self.effect(known, count).0);
        }
        let mut step = json!({ "id": id, "for_each": format!("${list}.json"), "steps": inner });
        if self.dice.chance(60) {
            step["concurrency"] = json!(1 + self.dice.below(3));
            // The results are in the order of the items, however the rounds ended.
            let first = self.id();
            self.happens(&first, 1);
            steps.push(step);
            let last = count - 1;
            steps.push(json!({
                "id": first,
                "run": format!("echo {first} >> effects; echo $((A*100+B))"),
                "env": { "A": format!("${id}.json.0.item"), "B": format!("${id}.json.{last}.index") },
            }));
            let value = i64::try_from(100 + last).unwrap();
            known.push(Known { reference: format!("${first}.json"), value });
        } else {
            steps.push(step);
        }
    }

    fn repeat(&mut self, known: &mut Vec<Known>, steps: &mut Vec<Value>) {
        let (id, count) = (self.id(), 1 + self.dice.below(3));
        let (inner, value) = self.effect(known, count);
        let sub = inner["id"].as_str().unwrap().to_owned();
        let mut all = vec![inner];
        if self.dice.chance(20) {
            all.push(json!({ "id": self.id(), "approval": "Once more?" }));
        }
        let mut repeat =
            json!({ "until": format!("$index.json == {}", count - 1), "max": count + self.dice.below(2) });
        if self.dice.chance(50) {
            repeat["every"] = json!(format!("{}ms", self.dice.below(4)));
        }
        steps.push(json!({ "id": id, "repeat": repeat, "steps": all }));
        known.push(Known { reference: format!("${id}.json.{sub}"), value });
    }

    fn switch(&mut self, known: &mut Vec<Known>, steps: &mut Vec<Value>) {
        let Some(on) = self.dice.pick(known).cloned() else { return };
        let id = self.id();
        let (mut taken, value) = self.effect(known, 1);
        let (other, _) = self.effect(known, 1);
        self.effects.remove(other["id"].as_str().unwrap());
        if self.dice.chance(20) {
            taken["approval"] = json!("This case?");
        }
        let inner = taken["id"].as_str().unwrap().to_owned();
        let mut step = json!({ "id": id, "switch": on.reference });
        if self.dice.chance(60) {
            step["cases"] = json!({ on.value.to_string(): [taken], (on.value + 1).to_string(): [other] });
        } else {
            step["cases"] = json!({ (on.value + 1).to_string(): [other] });
            step["default"] = json!([taken]);
        }
        steps.push(step);
        let reference = if self.dice.chance(50) { format!("${id}.json") } else { format!("${inner}.json") };
        known.push(Known { reference, value });
    }
}
