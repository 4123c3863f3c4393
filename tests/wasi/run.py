#!/usr/bin/env python3
"""Runs the official preview-1 test suite through `lobster step run`, and compares with expected.toml.

    run.py LOBSTER [TEST ...]

LOBSTER is the binary; with names of tests (`rust/path_link`) only those are run. The suite is
fetched at the commit that expected.toml names and kept in the user's cache directory.
LOBSTER_WASI_TESTSUITE=DIR takes a copy that is there already. Where it cannot be had, nothing is
compared: "skipped: ..." and success.

Each test runs twice: without grants but its directory, and with `--clock --random` as well. Any
difference from the table fails, also a test that passes now or that the table does not have.
"""

import concurrent.futures
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

try:
    import tomllib
except ImportError:
    print("skipped: reading the table needs Python 3.11")
    sys.exit(0)

HERE = pathlib.Path(__file__).resolve().parent
GROUPS = ["assemblyscript", "c", "rust"]
TARGET = "testsuite/wasm32-wasip1"
# Seconds for a test, which takes milliseconds.
LONGEST = 60
NO_NETWORK = ["Could not resolve", "unable to access", "Connection", "timed out", "Network is unreachable"]


def skip(why):
    print(f"skipped: the official preview-1 tests are not run: {why}")
    sys.exit(0)


def suite(source):
    """The directory of the suite; fetched if it is not there."""
    named = os.environ.get("LOBSTER_WASI_TESTSUITE")
    if named:
        place = pathlib.Path(named)
        if not (place / "tests" / "rust" / TARGET).is_dir():
            sys.exit(f"LOBSTER_WASI_TESTSUITE={named}: there is no tests/rust/{TARGET}; name a checkout of {source['branch']}")
        return place
    if not shutil.which("git"):
        skip("git is not installed")
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    place = cache / "lobster-wasi-testsuite" / source["commit"]
    if not place.is_dir():
        fetch(source, place)
    return place


def fetch(source, place):
    place.parent.mkdir(parents=True, exist_ok=True)
    draft = pathlib.Path(tempfile.mkdtemp(dir=place.parent))
    try:
        for words in (
            ["init", "--quiet"],
            ["fetch", "--quiet", "--depth", "1", source["repository"], source["commit"]],
            ["checkout", "--quiet", "FETCH_HEAD"],
        ):
            try:
                done = subprocess.run(["git", *words], cwd=draft, capture_output=True, text=True, timeout=300,
                                      env={**os.environ, "GIT_TERMINAL_PROMPT": "0"})
            except subprocess.TimeoutExpired:
                skip(f"{source['repository']} took longer than 5 minutes")
            if done.returncode != 0:
                if any(sign in done.stderr for sign in NO_NETWORK):
                    skip(f"{source['repository']} cannot be reached")
                sys.exit(f"git {' '.join(words)}: {done.stderr}")
        draft.rename(place)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def run(lobster, module, grants):
    """Why the test failed; None if it passed."""
    wanted = module.with_suffix(".json")
    wanted = json.loads(wanted.read_text()) if wanted.exists() else {}
    unknown = set(wanted) - {"args", "env", "exit_code", "root", "stdout"}
    if unknown:
        return f"its description has {', '.join(sorted(unknown))}, which this runner does not know"
    env = wanted.get("env", {})
    with tempfile.TemporaryDirectory() as scratch:
        words = [lobster, "step", "run", str(module), *grants]
        for name in env:
            words += ["--env", name]
        if "root" in wanted:
            files = pathlib.Path(scratch) / "files"
            shutil.copytree(module.parent / wanted["root"], files, symlinks=True)
            words += ["--write", f"{files}:/"]
        if wanted.get("args"):
            words += ["--", *wanted["args"]]
        state = str(pathlib.Path(scratch) / "state")
        try:
            done = subprocess.run(words, capture_output=True, stdin=subprocess.DEVNULL, timeout=LONGEST,
                                  env={**os.environ, **env, "LOBSTER_STATE_DIR": state})
        except subprocess.TimeoutExpired:
            return f"it took longer than {LONGEST} s"
    said = done.stderr.decode(errors="replace").strip()
    if done.returncode != wanted.get("exit_code", 0):
        return f"exit code {done.returncode}: {said[-400:]}"
    if "stdout" in wanted and done.stdout.decode(errors="replace") != wanted["stdout"]:
        return f"it printed {done.stdout[:200]!r}"
    return None


def compare(name, expected, plain, granted):
    """What differs from the table; None if nothing does."""
    ends = f"without grants: {plain or 'pass'}; with the clock and randomness: {granted or 'pass'}"
    if expected is None:
        return f"{name} does not stand in the table ({ends})"
    if expected == "pass":
        good = plain is None and granted is None
    elif "needs_clock" in expected:
        good = plain is not None and granted is None
    else:
        good = plain is not None and granted is not None
    return None if good else f"{name} should be {expected} ({ends})"


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    lobster = str(pathlib.Path(sys.argv[1]).resolve())
    table = tomllib.loads((HERE / "expected.toml").read_text())
    place = suite(table.pop("suite"))
    expected = {f"{group}/{test}": end for group, tests in table.items() for test, end in tests.items()}
    modules = {}
    for group in GROUPS:
        for module in sorted((place / "tests" / group / TARGET).glob("*.wasm")):
            modules[f"{group}/{module.stem}"] = module
    only = sys.argv[2:]
    strangers = [name for name in only if name not in modules]
    if strangers:
        sys.exit(f"the suite has no {', '.join(strangers)}")
    chosen = only or sorted(modules)
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        plain = list(pool.map(lambda name: run(lobster, modules[name], []), chosen))
        granted = list(pool.map(lambda name: run(lobster, modules[name], ["--clock", "--random"]), chosen))
    differences = [compare(name, expected.get(name), *ends) for name, *ends in zip(chosen, plain, granted)]
    differences = [difference for difference in differences if difference]
    if not only:
        differences += [f"{name} stands in the table and not in the suite" for name in expected if name not in modules]
    for difference in differences:
        print(f"DIFFERENT: {difference}")
    passed = sum(ends == (None, None) for ends in zip(plain, granted))
    print(f"{passed} of {len(chosen)} official preview-1 tests pass, {len(chosen) - passed} deviate, {len(differences)} differ from the table")
    sys.exit(1 if differences else 0)


main()
