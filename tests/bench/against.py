#!/usr/bin/env python3
"""Times this build against another build of lobster, both in turn.

    against.py BINARY [--lobster target/release/lobster] [--rounds 15] [--only NAME] [--most RATIO]

BINARY is the other build, for example of the last tag. Each round runs every work once with each binary, in changing
order; a ratio is the median of ours over the median of the other's, and `cpu` the same for the time that the processors
worked, which a busy machine changes less. With --most, a ratio of both above RATIO ends with exit 1. Policed steps need
Linux. Needs Python 3.9 and nothing else.
"""

import argparse
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

from works import COMMANDS, INBOX, REPOSITORY, small_works, workflow


def list_works(place):
    """Each work's name and arguments; the files that they need are written."""
    yield from small_works(place)
    yield "mail", workflow(place / "mail.lobster", *({"run": command.format(inbox=INBOX)} for command in COMMANDS))


def time_once(binary, arguments, place, state):
    """Seconds by the clock and of the processors for one call."""
    environment = {**os.environ, "LOBSTER_STATE_DIR": str(state)}
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run([binary, *arguments], cwd=place, env=environment, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, check=False)
    took, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        sys.exit(f"{binary} {' '.join(arguments)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", metavar="BINARY")
    parser.add_argument("--lobster", default=str(REPOSITORY / "target" / "release" / "lobster"))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only")
    parser.add_argument("--most", type=float)
    args = parser.parse_args()
    binaries = [os.path.abspath(args.lobster), os.path.abspath(args.binary)]
    slower = []
    with tempfile.TemporaryDirectory(prefix="lobster-against-") as directory:
        place = pathlib.Path(directory)
        states = [place / "state-ours", place / "state-other"]
        for name, arguments in list_works(place):
            if args.only not in (None, name):
                continue
            figures = [[], []]
            for number in range(args.rounds + 1):
                for at in ((0, 1) if number % 2 else (1, 0)):
                    figure = time_once(binaries[at], arguments, place, states[at])
                    if number:  # The first call fills caches.
                        figures[at].append(figure)
            (ours, ours_cpu), (other, other_cpu) = ([statistics.median(column) for column in zip(*figure)]
                                                    for figure in figures)
            ratios = ours / other, ours_cpu / other_cpu
            print(f"{name:8} {ours * 1000:8.1f} ms, other {other * 1000:8.1f} ms: {ratios[0]:.2f}x, cpu {ratios[1]:.2f}x",
                  flush=True)
            if args.most and min(ratios) > args.most:
                slower.append(name)
    if slower:
        sys.exit(f"slower than {args.most}x: {', '.join(slower)}")


if __name__ == "__main__":
    main()
