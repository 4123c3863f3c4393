use std::io;
use std::path::Path;
use std::sync::Arc;

use serde_json::json;

use super::super::source::Source;
use super::super::workflow::load;
use super::*;

const COMMANDS: &[&str] = &["exec", "json", "head", "where"];

fn workflow(files: &[(&str, &str)]) -> Workflow {
    let find = |path: &Path| {
        let (name, text) =
            files.iter().find(|(name, _)| Path::new(name) == path).ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(Source::new(*name, *name, text.as_bytes())))
    };
    let root = find(Path::new(files[0].0)).unwrap();
    load(&root, &find).unwrap_or_else(|e| panic!("{e}")).0
}

fn plan_of(files: &[(&str, &str)], args: Value) -> Result<String, String> {
    let workflow = workflow(files);
    let args = bind_args(&workflow, &args).unwrap();
    dry_run(&workflow, &args, &|name| COMMANDS.contains(&name)).map_err(|error| error.0)
}

fn plan(steps: &str) -> Result<String, String> {
    plan_of(&[("/t", &format!("steps:\n{steps}"))], json!({}))
}

#[test]
fn every_kind_of_step_is_described() {
    let text = "args: {who: {default: ada}}\nsteps:\n\
        - {id: a, run: 'echo ${who} $HOME $x.y'}\n\
        - {id: b, run: 'cat $a.stdout', stdin: $a.json, timeout_ms: 500, on_error: continue, retry: {max: 3, backoff: exponential, delay_ms: 5, jitter: true}, approval: ok?}\n\
        - {id: c, pipeline: 'exec touch ran | $a.stdout', stdin: 'x $a.json'}\n\
        - {id: d, workflow: 'kids/${who}.lobster', workflow_args: {k1: 1, k2: 2}}\n\
        - id: p\n  parallel: {wait: any, timeout_ms: 777, branches: [{id: x, run: touch ran}, {id: y, pipeline: exec touch ran2}, {id: z, command: ' '}]}\n\
        - id: l\n  for_each: $a.json\n  item_var: row\n  index_var: pos\n  batch_size: 3\n  pause_ms: 44\n  steps: [{id: s, run: 'touch $row.json'}, {id: t, pipeline: json}, {id: n, run: x, when: false}]\n\
        - {id: q, input: {prompt: Name?, responseSchema: {}}}\n\
        - {id: g, approval: {required_approver: bob}, stdin: {x: 1}}\n\
        - {id: h, run: 'echo $g.approved', when: $g.approved}\n\
        - {id: s1, run: x, when: false}\n\
        - {id: s2, run: x, when: $s1.json}\n\
        - {id: m, run: x, when: '$a.json.go == true', retry: {max: 2}}\n";
    let expected = "\
[DRY RUN] Would execute 12 steps:

  1. a  [shell]
     run: echo ada $HOME $x.y
  2. b  [shell]
     run: cat $a.stdout  [contains step output refs — unknown at plan time]
     stdin: $a.json  [output unknown at plan time]
     timeout: 500ms
     on_error: continue
     retry: up to 3 attempts, exponential backoff (base: 5ms, jitter)
     [approval required]
  3. c  [pipeline]
     pipeline: exec touch ran | $a.stdout  [contains step output refs — unknown at plan time]
     [command validation deferred — stage name depends on step output]
     stdin: x $a.json  [contains step output refs — unknown at plan time]
  4. d  [workflow]
     workflow: kids/ada.lobster
     args: k1, k2
     [file not checked — its path depends on arguments or results]
  5. p  [parallel]
     wait: any
     timeout: 777ms
     branch x: [shell] touch ran
     branch y: [pipeline] exec touch ran2
     branch z: [no-op]
  6. l  [for_each]
     for_each: $a.json  [output unknown at plan time]
     item_var: row, index_var: pos
     batch_size: 3
     pause_ms: 44
     sub-steps: 3
       1. s  [shell] run: touch $row.json
       2. t  [pipeline] pipeline: json
       3. n  [skipped — condition: false]
  7. q  [input]
     prompt: Name?
     [input required]
  8. g  [no-op]
     [approval required]  by bob
  9. h  [shell]
     run: echo true
  10. s1  [skipped — condition: false]
  11. s2  [skipped — condition: false]
  12. m  [shell]  [runs if: $a.json.go == true — else skipped]
     run: x
     retry: up to 2 attempts, fixed backoff (base: 1000ms)
";
    assert_eq!(plan_of(&[("/t", text)], json!({})).as_deref(), Ok(expected));
}

#[test]
fn further_lines_of_a_text_have_a_bar_after_a_question() {
    let steps = "  - {id: ask, approval: ok?}\n  - {id: b, run: \"true\\n  3. c  [no-op]\"}\n  \
                 - {id: l, for_each: $b.json, steps: [{id: s, run: \"a\\n1. t\"}]}\n";
    let workflow = workflow(&[("/t", &format!("steps:\n{steps}"))]);
    let rest = remaining_plan(&workflow, &Map::new(), &|_| true, "ask").unwrap();
    let expected = "  2. b  [shell]\n     run: true\n     │   3. c  [no-op]\n  3. l  [for_each]\n";
    assert!(rest.starts_with(expected), "{rest}");
    assert!(rest.ends_with("\n       1. s  [shell] run: a\n       │ 1. t\n"), "{rest}");
    // A dry run has the text as it is.
    let whole = plan(steps).unwrap();
    assert!(whole.contains("     run: true\n  3. c  [no-op]\n  3. l  [for_each]\n"), "{whole}");
}

#[test]
fn one_step_is_singular() {
    assert_eq!(
        plan("- {id: a, run: echo}").as_deref(),
        Ok("[DRY RUN] Would execute 1 step:\n\n  1. a  [shell]\n     run: echo\n")
    );
}

#[test]
fn what_can_only_fail_is_refused() {
    for (steps, message) in [
        (
            "- {id: b, pipeline: exec echo hi | nope.cmd}",
            "Workflow step b pipeline references unknown command: nope.cmd",
        ),
        (
            "- {id: p, parallel: {branches: [{id: x, pipeline: nope.cmd}]}}",
            "Parallel branch x pipeline references unknown command: nope.cmd",
        ),
        (
            "- {id: a, run: x}\n- {id: l, for_each: $a.json, steps: [{id: x, pipeline: nope.cmd}]}",
            "Workflow step l for_each sub-step x pipeline: unknown command: nope.cmd",
        ),
        ("- {id: b, pipeline: \"exec 'oops\"}", "Workflow step b pipeline parse failed: Unclosed quote"),
        (
            "- {id: b, run: cat, stdin: $nope.json, on_error: continue}",
            "Workflow step b stdin: Unknown step reference: nope.json",
        ),
        (
            "- {id: b, for_each: $nope.json, on_error: continue, steps: [{id: s, run: x}]}",
            "Workflow step b for_each: Unknown step reference: nope.json",
        ),
        (
            "- {id: l, for_each: '${x}', steps: [{id: s, run: x, when: $zz.json}]}",
            "Unknown step reference: zz.json",
        ),
    ] {
        assert_eq!(plan(steps), Err(message.to_owned()), "{steps}");
    }
    // Skipped steps are not checked.
    assert!(plan("- {id: b, pipeline: nope.cmd, when: false}").is_ok());
}

#[test]
fn conditions_are_decided_only_as_far_as_they_can_be() {
    let head = "- {id: a, run: x}\n- {id: g, approval: ok?, when: $a.json.ask}\n- {id: k, run: x, when: false}\n- {id: e, run: x, on_error: continue}\n";
    for (when, line) in [
        ("$a.json.x", "[shell]  [runs if: $a.json.x — else skipped]"),
        ("$a.json.x && false", "[skipped — condition: false]"),
        ("$a.json.x || true", "[shell]"),
        ("!$k.skipped", "[skipped — condition: false]"),
        ("$g.approved", "[shell]  [runs if: $g.approved — else skipped]"),
        ("$a.approved == true", "[skipped — condition: false]"),
        ("$a.field", "[skipped — condition: false]"),
        ("$e.error", "[shell]  [runs if: $e.error — else skipped]"),
        ("$a.error", "[skipped — condition: false]"),
        ("$a.id == a", "[shell]"),
    ] {
        let said = plan(&format!("{head}- {{id: z, run: x, when: '{when}'}}")).unwrap();
        let told = said.lines().find_map(|line| line.strip_prefix("  5. z  ")).unwrap();
        assert_eq!(told, line, "{when}");
    }
}

#[test]
fn sub_workflows_are_opened() {
    let parent = "steps:\n- {id: c, workflow: kid, workflow_args: {n: 5}}\n- {id: d, workflow: gone}\n";
    let kid = "args: {n: {required: true, type: integer}}\nsteps:\n- {id: a, run: x, approval: ok?}\n- {id: p, parallel: {branches: [{id: x, run: x}]}}\n";
    let said = plan_of(&[("/t", parent), ("/kid", kid)], json!({})).unwrap();
    assert!(said.contains("     args: n\n     contains: 3 steps, 1 question\n"), "{said}");
    assert!(
        said.contains(
            "     workflow: gone\n     [file cannot be used now — it must be there when the step runs]\n"
        ),
        "{said}"
    );
    for (parent, kid, message) in [
        ("{id: c, workflow: kid}", kid, "Workflow step c workflow kid: argument \"n\" is required"),
        (
            "{id: c, workflow: kid}",
            "steps: [{id: a, pipeline: nope}]",
            "Workflow step c workflow kid: Workflow step a pipeline references unknown command: nope",
        ),
    ] {
        let parent = format!("steps: [{parent}]");
        assert_eq!(plan_of(&[("/t", &parent), ("/kid", kid)], json!({})), Err(message.to_owned()));
    }
}
