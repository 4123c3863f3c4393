#!/usr/bin/env python3
"""Measures changes to files as transactions: what a layer costs, a commit, and a large file.

    changes.py [--lobster target/release/lobster] [--files 100000] [--changed 1000] [--large-mib 2048]
               [--rounds 7] [--only NAME] [--json OUT]

Prints each figure with its bar. Times depend on the machine and its disk; the ratios say more
where it is shared. Needs Python 3.9 and nothing else.
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
FIGURES = []

# A policy puts a step into the same jail with and without a layer.
POLICY = """version = 1
[limits]
disk = "16GiB"
file_size = "8GiB"
memory = "4GiB"
timeout = "10m"
cpu = "10m"
[[rule]]
id = "all"
effect = "allow"
program = "python3"
grant = { fs_write = ["@workspace/tree"] }
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lobster", default=str(REPOSITORY / "target" / "release" / "lobster"))
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--changed", type=int, default=1000)
    parser.add_argument("--large-mib", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only")
    parser.add_argument("--json")
    args = parser.parse_args()
    if shutil.which(args.lobster) is None:
        sys.exit(f"no binary at {args.lobster}; build it with: cargo build --release")
    for part in [layer, commit, large]:
        if args.only in (None, part.__name__):
            with tempfile.TemporaryDirectory(prefix="lobster-changes-") as directory:
                part(Place(args, pathlib.Path(directory)))
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(FIGURES, indent=1) + "\n", "utf-8")


def figure(what, value, unit, bar=None):
    met = "" if bar is None else ("met" if value <= bar else "MISSED")
    limit = "" if bar is None else f"  bar <= {bar:g} {unit}"
    print(f"{what:<62} {value:>12,.2f} {unit}{limit}  {met}", flush=True)
    FIGURES.append({"what": what, "value": value, "unit": unit, "bar": bar, "met": met or None})


class Place:
    """A working directory with a state directory beside it."""

    def __init__(self, args, directory):
        self.args = args
        self.work = directory / "work"
        self.tree = self.work / "tree"
        self.tree.mkdir(parents=True)
        self.env = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(directory / "home"),
            "LOBSTER_STATE_DIR": str(directory / "state"),
            "LOBSTER_POLICY": str(self.work / "policy.toml"),
        }
        (directory / "home").mkdir()
        (self.work / "policy.toml").write_text(POLICY, "utf-8")

    def flow(self, name, changes, program):
        """A file of one step that runs a Python program in the tree."""
        step = {"id": "s", "cwd": "tree", "changes": changes, "exec": ["python3", "-c", program]}
        (self.work / name).write_text(json.dumps({"steps": [step]}), "utf-8")
        return name

    def run(self, *words):
        done = subprocess.run(
            [self.args.lobster, *words], cwd=self.work, env=self.env, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            sys.exit(f"{words}: {done.stdout}{done.stderr}")
        return done

    def timed(self, *words):
        begun = time.perf_counter()
        self.run(*words)
        return (time.perf_counter() - begun) * 1000

    def paired(self, one, other, rounds):
        """Medians of both in milliseconds, taken in turns: the machine may be busy with something else."""
        self.timed(*one), self.timed(*other)
        times = [(self.timed(*one), self.timed(*other)) for _ in range(rounds)]
        differences = statistics.median(b - a for a, b in times)
        return [statistics.median(column) for column in zip(*times)] + [differences]


def layer(place):
    for number in range(place.args.files):
        directory = place.tree / f"{number // 1000:03}"
        if number % 1000 == 0:
            directory.mkdir()
        (directory / f"{number}").touch()
    nothing = "pass"
    direct, staged = place.flow("direct.lobster", "direct", nothing), place.flow("staged.lobster", "staged", nothing)
    plain, layered, more = place.paired(("run", direct), ("run", staged), place.args.rounds)
    figure(f"a jailed step over {place.args.files:,} files, without a layer", plain, "ms")
    figure(f"the same with a layer over {place.args.files:,} files", layered, "ms")
    figure("what the layer adds", more, "ms", 10)
    figure("ratio of the two", layered / plain, "x")


def commit(place):
    count = place.args.changed
    for number in range(count):
        (place.tree / f"{number}").write_text(f"{number}\n" * 50, "utf-8")
    change = f"import pathlib\nfor n in range({count}):\n    p = pathlib.Path(str(n)); p.write_text(p.read_text() + 'x')"
    direct, staged = place.flow("direct.lobster", "direct", change), place.flow("staged.lobster", "staged", change)
    plain, committed, more = place.paired(("run", direct), ("run", staged), place.args.rounds)
    figure(f"a step that changes {count:,} files, directly", plain, "ms")
    figure("the same staged and committed", committed, "ms")
    figure("change set computed and committed", more, "ms", 400)
    begun = time.perf_counter()
    for number in range(count):
        handle = os.open(place.work / "synced", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.write(handle, b"x" * 300)
        os.close(handle)
    os.sync()
    figure("1,000 plain files written and one sync, for comparison", (time.perf_counter() - begun) * 1000, "ms")


def large(place):
    def peak(mib):
        (place.tree / "large").unlink(missing_ok=True)
        with open(place.tree / "large", "wb") as handle:
            for _ in range(mib):
                handle.write(os.urandom(1 << 20))
        change = "h = open('large', 'r+b'); h.seek(1 << 19); h.write(b'x')"
        staged = place.flow("staged.lobster", "staged", change)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            begun = time.perf_counter()
            place.run("run", staged)
            most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
            os.write(write, json.dumps([most, time.perf_counter() - begun]).encode())
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as answer:
            result = json.loads(answer.read())
        os.waitpid(child, 0)
        return result

    small, _ = peak(1)
    most, took = peak(place.args.large_mib)
    figure("most memory of lobster, a file of 1 MiB changed", small, "MiB")
    figure(f"most memory of lobster, a file of {place.args.large_mib:,} MiB changed", most, "MiB", small + 16)
    figure("which took", took, "s")


if __name__ == "__main__":
    main()
