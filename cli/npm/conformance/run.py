#!/usr/bin/env python3
"""Plays the recorded cases of the tool envelope through the npm package.

    run.py CORPUS BINARY      (CORPUS is tests/conformance)

Every case all of whose calls the package can make is run twice: through the
binary itself and through the package over it. Both must pass and fail alike.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
FEWEST = 300
DIFFERENT = {
    "cli/cli-file-other-extension-tool": "the core's own text, which does not name the file",
    "approvals/approvals-approve-and-cancel": "in the incumbent's core, too, `cancel` counts before `approved`",
    "tool-envelope/envelope-integers-beyond-2-53": "JSON.parse rounds, as the incumbent does",
}


def is_in_package(call):
    argv = call["argv"]
    return bool(argv) and argv[0] in ("run", "resume") and not call.get("tty") and not call.get("signal")


def play(corpus, binary, cases, env):
    with tempfile.TemporaryDirectory() as scratch:
        report = pathlib.Path(scratch) / "report.json"
        done = subprocess.run(
            [sys.executable, corpus / "run.py", "--bin", binary, "--cases", cases, "--jobs", "4", "--json", report],
            env={**os.environ, **env}, capture_output=True, text=True)
        if not report.exists():
            sys.exit(done.stdout + done.stderr)
        return {f"{c['area']}/{c['id']}": c for c in json.loads(report.read_text())["cases"]}


def main():
    corpus, binary = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    with tempfile.TemporaryDirectory() as scratch:
        # The runner gives calls an environment of their own: what the package needs is in a wrapper.
        wrapper = pathlib.Path(scratch) / "through-package"
        wrapper.write_text(f"#!/bin/sh\nLOBSTER_BIN='{binary}' exec node '{HERE / 'cli.js'}' \"$@\"\n")
        wrapper.chmod(0o755)
        cases = pathlib.Path(scratch) / "cases"
        cases.mkdir()
        for path in sorted((corpus / "cases").glob("*.jsonl")):
            lines = path.read_text("utf-8").splitlines(keepends=True)
            chosen = [line for line in lines if all(is_in_package(call) for call in json.loads(line)["calls"])]
            (cases / path.name).write_text("".join(chosen), "utf-8")
        through = play(corpus, str(wrapper), cases, {})
        mapped = {n: c for n, c in through.items() if not any("exit 97" in p for p in c["problems"])}
        direct = play(corpus, str(binary), cases, {})
    differ = {n for n, c in mapped.items() if c["ok"] != direct[n]["ok"]}
    for name in sorted(differ):
        print(f"{name}: package {mapped[name]['problems'][:2]}, binary {direct[name]['problems'][:2]}")
    same = len(mapped) - len(differ)
    print(f"{len(mapped)} cases through the package ({len(through) - len(mapped)} have no counterpart), {same} end alike")
    unexpected = differ - DIFFERENT.keys()
    if unexpected or len(mapped) < FEWEST:
        sys.exit(f"ends differently: {sorted(unexpected)}" if unexpected else f"fewer than {FEWEST} cases")


if __name__ == "__main__":
    main()
