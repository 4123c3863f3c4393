#!/usr/bin/env python3
"""Runs the tests that the incumbent ships in its npm package against our program.

    suite.py --node NODE --incumbent DIR --binary LOBSTER [--fixtures DIR] [--only GLOB] [--json OUT]

In a copy of the package, `bin/lobster.js` becomes our program, and every test file that starts it is run.
`expected-failures.txt` says which tests fail and why; what fails without standing there, what stands there and
passes, and a test of a listed name that is gone are all failures of this program. A test that fails over the
incumbent itself (its fixture is not in the package, the machine is slow) says nothing and is counted apart: the
package has no `test/fixtures`, which `--fixtures` takes from a checkout of the incumbent's repository. A test in such a
file that imports the incumbent's own modules passes whatever our program does.
"""

import argparse
import fnmatch
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
FILE_TIMEOUT_S = 900
# Stands for the tests of a file that ends before it has reported them, as one does whose imports are not there.
THE_FILE = "(the file)"
# A slow machine is no difference: a file with a surprise is run again.
ATTEMPTS = 1

# `execve` leaves no process between the test and our program: signals, exit codes and standard streams are its own.
SHIM = """#!/usr/bin/env node
process.execve({binary}, [{binary}, ...process.argv.slice(2)], process.env);
"""


def read_expected(path):
    """{(file, test): (anchor, why)} of a list of expected failures."""
    expected = {}
    file = None
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        section = re.fullmatch(r"\[(\S+\.test\.js)\]", line)
        if section:
            file = section[1]
            continue
        entry = re.fullmatch(r"(\S+)  (.+?)  -- (.+)", line)
        if not entry or file is None:
            sys.exit(f"{path}:{number}: not `anchor  test  -- why`: {line}")
        anchor, test, why = entry.groups()
        expected[(file, test)] = (anchor, why)
    return expected


def with_our_binary(incumbent, binary, scratch):
    """A copy of the package whose `bin/lobster.js` is our program, and the test files that start it."""
    package = copy_package(incumbent, scratch)
    (package / "bin" / "lobster.js").write_text(SHIM.format(binary=json.dumps(str(binary))))
    return package, [p for p in tests_of(package) if re.search(r"""bin/lobster\.js|["']bin["'],\s*["']lobster\.js["']""", p.read_text("utf-8"))]


def copy_package(incumbent, target):
    # Beside its dependencies, which npm puts two levels up.
    package = target / "node_modules" / "@clawdbot" / "lobster"
    shutil.copytree(incumbent, package)
    for entry in incumbent.parent.parent.iterdir():
        if not entry.name.startswith((".", "@clawdbot")):
            (target / "node_modules" / entry.name).symlink_to(entry)
    return package


def tests_of(package):
    return sorted((package / "dist" / "test").glob("*.test.js"))


def run_file(node, package, file, env):
    """{test: (how, why)} of one test file."""
    with tempfile.TemporaryDirectory(prefix="lobster-suite-") as home:
        try:
            done = subprocess.run(
                [node, "--test", "--test-concurrency=1", f"--test-reporter={HERE / 'reporter.mjs'}",
                 "--test-reporter-destination=stdout", str(file.relative_to(package))],
                cwd=package, env={**env, "HOME": home, "LOBSTER_STATE_DIR": f"{home}/state"}, stdin=subprocess.DEVNULL,
                capture_output=True, text=True, timeout=FILE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return {THE_FILE: ("fail", f"did not end in {FILE_TIMEOUT_S} s")}
    results = {}
    for line in done.stdout.splitlines():
        try:
            said = json.loads(line)
        except ValueError:
            continue
        if isinstance(said, dict) and "how" in said:
            # Names are one line; the few that hold a digest or a path of this run are none of ours to keep apart.
            results[" ".join(said["name"].split())] = (said["how"], said.get("why"))
    if done.returncode and all(how != "fail" for how, _ in results.values()):
        results[THE_FILE] = ("fail", (done.stderr or done.stdout)[-400:])
    return results


def leave_out_failures_of_theirs(results, of_theirs):
    for test, (how, why) in results.items():
        if how == "fail" and of_theirs.get(test, of_theirs.get(THE_FILE, ("pass", None)))[0] == "fail":
            results[test] = ("fail over both", why)


def file_in(package, other, file):
    return package / file.relative_to(other)


def surprises(results, expected):
    """Lines about what is not as expected in one file."""
    out = []
    for test, (how, why) in sorted(results.items()):
        if how == "fail" and test not in expected:
            out.append(f"fails: {test}: {' '.join((why or '').split())}")
        if how == "pass" and test in expected:
            out.append(f"passes now; remove it from expected-failures.txt: {test}")
    out += [f"stands in expected-failures.txt and is no test: {test}" for test in sorted(expected.keys() - results.keys())]
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--node", required=True)
    parser.add_argument("--incumbent", required=True, type=pathlib.Path)
    parser.add_argument("--binary", required=True, type=pathlib.Path)
    parser.add_argument("--fixtures", type=pathlib.Path, help="test/fixtures of the incumbent's repository")
    parser.add_argument("--only", default="*", help="only test files whose name matches this glob")
    parser.add_argument("--json", type=pathlib.Path, help="write every result to this file")
    args = parser.parse_args()
    incumbent, binary = args.incumbent.resolve(), args.binary.resolve()
    expected = read_expected(HERE / "expected-failures.txt")
    env = {k: v for k, v in os.environ.items() if not k.startswith(("LOBSTER_", "OPENCLAW_", "CLAWD_", "NODE_"))}
    # Tests start `node` by name, too.
    env["PATH"] = f"{pathlib.Path(args.node).parent}:{env['PATH']}"

    told, report, totals = [], [], {"pass": 0, "fail": 0, "fail over both": 0, "skip": 0}
    with tempfile.TemporaryDirectory(prefix="lobster-suite-") as scratch:
        package, files = with_our_binary(incumbent, binary, pathlib.Path(scratch) / "ours")
        theirs = copy_package(incumbent, pathlib.Path(scratch) / "theirs")
        if args.fixtures:
            for copy in (package, theirs):
                shutil.copytree(args.fixtures, copy / "test" / "fixtures")
        gone = {file for file, _ in expected} - {file.name for file in files}
        told += [f"{file}: stands in expected-failures.txt and is no such file" for file in sorted(gone)]
        for file in files:
            if not fnmatch.fnmatch(file.name, args.only):
                continue
            known = {test: why for (name, test), why in expected.items() if name == file.name}
            for _ in range(ATTEMPTS):
                results = run_file(args.node, package, file, env)
                if any(how == "fail" and test not in known for test, (how, _) in results.items()):
                    leave_out_failures_of_theirs(results, run_file(args.node, theirs, file_in(theirs, package, file), env))
                lines = surprises(results, known)
                if not lines:
                    break
            count = {how: sum(r[0] == how for r in results.values()) for how in totals}
            for how in totals:
                totals[how] += count[how]
            print(f"{file.name:<34} " + "  ".join(f"{count[how]:>4} {how}" for how in totals), flush=True)
            told += [f"{file.name}: {line}" for line in lines]
            report += [{"file": file.name, "test": test, "how": how, "why": why} for test, (how, why) in results.items()]
    if args.json:
        args.json.write_text(json.dumps(report, indent=1) + "\n")
    print(", ".join(f"{count} {how}" for how, count in totals.items()) + f"; {len(expected)} expected failures")
    for line in told:
        print(line)
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main())
