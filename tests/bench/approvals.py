#!/usr/bin/env python3
"""Measures what it costs to bind a tree of files to an approval.

    approvals.py [--lobster target/release/lobster] [--rounds 7] [--json OUT]

A question about the same command is asked in a small directory and in one with many files. Prints the first
question, and the median of later ones less the small directory's, with its bar. Needs Python 3.9 and nothing else.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
POLICY = 'version = 1\n[sandbox.env]\npass = ["PATH"]\n'
# Files of a tree, and the most milliseconds that it may add to a question once it is known.
BARS = {10_000: 50, 100_000: 500}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lobster", default=str(REPOSITORY / "target" / "release" / "lobster"))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json")
    args = parser.parse_args()
    if shutil.which(args.lobster) is None:
        sys.exit(f"no binary at {args.lobster}; build it with: cargo build --release")
    figures = []
    with tempfile.TemporaryDirectory(prefix="lobster-approvals-") as directory:
        place = pathlib.Path(directory)
        (place / "policy.toml").write_text(POLICY, "utf-8")
        small = question(args, place, 1)[1]
        for files, bar in BARS.items():
            first, later = question(args, place, files)
            figures.append({"files": files, "first_ms": first, "added_ms": later - small, "bar_ms": bar})
            print(f"{files:7} files: {first:8.1f} ms first, then {later - small:7.1f} ms added (bar {bar})")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(figures, indent=1) + "\n", "utf-8")


def question(args, place, files):
    """Milliseconds of the first question in a directory with so many files, and of a later one."""
    work = place / f"files-{files}"
    for number in range(files):
        path = work / str(number % 100) / str(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"file {number}\n" * 20, "utf-8")
    (work / "flow.lobster").write_text("steps:\n  - { id: a, run: sh ./1/x.sh }\n", "utf-8")
    home = place / "home"
    env = dict(os.environ, HOME=str(home), LOBSTER_STATE_DIR=str(home / "state"))
    env["LOBSTER_POLICY"] = str(place / "policy.toml")
    times = []
    for _ in range(args.rounds + 1):
        began = time.perf_counter()
        command = [args.lobster, "run", "--mode", "tool", "flow.lobster"]
        asked = subprocess.run(command, cwd=work, env=env, capture_output=True, text=True, check=False)
        times.append((time.perf_counter() - began) * 1000)
        if '"needs_approval"' not in asked.stdout:
            sys.exit(f"no question: {asked.stdout}{asked.stderr}")
        # Files that are written just before they are read are read once more.
        time.sleep(0.1)
    return times[0], statistics.median(times[1:])


if __name__ == "__main__":
    main()
