#!/usr/bin/env python3
"""Counts the instructions and the system calls of some works, and compares them with counts.json.

    counts.py [--lobster target/release/lobster] [--update] [--only NAME]

Neither depends on how busy the machine is. A work that takes 3 % more than counts.json allows ends this with exit 1: find
out why, or write the new figure there (--update) in the commit that needs it. The figures are of lobster's own processes
(`instructions`, by valgrind's callgrind, which cannot follow into a jail) and of all processes (`calls`, by strace). What
is not installed is skipped, and said. Needs Python 3.9.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from works import DIST, STEPS, workflow

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
FIGURES = pathlib.Path(__file__).with_name("counts.json")
POLICY = REPOSITORY / "tests" / "policy" / "example.toml"
SLACK = 1.03
# Each figure is the least of so many calls: what differs between them is waiting.
ROUNDS = 3


class Work:
    """Words for lobster; `before` gives others that are run first and not counted."""

    def __init__(self, name, words, before=None, in_jail=False):
        self.name, self.words, self.before, self.in_jail = name, words, before, in_jail


def list_works(place):
    (place / "r.txt").write_text("a line\n" * 100, "utf-8")
    native = workflow(place / "native.lobster", *[{"run": "cat r.txt | wc -l"}] * STEPS)
    component = workflow(place / "component.lobster", *[{"component": str(DIST / "jq.wasm"), "args": {"filter": ".a"},
                                                        "stdin": '{"a":1}'}] * STEPS)
    rounds = workflow(place / "rounds.lobster", {"for_each": list(range(50)), "steps": [{"id": "one", "run": "true"}]})
    gate = workflow(place / "gate.lobster", {"run": "echo one"}, {"approval": "Go on?"}, {"run": "echo two"})
    answer = ["resume", "@", "--approve", "yes"]
    yield Work("version", ["version"])
    yield Work("stage", ["run", "--mode", "tool", "exec echo hello"])
    yield Work("check", ["check", str(place / "native.lobster")])
    yield Work("native", native)
    yield Work("policed", [*native, "--policy", str(POLICY)], in_jail=True)
    yield Work("component", component)
    yield Work("rounds", rounds)
    yield Work("resume", answer, before=gate)


def call(command, place, state, codes=(0,)):
    environment = {"PATH": os.environ["PATH"], "HOME": str(place), "LOBSTER_STATE_DIR": str(state)}
    done = subprocess.run(command, cwd=place, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          check=False)
    if done.returncode not in codes:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")


def count(work, lobster, place, kind):
    """The least figure of some calls; the first one fills caches and is not counted."""
    figures = []
    for number in range(ROUNDS + 1):
        with tempfile.TemporaryDirectory(dir=place) as directory:
            log = pathlib.Path(directory)
            state = place / "state"
            if work.before:
                call([lobster, *work.before], place, state)
            if number == 0:
                call([lobster, *work.words], place, state)
            elif kind == "instructions":
                call(["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", f"--log-file={log}/%p", lobster,
                      *work.words], place, state)
                texts = [path.read_text("utf-8", "replace") for path in log.iterdir()]
                figures.append(sum(int(n) for text in texts for n in re.findall(r"Collected : (\d+)", text)))
            else:
                call(["strace", "-f", "-c", "-o", f"{log}/calls", lobster, *work.words], place, state)
                total = re.findall(r"(\d+)\s+(?:\d+\s+)?total$", (log / "calls").read_text("utf-8"), re.M)
                figures.append(int(total[-1]))
    return min(figures)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lobster", default=str(REPOSITORY / "target" / "release" / "lobster"))
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--only")
    args = parser.parse_args()
    lobster = os.path.abspath(args.lobster)
    known = json.loads(FIGURES.read_text("utf-8")) if FIGURES.exists() else {}
    tools = {"instructions": "valgrind", "calls": "strace"}
    for kind, tool in list(tools.items()):
        if shutil.which(tool) is None:
            print(f"skipped: {kind} ({tool} is not installed)")
            del tools[kind]
    grown = []
    with tempfile.TemporaryDirectory(prefix="lobster-counts-") as directory:
        place = pathlib.Path(directory)
        for work in list_works(place):
            if args.only not in (None, work.name):
                continue
            for kind in tools:
                if work.in_jail and kind == "instructions":
                    continue
                figure, allowed = count(work, lobster, place, kind), known.get(work.name, {}).get(kind)
                ratio = f" {figure / allowed:.3f}x" if allowed else ""
                print(f"{work.name:10} {kind:12} {figure:>13,}{ratio}", flush=True)
                if args.update:
                    known.setdefault(work.name, {})[kind] = figure
                elif allowed is None or figure > allowed * SLACK:
                    grown.append(f"{work.name} {kind}: {figure:,}, allowed {allowed or 0:,}")
    if args.update:
        FIGURES.write_text(json.dumps(known, indent=1) + "\n", "utf-8")
    if grown:
        sys.exit("more than counts.json allows:\n" + "\n".join(grown))


if __name__ == "__main__":
    main()
