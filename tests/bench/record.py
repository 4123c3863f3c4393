#!/usr/bin/env python3
"""Measures the record: replay, durability, syncs, large stores, many processes.

    record.py [--lobster target/release/lobster] [--fill target/release/examples/fill_store]
              [--runs 100000] [--gates 200] [--only NAME] [--json OUT]

Prints each figure with its bar. strace counts the syncs; without it that part is
skipped, and said. Needs Python 3.9 and nothing else.
"""

import argparse
import json
import os
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
DIST = REPOSITORY / "guest-steps" / "dist"
# What `lobster step new --lang rust` makes.
GREET = REPOSITORY / "tests" / "guests" / "dist" / "greet.wasm"
FIGURES = []


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lobster", default=str(REPOSITORY / "target" / "release" / "lobster"))
    parser.add_argument("--fill", default=str(REPOSITORY / "target" / "release" / "examples" / "fill_store"))
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--gates", type=int, default=200)
    parser.add_argument("--only")
    parser.add_argument("--json")
    args = parser.parse_args()
    if shutil.which(args.lobster) is None:
        sys.exit(f"no binary at {args.lobster}; build it with: cargo build --release")
    for part in [replay, durability, syncs, gates, writers, large]:
        if args.only in (None, part.__name__):
            with tempfile.TemporaryDirectory(prefix="lobster-record-") as directory:
                part(Place(args, pathlib.Path(directory)))
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(FIGURES, indent=1) + "\n", "utf-8")


def figure(what, value, unit, bar=None, at_most=True):
    """Prints a figure; whether the bar is met is for whoever reads it to weigh."""
    met = "" if bar is None else ("met" if (value <= bar if at_most else value >= bar) else "MISSED")
    limit = "" if bar is None else f"  bar {'<=' if at_most else '>='} {bar:g} {unit}"
    print(f"{what:<58} {value:>12,.2f} {unit}{limit}  {met}", flush=True)
    FIGURES.append({"what": what, "value": value, "unit": unit, "bar": bar, "met": met or None})


class Place:
    """A working directory with a state directory of its own."""

    def __init__(self, args, directory):
        self.args, self.dir = args, directory
        self.lobster, self.state = os.path.abspath(args.lobster), directory / "state"
        self.env = {"PATH": os.environ["PATH"], "HOME": str(directory), "LANG": "C.UTF-8",
                    "LOBSTER_STATE_DIR": str(self.state)}

    def write(self, name, text):
        (self.dir / name).write_text(text if isinstance(text, str) else json.dumps(text), "utf-8")

    def start(self, *words, **env):
        return subprocess.Popen([self.lobster, *words], cwd=self.dir, env={**self.env, **env},
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, *words, check=True, **env):
        """stdout and the seconds it took."""
        begun = time.perf_counter()
        done = subprocess.run([self.lobster, *words], cwd=self.dir, env={**self.env, **env}, check=False,
                              capture_output=True, text=True, stdin=subprocess.DEVNULL)
        took = time.perf_counter() - begun
        if check and done.returncode != 0:
            sys.exit(f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done.stdout, took

    def latest(self):
        return json.loads(self.run("runs", "--json", "--limit", "1")[0])[0]["id"]

    def median(self, *words, rounds=9, **env):
        return statistics.median(self.run(*words, **env)[1] for _ in range(rounds))


def pure_steps(place, count, work):
    """Runs `count` pure steps of about 1 KB of arguments each and gives the run."""
    item = {"pad": "x" * 1000}
    steps = [{"id": f"s{n}", **work(n, item)} for n in range(count)]
    place.write("flow.lobster", {"name": "pure", "steps": steps})
    place.run("run", "--mode", "tool", "flow.lobster")
    return place.latest()


def js(n, item):
    return {"js": f"/* {n} {item['pad']} */ {n} + 1"}


def csv(n, item):
    return {"component": str(DIST / "csv.wasm"), "stdin": f"a,b\n{n},{item['pad']}\n"}


def replay(place):
    floor = place.median("replay", pure_steps(place, 1, js))
    for name, work in [("js", js), ("component", csv)]:
        try:
            run = pure_steps(place, 1000, work)
        except SystemExit as error:
            print(f"skipped: {name}: {error}")
            continue
        took = place.median("replay", run)
        figure(f"replay of 1000 pure 1-KB {name} steps, whole command", took * 1000, "ms", 150)
        figure(f"replay: pure 1-KB {name} steps a second", 1000 / max(took - floor, 1e-9), "/s", 10_000, at_most=False)
    rounds = 10_000
    place.write("items.json", [{"name": f"{n} " + "x" * 1000} for n in range(rounds)])
    greet = {"id": "greet", "component": str(GREET), "stdin": "$item.json"}
    place.write("flow.lobster", {"name": "pure", "steps": [
        {"id": "items", "run": "cat items.json"}, {"id": "loop", "for_each": "$items.json", "steps": [greet]}]})
    place.run("run", "--mode", "tool", "flow.lobster")
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    took = place.median("replay", place.latest())
    os.sched_setaffinity(0, cores)
    figure("replay on one core: pure 1-KB rounds a second", rounds / took, "/s", 10_000, at_most=False)


def durability(place):
    """The same run with its state on the disk and in memory."""
    steps = [{"id": f"s{n}", "js": f"{n} + 1"} for n in range(1000)]
    place.write("flow.lobster", {"name": "pure", "steps": steps})
    words = ("run", "--mode", "tool", "flow.lobster")
    with tempfile.TemporaryDirectory(prefix="lobster-record-", dir="/dev/shm") as memory:
        place.run(*words), place.run(*words, LOBSTER_STATE_DIR=memory)
        disk, shm = [], []
        for _ in range(7):
            # Nothing comes from the cache of earlier runs.
            steps = [{"id": f"s{n}", "js": f"/* {time.time_ns()} */ {n} + 1"} for n in range(1000)]
            place.write("flow.lobster", {"name": "pure", "steps": steps})
            disk.append(place.run(*words)[1])
            steps[0]["js"] += " "
            place.write("flow.lobster", {"name": "pure", "steps": [{**s, "js": s["js"] + " "} for s in steps]})
            shm.append(place.run(*words, LOBSTER_STATE_DIR=memory)[1])
    figure("1000 pure steps, journal on the disk", statistics.median(disk) * 1000, "ms")
    figure("durability of 1000 pure steps", statistics.median(disk) / statistics.median(shm), "x", 1.3)


def syncs(place):
    if shutil.which("strace") is None:
        print("skipped: syncs (no strace)")
        return

    def count(flow):
        place.write("flow.lobster", flow)
        trace = place.dir / "trace"
        subprocess.run(["strace", "-f", "-o", str(trace), "-e", "trace=fsync,fdatasync", place.lobster, "run",
                        "--mode", "tool", "flow.lobster"], cwd=place.dir, env=place.env, check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return sum("sync(" in line for line in trace.read_text().splitlines())

    count({"steps": [{"id": "a", "run": "true"}]})
    count({"steps": [{"id": "a", "js": "1"}]})  # which also stores the evaluator
    none = count({"steps": [{"id": "a", "js": "1"}]})
    effects = [count({"steps": [{"id": f"s{n}", "run": "true"} for n in range(many)]}) for many in (10, 20)]
    figure("syncs of a run without effects", none, "", 1)
    figure("syncs an effect", (effects[1] - effects[0]) / 10, "", 2)
    branches = [{"id": f"b{n}", "run": "sleep 0.2"} for n in range(64)]
    parallel = count({"steps": [{"id": "p", "parallel": {"branches": branches}}]})
    figure("syncs of 64 parallel effects", parallel - none, "", 8)


def gates(place):
    place.write("flow.lobster", {"steps": [{"id": "ask", "approval": "Go?"}, {"id": "go", "run": "echo gone >> log"}]})
    begun, wrong = time.perf_counter(), 0
    for _ in range(place.args.gates):
        out = place.run("run", "--mode", "tool", "flow.lobster")[0]
        token = json.loads(out)["requiresApproval"]["resumeToken"]
        racers = [place.start("resume", "--token", token, "--approve", "yes") for _ in range(8)]
        won = sum(json.loads(racer.communicate()[0])["ok"] for racer in racers)
        wrong += won != 1
    done = len((place.dir / "log").read_text().splitlines())
    figure(f"gates of {place.args.gates} that not exactly one of 8 processes won", wrong, "", 0)
    figure("effects done too often or not at all", abs(done - place.args.gates), "", 0)
    figure("time a gate", (time.perf_counter() - begun) / place.args.gates * 1000, "ms")


def writers(place):
    rounds = 10
    begun, failed = time.perf_counter(), 0
    for _ in range(rounds):
        started = [place.start("run", "--mode", "tool", f"exec echo {n}") for n in range(16)]
        failed += sum(process.wait() != 0 for process in started)
    listed = len(json.loads(place.run("runs", "--json", "--limit", "0")[0]))
    figure("runs of 16 processes at once that failed", failed, "", 0)
    figure("runs that were lost", 16 * rounds - listed, "", 0)
    figure("time for 16 processes", (time.perf_counter() - begun) / rounds * 1000, "ms")
    place.run("store", "verify")


def large(place):
    if shutil.which(place.args.fill) is None:
        print(f"skipped: large stores (no {place.args.fill}; cargo build --release --examples -p lobster-runtime)")
        return
    flow = {"steps": [{"id": "ask", "approval": "Go?"}, {"id": "go", "run": "true"}]}
    place.write("flow.lobster", flow)

    def figures(state):
        env = {"LOBSTER_STATE_DIR": state}
        resumed = []
        for _ in range(9):
            out = place.run("run", "--mode", "tool", "flow.lobster", **env)[0]
            gate = json.loads(out)["requiresApproval"]["approvalId"]
            resumed.append(place.run("resume", "--id", gate, "--approve", "yes", **env)[1])
        short = json.loads(place.run("runs", "--json", "--limit", "1", **env)[0])[0]["id"][-8:]
        return {
            "page": place.median("runs", **env),
            "failed": place.median("runs", "--status", "failed", **env),
            "interrupted": place.median("runs", "--interrupted", **env),
            "show": place.median("show", short, **env),
            "resume": statistics.median(resumed),
        }

    empty, full = str(place.dir / "empty"), str(place.state)
    subprocess.run([place.args.fill, full, str(place.args.runs)], check=True, stdout=subprocess.DEVNULL)
    before, after = figures(empty), figures(full)
    figure(f"first page of {place.args.runs} runs", after["page"] * 1000, "ms", 50)
    figure("first page of the failed ones", after["failed"] * 1000, "ms", 50)
    figure("first page of the interrupted ones", after["interrupted"] * 1000, "ms", 50)
    figure("show by short id, above an empty store", (after["show"] - before["show"]) * 1000, "ms", 20)
    figure("resume, above an empty store", (after["resume"] - before["resume"]) * 1000, "ms", 20)
    out, took = place.run("store", "gc", "--older-than", "50d", "--json")
    removed = json.loads(out)["runs"]
    figure("gc: runs removed of one half", removed / place.args.runs, "")
    figure("gc of one half", took, "s", 60)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    figure("peak memory of any of these commands", peak, "MiB", 256)
    figure("verify of what stays", place.run("store", "verify")[1], "s")


if __name__ == "__main__":
    main()
