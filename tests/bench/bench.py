#!/usr/bin/env python3
"""Times lobster, the incumbent and plain sh at the same work, in one run.

    bench.py [--lobster target/release/lobster] [--incumbent DIR] [--node PATH]
             [--rounds 10] [--items 1000000] [--only NAME] [--json OUT]

DIR is what setup.sh made (also: LOBSTER_INCUMBENT). What is not there is
skipped, and said. Each figure is the median of the rounds; the candidates take
turns within a round, so that a busy machine is busy for all of them. Ratios are
to lobster: 2.0x is twice its time. On a busy machine look at `cpu`, what the command and
its children took, and at the fastest round. A peak includes the command's children, and none
is below what this script itself takes (some 15 MiB). Needs Python 3.9 and nothing else.

`native` and `component` are the floor: steps that do nothing, so that only their price
shows. `mail` and `jq` are the same ten steps with work in them. What is measured stands
in works.py.
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

from works import REPOSITORY, works


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lobster", default=str(REPOSITORY / "target" / "release" / "lobster"))
    parser.add_argument("--incumbent", default=os.environ.get("LOBSTER_INCUMBENT"), help="a directory made by setup.sh")
    parser.add_argument("--node", help="the node that runs the incumbent (default: the directory's own)")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--only", help="run only the work of this name")
    parser.add_argument("--json", help="write the figures to this file")
    args = parser.parse_args()

    ours = shutil.which(args.lobster)
    if ours is None:
        sys.exit(f"no binary at {args.lobster}; build it with: cargo build --release")
    incumbent = find_incumbent(args)
    with tempfile.TemporaryDirectory(prefix="lobster-bench-") as directory:
        place = pathlib.Path(directory)
        report = [measure(work, args, place) for work in works([os.path.abspath(ours)], incumbent, place, args.items)
                  if args.only in (None, work.name)]
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(report, indent=1) + "\n", "utf-8")


def find_incumbent(args):
    """The incumbent's command, or None."""
    if not args.incumbent:
        print("skipped: the incumbent (give --incumbent DIR; setup.sh installs it)")
        return None
    package = pathlib.Path(args.incumbent) / "node_modules" / "@clawdbot" / "lobster"
    node = args.node or shutil.which("node", path=str(pathlib.Path(args.incumbent) / "node_modules" / ".bin"))
    if not package.is_dir() or not node:
        print(f"skipped: the incumbent is not installed in {args.incumbent}; run setup.sh there")
        return None
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout.strip()
    if not version.startswith("v") or int(version[1:].split(".")[0]) < 22:
        print(f"skipped: the incumbent needs node 22 or later, {node} is {version or 'broken'}")
        return None
    declared = json.loads((package / "package.json").read_text("utf-8"))
    entry = declared["bin"] if isinstance(declared["bin"], str) else declared["bin"]["lobster"]
    print(f"incumbent: {declared['name']} {declared['version']} on node {version}")
    return [os.path.abspath(node), str((package / entry).resolve())]


def measure(work, args, place):
    """Runs each candidate in turn, after one round that warms caches; prints one table."""
    rounds = min(args.rounds, work.rounds or args.rounds)
    print(f"\n{work.name}: {work.about} ({rounds} rounds)")
    samples = {who: [] for who in work.ways}
    failed = {}
    for number in range(rounds + 1):
        for who, command in work.ways.items():
            if who in failed:
                continue
            state = place / "state" / who
            try:
                extra = work.fresh(who, lambda asked, state=state: said(asked, state)) if work.fresh else []
            except (RuntimeError, ValueError, KeyError, TypeError) as error:
                failed[who] = f"preparing: {error}"
                continue
            seconds, cpu, peak, problem, _ = call([*command, *extra], state)
            if problem:
                failed[who] = problem
            elif number > 0:
                samples[who].append((seconds, cpu, peak))
    rows = {}
    for who, taken in samples.items():
        if who in failed:
            print(f"  {who:<12} failed: {failed[who]}")
            continue
        seconds, cpu, peak = zip(*taken)
        rows[who] = {"seconds": statistics.median(seconds), "fastest": min(seconds),
                     "cpu": statistics.median(cpu), "peak_rss": max(peak)}
    base = rows.get("lobster")
    for who, row in rows.items():
        ratio = f"{row['seconds'] / base['seconds']:8.2f}x" if base else ""
        print(f"  {who:<12}{row['seconds'] * 1000:>12.1f} ms{ratio:>10}  fastest {row['fastest'] * 1000:.1f} ms"
              f"  cpu {row['cpu'] * 1000:.1f} ms  peak {row['peak_rss'] / 2**20:.1f} MiB")
    if work.verdict and len(rows) == len(work.ways):
        print("  " + work.verdict({who: row["seconds"] for who, row in rows.items()}))
    return {"name": work.name, "about": work.about, "rounds": rounds, "results": rows, "failed": failed}


def said(command, state):
    """What a command prints; not measured."""
    *_, problem, output = call(command, state)
    if problem:
        raise RuntimeError(problem)
    return output


def call(command, state):
    """Runs a command; (seconds, CPU seconds, peak RSS in bytes, what went wrong, the output), children included."""
    state.mkdir(parents=True, exist_ok=True)
    environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(state), "LOBSTER_STATE_DIR": str(state), "LANG": "C.UTF-8"}
    with tempfile.TemporaryFile() as output:
        begun = time.perf_counter()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begun
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read().decode("utf-8", "replace")
    problem = None if process.returncode == 0 else f"exit {process.returncode}: {text[:300]}"
    # Linux counts in KiB, macOS in bytes.
    cpu = usage.ru_utime + usage.ru_stime
    return seconds, cpu, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024), problem, text


if __name__ == "__main__":
    main()
