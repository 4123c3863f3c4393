//! Bundles that somebody wrote by hand. Whatever their records say, nothing of them is executed but
//! components, and what was not recorded so is a difference.

use std::path::Path;

use lobster_runtime::digest::Digest;
use serde_json::{Value, json};

use crate::binary;
use crate::home::{Answer, Home};
use crate::models::openai;
use crate::server::{Reply, Server};

/// A bundle in its parts; written, its digests fit them.
pub(crate) struct Bundle {
    pub(crate) manifest: Value,
    pub(crate) records: Vec<Value>,
    pub(crate) blobs: Vec<Vec<u8>>,
}

impl Bundle {
    pub(crate) fn read(file: &Path) -> Self {
        let bytes = std::fs::read(file).unwrap();
        let mut rest = &bytes[48..];
        let mut take = |len: u64| {
            let (part, after) = rest.split_at(usize::try_from(len).unwrap());
            rest = after;
            part.to_vec()
        };
        let len = u64::from_le_bytes(take(8).try_into().unwrap());
        let manifest: Value = serde_json::from_slice(&take(len)).unwrap();
        let mut parts = |of: &str| -> Vec<Vec<u8>> {
            let entries = manifest[of].as_array().unwrap();
            entries.iter().map(|entry| take(entry["len"].as_u64().unwrap())).collect()
        };
        let records = parts("records").iter().map(|text| serde_json::from_slice(text).unwrap()).collect();
        let blobs = parts("blobs");
        Self { manifest, records, blobs }
    }

    pub(crate) fn write(&mut self, file: &Path) {
        let (mut texts, mut entries, mut prev) = (Vec::new(), Vec::new(), "0".repeat(64));
        for (record, seq) in self.records.iter_mut().zip(1..) {
            record["seq"] = json!(seq);
            record["prev"] = json!(prev);
            let text = record.to_string();
            prev = Digest::of_bytes(text.as_bytes()).to_string();
            entries.push(json!({ "len": text.len(), "digest": prev }));
            texts.extend(text.into_bytes());
        }
        self.manifest["records"] = Value::Array(entries);
        let what =
            |index: usize| self.manifest["blobs"][index]["what"].as_str().unwrap_or("forged").to_owned();
        let entry = |(index, blob): (usize, &Vec<u8>)| json!({ "len": blob.len(), "digest": Digest::of_bytes(blob).to_string(), "what": what(index) });
        self.manifest["blobs"] = self.blobs.iter().enumerate().map(entry).collect();
        let manifest = self.manifest.to_string().into_bytes();
        let mut bytes = [&b"lobster bundle\n\x01"[..], Digest::of_bytes(&manifest).as_bytes()].concat();
        bytes.extend((manifest.len() as u64).to_le_bytes());
        bytes.extend([manifest, texts, self.blobs.concat()].concat());
        std::fs::write(file, bytes).unwrap();
    }

    /// Adds a blob.
    pub(crate) fn put(&mut self, blob: &[u8]) -> String {
        self.blobs.push(blob.to_vec());
        Digest::of_bytes(blob).to_string()
    }

    /// The event of this type at a place.
    pub(crate) fn event(&mut self, kind: &str, path: &str) -> &mut Value {
        let events = self.records.iter_mut().map(|record| &mut record["event"]);
        let mut fitting = events.filter(|event| event["type"] == kind && event["path"] == path);
        fitting.find(|event| event["attempt"] != 0).unwrap()
    }

    fn drop_event(&mut self, kind: &str, path: &str) {
        let before = self.records.len();
        self.records.retain(|record| record["event"]["type"] != kind || record["event"]["path"] != path);
        assert_eq!(self.records.len(), before - 1, "{kind} {path}");
    }
}

/// The run of a workflow, exported.
fn exported(home: &Home, run: impl FnOnce(&Home) -> Answer) -> Bundle {
    run(home);
    let answer = home.lobster(["bundle", "export", "@", "-o", "run.bundle", "--force"]).run();
    assert_eq!(answer.code(), 0, "{answer:?}");
    Bundle::read(&home.dir().join("run.bundle"))
}

fn exported_workflow(workflow: &str) -> (Home, Bundle) {
    let home = Home::new();
    let bundle = exported(&home, |home| home.write("flow.lobster", workflow).tool(["flow.lobster"]));
    (home, bundle)
}

/// What differs, as `step: what` for each.
fn differences(answer: &Answer) -> Vec<String> {
    let report: Value = serde_json::from_str(&answer.stdout).unwrap_or_else(|_| panic!("{answer:?}"));
    let replay = report.get("replay").unwrap_or(&report);
    let all = replay["divergences"].as_array().unwrap().iter();
    all.map(|one| format!("{}: {}", one["step"].as_str().unwrap(), one["what"].as_str().unwrap())).collect()
}

fn verified(home: &Home) -> Answer {
    home.lobster(["bundle", "verify", "forged.bundle", "--json"]).run()
}

/// One effect of each kind.
const EFFECTS: &str = "
name: effects
steps:
  - id: native
    run: echo native >> effects
  - id: argv
    pipeline: exec sh -c 'echo argv >> effects'
  - id: stage
    pipeline: exec --shell 'echo stage >> effects'
  - id: set
    pipeline: \"js '1' | state.set counter\"
  - id: gateway
    pipeline: openclaw.invoke --url URL/gateway --tool t --action a
  - id: model
    pipeline: llm.invoke --prompt p --model m --disable-cache
  - id: tool
    mcp: { server: s, tool: say }
  - id: call
    pipeline: mcp.call --server s --tool say
";

#[test]
fn no_record_has_an_effect_performed() {
    let server = Server::start(|_, request| match request.path.starts_with("/gateway") {
        true => Reply::json(&json!({ "ok": true, "result": {} })),
        false => Reply::chat("well"),
    });
    let home = Home::new();
    let script = binary::repository().join("tests/mcp/hostile_server.py");
    let command = json!(["python3", script, "good", "Says it back."]);
    home.write("lobster.mcp.toml", format!("version = 1\n[server.s]\ncommand = {command}\n"));
    home.write("flow.lobster", EFFECTS.replace("URL", &server.url()));
    let honest = exported(&home, |home| {
        let answer = openai(home.lobster(["run", "--mode", "tool", "flow.lobster"]), &server).run();
        answer.output();
        answer
    });
    let done = || {
        let lines = ["effects", "calls.log"].map(|log| home.read(log).lines().count());
        (lines, server.requests().len())
    };
    let before = done();
    assert_eq!(before, ([3, 2], 2));
    let run = honest.manifest["run"].as_str().unwrap().to_owned();
    let places =
        ["native", "argv|0.0", "stage|0.0", "set|1.0", "gateway|0.0", "model|0.0", "tool", "call|0.0"];
    let plan = honest.records[0]["event"]["plan"].clone();
    for (claim, state) in [(json!("none"), "first"), (plan, "second")] {
        let state = home.second_state(state);
        let here =
            |words: &[&str]| openai(home.lobster(words), &server).env("LOBSTER_STATE_DIR", &state).run();
        let mut forged = Bundle::read(&home.dir().join("run.bundle"));
        for place in places {
            let outcome = &mut forged.event("step_ended", place)["outcome"];
            outcome["detail"]["host_calls"] = claim.clone();
        }
        forged.write(&home.dir().join("forged.bundle"));
        let expected: Vec<_> = places.iter().map(|place| format!("{place}: host calls")).collect();
        assert_eq!(differences(&here(&["bundle", "verify", "forged.bundle", "--json"])), expected);
        let refused = here(&["bundle", "import", "forged.bundle"]);
        assert!(refused.stderr.contains("does not replay as it was recorded"), "{refused:?}");
        let forced = here(&["bundle", "import", "forged.bundle", "--no-replay"]);
        assert_eq!(forced.code(), 0, "{forced:?}");
        let replayed = here(&["replay", &run, "--json"]);
        assert_eq!((differences(&replayed), replayed.code()), (expected, 1));
        assert_eq!(done(), before, "{claim}");
        assert!(!state.join("counter.json").exists());
    }
    // On request one is performed, and no other.
    let state = home.dir().join("first");
    let live = openai(home.lobster(["replay", &run, "--live", "stage"]), &server);
    live.env("LOBSTER_STATE_DIR", &state).run();
    assert_eq!(done(), ([4, 2], 2));
    assert!(home.read("effects").ends_with("stage\nstage\n"));
}

const SUM: &str = "
name: sum
steps:
  - id: say
    run: printf '[1,2]'
  - id: sum
    js: '({ note: \"a note\", amount: input[0] + input[1] })'
    stdin: $say.json
";

#[test]
fn an_effect_is_not_taken_for_a_component_nor_for_a_pure_step() {
    for (key, forged_kind) in [("kind", json!("component")), ("effect", json!(false))] {
        let (home, mut bundle) = exported_workflow(SUM);
        bundle.event("step_started", "say")[key] = forged_kind;
        bundle.write(&home.dir().join("forged.bundle"));
        let what = if key == "kind" { "say: kind" } else { "say: whether it is an effect" };
        assert_eq!(differences(&verified(&home)), [what]);
    }
}

#[test]
fn an_end_without_a_beginning_is_a_difference() {
    let (home, mut bundle) = exported_workflow(SUM);
    bundle.drop_event("step_started", "say");
    bundle.write(&home.dir().join("forged.bundle"));
    assert_eq!(differences(&verified(&home)), ["say: action"]);

    // What a pure step gave is compared with what is computed, or told.
    let (home, mut bundle) = exported_workflow(SUM);
    let forged = b"{\"note\":\"a note\",\"amount\":999}\n";
    let other = bundle.put(forged);
    let event = bundle.event("step_ended", "sum");
    event["outcome"]["output"] = json!({ "digest": other, "len": forged.len() });
    event.as_object_mut().unwrap().remove("begun").unwrap();
    bundle.write(&home.dir().join("forged.bundle"));
    assert!(differences(&verified(&home)).contains(&"sum: action".to_owned()));
}

#[test]
fn a_text_that_was_cut_hides_nothing_else() {
    let cut = format!("redacted blake3:{}", Digest::of_bytes(b"something"));
    let (home, mut bundle) = exported_workflow(SUM);
    let other = format!("{{\"note\":\"{cut}\",\"amount\":999}}\n");
    let digest = bundle.put(other.as_bytes());
    let outcome = &mut bundle.event("step_ended", "sum")["outcome"]["output"];
    *outcome = json!({ "digest": digest, "len": other.len() });
    bundle.manifest["redacted"] = json!(["say"]);
    bundle.write(&home.dir().join("forged.bundle"));
    assert!(differences(&verified(&home)).contains(&"sum: output".to_owned()), "{:?}", verified(&home));

    // In a record a text may be cut; what stands there now has to be the same text.
    let failing = "name: fails\nsteps:\n  - id: say\n    run: printf '[1,2]'\n  - id: no\n    js: throw new Error('this one')\n";
    let (home, mut bundle) = exported_workflow(failing);
    bundle.manifest["redacted"] = json!(["say"]);
    let cut = |text: &str| json!(format!("redacted blake3:{}", Digest::of_bytes(text.as_bytes())));
    for event in bundle.records.iter_mut().map(|record| &mut record["event"]) {
        for place in ["/outcome/error", "/error"] {
            if let Some(error) = event.pointer_mut(place).filter(|error| error.is_string()) {
                *error = cut(error.as_str().unwrap());
            }
        }
    }
    bundle.write(&home.dir().join("forged.bundle"));
    assert_eq!(differences(&verified(&home)), <[String; 0]>::default());
    bundle.event("step_ended", "no")["outcome"]["error"] = cut("another error");
    bundle.write(&home.dir().join("forged.bundle"));
    assert_eq!(differences(&verified(&home)), ["no: error"]);
}

#[test]
fn what_is_taken_in_is_what_was_checked() {
    let (home, _) = exported_workflow(SUM);
    let bytes = std::fs::read(home.dir().join("run.bundle")).unwrap();
    // A pipe gives its bytes once.
    let there = Home::new();
    let answer = there.lobster(["bundle", "import", "/dev/stdin"]).stdin(bytes).run();
    assert_eq!(answer.code(), 0, "{answer:?}");
    assert_eq!(there.lobster(["replay", "@"]).run().code(), 0);
    assert_eq!(there.lobster(["store", "verify"]).run().code(), 0);
}

#[test]
fn a_manifest_names_the_run_as_its_record_does_and_a_newer_format_is_no_damage() {
    let (home, mut bundle) = exported_workflow(SUM);
    let file = home.dir().join("forged.bundle");
    bundle.manifest["name"] = json!("payroll");
    bundle.write(&file);
    let said = verified(&home);
    assert!(said.code() == 1 && said.stderr.contains("names the run differently from record 1"), "{said:?}");
    for (version, why) in [(2, "written by a newer lobster (bundle format 2"), (0, "not a lobster bundle")] {
        let mut bytes = std::fs::read(home.dir().join("run.bundle")).unwrap();
        bytes[15] = version;
        std::fs::write(&file, bytes).unwrap();
        for command in ["verify", "import"] {
            let said = home.lobster(["bundle", command, "forged.bundle"]).run();
            assert!(said.code() == 1 && said.stderr.contains(why), "{said:?}");
        }
    }
}
