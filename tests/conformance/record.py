#!/usr/bin/env python3
"""Holds the recorded cases against an installed incumbent, and records what it answers now.

    record.py --bin "node DIR/bin/lobster.js" --version 2026.9.13 [--cases DIR] [--only GLOB] [--jobs N] [--check]

Of the version that the cases are of (cases/VERSION) or a newer one, what differs becomes the expectation, and the
one that it replaces stays in the case under `earlier`. Of an older version, what differs is written under `earlier`.
A case whose expectation is empty is filled in. What an author wrote by hand (`message_has`, `stderr_has`, `ignore`,
`stdout.has`, `stdout.matches`) is kept. `--check` writes nothing and exits with 1 if there is a difference.

A case that differs is played again alone, and is recorded only if two more runs in a row agree with each other: a slow
machine changes nothing. What differs is printed, one line a difference, so that the output is what there is to read.
"""

import argparse
import concurrent.futures
import copy
import fnmatch
import json
import pathlib
import re
import sys

import run

HERE = pathlib.Path(__file__).resolve().parent
ATTEMPTS = 3
# The private directory of a case, in what the runner says about it.
PRIVATE = re.compile(r"\S*/lobster-case-[a-z0-9_]+")


def play(command, case):
    """What is wrong with a case whose expectations are not to be changed."""
    if any("exit" not in call.get("expect", {}) for call in case["calls"]):
        return ["not recorded yet"]
    return run.run_case(command, copy.deepcopy(case))


def timed_out(problems):
    return any("timed out" in problem for problem in problems)


def record(command, case):
    """(case, None) with what two runs in a row gave, or (None, why not)."""
    seen = []
    for _ in range(ATTEMPTS):
        new = copy.deepcopy(case)
        problems = run.run_case(command, new, record=True)
        if problems:
            # It did not end, or what an author wrote by hand does not hold: only an author can say what should.
            return None, PRIVATE.sub("{{ROOT}}", "; ".join(problems))
        if seen and not list(run.differences(answers(seen[-1]), answers(new))):
            return new, None
        seen.append(new)
    return None, "another answer each time"


def answers(case):
    return {"expects": [call["expect"] for call in case["calls"]], "requests": case.get("requests", [])}


def newer(version, than):
    return [int(part) for part in version.split(".")] >= [int(part) for part in than.split(".")]


def brought_up_to(case, new, version, target):
    """The case with the answers of `version`, whose cases are of `target` so far."""
    out = {k: v for k, v in case.items() if k != "earlier"}
    earlier = dict(case.get("earlier", {}))
    was_recorded = all("exit" in call.get("expect", {}) for call in case["calls"])
    if newer(version, target):
        out["calls"] = new["calls"]
        if "requests" in new:
            out["requests"] = new["requests"]
        if version != target and was_recorded:
            earlier[target] = answers(case)
    else:
        earlier[version] = answers(new)
    return {**out, "earlier": earlier} if earlier else out


def hold(command, case, version, target, problems):
    """(the case as it should stand, what to tell about it) for a case that had problems at first look."""
    expected = run.as_of(case, version)
    for _ in range(ATTEMPTS - 1):
        if not problems or problems == ["not recorded yet"] or timed_out(problems) or expected is None:
            break
        problems = play(command, expected)
    if not problems:
        return case, []
    new, why_not = record(command, run.as_of(case, None))
    if new is None and not newer(version, target):
        # The case is about something that this older version has not.
        was = case.get("earlier", {}).get(version)
        out = {**case, "earlier": {**case.get("earlier", {}), version: {"problem": why_not}}}
        return out, [] if was == out["earlier"][version] else [f"cannot be held against {version}: {why_not}"]
    if new is None:
        return case, [f"NOT RECORDED: {why_not}"]
    told = problems if problems == ["not recorded yet"] else list(run.differences(answers(case), answers(new)))
    return brought_up_to(case, new, version, target), told


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, help="the incumbent's command")
    parser.add_argument("--version", required=True, help="the incumbent's version")
    parser.add_argument("--cases", default=HERE / "cases", type=pathlib.Path)
    parser.add_argument("--only", help="only cases whose id or area/id matches this glob")
    parser.add_argument("--jobs", type=int, default=2, help="cases played at the same time (default 2)")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if anything differs")
    args = parser.parse_args()
    command = run.find_command(args.bin)
    target = (args.cases / "VERSION").read_text("utf-8").strip()

    files = {path: [json.loads(line) for line in path.read_text("utf-8").splitlines()]
             for path in sorted(args.cases.glob("*.jsonl"))}
    chosen = [(path, index) for path, cases in files.items() for index, case in enumerate(cases)
              if not args.only or any(fnmatch.fnmatch(name, args.only) for name in (case["id"], run.name_of(case)))]

    def first_look(place):
        path, index = place
        case = run.as_of(files[path][index], args.version)
        return place, ["not held at all so far"] if case is None else play(command, case)

    def second_look(suspect):
        (path, index), problems = suspect
        return path, index, *hold(command, files[path][index], args.version, target, problems)

    with concurrent.futures.ThreadPoolExecutor(max(1, args.jobs)) as pool:
        suspects = [(place, problems) for place, problems in pool.map(first_look, chosen) if problems]
        # Those that wait for ever do not make the others slow.
        waiting = list(pool.map(second_look, [suspect for suspect in suspects if timed_out(suspect[1])]))
    alone = [second_look(suspect) for suspect in suspects if not timed_out(suspect[1])]
    differing = 0
    for path, index, case, told in sorted(waiting + alone, key=lambda looked: looked[:2]):
        files[path][index] = case
        differing += bool(told)
        for line in told:
            print(f"{run.name_of(case)}: {line}")
    print(f"{len(chosen)} cases held against {args.version}, {differing} differ")
    if args.check:
        return 1 if differing else 0
    for path, cases in files.items():
        path.write_text("".join(
            json.dumps(case, separators=(",", ":")) + "\n" for case in cases), "utf-8")
    if newer(args.version, target) and not args.only:
        (args.cases / "VERSION").write_text(args.version + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
