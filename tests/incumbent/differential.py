#!/usr/bin/env python3
"""Random pipelines and workflow files, run by the incumbent and by our program.

    differential.py --node NODE --incumbent PACKAGE --binary BINARY [--cases N] [--seed N] [--only KIND] [--show N]

Compares envelopes, exit codes and the files that are left; of errors the type, not the words. A difference must have
a row in docs/differences.md: `KNOWN` says which row explains which case. A difference without a row fails, and is
printed with what reproduces it. The incumbent's calls share one process, so that 2,500 cases take minutes.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
PAGE = HERE.parent.parent / "docs" / "differences.md"
TIMEOUT_S = 60

# ---- what is made --------------------------------------------------------------------------------------------------

WORDS = ["a", "b", "é", "x y", "", "10", "9", "true", "🚀", "Ä", "line\nbreak", "\u0085", "tab\t", "it's", '"q"', "$HOME"]
NUMBERS = ["0", "1", "-1", "2", "10", "1.0", "1.5", "-0", "1e3", "1e21", "0.1", "1e400", "-2.5e-7", "9007199254740991"]
LONG_NUMBERS = ["9007199254740993", "8202522731445525542", "8202522731445525543", "18446744073709551615", "123456789012345678901"]
KEYS = ["a", "b", "n", "id", "2", "10", "name", "x.y", "é"]
ODD_KEYS = ["__proto__", "toString"]
YAML_SCALARS = ["yes", "no", "on", "1", "01", "0x1f", "0o7", "1_000", "1e3", ".5", "5.", "~", "null", "Null", "''", "'1'",
                '"\\u00e9"', '"\\ud83d\\ude80"', '"\\ud83d"', ".inf", "-.inf", ".nan", "2026-01-02", "!!str 5", "!!int '5'",
                "!!bool yes", "!!null x", "!!float 3", "!!binary aGk=", "[1, a]", "{k: v}", "[a]: b", "a: b", "a #b", "a:b",
                "&x 1", "*x", "@a", "`a", "%a", "- a", "? a", "|\n  t", ">-\n  t\n  u", "true", "True", "TRUE", "12e03",
                "-0", "+1", "0b11", "1:30", "\ufeffa", "é", "🚀", "!foo 5", "<<", "=", "a\\b", "'it''s'", '"a\\nb"']


def value(rng, depth=0):
    """A JSON text, sometimes one that only JavaScript reads."""
    kind = rng.random()
    if depth < 3 and kind < 0.25:
        return "[" + ",".join(value(rng, depth + 1) for _ in range(rng.randrange(4))) + "]"
    if depth < 3 and kind < 0.55:
        fields = (f"{json.dumps(rng.choice(KEYS if rng.random() < 0.98 else ODD_KEYS))}:{value(rng, depth + 1)}" for _ in range(rng.randrange(4)))
        return "{" + ",".join(fields) + "}"
    if kind < 0.7:
        return rng.choice(NUMBERS if rng.random() < 0.96 else LONG_NUMBERS)
    if kind < 0.76:
        return rng.choice(["true", "false", "null"])
    if kind < 0.8:
        return rng.choice(['"cut \\ud83d"', '"\\ude80"', '"\\ud83d\\ude80"'])
    return json.dumps(rng.choice(WORDS), ensure_ascii=rng.random() < 0.5)


def items(rng):
    """A list of objects with fields in common, as commands print them."""
    keys = rng.sample(KEYS[:7], 3)
    rows = ["{" + ",".join(f"{json.dumps(k)}:{value(rng, 2)}" for k in keys if rng.random() < 0.9) + "}"
            for _ in range(rng.randrange(1, 6))]
    return "[" + ",".join(rows) + "]" if rng.random() < 0.85 else value(rng)


def word(rng):
    """A word that needs no quoting in a pipeline."""
    return rng.choice(["a", "b", "n", "id", "2", "10", "name", "a.b", "zz", "1", "1.5", "true", "null", "é"])


def template(rng):
    filters = ["upper", "lower", "trim", "length", "first", "last", "json", "default x", "truncate 3", "truncate 1",
               "replace a b", "split ,", "join -", "round 1", "date YYYY-MM-DD", 'date ""', "int", "float"]
    parts = ["{{%s%s}}" % (rng.choice(["a", "b", ".", "n", "zz", "a.b", "id"]),
                           "".join(" | " + rng.choice(filters) for _ in range(rng.randrange(3))))
             for _ in range(rng.randrange(1, 3))]
    return " ".join(parts)


def stage(rng):
    operator = rng.choice(["=", "==", "!=", "<", "<=", ">", ">="])
    return rng.choice([
        lambda: f"where '{word(rng)}{operator}{rng.choice(NUMBERS + ['a', 'true', 'null', 'x y'])}'",
        lambda: f"where '{word(rng)}{operator}{rng.choice(NUMBERS)}'",
        lambda: f"pick {','.join(word(rng) for _ in range(rng.randrange(1, 3)))}",
        lambda: f"head --n {rng.choice(['0', '1', '2', '-1', 'x', '1.5'])}",
        lambda: rng.choice(["sort", "sort --key a", "sort --key n --desc", "sort --key zz"]),
        lambda: rng.choice(["dedupe", "dedupe --key a", "dedupe --key zz"]),
        lambda: rng.choice(["groupBy --key a", "groupBy --key zz", "groupBy --key n"]),
        lambda: rng.choice(["map --wrap w", "map --unwrap a", f"map z={word(rng)}", "map z={{a}}", "map --unwrap zz"]),
        lambda: f"template --text '{template(rng)}'",
    ])()


def pipeline_text(rng):
    text = f"exec --json --shell {json.dumps('cat in.json')}"
    if rng.random() < 0.1:
        text = "exec cat in.json"
    for _ in range(rng.randrange(1, 4)):
        text += " | " + stage(rng)
    if rng.random() < 0.1:
        text += " | approve --prompt ok" + rng.choice([" --preview-from-stdin", " --limit 1", ""])
        text += rng.choice(["", " | " + stage(rng)])
    return text


def pipeline_case(rng):
    text, mode = pipeline_text(rng), "tool"
    if "approve" not in text and rng.random() < 0.3:
        # What they print is for people.
        text, mode = text + " | " + rng.choice(["json", "table"]), "human"
    return {"files": {"in.json": items(rng)}, "argv": ["run", "--mode", mode, text],
            "answers": [["--approve", rng.choice(["yes", "no"])]]}


def condition(rng, ids):
    def side():
        if not ids or rng.random() < 0.3:
            return rng.choice(["true", "1", "'a'", "null", "2", "1.5", "-0", "''"])
        field = rng.choice(["json", "json.a", "json.n", "json.0", "stdout", "skipped", "approved", "json.zz"])
        return f"${rng.choice(ids)}.{field}"

    def part():
        if rng.random() < 0.3:
            return rng.choice(["", "!"]) + side()
        return f"{side()} {rng.choice(['==', '!=', '<', '<=', '>', '>='])} {side()}"

    return rng.choice([" && ", " || "]).join(part() for _ in range(rng.choice([1, 1, 1, 2])))


def workflow_case(rng):
    ids, steps, files = [], [], {}
    for at in range(rng.randrange(1, 6)):
        step = {"id": rng.choice(["s", "step-", "A_"]) + str(at)}
        name = f"in{at}.json"
        kind = rng.random()
        if kind < 0.4:
            files[name] = rng.choice([items(rng), value(rng), "plain text\n", "```json\n{}\n```\n", ""])
            step[rng.choice(["run", "command"])] = rng.choice([f"cat {name}", f"cat {name}; echo {at} >> log", f"cat {name}; exit 3"]
                                                              if rng.random() < 0.3 else [f"cat {name}"])
        elif kind < 0.5:
            step["run"] = rng.choice(["cat", "wc -c", 'printf %s "$V"', 'printf %s "${x}"', 'printf %s "$LOBSTER_ARG_X"'])
            step["env"] = {"V": rng.choice(["1", "$s0.stdout", "${x}", "${HOME}x", "a"])}
        elif kind < 0.62:
            files[name] = items(rng)
            step["pipeline"] = f"exec --json --shell 'cat {name}' | " + stage(rng)
        elif kind < 0.7:
            step["approval"] = rng.choice([True, "ok?", {"prompt": "p"}, "", {"prompt": "q", "items": [1]}])
        elif kind < 0.76:
            step["input"] = {"prompt": "n?", "responseSchema": {"type": "object", "properties": {"n": {"type": "number"}}}}
        elif kind < 0.84 and ids:
            step["for_each"] = f"${rng.choice(ids)}.json"
            step["steps"] = [{"id": "i", "run": "cat", "stdin": "$item.json"}]
            if rng.random() < 0.3:
                step["steps"][0]["when"] = condition(rng, ["item", *ids])
        elif kind < 0.92:
            branches = [{"id": f"b{at}{n}", "run": f"printf '{{\"n\":{n}}}'"} for n in range(2)]
            if rng.random() < 0.1:
                branches[0]["run"] = "echo text"
            if rng.random() < 0.3:
                branches[1]["when"] = "false"
            step["parallel"] = {"wait": "all", "branches": branches[: rng.choice([1, 2, 2])]}
        else:
            step["run"] = f"echo {at}"
        if ids and rng.random() < 0.4 and "input" not in step and "for_each" not in step and "parallel" not in step:
            step["stdin"] = f"${rng.choice(ids)}.{rng.choice(['json', 'stdout', 'json.a', 'json.zz'])}"
        if rng.random() < 0.35:
            step[rng.choice(["when", "condition"])] = condition(rng, ids)
        if rng.random() < 0.15:
            step["on_error"] = rng.choice(["continue", "stop", "skip_rest"])
        if rng.random() < 0.05:
            step["retry"] = {"max": 2, "delay_ms": 1}
        ids.append(step["id"])
        steps.append(step)
    workflow = {"name": "w", "args": {"x": {"default": rng.choice(["d", 5, None, "a b"])}}, "steps": steps}
    extension = rng.choice(["lobster", "json", "yaml"])
    files[f"w.{extension}"] = json.dumps(workflow, ensure_ascii=rng.random() < 0.5)
    argv = ["run", "--mode", "tool", "--file", f"w.{extension}"]
    if rng.random() < 0.4:
        argv += ["--args-json", rng.choice(['{"x": "v"}', '{"x": 1e3}', '{"x": "\\ud83d"}', '{"x": "🚀"}', '{"y": [1]}'])]
    answer = rng.choice([["--approve", "yes"], ["--approve", "no"], ["--response-json", '{"n": 1}'],
                         ["--response-json", '{"n": "\\ud83d"}'], ["--cancel"]])
    return {"files": files, "argv": argv, "answers": [answer] * 3}


def yaml_case(rng):
    lines = ["args:"]
    for n in range(rng.randrange(1, 3)):
        lines.append(f"  v{n}: {{default: 0}}" if rng.random() < 0.1 else f"  v{n}:\n    default: {indented(rng.choice(YAML_SCALARS), 6)}")
    lines += ["steps:", "  - id: a", "    run: " + rng.choice(['printf %s "$LOBSTER_ARGS_JSON"', "cat"])]
    if rng.random() < 0.4:
        lines.append(f"    stdin: {indented(rng.choice(YAML_SCALARS), 6)}")
    if rng.random() < 0.3:
        lines.append(f"    env:\n      V: {indented(rng.choice(YAML_SCALARS), 8)}")
    return {"files": {"w.yaml": "\n".join(lines) + "\n"}, "argv": ["run", "--mode", "tool", "w.yaml"], "answers": []}


def indented(text, by):
    return text.replace("\n", "\n" + " " * by)


def json_case(rng):
    text = list(value(rng))
    for _ in range(rng.randrange(3)):
        at = rng.randrange(len(text) + 1)
        text[at:at + rng.randrange(2)] = rng.choice(list('{}[],:"\\0-.eE \n') + ["\\ud83d", "\\u0", "\ufeff", "1e999", "\u0085"])
    return {"files": {"in.json": "".join(text)}, "argv": ["run", "--mode", "tool", "exec --json cat in.json"], "answers": []}


def graph_case(rng):
    case = workflow_case(rng)
    name = next(name for name in case["files"] if name.startswith("w."))
    return {**case, "argv": ["graph", "--file", name, "--format", rng.choice(["mermaid", "ascii", "dot"])], "answers": []}


KINDS = [("pipeline", 0.36, pipeline_case), ("workflow", 0.36, workflow_case), ("yaml", 0.12, yaml_case),
         ("json", 0.1, json_case), ("graph", 0.06, graph_case)]

# ---- both run it ---------------------------------------------------------------------------------------------------


def environment(home, state):
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(home), "LANG": "C.UTF-8", "LOBSTER_STATE_DIR": str(state),
            "LOBSTER_PROGRESS": "off", "TZ": "UTC"}


def token_of(out):
    try:
        envelope = json.loads(out)
        return (envelope.get("requiresApproval") or envelope.get("requiresInput") or {}).get("resumeToken")
    except (ValueError, AttributeError):
        return None


def run_ours(binary, case, place, env):
    def call(argv):
        done = subprocess.run([binary, *argv], cwd=place, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_S)
        return {"out": done.stdout.decode("utf-8", "replace"), "exit": done.returncode, "err": done.stderr.decode("utf-8", "replace")}

    calls = [call(case["argv"])]
    for answer in case["answers"]:
        token = token_of(calls[-1]["out"])
        if not token:
            break
        calls.append(call(["resume", "--token", token, *answer]))
    return calls


def well_formed(found):
    """Halves of surrogate pairs as text can hold them, and numbers as JavaScript has them."""
    if isinstance(found, str):
        return found.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(found, list):
        return [well_formed(item) for item in found]
    if isinstance(found, dict):
        return {well_formed(name): well_formed(item) for name, item in found.items()}
    return found


def seen(call, place):
    """What is compared of a call."""
    out = call["out"].replace(str(place), "<dir>")
    try:
        envelope = json.loads(out)
    except ValueError:
        return {"text": well_formed(out), "exit": call["exit"]}
    if isinstance(envelope, dict):
        envelope.pop("protocolVersion", None)
        if isinstance(envelope.get("error"), dict):
            envelope["error"] = envelope["error"].get("type")
        for name in ("requiresApproval", "requiresInput"):
            if isinstance(envelope.get(name), dict):
                envelope[name] = {k: v for k, v in envelope[name].items() if k not in ("resumeToken", "approvalId")}
    return {"envelope": well_formed(envelope), "exit": call["exit"]}


def left(place):
    return {path.name: path.read_text("utf-8", "replace") for path in sorted(place.iterdir()) if path.is_file()}


# ---- what is known -------------------------------------------------------------------------------------------------


class Differing:
    """A case that ended differently, as the rules below see it."""

    def __init__(self, case, theirs, ours, said):
        self.theirs, self.ours, self.said = theirs, ours, said
        self.text = "\n".join(case["files"].values())
        self.argv = " ".join(case["argv"])
        self.all = self.text + "\n" + self.argv
        self.is_yaml = case["kind"] == "yaml"
        self.is_graph = case["kind"] == "graph"
        self.has_long_numbers = re.search(r"[1-9]\d{15}", self.all) is not None

    def exits(self):
        return [[call["exit"] for call in calls["calls"]] for calls in (self.theirs, self.ours)]

    def texts(self, side):
        """What each call printed that is no envelope; of the incumbent, or of our program."""
        return [call.get("text", "") for call in (self.theirs, self.ours)[side]["calls"]]

    def letters(self, side):
        shown = as_double((self.theirs, self.ours)[side])
        # A half in JSON inside of a text.
        return sorted(re.sub(r"\\\\u[dD][89a-fA-F][0-9a-fA-F]{2}", "\ufffd", json.dumps(shown, ensure_ascii=False)))


def as_double(found):
    """Without the order of fields, and with the digits that a double keeps."""
    if isinstance(found, str):
        return re.sub(r"\d{16,}", lambda digits: f"{float(digits.group()):.15e}", found)
    if isinstance(found, bool) or found is None:
        return found
    if isinstance(found, (int, float)):
        return f"{float(found):.15e}"
    if isinstance(found, list):
        return [as_double(item) for item in found]
    return {name: as_double(item) for name, item in found.items()}


def without_nothing(found):
    """Without fields that are null."""
    if isinstance(found, list):
        return [without_nothing(item) for item in found]
    if isinstance(found, dict):
        return {name: without_nothing(item) for name, item in found.items() if item is not None}
    return found


# The row of docs/differences.md, and when it explains a difference. The first that does is counted.
KNOWN = [
    ("condition-not-json", lambda d: "is not JSON. Let the step" in d.said),
    ("order-of-fields", lambda d: d.theirs == d.ours),
    ("order-of-fields", lambda d: re.search(r'"(2|10)"', d.all) and d.letters(0) == d.letters(1)),
    ("beyond-doubles", lambda d: re.search(r"1e400|1e999", d.all) and "Infinity" in str(d.theirs)),
    ("all-digits", lambda d: d.has_long_numbers and as_double(d.theirs) == as_double(d.ours)),
    ("exact-comparison", lambda d: d.has_long_numbers and re.search(r"[=<>]=?|sort|dedupe|groupBy", d.all)),
    ("own-fields", lambda d: re.search(r"toString|__proto__", d.all)),
    ("undefined", lambda d: without_nothing(d.theirs) == without_nothing(d.ours)),
    ("undefined", lambda d: re.search(r"pick [^|]*\| table|groupBy [^|]*\| table|--unwrap|map [^|]*\| table", d.argv)),
    ("filters", lambda d: re.search(r"\| (date|replace)", d.all)),
    ("half-pairs", lambda d: re.search(r"\| truncate", d.all)),
    ("parallel-condition", lambda d: '"parallel"' in d.text and re.search(r'"when": "false"', d.text)),
    ("branch-text", lambda d: '"echo text"' in d.text),
    ("blank-approval", lambda d: '"approval": ""' in d.text),
    ("graph-labels", lambda d: d.is_graph and d.texts(0)[0].replace("\\\\n", "\\n") == d.texts(1)[0]),
    ("graph-labels", lambda d: d.is_graph and "ascii" in d.argv and "\\\\n" in d.text),
    ("sorted", lambda d: re.search(r"\| sort", d.all)),
    ("canonical-comparison", lambda d: re.search(r"dedupe|groupBy", d.all)),
    ("checked-first", lambda d: d.exits()[1][0] != 0 and (d.exits()[0][0] != 0 or "head" in d.said)),
    ("yaml", lambda d: d.is_yaml and "The file is not valid YAML" in d.said),
    ("yaml-types", lambda d: d.is_yaml and re.search(r"!!|\.inf|\.nan", d.text)),
]


def main():
    options = argparse.ArgumentParser()
    for name in ("--node", "--incumbent", "--binary"):
        options.add_argument(name, required=True)
    options.add_argument("--cases", type=int, default=2500)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--only")
    options.add_argument("--show", type=int, default=10)
    options.add_argument("--show-row")
    args = options.parse_args()
    page = PAGE.read_text()
    missing = [row for row, _ in KNOWN if f'id="{row}"' not in page]
    if missing:
        sys.exit(f"docs/differences.md has no rows {', '.join(missing)}")
    rng = random.Random(args.seed)
    kinds = [kind for kind in KINDS if args.only in (None, kind[0])]
    chosen = rng.choices(kinds, [weight for _, weight, _ in kinds], k=args.cases)
    cases = [{"kind": name, **make(random.Random(f"{args.seed}/{at}"))} for at, (name, _, make) in enumerate(chosen)]
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="lobster-differential-"))
    try:
        sys.exit(compare(args, cases, scratch))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def compare(args, cases, scratch):
    for at, case in enumerate(cases):
        for side in ("theirs", "ours"):
            place = scratch / side / str(at)
            place.mkdir(parents=True)
            for name, text in case["files"].items():
                (place / name).write_text(text)
    env = {side: environment(scratch, scratch / f"state-{side}") for side in ("theirs", "ours")}
    lines = [json.dumps({"dir": str(scratch / "theirs" / str(at)), "env": env["theirs"], "argv": case["argv"], "answers": case["answers"]})
             for at, case in enumerate(cases)]
    (scratch / "cases").write_text("\n".join(lines))
    batch = subprocess.Popen([args.node, HERE / "batch.mjs", args.incumbent, scratch / "cases", scratch / "results"], stdin=subprocess.DEVNULL)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = [pool.submit(run_ours, args.binary, case, scratch / "ours" / str(at), env["ours"]) for at, case in enumerate(cases)]
        ours = [run.result() for run in runs]
    if batch.wait() != 0:
        sys.exit(f"the incumbent's process ended with {batch.returncode}")
    theirs = [json.loads(line) for line in (scratch / "results").read_text().split("\n") if line]
    rows, shown = collections.Counter(), 0
    for at, (case, a, b) in enumerate(zip(cases, theirs, ours, strict=True)):
        places = [scratch / side / str(at) for side in ("theirs", "ours")]
        x, y = ({"calls": [seen(call, place) for call in calls], "files": left(place)} for calls, place in zip((a, b), places))
        if x == y and json.dumps(x) == json.dumps(y):
            rows["identical"] += 1
            continue
        found = Differing(case, x, y, "".join(call["out"] + call["err"] for call in b))
        row = next((row for row, explains in KNOWN if explains(found)), "no row")
        rows[row] += 1
        if (row == "no row" and shown < args.show) or row == args.show_row:
            shown += 1
            print(json.dumps({"case": at, **case}, ensure_ascii=False))
            print("  theirs:", json.dumps(x, ensure_ascii=False)[:1500])
            print("  ours:  ", json.dumps(y, ensure_ascii=False)[:1500])
    for row, count in rows.most_common():
        print(f"{count:6} {row}")
    return 1 if rows["no row"] else 0


if __name__ == "__main__":
    main()
