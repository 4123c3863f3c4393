#!/usr/bin/env python3
"""Counts the instructions and the system calls of some works, and compares them with counts.json.

    counts.py [--lobster target/release/lobster] [--update] [--only NAME]

Neither depends on how busy the machine is. A work that takes 3 % more than counts.json allows ends this with exit 1: find
out why, or write the new figure there (--update) in the commit that needs it. The figures are of lobster's own processes
(`instructions`, by valgrind's callgrind; not of policed steps) and of all processes (`calls`, by strace). What
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

from works import DIST, REPOSITORY, STEPS, small_works, workflow

FIGURES = pathlib.Path(__file__).with_name("counts.json")
SLACK = 1.03
# Each figure is the least of so many calls: what differs between them is waiting.
ROUNDS = 3


def list_works(place):
    """Name, words, and words that are run first and not counted."""
    component = [{"component": str(DIST / "jq.wasm"), "args": {"filter": ".a"}, "stdin": '{"a":1}'}] * STEPS
    gate = workflow(place / "gate.lobster", {"run": "echo one"}, {"approval": "Go on?"})
    yield from ((name, words, None) for name, words in small_works(place))
    yield "check", ["check", str(place / "native.lobster")], None
    yield "component", workflow(place / "component.lobster", *component), None
    yield "answer", ["approvals", "approve", "@"], gate


def call(command, place, state):
    environment = {"PATH": os.environ["PATH"], "HOME": str(place), "LOBSTER_STATE_DIR": str(state)}
    done = subprocess.run(command, cwd=place, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")


def count(command, first, place, kind):
    """The least figure of some calls; the first one fills caches and is not counted."""
    figures, state = [], place / "state"
    for number in range(ROUNDS + 1):
        with tempfile.TemporaryDirectory(dir=place) as log:
            if first:
                call(first, place, state)
            if number == 0:
                call(command, place, state)
            elif kind == "instructions":
                call(["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", f"--log-file={log}/%p", *command],
                     place, state)
                texts = [path.read_text("utf-8", "replace") for path in pathlib.Path(log).iterdir()]
                figures.append(sum(int(n) for text in texts for n in re.findall(r"Collected : (\d+)", text)))
            else:
                call(["strace", "-f", "-c", "-o", f"{log}/calls", *command], place, state)
                total = re.findall(r"(\d+)\s+(?:\d+\s+)?total$", pathlib.Path(log, "calls").read_text("utf-8"), re.M)
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
        for name, words, first in list_works(place):
            if args.only not in (None, name):
                continue
            for kind in tools:
                if name == "policed" and kind == "instructions":
                    continue  # callgrind cannot follow into a jail
                figure = count([lobster, *words], first and [lobster, *first], place, kind)
                allowed = known.get(name, {}).get(kind)
                ratio = f" {figure / allowed:.3f}x" if allowed else ""
                print(f"{name:10} {kind:12} {figure:>13,}{ratio}", flush=True)
                if args.update:
                    known.setdefault(name, {})[kind] = figure
                elif allowed is None or figure > allowed * SLACK:
                    grown.append(f"{name} {kind}: {figure:,}, allowed {allowed or 0:,}")
    if args.update:
        FIGURES.write_text(json.dumps(known, indent=1) + "\n", "utf-8")
    if grown:
        sys.exit("more than counts.json allows:\n" + "\n".join(grown))


if __name__ == "__main__":
    main()
